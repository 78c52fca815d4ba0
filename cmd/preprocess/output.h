/* All files that a run of gpt_preprocess() writes: internal to
 * data/preprocess*.c. Start at gpt_outputs_open(). */
#ifndef GPT_CMD_PREPROCESS_OUTPUT_H
#define GPT_CMD_PREPROCESS_OUTPUT_H

#include "cmd/preprocess/lines.h"
#include "cmd/preprocess/journal.h"

struct gpt_outputs;

/* Options are borrowed. `at` is where to go on, zeroed at the beginning; NULL
 * when nothing is to be left to go on from. GPT_EUSAGE when two outputs, or an
 * output and an input, are the same file. */
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

/* Publishes all files, with what is said of the whole run in `at`; frees `out`
 * whatever happens. */
int gpt_outputs_commit(struct gpt_outputs *out, const struct gpt_point *at,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_outputs_abort(struct gpt_outputs *out); /* NULL is fine */

/* ---- of outputs that can be gone on with: PATH.part files ---- */

/* Bytes of bad lines so far. */
int64_t gpt_outputs_quarantined(const struct gpt_outputs *out);
/* What was added is on disk; fills at->keys. */
int gpt_outputs_sync(struct gpt_outputs *out, struct gpt_point *at,
                     struct gpt_err *err) GPT_MUST_USE;
/* The same at the end: all files are complete, only their names are missing. */
int gpt_outputs_finish(struct gpt_outputs *out, struct gpt_point *at,
                       struct gpt_err *err) GPT_MUST_USE;
/* Leaves them; frees. NULL is fine. */
void gpt_outputs_suspend(struct gpt_outputs *out);

/* ---- names ---- */

/* "PREFIX_KEY_document.bin"; freed with gpt_buf_free(). */
struct gpt_buf;
int gpt_output_name(struct gpt_buf *name,
                    const struct gpt_preprocess_options *options, int64_t key,
                    const char *suffix, struct gpt_err *err) GPT_MUST_USE;
/* Is `path` one of these, as we would write it? */
bool gpt_is_output(const struct gpt_preprocess_options *options,
                   const char *path);

/* Gives finished files their names, those that lack them. */
int gpt_outputs_publish(const struct gpt_preprocess_options *options,
                        struct gpt_err *err) GPT_MUST_USE;
/* Are they all there, with a name or without? */
bool gpt_outputs_are_there(const struct gpt_preprocess_options *options);
/* Removes what an earlier run left. */
int gpt_outputs_discard(const struct gpt_preprocess_options *options,
                        struct gpt_err *err) GPT_MUST_USE;

#endif
