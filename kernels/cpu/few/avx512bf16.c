/* Products of few rows with bf16, inputs rounded to bf16, by AVX512-BF16: see
 * few.h. VDPBF16PS adds the products of two pairs to each of 16 sums; it takes
 * subnormal numbers for zero. A step is a pair of each row of a panel. Start at
 * multiply_strip(). */
#include "cpu/few/blocks.h"

#include <string.h>

/* ---- inputs ---- */

/* Bytes of a text: its pairs of bf16. */
static inline int64_t text_bytes(const struct cpu_few_inputs *in)
{
    return cpu_panel_row(2 * in->k);
}

/* Bytes of all packed inputs. Blocks of texts follow each other. */
static int64_t packed_bytes(const struct cpu_few_inputs *in)
{
    return gpt_round_up(in->m * text_bytes(in), 64);
}

/* Packs row i. Zeros fill the last four of its pairs. */
static void pack_row(const struct cpu_few_inputs *in, int64_t i)
{
    const struct block b = block_of_text(in->m, BLOCK_TEXTS, i);
    const int64_t end = text_bytes(in) / 2;
    const float *x = in->x + i * in->ldx;
    char *to = in->packed + b.first * text_bytes(in) + (i - b.first) * 4;

    for (int64_t l = 0; l < in->k; l += 32) {
        int32_t pairs[16];

        _mm512_storeu_si512(
            pairs, (__m512i)_mm512_cvtne2ps_pbh(
                       _mm512_maskz_loadu_ps(lanes_of(in->k - l - 16),
                                             x + l + 16),
                       _mm512_maskz_loadu_ps(lanes_of(in->k - l), x + l)));
        for (int64_t j = 0; j < 16 && l + 2 * j < end; j++) {
            memcpy(to, &pairs[j], sizeof(pairs[j]));
            to += b.texts * 4;
        }
    }
}

/* ---- sums ---- */

/* Adds one step of weights to the sums of M texts. */
static inline __attribute__((always_inline)) void
add_step(__m512 (*sums)[SIDES], const char *w, const char *x, const int M)
{
    const __m512bh left = (__m512bh)_mm512_load_si512(w);
    const __m512bh right = (__m512bh)_mm512_load_si512(w + CPU_STEP / 2);

#pragma GCC unroll 8
    for (int i = 0; i < M; i++) {
        const __m512bh pair = (__m512bh)four_of(x + 4 * i);

        sums[i][0] = _mm512_dpbf16_ps(sums[i][0], left, pair);
        sums[i][1] = _mm512_dpbf16_ps(sums[i][1], right, pair);
    }
}

/* Adds four steps to the sums of one text. */
static inline __attribute__((always_inline)) void
add_alone(__m256 halves[HALVES], const char *w, const char *x)
{
#pragma GCC unroll 4
    for (int l = 0; l < 4; l++) {
        const __m256bh pair =
            (__m256bh)_mm512_castsi512_si256(four_of(x + 4 * l));

#pragma GCC unroll 4
        for (int h = 0; h < HALVES; h++)
            halves[h] = _mm256_dpbf16_ps(
                halves[h], (__m256bh)half_at(w + l * CPU_STEP, h), pair);
    }
}

#define PANEL(s, w, text, ahead, M)                                           \
    multiply_pairs(s, w, text, ahead, M, 4, add_step, add_alone)

/* Multiplies a strip, which is one panel. */
static void multiply_strip(const struct cpu_few_strip *s)
{
    EACH_BLOCK(PANEL, s, BLOCK_TEXTS,
               cpu_panel_row(2 * s->in->k) * CPU_PANEL, 1);
}

const struct cpu_few_road cpu_few_bf16 = {
    .panels = true, .room = packed_bytes, .parts = cpu_few_rows_of,
    .pack = pack_row, .multiply = multiply_strip};

const struct cpu_few cpu_few_avx512bf16 = {
    .road = {[CPU_BF16] = &cpu_few_floats,
             [CPU_BYTES] = &cpu_few_digits,
             [CPU_GROUPS] = &cpu_few_grouped_digits,
             [CPU_ROUNDED + CPU_BF16] = &cpu_few_bf16,
             [CPU_ROUNDED + CPU_BYTES] = &cpu_few_bytes,
             [CPU_ROUNDED + CPU_GROUPS] = &cpu_few_grouped}};
