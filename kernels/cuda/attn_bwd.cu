/* Causal self-attention, backward, plainly, where neither flash_bwd_sm90a.cu nor
 * flash_bwd.cu has the GPU, type and head size. Probabilities are computed again
 * from the log-sum-exp. With P = softmax(scale Q K^T) under its dropout mask M,
 * delta = rowsum(dO * O) and dS = scale P * (M * (dO V^T) - delta):
 *   dV = (P * M)^T dO,   dQ = dS K,   dK = dS^T Q        (Dao et al. 2022)
 *
 * Three kernels: delta; dQ, a warp a query; dK and dV, a warp a key, which goes
 * over the queries of its group's heads in order. Nothing is added twice to
 * one place, so no sum depends on the order in which blocks run. */
#include "cuda/attn.cuh"

enum { WARPS = 4, MOST = ATTN_MAX_D / 32 };

template <class T> struct gradients {
    const T *qkv, *out, *dout;
    T *dqkv;
    float *delta; /* (B, H, T) */
};

template <class T> static __global__ void row_deltas(struct attn_shape s, gradients<T> p)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t t = (int64_t)blockIdx.x * WARPS + warp, h = blockIdx.y, b = blockIdx.z;

    if (t >= s.t)
        return;
    int64_t at = ((b * s.t + t) * s.h + h) * s.d;
    float sum = 0;
    for (int i = lane; i < s.d; i += 32)
        sum += to_float(p.out[at + i]) * to_float(p.dout[at + i]);
    sum = warp_sum(sum);
    if (lane == 0)
        p.delta[(b * s.h + h) * s.t + t] = sum;
}

/* Computes P M and dS of (query t of head h, key j), where q . k and dout . v are known. */
struct pair {
    float p, ds;
};
static __device__ struct pair pair_of(const struct attn_shape &s, int64_t b, int64_t h,
                                      int64_t t, int64_t j, float score, float dp, float delta)
{
    float rise; /* of the cap: the factor by which it slows a score's change */

    score = attn_cap(score * s.scale, s.softcap, &rise) +
            attn_bias(s, attn_slope(s, h), b, t, j);
    float p = expf(score - s.lse[(b * s.h + h) * s.t + t]);
    /* The same counter as in the forward pass: the mask is computed again. */
    float keep = attn_keep(s, attn_drop_at(s, b, h, t) + j);
    struct pair r = {p * keep, rise * s.scale * p * (keep * dp - delta)};
    return r;
}

template <class T> static __global__ void query_grads(struct attn_shape s, gradients<T> p)
{
    __shared__ float query[WARPS][ATTN_MAX_D], dout[WARPS][ATTN_MAX_D], ds[WARPS][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t t = (int64_t)blockIdx.x * WARPS + warp, h = blockIdx.y, b = blockIdx.z;

    if (t >= s.t)
        return;
    int64_t q_at = attn_query_at(s, b, h) + t * s.ld, o_at = ((b * s.t + t) * s.h + h) * s.d;
    const T *k = p.qkv + attn_key_at(s, b, h / (s.h / s.g)), *v = k + s.d;
    for (int i = lane; i < s.d; i += 32) {
        query[warp][i] = to_float(p.qkv[q_at + i]);
        dout[warp][i] = to_float(p.dout[o_at + i]);
    }
    __syncwarp();
    /* MOST sums a lane: elements lane, lane + 32, ... of the head. The loops
     * over them unroll, so that they are registers. */
    float delta = p.delta[(b * s.h + h) * s.t + t], dq[MOST] = {};
    for (int64_t j0 = attn_first(s, b, t); j0 <= t; j0 += 32) {
        int64_t j = j0 + lane, n = t - j0 < 31 ? t - j0 + 1 : 32;

        if (j <= t) {
            float score = 0, dp = 0;

            for (int i = 0; i < s.d; i++) {
                score += query[warp][i] * to_float(k[j * s.ld + i]);
                dp += dout[warp][i] * to_float(v[j * s.ld + i]);
            }
            ds[warp][lane] = pair_of(s, b, h, t, j, score, dp, delta).ds;
        }
        __syncwarp();
#pragma unroll
        for (int c = 0; c < MOST; c++)
            for (int64_t l = 0; lane + 32 * c < s.d && l < n; l++)
                dq[c] += ds[warp][l] * to_float(k[(j0 + l) * s.ld + lane + 32 * c]);
        __syncwarp();
    }
#pragma unroll
    for (int c = 0; c < MOST; c++)
        if (lane + 32 * c < s.d)
            p.dqkv[q_at + lane + 32 * c] = from_float<T>(dq[c]);
}

/* Adds to dk, dv what head h of the key's group brings. */
template <class T>
static __device__ void head_grads(const struct attn_shape &s, const gradients<T> &p, int64_t b,
                                  int64_t h, int64_t j, const float *key, const float *value,
                                  struct pair *pairs, float (&dk)[MOST], float (&dv)[MOST])
{
    int lane = threadIdx.x % 32;
    const T *q = p.qkv + attn_query_at(s, b, h), *dout = p.dout + (b * s.t * s.h + h) * s.d;

    /* Queries past the window do not see the key. */
    int64_t end = s.window > 0 ? min(s.t, j + s.window + 1) : s.t;
    for (int64_t t0 = j; t0 < end; t0 += 32) {
        int64_t t = t0 + lane, n = s.t - t0 < 32 ? s.t - t0 : 32;
        struct pair mine = {0, 0};

        /* A query that does not see the key brings zeros; its lane takes part in
         * the exchange all the same. */
        if (t < s.t && attn_first(s, b, t) <= j) {
            float score = 0, dp = 0;

            for (int i = 0; i < s.d; i++) {
                score += key[i] * to_float(q[t * s.ld + i]);
                dp += value[i] * to_float(dout[t * s.h * s.d + i]);
            }
            mine = pair_of(s, b, h, t, j, score, dp, p.delta[(b * s.h + h) * s.t + t]);
        }
        pairs[lane] = mine;
        __syncwarp();
#pragma unroll
        for (int c = 0; c < MOST; c++)
            for (int64_t l = 0; lane + 32 * c < s.d && l < n; l++) {
                dk[c] += pairs[l].ds * to_float(q[(t0 + l) * s.ld + lane + 32 * c]);
                dv[c] += pairs[l].p * to_float(dout[(t0 + l) * s.h * s.d + lane + 32 * c]);
            }
        __syncwarp();
    }
}

template <class T> static __global__ void key_grads(struct attn_shape s, gradients<T> p)
{
    __shared__ float key[WARPS][ATTN_MAX_D], value[WARPS][ATTN_MAX_D];
    __shared__ struct pair pairs[WARPS][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t j = (int64_t)blockIdx.x * WARPS + warp, g = blockIdx.y, b = blockIdx.z;

    if (j >= s.t)
        return;
    int64_t at = attn_key_at(s, b, g) + j * s.ld, per = s.h / s.g;
    for (int i = lane; i < s.d; i += 32) {
        key[warp][i] = to_float(p.qkv[at + i]);
        value[warp][i] = to_float(p.qkv[at + s.d + i]);
    }
    __syncwarp();
    float dk[MOST] = {}, dv[MOST] = {};
    /* The group's heads in order, into the same sums: no head needs a place of its
     * own for dK and dV. */
    for (int64_t h = g * per; h < (g + 1) * per; h++)
        head_grads(s, p, b, h, j, key[warp], value[warp], pairs[warp], dk, dv);
#pragma unroll
    for (int c = 0; c < MOST; c++)
        if (lane + 32 * c < s.d) {
            p.dqkv[at + lane + 32 * c] = from_float<T>(dk[c]);
            p.dqkv[at + s.d + lane + 32 * c] = from_float<T>(dv[c]);
        }
}

size_t cuda_attn_scratch(const struct gpt_attn *op)
{
    return gpu_attn_scratch(op, cuda_hopper_here());
}

void cuda_attn_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                   const struct gpt_attn_grad *grad)
{
    if (!cuda_ready(q, "attn_bwd", op->act) || !op->b || !op->t ||
        !attn_fits(q, op->b, op->h, op->d))
        return;
    if (cuda_hopper_bwd(q, op, grad) || cuda_flash_bwd(q, op, grad))
        return;
    with_type(op->act, [&](auto type) {
        using T = decltype(type);
        struct attn_shape s = attn_shape_of(op);
        gradients<T> p = {(const T *)op->qkv, (const T *)op->out, (const T *)grad->dout,
                          (T *)grad->dqkv, (float *)grad->scratch};
        dim3 by_head(cuda_blocks(op->t, WARPS), op->h, op->b);
        dim3 by_group(by_head.x, op->g, op->b);
        launch(q, row_deltas<T>, by_head, WARPS * 32, 0, s, p);
        launch(q, query_grads<T>, by_head, WARPS * 32, 0, s, p);
        launch(q, key_grads<T>, by_group, WARPS * 32, 0, s, p);
    });
}
