/* What the files of packings share: packing.c has the table, packing_few.c the
 * kinds of few bits. */
#ifndef GPT_CHECKPOINT_PACKING_INTERNAL_H
#define GPT_CHECKPOINT_PACKING_INTERNAL_H

#include "base/dtype.h"
#include "base/num.h"
#include "checkpoint/packing.h"

/* Scales are fp16 in all kinds but mxfp4. */
static inline float gpt_packing_half(const uint8_t *p)
{
    return gpt_f16_to_f32(gpt_get_u16(p));
}

/* Each unpacks one block of its kind. */
void gpt_unpack_q2_k(float *to, const uint8_t *block);
void gpt_unpack_q3_k(float *to, const uint8_t *block);
void gpt_unpack_tq1_0(float *to, const uint8_t *block);
void gpt_unpack_tq2_0(float *to, const uint8_t *block);
void gpt_unpack_iq4_nl(float *to, const uint8_t *block);
void gpt_unpack_iq4_xs(float *to, const uint8_t *block);
void gpt_unpack_mxfp4(float *to, const uint8_t *block);

#endif
