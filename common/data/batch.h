/* What a training step reads of a batch: inputs, targets and masks, made of the
 * tokens of its samples as Megatron's get_ltor_masks_and_position_ids()
 * does. */
#ifndef GPT_DATA_BATCH_H
#define GPT_DATA_BATCH_H

#include "base/status.h"

/* What a document's end does besides being a token; Megatron's names. */
struct gpt_mask_options {
    int32_t eod;               /* the token; < 0: no document ends are known */
    bool eod_mask_loss;        /* no loss where it is the input */
    bool reset_position_ids;   /* positions begin anew after it */
    bool reset_attention_mask; /* nothing before it is visible after it */
    bool has_pad;              /* padding has a token: */
    int32_t pad;               /* ... it is the input there, and no target */
};

/* Where a batch goes: (B, T) each. */
struct gpt_batch_arrays {
    int32_t *input, *target, *position;
    int32_t *doc_start; /* the first position that is visible from t; all 0
                         * without reset_attention_mask */
    float *weight;      /* 0 or 1 */
};

/* tokens (B, T+1) of gpt_corpus_get() for each row. Padding (-1) becomes the
 * padding token, or 0, with weight 0 where it is the target; so does a padding
 * token that the data have. */
void gpt_batch_masks(const struct gpt_mask_options *options,
                     const int32_t *tokens, int64_t b, int64_t t,
                     const struct gpt_batch_arrays *to);

#endif
