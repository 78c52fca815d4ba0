/* Causal self-attention, backward. Probabilities are computed again from the
 * log-sum-exp that the forward pass kept. */
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

static void row(const struct gpt_attn *op, const struct gpt_attn_grad *grad,
                int64_t b, int64_t h, int64_t tq, float *keep)
{
    int64_t per = op->h / op->g, d = op->d, t = op->t;
    int64_t ld = op->g * (per + 2) * d;
    int64_t at = b * t * ld + h / per * (per + 2) * d;
    const float *group = (const float *)op->qkv + at;
    float *dgroup = (float *)grad->dqkv + at;
    const float *query = group + tq * ld + h % per * d;
    const float *keys = group + per * d, *values = keys + d;
    float *dquery = dgroup + tq * ld + h % per * d;
    float *dkeys = dgroup + per * d, *dvalues = dkeys + d;
    int64_t o = ((b * t + tq) * op->h + h) * d;
    const float *out = (const float *)op->out + o;
    const float *dout = (const float *)grad->dout + o;
    float lse = op->lse[(b * op->h + h) * t + tq];
    int64_t from = op->doc_start ? op->doc_start[b * t + tq] : 0;
    float delta = 0;
    for (int64_t j = 0; j < d; j++)
        delta += out[j] * dout[j];
    for (int64_t tk = from; tk <= tq; tk++)
        keep[tk] = 1;
    const struct gpt_dropout *dr = &op->dropout;
    if (dr->p > 0) {
        int64_t head = (dr->sample0 + b) * op->h_global + op->head0 + h;
        cpu_drop_row(keep + from, keep + from, tq + 1 - from, dr->rng,
                     (uint64_t)((head * t + tq) * t + from), dr->p);
    }
    for (int64_t tk = from; tk <= tq; tk++) {
        const float *key = keys + tk * ld, *value = values + tk * ld;
        float dot = 0, dp = 0;
        for (int64_t j = 0; j < d; j++) {
            dot += query[j] * key[j];
            dp += dout[j] * value[j];
        }
        float p = expf(dot * op->scale - lse);
        float ds = p * (dp * keep[tk] - delta) * op->scale;
        for (int64_t j = 0; j < d; j++) {
            dquery[j] += ds * key[j];
            dkeys[tk * ld + j] += ds * query[j];
            dvalues[tk * ld + j] += p * keep[tk] * dout[j];
        }
    }
}

size_t cpu_attn_scratch(const struct gpt_attn *op)
{
    return (size_t)(op->b * op->g * op->t) * sizeof(float);
}

void cpu_attn_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                  const struct gpt_attn_grad *grad)
{
    if (!cpu_ready(q, "attn_bwd", op->act))
        return;
    int64_t per = op->h / op->g, row_size = op->g * (per + 2) * op->d;
    float *work = grad->scratch;
    memset(grad->dqkv, 0, (size_t)(op->b * op->t * row_size) * sizeof(float));
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < op->b * op->g; i++)
        for (int64_t h = i % op->g * per; h < (i % op->g + 1) * per; h++)
            for (int64_t tq = 0; tq < op->t; tq++)
                row(op, grad, i / op->g, h, tq, work + i * op->t);
}
