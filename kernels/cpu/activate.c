/* Activations, gated or not, and their gradients: rows of isa/activation.c.
 * Rows of bf16 are widened part by part, which stay in the first cache: these
 * operations would wait for memory alone if whole operands were widened. */
#include "cpu/cpu.h"

/* Floats of a part; a whole number of vectors, so that the cut changes no
 * result. */
enum { PART = 512 };

/* About how long an element takes: an exp. */
static bool worth_threads(const struct gpt_activate *op)
{
    return cpu_worth_threads(op->n * op->f);
}

/* Elements j to j + n of a row of bf16; up: NULL without a gate. */
static void forward_part(const uint16_t *x, const uint16_t *up, uint16_t *y,
                         int64_t n, int kind)
{
    float wide[PART], other[PART];

    cpu_isa->widen(wide, x, n);
    if (up)
        cpu_isa->widen(other, up, n);
    cpu_isa->activate(wide, wide, up ? other : NULL, n, kind);
    cpu_isa->narrow(y, wide, n);
}

static void forward_narrow(const struct gpt_activate *op, int64_t i)
{
    const int64_t f = op->f;
    const uint16_t *x =
        (const uint16_t *)op->pre + i * (op->gated ? 2 * f : f);
    uint16_t *y = (uint16_t *)op->out + i * f;

    for (int64_t j = 0; j < f; j += PART)
        forward_part(x + j, op->gated ? x + f + j : NULL, y + j,
                     f - j < PART ? f - j : PART, (int)op->kind);
}

static void forward_row(const struct gpt_activate *op, int64_t i)
{
    const int64_t f = op->f;
    const float *x = (const float *)op->pre + i * (op->gated ? 2 * f : f);

    cpu_isa->activate((float *)op->out + i * f, x, op->gated ? x + f : NULL, f,
                      (int)op->kind);
}

void cpu_activate(struct gpt_queue *q, const struct gpt_activate *op)
{
    const bool narrow = op->act == GPT_BF16;

    if (!cpu_ready(q, "activate", narrow ? GPT_F32 : op->act))
        return;
#pragma omp parallel for schedule(static) if (worth_threads(op))
    for (int64_t i = 0; i < op->n; i++) {
        if (narrow)
            forward_narrow(op, i);
        else
            forward_row(op, i);
    }
}

/* Where a part's operands are; up and dup: NULL without a gate. */
struct gradients {
    const uint16_t *x, *up, *dy;
    uint16_t *dx, *dup;
};

static void backward_part(const struct gradients *g, int64_t n, int kind)
{
    float x[PART], up[PART], dy[PART], dup[PART];

    cpu_isa->widen(x, g->x, n);
    cpu_isa->widen(dy, g->dy, n);
    if (g->up)
        cpu_isa->widen(up, g->up, n);
    cpu_isa->activate_grad(x, g->up ? dup : NULL, dy, x, g->up ? up : NULL, n,
                           kind);
    cpu_isa->narrow(g->dx, x, n);
    if (g->up)
        cpu_isa->narrow(g->dup, dup, n);
}

static void backward_narrow(const struct gpt_activate *op, const void *dout,
                            void *dpre, int64_t i)
{
    const int64_t f = op->f, at = i * (op->gated ? 2 * f : f);
    const uint16_t *x = (const uint16_t *)op->pre + at;
    const uint16_t *dy = (const uint16_t *)dout + i * f;
    uint16_t *dx = (uint16_t *)dpre + at;

    for (int64_t j = 0; j < f; j += PART) {
        const struct gradients part = {x + j, op->gated ? x + f + j : NULL,
                                       dy + j, dx + j,
                                       op->gated ? dx + f + j : NULL};

        backward_part(&part, f - j < PART ? f - j : PART, (int)op->kind);
    }
}

static void backward_row(const struct gpt_activate *op, const void *dout,
                         void *dpre, int64_t i)
{
    const int64_t f = op->f, at = i * (op->gated ? 2 * f : f);
    const float *x = (const float *)op->pre + at;
    float *dx = (float *)dpre + at;

    cpu_isa->activate_grad(dx, op->gated ? dx + f : NULL,
                           (const float *)dout + i * f, x,
                           op->gated ? x + f : NULL, f, (int)op->kind);
}

void cpu_activate_bwd(struct gpt_queue *q, const struct gpt_activate *op,
                      const void *dout, void *dpre)
{
    const bool narrow = op->act == GPT_BF16;

    if (!cpu_ready(q, "activate_bwd", narrow ? GPT_F32 : op->act))
        return;
#pragma omp parallel for schedule(static) if (worth_threads(op))
    for (int64_t i = 0; i < op->n; i++) {
        if (narrow)
            backward_narrow(op, dout, dpre, i);
        else
            backward_row(op, dout, dpre, i);
    }
}
