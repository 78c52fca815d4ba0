/* How rows of weights meet inputs by AVX-512: a panel of 32 rows (quant.h)
 * passes once for each few texts. Lanes of a vector are rows, a step of a text
 * goes to all lanes, and sums over k are in the order of k. The panel comes
 * from memory as processors foresee it, from its beginning to its end, or from
 * the second cache, where texts of the panel before asked for it. AVX2 takes
 * the blocks of inputs alone. Start at EACH_BLOCK(). */
#ifndef GPT_KERNELS_CPU_FEW_BLOCKS_H
#define GPT_KERNELS_CPU_FEW_BLOCKS_H

#include "cpu/few/few.h"
#include "cpu/pair/rows.h"

#include <string.h>

/* ---- blocks of inputs ---- */

/* Some texts, whose packed inputs lie together: what is the same for all steps
 * first, then all texts of a step. */
struct block {
    int64_t first, texts;
};

/* Blocks have the same number of texts, or the last ones one less. */
static inline int64_t first_of_block(int64_t m, int64_t blocks, int64_t i)
{
    return m / blocks * i + gpt_min_i64(i, m % blocks);
}

/* Block i. */
static inline struct block block_at(int64_t m, int64_t blocks, int64_t i)
{
    const int64_t first = first_of_block(m, blocks, i);

    return (struct block){first, first_of_block(m, blocks, i + 1) - first};
}

/* The block of a text; a block has at most `most`. */
static inline struct block block_of_text(int64_t m, int64_t most, int64_t text)
{
    const int64_t blocks = gpt_ceil_div(m, most);
    int64_t i = 0;

    while (first_of_block(m, blocks, i + 1) <= text)
        i++;
    return block_at(m, blocks, i);
}

#ifdef __AVX512F__ /* as in the files that use it */

/* Two vectors are the rows of a panel. Eight texts have 16 vectors of sums. */
enum { SIDES = 2, LANES = CPU_PANEL / SIDES, BLOCK_TEXTS = 8 };
enum { FOUR_STEPS = 4 * CPU_STEP, HALVES = 2 * SIDES };

/* Four bytes of inputs, for all rows. */
static inline __m512i four_of(const char *x)
{
    int32_t four;

    memcpy(&four, x, sizeof(four));
    return _mm512_set1_epi32(four);
}

/* ---- halves of vectors ---- */

/* Half h of a step of weights. */
static inline __m256i half_at(const char *w, int h)
{
    return _mm256_load_si256((const void *)(w + CPU_STEP / HALVES * h));
}

/* Sums of whole vectors in halves, and back. */
static inline __attribute__((always_inline)) void
split_sums(__m256i halves[HALVES], const __m512i sums[SIDES])
{
#pragma GCC unroll 4
    for (int h = 0; h < HALVES; h++)
        halves[h] = h % 2 ? _mm512_extracti64x4_epi64(sums[h / 2], 1)
                          : _mm512_castsi512_si256(sums[h / 2]);
}

static inline __attribute__((always_inline)) void
join_sums(__m512i sums[SIDES], const __m256i halves[HALVES])
{
#pragma GCC unroll 2
    for (int side = 0; side < SIDES; side++)
        sums[side] = _mm512_inserti64x4(
            _mm512_castsi256_si512(halves[2 * side]), halves[2 * side + 1], 1);
}

/* ---- blocks ---- */

/* Lines of memory that a block asks for, into the second cache: so many with
 * every four steps. */
struct ahead {
    const char *at;
    int lines;
};

/* With more than these texts multiplying takes as long as memory does, and a
 * single block asks for what follows so much before it is read, past the end of
 * a panel, too. With fewer the processor itself looks ahead, and is slower when
 * it is asked to. */
enum { WAITS = 4, AHEAD = 8 << 10 };

/* What block i asks for. Of several blocks each asks for a part of the next
 * panel: memory has as much time for it as all of them take. `columns` is the
 * number of sums of a row of weights. */
static inline struct ahead ahead_of(const char *panel, int64_t bytes,
                                    int64_t blocks, int64_t i, int64_t columns)
{
    const int lines = FOUR_STEPS / 64;

    if (blocks == 1)
        return (struct ahead){panel + AHEAD, columns > WAITS ? lines : 0};
    return (struct ahead){panel + bytes + bytes / blocks * i,
                          (int)gpt_ceil_div(lines, blocks)};
}

/* Asks for what belongs to step l of four. */
static inline __attribute__((always_inline)) void ask(struct ahead *a, int l)
{
    const int n = a->lines * (l + 1) / 4 - a->lines * l / 4;

    for (int i = 0; i < n; i++, a->at += 64)
        __builtin_prefetch(a->at, 0, 2);
}

#define ONE_BLOCK(multiply, s, panel, b, ahead, most, M)                      \
    case M:                                                                   \
        if ((M) <= (most))                                                    \
            multiply(s, panel, (b).first, ahead, M);                          \
        break

/* multiply(s, panel, first text, ahead, M) of all texts, M at a time, which is
 * a constant for the compiler, and at most `most`. A panel has `bytes`, and a
 * text as many sums of a row as `digits`. */
#define EACH_BLOCK(multiply, s, most, bytes, digits)                          \
    do {                                                                      \
        const int64_t m_ = (s)->in->m, blocks_ = gpt_ceil_div(m_, most);      \
        const char *panel_ = (s)->values + (s)->row / CPU_PANEL * (bytes);    \
                                                                              \
        for (int64_t i_ = 0; i_ < blocks_; i_++) {                            \
            const struct block b_ = block_at(m_, blocks_, i_);                \
            const struct ahead a_ =                                           \
                ahead_of(panel_, bytes, blocks_, i_, b_.texts * (digits));    \
                                                                              \
            switch (b_.texts) {                                               \
                ONE_BLOCK(multiply, s, panel_, b_, a_, most, 1);              \
                ONE_BLOCK(multiply, s, panel_, b_, a_, most, 2);              \
                ONE_BLOCK(multiply, s, panel_, b_, a_, most, 3);              \
                ONE_BLOCK(multiply, s, panel_, b_, a_, most, 4);              \
                ONE_BLOCK(multiply, s, panel_, b_, a_, most, 5);              \
                ONE_BLOCK(multiply, s, panel_, b_, a_, most, 6);              \
                ONE_BLOCK(multiply, s, panel_, b_, a_, most, 7);              \
                ONE_BLOCK(multiply, s, panel_, b_, a_, most, 8);              \
            }                                                                 \
        }                                                                     \
    } while (0)

/* Results of side `side` of the strip's rows: where they are, and which. */
static inline float *side_of(const struct cpu_few_strip *s, int64_t text,
                             int side, __mmask16 *lanes)
{
    *lanes = lanes_of(s->rows - side * LANES);
    return s->y + text * s->ldy + side * LANES;
}

/* The same of sums of floats. */
static inline __attribute__((always_inline)) void
put_sums(const struct cpu_few_strip *s, int64_t text,
         __m512 (*sums)[SIDES], const int M)
{
#pragma GCC unroll 8
    for (int i = 0; i < M; i++)
#pragma GCC unroll 2
        for (int side = 0; side < SIDES; side++) {
            __mmask16 lanes;
            float *y = side_of(s, text + i, side, &lanes);
            __m512 v = sums[i][side];

            if (s->add)
                v = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y), v);
            _mm512_mask_storeu_ps(y, lanes, v);
        }
}

/* ---- bf16 ---- */

/* Multiplies a panel of bf16 with the M texts from `text` on, which have
 * `bytes` each in a step of their packed inputs. add_step() adds one step to
 * the sums of M texts, and add_alone() four steps to those of one; the compiler
 * sees both as constants. With halves of vectors memory comes faster to one
 * text. */
static inline __attribute__((always_inline)) void
multiply_pairs(const struct cpu_few_strip *s, const char *w, int64_t text,
               struct ahead ahead, const int M, const int bytes,
               void (*const add_step)(__m512 (*sums)[SIDES], const char *w,
                                      const char *x, const int M),
               void (*const add_alone)(__m256 halves[HALVES], const char *w,
                                       const char *x))
{
    const int64_t row = cpu_panel_row(2 * s->in->k);
    const char *end = w + row * CPU_PANEL;
    const char *x = s->in->packed + text * row / 4 * bytes;
    __m512 sums[BLOCK_TEXTS][SIDES];

#pragma GCC unroll 8
    for (int i = 0; i < M; i++)
        sums[i][0] = sums[i][1] = _mm512_setzero_ps();
    if (M == 1) {
        __m256i halves[HALVES];

        split_sums(halves, (const __m512i *)sums[0]);
        for (; w < end; w += FOUR_STEPS, x += 4 * bytes)
            add_alone((__m256 *)halves, w, x);
        join_sums((__m512i *)sums[0], halves);
    }
    for (; M > 1 && w < end; w += FOUR_STEPS) {
#pragma GCC unroll 4
        for (int l = 0; l < 4; l++, x += bytes * M) {
            add_step(sums, w + l * CPU_STEP, x, M);
            ask(&ahead, l);
        }
    }
    put_sums(s, text, sums, M);
}

#endif
#endif
