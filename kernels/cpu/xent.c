/* Softmax cross-entropy and its gradient, in place, one row at a time. */
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

static void row(const struct gpt_xent *op, int64_t i)
{
    int64_t ld = op->ld ? op->ld : op->v;
    float *x = (float *)op->logits + i * ld;
    float max = cpu_isa->max(x, op->v_real), target = x[op->target[i]];
    float sum = op->grad ? cpu_isa->exp_sum(x, op->v_real, 1, max)
                         : cpu_isa->sum_exp(x, op->v_real, max);
    op->loss[i] = logf(sum) + max - target;
    if (!op->grad)
        return;
    float weight = op->weight[i];
    if (weight == 0) {
        memset(x, 0, (size_t)op->v * sizeof *x);
        return;
    }
    cpu_isa->scale(x, op->v_real, weight / sum);
    x[op->target[i]] -= weight;
    memset(x + op->v_real, 0, (size_t)(op->v - op->v_real) * sizeof *x);
}

void cpu_xent(struct gpt_queue *q, const struct gpt_xent *op)
{
    if (!cpu_ready(q, "xent", op->act))
        return;
    for (int64_t i = 0; i < op->n; i++)
        if (op->target[i] < 0 || op->target[i] >= op->v_real) {
            cpu_fail(q, "xent: row %lld: target %d is not in 0..%lld",
                     (long long)i, op->target[i], (long long)op->v_real - 1);
            return;
        }
#pragma omp parallel for schedule(static) if (cpu_worth_threads(op->n * op->v))
    for (int64_t i = 0; i < op->n; i++)
        row(op, i);
}
