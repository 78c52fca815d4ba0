/* Softmax cross-entropy and its gradient, in place, one row at a time. */
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

static void row(const struct gpt_xent *op, int64_t i)
{
    int64_t ld = op->ld ? op->ld : op->v;
    float *x = (float *)op->logits + i * ld;
    float max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < op->v_real; j++)
        max = x[j] > max ? x[j] : max;
    for (int64_t j = 0; j < op->v_real; j++)
        sum += expf(x[j] - max);
    op->loss[i] = logf(sum) + max - x[op->target[i]];
    if (!op->grad)
        return;
    float weight = op->weight[i];
    if (weight == 0) {
        memset(x, 0, (size_t)op->v * sizeof *x);
        return;
    }
    for (int64_t j = 0; j < op->v_real; j++)
        x[j] = expf(x[j] - max) * (weight / sum);
    x[op->target[i]] -= weight;
    memset(x + op->v_real, 0, (size_t)(op->v - op->v_real) * sizeof *x);
}

void cpu_xent(struct gpt_queue *q, const struct gpt_xent *op)
{
    if (!cpu_ready(q, "xent", op->act))
        return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < op->n; i++)
        row(op, i);
}
