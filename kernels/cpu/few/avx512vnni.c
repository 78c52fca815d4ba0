/* Products of few rows with bytes by AVX512-VNNI: see few.h. VPDPBUSD adds the
 * products of four bytes to each of 16 sums, one factor without a sign. Weights
 * are made so by turning their upper bit, which adds 128 to each; what this
 * adds to a sum is 128 times the sum of the inputs, and is taken off again.
 * Sums are whole numbers, and the same in any order. Start at multiply_strip().
 *
 * A row of inputs is packed as a head of 64 bytes, and for each chunk of 64
 * inputs their digits, first digits first. */
#include "cpu/few/few.h"
#include "cpu/pair/rows.h"

#include <assert.h>

/* Three digits of eight bits are 24 bits of a fixed point. Rows of weights and
 * rows of inputs at a time: 24 vectors of sums, and 4 of weights. */
enum { DIGITS = 3, ROWS = 4, TEXTS = 2 };

struct head {
    int32_t over[DIGITS]; /* 128 times the sum of digits */
    float unit;           /* of the first digit */
    char room[64 - 4 * (DIGITS + 1)];
};
/* A group has room for its rows: each has a head, and a chunk or more. */
static_assert(FEW_BYTES * (sizeof(struct head) + DIGITS * FEW_CHUNK) <=
              FEW_TILES, "struct cpu_few_inputs: packed");

static inline int64_t packed_bytes(const struct cpu_few_inputs *in)
{
    return (int64_t)sizeof(struct head) +
           cpu_few_chunks(in) * DIGITS * FEW_CHUNK;
}

/* ---- inputs ---- */

/* Digits are from -128 to 127: what is left of a number without its last digit
 * is a multiple of 256. */
static inline __m512i take_digit(__m512i *x)
{
    const __m512i digit = _mm512_srai_epi32(_mm512_slli_epi32(*x, 24), 24);

    *x = _mm512_srai_epi32(_mm512_sub_epi32(*x, digit), 8);
    return digit;
}

static void pack_row(const struct cpu_few_inputs *in, int64_t i)
{
    const float *x = in->x + i * in->ldx;
    const float unit = unit_of(x, in->k);
    /* units are powers of two: their inverse is exact, too */
    const __m512 inverse = _mm512_set1_ps(0x1p16F / unit);
    char *to = in->packed + i * packed_bytes(in);
    struct head *head = (void *)to;
    __m512i sums[DIGITS] = {0};

    to += sizeof(*head);
    for (int64_t c = 0; c < cpu_few_chunks(in); c++, to += DIGITS * FEW_CHUNK)
        for (int64_t l = 0; l < FEW_CHUNK; l += 16) {
            const int64_t at = c * FEW_CHUNK + l;
            __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(
                _mm512_maskz_loadu_ps(lanes_of(in->k - at), x + at), inverse));

            for (int p = DIGITS - 1; p >= 0; p--) {
                const __m512i digit = take_digit(&v);

                sums[p] = _mm512_add_epi32(sums[p], digit);
                _mm_store_si128((void *)(to + p * FEW_CHUNK + l),
                                _mm512_cvtepi32_epi8(digit));
            }
        }
    for (int p = 0; p < DIGITS; p++)
        head->over[p] = 128 * _mm512_reduce_add_epi32(sums[p]);
    head->unit = unit;
}

static int64_t count_rows(const struct cpu_few_inputs *in)
{
    return in->m;
}

/* ---- reading ahead ---- */

/* Rows that follow those that are multiplied, in the order of memory, so far
 * ahead that the last row of the next ones comes in time. What is asked for
 * past the end is the next matrix, or nothing. */
struct ahead {
    const char *at, *end;
    int64_t step; /* lines at a time */
};

static struct ahead ahead_of(const struct cpu_few_strip *s, int64_t row)
{
    enum { DISTANCE = 8192 };
    const int64_t bytes = ROWS * s->in->k;
    const char *at = s->values + (s->row + row) * s->in->k +
                     gpt_ceil_div(DISTANCE, bytes) * bytes;

    return (struct ahead){
        .at = at,
        .end = at + bytes,
        .step = gpt_ceil_div(ROWS, gpt_ceil_div(s->in->m, TEXTS))};
}

static inline __attribute__((always_inline)) void fetch(struct ahead *a)
{
    if (a->at >= a->end)
        return;
    for (int64_t n = a->step; n > 0; n--, a->at += 64)
        __builtin_prefetch(a->at, 0, 3);
}

/* ---- sums ---- */

/* The sums over lanes of four vectors, in four lanes. */
static inline __m128i sum_lanes(const __m512i v[ROWS])
{
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0,
                                             0, 0, 0, 0, 0);
    const __m512i a =
        _mm512_add_epi32(_mm512_shuffle_i64x2(v[0], v[1], 0x44),
                         _mm512_shuffle_i64x2(v[0], v[1], 0xee));
    const __m512i b =
        _mm512_add_epi32(_mm512_shuffle_i64x2(v[2], v[3], 0x44),
                         _mm512_shuffle_i64x2(v[2], v[3], 0xee));
    __m512i c = _mm512_add_epi32(_mm512_shuffle_i64x2(a, b, 0x88),
                                 _mm512_shuffle_i64x2(a, b, 0xdd));

    c = _mm512_add_epi32(c, _mm512_shuffle_epi32(c, 0x4e));
    c = _mm512_add_epi32(c, _mm512_shuffle_epi32(c, 0xb1));
    return _mm512_castsi512_si128(_mm512_permutexvar_epi32(firsts, c));
}

/* Results of a text from row `row` of the strip on, from sums of digits. */
static inline __attribute__((always_inline)) void
put_results(const struct cpu_few_strip *s, int64_t row, int64_t text,
            const struct head *head, __m512i sums[DIGITS][ROWS], const int R)
{
    const __mmask8 lanes = (__mmask8)((1U << R) - 1);
    const __m128i scales = _mm_cvtepu16_epi32(
        _mm_maskz_loadu_epi16(lanes, s->scales + s->row + row));
    float *y = s->y + text * s->ldy + row;
    __m128 v = _mm_setzero_ps();

    /* the smallest first */
    for (int p = DIGITS - 1; p >= 0; p--)
        v = _mm_add_ps(
            _mm_mul_ps(v, _mm_set1_ps(1 / 256.0F)),
            _mm_cvtepi32_ps(_mm_sub_epi32(sum_lanes(sums[p]),
                                          _mm_set1_epi32(head->over[p]))));
    /* the unit is a power of two: only the scale's product is rounded, and not
     * where it is added to y */
    v = _mm_mul_ps(v, _mm_set1_ps(head->unit));
    const __m128 scale = _mm_castsi128_ps(_mm_slli_epi32(scales, 16));
    v = s->add ? _mm_fmadd_ps(v, scale, _mm_maskz_loadu_ps(lanes, y))
               : _mm_mul_ps(v, scale);
    _mm_mask_storeu_ps(y, lanes, v);
}

/* What a chunk of R rows of weights adds to the sums of M texts. */
static inline __attribute__((always_inline)) void
add_chunk(__m512i sums[TEXTS][DIGITS][ROWS], const char *w, int64_t k,
          __mmask64 bytes, const char *x, int64_t ldx, const int M,
          const int R)
{
    __m512i rows[ROWS];

#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
        rows[r] = _mm512_xor_si512(
            bytes == ~(__mmask64)0
                ? _mm512_loadu_si512(w + r * k)
                : _mm512_maskz_loadu_epi8(bytes, w + r * k),
            _mm512_set1_epi8(-128));
#pragma GCC unroll 2
    for (int i = 0; i < M; i++)
#pragma GCC unroll 3
        for (int p = 0; p < DIGITS; p++) {
            const __m512i digits =
                _mm512_load_si512(x + i * ldx + p * FEW_CHUNK);

#pragma GCC unroll 4
            for (int r = 0; r < R; r++)
                sums[i][p][r] =
                    add_products(sums[i][p][r], rows[r], digits);
        }
}

/* R rows of weights from row `row` of the strip on, M texts from `text` on. */
static inline __attribute__((always_inline)) void
multiply_rows(const struct cpu_few_strip *s, int64_t row, int64_t text,
              struct ahead *next, const int M, const int R)
{
    const int64_t k = s->in->k, ldx = packed_bytes(s->in);
    const int64_t whole = k / FEW_CHUNK, rest = k % FEW_CHUNK;
    const char *w = s->values + (s->row + row) * k;
    const char *packed = s->in->packed + text * ldx;
    const char *x = packed + sizeof(struct head);
    __m512i sums[TEXTS][DIGITS][ROWS] = {0};

    for (int64_t c = 0; c < whole; c++) {
        add_chunk(sums, w, k, ~(__mmask64)0, x, ldx, M, R);
        fetch(next);
        w += FEW_CHUNK;
        x += DIGITS * FEW_CHUNK;
    }
    if (rest > 0) /* digits past the end are zero */
        add_chunk(sums, w, k, ((__mmask64)1 << rest) - 1, x, ldx, M, R);
    for (int i = 0; i < M; i++)
        put_results(s, row, text + i, (const void *)(packed + i * ldx),
                    sums[i], R);
}

static void multiply_strip(const struct cpu_few_strip *s)
{
    for (int64_t row = 0, taken; row < s->rows; row += taken) {
        taken = s->rows - row < ROWS ? 1 : ROWS;
        struct ahead next = ahead_of(s, row);
        int64_t text = 0;

        for (; text + TEXTS <= s->in->m; text += TEXTS)
            if (taken == ROWS)
                multiply_rows(s, row, text, &next, TEXTS, ROWS);
            else
                multiply_rows(s, row, text, &next, TEXTS, 1);
        if (text < s->in->m && taken == ROWS)
            multiply_rows(s, row, text, &next, 1, ROWS);
        else if (text < s->in->m)
            multiply_rows(s, row, text, &next, 1, 1);
    }
}

const struct cpu_few cpu_few_avx512vnni = {.parts = count_rows,
                                           .pack = pack_row,
                                           .multiply = multiply_strip};
