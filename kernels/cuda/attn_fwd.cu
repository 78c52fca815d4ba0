/* Causal self-attention, forward: on tensor cores where flash_fwd_sm90a.cu or
 * flash_fwd.cu has the GPU, type and head size, else plainly, a warp a query. Keys come 32 at a
 * time, one a lane; a running maximum and sum make the softmax exact. */
#include "cuda/attn.cuh"

enum { WARPS = 4, MOST = ATTN_MAX_D / 32 };

/* The warp's lanes own keys while scores are made and elements of the head while
 * values are summed; probabilities change hands in shared memory. */
template <class T> static __global__ void attend(struct attn_shape s, const T *qkv, T *out)
{
    __shared__ float query[WARPS][ATTN_MAX_D], prob[WARPS][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int64_t t = (int64_t)blockIdx.x * WARPS + warp, h = blockIdx.y, b = blockIdx.z;

    if (t >= s.t)
        return; /* the whole warp */
    const T *q = qkv + attn_query_at(s, b, h) + t * s.ld;
    const T *k = qkv + attn_key_at(s, b, h / (s.h / s.g)), *v = k + s.d;
    for (int i = lane; i < s.d; i += 32)
        /* Scaled once here instead of with every score. */
        query[warp][i] = to_float(q[i]) * s.scale;
    __syncwarp();
    float sum[MOST] = {}, max = -INFINITY, total = 0, slope = attn_slope(s, h);
    for (int64_t j0 = attn_first(s, b, t); j0 <= t; j0 += 32) {
        int64_t j = j0 + lane;
        float score = -INFINITY, unused;

        if (j <= t) {
            /* capped before ALiBi is added, which is no part of the score */
            score = 0;
            for (int i = 0; i < s.d; i++)
                score += query[warp][i] * to_float(k[j * s.ld + i]);
            score = attn_cap(score, s.softcap, &unused) + attn_bias(s, slope, b, t, j);
        }
        /* Less the maximum so far, no exponential overflows. The first key of a
         * round is always seen, so that the maximum is finite. */
        float top = fmaxf(max, warp_max(score));
        float p = j <= t ? expf(score - top) : 0, shrink = expf(max - top);
        /* The sum is that of probabilities before dropout, which are then kept
         * or not. */
        total = total * shrink + warp_sum(p);
        max = top;
        prob[warp][lane] = p == 0 ? 0 : p * attn_keep(s, attn_drop_at(s, b, h, t) + j);
        __syncwarp();
        int64_t n = t - j0 < 31 ? t - j0 + 1 : 32;
#pragma unroll
        for (int c = 0; c < MOST; c++) {
            int i = lane + 32 * c;

            sum[c] *= shrink;
            for (int64_t l = 0; i < s.d && l < n; l++)
                sum[c] += prob[warp][l] * to_float(v[(j0 + l) * s.ld + i]);
        }
        __syncwarp();
    }
    T *to = out + ((b * s.t + t) * s.h + h) * s.d;
#pragma unroll
    for (int c = 0; c < MOST; c++)
        if (lane + 32 * c < s.d)
            to[lane + 32 * c] = from_float<T>(sum[c] / total);
    if (lane == 0)
        s.lse[(b * s.h + h) * s.t + t] = max + logf(total);
}

const char *cuda_attn_slow(const struct gpt_attn *op)
{
    return gpu_attn_slow(op, cuda_uses_tf32());
}

void cuda_attn_fwd(struct gpt_queue *q, const struct gpt_attn *op)
{
    if (!cuda_ready(q, "attn_fwd", op->act) || !op->b || !op->t ||
        !attn_fits(q, op->b, op->h, op->d))
        return;
    /* Best first; each says whether it has the GPU, type, size and options. */
    if (cuda_hopper_fwd(q, op) || cuda_flash_fwd(q, op))
        return;
    with_type(op->act, [&](auto type) {
        using T = decltype(type);
        launch(q, attend<T>, dim3(cuda_blocks(op->t, WARPS), op->h, op->b), WARPS * 32, 0,
               attn_shape_of(op), (const T *)op->qkv, (T *)op->out);
    });
}
