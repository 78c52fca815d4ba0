/* Products of few rows with bytes, a scale a row, inputs rounded to bytes, by
 * AVX2 or by AVX-VNNI: see few.h and pair/eights.h. Weights lie in rows: panels
 * (avx2.c) were measured not to be faster. Sums are whole numbers, and the same
 * in any order. Weights lose their sign for AVX-VNNI: 128 is added to each by
 * turning its upper bit, and what that adds to a sum is taken off again. Start
 * at multiply_bytes().
 *
 * One text meets rows of weights one after the other, in the order of memory,
 * which processors foresee; several meet two side by side, so that fewer loads
 * serve more products, and the next strip is asked for. */
#include "cpu/few/few.h"
#include "cpu/pair/eights.h"

#include <string.h>

/* TEXTS are multiplied at a time, with SIDE rows of weights side by side; the
 * sums over lanes of EIGHT rows are made together. */
enum { TEXTS = 4, SIDE = 2, EIGHT = 8 };
/* A half of a chunk is a vector of bytes. */
enum { HALF = FEW_CHUNK / 2, FOUR = 4 };

/* ---- weights ---- */

/* HALF weights in the form that add_products() takes. */
struct half {
#ifdef __AVXVNNI__
    __m256i bytes;
#else
    __m256i first, second;
#endif
};

static inline __attribute__((always_inline)) struct half
half_at(const char *w)
{
#ifdef __AVXVNNI__
    return (struct half){
        _mm256_xor_si256(load(w), _mm256_set1_epi8(-PLUS))};
#else
    const __m128i *from = (const void *)w;

    return (struct half){_mm256_cvtepi8_epi16(_mm_loadu_si128(from)),
                         _mm256_cvtepi8_epi16(_mm_loadu_si128(from + 1))};
#endif
}

/* Adds the products with HALF inputs to sums. */
static inline __attribute__((always_inline)) __m256i
add_half(__m256i sums, struct half w, const input *x)
{
#ifdef __AVXVNNI__
    return add_products(sums, w.bytes, load(x));
#else
    sums = add_products(sums, w.first, load(x));
    return add_products(sums, w.second, load(x + HALF / 2));
#endif
}

/* Copies the `bytes` weights at the end of a row to `room`, among zeros. */
static inline const char *ended(char *room, int64_t size, const char *w,
                                int64_t bytes)
{
    memset(room, 0, (size_t)size);
    return memcpy(room, w, (size_t)bytes);
}

/* ---- reading ahead ---- */

/* Reading ahead fetches the strip after this one, while TEXTS texts after TEXTS
 * texts meet SIDE rows after SIDE rows of this one. */
static inline struct ahead ahead_of(const struct cpu_few_strip *s)
{
    const int64_t turns = FEW_ROWS / SIDE, bytes = FEW_ROWS * s->in->k;
    const int64_t all = gpt_ceil_div(s->in->m, TEXTS) * turns;
    const char *at = s->values + (s->row + FEW_ROWS) * s->in->k;

    return (struct ahead){.at = at,
                          .end = s->last || s->in->m == 1 ? at : at + bytes,
                          .lines = gpt_ceil_div(bytes, 64 * all)};
}

/* ---- inputs ---- */

/* A row of inputs is packed as this and its values, chunks that end with zeros.
 */
struct head {
    int32_t over; /* PLUS times their sum */
    float unit;
    char room[64 - 8];
};

static inline int64_t row_bytes(const struct cpu_few_inputs *in)
{
    return (int64_t)sizeof(struct head) +
           cpu_few_chunks(in) * FEW_CHUNK * (int64_t)sizeof(input);
}

static int64_t room_of_bytes(const struct cpu_few_inputs *in)
{
    return in->m * row_bytes(in);
}

/* Packs n values, a multiple of 8, of which `there` are inputs and the others
 * zero. Returns the sum of all of them. */
static inline int32_t pack_values(input *to, int64_t n, const float *x,
                                  int64_t there, float unit)
{
    __m256i sum = _mm256_setzero_si256();
    int32_t lanes[8];

    for (int64_t l = 0; l < n; l += 8) {
        const __m256i v = in_units(eight_of(x + l, there - l), unit);

        sum = _mm256_add_epi32(sum, v);
        put_inputs(to + l, v);
    }
    _mm256_storeu_si256((__m256i *)(void *)lanes, sum);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3] + lanes[4] + lanes[5] +
           lanes[6] + lanes[7];
}

static void pack_bytes(const struct cpu_few_inputs *in, int64_t i)
{
    const float *x = in->x + i * in->ldx;
    struct head *head = (void *)(in->packed + i * row_bytes(in));

    head->unit = byte_unit_of(x, in->k);
    head->over = PLUS * pack_values((input *)(void *)(head + 1),
                                    cpu_few_chunks(in) * FEW_CHUNK, x, in->k,
                                    head->unit);
}

/* Adds the products of one chunk of a row of weights with one text. */
static inline __attribute__((always_inline)) void
add_chunk(__m256i sums[2], const char *w, const input *x)
{
    sums[0] = add_half(sums[0], half_at(w), x);
    sums[1] = add_half(sums[1], half_at(w + HALF), x + HALF);
}

/* Multiplies a row of weights with one text. The two halves of a chunk have
 * sums of their own, and several chunks are one turn: the processor sees more
 * lines at a time so. */
static inline __m256i sum_row(const char *w, const input *x, int64_t k)
{
    __m256i sums[2] = {0};
    char end[FEW_CHUNK];

    for (; k >= FOUR * FEW_CHUNK; k -= FOUR * FEW_CHUNK)
#pragma GCC unroll 4
        for (int i = 0; i < FOUR; i++, w += FEW_CHUNK, x += FEW_CHUNK)
            add_chunk(sums, w, x);
    for (; k >= FEW_CHUNK; k -= FEW_CHUNK, w += FEW_CHUNK, x += FEW_CHUNK)
        add_chunk(sums, w, x);
    if (k > 0)
        add_chunk(sums, ended(end, FEW_CHUNK, w, k), x);
    return _mm256_add_epi32(sums[0], sums[1]);
}

/* Multiplies k weights of each of SIDE rows, ld bytes apart, with M texts, ldx
 * bytes apart. Weights are widened once for all texts, and inputs come from the
 * first cache. */
static inline __attribute__((always_inline)) void
add_halves(__m256i sums[TEXTS][SIDE], const char *w, int64_t ld, const char *x,
           int64_t ldx, int64_t k, const int M)
{
    for (int64_t l = 0; l < k; l += HALF, x += HALF * sizeof(input)) {
        const struct half first = half_at(w + l), second = half_at(w + ld + l);

#pragma GCC unroll 4
        for (int i = 0; i < M; i++) {
            const input *at = (const void *)(x + i * ldx);

            sums[i][0] = add_half(sums[i][0], first, at);
            sums[i][1] = add_half(sums[i][1], second, at);
        }
    }
}

/* Multiplies SIDE whole rows with M texts; the sums go to places r and r + 1 of
 * each text. */
static inline __attribute__((always_inline)) void
sum_rows(__m256i to[TEXTS][EIGHT], int r, const char *w, int64_t ld,
         const char *x, int64_t ldx, int64_t k, const int M)
{
    const int64_t rest = k % FEW_CHUNK, whole = k - rest;
    char ends[SIDE][FEW_CHUNK];
    __m256i sums[TEXTS][SIDE] = {0};

    add_halves(sums, w, ld, x, ldx, whole, M);
    if (rest > 0) {
        for (int j = 0; j < SIDE; j++)
            ended(ends[j], FEW_CHUNK, w + j * ld + whole, rest);
        add_halves(sums, ends[0], FEW_CHUNK, x + whole * sizeof(input), ldx,
                   FEW_CHUNK, M);
    }
#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
#pragma GCC unroll 2
        for (int j = 0; j < SIDE; j++)
            to[i][r + j] = sums[i][j];
}

/* Adds up the lanes of each of eight vectors; the eight sums are the lanes of
 * the result. */
static inline __m256i sum_lanes(const __m256i v[EIGHT])
{
    return sum_halves(sum_fours(sum_twos(v[0], v[1]), sum_twos(v[2], v[3])),
                      sum_fours(sum_twos(v[4], v[5]), sum_twos(v[6], v[7])));
}

/* Writes n results of a text from row `row` of the strip on. */
static inline void put_results(const struct cpu_few_strip *s, int64_t row,
                               int64_t n, int64_t text,
                               const struct head *head, const __m256i *sums)
{
    float *y = s->y + text * s->ldy + row;
    const __m256i whole = _mm256_sub_epi32(sum_lanes(sums),
                                           _mm256_set1_epi32(head->over));
    const __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(whole),
                                   _mm256_set1_ps(head->unit));
    const __m256 scale = wide(scales_of(s->scales + s->row + row, n));

    put_eight(y, n, times(v, scale, s->add,
                          s->add ? eight_of(y, n) : _mm256_setzero_ps()));
}

/* Multiplies up to EIGHT rows of weights from row `row` of the strip on with M
 * texts from `text` on. Where rows are fewer, the last one stands for those
 * that are missing. */
static inline __attribute__((always_inline)) void
multiply_rows(const struct cpu_few_strip *s, int64_t row, int64_t text,
              struct ahead *next, const int M)
{
    const int64_t k = s->in->k, n = gpt_min_i64(s->rows - row, EIGHT);
    const int64_t ldx = row_bytes(s->in);
    const char *head = s->in->packed + text * ldx;
    const char *x = head + sizeof(struct head);
    __m256i sums[TEXTS][EIGHT];

    for (int r = 0; r < EIGHT; r += M == 1 ? 1 : SIDE) {
        const int64_t at = gpt_min_i64(r, n - 1);
        const char *w = s->values + (s->row + row + at) * k;

        if (M == 1)
            sums[0][r] = sum_row(w, (const void *)x, k);
        else
            sum_rows(sums, r, w, r + 1 < n ? k : 0, x, ldx, k, M);
        fetch(next);
    }
    for (int i = 0; i < M; i++)
        put_results(s, row, n, text + i, (const void *)(head + i * ldx),
                    sums[i]);
}

/* Multiplies all rows of the strip with M texts from `text` on. M is a constant
 * for the compiler. */
static inline __attribute__((always_inline)) void
multiply_texts(const struct cpu_few_strip *s, int64_t text, struct ahead *next,
               const int M)
{
    for (int64_t row = 0; row < s->rows; row += EIGHT)
        multiply_rows(s, row, text, next, M);
}

static void multiply_bytes(const struct cpu_few_strip *s)
{
    struct ahead next = ahead_of(s);
    int64_t text = 0;

    for (; text + TEXTS <= s->in->m; text += TEXTS)
        multiply_texts(s, text, &next, TEXTS);
    switch (s->in->m - text) {
    case 3:
        multiply_texts(s, text, &next, 3);
        break;
    case 2:
        multiply_texts(s, text, &next, 2);
        break;
    case 1:
        multiply_texts(s, text, &next, 1);
        break;
    }
}

const struct cpu_few_road OF_SET(cpu_few_bytes) = {
    .room = room_of_bytes, .parts = cpu_few_rows_of,
    .pack = pack_bytes, .multiply = multiply_bytes};
