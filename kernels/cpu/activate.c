/* Activations, gated or not, and their gradients: rows of isa/activation.c. */
#include "cpu/cpu.h"

/* About how long an element takes: an exp. */
static bool worth_threads(const struct gpt_activate *op)
{
    return cpu_worth_threads(op->n * op->f);
}

void cpu_activate(struct gpt_queue *q, const struct gpt_activate *op)
{
    if (!cpu_ready(q, "activate", op->act))
        return;
    int64_t f = op->f, wide = op->gated ? 2 * f : f;
#pragma omp parallel for schedule(static) if (worth_threads(op))
    for (int64_t i = 0; i < op->n; i++) {
        const float *x = (const float *)op->pre + i * wide;

        cpu_isa->activate((float *)op->out + i * f, x, op->gated ? x + f : NULL,
                          f, (int)op->kind);
    }
}

void cpu_activate_bwd(struct gpt_queue *q, const struct gpt_activate *op,
                      const void *dout, void *dpre)
{
    if (!cpu_ready(q, "activate_bwd", op->act))
        return;
    int64_t f = op->f, wide = op->gated ? 2 * f : f;
#pragma omp parallel for schedule(static) if (worth_threads(op))
    for (int64_t i = 0; i < op->n; i++) {
        const float *x = (const float *)op->pre + i * wide;
        float *dx = (float *)dpre + i * wide;

        cpu_isa->activate_grad(dx, op->gated ? dx + f : NULL,
                               (const float *)dout + i * f, x,
                               op->gated ? x + f : NULL, f, (int)op->kind);
    }
}
