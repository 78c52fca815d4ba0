/* Everything by which a run looks at its model: validation sets, tasks that are
 * scored, samples of text. The training is the same with and without. */
#ifndef GPT_CMD_TRAIN_EVALUATE_H
#define GPT_CMD_TRAIN_EVALUATE_H

#include "base/memory.h"
#include "cmd/train/plan.h"
#include "cmd/train/state.h"
#include "cmd/train/report.h"
#include "train/step.h"

struct gpt_evaluator;

/* Reads what evaluation needs beside the corpus: sets, tasks, prompts, and the
 * vocabulary. `first`: this rank reports. The model is not needed yet. */
int gpt_evaluator_read(struct gpt_evaluator **e,
                       const struct gpt_train_plan *plan, bool first,
                       struct gpt_err *err) GPT_MUST_USE;
/* How many bytes of text tokens stand for, for the feed; NULL: not known. */
const struct gpt_token_text *
gpt_evaluator_text(const struct gpt_evaluator *e);
/* A line for each thing that was read, to be compared between ranks. */
int gpt_evaluator_digest(const struct gpt_evaluator *e,
                         struct gpt_buf *b) GPT_MUST_USE;

/* What an evaluator works on; all of it outlives the evaluator. */
struct gpt_evaluator_run {
    struct gpt_replica *replica;
    struct gpt_feed *feed;
    const struct gpt_corpus *corpus; /* of the run; NULL: there is none */
    struct gpt_report *report;
};
int gpt_evaluator_open(struct gpt_evaluator *e,
                       const struct gpt_evaluator_run *run,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_evaluator_close(struct gpt_evaluator *e); /* NULL is fine */

/* Bytes of memory that its validation sets hold; NULL has none. */
int64_t gpt_evaluator_sets_memory(const struct gpt_evaluator *e);

/* Makes the evaluations that are due after state->iteration, or all of them at
 * the end; all ranks call it. Advances the position in the validation data, and
 * takes the loss into state->best: *validated is true when there was one. */
int gpt_evaluator_run(struct gpt_evaluator *e, struct gpt_train_state *state,
                      bool end, bool *validated,
                      struct gpt_err *err) GPT_MUST_USE;

/* The results of the last evaluation as a table. */
int gpt_evaluator_table(const struct gpt_evaluator *e,
                        struct gpt_buf *b) GPT_MUST_USE;

#endif
