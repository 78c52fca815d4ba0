/* See vocabulary.h. Start at gpt_vocabulary_open(). */
#include "cmd/generate/vocabulary.h"

#include "base/io.h"
#include "base/log.h"
#include "tokenizer/gguf_tokens.h"
#include "tokenizer/hf_files.h"
#include "tokenizer/identity.h"
#include "tokenizer/tokenizer_json.h"

#include <string.h>

/* Messages name two tokenizers with two files each. */
enum {
    TEXT = 300,
    MOST_PADDING = 1024, /* rows that a writer may have added to a table */
    MOST_CONFIG = 16 << 20, /* bytes of a configuration with a template */
};

static const char of_json[] = "HuggingFaceTokenizer";
static const char of_pieces[] = "SentencePieceTokenizer";

/* The tokenizers in question; strings are in the arena or the source. */
struct vocabularies {
    const struct gpt_source *source;
    struct gpt_tokenizer_options used, kept; /* kept: of the checkpoint */
    bool has_kept, others; /* `others`: `used` are not the kept files */
    bool insist;
    struct gpt_arena arena;
};

static const cJSON *kept_options(const struct gpt_source *source)
{
    return cJSON_GetObjectItemCaseSensitive(source->state, "tokenizer");
}

/* ---- the family ---- */

/* The tokens of a vocabulary; 0 where it does not open. What is not read here
 * is refused before its tokens are loaded, so that the question costs little
 * where the answer matters. */
static int64_t count_tokens(const char *type, const char *model)
{
    const struct gpt_tokenizer_options o = {.type = type, .model = model};
    struct gpt_tokenizer *tok;

    if (gpt_tokenizer_open(&tok, &o, NULL) != GPT_OK)
        return 0;
    const int64_t n = gpt_tokenizer_vocab_size(tok);
    gpt_tokenizer_close(tok);
    return n;
}

/* Whether all tokens that were added to a vocabulary are among the first n: the
 * roles of a chat may be among those that are not. */
static bool adds_nothing(const char *path, int64_t n)
{
    struct gpt_hf_file file = {0};
    const cJSON *token;
    bool among = gpt_hf_file_read(&file, path, NULL) == GPT_OK;

    cJSON_ArrayForEach(token, cJSON_GetObjectItemCaseSensitive(file.root,
                                                               "added_tokens"))
        among = among && cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(
                             token, "id")) < (double)n;
    gpt_hf_file_close(&file);
    return among;
}

/* Models of SentencePiece have both files: the tokenizer.json that transformers
 * made of a tokenizer.model may be none that is read here, and it may have
 * tokens that the other does not have. */
static bool is_of_pieces(const char *dir)
{
    char json[GPT_JOINED_BYTES], pieces[GPT_JOINED_BYTES];

    if (!gpt_path_holds(dir, GPT_HF_TOKENIZER) ||
        !gpt_path_holds(dir, GPT_HF_PIECES) ||
        gpt_path_join(json, sizeof(json), dir, GPT_HF_TOKENIZER, NULL) !=
            GPT_OK ||
        gpt_path_join(pieces, sizeof(pieces), dir, GPT_HF_PIECES, NULL) !=
            GPT_OK ||
        count_tokens(of_json, json) > 0)
        return false;
    const int64_t n = count_tokens(of_pieces, pieces);
    return n > 0 && adds_nothing(json, n);
}

/* The family of the tokenizer that the checkpoint's run had. Weights of other
 * programs name none, so the files beside them tell which it is. */
static int find_family(const char **family, const struct gpt_source *source,
                       struct gpt_err *err)
{
    const cJSON *kept =
        cJSON_GetObjectItemCaseSensitive(kept_options(source), "type");

    *family = cJSON_GetStringValue(kept);
    if (*family)
        return GPT_OK;
    GPT_TRY(gpt_tokenizer_type_in(family, source->dir, err));
    if (strcmp(*family, of_json) == 0 && is_of_pieces(source->dir))
        *family = of_pieces;
    return GPT_OK;
}

/* What the command line leaves open is taken from the checkpoint, unless the
 * command line asks for another family, whose options mean something else. */
static int find_tokenizers(struct vocabularies *v,
                           const struct gpt_tokenizer_options *given,
                           struct gpt_err *err)
{
    const char *family;

    GPT_TRY(find_family(&family, v->source, err));
    /* What is typed is settled before anything is filled in, so that an option
     * without effect is reported as what the user typed. */
    v->used = *given;
    v->kept = (struct gpt_tokenizer_options){.type = family};
    GPT_TRY(gpt_tokenizer_settle(&v->used, given->type != NULL, family, err));
    GPT_TRY(gpt_tokenizer_from_json(&v->kept, kept_options(v->source),
                                    v->source->dir, &v->arena, err));
    v->has_kept = gpt_tokenizer_named(&v->kept);
    v->others = given->vocab_file || given->merge_file || given->model ||
                strcmp(v->used.type, family) != 0;
    if (strcmp(v->used.type, family) == 0)
        GPT_TRY(gpt_tokenizer_from_json(&v->used, kept_options(v->source),
                                        v->source->dir, &v->arena, err));
    if (gpt_tokenizer_named(&v->used))
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE, "%s holds no vocabulary", v->source->dir);
    return gpt_hint(err, "give --vocab-file and --merge-file, "
                         "--tokenizer-model, or --tokenizer-type "
                         "ByteTokenizer");
}

/* Tokens are compared, not files: a checkpoint may hold the same vocabulary in
 * another format. A tokenizer of a checkpoint that does not open cannot be
 * compared, and passes. */
static int compare_with_kept(struct vocabularies *v,
                             const struct gpt_tokenizer *tok,
                             struct gpt_err *err)
{
    struct gpt_tokenizer_identity used, kept;
    char given[TEXT], there[TEXT];
    struct gpt_tokenizer *other;
    bool agree;

    if (!v->has_kept || !v->others ||
        gpt_tokenizer_open_given(&other, &v->kept, NULL) != GPT_OK)
        return GPT_OK;
    int status = gpt_tokenizers_agree(&agree, tok, other, err);
    if (status == GPT_OK && !agree)
        status = gpt_tokenizer_identify(&kept, &v->kept, other, err);
    gpt_tokenizer_close(other);
    if (status != GPT_OK || agree)
        return status;
    GPT_TRY(gpt_tokenizer_identify(&used, &v->used, tok, err));
    /* a model of another program may lie beside two tokenizers */
    if (!kept_options(v->source) &&
        gpt_tokenizer_identity_in(&used, v->source->dir))
        return GPT_OK;
    gpt_tokenizer_identity_text(given, sizeof(given), &used);
    gpt_tokenizer_identity_text(there, sizeof(there), &kept);
    if (v->insist) {
        gpt_warn("%s has %s, not %s", v->source->dir, there, given);
        return GPT_OK;
    }
    gpt_fail(err, GPT_EDATA, "%s has %s, not %s", v->source->dir, there, given);
    return gpt_hint(err, "name no vocabulary to use the checkpoint's, or "
                         "insist with --allow-vocab-mismatch");
}

/* True when a table of `rows` for fewer tokens looks padded: writers that pad
 * do so to a multiple of 64 or more. */
static bool looks_padded(int64_t rows, int64_t tokens)
{
    return rows % 64 == 0 && rows - tokens < MOST_PADDING;
}

/* `tokens` is what ids can be, `rows` what the word table has.
 *
 * More tokens than the model has rows would index past its word table; there
 * is no insisting on that. Dummy rows do not count: no text can hold them.
 * Fewer are usual where the model is padded. */
static int check_size(const struct vocabularies *v,
                      const struct gpt_tokenizer *tok, struct gpt_err *err)
{
    const int64_t tokens = gpt_tokenizer_vocab_size(tok);
    const int64_t rows = v->source->config.vocab_size;

    if (tokens == rows ||
        (tokens < rows && (v->has_kept || v->insist ||
                           looks_padded(rows, tokens))))
        return GPT_OK;
    gpt_fail(err, GPT_EDATA, "the tokenizer has %lld tokens, the model of %s "
             "%lld", (long long)tokens, v->source->dir, (long long)rows);
    return tokens > rows
               ? gpt_hint(err, "name the vocabulary that the model was trained "
                               "with")
               : gpt_hint(err, "name the vocabulary that the model was trained "
                               "with, or insist with --allow-vocab-mismatch");
}

/* Where add_bos_token is left out, transformers' class decides. */
static bool begins_by_class(const cJSON *config)
{
    static const char *const classes[] = {
        "LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer",
        "CodeLlamaTokenizerFast", "GemmaTokenizer", "GemmaTokenizerFast"};
    const char *class = cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(config, "tokenizer_class"));
    bool begins = false;

    for (size_t i = 0; class && i < GPT_COUNT(classes); i++)
        begins |= strcmp(class, classes[i]) == 0;
    return begins;
}

/* One end of all texts, by the members of a configuration. */
struct end_of_texts {
    const char *flag, *token, *verb;
    bool otherwise; /* where the flag is left out */
    bool (*set)(struct gpt_tokenizer *tok, const char *name);
};

static void set_end(const struct vocabularies *v, struct gpt_tokenizer *tok,
                    const cJSON *config, const struct end_of_texts *end)
{
    const cJSON *add = cJSON_GetObjectItemCaseSensitive(config, end->flag);
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(config, end->token);

    if (cJSON_IsObject(name)) /* an AddedToken with its flags */
        name = cJSON_GetObjectItemCaseSensitive(name, "content");
    if ((cJSON_IsBool(add) ? cJSON_IsTrue(add) : end->otherwise) &&
        cJSON_IsString(name) && !end->set(tok, name->valuestring))
        gpt_warn("%s: texts %s with '%.100s' there, which the vocabulary does "
                 "not have", v->source->dir, end->verb, name->valuestring);
}

/* What the configuration beside the weights says of the ends of a text, where
 * the vocabulary's own files have no place for it: transformers and llama.cpp
 * obey it, and a model was trained so. */
static int set_ends(const struct vocabularies *v, struct gpt_tokenizer *tok,
                    const char *text, size_t len, const char *what,
                    struct gpt_err *err)
{
    cJSON *config = NULL;

    GPT_TRY(gpt_json_parse(&config, text, len, what, err));
    const struct end_of_texts ends[] = {
        {"add_bos_token", "bos_token", "begin", begins_by_class(config),
         gpt_tokenizer_begin_with},
        {"add_eos_token", "eos_token", "end", false, gpt_tokenizer_end_with},
    };

    for (size_t i = 0; i < GPT_COUNT(ends); i++)
        set_end(v, tok, config, &ends[i]);
    cJSON_Delete(config);
    return GPT_OK;
}

/* The processors of a tokenizer.json say it themselves. */
static int read_ends(const struct vocabularies *v, struct gpt_tokenizer *tok,
                     struct gpt_err *err)
{
    static const char name[] = GPT_HF_TOKENIZER_CONFIG;
    const char *dir = v->source->dir;
    const bool keys = gpt_gguf_recognises(dir);
    const char *inside = NULL;
    char path[GPT_JOINED_BYTES], *text;
    size_t len;

    if (strcmp(v->used.type, of_json) == 0)
        return GPT_OK;
    if (keys)
        GPT_TRY(gpt_gguf_tokenizer_type(&inside, dir, err));
    if (keys ? !inside : !gpt_path_holds(dir, name))
        return GPT_OK;
    if (!keys)
        GPT_TRY(gpt_path_join(path, sizeof(path), dir, name, err));
    const char *from = keys ? dir : path;
    GPT_TRY(gpt_gguf_read(name, &text, &len, from, MOST_CONFIG, err));
    const int status = set_ends(v, tok, text, len, from, err);
    gpt_free(text);
    return status;
}

int gpt_vocabulary_open(struct gpt_tokenizer **tok,
                        const struct gpt_source *source,
                        const struct gpt_tokenizer_options *given, bool insist,
                        struct gpt_err *err)
{
    struct vocabularies v = {.source = source, .insist = insist};
    int status;

    *tok = NULL;
    GPT_TRY_GOTO(status, find_tokenizers(&v, given, err), out);
    if (!v.others && strcmp(v.used.type, of_pieces) == 0 &&
        gpt_path_holds(source->dir, GPT_HF_TOKENIZER))
        gpt_info("%s: the vocabulary is that of tokenizer.model; the "
                 "tokenizer.json there is of a kind that is not read here",
                 source->dir);
    GPT_TRY_GOTO(status, gpt_tokenizer_open_given(tok, &v.used, err), out);
    GPT_TRY_GOTO(status, compare_with_kept(&v, *tok, err), out);
    GPT_TRY_GOTO(status, check_size(&v, *tok, err), out);
    status = read_ends(&v, *tok, err);
out:
    gpt_arena_free(&v.arena);
    return status;
}

/* What the two options would say; a family without the second puts nothing
 * around a text. */
int gpt_vocabulary_open_special(struct gpt_tokenizer **tok,
                                const struct gpt_source *source,
                                const struct gpt_tokenizer_options *given,
                                struct gpt_err *err)
{
    struct vocabularies v = {.source = source};
    int status;

    *tok = NULL;
    GPT_TRY_GOTO(status, find_tokenizers(&v, given, err), out);
    /* The command line's choice is for prompts, and not for what templates
     * write. */
    v.used.special = "parse";
    v.used.hf_no_special = strcmp(v.used.type, of_json) == 0;
    status = gpt_tokenizer_open(tok, &v.used, err);
out:
    gpt_arena_free(&v.arena);
    return status;
}
