/* All files that a run of gpt_preprocess() writes: internal to
 * data/preprocess*.c. Start at gpt_outputs_open(). */
#ifndef GPT_DATA_PREPROCESS_OUTPUT_H
#define GPT_DATA_PREPROCESS_OUTPUT_H

#include "data/preprocess_chunk.h"

struct gpt_outputs;

/* Options are borrowed. GPT_EUSAGE when two outputs, or an output and an input,
 * are the same file. */
int gpt_outputs_open(struct gpt_outputs **out,
                     const struct gpt_preprocess_options *options,
                     enum gpt_dtype dtype, struct gpt_err *err) GPT_MUST_USE;

/* Appends the documents of a chunk; counts in *stats what they hold. */
int gpt_outputs_add(struct gpt_outputs *out, const struct gpt_chunk *c,
                    struct gpt_preprocess_stats *stats, struct gpt_err *err)
    GPT_MUST_USE;
/* Keeps the bad line at byte `at` of a chunk, when they are to be kept. */
int gpt_outputs_add_bad(struct gpt_outputs *out, const struct gpt_chunk *c,
                        size_t at, struct gpt_err *err) GPT_MUST_USE;

/* Publishes all files; frees `out` whatever happens. */
int gpt_outputs_commit(struct gpt_outputs *out, struct gpt_err *err)
    GPT_MUST_USE;
void gpt_outputs_abort(struct gpt_outputs *out); /* NULL is fine */

#endif
