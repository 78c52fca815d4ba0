/* All files that a run of gpt_preprocess() writes. Start at
 * gpt_outputs_open(). */
#ifndef GPT_CMD_PREPROCESS_OUTPUT_H
#define GPT_CMD_PREPROCESS_OUTPUT_H

#include "cmd/preprocess/journal.h"
#include "cmd/preprocess/line_chunk.h"

struct gpt_outputs;

/* Options are borrowed. `at` is the point to resume from, zeroed for a new run;
 * NULL when a run that stops leaves nothing to resume. GPT_EUSAGE when two
 * outputs, or an output and an input, are the same file. */
int gpt_outputs_open(struct gpt_outputs **out,
                     const struct gpt_preprocess_options *options,
                     enum gpt_dtype dtype, const struct gpt_point *at,
                     struct gpt_err *err) GPT_MUST_USE;

/* Appends the documents of a chunk that follows `lines` lines of its input;
 * counts in *stats what they hold. */
int gpt_outputs_add(struct gpt_outputs *out, const struct gpt_line_chunk *c,
                    int64_t lines, struct gpt_preprocess_stats *stats,
                    struct gpt_err *err) GPT_MUST_USE;
/* Keeps the bad line at byte `at` of a chunk, when they are to be kept. */
int gpt_outputs_add_bad(struct gpt_outputs *out, const struct gpt_line_chunk *c,
                        size_t at, struct gpt_err *err) GPT_MUST_USE;

/* Publishes all files, with the sums of the whole run in `at`; frees `out`
 * whatever happens. */
int gpt_outputs_commit(struct gpt_outputs *out, const struct gpt_point *at,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_outputs_abort(struct gpt_outputs *out); /* NULL is fine */

/* ---- outputs that can be resumed: PATH.part files ---- */

/* Bytes of bad lines so far. */
int64_t gpt_outputs_quarantined(const struct gpt_outputs *out);
/* Everything that was added is on disk on return; fills at->keys. */
int gpt_outputs_sync(struct gpt_outputs *out, struct gpt_point *at,
                     struct gpt_err *err) GPT_MUST_USE;
/* The same at the end: all files are complete, only their names are missing. */
int gpt_outputs_finish(struct gpt_outputs *out, struct gpt_point *at,
                       struct gpt_err *err) GPT_MUST_USE;
/* Leaves the PATH.part files; frees. NULL is fine. */
void gpt_outputs_suspend(struct gpt_outputs *out);

#endif
