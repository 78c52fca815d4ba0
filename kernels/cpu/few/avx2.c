/* Products of few rows with weights in panels (quant.h), bf16 or bytes with a
 * scale for 32, by AVX2 or by AVX-VNNI: see few.h and pair/eights.h. Lanes of a
 * vector are rows of weights, four vectors a panel, and what a text has of a
 * step goes to all lanes. Bytes with a scale a row stay in rows (bytes.c,
 * isa/gemv.c). Start at multiply_strip().
 *
 * Bytes with rounded inputs by AVX2. A vector of weights is words of two bytes,
 * e + 256 o, where e has no sign, since its upper bit is turned
 * (cpu_few.turned), which adds 128. VPMADDWD takes numbers of 16 bits, so that
 * o must be shifted down, but e need not be cut out: the products of whole
 * words with inputs x of e are 256 x o too large, and 256 x is taken off the
 * input of o. Sums may pass 32 bits on the way, and are right in the end, since
 * they are so modulo 2^32.
 *
 * The same by AVX-VNNI. VPDPBUSD takes weights without a sign: 128 is added to
 * each.
 *
 * bf16. Words are the upper halves of floats. Inputs as they are and rounded
 * ones are floats, and products are fused.
 *
 * Bytes with inputs as they are. A byte goes to the top of a whole number,
 * which a float holds exactly, in two instructions: to move it down with its
 * sign would be a third. */
#include "cpu/few/eights_pack.h"

#include <string.h>

/* ---- sums ---- */

/* Inputs of a step are multiplied in so many turns. */
static inline int turns_of_step(enum kind kind)
{
    return kind != BYTES ? values_of_step(kind) : PLUS == 0 ? 2 : 1;
}

/* Byte `turn` of each word as a float, BYTE_SIZE times as large. */
static inline __m256i wide_bytes(__m256i v, int turn)
{
    const int32_t zeros = 0x808080, word = 4 << 24; /* which bytes they take */
    const __m256i first =
        _mm256_setr_epi32(zeros, zeros + word, zeros + 2 * word,
                          zeros + 3 * word, zeros, zeros + word,
                          zeros + 2 * word, zeros + 3 * word);

    v = _mm256_shuffle_epi8(
        v, _mm256_add_epi32(first, _mm256_set1_epi32(turn << 24)));
    return _mm256_castps_si256(_mm256_cvtepi32_ps(v));
}

/* The weights of one turn of a step. */
static inline __attribute__((always_inline)) __m256i
weights_at(const char *w, int turn, const enum kind kind)
{
    const __m256i v = _mm256_load_si256((const void *)w);

    if (kind == WIDE)
        return wide_bytes(v, turn);
    if (kind == FLOATS)
        return turn == 0 ? _mm256_slli_epi32(v, 16)
                         : _mm256_and_si256(
                               v, _mm256_set1_epi32((int32_t)0xffff0000));
    if (PLUS != 0)
        return _mm256_xor_si256(v, _mm256_set1_epi8(-128));
    return turn == 0 ? v : _mm256_srai_epi16(v, 8);
}

/* Four bytes of inputs, repeated for all rows. */
static inline __m256i four_of(const char *x)
{
    int32_t four;

    memcpy(&four, x, sizeof(four));
    return _mm256_set1_epi32(four);
}

/* Adds the products of one turn to sums. Products of floats are fused with the
 * addition. */
static inline __attribute__((always_inline)) __m256i
add_turn(__m256i sums, __m256i w, __m256i x, const enum kind kind)
{
    return kind == BYTES
               ? add_products(sums, w, x)
               : _mm256_castps_si256(_mm256_fmadd_ps(
                     _mm256_castsi256_ps(w), _mm256_castsi256_ps(x),
                     _mm256_castsi256_ps(sums)));
}

/* Adds one step to the sums of C texts and R vectors of rows. A turn updates
 * all sums before the next one begins: an addition takes as long as eight
 * others. */
static inline __attribute__((always_inline)) void
add_step(__m256i (*sums)[VECTORS], const char *w, const char *x, const int C,
         const int R, const enum kind kind)
{
#pragma GCC unroll 4
    for (int turn = 0; turn < turns_of_step(kind); turn++) {
        __m256i at[VECTORS];

#pragma GCC unroll 4
        for (int r = 0; r < R; r++)
            at[r] = weights_at(w + 32 * r, turn, kind);
#pragma GCC unroll 6
        for (int c = 0; c < C; c++) {
            const __m256i four = four_of(x + c * text_bytes(kind) + 4 * turn);

#pragma GCC unroll 4
            for (int r = 0; r < R; r++)
                sums[c][r] = add_turn(sums[c][r], at[r], four, kind);
        }
    }
}

/* ---- turns ---- */

/* Adds `steps` steps, a multiple of four, of R vectors of bf16 at w. */
static inline __attribute__((always_inline)) void
add_steps(__m256i (*kept)[VECTORS], const char *w, const char *x,
          int64_t steps, struct ahead *next, const int M, const int R)
{
    __m256i sums[TEXTS][VECTORS];

#pragma GCC unroll 6
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int r = 0; r < R; r++)
            sums[i][r] = kept[i][r];
    for (; steps > 0; steps -= 4) {
#pragma GCC unroll 4
        for (int l = 0; l < 4; l++) {
            add_step(sums, w, x, M, R, FLOATS);
            w += CPU_STEP;
            x += M * text_bytes(FLOATS);
        }
        if (M > 2)
            fetch(next);
    }
#pragma GCC unroll 6
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int r = 0; r < R; r++)
            kept[i][r] = sums[i][r];
}

/* The sums of a group as floats. */
static inline __m256 floats_of(__m256i sums, const enum kind kind)
{
    return kind == BYTES ? _mm256_cvtepi32_ps(sums)
                         : _mm256_castsi256_ps(sums);
}

/* Adds one group of weights to the floats that are kept. Inputs at x that are
 * bytes have heads. */
static inline __attribute__((always_inline)) void
add_group(__m256i (*kept)[VECTORS], const char *w, const char *scales,
          const struct head *head, const char *x, struct ahead *next,
          const int M, const int R, const enum kind kind)
{
    __m256i sums[TEXTS][VECTORS];
    __m256 factors[VECTORS];

#pragma GCC unroll 6
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int r = 0; r < R; r++)
            sums[i][r] =
                _mm256_set1_epi32(kind == BYTES ? head[i].begin : 0);
#pragma GCC unroll 8
    for (int l = 0; l < GROUP_STEPS; l++)
        add_step(sums, w + l * CPU_STEP, x + l * M * text_bytes(kind), M, R,
                 kind);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
        factors[r] = wide(_mm_load_si128((const void *)(scales + 16 * r)));
#pragma GCC unroll 6
    for (int i = 0; i < M; i++) {
#pragma GCC unroll 4
        for (int r = 0; r < R; r++)
            kept[i][r] = _mm256_castps_si256(_mm256_fmadd_ps(
                floats_of(sums[i][r], kind),
                kind == BYTES ? _mm256_mul_ps(factors[r],
                                              _mm256_set1_ps(head[i].unit))
                              : factors[r],
                _mm256_castsi256_ps(kept[i][r])));
    }
    if (M > 2)
        fetch(next), fetch(next);
}

/* A part of a panel, and where it lies in the row of each text. */
struct turn {
    const char *w;
    int64_t step, steps; /* of all */
    struct ahead next; /* what is behind it, beside four steps at a time */
};

/* Multiplies M texts, whose packed inputs are at x, with their part of a
 * panel. */
static inline __attribute__((always_inline)) void
take_turn(__m256i (*kept)[VECTORS], struct turn *t, const char *x,
          const int M, const enum kind kind)
{
    const int R = M > (turns_of_step(kind) > 2 ? 1 : 2) ? 2 : VECTORS;
    const int64_t head = M * (int64_t)sizeof(struct head);
    const int64_t step = M * text_bytes(kind);
    const int64_t group = GROUP_STEPS * step + (kind == BYTES ? head : 0);

    for (int side = 0; side < VECTORS; side += R) {
        __m256i (*sums)[VECTORS] = (__m256i(*)[VECTORS]) & kept[0][side];
        const char *w = t->w + 32 * side;

        if (kind == FLOATS) {
            add_steps(sums, w, x + head + t->step * step, t->steps, &t->next,
                      M, R);
            continue;
        }
        const char *at = x + t->step / GROUP_STEPS * group;

        for (int64_t l = 0; l < t->steps; l += GROUP_STEPS) {
            add_group(sums, w, w - 16 * side + GROUP_STEPS * CPU_STEP,
                      (const void *)at, at + head, &t->next, M, R, kind);
            w += CPU_GROUP_BYTES;
            at += group;
        }
    }
}

/* Writes the results of a text from the sums that are kept. */
static inline void put_results(const struct cpu_few_strip *s, int64_t text,
                               const __m256i kept[VECTORS])
{
    for (int64_t r = 0; r < VECTORS && r * EIGHT < s->rows; r++) {
        const int64_t n = s->rows - r * EIGHT;
        float *y = s->y + text * s->ldy + r * EIGHT;
        const __m256 v = _mm256_castsi256_ps(kept[r]);

        put_eight(y, n, s->add ? _mm256_add_ps(eight_of(y, n), v) : v);
    }
}

/* ---- strips ---- */

/* Blocks of texts that take turns with a panel. */
struct task {
    const struct cpu_few_strip *s;
    struct row row;
    const char *panel;
    int64_t steps, block, blocks;
};

static inline struct block block_of(const struct task *t, int64_t i)
{
    const int64_t m = t->s->in->m;

    return block_at(m, gpt_ceil_div(m, TEXTS), t->block + i);
}

/* The packed inputs of block b. */
static inline const char *inputs_of(const struct task *t, struct block b)
{
    return t->s->in->packed + b.first * t->row.parts * t->row.bytes;
}

/* The offset of a step in a panel. */
static inline int64_t step_at(int64_t step, enum kind kind)
{
    return kind == FLOATS ? step * CPU_STEP
                          : step / GROUP_STEPS * CPU_GROUP_BYTES;
}

/* The turn that begins with step `step`. What follows its steps in memory is
 * the next turn's, or another panel's. */
static inline __attribute__((always_inline)) struct turn
turn_of(const struct task *t, int64_t step, const enum kind kind)
{
    const int64_t steps = gpt_min_i64(TURN, t->steps - step);
    const int64_t bytes = step_at(steps, kind), blocks = t->blocks;
    const char *w = t->panel + step_at(step, kind), *end = w + bytes;
    const bool last = t->s->last && t->steps - step <= TURN;

    return (struct turn){
        .w = w,
        .step = step,
        .steps = steps,
        .next = {end, last ? end : end + bytes,
                 gpt_ceil_div(kind == FLOATS ? 8 : 9, 2 * blocks)}};
}

#define TAKE_TURN(M)                                                          \
    case M:                                                                   \
        take_turn(kept + (b.first - first), &turn, inputs_of(t, b), M, kind); \
        break

/* Makes all turns of some blocks with a panel. Sums are kept between turns, and
 * become results in the end. */
static inline __attribute__((always_inline)) void
multiply_blocks(const struct task *t, const enum kind kind)
{
    const int64_t first = block_of(t, 0).first;
    const int64_t end = block_of(t, t->blocks).first;
    __m256i kept[KEPT][VECTORS];

    memset(kept, 0, (size_t)(end - first) * sizeof(*kept));
    for (int64_t step = 0; step < t->steps; step += TURN) {
        struct turn turn = turn_of(t, step, kind);

        for (int64_t i = 0; i < t->blocks; i++) {
            const struct block b = block_of(t, i);

            switch (b.texts) {
                TAKE_TURN(1);
                TAKE_TURN(2);
                TAKE_TURN(3);
                TAKE_TURN(4);
                TAKE_TURN(5);
                TAKE_TURN(6);
            }
        }
    }
    for (int64_t text = first; text < end; text++)
        put_results(t->s, text, kept[text - first]);
}

static inline __attribute__((always_inline)) void
multiply_strip(const struct cpu_few_strip *s, const enum kind kind)
{
    const struct row row = row_of(s->in, kind);
    const int64_t steps = row.parts * row.steps;
    const int64_t blocks = gpt_ceil_div(s->in->m, TEXTS);
    const int64_t turns = gpt_ceil_div(blocks, KEPT / TEXTS);
    struct task t = {.s = s, .row = row, .steps = steps};

    t.panel = s->values + s->row / CPU_PANEL * step_at(steps, kind);
    for (int64_t i = 0; i < turns; i++) {
        t.block = first_of_block(blocks, turns, i);
        t.blocks = first_of_block(blocks, turns, i + 1) - t.block;
        multiply_blocks(&t, kind);
    }
}

/* ---- roads ---- */

#define ROAD(name, kind, rounded)                                             \
    static int64_t name##_room(const struct cpu_few_inputs *in)               \
    {                                                                         \
        const struct row row = row_of(in, kind);                              \
                                                                              \
        return gpt_round_up(in->m * row.parts * row.bytes, 64);               \
    }                                                                         \
    static void name##_pack(const struct cpu_few_inputs *in, int64_t i)       \
    {                                                                         \
        pack_text(in, i, kind, rounded);                                      \
    }                                                                         \
    static void name##_multiply(const struct cpu_few_strip *s)                \
    {                                                                         \
        multiply_strip(s, kind);                                              \
    }                                                                         \
    static const struct cpu_few_road name = {                                 \
        .panels = true, .room = name##_room,                                  \
        .parts = cpu_few_rows_of,                                             \
        .pack = name##_pack, .multiply = name##_multiply}

ROAD(bf16, FLOATS, false);
ROAD(rounded_bf16, FLOATS, true);
ROAD(rounded_groups, BYTES, true);
ROAD(groups, WIDE, false);

const struct cpu_few OF_SET(cpu_few) = {
    .road = {[CPU_BF16] = &bf16,
             [CPU_GROUPS] = &groups,
             [CPU_ROUNDED + CPU_BF16] = &rounded_bf16,
             [CPU_ROUNDED + CPU_BYTES] = &OF_SET(cpu_few_bytes),
             [CPU_ROUNDED + CPU_GROUPS] = &rounded_groups},
    .turned = PLUS == 0};
