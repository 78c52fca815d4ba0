/* Attention of new tokens against the key-value cache, for generation. */
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

struct shape {
    int64_t per, ld; /* query heads a group; floats between rows of qkv */
};

static void store(const struct gpt_attn_cached *op, struct shape s, int64_t b,
                  int64_t g)
{
    int64_t d = op->d;
    const float *key = (const float *)op->qkv + b * op->t_new * s.ld +
                       (g + 1) * (s.per + 2) * d;
    key -= 2 * d;
    int64_t at = ((op->slot[b] * op->g + g) * op->t_max + op->pos[b]) * d;
    for (int64_t i = 0; i < op->len[b]; i++, key += s.ld, at += d) {
        memcpy((float *)op->k_cache + at, key, (size_t)d * sizeof *key);
        memcpy((float *)op->v_cache + at, key + d, (size_t)d * sizeof *key);
    }
}

static void row(const struct gpt_attn_cached *op, struct shape s, int64_t b,
                int64_t h, int64_t i, float *score)
{
    int64_t d = op->d, g = h / s.per, n = op->pos[b] + i + 1;
    const float *query = (const float *)op->qkv + (b * op->t_new + i) * s.ld +
                         g * (s.per + 2) * d + h % s.per * d;
    int64_t at = (op->slot[b] * op->g + g) * op->t_max * d;
    const float *keys = (const float *)op->k_cache + at;
    const float *values = (const float *)op->v_cache + at;
    float max = -INFINITY, sum = 0;
    for (int64_t tk = 0; tk < n; tk++) {
        float dot = 0;
        for (int64_t j = 0; j < d; j++)
            dot += query[j] * keys[tk * d + j];
        score[tk] = dot * op->scale;
        max = score[tk] > max ? score[tk] : max;
    }
    for (int64_t tk = 0; tk < n; tk++) {
        score[tk] = expf(score[tk] - max);
        sum += score[tk];
    }
    float *out = (float *)op->out + ((b * op->t_new + i) * op->h + h) * d;
    memset(out, 0, (size_t)d * sizeof *out);
    for (int64_t tk = 0; tk < n; tk++)
        for (int64_t j = 0; j < d; j++)
            out[j] += score[tk] / sum * values[tk * d + j];
}

void cpu_attn_cached(struct gpt_queue *q, const struct gpt_attn_cached *op)
{
    if (!cpu_ready(q, "attn_cached", op->act))
        return;
    struct shape s = {.per = op->h / op->g};
    s.ld = op->g * (s.per + 2) * op->d;
    for (int64_t b = 0; b < op->b; b++)
        if (op->pos[b] < 0 || op->len[b] < 0 || op->len[b] > op->t_new ||
            op->pos[b] + op->len[b] > op->t_max) {
            cpu_fail(q,
                     "attn_cached: row %lld: position %d + %d tokens is "
                     "past the cache's %lld",
                     (long long)b, op->pos[b], op->len[b],
                     (long long)op->t_max);
            return;
        }
    float *work = cpu_work(q, (size_t)(op->b * op->g * op->t_max));
    if (!work)
        return;
#pragma omp parallel for schedule(dynamic)
    for (int64_t k = 0; k < op->b * op->g; k++) {
        int64_t b = k / op->g, g = k % op->g;
        store(op, s, b, g);
        for (int64_t h = g * s.per; h < (g + 1) * s.per; h++)
            for (int64_t i = 0; i < op->len[b]; i++)
                row(op, s, b, h, i, work + k * op->t_max);
    }
}
