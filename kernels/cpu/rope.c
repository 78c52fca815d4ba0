/* Rotary positions: a row's sines and cosines are computed once for all heads.
 */
#include "cpu/cpu.h"
#include "rope_scaling.h"

#include <math.h>
#include <omp.h>

/* What is the same for all rows. work: `each` floats a thread. */
struct rope {
    const struct gpt_rope *op;
    float *rates; /* (rotary / 2): base^(-2 i / rotary), scaled */
    float size;   /* of sines and cosines: not 1 with YaRN alone */
    float *work;
    int64_t each;
};

static void rotate_pairs(float *x, int64_t half, const float *cosine,
                         const float *sine)
{
    for (int64_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];

        x[i] = a * cosine[i] - b * sine[i];
        x[i + half] = b * cosine[i] + a * sine[i];
    }
}

/* The same for pairs of neighbours. */
static void rotate_neighbours(float *x, int64_t half, const float *cosine,
                              const float *sine)
{
    for (int64_t i = 0; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1];

        x[2 * i] = a * cosine[i] - b * sine[i];
        x[2 * i + 1] = b * cosine[i] + a * sine[i];
    }
}

/* In float, and rounded once: sums of rounded products would lose more than
 * bf16 itself does. */
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
        rotate_pairs(x, op->rotary / 2, cosine, sine);
    if (narrow)
        cpu_isa->narrow(x16, wide, op->rotary);
}

static void rotate_row(const struct rope *r, int64_t n)
{
    const struct gpt_rope *op = r->op;
    int64_t half = op->rotary / 2, heads = op->h / op->g + 2;
    float *cosine = r->work + omp_get_thread_num() * r->each;
    float *sine = cosine + half, *wide = sine + half;
    float position = (float)(op->positions ? op->positions[n] : n % op->t);

    for (int64_t i = 0; i < half; i++) {
        /* In float, as in PyTorch models: far positions lose digits there, too,
         * and a checkpoint's model must see the angles it was trained with. */
        float angle = position * r->rates[i];

        cosine[i] = cosf(angle) * r->size;
        sine[i] = (op->inverse ? -sinf(angle) : sinf(angle)) * r->size;
    }
    for (int64_t k = 0; k < op->g * heads; k++) {
        int64_t at = (n * op->g * heads + k) * op->d;

        /* A group is query heads, a key, a value (Megatron's order). */
        if (k % heads == heads - 1)
            continue; /* a value */
        rotate_head(op, at, cosine, sine, wide);
    }
}

void cpu_rope(struct gpt_queue *q, const struct gpt_rope *op)
{
    if (!cpu_ready(q, "rope", op->act == GPT_BF16 ? GPT_F32 : op->act))
        return;
    int64_t half = op->rotary / 2;
    struct rope r = {
        .op = op,
        .each = 4 * half,
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
#pragma omp parallel for schedule(static) if (                                 \
        cpu_worth_threads(op->n * (op->h + op->g) * op->rotary))
    for (int64_t n = 0; n < op->n; n++)
        rotate_row(&r, n);
}
