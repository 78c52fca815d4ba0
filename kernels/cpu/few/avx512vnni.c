/* Products of few rows with bytes by AVX512-VNNI: see few.h. VPDPBUSD adds the
 * products of four bytes to each of 16 sums, one factor without a sign. Weights
 * are made so by turning their upper bit, which adds 128 to each; what this
 * adds to a sum is 128 times the sum of the inputs, and is taken off again.
 * Sums are whole numbers, and the same in any order; where groups of 32 have
 * scales of their own, those of a group are. A step is four bytes of each row
 * of a panel. Start at multiply_strip(), multiply_bytes() and
 * multiply_groups(). */
#include "cpu/few/blocks.h"

#include <string.h>

/* Three digits of eight bits are 24 bits of a fixed point. Three texts of them
 * have 18 vectors of sums. */
enum { DIGITS = 3, TEXTS_OF_DIGITS = 3, MOST_SUMS = TEXTS_OF_DIGITS * DIGITS };

/* The head of a block holds one of these for each of its texts. */
struct head {
    int32_t over[DIGITS]; /* 128 times the sum of digits */
    float unit;           /* of the first digit */
};

/* Bytes of a text's packed inputs. */
static inline int64_t text_bytes(const struct cpu_few_inputs *in, int digits)
{
    return (int64_t)sizeof(struct head) + cpu_panel_row(in->k) * digits;
}

static inline int64_t panel_bytes(const struct cpu_few_inputs *in)
{
    return cpu_panel_row(in->k) * CPU_PANEL;
}

/* ---- inputs ---- */

/* Takes the last digit off the numbers *x. Digits are from -128 to 127, so that
 * what is left of a number is a multiple of 256. */
static inline __m512i take_digit(__m512i *x)
{
    const __m512i digit = _mm512_srai_epi32(_mm512_slli_epi32(*x, 24), 24);

    *x = _mm512_srai_epi32(_mm512_sub_epi32(*x, digit), 8);
    return digit;
}

/* Writes the bytes of 16 lanes, four at a time, each four `apart` bytes after
 * those before. */
static inline void put_fours(char *to, int64_t apart, __m512i lanes)
{
    char bytes[16];

    _mm_storeu_si128((void *)bytes, _mm512_cvtepi32_epi8(lanes));
    for (int64_t l = 0; l < 16; l += 4, to += apart)
        memcpy(to, bytes + l, 4);
}

/* Packs n inputs, filled up with zeros to `all`, as digits. unit is what the
 * first digit counts. Four values of each digit lie side by side, the next four
 * `apart` bytes further. over becomes 128 times the sums of digits. */
static inline __attribute__((always_inline)) void
put_digits(char *to, int64_t apart, const float *x, int64_t n, int64_t all,
           float unit, int32_t over[DIGITS], const int digits)
{
    __m512i sums[DIGITS] = {0};

    for (int64_t l = 0; l < all; l += 16, to += 4 * apart) {
        __m512i v = bytes_of(_mm512_maskz_loadu_ps(lanes_of(n - l), x + l),
                             digits == 1 ? unit : unit * 0x1p-16F);

        for (int p = digits - 1; p >= 0; p--) {
            const __m512i digit = take_digit(&v);

            sums[p] = _mm512_add_epi32(sums[p], digit);
            put_fours(to + 4 * p, apart, digit);
        }
    }
    for (int p = 0; p < digits; p++)
        over[p] = 128 * _mm512_reduce_add_epi32(sums[p]);
}

static inline __attribute__((always_inline)) void
pack_digits(const struct cpu_few_inputs *in, int64_t i, int64_t most,
            float unit, const int digits)
{
    const struct block b = block_of_text(in->m, most, i);
    char *heads = in->packed + b.first * text_bytes(in, digits);
    char *to = heads + b.texts * (int64_t)sizeof(struct head) +
               (i - b.first) * 4 * digits;
    struct head head = {.unit = unit};

    put_digits(to, b.texts * 4 * digits, in->x + i * in->ldx, in->k, in->k,
               unit, head.over, digits);
    memcpy(heads + (i - b.first) * (int64_t)sizeof(head), &head, sizeof(head));
}

static void pack_row(const struct cpu_few_inputs *in, int64_t i)
{
    pack_digits(in, i, TEXTS_OF_DIGITS, unit_of(in->x + i * in->ldx, in->k),
                DIGITS);
}

static void pack_bytes(const struct cpu_few_inputs *in, int64_t i)
{
    pack_digits(in, i, BLOCK_TEXTS, byte_unit_of(in->x + i * in->ldx, in->k),
                1);
}

/* Bytes of all packed inputs. Blocks of texts follow each other. */
static int64_t room_of_digits(const struct cpu_few_inputs *in)
{
    return gpt_round_up(in->m * text_bytes(in, DIGITS), 64);
}

static int64_t room_of_bytes(const struct cpu_few_inputs *in)
{
    return gpt_round_up(in->m * text_bytes(in, 1), 64);
}

/* ---- sums ---- */

/* Writes the results of a text for one side of a panel, from its sums of
 * digits. */
static inline __attribute__((always_inline)) void
put_results(const struct cpu_few_strip *s, int64_t text, int side,
            const struct head *head, __m512i (*sums)[SIDES], const int digits)
{
    __mmask16 lanes;
    float *y = side_of(s, text, side, &lanes);
    const __m512 scale = wide(_mm256_maskz_loadu_epi16(
        lanes, s->scales + s->row + side * LANES));
    __m512 v = _mm512_setzero_ps();

    /* the smallest first */
    for (int p = digits - 1; p >= 0; p--)
        v = _mm512_fmadd_ps(
            v, _mm512_set1_ps(1 / 256.0F),
            _mm512_cvtepi32_ps(_mm512_sub_epi32(
                sums[p][side], _mm512_set1_epi32(head->over[p]))));
    /* the unit of digits is a power of two: only the scale's product is
     * rounded, and not where it is added to y */
    v = _mm512_mul_ps(v, _mm512_set1_ps(head->unit));
    _mm512_mask_storeu_ps(
        y, lanes,
        times(v, scale, s->add, _mm512_maskz_loadu_ps(lanes, y)));
}

/* Loads 64 weights, turned into bytes without a sign. */
static inline __m512i weights_at(const char *w)
{
    return _mm512_xor_si512(_mm512_load_si512(w), _mm512_set1_epi8(-128));
}

/* Adds one step of weights to C sums, whose inputs are at x. */
static inline __attribute__((always_inline)) void
add_step(__m512i (*sums)[SIDES], const char *w, const char *x, const int C)
{
    const __m512i left = weights_at(w), right = weights_at(w + CPU_STEP / 2);

#pragma GCC unroll 12
    for (int c = 0; c < C; c++) {
        const __m512i inputs = four_of(x + 4 * c);

        sums[c][0] = add_products(sums[c][0], left, inputs);
        sums[c][1] = add_products(sums[c][1], right, inputs);
    }
}

/* Does what add_products() does for half as many lanes. */
static inline __attribute__((always_inline)) __m256i
add_half_products(__m256i sums, __m256i a, __m256i b)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
    return sums;
}

/* Adds four times `fours` steps to the sums of one number a step. With halves
 * of vectors memory comes faster. */
static inline __attribute__((always_inline)) void
add_alone(__m512i (*sums)[SIDES], const char *w, const char *x, int64_t fours)
{
    const __m256i sign = _mm256_set1_epi8(-128);
    __m256i halves[HALVES];

    split_sums(halves, sums[0]);
    for (; fours > 0; fours--, w += FOUR_STEPS, x += 16)
#pragma GCC unroll 4
        for (int l = 0; l < 4; l++) {
            const __m256i inputs = _mm512_castsi512_si256(four_of(x + 4 * l));

#pragma GCC unroll 4
            for (int h = 0; h < HALVES; h++)
                halves[h] = add_half_products(
                    halves[h],
                    _mm256_xor_si256(half_at(w + l * CPU_STEP, h), sign),
                    inputs);
        }
    join_sums(sums[0], halves);
}

/* Multiplies a panel of weights with the M texts from `text` on. Steps have a
 * loop of their own: with a single loop GCC 12 keeps each sum in two
 * registers. */
static inline __attribute__((always_inline)) void
multiply_panel(const struct cpu_few_strip *s, const char *w, int64_t text,
               struct ahead ahead, const int digits, const int M)
{
    const char *end = w + panel_bytes(s->in);
    const struct head *heads = (const void *)(s->in->packed +
                                              text * text_bytes(s->in, digits));
    const char *x = (const char *)(heads + M);
    __m512i sums[MOST_SUMS][SIDES];

#pragma GCC unroll 12
    for (int c = 0; c < M * digits; c++)
        sums[c][0] = sums[c][1] = _mm512_setzero_si512();
    if (M * digits == 1)
        add_alone(sums, w, x, (end - w) / FOUR_STEPS);
    for (; M * digits > 1 && w < end; w += FOUR_STEPS) {
#pragma GCC unroll 4
        for (int l = 0; l < 4; l++, x += 4 * M * digits) {
            add_step(sums, w + l * CPU_STEP, x, M * digits);
            ask(&ahead, l);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < M; i++)
#pragma GCC unroll 2
        for (int side = 0; side < SIDES; side++)
            put_results(s, text + i, side, &heads[i], sums + i * digits,
                        digits);
}

#define PANEL_OF_DIGITS(s, w, text, ahead, M)                                 \
    multiply_panel(s, w, text, ahead, DIGITS, M)
#define PANEL_OF_BYTES(s, w, text, ahead, M)                                  \
    multiply_panel(s, w, text, ahead, 1, M)

static void multiply_strip(const struct cpu_few_strip *s)
{
    EACH_BLOCK(PANEL_OF_DIGITS, s, TEXTS_OF_DIGITS, panel_bytes(s->in),
               DIGITS);
}

static void multiply_bytes(const struct cpu_few_strip *s)
{
    EACH_BLOCK(PANEL_OF_BYTES, s, BLOCK_TEXTS, panel_bytes(s->in), 1);
}

const struct cpu_few_road cpu_few_digits = {
    .panels = true, .room = room_of_digits, .parts = cpu_few_rows_of,
    .pack = pack_row, .multiply = multiply_strip};
const struct cpu_few_road cpu_few_bytes = {
    .panels = true, .room = room_of_bytes, .parts = cpu_few_rows_of,
    .pack = pack_bytes, .multiply = multiply_bytes};

/* ---- a scale for 32 ---- */

/* A group of a text is packed as what the weights' upper bits add to the sums
 * of each digit, then the unit of the first digit, then the digits. The groups
 * of a block's texts lie side by side. */
enum { STEPS = CPU_GROUP / 4 };

static inline int64_t group_bytes(const int digits)
{
    return 4 * digits + 4 + CPU_GROUP * digits;
}

static inline int64_t groups_of(const struct cpu_few_inputs *in)
{
    return gpt_ceil_div(in->k, CPU_GROUP);
}

static inline int64_t room_of_groups(const struct cpu_few_inputs *in,
                                     const int digits)
{
    return gpt_round_up(in->m * groups_of(in) * group_bytes(digits), 64);
}

/* Packs one group of text number i of M: n inputs. */
static inline __attribute__((always_inline)) void
pack_group(char *to, int64_t i, int64_t M, const float *x, int64_t n,
           const int digits)
{
    const float unit = digits == 1 ? byte_unit_of(x, n) : unit_of(x, n);
    char *units = to + 4 * digits * M, *values = units + 4 * M;
    int32_t over[DIGITS];

    put_digits(values + 4 * digits * i, 4 * digits * M, x, n, CPU_GROUP, unit,
               over, digits);
    memcpy(to + 4 * digits * i, over, 4 * (size_t)digits);
    memcpy(units + 4 * i, &unit, sizeof(unit));
}

/* Packs all groups of a row, among those of the other texts of its block. */
static inline __attribute__((always_inline)) void
pack_groups(const struct cpu_few_inputs *in, int64_t i, int64_t most,
            const int digits)
{
    const struct block b = block_of_text(in->m, most, i);
    char *to = in->packed + b.first * groups_of(in) * group_bytes(digits);

    for (int64_t l = 0; l < in->k; l += CPU_GROUP) {
        pack_group(to, i - b.first, b.texts, in->x + i * in->ldx + l,
                   gpt_min_i64(in->k - l, CPU_GROUP), digits);
        to += b.texts * group_bytes(digits);
    }
}

/* Joins the sums of a group's digits into floats, the smallest first. */
static inline __attribute__((always_inline)) __m512
join_digits(__m512i (*sums)[SIDES], int side, const int digits)
{
    __m512 v = _mm512_cvtepi32_ps(sums[digits - 1][side]);

    for (int p = digits - 2; p >= 0; p--)
        v = _mm512_fmadd_ps(v, _mm512_set1_ps(1 / 256.0F),
                            _mm512_cvtepi32_ps(sums[p][side]));
    return v;
}

/* Adds one group of a panel to the sums of M texts. All is exact until a
 * group's sum becomes a float. */
static inline __attribute__((always_inline)) void
add_group(__m512 (*to)[SIDES], const char *w, const char *x,
          struct ahead *ahead, const int digits, const int M)
{
    const char *units = x + 4 * digits * M, *values = units + 4 * M;
    __m512i sums[MOST_SUMS][SIDES];

#pragma GCC unroll 12
    for (int c = 0; c < M * digits; c++)
        sums[c][0] = sums[c][1] =
            _mm512_sub_epi32(_mm512_setzero_si512(), four_of(x + 4 * c));
    if (M * digits == 1) {
        add_alone(sums, w, values, STEPS / 4);
    } else {
#pragma GCC unroll 8
        for (int l = 0; l < STEPS; l++) {
            add_step(sums, w + l * CPU_STEP, values + 4 * M * digits * l,
                     M * digits);
            ask(ahead, l % 4);
        }
        if (ahead->lines > 0) { /* the line of scales */
            __builtin_prefetch(ahead->at, 0, 2);
            ahead->at += 64;
        }
    }
    w += STEPS * CPU_STEP;
#pragma GCC unroll 2
    for (int side = 0; side < SIDES; side++) {
        const __m512 scales =
            wide(_mm256_load_si256((const void *)(w + 2 * LANES * side)));

#pragma GCC unroll 8
        for (int i = 0; i < M; i++) {
            const __m512 unit = _mm512_castsi512_ps(four_of(units + 4 * i));

            to[i][side] =
                _mm512_fmadd_ps(join_digits(sums + i * digits, side, digits),
                                _mm512_mul_ps(scales, unit), to[i][side]);
        }
    }
}

/* Multiplies a panel of weights that have a scale for every 32 with the M texts
 * from `text` on. */
static inline __attribute__((always_inline)) void
multiply_groups(const struct cpu_few_strip *s, const char *w, int64_t text,
                struct ahead ahead, const int digits, const int M)
{
    const int64_t groups = groups_of(s->in);
    const char *x = s->in->packed + text * groups * group_bytes(digits);
    __m512 sums[BLOCK_TEXTS][SIDES];

#pragma GCC unroll 8
    for (int i = 0; i < M; i++)
        sums[i][0] = sums[i][1] = _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; g++) {
        add_group(sums, w, x, &ahead, digits, M);
        w += CPU_GROUP_BYTES;
        x += M * group_bytes(digits);
    }
    put_sums(s, text, sums, M);
}

#define GROUPS_OF_DIGITS(s, w, text, ahead, M)                                \
    multiply_groups(s, w, text, ahead, DIGITS, M)
#define GROUPS_OF_BYTES(s, w, text, ahead, M)                                 \
    multiply_groups(s, w, text, ahead, 1, M)

#define GROUPED(name, most, digits, groups)                                   \
    static int64_t name##_room(const struct cpu_few_inputs *in)               \
    {                                                                         \
        return room_of_groups(in, digits);                                    \
    }                                                                         \
    static void name##_pack(const struct cpu_few_inputs *in, int64_t i)       \
    {                                                                         \
        pack_groups(in, i, most, digits);                                     \
    }                                                                         \
    static void name##_multiply(const struct cpu_few_strip *s)                \
    {                                                                         \
        EACH_BLOCK(groups, s, most, groups_of(s->in) * CPU_GROUP_BYTES,       \
                   digits);                                                   \
    }                                                                         \
    const struct cpu_few_road name = {                                        \
        .panels = true, .room = name##_room,                                  \
        .parts = cpu_few_rows_of,                                             \
        .pack = name##_pack, .multiply = name##_multiply}

GROUPED(cpu_few_grouped, BLOCK_TEXTS, 1, GROUPS_OF_BYTES);
GROUPED(cpu_few_grouped_digits, TEXTS_OF_DIGITS, DIGITS, GROUPS_OF_DIGITS);

const struct cpu_few cpu_few_avx512vnni = {
    .road = {[CPU_BF16] = &cpu_few_floats,
             [CPU_BYTES] = &cpu_few_digits,
             [CPU_GROUPS] = &cpu_few_grouped_digits,
             [CPU_ROUNDED + CPU_BF16] = &cpu_few_rounded_floats,
             [CPU_ROUNDED + CPU_BYTES] = &cpu_few_bytes,
             [CPU_ROUNDED + CPU_GROUPS] = &cpu_few_grouped}};
