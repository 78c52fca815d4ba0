/* Shared by trainer.c and trainer_order.c. */
#ifndef GPT_CHECKPOINT_HF_TRAINER_INTERNAL_H
#define GPT_CHECKPOINT_HF_TRAINER_INTERNAL_H

#include "checkpoint/huggingface/trainer.h"

/* Makes t->places of a model, in the order of its class, which rules of its
 * family have; names are in the arena. */
int gpt_hf_trainer_list(struct gpt_hf_trainer *t,
                        const struct gpt_hf_importer *im,
                        const struct gpt_hf_rule *rules,
                        struct gpt_arena *arena,
                        struct gpt_err *err) GPT_MUST_USE;
/* Gives places, in that order, their numbers and groups. *why is NULL, or says
 * why there are none that fit. */
void gpt_hf_trainer_number(struct gpt_hf_trainer *t,
                           const struct gpt_hf_importer *im,
                           struct gpt_arena *arena, const char **why);
/* NULL where a place has no moments of the kind. */
const struct gpt_safetensor *
gpt_hf_trainer_moment(const struct gpt_hf_trainer *t,
                      const struct gpt_hf_place *p, enum gpt_kind kind);
/* True when each place has both moments, of its shape; else *why names one that
 * has not. */
bool gpt_hf_trainer_fits(const struct gpt_hf_trainer *t,
                         struct gpt_arena *arena, const char **why);

#endif
