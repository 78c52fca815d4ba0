/* The commands of gpt-dataset(1), a function each. They print tables and text
 * to o->out and make files; the program parses options and says what failed. */
#ifndef GPT_CMD_DATASET_COMMANDS_H
#define GPT_CMD_DATASET_COMMANDS_H

#include "base/io.h"
#include "base/options.h"
#include "data/indexed.h"
#include "tokenizer/tokenizer.h"

/* What a command line says: gpt-dataset(1). */
struct gpt_command_options {
    const char *input, *output_prefix, *to, *documents;
    struct gpt_tokenizer_options tokenizer;
    const char *cache_path, *split, *tokenizer_like;
    struct gpt_list num_samples;
    bool index_only, json, jsonl, strip_eod, sources;
    int64_t seq_length, seed;
    int64_t count, tail, top, vocab_size, eod, max_findings;

    struct gpt_out *out;  /* standard output */
    unsigned out_flags;   /* GPT_OUT_*, of files */
    const char *progress; /* "auto", "always", "never" */
};

/* Names of enum gpt_set_format, NULL-terminated: choices of --to. */
extern const char *const gpt_command_formats[];

/* `sets` are prefixes, n of them. */
#define GPT_COMMAND(name)                                                      \
    int gpt_command_##name(const struct gpt_command_options *o,                \
                           const char *const *sets, int n,                     \
                           struct gpt_err *err) GPT_MUST_USE
GPT_COMMAND(info);
GPT_COMMAND(stat);
GPT_COMMAND(verify);
GPT_COMMAND(cat);
GPT_COMMAND(merge);
GPT_COMMAND(slice);
GPT_COMMAND(head);
GPT_COMMAND(repair);
GPT_COMMAND(convert);
GPT_COMMAND(index);
#undef GPT_COMMAND

/* ---- what they share ---- */

/* *tok is NULL when the options name none. */
int gpt_command_tokenizer(struct gpt_tokenizer **tok,
                          const struct gpt_command_options *o,
                          struct gpt_err *err) GPT_MUST_USE;
/* "A:B", "A:", ":B" or "A" of n documents; NULL is all. */
int gpt_command_range(const char *text, int64_t n, const char *prefix,
                      int64_t *begin, int64_t *end, struct gpt_err *err)
    GPT_MUST_USE;
/* gpt_indexed_open(), with a hint at what finds out more. */
int gpt_command_open(struct gpt_indexed **set, const char *prefix,
                     struct gpt_err *err) GPT_MUST_USE;

#endif
