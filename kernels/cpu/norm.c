/* LayerNorm and RMSNorm, with the residual add and dropout before them.
 * Gradients of w and b are summed over fixed blocks of rows, then in order. */
#include "cpu/cpu.h"

#include <string.h>

/* resid_out = resid_in + dropout(x) for one row */
static const float *add_residual(const struct gpt_norm *op,
                                 const struct cpu_drop *drop, int64_t i)
{
    enum { PART = 256 };
    int64_t c = op->c;
    const float *in = (const float *)op->resid_in + i * c;
    float *out = (float *)op->resid_out + i * c;
    const float *x = op->x ? (const float *)op->x + i * c : NULL;
    if (!x && out != in)
        memcpy(out, in, (size_t)c * sizeof(*out));
    else if (x && op->dropout.p == 0)
        cpu_isa->add(out, in, x, c);
    else if (x) /* by way of a buffer, as out may be in */
        for (int64_t j = 0; j < c; j += PART) {
            /* The mask of a part, and its sum, before the next: resid_in may be
             * overwritten as soon as its part was added. */
            float kept[PART];
            int64_t n = c - j < PART ? c - j : PART;
            uint64_t at = cpu_drop_index(&op->dropout, i, c) + (uint64_t)j;

            cpu_isa->drop(kept, x + j, n, drop, at);
            cpu_isa->add(out + j, in + j, kept, n);
        }
    return out;
}

/* The weights that the loops multiply by: w itself, or a copy with 1 added.
 * NULL after a failure, or without weights (y is not wanted then). */
static const float *scale_of(struct gpt_queue *q, const void *w, int64_t c,
                             bool plus_one)
{
    const float *from = w;

    if (!plus_one || !w)
        return w;
    float *scale = cpu_work(q, (size_t)c);
    for (int64_t j = 0; scale && j < c; j++)
        scale[j] = from[j] + 1;
    return scale;
}

/* The statistics are those of the sum as stored, and the row is still in the
 * cache when it is read again. */
static void forward_row(const struct gpt_norm *op, const struct cpu_drop *drop,
                        int64_t i)
{
    bool centred = op->kind == GPT_LAYERNORM;
    const float *x = add_residual(op, drop, i);

    /* A bf16 norm calls once for the sum and once for the norm. */
    if (!op->y)
        return;
    cpu_isa->moments(x, op->c, op->eps, centred ? &op->mean[i] : NULL,
                     &op->rstd[i]);
    cpu_isa->norm_row((float *)op->y + i * op->c, x, op->w, op->b, op->c,
                      centred ? op->mean[i] : 0, op->rstd[i]);
}

static struct cpu_drop drop_of(const struct gpt_norm *op)
{
    return op->dropout.p > 0 ? cpu_drop_of(&op->dropout) : (struct cpu_drop){0};
}

void cpu_norm_fwd(struct gpt_queue *q, const struct gpt_norm *op)
{
    if (!cpu_ready(q, "norm_fwd", op->act))
        return;
    struct gpt_norm one = *op;
    struct cpu_drop drop = drop_of(op);
    one.w = scale_of(q, op->w, op->c, op->plus_one);
    if (op->w && !one.w)
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(op->n * op->c))
    for (int64_t i = 0; i < op->n; i++)
        forward_row(&one, &drop, i);
}

size_t cpu_norm_scratch(int64_t n, int64_t c)
{
    return (size_t)(cpu_row_blocks(n) * 2 * c) * sizeof(float);
}

static void backward_row(const struct gpt_norm *op,
                         const struct gpt_norm_grad *grad,
                         const struct cpu_drop *drop, int64_t i, float *dw,
                         float *db)
{
    int64_t c = op->c;
    bool centred = op->kind == GPT_LAYERNORM;
    float *dr = (float *)grad->dresid + i * c;

    cpu_isa->norm_grad_row(dr, (const float *)grad->dy + i * c,
                           (const float *)op->resid_out + i * c, op->w, dw, db,
                           c, centred ? op->mean[i] : 0, op->rstd[i], centred);
    /* dx is the gradient of what dropout took: the same mask and scale, from
     * the same counters. */
    if (!grad->dx)
        return;
    float *dx = (float *)grad->dx + i * c;
    if (op->dropout.p > 0)
        cpu_isa->drop(dx, dr, c, drop, cpu_drop_index(&op->dropout, i, c));
    else if (dx != dr)
        memcpy(dx, dr, (size_t)c * sizeof(*dx));
}

void cpu_norm_bwd(struct gpt_queue *q, const struct gpt_norm *op,
                  const struct gpt_norm_grad *grad)
{
    if (!cpu_ready(q, "norm_bwd", op->act))
        return;
    /* Gradients of w and b are sums over all rows. Each of up to 64 blocks of
     * rows sums its own, then blocks are added in order: the parentheses of the
     * sum depend on n alone, not on the threads. */
    int64_t c = op->c, blocks = cpu_row_blocks(op->n);
    float *part = grad->scratch;
    struct cpu_drop drop = drop_of(op);
    struct gpt_norm one = *op;
    one.w = scale_of(q, op->w, c, op->plus_one);
    if (!one.w)
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(op->n * c))
    for (int64_t k = 0; k < blocks; k++) {
        float *dw = part + k * 2 * c, *db = grad->db ? dw + c : NULL;

        /* Scratch is not zero: it is kept between operations. */
        memset(dw, 0, (size_t)(2 * c) * sizeof(*dw));
        int64_t end = cpu_cut(op->n, blocks, k + 1);
        for (int64_t i = cpu_cut(op->n, blocks, k); i < end; i++)
            backward_row(&one, grad, &drop, i, dw, db);
    }
    /* The second pass is cut by columns, for the same reason. */
    enum { COLUMNS = 64 };
#pragma omp parallel for schedule(static) if (cpu_worth_threads(blocks * c))
    for (int64_t j = 0; j < c; j += COLUMNS)
        for (int64_t k = 0; k < blocks; k++) {
            int64_t n = c - j < COLUMNS ? c - j : COLUMNS;
            const float *dw = part + k * 2 * c + j;

            cpu_isa->add(grad->dw + j, grad->dw + j, dw, n);
            if (grad->db)
                cpu_isa->add(grad->db + j, grad->db + j, dw + c, n);
        }
}
