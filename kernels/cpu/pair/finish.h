/* What is done with complete sums, while they are in the first cache: the old
 * c, an epilogue, rounding to bf16 by the processor's instruction, and storing.
 * Start at finish_rows(). */
#ifndef GPT_KERNELS_CPU_PAIR_FINISH_H
#define GPT_KERNELS_CPU_PAIR_FINISH_H

#include "cpu/pair/pair.h"

#include "backend.h"

#include <immintrin.h>

#ifdef __AVX512BF16__ /* as in the files that use it */
#include "cpu/isa/simd.h"
#include "cpu/pair/curves.h"

/* Sums of 32 x 32 of c that are complete, from the first row on that is not
 * finished yet, and where that row goes. */
struct finishing {
    const struct cpu_pair_finish *way;
    const float *sums; /* rows PAIR_PANEL apart */
    float *c32;
    uint16_t *c16, *aux;
    const uint16_t *bias;
    int64_t rows; /* left */
    __mmask32 lanes;
    bool past, past_aux;
};

/* 32 values of bf16 as floats: words become upper halves, by the instruction
 * that tiles leave free. */
static inline void widen_both(vf x[2], __m512i both)
{
    const __m512i left = _mm512_set_epi16(
        15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7, 0, 6, 0, 5, 0,
        4, 0, 3, 0, 2, 0, 1, 0, 0, 0);
    const __m512i right = _mm512_add_epi16(left, _mm512_set1_epi16(16));
    const __mmask32 upper = 0xaaaaaaaa;

    x[0] = (vf)_mm512_maskz_permutexvar_epi16(upper, left, both);
    x[1] = (vf)_mm512_maskz_permutexvar_epi16(upper, right, both);
}

static inline void wide_of(vf x[2], const uint16_t *from, __mmask32 lanes)
{
    widen_both(x, _mm512_maskz_loadu_epi16(lanes, from));
}

/* 32 values of bf16. What nothing reads soon goes past the caches: a store to a
 * line that is not there would read it first. */
static inline void store_narrow(uint16_t *to, __m512i x, __mmask32 lanes,
                                bool past)
{
    if (past)
        _mm512_stream_si512((__m512i *)(void *)to, x);
    else
        _mm512_mask_storeu_epi16(to, lanes, x);
}

static inline void store_wide(float *to, const vf x[2], __mmask32 lanes,
                              bool past)
{
    if (past) {
        _mm512_stream_ps(to, (__m512)x[0]);
        _mm512_stream_ps(to + 16, (__m512)x[1]);
        return;
    }
    _mm512_mask_storeu_ps(to, (__mmask16)lanes, (__m512)x[0]);
    _mm512_mask_storeu_ps(to + 16, (__mmask16)(lanes >> 16), (__m512)x[1]);
}

static inline __m512i narrowed(const vf x[2])
{
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)x[1], (__m512)x[0]);
}

static inline __attribute__((always_inline)) void
finish_by(struct finishing *due, int64_t n, bool add, bool narrow,
          enum gpt_epilogue epilogue)
{
    const struct cpu_pair_finish *f = due->way;
    const bool biased =
        epilogue == GPT_EPI_BIAS || epilogue == GPT_EPI_BIAS_GELU;
    const __mmask32 lanes = due->lanes;
    const float *sums = due->sums;
    uint16_t *c16 = due->c16, *aux = due->aux;
    float *c32 = due->c32;
    vf bias[2] = {{0}, {0}};

    if (biased)
        wide_of(bias, due->bias, lanes);
    for (int64_t i = 0; i < n; i++) {
        vf x[2] = {load(sums), load(sums + W)}, y[2];

        if (add && narrow) {
            wide_of(y, c16, lanes);
            x[0] += y[0], x[1] += y[1];
        } else if (add) {
            x[0] += (vf)_mm512_maskz_loadu_ps((__mmask16)lanes, c32);
            x[1] +=
                (vf)_mm512_maskz_loadu_ps((__mmask16)(lanes >> 16), c32 + 16);
        }
        if (biased)
            x[0] += bias[0], x[1] += bias[1];
        if (epilogue == GPT_EPI_BIAS_GELU) {
            /* GELU is that of what is stored. */
            __m512i stored = narrowed(x);

            store_narrow(aux, stored, lanes, due->past_aux);
            widen_both(x, stored);
            x[0] *= (vf)gelu_curve((__m512)x[0]).s;
            x[1] *= (vf)gelu_curve((__m512)x[1]).s;
        } else if (epilogue == GPT_EPI_DGELU) {
            wide_of(y, aux, lanes);
            x[0] *= (vf)gelu_curve((__m512)y[0]).slope;
            x[1] *= (vf)gelu_curve((__m512)y[1]).slope;
        }
        if (narrow)
            store_narrow(c16, narrowed(x), lanes, due->past);
        else
            store_wide(c32, x, lanes, due->past);
        sums += PAIR_PANEL;
        if (narrow)
            c16 += f->ldc;
        else
            c32 += f->ldc;
        if (epilogue == GPT_EPI_BIAS_GELU || epilogue == GPT_EPI_DGELU)
            aux += f->ld_aux;
    }
    due->sums = sums;
    due->c16 = c16;
    due->c32 = c32;
    due->aux = aux;
}

static inline __attribute__((always_inline)) void
finish_any(struct finishing *due, int64_t n, bool add, bool narrow)
{
    switch (due->way->epilogue) {
    case GPT_EPI_NONE:
        finish_by(due, n, add, narrow, GPT_EPI_NONE);
        break;
    case GPT_EPI_BIAS:
        finish_by(due, n, add, narrow, GPT_EPI_BIAS);
        break;
    case GPT_EPI_BIAS_GELU:
        finish_by(due, n, add, narrow, GPT_EPI_BIAS_GELU);
        break;
    case GPT_EPI_DGELU:
        finish_by(due, n, add, narrow, GPT_EPI_DGELU);
        break;
    }
}

/* The next `n` rows, or as many as there are. Not inline: rows come in between
 * chunks of tiles, whose loop is to stay short. */
static __attribute__((noinline)) void finish_rows(struct finishing *due,
                                                  int64_t n)
{
    n = n < due->rows ? n : due->rows;
    if (n == 0)
        return;
    due->rows -= n;
    if (due->way->add && due->way->c16)
        finish_any(due, n, true, true);
    else if (due->way->add)
        finish_any(due, n, true, false);
    else if (due->way->c16)
        finish_any(due, n, false, true);
    else
        finish_any(due, n, false, false);
}

/* Stores past the caches come before whatever this thread stores after. */
static inline void stores_end(void)
{
    _mm_sfence();
}

/* Whether whole lines of memory are written, each by one store. */
static inline bool whole_lines(const void *mem, int64_t ld, int64_t bytes)
{
    return (((uintptr_t)mem | (uintptr_t)(ld * bytes)) & 63) == 0;
}

/* Where the sums of 32 x 32 of c begin, and where they end. */
struct sums {
    const float *from; /* NULL: zero */
    int64_t ld_from;
    float *to;
    int64_t ld_to;
};

/* Those of passing panel i: in `room`, 32 x 32 floats, if they are finished. */
static inline struct sums sums_of(const struct cpu_pair_sweep *s, int64_t i,
                                  float *room)
{
    struct sums sums = {NULL, s->ldc, room, PAIR_PANEL};

    if (s->add)
        sums.from = s->c + i * s->next_c;
    if (!s->finish) {
        sums.to = s->c + i * s->next_c;
        sums.ld_to = s->ldc;
    }
    return sums;
}

/* The sums of passing panel `panel`. */
static inline struct finishing finishing_of(const struct cpu_pair_sweep *s,
                                            int64_t panel, const float *sums)
{
    const struct cpu_pair_finish *f = s->finish;
    int64_t i = s->still_a ? 0 : panel * PAIR_PANEL;
    int64_t j = s->still_a ? panel * PAIR_PANEL : 0, columns = f->n - j;
    struct finishing due = {f, sums, .lanes = 0xffffffff};

    due.rows = f->m - i < PAIR_PANEL ? f->m - i : PAIR_PANEL;
    if (columns < PAIR_PANEL)
        due.lanes = (1U << columns) - 1;
    if (f->bias)
        due.bias = f->bias + j;
    if (f->aux)
        due.aux = f->aux + i * f->ld_aux + j;
    if (f->c16)
        due.c16 = f->c16 + i * f->ldc + j;
    else
        due.c32 = f->c32 + i * f->ldc + j;
    if (columns >= PAIR_PANEL) {
        due.past = f->past && (f->c16 ? whole_lines(due.c16, f->ldc, 2)
                                      : whole_lines(due.c32, f->ldc, 4));
        due.past_aux = f->past_aux && whole_lines(due.aux, f->ld_aux, 2);
    }
    return due;
}

#endif
#endif
