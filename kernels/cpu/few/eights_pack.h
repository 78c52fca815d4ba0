/* Packed inputs of few rows by AVX2 and AVX-VNNI: numbers of 16 bits or bytes
 * for rounded inputs beside bytes, floats for all others. Blocks of texts
 * follow each other. In a block a row, or group after group, is the heads of
 * all texts, and then, step after step, the inputs of all texts. Start at
 * pack_text(). */
#ifndef GPT_KERNELS_CPU_FEW_EIGHTS_PACK_H
#define GPT_KERNELS_CPU_FEW_EIGHTS_PACK_H

#include "cpu/few/blocks.h"
#include "cpu/pair/eights.h"

#ifdef __AVX2__ /* as in the files that use it */

/* What weights and inputs are: groups of bytes and bytes, bf16 and floats, or
 * groups of bytes and floats. */
enum kind { BYTES, FLOATS, WIDE };
/* VECTORS is how many vectors a panel has, EIGHT the floats of a vector. */
enum { VECTORS = CPU_PANEL / 8, EIGHT = 8, FOUR = 4 };
/* Steps after which the next texts take their turn: all of them find such a
 * part of a panel, 16 KiB, and their inputs for it in the first cache. */
enum { TURN = 128, GROUP_STEPS = CPU_GROUP / 4 };
/* TEXTS is how many texts a block has, as many as registers hold sums for; KEPT
 * is how many texts have sums that are kept meanwhile. */
enum { TEXTS = 6, KEPT = 32 };
/* A byte of weights becomes the upper byte of a whole number, which is so much
 * larger; floats that meet it are as much smaller. */
#define BYTE_SIZE 0x1p24F

/* Values of a row of weights in a step. */
static inline int values_of_step(enum kind kind)
{
    return kind == FLOATS ? 2 : FOUR;
}

/* Bytes of a text in a step. */
static inline int text_bytes(enum kind kind)
{
    return values_of_step(kind) *
           (int)(kind == BYTES ? sizeof(input) : sizeof(float));
}

/* ---- packed inputs ---- */

/* What a text's row, or each group of it, begins with. */
struct head {
    float unit;
    int32_t begin; /* of sums: takes off turned bits */
    int32_t room[2];
};

/* How the row of a text lies there: parts, each of so many steps. */
struct row {
    int64_t parts, steps, bytes; /* bytes: of a part */
};

static inline __attribute__((always_inline)) struct row
row_of(const struct cpu_few_inputs *in, const enum kind kind)
{
    struct row row = {.parts = 1, .steps = GROUP_STEPS};

    if (kind == BYTES)
        row.parts = gpt_ceil_div(in->k, CPU_GROUP);
    else if (kind == WIDE)
        row.steps *= gpt_ceil_div(in->k, CPU_GROUP);
    else
        row.steps = cpu_panel_row(2 * in->k) / 4;
    row.bytes = (int64_t)sizeof(struct head) + row.steps * text_bytes(kind);
    return row;
}

/* Writes eight whole numbers: two steps of a text. */
static inline void put_steps(char *to, int64_t apart, __m256i v)
{
#ifdef __AVXVNNI__
    int8_t bytes[EIGHT];

    put_inputs(bytes, v);
    memcpy(to, bytes, FOUR);
    memcpy(to + apart, bytes + FOUR, FOUR);
#else
    /* even ones, and odd ones with what is taken off them */
    v = _mm256_sub_epi32(v, _mm256_slli_epi64(v, 32 + 8));
    v = _mm256_shuffle_epi32(v, 0xd8);
    v = _mm256_packs_epi32(v, v);
    _mm_storel_epi64((void *)to, _mm256_castsi256_si128(v));
    _mm_storel_epi64((void *)(to + apart), _mm256_extracti128_si256(v, 1));
#endif
}

/* What sums begin with, to take off what turned bits add. v holds sums of
 * inputs in lanes. */
static inline int32_t begin_of(__m256i v)
{
    int32_t lanes[EIGHT];

    _mm256_storeu_si256((__m256i *)(void *)lanes, v);
    const int32_t even = lanes[0] + lanes[2] + lanes[4] + lanes[6];
    const int32_t odd = lanes[1] + lanes[3] + lanes[5] + lanes[7];
    return -128 * (PLUS != 0 ? even + odd : even);
}

/* Packs a group of a text, of which n values are there, and returns its
 * head. */
static inline struct head put_bytes(char *to, int64_t apart, const float *x,
                                    int64_t n)
{
    struct head head = {.unit = byte_unit_of(x, n)};
    __m256i sums = _mm256_setzero_si256();

    for (int64_t l = 0; l < CPU_GROUP; l += EIGHT, to += 2 * apart) {
        const __m256i v = in_units(eight_of(x + l, n - l), head.unit);

        sums = _mm256_add_epi32(sums, v);
        put_steps(to, apart, v);
    }
    head.begin = begin_of(sums);
    return head;
}

/* Writes `steps` steps of a text as floats, of which n are there. */
static inline __attribute__((always_inline)) void
put_floats(char *to, int64_t apart, int64_t steps, const float *x, int64_t n,
           const enum kind kind, bool rounded)
{
    const int each = values_of_step(kind);

    for (int64_t l = 0; l < each * steps; l += EIGHT) {
        float eight[EIGHT];
        __m256 v = eight_of(x + l, n - l);

        if (kind != FLOATS)
            v = _mm256_mul_ps(v, _mm256_set1_ps(1 / BYTE_SIZE));
        _mm256_storeu_ps(eight, rounded ? as_bf16(v) : v);
        for (int i = 0; i < EIGHT; i += each, to += apart)
            memcpy(to, eight + i, (size_t)each * sizeof(*eight));
    }
}

static inline __attribute__((always_inline)) void
pack_text(const struct cpu_few_inputs *in, int64_t i, const enum kind kind,
          const bool rounded)
{
    const struct row row = row_of(in, kind);
    const struct block b = block_of_text(in->m, TEXTS, i);
    const int64_t apart = b.texts * text_bytes(kind);
    char *to = in->packed + b.first * row.parts * row.bytes;
    char *heads = to + (i - b.first) * (int64_t)sizeof(struct head);
    char *values = to + b.texts * (int64_t)sizeof(struct head) +
                   (i - b.first) * text_bytes(kind);
    const int64_t most = kind == BYTES ? CPU_GROUP : in->k;

    for (int64_t part = 0; part < row.parts; part++) {
        const float *x = in->x + i * in->ldx + part * CPU_GROUP;
        const int64_t n = gpt_min_i64(in->k - part * CPU_GROUP, most);
        struct head head = {.unit = 1};

        if (kind == BYTES)
            head = put_bytes(values, apart, x, n);
        else
            put_floats(values, apart, row.steps, x, n, kind, rounded);
        memcpy(heads, &head, sizeof(head));
        heads += b.texts * row.bytes;
        values += b.texts * row.bytes;
    }
}

#endif
#endif
