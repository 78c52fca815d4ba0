/* Causal self-attention, forward. One query row at a time: scores, softmax,
 * weighted values. */
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

/* Masks and scales n probabilities of query tq, keys from tk. */
static void drop_probs(const struct gpt_attn *op, int64_t b, int64_t h,
                       int64_t tq, int64_t tk, float *p, int64_t n)
{
    const struct gpt_dropout *d = &op->dropout;
    int64_t head = (d->sample0 + b) * op->h_global + op->head0 + h;
    cpu_drop_row(p, p, n, d->rng, (uint64_t)((head * op->t + tq) * op->t + tk),
                 d->p);
}

static void row(const struct gpt_attn *op, int64_t b, int64_t h, int64_t tq,
                float *s)
{
    int64_t per = op->h / op->g, d = op->d;
    int64_t ld = op->g * (per + 2) * d;
    const float *group =
        (const float *)op->qkv + b * op->t * ld + h / per * (per + 2) * d;
    const float *query = group + tq * ld + h % per * d;
    const float *keys = group + per * d, *values = keys + d;
    int64_t from = op->doc_start ? op->doc_start[b * op->t + tq] : 0;
    float max = -INFINITY, sum = 0;
    for (int64_t tk = from; tk <= tq; tk++) {
        float dot = 0;
        for (int64_t j = 0; j < d; j++)
            dot += query[j] * keys[tk * ld + j];
        s[tk] = dot * op->scale;
        max = s[tk] > max ? s[tk] : max;
    }
    for (int64_t tk = from; tk <= tq; tk++) {
        s[tk] = expf(s[tk] - max);
        sum += s[tk];
    }
    op->lse[(b * op->h + h) * op->t + tq] = max + logf(sum);
    if (op->dropout.p > 0)
        drop_probs(op, b, h, tq, from, s + from, tq + 1 - from);
    float *out = (float *)op->out + ((b * op->t + tq) * op->h + h) * d;
    memset(out, 0, (size_t)d * sizeof *out);
    for (int64_t tk = from; tk <= tq; tk++)
        for (int64_t j = 0; j < d; j++)
            out[j] += s[tk] / sum * values[tk * ld + j];
}

void cpu_attn_fwd(struct gpt_queue *q, const struct gpt_attn *op)
{
    if (!cpu_ready(q, "attn_fwd", op->act))
        return;
    int64_t rows = op->b * op->h;
    float *work = cpu_work(q, (size_t)(rows * op->t));
    if (!work)
        return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t tq = 0; tq < op->t; tq++)
            row(op, i / op->h, i % op->h, tq, work + i * op->t);
}
