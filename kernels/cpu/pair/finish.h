/* What is done with complete sums, while they are in the first cache: the old
 * c, an epilogue, rounding to bf16 by the processor's instruction, and storing.
 * Start at finish_sums(). */
#ifndef GPT_KERNELS_CPU_PAIR_FINISH_H
#define GPT_KERNELS_CPU_PAIR_FINISH_H

#include "cpu/pair/pair.h"

#include "backend.h"

#include <immintrin.h>

#ifdef __AVX512BF16__ /* as in the files that use it */
#include "cpu/isa/gelu.h"

/* The first lanes of a vector that are columns below n. */
static inline __mmask16 lanes_of(int64_t n)
{
    return n >= 16 ? 0xffff : (__mmask16)((1U << n) - 1);
}

static inline vf widened(__m256i x)
{
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16);
}

static inline vf wide_of(const uint16_t *x, __mmask16 lanes)
{
    return widened(_mm256_maskz_loadu_epi16(lanes, x));
}

static inline void narrow_to(uint16_t *to, vf x, __mmask16 lanes)
{
    _mm256_mask_storeu_epi16(to, lanes,
                             (__m256i)_mm512_cvtneps_pbh((__m512)x));
}

static inline __attribute__((always_inline)) void
finish_row(const struct cpu_pair_finish *f, int64_t i, bool add, bool narrow,
           enum gpt_epilogue epilogue)
{
    const float *sums = f->sums + i * f->ld_sums;
    uint16_t *c16 = narrow ? f->c16 + i * f->ldc : NULL;
    uint16_t *aux = f->aux ? f->aux + i * f->ld_aux : NULL;
    float *c32 = narrow ? NULL : f->c32 + i * f->ldc;

    for (int64_t j = 0; j < f->n; j += 16) {
        __mmask16 lanes = lanes_of(f->n - j);
        vf x = (vf)_mm512_maskz_loadu_ps(lanes, sums + j);

        if (add)
            x += narrow ? wide_of(c16 + j, lanes)
                        : (vf)_mm512_maskz_loadu_ps(lanes, c32 + j);
        if (epilogue == GPT_EPI_BIAS || epilogue == GPT_EPI_BIAS_GELU)
            x += wide_of(f->bias + j, lanes);
        if (epilogue == GPT_EPI_BIAS_GELU) {
            /* GELU is that of what is stored. */
            __m256i stored = (__m256i)_mm512_cvtneps_pbh((__m512)x);

            _mm256_mask_storeu_epi16(aux + j, lanes, stored);
            x = gelu_of(widened(stored));
        } else if (epilogue == GPT_EPI_DGELU)
            x *= slope(wide_of(aux + j, lanes));
        if (narrow)
            narrow_to(c16 + j, x, lanes);
        else
            _mm512_mask_storeu_ps(c32 + j, lanes, (__m512)x);
    }
}

static inline __attribute__((always_inline)) void
finish_rows(const struct cpu_pair_finish *f, bool add, bool narrow)
{
    for (int64_t i = 0; i < f->m; i++)
        switch (f->epilogue) {
        case GPT_EPI_NONE:
            finish_row(f, i, add, narrow, GPT_EPI_NONE);
            break;
        case GPT_EPI_BIAS:
            finish_row(f, i, add, narrow, GPT_EPI_BIAS);
            break;
        case GPT_EPI_BIAS_GELU:
            finish_row(f, i, add, narrow, GPT_EPI_BIAS_GELU);
            break;
        case GPT_EPI_DGELU:
            finish_row(f, i, add, narrow, GPT_EPI_DGELU);
            break;
        }
}

static void finish_sums(const struct cpu_pair_finish *f)
{
    if (f->add && f->c16)
        finish_rows(f, true, true);
    else if (f->add)
        finish_rows(f, true, false);
    else if (f->c16)
        finish_rows(f, false, true);
    else
        finish_rows(f, false, false);
}

#endif
#endif
