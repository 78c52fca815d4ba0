/* Rotary positions. Sines and cosines of positions 0, 1, ... are kept with the
 * queue, as all layers of a step turn by the same ones, forward and back; rows
 * with positions of their own compute theirs. */
#include "cpu/cpu.h"
#include "rope_scaling.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* What all rows share. work has `each` floats a thread. */
struct rope {
    const struct gpt_rope *op;
    float *rates; /* (rotary / 2): base^(-2 i / rotary), scaled */
    float size;   /* of sines and cosines: not 1 with YaRN and LongRoPE */
    float *work;
    int64_t each;
    const float *table; /* (t, rotary): cosines, then sines; or NULL */
};

/* Turns pairs of neighbours; cpu_isa->turn() turns pairs of halves. */
static void rotate_neighbours(float *x, int64_t half, const float *cosine,
                              const float *sine)
{
    for (int64_t i = 0; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1];

        x[2 * i] = a * cosine[i] - b * sine[i];
        x[2 * i + 1] = b * cosine[i] + a * sine[i];
    }
}

/* Turns a head in float, and rounds once: sums of rounded products would lose
 * more than bf16 itself does. */
static void rotate_head(const struct gpt_rope *op, int64_t at,
                        const float *cosine, const float *sine, float *wide)
{
    bool narrow = op->act == GPT_BF16;
    uint16_t *x16 = (uint16_t *)op->qkv + at;
    float *x = narrow ? wide : (float *)op->qkv + at;

    if (narrow)
        cpu_isa->widen(wide, x16, op->rotary);
    if (op->interleaved)
        rotate_neighbours(x, op->rotary / 2, cosine, sine);
    else
        cpu_isa->turn(x, cosine, sine, op->rotary / 2);
    if (narrow)
        cpu_isa->narrow(x16, wide, op->rotary);
}

/* Writes the cosines and sines of a position to `to`, (rotary) floats; sines
 * are not inverted. */
static void make_angles(const struct rope *r, float position, float *to)
{
    const int64_t half = r->op->rotary / 2;

    for (int64_t i = 0; i < half; i++) {
        /* In float, as in PyTorch models: far positions lose digits there, too,
         * and a checkpoint's model must see the angles it was trained with. */
        float angle = position * r->rates[i];

        to[i] = cosf(angle) * r->size;
        to[half + i] = sinf(angle) * r->size;
    }
}

/* What the queries of a row are multiplied by, beside `size`. In float, as the
 * angles. */
static float growth_of(const struct gpt_rope *op, int64_t n)
{
    const int64_t at = op->positions ? op->positions[n] : n % op->t;

    return op->query_growth > 0
               ? 1 + op->query_growth * logf(1 + (float)(at /
                                                         op->query_positions))
               : 1;
}

static void rotate_row(const struct rope *r, int64_t n)
{
    const struct gpt_rope *op = r->op;
    int64_t half = op->rotary / 2, heads = op->h / op->g + 2;
    float *angles = r->work + omp_get_thread_num() * r->each;
    float *wide = angles + op->rotary, *of_queries = angles;
    const float growth = growth_of(op, n);

    if (r->table)
        memcpy(angles, r->table + n % op->t * op->rotary,
               (size_t)op->rotary * sizeof(*angles));
    else
        make_angles(r, (float)op->positions[n], angles);
    if (op->inverse)
        cpu_isa->scale(angles + half, half, -1);
    if (growth > 1) {
        of_queries = wide + op->rotary;
        memcpy(of_queries, angles, (size_t)op->rotary * sizeof(*angles));
        cpu_isa->scale(of_queries, op->rotary, growth);
    }
    for (int64_t k = 0; k < op->g * heads; k++) {
        int64_t at = (n * op->g * heads + k) * op->d;
        const float *turns = k % heads < heads - 2 ? of_queries : angles;

        /* A group is query heads, a key, a value (Megatron's order). */
        if (k % heads == heads - 1)
            continue; /* a value */
        rotate_head(op, at, turns, turns + half, wide);
    }
}

/* True when the queue's table is that of this operation. */
static bool is_kept(const struct cpu_angles *kept, const struct gpt_rope *op)
{
    return kept->t >= op->t && kept->rotary == op->rotary &&
           kept->base == op->base &&
           memcmp(&kept->scaling, &op->scaling, sizeof(op->scaling)) == 0;
}

/* Returns the table of positions below t, or NULL after recording a failure.
 * Layers of two kinds take turns with it, and fill it anew. */
static const float *angle_table(struct gpt_queue *q, const struct rope *r)
{
    const struct gpt_rope *op = r->op;
    struct cpu_angles *kept = &q->angles;

    if (is_kept(kept, op))
        return kept->space.mem;
    kept->t = 0; /* without memory nothing was written */
    float *to = cpu_angle_space(q, (size_t)(op->t * op->rotary));
    if (!to)
        return NULL;
#pragma omp parallel for schedule(static) if (                                \
        cpu_worth_threads(op->t * op->rotary * 10))
    for (int64_t i = 0; i < op->t; i++)
        make_angles(r, (float)i, to + i * op->rotary);
    kept->t = op->t;
    kept->rotary = op->rotary;
    kept->base = op->base;
    kept->scaling = op->scaling;
    return to;
}

void cpu_rope(struct gpt_queue *q, const struct gpt_rope *op)
{
    if (!cpu_ready_narrow(q, "rope", op->act))
        return;
    int64_t half = op->rotary / 2;
    struct rope r = {
        .op = op,
        .each = (3 * op->rotary + 15) / 16 * 16,
        .size = op->scaling.factor > 0 ? (float)op->scaling.attention : 1,
    };
    r.rates = cpu_work(q, (size_t)(half + r.each * omp_get_max_threads()));
    if (!r.rates)
        return;
    r.work = r.rates + half;
    for (int64_t i = 0; i < half; i++)
        /* Computed in double and rounded once, the same on every machine. */
        r.rates[i] = (float)gpt_rope_scaled(
            &op->scaling,
            pow(op->base, -2 * (double)i / (double)op->rotary), i);
    if (!op->positions && !(r.table = angle_table(q, &r)))
        return;
#pragma omp parallel for schedule(static) if (                                 \
        cpu_worth_threads(op->n * (op->h + op->g) * op->rotary))
    for (int64_t n = 0; n < op->n; n++)
        rotate_row(&r, n);
}
