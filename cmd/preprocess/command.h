/* The command line of gpt-preprocess(1), as main.c's option table fills it. */
#ifndef GPT_CMD_PREPROCESS_COMMAND_H
#define GPT_CMD_PREPROCESS_COMMAND_H

#include "base/options.h"
#include "tokenizer/tokenizer_options.h"

struct gpt_preprocess_command {
    struct gpt_common_options common; /* first, as base/options.h wants it */
    struct gpt_list input, json_keys;
    const char *output_prefix, *dataset_impl, *shard;
    struct gpt_tokenizer_options tokenizer;
    bool append_eod;
    int64_t workers, log_interval, max_errors;
    const char *on_error;
    bool resume, keep_sequential, provenance, sources;
    double resume_interval;
    int64_t partitions;
    const char *dtype, *empty;
};

/* Names of enum gpt_empty, NULL-terminated. */
extern const char *const gpt_preprocess_empties[];

#endif
