/* State of a run beside a model of llm.c: of model_00001000.bin it is in
 * state_00001000_00000.bin and so on, a file a rank. Source: llm.c of A.
 * Karpathy, save_state() and gpt2_update() of its program for GPUs. */
#ifndef GPT_CHECKPOINT_LLMC_STATE_H
#define GPT_CHECKPOINT_LLMC_STATE_H

#include "checkpoint/plan.h"

enum gpt_llmc_kind {
    GPT_LLMC_M,
    GPT_LLMC_V,
    GPT_LLMC_MASTER, /* weights in fp32 */
};

struct gpt_llmc_state {
    struct gpt_in **files; /* one a rank; NULL: there is no state */
    int64_t n;
    int64_t elements; /* of each kind in a file */
    bool masters;
    int64_t step; /* updates so far */
};

/* elements: of the model's file. No state beside it is no failure. */
int gpt_llmc_state_open(struct gpt_llmc_state *st, const char *model,
                        int64_t elements, struct gpt_err *err) GPT_MUST_USE;
void gpt_llmc_state_close(struct gpt_llmc_state *st); /* zero is fine */

/* Appends to t what the state has of a tensor which is elements [first, first +
 * count) of the model's file, its dummy rows included. */
int gpt_llmc_state_add(const struct gpt_llmc_state *st, struct gpt_tensor *t,
                       enum gpt_llmc_kind kind, int64_t first, int64_t count,
                       struct gpt_err *err) GPT_MUST_USE;

#endif
