/* Ranks that share a model for generation: tensor parallel ranks have a part of
 * each layer, pipeline stages some of the layers. The first rank decides what
 * is computed and has the logits.
 *
 * The cut differs from that of training in one place. Training cuts proj and
 * fc2 by columns, and sums the ranks' parts: one transfer, but a sum in another
 * order than that of one rank. Here all matrices are cut by rows: a rank
 * gathers the whole input and computes its part of the output from beginning to
 * end. So on a CPU the logits have the same bits for any number of ranks. Only
 * models that norm queries over all heads at once (OLMo 2) still have a sum
 * over the ranks, whose rounding depends on their number. */
#ifndef GPT_MODEL_DECODE_RANKS_H
#define GPT_MODEL_DECODE_RANKS_H

#include "model/params.h"
#include "parallel/comm.h"

struct gpt_decode_ranks {
    struct gpt_layout layout;  /* of this rank: gpt_decode_layout() */
    struct gpt_comm *tp, *pp;  /* NULL where it is alone in the group */
    struct gpt_comm *world;    /* of all; rank 0 is the first */
};

/* The parameter table of a model that is cut in this way. */
int gpt_decode_params(struct gpt_param_table *t, const struct gpt_config *c,
                      struct gpt_err *err) GPT_MUST_USE;

/* The layout of rank `rank` of tp * pp ranks, tensor parallel ones side by
 * side; layers need not divide equally. GPT_EUSAGE names the rule that the
 * model breaks. */
int gpt_decode_layout(struct gpt_layout *layout, const struct gpt_config *c,
                      int64_t tp, int64_t pp, int64_t rank,
                      struct gpt_err *err) GPT_MUST_USE;

#endif
