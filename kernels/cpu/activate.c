/* Activations, gated or not, and their gradients: rows of isa/activation.c.
 * Rows of bf16 are cpu_pairs' where it has the kind, so that what an
 * epilogue makes of a value comes out here, too. Else they are widened part by
 * part, which stay in the first cache: these operations would wait for memory
 * alone if whole operands were widened. */
#include "cpu/cpu.h"
#include "cpu/pair/pair.h"

#include <math.h>

/* Floats that one task takes. It is a whole number of vectors, so that the cut
 * changes no result. */
enum { PART = 512 };

/* True when the work pays for threads: an element takes about as long as an
 * exp. */
static bool worth_threads(const struct gpt_activate *op)
{
    return cpu_worth_threads(op->n * op->f);
}

/* A number of type `act`, or 0 where there is none. */
static double number(const void *at, enum gpt_dtype act)
{
    float x = 0;

    if (at)
        cpu_convert(&x, GPT_F32, at, act, 1);
    return (double)x;
}

/* What XIELU's parameters stand for. */
static void alphas_of(const struct gpt_activate *op, float *alpha)
{
    alpha[0] = (float)log1p(exp(number(op->alpha_p, op->act)));
    alpha[1] = (float)(log1p(exp(number(op->alpha_n, op->act))) + 0.5);
}

/* Computes elements j to j + n of a row of bf16. up is NULL where there is no
 * gate. */
static void forward_part(const uint16_t *x, const uint16_t *up, uint16_t *y,
                         int64_t n, int kind, const float *alpha)
{
    float wide[PART], other[PART];

    cpu_isa->widen(wide, x, n);
    if (up)
        cpu_isa->widen(other, up, n);
    cpu_isa->activate(wide, wide, up ? other : NULL, n, kind, alpha);
    cpu_isa->narrow(y, wide, n);
}

static void activate_narrow(const struct cpu_pair_activation *row,
                            const float *alpha)
{
    if (cpu_pairs && cpu_pairs->activate(row))
        return;
    for (int64_t j = 0; j < row->n; j += PART)
        forward_part(row->x + j, row->up ? row->up + j : NULL, row->to + j,
                     row->n - j < PART ? row->n - j : PART, (int)row->kind,
                     alpha);
}

void cpu_gelu_narrow(uint16_t *y, const uint16_t *x, int64_t n)
{
    activate_narrow(&(struct cpu_pair_activation){
        .x = x, .to = y, .n = n, .kind = GPT_GELU}, NULL);
}

static void forward_narrow(const struct gpt_activate *op, int64_t i,
                           const float *alpha)
{
    const int64_t f = op->f;
    const uint16_t *x =
        (const uint16_t *)op->pre + i * (op->gated ? 2 * f : f);

    activate_narrow(&(struct cpu_pair_activation){
        .x = x,
        .up = op->gated ? x + f : NULL,
        .to = (uint16_t *)op->out + i * f,
        .n = f,
        .kind = op->kind}, alpha);
}

static void forward_row(const struct gpt_activate *op, int64_t i,
                        const float *alpha)
{
    const int64_t f = op->f;
    const float *x = (const float *)op->pre + i * (op->gated ? 2 * f : f);

    cpu_isa->activate((float *)op->out + i * f, x, op->gated ? x + f : NULL, f,
                      (int)op->kind, alpha);
}

void cpu_activate(struct gpt_queue *q, const struct gpt_activate *op)
{
    const bool narrow = op->act == GPT_BF16;
    float alpha[2];

    if (!cpu_ready_narrow(q, "activate", op->act))
        return;
    alphas_of(op, alpha);
#pragma omp parallel for schedule(static) if (worth_threads(op))
    for (int64_t i = 0; i < op->n; i++) {
        if (narrow)
            forward_narrow(op, i, alpha);
        else
            forward_row(op, i, alpha);
    }
}

static void backward_part(const struct cpu_pair_activation *o, int64_t j,
                          int64_t n, const float *alpha)
{
    float x[PART], up[PART], dy[PART], dup[PART];

    cpu_isa->widen(x, o->x + j, n);
    cpu_isa->widen(dy, o->dy + j, n);
    if (o->up)
        cpu_isa->widen(up, o->up + j, n);
    cpu_isa->activate_grad(x, o->up ? dup : NULL, dy, x, o->up ? up : NULL, n,
                           (int)o->kind, alpha);
    cpu_isa->narrow(o->to + j, x, n);
    if (o->up)
        cpu_isa->narrow(o->dup + j, dup, n);
}

static void backward_narrow(const struct gpt_activate *op, const void *dout,
                            void *dpre, int64_t i, const float *alpha)
{
    const int64_t f = op->f, at = i * (op->gated ? 2 * f : f);
    const uint16_t *x = (const uint16_t *)op->pre + at;
    uint16_t *dx = (uint16_t *)dpre + at;
    const struct cpu_pair_activation row = {
        .x = x,
        .up = op->gated ? x + f : NULL,
        .dy = (const uint16_t *)dout + i * f,
        .to = dx,
        .dup = op->gated ? dx + f : NULL,
        .n = f,
        .kind = op->kind};

    if (cpu_pairs && cpu_pairs->activate(&row))
        return;
    for (int64_t j = 0; j < f; j += PART)
        backward_part(&row, j, f - j < PART ? f - j : PART, alpha);
}

static void backward_row(const struct gpt_activate *op, const void *dout,
                         void *dpre, int64_t i, const float *alpha)
{
    const int64_t f = op->f, at = i * (op->gated ? 2 * f : f);
    const float *x = (const float *)op->pre + at;
    float *dx = (float *)dpre + at;

    cpu_isa->activate_grad(dx, op->gated ? dx + f : NULL,
                           (const float *)dout + i * f, x,
                           op->gated ? x + f : NULL, f, (int)op->kind, alpha);
}

void cpu_activate_bwd(struct gpt_queue *q, const struct gpt_activate *op,
                      const void *dout, void *dpre)
{
    const bool narrow = op->act == GPT_BF16;
    float alpha[2];

    if (!cpu_ready_narrow(q, "activate_bwd", op->act))
        return;
    alphas_of(op, alpha);
#pragma omp parallel for schedule(static) if (worth_threads(op))
    for (int64_t i = 0; i < op->n; i++) {
        if (narrow)
            backward_narrow(op, dout, dpre, i, alpha);
        else
            backward_row(op, dout, dpre, i, alpha);
    }
}

/* ---- parameters of XIELU ---- */

/* Adds a row's part of both sums. */
static void sum_row(const struct gpt_activate *op, const void *dout, int64_t i,
                    double *sums)
{
    const int64_t f = op->f;

    for (int64_t j = 0; j < f; j += PART) {
        const int64_t n = f - j < PART ? f - j : PART, at = i * f + j;
        float x[PART], dy[PART];

        if (op->act != GPT_BF16) {
            cpu_isa->xielu_sums(sums, (const float *)dout + at,
                                (const float *)op->pre + at, n);
            continue;
        }
        cpu_isa->widen(x, (const uint16_t *)op->pre + at, n);
        cpu_isa->widen(dy, (const uint16_t *)dout + at, n);
        cpu_isa->xielu_sums(sums, dy, x, n);
    }
}

/* Blocks of rows sum their own, and are added in order, whatever the number of
 * threads. The slope of ln(1 + e^a) is the logistic function of a. */
void cpu_xielu_grads(struct gpt_queue *q, const struct gpt_activate *op,
                     const void *dout, float *dalpha_p, float *dalpha_n)
{
    const int64_t blocks = cpu_row_blocks(op->n);
    double total[2] = {0};

    if (!cpu_ready_narrow(q, "xielu_grads", op->act))
        return;
    double *sums = (void *)cpu_work(q, 4 * (size_t)blocks);
    if (!sums)
        return;
#pragma omp parallel for schedule(static) if (worth_threads(op))
    for (int64_t k = 0; k < blocks; k++) {
        const int64_t end = cpu_cut(op->n, blocks, k + 1);

        sums[2 * k] = sums[2 * k + 1] = 0;
        for (int64_t i = cpu_cut(op->n, blocks, k); i < end; i++)
            sum_row(op, dout, i, sums + 2 * k);
    }
    for (int64_t k = 0; k < 2 * blocks; k++)
        total[k % 2] += sums[k];
    *dalpha_p +=
        (float)(total[0] / (1 + exp(-number(op->alpha_p, op->act))));
    *dalpha_n +=
        (float)(total[1] / (1 + exp(-number(op->alpha_n, op->act))));
}
