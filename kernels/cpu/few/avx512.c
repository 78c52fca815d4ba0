/* Products of few rows with bf16 by AVX-512 alone: see few.h. A step is two
 * values of each row of a panel, the halves of a word, which become floats and
 * meet inputs in fused multiplications: those as they are, and those that are
 * rounded to bf16, where VDPBF16PS is missing. Start at multiply_strip(). */
#include "cpu/few/blocks.h"

#include "base/dtype.h"
#include "base/num.h"

#include <string.h>

/* A text's inputs of a step: two floats. */
enum { TURNS = 2, STEP_BYTES = TURNS * 4 };

/* ---- inputs ---- */

static inline int64_t text_bytes(const struct cpu_few_inputs *in)
{
    return cpu_panel_row(2 * in->k) / 4 * STEP_BYTES;
}

/* Bytes of all packed inputs. Blocks of texts follow each other. */
static int64_t packed_bytes(const struct cpu_few_inputs *in)
{
    return gpt_round_up(in->m * text_bytes(in), 64);
}

/* Packs row i. Zeros fill the last four of its steps. */
static inline void put_row(const struct cpu_few_inputs *in, int64_t i,
                           bool rounded)
{
    const struct block b = block_of_text(in->m, BLOCK_TEXTS, i);
    const int64_t end = text_bytes(in) / 4;
    const float *x = in->x + i * in->ldx;
    char *to = in->packed + b.first * text_bytes(in) +
               (i - b.first) * STEP_BYTES;

    for (int64_t l = 0; l < end; l += LANES) {
        float some[LANES];

        _mm512_storeu_ps(some,
                         _mm512_maskz_loadu_ps(lanes_of(in->k - l), x + l));
        for (int j = 0; rounded && j < LANES; j++)
            some[j] = gpt_bf16_to_f32(gpt_f32_to_bf16(some[j]));
        for (int j = 0; j < LANES && l + j < end; j += TURNS) {
            memcpy(to, some + j, STEP_BYTES);
            to += b.texts * STEP_BYTES;
        }
    }
}

static void pack_row(const struct cpu_few_inputs *in, int64_t i)
{
    put_row(in, i, false);
}

static void pack_rounded(const struct cpu_few_inputs *in, int64_t i)
{
    put_row(in, i, true);
}

/* ---- sums ---- */

/* The values of a turn, one of each word: bf16 is the upper half of a float. */
static inline __m512 values_at(const char *w, int turn)
{
    const __m512i words = _mm512_load_si512(w);

    return _mm512_castsi512_ps(
        turn == 0 ? _mm512_slli_epi32(words, 16)
                  : _mm512_and_si512(words, _mm512_set1_epi32(-0x10000)));
}

/* Adds one step of weights to the sums of M texts. */
static inline __attribute__((always_inline)) void
add_step(__m512 (*sums)[SIDES], const char *w, const char *x, const int M)
{
#pragma GCC unroll 2
    for (int turn = 0; turn < TURNS; turn++) {
        const __m512 left = values_at(w, turn);
        const __m512 right = values_at(w + CPU_STEP / SIDES, turn);

#pragma GCC unroll 8
        for (int i = 0; i < M; i++) {
            const __m512 input = _mm512_castsi512_ps(
                four_of(x + STEP_BYTES * i + 4 * turn));

            sums[i][0] = _mm512_fmadd_ps(left, input, sums[i][0]);
            sums[i][1] = _mm512_fmadd_ps(right, input, sums[i][1]);
        }
    }
}

/* Adds four steps to the sums of one text. */
static inline __attribute__((always_inline)) void
add_alone(__m256 halves[HALVES], const char *w, const char *x)
{
    const __m256i upper = _mm256_set1_epi32(-0x10000);

#pragma GCC unroll 8
    for (int l = 0; l < 4 * TURNS; l++) {
        const __m256 input = _mm256_castsi256_ps(
            _mm512_castsi512_si256(four_of(x + 4 * l)));

#pragma GCC unroll 4
        for (int h = 0; h < HALVES; h++) {
            const __m256i words = half_at(w + l / TURNS * CPU_STEP, h);
            const __m256i values = l % TURNS == 0
                                       ? _mm256_slli_epi32(words, 16)
                                       : _mm256_and_si256(words, upper);

            halves[h] = _mm256_fmadd_ps(_mm256_castsi256_ps(values), input,
                                        halves[h]);
        }
    }
}

#define PANEL(s, w, text, ahead, M)                                           \
    multiply_pairs(s, w, text, ahead, M, STEP_BYTES, add_step, add_alone)

/* Multiplies a strip, which is one panel. */
static void multiply_strip(const struct cpu_few_strip *s)
{
    EACH_BLOCK(PANEL, s, BLOCK_TEXTS,
               cpu_panel_row(2 * s->in->k) * CPU_PANEL, 1);
}

const struct cpu_few_road cpu_few_floats = {
    .panels = true, .room = packed_bytes, .parts = cpu_few_rows_of,
    .pack = pack_row, .multiply = multiply_strip};
const struct cpu_few_road cpu_few_rounded_floats = {
    .panels = true, .room = packed_bytes, .parts = cpu_few_rows_of,
    .pack = pack_rounded, .multiply = multiply_strip};

const struct cpu_few cpu_few_avx512 = {
    .road = {[CPU_BF16] = &cpu_few_floats,
             [CPU_ROUNDED + CPU_BF16] = &cpu_few_rounded_floats}};
