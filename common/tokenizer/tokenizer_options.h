/* The tokenizer's options, which several programs share: their rows, the files
 * that they name, and how both are kept in checkpoints. Start at
 * GPT_TOKENIZER_FILE_OPTIONS.
 *
 * Because the rows are defined here, so are the names of the options: this is
 * the one place below the programs that may name them in messages. The families
 * report a rule, and gpt_tokenizer_open_given() adds the options to it. */
#ifndef GPT_TOKENIZER_TOKENIZER_OPTIONS_H
#define GPT_TOKENIZER_TOKENIZER_OPTIONS_H

#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/options.h"
#include "tokenizer/pretok.h"
#include "tokenizer/tokenizer.h"

/* ---- rows of an option table ----
 *
 * For a member `member`, a struct gpt_tokenizer_options, of a program's options
 * `type_`. --vocab-size, which means more than the tokenizer to some programs,
 * is not among them. */
#define GPT_TOKENIZER_AT(type_, member, field)                                 \
    .offset = offsetof(type_, member) +                                        \
              offsetof(struct gpt_tokenizer_options, field)

/* Rows for what the tokens are. type_def is the default of --tokenizer-type;
 * flags_ are those of the rows that name files, beside GPT_OPT_FILE. */
#define GPT_TOKENIZER_FILE_OPTIONS(type_, member, type_def, flags_)            \
    {.kind = GPT_OPT_CHOICE, .name = "tokenizer-type", .arg = "TYPE",          \
     GPT_TOKENIZER_AT(type_, member, type), .def = type_def,                   \
     .choices = gpt_tokenizer_types,                                           \
     .help = "family of the tokenizer; without it the files tell"},            \
    {.kind = GPT_OPT_STRING, .name = "vocab-file", .arg = "FILE",              \
     GPT_TOKENIZER_AT(type_, member, vocab_file),                              \
     .flags = GPT_OPT_FILE | GPT_OPT_INPUT | (flags_),                         \
     .help = "vocab.json of GPT2BPETokenizer"},                                \
    {.kind = GPT_OPT_STRING, .name = "merge-file", .arg = "FILE",              \
     GPT_TOKENIZER_AT(type_, member, merge_file),                              \
     .flags = GPT_OPT_FILE | GPT_OPT_INPUT | (flags_),                         \
     .help = "merges.txt of GPT2BPETokenizer"},                                \
    {.kind = GPT_OPT_STRING, .name = "tokenizer-model", .arg = "FILE",         \
     GPT_TOKENIZER_AT(type_, member, model),                                   \
     .flags = GPT_OPT_FILE | GPT_OPT_INPUT | (flags_),                         \
     .help = "file of the other families: tokenizer.json or its directory, "   \
             "tokenizer.model, ranks of TikTokenizer"},                        \
    {.kind = GPT_OPT_CHOICE, .name = "tiktoken-pattern", .arg = "NAME",        \
     GPT_TOKENIZER_AT(type_, member, tiktoken_pattern),                        \
     .choices = gpt_pretok_names,                                              \
     .help = "TikTokenizer: how text is cut (default for a .json: v2)"},       \
    {.kind = GPT_OPT_INT, .name = "tiktoken-num-special-tokens", .arg = "N",   \
     GPT_TOKENIZER_AT(type_, member, tiktoken_num_special), .def = "0",        \
     .min = 0, .max = 1 << 20,                                                 \
     .help = "TikTokenizer: ids kept for special tokens; 0: for a .json 1000, "\
             "before its tokens, for a .tiktoken as many as have names"},      \
    {.kind = GPT_OPT_LIST, .name = "tokenizer-special-tokens", .arg = "TOKEN", \
     GPT_TOKENIZER_AT(type_, member, special_tokens),                          \
     .help = "TikTokenizer: names of the special tokens, in the order of "     \
             "their ids"}

/* Rows for how text becomes tokens. */
#define GPT_TOKENIZER_TEXT_OPTIONS(type_, member)                              \
    {.kind = GPT_OPT_CHOICE, .name = "special", .arg = "HOW",                  \
     GPT_TOKENIZER_AT(type_, member, special),                                 \
     .choices = gpt_special_choices,                                           \
     .help = "names of special tokens in a text: plain text (default), or "    \
             "parse them as the tokens"},                                      \
    {.kind = GPT_OPT_FLAG, .name = "tokenizer-hf-no-include-special-tokens",   \
     GPT_TOKENIZER_AT(type_, member, hf_no_special),                           \
     .help = "HuggingFaceTokenizer: put no tokens around a text, as BOS"}

/* The row by which a user insists on another vocabulary than that of the data
 * or the model; `field` is a bool of the program's options. */
#define GPT_TOKENIZER_MISMATCH_OPTION(type_, field)                            \
    {.kind = GPT_OPT_FLAG, .name = "allow-vocab-mismatch",                     \
     .offset = offsetof(type_, field),                                         \
     .help = "warn of a vocabulary that is not the model's or the data's, and "\
             "do not stop"}

/* ---- opening ---- */

/* Chooses the family, and refuses options that have no effect on it; a
 * NullTokenizer drops them with a warning. `typed` is true when
 * --tokenizer-type was given: else the files that are named tell the family,
 * and `fallback` is the one where none is named. The options are those of the
 * command line, before others are filled in. GPT_EUSAGE names the option and
 * the family. */
int gpt_tokenizer_settle(struct gpt_tokenizer_options *o, bool typed,
                         const char *fallback,
                         struct gpt_err *err) GPT_MUST_USE;

/* The same where the options name no tokenizer: every option of a family is
 * refused, and --vocab-size. */
int gpt_tokenizer_settle_none(const struct gpt_tokenizer_options *o,
                              struct gpt_err *err) GPT_MUST_USE;

/* gpt_tokenizer_open(); a GPT_EUSAGE gets a hint with the options that say what
 * is missing or wrong. */
int gpt_tokenizer_open_given(struct gpt_tokenizer **tok,
                             const struct gpt_tokenizer_options *o,
                             struct gpt_err *err) GPT_MUST_USE;

/* ---- files ---- */

/* A file that a tokenizer is made of. */
struct gpt_tokenizer_file {
    char path[GPT_JOINED_BYTES];
    const char *name;   /* in checkpoints */
    const char *option; /* that named it or its neighbour */
};
enum { GPT_TOKENIZER_FILES = 3 };

/* Lists the files that the options name. */
int gpt_tokenizer_files(const struct gpt_tokenizer_options *o,
                        struct gpt_tokenizer_file files[GPT_TOKENIZER_FILES],
                        size_t *n, struct gpt_err *err) GPT_MUST_USE;

/* True when the options say enough to open a tokenizer: it needs no file, or
 * there is one. */
bool gpt_tokenizer_named(const struct gpt_tokenizer_options *o);

/* Adds the Unicode version to --version. */
int gpt_tokenizer_version(struct gpt_buf *b);

/* ---- checkpoints ---- */

/* The family whose files, under their names in checkpoints, are in `dir`; the
 * first of gpt_tokenizer_types when none are. `dir` may be a file that holds a
 * vocabulary; one that cannot be read is an error. */
int gpt_tokenizer_type_in(const char **type, const char *dir,
                          struct gpt_err *err) GPT_MUST_USE;

/* The options but for the files, as an object; NULL when memory is out. */
cJSON *gpt_tokenizer_to_json(const struct gpt_tokenizer_options *o);
/* Fills in what the options leave open: from such an object (NULL: nothing),
 * and from the files in `dir`, under their names there. What is filled in is in
 * `arena` or belongs to the object. */
int gpt_tokenizer_from_json(struct gpt_tokenizer_options *o, const cJSON *json,
                            const char *dir, struct gpt_arena *arena,
                            struct gpt_err *err) GPT_MUST_USE;

#endif
