/* Products with weights in fewer bits (struct gpt_quant), for generation. Start
 * at cpu_multiply_quant(). Floats in panels have ways of their own
 * (panel_products.c). With few rows weights are read once, as they are: by
 * instructions for fewer bits (few/), else by the dots of isa/gemv.c.
 * With many rows, too, instructions for fewer bits take them as they are
 * (many/). Else they are widened as they are packed for products of floats
 * (tiles.c); or where tiles multiply pairs of bf16, they become bf16, which
 * holds bytes exactly, and inputs become sums of two numbers of bf16: 16 bits
 * of 24. Inputs that are to be rounded are so on these roads, or before. */
#include "cpu/few/few.h"
#include "cpu/many/many.h"
#include "cpu/pair/pair.h"
#include "cpu/product.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

enum { PART = 512 }; /* floats that are converted in the first cache */

static int64_t groups_of(const struct gpt_quant *w, int64_t k)
{
    return w->group ? gpt_ceil_div(k, CPU_GROUP) : 1;
}

static const uint16_t *scales_of(const struct gpt_quant *w, int64_t row,
                                 int64_t k)
{
    return w->scales + row * groups_of(w, k);
}

static const int8_t *bytes_of(const struct gpt_quant *w, int64_t row,
                              int64_t k)
{
    return (const int8_t *)w->values + row * k;
}

/* Does what cpu_quant_row() does for a matrix in panels: parts of a panel's row
 * are put together first. */
static void panel_row(float *to, const struct gpt_quant *w, int64_t row,
                      int64_t at, int64_t n, int64_t k)
{
    const int64_t size = w->type == GPT_BF16 ? 2 : 1, end = at + n;
    const int64_t most = w->group ? CPU_GROUP : PART;
    const char *values = w->values;
    struct gpt_quant part = {.type = w->type};
    uint16_t scale = w->scales && !w->group ? w->scales[row] : 0;
    char room[2 * PART];

    part.values = room;
    part.scales = &scale;
    for (int64_t next; at < end; at = next) {
        next = gpt_min_i64((at / most + 1) * most, end);
        const int64_t begin = at * size, bytes = next * size;

        /* four bytes of a row lie together */
        for (int64_t l = begin, n4; l < bytes; l += n4) {
            n4 = gpt_min_i64(4 - l % 4, bytes - l);
            memcpy(room + l - begin, values + cpu_panel_at(w, row, l, k),
                   (size_t)n4);
            for (int64_t i = 0; i < n4; i++)
                room[l - begin + i] ^= cpu_panel_turn(w, l + i);
        }
        if (w->group)
            memcpy(&scale,
                   values + cpu_panel_scale_at(w, row, at / CPU_GROUP, k),
                   sizeof(scale));
        cpu_quant_row(to, &part, 0, 0, next - at, next - at);
        to += next - at;
    }
}

/* Does what cpu_quant_row() does for a matrix of floats. */
static void float_row(float *to, const struct gpt_quant *w, int64_t row,
                      int64_t at, int64_t n, int64_t k)
{
    const int64_t nr = w->arranged ? cpu_isa->nr : 1;
    const float *from =
        (const float *)w->values + row / nr * nr * k + at * nr + row % nr;

    for (int64_t l = 0; l < n; l++)
        to[l] = from[l * nr];
}

void cpu_quant_row(float *to, const struct gpt_quant *w, int64_t row,
                   int64_t at, int64_t n, int64_t k)
{
    if (w->type == GPT_F32) {
        float_row(to, w, row, at, n, k);
        return;
    }
    if (w->arranged) {
        panel_row(to, w, row, at, n, k);
        return;
    }
    if (w->type == GPT_BF16) {
        cpu_isa->widen(to, (const uint16_t *)w->values + row * k + at, n);
        return;
    }
    const int8_t *values = bytes_of(w, row, k) + at;
    const uint16_t *scales = scales_of(w, row, k);

    for (int64_t l = 0, end; l < n; l = end) {
        int64_t group = w->group ? (at + l) / CPU_GROUP : 0;

        end = w->group ? (group + 1) * CPU_GROUP - at : n;
        end = end < n ? end : n;
        cpu_isa->widen_bytes(to + l, values + l,
                             gpt_bf16_to_f32(scales[group]), end - l);
    }
}

/* ---- few rows, by instructions for fewer bits ---- */

/* TOGETHER strips are finished together: rows of one strip are too short to
 * keep a processor busy. Rows of ASIDE_FROM texts or more may all fall into one
 * set of the first cache; they are finished aside, LD_ASIDE floats apart, and
 * copied. */
enum { TOGETHER = 8, ASIDE_FROM = 17, LD_ASIDE = TOGETHER * FEW_ROWS + 16 };

static int64_t floats_aside(const struct cpu_product *p)
{
    return p->m < ASIDE_FROM || p->beta != 0 ? 0 : p->m * LD_ASIDE;
}

/* Multiplies a thread's strips first .. end - 1. room holds floats_aside()
 * floats. */
static void multiply_strips(const struct cpu_product *p,
                            const struct gpt_quant *w,
                            const struct cpu_few_road *road,
                            const struct cpu_few_inputs *in, int64_t first,
                            int64_t end, float *room)
{
    if (cpu_pairs)
        cpu_pairs->begin();
    for (int64_t from = first; from < end; from += TOGETHER) {
        const int64_t to = gpt_min_i64(from + TOGETHER, end);
        struct cpu_product part = cpu_block_of(p, 0, from * FEW_ROWS, p->m,
                                               (to - from) * FEW_ROWS, NULL);
        float *const y = part.c;

        if (floats_aside(p) > 0) {
            part.c = room;
            part.ldc = LD_ASIDE;
        }
        for (int64_t i = from; i < to; i++)
            road->multiply(&(struct cpu_few_strip){
                .in = in,
                .values = w->values,
                .scales = w->scales,
                .row = i * FEW_ROWS,
                .rows = gpt_min_i64(p->n - i * FEW_ROWS, FEW_ROWS),
                .first = i == first,
                .last = i == end - 1,
                .y = part.c + (i - from) * FEW_ROWS,
                .ldy = part.ldc,
                .add = part.beta != 0});
        cpu_finish_block(&part);
        for (int64_t i = 0; part.c != y && i < part.m; i++)
            memcpy(y + i * p->ldc, room + i * LD_ASIDE,
                   (size_t)part.n * sizeof(*y));
    }
    if (cpu_pairs)
        cpu_pairs->end();
}

/* The road that few rows take with weights of this form, or NULL. */
static const struct cpu_few_road *few_road(const struct cpu_product *p,
                                           const struct gpt_quant *w)
{
    /* sums of a row of bytes have 32 bits */
    if (!cpu_few || p->m == 0 ||
        (w->type == GPT_I8 && !w->group && p->k > FEW_MOST_BYTES))
        return NULL;
    const struct cpu_few_road *road = cpu_few->road[cpu_form_of(w)];
    return road && road->panels == w->arranged ? road : NULL;
}

/* A product by a road, and how threads share it. */
struct work {
    const struct cpu_product *p;
    const struct gpt_quant *w;
    const struct cpu_few_road *road;
    struct cpu_sharing by;
    size_t packed, units, aside; /* floats of a part, and of a thread */
    float *mem;
};

/* The inputs of a part of the rows. */
static struct cpu_few_inputs inputs_of(const struct work *s, int64_t part)
{
    const struct cpu_product p = cpu_rows_of(s->p, s->by.parts, part);
    float *mem = s->mem + (size_t)part * (s->packed + s->units);

    return (struct cpu_few_inputs){.x = p.a,
                                   .ldx = p.lda,
                                   .m = p.m,
                                   .k = p.k,
                                   .bytes = s->w->type == GPT_I8,
                                   .packed = (char *)(void *)mem,
                                   .units = mem + s->packed};
}

/* Packs what a thread has of the inputs of its part. */
static void pack_share(const struct work *s, int64_t part, int64_t share)
{
    const struct cpu_few_inputs in = inputs_of(s, part);
    const int64_t n = s->road->parts(&in);

    for (int64_t i = cpu_cut(n, s->by.shares, share);
         i < cpu_cut(n, s->by.shares, share + 1); i++)
        s->road->pack(&in, i);
}

/* Multiplies a thread's strips with the rows of its part. They lie side by
 * side: it reads one stretch of memory from its beginning to its end. */
static void multiply_share(const struct work *s, int64_t part, int64_t share)
{
    const struct cpu_product p = cpu_rows_of(s->p, s->by.parts, part);
    const struct cpu_few_inputs in = inputs_of(s, part);
    const int64_t strips = gpt_ceil_div(p.n, FEW_ROWS), n = s->by.shares;
    float *rooms = s->mem + (size_t)s->by.parts * (s->packed + s->units);

    multiply_strips(&p, s->w, s->road, &in, cpu_cut(strips, n, share),
                    cpu_cut(strips, n, share + 1),
                    rooms + (size_t)(part * n + share) * s->aside);
}

static bool make_room(struct gpt_queue *q, struct work *s)
{
    /* the first part is the longest */
    const struct cpu_product p = cpu_rows_of(s->p, s->by.parts, 0);
    struct cpu_few_inputs in = {
        .m = p.m, .k = p.k, .bytes = s->w->type == GPT_I8};

    s->packed = (size_t)s->road->room(&in) / sizeof(float);
    s->units = (size_t)gpt_round_up(in.m, 16);
    s->aside = (size_t)floats_aside(s->p);
    s->mem = cpu_work(q, (size_t)s->by.parts * (s->packed + s->units) +
                             (size_t)(s->by.parts * s->by.shares) * s->aside);
    if (!s->mem)
        return false;
    in = inputs_of(s, 0);
    if (s->road->measure)
        s->road->measure(&in);
    return true;
}

/* Inputs are packed by the threads that multiply them. */
static void multiply_few_by_road(struct gpt_queue *q,
                                 const struct cpu_product *p,
                                 const struct gpt_quant *w,
                                 const struct cpu_few_road *road)
{
    struct work s = {.p = p,
                     .w = w,
                     .road = road,
                     .by = cpu_share_few(p, road->panels)};

    if (!make_room(q, &s))
        return;
    const int64_t all = s.by.parts * s.by.shares;
#pragma omp parallel if (all > 1)
    {
        /* the end of the loop is a barrier: all is packed */
#pragma omp for schedule(static)
        for (int64_t i = 0; i < all; i++)
            pack_share(&s, i / s.by.shares, i % s.by.shares);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < all; i++)
            multiply_share(&s, i / s.by.shares, i % s.by.shares);
    }
}

/* ---- few rows, by dots ---- */

enum { STRIP = 64 }; /* rows of weights */

/* Multiplies few rows by dot products. A thread has whole strips; a strip's
 * rows are read once for all rows of a, and in the order of memory. */
static void multiply_few(const struct cpu_product *p, const struct gpt_quant *w,
                         int64_t n0)
{
    struct cpu_product part = cpu_block_of(p, 0, n0, p->m, STRIP, NULL);
    bool add = part.beta != 0;

    assert(!w->arranged);
    if (w->type == GPT_BF16)
        cpu_isa->dots_bf16(part.c, part.ldc, part.a, part.lda,
                           (const uint16_t *)w->values + n0 * p->k, part.m,
                           part.n, p->k, add);
    else
        cpu_isa->dots_int8(part.c, part.ldc, part.a, part.lda,
                           (const int8_t *)w->values + n0 * p->k,
                           scales_of(w, n0, p->k),
                           w->group ? groups_of(w, p->k) : 0, part.m, part.n,
                           p->k, add);
    cpu_finish_block(&part);
}

/* ---- many rows, by pairs ---- */

/* How many rows of weights are widened at a time: their bf16 stays in the third
 * cache, and is written and read again there. Products of this width are as
 * fast as wider ones. */
enum { WIDE = 4 * CPU_BN };

/* The part of p whose columns are those of c from n0 on, at most WIDE; b is not
 * set. */
static struct cpu_product columns_of(const struct cpu_product *p, int64_t n0)
{
    struct cpu_product part = *p;

    part.n = p->n - n0 < WIDE ? p->n - n0 : WIDE;
    part.c += n0;
    part.bias = p->bias ? (const float *)p->bias + n0 : NULL;
    part.aux = p->aux ? (float *)p->aux + n0 : NULL;
    return part;
}

/* Splits a into high + low, which differs from it by at most 2^-17 of itself.
 * All high parts come first, then the low ones, so that one product of twice
 * the rows reads and packs the weights once. */
static void split_rows(uint16_t *to, const struct cpu_product *p)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < p->m; i++)
        cpu_isa->split(to + i * p->k, to + (p->m + i) * p->k,
                       (const float *)p->a + i * p->lda, p->k);
}

/* Turns row `row` of bytes into bf16. Where there is one scale, it is applied
 * to the sum; of several, each is multiplied with its bytes, and what bf16 does
 * not hold of the 15 bits goes to `low`. */
static void narrow_row(uint16_t *high, uint16_t *low, const struct gpt_quant *w,
                       int64_t row, int64_t k)
{
    float wide[PART];

    for (int64_t l = 0; l < k; l += PART) {
        int64_t n = k - l < PART ? k - l : PART;

        if (w->group) {
            cpu_quant_row(wide, w, row, l, n, k);
            cpu_isa->split(high + l, low + l, wide, n);
        } else {
            cpu_isa->widen_bytes(wide, bytes_of(w, row, k) + l, 1, n);
            cpu_isa->narrow(high + l, wide, n);
        }
    }
}

/* Turns `rows` rows of w from n0 on into bf16, in `room`. */
static void narrow_rows(uint16_t *room, const struct gpt_quant *w, int64_t n0,
                        int64_t rows, int64_t k)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++)
        narrow_row(room + i * k, room + (rows + i) * k, w, n0 + i, k);
}

/* Joins a row of a block from its sums of both parts, the small terms first. */
static void join_row(const struct cpu_product *row, const float *high,
                     const float *low, const uint16_t *scales)
{
    float sums[CPU_BN], factors[CPU_BN];

    cpu_isa->add(sums, low, high, row->n);
    if (scales) {
        cpu_isa->widen(factors, scales, row->n);
        cpu_isa->times(sums, factors, row->n);
    }
    if (row->beta != 0)
        cpu_isa->add(row->c, row->c, sums, row->n);
    else
        memcpy(row->c, sums, (size_t)row->n * sizeof(*sums));
    cpu_finish_block(row);
}

static void join_rows(const struct cpu_product *part, const float *sums,
                      const uint16_t *scales)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < part->m; i++)
        for (int64_t n0 = 0; n0 < part->n; n0 += CPU_BN) {
            const struct cpu_product row =
                cpu_block_of(part, i, n0, 1, CPU_BN, NULL);
            const float *high = sums + i * part->n + n0;

            join_row(&row, high, high + part->m * part->n,
                     scales ? scales + n0 : NULL);
        }
}

/* Multiplies by products of bf16 in place of those of floats: at half of their
 * rate, or a third where weights have two parts, which with tiles is still
 * several times that of floats. */
static void multiply_split(struct gpt_queue *q, const struct cpu_product *p,
                           const struct gpt_quant *w)
{
    const bool bytes = w->type == GPT_I8, two = bytes && w->group;
    const int64_t most = p->n < WIDE ? p->n : WIDE;
    const int64_t rows = bytes ? (two ? 2 : 1) * most : 0;
    float *sums = cpu_wide(
        q, (size_t)(2 * p->m * most + ((2 * p->m + rows) * p->k + 1) / 2));

    if (!sums)
        return;
    assert(!w->arranged);
    uint16_t *inputs = (uint16_t *)(void *)(sums + 2 * p->m * most);
    uint16_t *weights = inputs + 2 * p->m * p->k;
    split_rows(inputs, p);
    for (int64_t n0 = 0; n0 < p->n; n0 += WIDE) {
        const struct cpu_product part = columns_of(p, n0);
        struct cpu_product pairs = {.m = 2 * p->m,
                                    .n = part.n,
                                    .k = p->k,
                                    .lda = p->k,
                                    .ldb = p->k,
                                    .ldc = part.n,
                                    .tb = true,
                                    .narrow = true,
                                    .a = inputs,
                                    .b = weights,
                                    .c = sums,
                                    .sums = p->sums};

        if (bytes)
            narrow_rows(weights, w, n0, part.n, p->k);
        else
            pairs.b = (const uint16_t *)w->values + n0 * p->k;
        cpu_multiply_pairs(q, &pairs);
        if (two) {
            /* both small parts have no product that counts */
            pairs.m = p->m;
            pairs.b = weights + part.n * p->k;
            pairs.c = sums + p->m * part.n;
            pairs.beta = 1;
            cpu_multiply_pairs(q, &pairs);
        }
        join_rows(&part, sums, bytes && !two ? w->scales + n0 : NULL);
    }
}

/* Multiplies few rows by the road of this form, or else by dots. Inputs that
 * are to be rounded were rounded before they came here. */
static void multiply_few_rows(struct gpt_queue *q, const struct cpu_product *p,
                              const struct gpt_quant *w)
{
    const struct cpu_few_road *road = few_road(p, w);
    struct cpu_product packed = *p;

    if (road) {
        multiply_few_by_road(q, p, w, road);
        return;
    }
    if (p->m == 0 || !cpu_pack_inputs(q, &packed))
        return;
#pragma omp parallel for schedule(static) if (cpu_product_worth_threads(p))
    for (int64_t n0 = 0; n0 < p->n; n0 += STRIP)
        multiply_few(&packed, w, n0);
}

/* Multiplies many rows, whose weights become floats, or bf16, where no road
 * takes them as they are. */
static void multiply_many_rows(struct gpt_queue *q, const struct cpu_product *p,
                               const struct gpt_quant *w)
{
    if (cpu_can_many(p, w))
        cpu_multiply_many(q, p, w);
    else if (cpu_many && cpu_many->road[CPU_BF16] && p->k > 0)
        multiply_split(q, p, w);
    else
        cpu_multiply_tiles(q, p, w);
}

void cpu_multiply_quant(struct gpt_queue *q, const struct cpu_product *whole,
                        const struct gpt_quant *w)
{
    /* an empty sum has no scale */
    const bool few = whole->k > 0 && cpu_has_few_rows(whole);
    struct cpu_product p = *whole;
    struct gpt_quant weights = *w;

    assert(p.tb && !p.ta && !p.narrow && !p.c16);
    if (w->type == GPT_F32) {
        cpu_multiply_panels(q, &p, w);
        return;
    }
    if (w->round_inputs &&
        !(few ? few_road(&p, w) != NULL : cpu_can_many(&p, w))) {
        weights.round_inputs = false;
        if (!cpu_round_inputs(q, &p, w))
            return;
    }
    if (few)
        multiply_few_rows(q, &p, &weights);
    else
        multiply_many_rows(q, &p, &weights);
}
