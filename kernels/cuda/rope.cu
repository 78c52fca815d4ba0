/* Rotary positions: a thread turns one pair of elements of all heads of a row.
 */
#include "cuda/device.cuh"
#include "rope_scaling.h"

enum { THREADS = 128 };

struct rope {
    int64_t n, t, heads, groups, d; /* heads: of a group, its key and value too */
    int half;
    double log2_rate; /* of angles from one pair to the next */
    bool inverse, interleaved;
    float size; /* of sines and cosines: not 1 with YaRN alone */
    struct gpt_rope_scaling scaling;
    const int32_t *positions;
};

template <class T> static __global__ void rope_all(struct rope p, T *qkv)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, n = at / p.half;
    int i = (int)(at % p.half);

    if (n >= p.n)
        return;
    float position = (float)(p.positions ? p.positions[n] : n % p.t);
    /* The rate in double, rounded once; the angle in float, as PyTorch's models
     * have it. sinf and cosf, not the fast ones: angles reach thousands. */
    float angle = position * (float)gpt_rope_scaled(&p.scaling, exp2(i * p.log2_rate), i);
    float cosine = cosf(angle) * p.size;
    float sine = (p.inverse ? -sinf(angle) : sinf(angle)) * p.size;
    /* Sine and cosine serve all heads of the row. Pairs of neighbours fill lines of
     * memory together; halves are two streams, each of whole lines. */
    int other = p.interleaved ? 1 : p.half; /* of the pair */
    T *row = qkv + n * p.groups * p.heads * p.d + (p.interleaved ? 2 * i : i);
    for (int64_t k = 0; k < p.groups * p.heads; k++, row += p.d) {
        if (k % p.heads == p.heads - 1)
            continue; /* a value */
        float a = to_float(row[0]), b = to_float(row[other]);
        row[0] = from_float<T>(a * cosine - b * sine);
        row[other] = from_float<T>(b * cosine + a * sine);
    }
}

void cuda_rope(struct gpt_queue *q, const struct gpt_rope *op)
{
    if (!cuda_ready(q, "rope", op->act) || !op->n || !op->rotary)
        return;
    struct rope p = {op->n, op->t, op->h / op->g + 2, op->g, op->d, (int)(op->rotary / 2),
                     -2 * log2(op->base) / (double)op->rotary, op->inverse, op->interleaved,
                     op->scaling.factor > 0 ? (float)op->scaling.attention : 1.0f, op->scaling,
                     op->positions};
    with_type(op->act, [&](auto type) {
        using T = decltype(type);
        launch(q, rope_all<T>, cuda_blocks(op->n * p.half, THREADS), THREADS, 0, p,
               (T *)op->qkv);
    });
}
