/* The commands of gpt-dataset(1). Each has a file of its own, info.c to
 * index.c, with the command, the rows of its options and its line in --help;
 * main.c lists them. option_table.c makes the program's one table out of all
 * rows. What several commands need is declared here. Start at struct
 * gpt_dataset_command. */
#ifndef GPT_CMD_DATASET_COMMAND_H
#define GPT_CMD_DATASET_COMMAND_H

#include "base/io.h"
#include "base/options.h"
#include "base/progress.h"
#include "data/indexed.h"
#include "tokenizer/tokenizer_options.h"

/* What the command line says: the options of all commands, gpt-dataset(1). */
struct gpt_dataset_options {
    struct gpt_common_options common; /* first, as base/options.h wants it */
    const char *input, *output_prefix, *to, *documents;
    struct gpt_tokenizer_options tokenizer;
    const char *cache_path, *split, *tokenizer_like;
    struct gpt_list num_samples;
    bool index_only, json, jsonl, strip_eod, sources;
    bool allow_missing_shards, allow_vocab_mismatch;
    int64_t seq_length, seed;
    int64_t count, tail, top, vocab_size, eod, max_findings;

    struct gpt_out *out; /* standard output; set by main.c */
};

struct gpt_dataset_command {
    const char *name;
    /* Runs the command on n data sets, named by their prefixes. Prints to
     * o->out. */
    int (*run)(const struct gpt_dataset_options *o, const char *const *sets,
               int n, struct gpt_err *err);
    int min_sets, max_sets;
    const struct gpt_opt *options; /* headings, and rows below them */
    size_t n_options;
    const char *usage;   /* line of --help, after the program's name */
    const char *example; /* a whole command line, or NULL */
};

extern const struct gpt_dataset_command gpt_dataset_info;
extern const struct gpt_dataset_command gpt_dataset_stat;
extern const struct gpt_dataset_command gpt_dataset_cat;
extern const struct gpt_dataset_command gpt_dataset_verify;
extern const struct gpt_dataset_command gpt_dataset_merge;
extern const struct gpt_dataset_command gpt_dataset_slice;
extern const struct gpt_dataset_command gpt_dataset_head;
extern const struct gpt_dataset_command gpt_dataset_repair;
extern const struct gpt_dataset_command gpt_dataset_convert;
extern const struct gpt_dataset_command gpt_dataset_index;

/* ---- rows that several commands take ---- */

#define GPT_DATASET_AT(field)                                                  \
    .offset = offsetof(struct gpt_dataset_options, field)
#define GPT_DATASET_GROUP(title) {.kind = GPT_OPT_GROUP, .help = title}

#define GPT_DATASET_OUTPUT_PREFIX                                              \
    GPT_DATASET_GROUP("New data sets"),                                        \
    {.kind = GPT_OPT_STRING, .name = "output-prefix", .arg = "PREFIX",         \
     GPT_DATASET_AT(output_prefix), .flags = GPT_OPT_FILE,                     \
     .help = "write PREFIX.bin, PREFIX.idx"}

#define GPT_DATASET_DOCUMENTS                                                  \
    GPT_DATASET_GROUP("Which documents"),                                      \
    {.kind = GPT_OPT_STRING, .name = "documents", .arg = "A:B",                \
     GPT_DATASET_AT(documents),                                                \
     .help = "documents A to B - 1, counted from 0; either may be left out"}

#define GPT_DATASET_JSON                                                       \
    GPT_DATASET_GROUP("Output"),                                               \
    {.kind = GPT_OPT_FLAG, .name = "json", GPT_DATASET_AT(json),               \
     .help = "a JSON object a set"}

/* vocab_size_help: what a size means to this command. */
#define GPT_DATASET_VOCABULARY(vocab_size_help)                                \
    GPT_DATASET_GROUP("Vocabulary"),                                           \
    GPT_TOKENIZER_FILE_OPTIONS(struct gpt_dataset_options, tokenizer, NULL, 0),\
    {.kind = GPT_OPT_INT, .name = "vocab-size", .arg = "N",                    \
     GPT_DATASET_AT(vocab_size), .def = "0", .min = 0, .max = INT32_MAX,       \
     .help = vocab_size_help}

#define GPT_DATASET_EOD(eod_help)                                              \
    {.kind = GPT_OPT_INT, .name = "eod", .arg = "ID", GPT_DATASET_AT(eod),     \
     .def = "-1", .min = -1, .max = INT32_MAX, .help = eod_help}

/* ---- what commands share ---- */

/* What the options say about a tokenizer: its type by the files, where it is
 * not given; NULL when they name none. limit: --vocab-size has a meaning
 * without a tokenizer, and with one of any family. */
int gpt_dataset_tokenizer(struct gpt_tokenizer_options *to,
                          const struct gpt_dataset_options *o, bool limit,
                          struct gpt_err *err) GPT_MUST_USE;
/* Opens the tokenizer that the options name: *tok, NULL when they name none. */
int gpt_dataset_open_tokenizer(struct gpt_tokenizer **tok,
                               const struct gpt_dataset_options *o,
                               struct gpt_err *err) GPT_MUST_USE;

/* Reads "A:B", "A:", ":B" or "A" as documents [*begin, *end) of the n that
 * `prefix` has; NULL is all of them. GPT_EUSAGE quotes a text that is no such
 * range. */
int gpt_dataset_parse_range(const char *text, int64_t n, const char *prefix,
                            int64_t *begin, int64_t *end, struct gpt_err *err)
    GPT_MUST_USE;

/* gpt_indexed_open(), with a hint at the command that lists all damage. */
int gpt_dataset_open_set(struct gpt_indexed **set, const char *prefix,
                         struct gpt_err *err) GPT_MUST_USE;

/* Returns the failure that *err is. Where an option allows it, warns with its
 * text and returns GPT_OK instead. */
int gpt_dataset_allow(bool allowed, struct gpt_err *err) GPT_MUST_USE;

/* Makes every file of the sets known as an input: see gpt_in_protect(). */
int gpt_dataset_protect(const char *const *sets, int64_t n,
                        struct gpt_err *err) GPT_MUST_USE;
/* GPT_EUSAGE when no output prefix was given. */
int gpt_dataset_check_output(const struct gpt_dataset_options *o,
                             struct gpt_err *err) GPT_MUST_USE;

/* A progress line called `what` over `bytes` bytes (0: not known). */
struct gpt_progress *
gpt_dataset_open_progress(const struct gpt_dataset_options *o, const char *what,
                          int64_t bytes);

/* How write_set.h writes the output of a command, with its progress. */
struct gpt_write_set_options
gpt_dataset_writing(const struct gpt_dataset_options *o,
                    struct gpt_progress *progress);

#endif
