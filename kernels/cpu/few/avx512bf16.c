/* Products of few rows with bf16, inputs rounded to bf16, by AVX512-BF16: see
 * few.h. VDPBF16PS adds the products of two pairs to each of 16 sums; it takes
 * subnormal numbers for zero. An element has one vector of sums, whatever is
 * computed beside it: one row of weights waits for each of its products, but
 * the processor begins the next row meanwhile. Start at multiply_strip(). */
#include "cpu/few/blocks.h"

enum { VALUES = FEW_CHUNK / 2, ROWS = BLOCK_ROWS };

/* ---- inputs ---- */

static inline int64_t row_bytes(const struct cpu_few_inputs *in)
{
    return cpu_few_chunks(in) * FEW_CHUNK;
}

static int64_t packed_bytes(const struct cpu_few_inputs *in)
{
    return in->m * row_bytes(in);
}

/* Rows are packed one by one. */
static int64_t count_rows(const struct cpu_few_inputs *in)
{
    return in->m;
}

/* A row among zeros, which end its last chunk. */
static void pack_row(const struct cpu_few_inputs *in, int64_t i)
{
    const float *x = in->x + i * in->ldx;
    char *to = in->packed + i * row_bytes(in);

    for (int64_t l = 0; l < in->k; l += VALUES, to += FEW_CHUNK)
        _mm512_store_si512(
            to, (__m512i)_mm512_cvtne2ps_pbh(
                    _mm512_maskz_loadu_ps(lanes_of(in->k - l - 16), x + l + 16),
                    _mm512_maskz_loadu_ps(lanes_of(in->k - l), x + l)));
}

/* ---- sums ---- */

/* What a chunk of `side` rows of weights from row r on adds to the sums of M
 * texts. One load of inputs serves all rows, one of weights all texts. */
static inline __attribute__((always_inline)) void
add_chunk(__m512 sums[BLOCK_TEXTS][ROWS], int r, const uint16_t *w, int64_t k,
          __mmask32 values, const char *x, int64_t ldx, const int M,
          const int side)
{
    __m512i rows[ROWS];

#pragma GCC unroll 4
    for (int j = 0; j < side; j++)
        rows[j] = values == ~(__mmask32)0
                      ? _mm512_loadu_si512(w + j * k)
                      : _mm512_maskz_loadu_epi16(values, w + j * k);
#pragma GCC unroll 4
    for (int i = 0; i < M; i++) {
        const __m512i inputs = _mm512_load_si512(x + i * ldx);

#pragma GCC unroll 4
        for (int j = 0; j < side; j++)
            sums[i][r + j] = _mm512_dpbf16_ps(
                sums[i][r + j], (__m512bh)rows[j], (__m512bh)inputs);
    }
}

/* R rows of weights from row `row` of the strip on, M texts from `text` on. */
static inline __attribute__((always_inline)) void
multiply_rows(const struct cpu_few_strip *s, int64_t row, int64_t text,
              struct ahead *next, const int M, const int R)
{
    const int64_t k = s->in->k, ldx = row_bytes(s->in), rest = k % VALUES;
    const uint16_t *values = (const void *)s->values;
    const int side = M == 1 ? 1 : R;
    __m512 sums[BLOCK_TEXTS][ROWS] = {0};

#pragma GCC unroll 4
    for (int r = 0; r < R; r += side) {
        const uint16_t *w = values + (s->row + row + r) * k;
        const char *x = s->in->packed + text * ldx;

        for (int64_t c = 0; c < k / VALUES; c++) {
            add_chunk(sums, r, w, k, ~(__mmask32)0, x, ldx, M, side);
            fetch(next, 1, M);
            w += VALUES;
            x += FEW_CHUNK;
        }
        if (rest > 0) /* inputs past the end are zero */
            add_chunk(sums, r, w, k, ((__mmask32)1 << rest) - 1, x, ldx, M,
                      side);
    }
    put_sums(s, row, text, sums, M, R);
}

/* All texts with the strip's rows: see EACH_BLOCK(). */
static void multiply_strip(const struct cpu_few_strip *s)
{
    EACH_BLOCK(multiply_rows, s, BLOCK_TEXTS, ROWS);
}

const struct cpu_few_road cpu_few_bf16 = {
    .room = packed_bytes, .parts = count_rows,
    .pack = pack_row, .multiply = multiply_strip};

const struct cpu_few cpu_few_avx512bf16 = {
    {[CPU_BYTES] = &cpu_few_digits,
     [CPU_ROUNDED + CPU_BF16] = &cpu_few_bf16,
     [CPU_ROUNDED + CPU_BYTES] = &cpu_few_bytes,
     [CPU_ROUNDED + CPU_GROUPS] = &cpu_few_grouped}};
