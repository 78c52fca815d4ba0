/* Inputs, targets and masks of a batch, one row at a time; see batch.h. A
 * sample has one token more than the sequence: position i predicts token i +
 * 1. */
#include "data/batch.h"

void gpt_batch_masks(const struct gpt_mask_options *o, const int32_t *tokens,
                     int64_t b, int64_t t, const struct gpt_batch_arrays *to)
{
    for (int64_t row = 0; row < b; row++) {
        const int32_t *x = tokens + row * (t + 1);
        int64_t at = row * t;
        int32_t origin = 0; /* of positions */
        int32_t first = 0;  /* position that is still visible */

        for (int32_t i = 0; i < t; i++, at++) {
            bool eod = o->eod >= 0 && x[i] == o->eod;
            bool padding = x[i + 1] < 0 || (o->has_pad && x[i + 1] == o->pad);
            int32_t pad = o->has_pad ? o->pad : 0;

            to->input[at] = x[i] < 0 ? pad : x[i];
            to->target[at] = x[i + 1] < 0 ? pad : x[i + 1];
            to->position[at] = i - origin;
            to->doc_start[at] = first;
            to->weight[at] =
                padding || (eod && o->eod_mask_loss) ? 0.0F : 1.0F;
            /* The end itself belongs to the document before it: the change
             * begins at the position after it. */
            if (eod && o->reset_position_ids)
                origin = i + 1;
            if (eod && o->reset_attention_mask)
                first = i + 1;
        }
    }
}
