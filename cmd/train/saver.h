/* Saving a run: all ranks write what is theirs in parallel. In the background
 * (--async-save) what is to be written is first copied into host memory,
 * allocated once, and a thread writes it while training continues. All ranks
 * call these functions at the same steps. Start at gpt_saver_save(). */
#ifndef GPT_CMD_TRAIN_SAVER_H
#define GPT_CMD_TRAIN_SAVER_H

#include "checkpoint/ownership.h"
#include "cmd/train/state.h"

struct gpt_saver;

/* Bytes of the copy in host memory; 0 when the files are written from where the
 * replica lies. dp_rank, dp_size: of the data parallel ranks. */
int gpt_saver_memory(const struct gpt_replica *replica,
                     const struct gpt_train_options *options, int64_t dp_rank,
                     int64_t dp_size, int64_t *bytes,
                     struct gpt_err *err) GPT_MUST_USE;

/* Warns when the file system of options->save has less room than one checkpoint
 * of this model takes: better at the start than after the first interval. */
int gpt_saver_check_room(const struct gpt_replica_options *replica,
                         const struct gpt_train_options *options,
                         struct gpt_err *err) GPT_MUST_USE;

/* Into context->options->save. replica and context outlive the saver. */
int gpt_saver_open(struct gpt_saver **saver, struct gpt_replica *replica,
                   const struct gpt_state_context *context,
                   struct gpt_err *err) GPT_MUST_USE;
/* Waits for a save that is under way. NULL is fine. */
void gpt_saver_close(struct gpt_saver *saver);

/* Saves, and prunes old checkpoints. When this returns GPT_OK the checkpoint is
 * on disk; in the background, the copy is taken, after the last save came to
 * its end. A failure of any rank is named on all, the checkpoint before stays
 * as it was. */
int gpt_saver_save(struct gpt_saver *saver,
                   const struct gpt_train_state *state,
                   struct gpt_err *err) GPT_MUST_USE;
/* How a save in the background went, if it came to its end since the last call:
 * after every step. */
int gpt_saver_check(struct gpt_saver *saver, struct gpt_err *err) GPT_MUST_USE;
/* The same, but waits for the end. */
int gpt_saver_wait(struct gpt_saver *saver, struct gpt_err *err) GPT_MUST_USE;

/* Marks the best checkpoint of a run that resumes, if it is there: the run may
 * have ended between its end and the mark. One rank does it; a mark that fails
 * is a warning. */
void gpt_saver_mark_best(const struct gpt_train_options *options,
                         int64_t iteration);

/* Removes what --keep-checkpoints leaves no place for when a run resumes from
 * `iteration` of options->save: the run may have had more of them, or none of
 * the option, and its next save may need their room. One rank does it; what
 * fails is a warning. */
void gpt_saver_prune(const struct gpt_train_options *options,
                     int64_t iteration);

/* Iteration of the newest checkpoint of this saver that is on disk, or -1. */
int64_t gpt_saver_saved(const struct gpt_saver *saver);

#endif
