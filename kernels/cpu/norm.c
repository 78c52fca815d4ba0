/* LayerNorm and RMSNorm, with the residual add and dropout before them.
 * Gradients of w and b are summed over fixed blocks of rows, then in order. */
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

/* resid_out = resid_in + dropout(x) for one row */
static const float *residual(const struct gpt_norm *op, int64_t i)
{
    int64_t c = op->c;
    const float *in = (const float *)op->resid_in + i * c;
    float *out = (float *)op->resid_out + i * c;
    if (!op->x) {
        if (out != in)
            memcpy(out, in, (size_t)c * sizeof *out);
        return out;
    }
    const float *x = (const float *)op->x + i * c;
    if (op->dropout.p > 0) {
        uint64_t at = cpu_drop_index(&op->dropout, i, c);
        float scale = 1 / (1 - op->dropout.p);
        for (int64_t j = 0; j < c; j++) {
            bool drop = gpt_rng_uniform(op->dropout.rng, at + (uint64_t)j) <
                        op->dropout.p;
            out[j] = in[j] + (drop ? 0 : x[j] * scale);
        }
    } else {
        for (int64_t j = 0; j < c; j++)
            out[j] = in[j] + x[j];
    }
    return out;
}

static void forward_row(const struct gpt_norm *op, int64_t i)
{
    int64_t c = op->c;
    const float *x = residual(op, i);
    float *y = (float *)op->y + i * c;
    const float *w = op->w, *b = op->b;
    double sum = 0, square = 0;
    if (op->kind == GPT_LAYERNORM)
        for (int64_t j = 0; j < c; j++)
            sum += (double)x[j];
    float mean = (float)(sum / (double)c);
    for (int64_t j = 0; j < c; j++)
        square += (double)(x[j] - mean) * (double)(x[j] - mean);
    float rstd = (float)(1 / sqrt(square / (double)c + (double)op->eps));
    for (int64_t j = 0; j < c; j++)
        y[j] = (x[j] - mean) * rstd * w[j] + (b ? b[j] : 0);
    if (op->kind == GPT_LAYERNORM)
        op->mean[i] = mean;
    op->rstd[i] = rstd;
}

void cpu_norm_fwd(struct gpt_queue *q, const struct gpt_norm *op)
{
    if (!cpu_ready(q, "norm_fwd", op->act))
        return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < op->n; i++)
        forward_row(op, i);
}

size_t cpu_norm_scratch(int64_t n, int64_t c)
{
    return (size_t)(cpu_row_blocks(n) * 2 * c) * sizeof(float);
}

static void backward_row(const struct gpt_norm *op,
                         const struct gpt_norm_grad *grad, int64_t i, float *dw,
                         float *db)
{
    int64_t c = op->c;
    const float *x = (const float *)op->resid_out + i * c;
    const float *dy = (const float *)grad->dy + i * c, *w = op->w;
    float *dr = (float *)grad->dresid + i * c;
    float mean = op->kind == GPT_LAYERNORM ? op->mean[i] : 0;
    float rstd = op->rstd[i];
    double sum = 0, dot = 0;
    for (int64_t j = 0; j < c; j++) {
        float xhat = (x[j] - mean) * rstd, g = dy[j] * w[j];
        sum += (double)g;
        dot += (double)(g * xhat);
        dw[j] += dy[j] * xhat;
        db[j] += dy[j];
    }
    float a = op->kind == GPT_LAYERNORM ? (float)(sum / (double)c) : 0;
    float d = (float)(dot / (double)c);
    for (int64_t j = 0; j < c; j++) {
        float xhat = (x[j] - mean) * rstd;
        dr[j] += (dy[j] * w[j] - a - xhat * d) * rstd;
    }
    if (!grad->dx)
        return;
    float *dx = (float *)grad->dx + i * c;
    if (op->dropout.p > 0)
        cpu_drop_row(dx, dr, c, op->dropout.rng,
                     cpu_drop_index(&op->dropout, i, c), op->dropout.p);
    else
        memmove(dx, dr, (size_t)c * sizeof *dx);
}

void cpu_norm_bwd(struct gpt_queue *q, const struct gpt_norm *op,
                  const struct gpt_norm_grad *grad)
{
    if (!cpu_ready(q, "norm_bwd", op->act))
        return;
    int64_t c = op->c, blocks = cpu_row_blocks(op->n);
    float *part = grad->scratch;
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < blocks; k++) {
        float *dw = part + k * 2 * c;
        memset(dw, 0, (size_t)(2 * c) * sizeof *dw);
        int64_t end = cpu_cut(op->n, blocks, k + 1);
        for (int64_t i = cpu_cut(op->n, blocks, k); i < end; i++)
            backward_row(op, grad, i, dw, dw + c);
    }
#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < c; j++)
        for (int64_t k = 0; k < blocks; k++) {
            grad->dw[j] += part[k * 2 * c + j];
            if (grad->db)
                grad->db[j] += part[k * 2 * c + c + j];
        }
}
