/* Rotary positions: a thread turns a few neighbouring pairs of elements of all
 * heads of a row. */
#include "cuda/device.cuh"
#include "rope_scaling.h"

enum { THREADS = 128 };

struct rope {
    int64_t n, t, heads, groups, d; /* heads: of a group, its key and value too */
    int half;
    double log2_rate; /* of angles from one pair to the next */
    bool inverse, interleaved;
    float size; /* of sines and cosines: not 1 with YaRN and LongRoPE */
    struct gpt_rope_scaling scaling;
    const int32_t *positions;
    float growth; /* of queries with their positions */
    int64_t growth_positions;
};

/* Computes sine and cosine of a pair's angle, times size. */
static __device__ void turn_of(const struct rope &p, float position, int i, float *sine,
                               float *cosine)
{
    /* The rate in double, rounded once; the angle in float, as PyTorch's models
     * have it. sinf and cosf, not the fast ones: angles reach thousands. */
    float angle = position * (float)gpt_rope_scaled(&p.scaling, exp2(i * p.log2_rate), i);

    *cosine = cosf(angle) * p.size;
    *sine = (p.inverse ? -sinf(angle) : sinf(angle)) * p.size;
}

/* Turns W pairs of a head. Pairs of neighbours are 2 W elements in a row; the two
 * halves of a head are two streams of W. One pair of neighbours is two streams as
 * well: in a head of an odd size it begins anywhere. */
template <int W, class T>
static __device__ void turn(const struct rope &p, T *at, const float (&sine)[W],
                            const float (&cosine)[W])
{
    const bool in_a_row = p.interleaved && W > 1;
    const int apart = p.interleaved ? 1 : p.half;
    float a[W], b[W], both[2 * W];

    if (in_a_row) {
        load(both, at);
#pragma unroll
        for (int i = 0; i < W; i++)
            a[i] = both[2 * i], b[i] = both[2 * i + 1];
    } else {
        load(a, at);
        load(b, at + apart);
    }
#pragma unroll
    for (int i = 0; i < W; i++) {
        float x = a[i];

        a[i] = x * cosine[i] - b[i] * sine[i];
        b[i] = b[i] * cosine[i] + x * sine[i];
        both[2 * i] = a[i], both[2 * i + 1] = b[i];
    }
    if (in_a_row) {
        store(at, both);
    } else {
        store(at, a);
        store(at + apart, b);
    }
}

template <class T, int W> static __global__ void rope_all(struct rope p, T *qkv)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int each = p.half / W; /* threads of a row */
    int64_t n = at / each;
    int i = (int)(at % each) * W;

    if (n >= p.n)
        return;
    /* Angles cost more than the turns of a head: they are computed once a row. */
    int64_t place = p.positions ? p.positions[n] : n % p.t;
    float position = (float)place, sine[W], cosine[W], query_sine[W], query_cosine[W];
    float grown = p.growth > 0 ? 1 + p.growth * logf(1 + (float)(place / p.growth_positions)) : 1;
#pragma unroll
    for (int k = 0; k < W; k++) {
        turn_of(p, position, i + k, &sine[k], &cosine[k]);
        query_sine[k] = sine[k] * grown, query_cosine[k] = cosine[k] * grown;
    }
    /* They serve all heads of the row. */
    T *row = qkv + n * p.groups * p.heads * p.d + (p.interleaved ? 2 * i : i);
    for (int64_t g = 0; g < p.groups; g++, row += p.d) { /* past the group's value */
        for (int64_t k = 0; k < p.heads - 2; k++, row += p.d)
            turn(p, row, query_sine, query_cosine);
        turn(p, row, sine, cosine);
        row += p.d;
    }
}

void cuda_rope(struct gpt_queue *q, const struct gpt_rope *op)
{
    enum { WIDE = 4 };

    if (!cuda_ready(q, "rope", op->act) || !op->n || !op->rotary)
        return;
    struct rope p = {op->n, op->t, op->h / op->g + 2, op->g, op->d, (int)(op->rotary / 2),
                     -2 * log2(op->base) / (double)op->rotary, op->inverse, op->interleaved,
                     op->scaling.factor > 0 ? (float)op->scaling.attention : 1.0f, op->scaling,
                     op->positions, op->query_growth, op->query_positions};
    /* A piece of a half, or of neighbours, begins at a multiple of its size. */
    bool wide = p.half % WIDE == 0 && op->d % (2 * WIDE) == 0 && (uintptr_t)op->qkv % 16 == 0;
    with_type(op->act, [&](auto type) {
        using T = decltype(type);
        auto put = [&](auto width) {
            const int W = decltype(width)::value;

            launch(q, rope_all<T, W>, cuda_blocks(op->n * (p.half / W), THREADS), THREADS, 0, p,
                   (T *)op->qkv);
        };
        if (wide)
            put(std::integral_constant<int, WIDE>());
        else
            put(std::integral_constant<int, 1>());
    });
}
