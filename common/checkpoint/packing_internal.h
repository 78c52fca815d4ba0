/* What the files of packings share: packing.c has the table, packing_few.c the
 * kinds of few bits, packing_codes.c those of codes. */
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
void gpt_unpack_iq1_s(float *to, const uint8_t *block);
void gpt_unpack_iq1_m(float *to, const uint8_t *block);
void gpt_unpack_iq2_xxs(float *to, const uint8_t *block);
void gpt_unpack_iq2_xs(float *to, const uint8_t *block);
void gpt_unpack_iq2_s(float *to, const uint8_t *block);
void gpt_unpack_iq3_xxs(float *to, const uint8_t *block);
void gpt_unpack_iq3_s(float *to, const uint8_t *block);

/* By a code: two bits of each of eight elements, or four bits of four, the
 * first lowest. */
extern const uint16_t gpt_iq1_s_codes[2048];
extern const uint16_t gpt_iq2_xxs_codes[256];
extern const uint16_t gpt_iq2_xs_codes[512];
extern const uint16_t gpt_iq2_s_codes[1024];
extern const uint16_t gpt_iq3_xxs_codes[256];
extern const uint16_t gpt_iq3_s_codes[512];

#endif
