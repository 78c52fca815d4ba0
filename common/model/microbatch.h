/* One microbatch: what the ends of a pipeline read of it, and the same data as
 * one block of memory, which one copy moves. */
#ifndef GPT_MODEL_MICROBATCH_H
#define GPT_MODEL_MICROBATCH_H

#include <stddef.h>
#include <stdint.h>

/* In host memory, read during the call's copy_in (keep until sync): input,
 * target, position, doc_start (B, T) int32; weight (B, T) float, what a row's
 * loss contributes to the gradient. Stages read what they need: input and
 * position the first, target and weight the last. */
struct gpt_microbatch {
    const int32_t *input, *target, *position, *doc_start;
    const float *weight;
    int64_t sample0; /* global number of the first sample: keys dropout, so
                      * that masks differ a step and not a layout */
    const void *device; /* all of it as a block in device memory, instead of
                         * the other fields; NULL: those are read */
};

/* The parts of a block of gpt_microbatch_bytes(B * T). */
struct gpt_microbatch_block {
    int64_t *sample0; /* (1) */
    int32_t *input, *target, *position, *doc_start;
    float *weight;
};

int64_t gpt_microbatch_bytes(int64_t rows);
/* base: NULL, or a multiple of GPT_ALIGN. */
void gpt_microbatch_lay_out(struct gpt_microbatch_block *block, void *base,
                            int64_t rows);

#endif
