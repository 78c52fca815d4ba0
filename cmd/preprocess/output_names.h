/* The files of a run by their names alone, when the run that wrote them is
 * over: publishing, looking for them, removing them. */
#ifndef GPT_CMD_PREPROCESS_OUTPUT_NAMES_H
#define GPT_CMD_PREPROCESS_OUTPUT_NAMES_H

#include "base/memory.h"
#include "cmd/preprocess/preprocess.h"

/* "PREFIX_KEY_document.bin"; freed with gpt_buf_free(). */
int gpt_output_name(struct gpt_buf *name,
                    const struct gpt_preprocess_options *options, int64_t key,
                    const char *suffix, struct gpt_err *err) GPT_MUST_USE;
/* Returns true when `path` is one of these files, spelt as this run would. */
bool gpt_is_output(const struct gpt_preprocess_options *options,
                   const char *path);

/* Gives finished files their names. Files that have their names already are
 * left alone, so that it can be repeated after a crash. */
int gpt_outputs_publish(const struct gpt_preprocess_options *options,
                        struct gpt_err *err) GPT_MUST_USE;
/* Returns true when all are there, with their name or as PATH.part. */
bool gpt_outputs_are_there(const struct gpt_preprocess_options *options);
/* Removes the PATH.part files that an earlier run left. */
int gpt_outputs_discard(const struct gpt_preprocess_options *options,
                        struct gpt_err *err) GPT_MUST_USE;

#endif
