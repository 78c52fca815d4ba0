/* Products of few rows with bytes by AVX512-VNNI: see few.h. VPDPBUSD adds the
 * products of four bytes to each of 16 sums, one factor without a sign. Weights
 * are made so by turning their upper bit, which adds 128 to each; what this
 * adds to a sum is 128 times the sum of the inputs, and is taken off again.
 * Sums are whole numbers, and the same in any order; where groups of 32 have
 * scales of their own, those of a group are. Start at multiply_strip(),
 * multiply_bytes() and multiply_grouped().
 *
 * A row of inputs is packed as a head of 64 bytes, and for each chunk of 64
 * inputs their digits, first digits first. */
#include "cpu/few/blocks.h"

/* Three digits of eight bits are 24 bits of a fixed point. With two texts and
 * four rows of weights they have 24 vectors of sums; one digit of four texts
 * has 16. Registers have room for these, and for 4 of weights. */
enum { DIGITS = 3, ROWS = BLOCK_ROWS };
enum { TEXTS_OF_DIGITS = 2, TEXTS = BLOCK_TEXTS };

struct head {
    int32_t over[DIGITS]; /* 128 times the sum of digits */
    float unit;           /* of the first digit */
    char room[64 - 4 * (DIGITS + 1)];
};

static inline int64_t row_bytes(const struct cpu_few_inputs *in, int digits)
{
    return (int64_t)sizeof(struct head) +
           cpu_few_chunks(in) * digits * FEW_CHUNK;
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

/* `unit` is that of the first digit. */
static inline __attribute__((always_inline)) void
pack_digits(const struct cpu_few_inputs *in, int64_t i, float unit,
            const int digits)
{
    const float *x = in->x + i * in->ldx;
    char *to = in->packed + i * row_bytes(in, digits);
    struct head *head = (void *)to;
    __m512i sums[DIGITS] = {0};

    to += sizeof(*head);
    for (int64_t c = 0; c < cpu_few_chunks(in); c++, to += digits * FEW_CHUNK)
        for (int64_t l = 0; l < FEW_CHUNK; l += 16) {
            const int64_t at = c * FEW_CHUNK + l;
            __m512i v = bytes_of(
                _mm512_maskz_loadu_ps(lanes_of(in->k - at), x + at),
                digits == 1 ? unit : unit * 0x1p-16F);

            for (int p = digits - 1; p >= 0; p--) {
                const __m512i digit = take_digit(&v);

                sums[p] = _mm512_add_epi32(sums[p], digit);
                _mm_store_si128((void *)(to + p * FEW_CHUNK + l),
                                _mm512_cvtepi32_epi8(digit));
            }
        }
    for (int p = 0; p < digits; p++)
        head->over[p] = 128 * _mm512_reduce_add_epi32(sums[p]);
    head->unit = unit;
}

static void pack_row(const struct cpu_few_inputs *in, int64_t i)
{
    pack_digits(in, i, unit_of(in->x + i * in->ldx, in->k), DIGITS);
}

static void pack_bytes(const struct cpu_few_inputs *in, int64_t i)
{
    pack_digits(in, i, byte_unit_of(in->x + i * in->ldx, in->k), 1);
}

static int64_t room_of_digits(const struct cpu_few_inputs *in)
{
    return in->m * row_bytes(in, DIGITS);
}

static int64_t room_of_bytes(const struct cpu_few_inputs *in)
{
    return in->m * row_bytes(in, 1);
}

static int64_t count_rows(const struct cpu_few_inputs *in)
{
    return in->m;
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
            const struct head *head, __m512i sums[DIGITS][ROWS],
            const int digits, const int R)
{
    const __mmask8 lanes = (__mmask8)((1U << R) - 1);
    const __m128i scales = _mm_cvtepu16_epi32(
        _mm_maskz_loadu_epi16(lanes, s->scales + s->row + row));
    float *y = s->y + text * s->ldy + row;
    __m128 v = _mm_setzero_ps();

    /* the smallest first */
    for (int p = digits - 1; p >= 0; p--)
        v = _mm_add_ps(
            _mm_mul_ps(v, _mm_set1_ps(1 / 256.0F)),
            _mm_cvtepi32_ps(_mm_sub_epi32(sum_lanes(sums[p]),
                                          _mm_set1_epi32(head->over[p]))));
    /* the unit of digits is a power of two: only the scale's product is
     * rounded, and not where it is added to y */
    v = _mm_mul_ps(v, _mm_set1_ps(head->unit));
    const __m128 scale = _mm_castsi128_ps(_mm_slli_epi32(scales, 16));
    v = s->add ? _mm_fmadd_ps(v, scale, _mm_maskz_loadu_ps(lanes, y))
               : _mm_mul_ps(v, scale);
    _mm_mask_storeu_ps(y, lanes, v);
}

/* 64 weights, or as many as `bytes` says, without a sign. */
static inline __m512i weights_at(const char *w, __mmask64 bytes)
{
    return _mm512_xor_si512(bytes == ~(__mmask64)0
                                ? _mm512_loadu_si512(w)
                                : _mm512_maskz_loadu_epi8(bytes, w),
                            _mm512_set1_epi8(-128));
}

/* What a chunk of `side` rows of weights from row r on adds to the sums of M
 * texts. */
static inline __attribute__((always_inline)) void
add_chunk(__m512i sums[TEXTS][DIGITS][ROWS], int r, const char *w, int64_t k,
          __mmask64 bytes, const char *x, int64_t ldx, const int digits,
          const int M, const int side)
{
    __m512i rows[ROWS];

#pragma GCC unroll 4
    for (int j = 0; j < side; j++)
        rows[j] = weights_at(w + j * k, bytes);
#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
#pragma GCC unroll 3
        for (int p = 0; p < digits; p++) {
            const __m512i inputs =
                _mm512_load_si512(x + i * ldx + p * FEW_CHUNK);

#pragma GCC unroll 4
            for (int j = 0; j < side; j++)
                sums[i][p][r + j] =
                    add_products(sums[i][p][r + j], rows[j], inputs);
        }
}

/* Half of a chunk, of weights or of a digit. */
typedef __m256i half __attribute__((aligned(1)));
enum { HALF_CHUNK = FEW_CHUNK / 2, FOUR = 4 };

static inline __m256i half_weights_at(const char *w)
{
    return _mm256_xor_si256(*(const half *)(const void *)w,
                            _mm256_set1_epi8(-128));
}

/* add_products() with inputs where they are: an instruction less. */
static inline __attribute__((always_inline)) __m256i
add_half(__m256i sums, __m256i weights, const char *inputs)
{
    __asm__("vpdpbusd %2, %1, %0"
            : "+v"(sums)
            : "v"(weights), "m"(*(const half *)(const void *)inputs));
    return sums;
}

/* What a chunk adds to the sums of one text, whose halves are apart. */
static inline __attribute__((always_inline)) void
add_halves(__m256i low[DIGITS], __m256i high[DIGITS], const char *w,
           const char *x, const int digits)
{
    const __m256i first = half_weights_at(w);
    const __m256i second = half_weights_at(w + HALF_CHUNK);

#pragma GCC unroll 3
    for (int p = 0; p < digits; p++)
        low[p] = add_half(low[p], first, x + p * FEW_CHUNK);
#pragma GCC unroll 3
    for (int p = 0; p < digits; p++)
        high[p] = add_half(high[p], second, x + p * FEW_CHUNK + HALF_CHUNK);
}

/* The whole chunks of row r of weights, at w, with one text: the same sums as
 * add_chunk() makes. All digits of whole chunks took longer than memory does:
 * the processor, which sees a limited number of instructions at a time, saw too
 * few lines. */
static inline __attribute__((always_inline)) void
sum_row(__m512i sums[DIGITS][ROWS], int r, const char *w, int64_t chunks,
        const char *x, const int digits)
{
    __m256i low[DIGITS] = {0}, high[DIGITS] = {0};
    int64_t c = 0;

    for (; c + FOUR <= chunks; c += FOUR)
#pragma GCC unroll 4
        for (int i = 0; i < FOUR; i++)
            add_halves(low, high, w + (c + i) * FEW_CHUNK,
                       x + (c + i) * digits * FEW_CHUNK, digits);
    for (; c < chunks; c++)
        add_halves(low, high, w + c * FEW_CHUNK, x + c * digits * FEW_CHUNK,
                   digits);
#pragma GCC unroll 3
    for (int p = 0; p < digits; p++)
        sums[p][r] = _mm512_inserti64x4(_mm512_castsi256_si512(low[p]),
                                        high[p], 1);
}

/* R rows of weights from row `row` of the strip on, M texts from `text` on. */
static inline __attribute__((always_inline)) void
multiply_rows(const struct cpu_few_strip *s, int64_t row, int64_t text,
              struct ahead *next, const int digits, const int M, const int R)
{
    const int64_t k = s->in->k, ldx = row_bytes(s->in, digits);
    const int64_t whole = k / FEW_CHUNK, rest = k % FEW_CHUNK;
    const char *packed = s->in->packed + text * ldx;
    const int side = M == 1 ? 1 : R;
    __m512i sums[TEXTS][DIGITS][ROWS] = {0};

#pragma GCC unroll 4
    for (int r = 0; r < R; r += side) {
        const char *w = s->values + (s->row + row + r) * k;
        const char *x = packed + sizeof(struct head);

        if (M == 1)
            sum_row(sums[0], r, w, whole, x, digits);
        for (int64_t c = 0; c < whole && M > 1; c++) {
            add_chunk(sums, r, w + c * FEW_CHUNK, k, ~(__mmask64)0,
                      x + c * digits * FEW_CHUNK, ldx, digits, M, side);
            fetch(next, 1, M);
        }
        if (rest > 0) /* inputs past the end are zero */
            add_chunk(sums, r, w + whole * FEW_CHUNK, k,
                      ((__mmask64)1 << rest) - 1,
                      x + whole * digits * FEW_CHUNK, ldx, digits, M, side);
    }
    for (int i = 0; i < M; i++)
        put_results(s, row, text + i, (const void *)(packed + i * ldx),
                    sums[i], digits, R);
}

#define ROWS_OF_DIGITS(s, row, text, next, M, R)                              \
    multiply_rows(s, row, text, next, DIGITS, M, R)
#define ROWS_OF_BYTES(s, row, text, next, M, R)                               \
    multiply_rows(s, row, text, next, 1, M, R)

static void multiply_strip(const struct cpu_few_strip *s)
{
    EACH_BLOCK(ROWS_OF_DIGITS, s, TEXTS_OF_DIGITS, ROWS);
}

static void multiply_bytes(const struct cpu_few_strip *s)
{
    EACH_BLOCK(ROWS_OF_BYTES, s, TEXTS, ROWS);
}

const struct cpu_few_road cpu_few_digits = {
    .room = room_of_digits, .parts = count_rows,
    .pack = pack_row, .multiply = multiply_strip};
const struct cpu_few_road cpu_few_bytes = {
    .room = room_of_bytes, .parts = count_rows,
    .pack = pack_bytes, .multiply = multiply_bytes};

/* ---- a scale for 32 ---- */

/* A piece is 16 groups, whose sums of whole numbers become one vector, in the
 * order in which sum_groups() has them: adding lanes as whole numbers, for all
 * groups at once, takes two thirds of the time that making floats of each
 * chunk's lanes takes. A row of inputs is, for each piece, its bytes, what the
 * weights' upper bits add to its sums, and its units. */
enum { PIECE = 8, GROUPS = FEW_CHUNK / CPU_GROUP, SUMS = 16 };

struct piece {
    int8_t bytes[PIECE][FEW_CHUNK];
    int32_t over[SUMS];
    float units[SUMS];
};

static inline int64_t pieces_of(const struct cpu_few_inputs *in)
{
    return gpt_ceil_div(cpu_few_chunks(in), PIECE);
}

static int64_t room_of_pieces(const struct cpu_few_inputs *in)
{
    return in->m * pieces_of(in) * (int64_t)sizeof(struct piece);
}

/* Where the sum of group g of a piece is. */
static inline int place_of_group(int g)
{
    return g / 8 * 8 + g % 2 * 4 + g % 8 / 2;
}

/* Group g of a piece: 32 inputs, of which there are n. */
static void pack_group(struct piece *to, int g, const float *x, int64_t n)
{
    const int at = place_of_group(g);
    const float unit = byte_unit_of(x, n);
    __m512i sum = _mm512_setzero_si512();

    for (int64_t l = 0; l < CPU_GROUP; l += 16) {
        const __m512i v = bytes_of(
            _mm512_maskz_loadu_ps(lanes_of(n - l), x + l), unit);

        sum = _mm512_add_epi32(sum, v);
        _mm_store_si128((void *)(to->bytes[0] + g * CPU_GROUP + l),
                        _mm512_cvtepi32_epi8(v));
    }
    to->over[at] = 128 * _mm512_reduce_add_epi32(sum);
    to->units[at] = unit;
}

/* A row past whose end a piece goes on has groups of zeros there. */
static void pack_pieces(const struct cpu_few_inputs *in, int64_t i)
{
    const float *x = in->x + i * in->ldx;
    struct piece *to = (struct piece *)(void *)in->packed + i * pieces_of(in);

    for (int64_t p = 0; p < pieces_of(in); p++)
        for (int g = 0; g < SUMS; g++) {
            const int64_t at = (p * SUMS + g) * CPU_GROUP;
            const int64_t n = gpt_min_i64(in->k - at, CPU_GROUP);

            pack_group(&to[p], g, x + (n > 0 ? at : 0), n > 0 ? n : 0);
        }
}

/* The sums over each four lanes of four vectors: lane i of four is that of
 * vector i. */
static inline __m512i sum_fours(const __m512i v[4])
{
    const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]),
                                       _mm512_unpackhi_epi32(v[0], v[1]));
    const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]),
                                       _mm512_unpackhi_epi32(v[2], v[3]));

    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b),
                            _mm512_unpackhi_epi64(a, b));
}

/* Sums of groups, of which each has half of a vector's lanes. */
static inline __m512i sum_groups(__m512i a, __m512i b)
{
    return _mm512_add_epi32(_mm512_shuffle_i64x2(a, b, 0x88),
                            _mm512_shuffle_i64x2(a, b, 0xdd));
}

/* Scales of 16 groups of a row, of which there are n, in the order of sums. */
static inline __m512 scales_of(const uint16_t *scales, int64_t n)
{
    const __m256i order = _mm256_setr_epi16(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12,
                                            14, 9, 11, 13, 15);

    return wide(_mm256_permutexvar_epi16(
        order, _mm256_maskz_loadu_epi16(lanes_of(n), scales)));
}

/* What 4 or 8 chunks of a row of weights add to a text's sums. Of a group all
 * is exact until its sum becomes a float. */
static inline __attribute__((always_inline)) __m512
add_piece(__m512 to, const __m512i w[PIECE], const struct piece *x,
          __m512 scales, const int chunks)
{
    __m512i sums[PIECE];

#pragma GCC unroll 8
    for (int c = 0; c < chunks; c++)
        sums[c] = add_products(_mm512_setzero_si512(), w[c],
                               _mm512_load_si512(x->bytes[c]));
    const __m512i whole = _mm512_sub_epi32(
        sum_groups(sum_fours(sums), chunks > 4 ? sum_fours(sums + 4)
                                               : _mm512_setzero_si512()),
        _mm512_load_si512(x->over));

    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole),
                           _mm512_mul_ps(scales, _mm512_load_ps(x->units)), to);
}

/* Weights that are there, of 64 from `at` on. */
static inline __mmask64 there(int64_t k, int64_t at)
{
    return k - at >= 64  ? ~(__mmask64)0
           : k - at <= 0 ? 0
                         : ((__mmask64)1 << (k - at)) - 1;
}

/* Piece p of a row of weights, which may end in it, and of M texts at x. The
 * weights stay in registers for all texts. */
static inline __attribute__((always_inline)) void
add_pieces(__m512 sums[TEXTS][ROWS], int r, const struct cpu_few_strip *s,
           int64_t row, int64_t p, const struct piece *x, const bool ends,
           const int M, const int chunks)
{
    const int64_t k = s->in->k, groups = gpt_ceil_div(k, CPU_GROUP);
    const int64_t at = p * PIECE * FEW_CHUNK;
    const char *from = s->values + row * k + at;
    const __m512 scales =
        scales_of(s->scales + row * groups + p * SUMS, groups - p * SUMS);
    __m512i w[PIECE];

#pragma GCC unroll 8
    for (int c = 0; c < chunks; c++)
        w[c] = weights_at(from + c * FEW_CHUNK,
                          ends ? there(k, at + c * FEW_CHUNK)
                               : ~(__mmask64)0);
#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
        sums[i][r] = add_piece(sums[i][r], w, x + i * pieces_of(s->in) + p,
                               scales, chunks);
}

static inline __attribute__((always_inline)) void
multiply_groups(const struct cpu_few_strip *s, int64_t row, int64_t text,
                struct ahead *next, const int M, const int R)
{
    enum { LONG = PIECE * FEW_CHUNK, HALF = LONG / 2 };
    const int64_t k = s->in->k, whole = k / LONG, rest = k % LONG;
    const struct piece *x = (const struct piece *)(void *)s->in->packed +
                            text * pieces_of(s->in);
    __m512 sums[TEXTS][ROWS] = {0};

#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
        const int64_t at = s->row + row + r;

        for (int64_t p = 0; p < whole; p++) {
            add_pieces(sums, r, s, at, p, x, false, M, PIECE);
            fetch(next, PIECE, M);
        }
        if (rest == HALF)
            add_pieces(sums, r, s, at, whole, x, false, M, PIECE / 2);
        else if (rest > HALF)
            add_pieces(sums, r, s, at, whole, x, true, M, PIECE);
        else if (rest > 0)
            add_pieces(sums, r, s, at, whole, x, true, M, PIECE / 2);
        fetch(next, gpt_ceil_div(rest, FEW_CHUNK), M);
    }
    put_sums(s, row, text, sums, M, R);
}

static void multiply_grouped(const struct cpu_few_strip *s)
{
    EACH_BLOCK(multiply_groups, s, TEXTS, 1);
}

const struct cpu_few_road cpu_few_grouped = {
    .room = room_of_pieces, .parts = count_rows,
    .pack = pack_pieces, .multiply = multiply_grouped};

const struct cpu_few cpu_few_avx512vnni = {
    {[CPU_BYTES] = &cpu_few_digits,
     [CPU_ROUNDED + CPU_BYTES] = &cpu_few_bytes,
     [CPU_ROUNDED + CPU_GROUPS] = &cpu_few_grouped}};
