/* The tokenizer of a run beside those that its data and its checkpoint were
 * made with. Ids mean nothing in another vocabulary, and training on them fails
 * only in what the model writes. */
#ifndef GPT_CMD_TRAIN_VOCABULARY_H
#define GPT_CMD_TRAIN_VOCABULARY_H

#include "cmd/train/options.h"
#include "cmd/train/plan.h"
#include "cmd/train/state.h"
#include "checkpoint/source.h"

/* GPT_EDATA when a data set's provenance names another tokenizer than the
 * options. A data set without that file passes. With --allow-vocab-mismatch a
 * warning takes the place of a failure; so it does where the options name a
 * size alone, and the data's tokenizer has more tokens. */
int gpt_train_check_data_vocabulary(const struct gpt_train_plan *plan,
                                    const struct gpt_train_options *o,
                                    struct gpt_err *err) GPT_MUST_USE;

/* The same for the checkpoint that is loaded, if it holds its tokenizer. */
int gpt_train_check_checkpoint_vocabulary(const struct gpt_source *source,
                                          const struct gpt_train_options *o,
                                          struct gpt_err *err) GPT_MUST_USE;

/* What begins and ends a text is of the vocabulary, and stays with what is
 * saved, so that exports of it say how a text ends. What this run's documents
 * end with (eod; < 0: nothing) joins ends that the source has. */
void gpt_train_take_tokens(struct gpt_train_state *state,
                           const struct gpt_source *source,
                           const struct gpt_train_options *o, int64_t eod);

#endif
