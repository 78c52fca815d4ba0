/* Which pre-tokenizer a regular expression means. There is no regex engine
 * here: an expression that is not in the table is refused, never guessed.
 * Sources: the tokenizer.json files of the models, tiktoken's
 * openai_public.py, Megatron-LM's tiktoken_tokenizer.py. */
#include "tokenizer/pretok.h"

#include <string.h>

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define PREFIX "[^\\r\\n\\p{L}\\p{N}]?"
#define HEAD "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define TAIL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SYMBOLS " ?[^\\s\\p{L}\\p{N}]+"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2                                                                   \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SYMBOLS "|\\s+(?!\\S)|\\s+"

#define CL100K_WORDS                                                           \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++"
#define CL100K_REST                                                            \
    " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"

/* An expression may be there in several spellings: as the model's authors wrote
 * it, and with the possessive quantifiers of later files, which change nothing
 * in what is matched. The cl100k of Hugging Face's files is llama3 here:
 * tiktoken's own differs from it since 0.8, in spaces at the end of a text.
 * tiktoken spells the latter with {1,3}+, of which the plus means nothing to
 * its engine. To the engine of Hugging Face's library it repeats, so that a
 * file with that spelling keeps long numbers whole: cl100k-runs, which is no
 * name for an option. */
static const struct gpt_pretok table[] = {
    {"gpt2", {GPT2}, gpt_pretok_gpt2},
    {"gpt2",
     {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|"
      "\\s++$|\\s+(?!\\S)|\\s"},
     gpt_pretok_gpt2},
    {"cl100k",
     {CL100K_WORDS "|\\p{N}{1,3}|" CL100K_REST},
     gpt_pretok_cl100k_end},
    {"cl100k-runs",
     {CL100K_WORDS "|\\p{N}{1,3}+|" CL100K_REST},
     gpt_pretok_cl100k_runs},
    {"llama3",
     {CONTRACTION "|" PREFIX "\\p{L}+|\\p{N}{1,3}|" SYMBOLS
                  "[\\r\\n]*|" SPACES},
     gpt_pretok_cl100k},
    {"qwen2",
     {CONTRACTION "|" PREFIX "\\p{L}+|\\p{N}|" SYMBOLS "[\\r\\n]*|" SPACES},
     gpt_pretok_qwen2},
    {"qwen3.5",
     {CONTRACTION "|" PREFIX "[\\p{L}\\p{M}]+|\\p{N}|"
                  " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES},
     gpt_pretok_qwen35},
    {"o200k",
     {PREFIX HEAD "*" TAIL "+" CONTRACTION "?|" PREFIX HEAD "+" TAIL "*"
      CONTRACTION "?|\\p{N}{1,3}|" SYMBOLS "[\\r\\n/]*|" SPACES},
     gpt_pretok_o200k},
    {"v2",
     {PREFIX HEAD "*" TAIL "+|" PREFIX HEAD "+" TAIL "*|\\p{N}|" SYMBOLS
             "[\\r\\n/]*|" SPACES},
     gpt_pretok_tekken},
    {"v1",
     {"[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|"
      "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},
     gpt_pretok_megatron_v1},
    {"starcoder", {"\\p{N}", GPT2}, gpt_pretok_starcoder},
    {"deepseek3",
     {"\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
      "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
      " ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES},
     gpt_pretok_deepseek3},
};

const char *const gpt_pretok_names[] = {
    "v1",    "v2",      "gpt2",  "cl100k",    "llama3",
    "qwen2", "qwen3.5", "o200k", "starcoder", "deepseek3", NULL,
};

size_t gpt_pretok_whole(const char *text, size_t len)
{
    (void)text;
    return len;
}

/* True when b is a but for line ends, which JSON may hold as the characters
 * themselves where the expression spells \r and \n. */
static bool same_regex(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        if (*a == *b)
            continue;
        if (a[0] != '\\' || !((a[1] == 'r' && *b == '\r') ||
                              (a[1] == 'n' && *b == '\n')))
            return false;
        a++;
    }
    return *a == *b;
}

/* True when the row has just these n expressions. A file may split what another
 * writes as one: only the same division is found. */
static bool same_stages(const struct gpt_pretok *row, const char *const *regex,
                        size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!row->regex[i] || !same_regex(row->regex[i], regex[i]))
            return false;
    return n == GPT_PRETOK_STAGES || !row->regex[n];
}

const struct gpt_pretok *gpt_pretok_by_regex(const char *const *regex,
                                             size_t n)
{
    if (n == 0 || n > GPT_PRETOK_STAGES)
        return NULL;
    for (size_t i = 0; i < GPT_COUNT(table); i++)
        if (same_stages(&table[i], regex, n))
            return &table[i];
    return NULL;
}

/* The first row of a name is returned: rows of one name cut alike. */
const struct gpt_pretok *gpt_pretok_by_name(const char *name)
{
    for (size_t i = 0; i < GPT_COUNT(table); i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

const struct gpt_pretok *gpt_pretok_row(size_t i)
{
    return i < GPT_COUNT(table) ? &table[i] : NULL;
}
