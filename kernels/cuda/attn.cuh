/* Where a head lies in qkv (B, T, G, H/G + 2, D), for the attention kernels. */
#ifndef GPT_KERNELS_CUDA_ATTN_CUH
#define GPT_KERNELS_CUDA_ATTN_CUH

#include "cuda/device.cuh"

/* The largest heads, of the kernels without tensor cores, too. */
enum { ATTN_MAX_D = GPU_HEAD_MOST };

/* False, with a failure, where samples or heads are more than a grid has blocks beside its first
 * dimension, or a head is too long. */
static inline bool attn_fits(struct gpt_queue *q, int64_t b, int64_t h, int64_t d)
{
    const int64_t most = 65535;

    if (b > most)
        cuda_fail(q, "%lld samples at once, limit %lld", (long long)b, (long long)most);
    else if (h > most)
        cuda_fail(q, "%lld heads, limit %lld", (long long)h, (long long)most);
    else if (d > ATTN_MAX_D)
        cuda_fail(q, "heads of %lld elements, limit %d", (long long)d, ATTN_MAX_D);
    else
        return true;
    return false;
}

struct attn_shape {
    int64_t t, h, g, d, ld; /* ld: elements between positions of qkv */
    int64_t head0, h_global;
    float scale;
    bool alibi, alibi_bf16; /* there is some; it is GPT_ALIBI_BF16 */
    int64_t window;         /* 0: none */
    float softcap;  /* 0: none */
    const int32_t *doc_start; /* or NULL */
    float *lse;
    struct cuda_drop drop;
};

static inline struct attn_shape attn_shape_of(const struct gpt_attn *op)
{
    struct attn_shape s = {op->t, op->h, op->g, op->d, op->g * (op->h / op->g + 2) * op->d,
                           op->head0, op->h_global, op->scale, op->alibi != GPT_ALIBI_NONE,
                           op->alibi == GPT_ALIBI_BF16, op->window, op->softcap,
                           op->doc_start, op->lse,
                           cuda_drop_of(&op->dropout)};

    return s;
}

/* Offsets of position 0 of sample b: query head h; key of group g; its value
 * follows D elements later. */
__device__ inline int64_t attn_query_at(const struct attn_shape &s, int64_t b, int64_t h)
{
    int64_t per = s.h / s.g;

    return b * s.t * s.ld + (h / per * (per + 2) + h % per) * s.d;
}

__device__ inline int64_t attn_key_at(const struct attn_shape &s, int64_t b, int64_t g)
{
    int64_t per = s.h / s.g;

    return b * s.t * s.ld + (g * (per + 2) + per) * s.d;
}

/* True when queries may not see all keys before them: tiles below the diagonal need
 * a mask then, too. */
__device__ inline bool attn_hides(const struct attn_shape &s)
{
    return s.doc_start || s.window > 0;
}

/* First key that query t of sample b sees: of its document, or of its window. */
__device__ inline int64_t attn_first(const struct attn_shape &s, int64_t b, int64_t t)
{
    int64_t first = s.doc_start ? s.doc_start[b * s.t + t] : 0, near = t - s.window;

    return s.window > 0 && near > first ? near : first;
}

/* A scaled score, capped; *slope: the derivative there. */
__device__ inline float attn_cap(float score, float cap, float *slope)
{
    /* tanhf() and not a faster form: near the cap its error would be that of the
     * score, which is an exponent. */
    *slope = 1;
    if (cap <= 0)
        return score;
    float t = tanhf(score / cap);
    *slope = 1 - t * t;
    return cap * t;
}

/* ALiBi's slope of head h of a group held here (gpt_alibi_slope), 0: none. */
__device__ inline float alibi_slope(int64_t h, int64_t heads)
{
    int m = 1 << (31 - __clz((int)heads));

    return h < m ? exp2f(-8 * (float)(h + 1) / m) : exp2f(-4 * (float)(2 * (h - m) + 1) / m);
}

__device__ inline float attn_slope(const struct attn_shape &s, int64_t h)
{
    return s.alibi ? alibi_slope(s.head0 + h, s.h_global) : 0;
}

/* gpt_alibi_bf16(). */
__device__ inline float alibi_bf16(float slope, int64_t position)
{
    auto round = [](float x) { return to_float(from_float<__nv_bfloat16>(x)); };

    return round(round(slope) * round((float)position));
}

/* What is added to a score of query t and key j that was scaled by `scale`, for the distance
 * between them. Positions count from the beginning of their document. */
__device__ inline float alibi_bias(bool bf16, float slope, float scale, int64_t t, int64_t j)
{
    return bf16 ? scale * (alibi_bf16(slope, j) - alibi_bf16(slope, t)) : slope * (float)(j - t);
}

__device__ inline float attn_bias(const struct attn_shape &s, float slope, int64_t b, int64_t t,
                                  int64_t j)
{
    int64_t begin = s.doc_start ? s.doc_start[b * s.t + t] : 0;

    return alibi_bias(s.alibi_bf16, slope, s.scale, t - begin, j - begin);
}

/* The dropout counter of (query t, key 0) of a head held here. */
__device__ inline uint64_t attn_drop_at(const struct attn_shape &s, int64_t b, int64_t h,
                                        int64_t t)
{
    int64_t head = (drop_sample0(s.drop) + b) * s.h_global + s.head0 + h;

    return (uint64_t)((head * s.t + t) * s.t);
}

/* 0, or 1 / (1 - p): by what dropout multiplies a probability. */
__device__ inline float attn_keep(const struct attn_shape &s, uint64_t index)
{
    float keep[1] = {1};

    if (s.drop.below)
        drop(keep, s.drop, index);
    return keep[0];
}

/* On tensor cores; false when they do not do this. */
bool cuda_flash_fwd(struct gpt_queue *q, const struct gpt_attn *op);
bool cuda_flash_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                    const struct gpt_attn_grad *grad);

/* The same by Hopper's own instructions; false elsewhere, too. */
#ifdef GPT_CUDA_HOPPER
bool cuda_hopper_fwd(struct gpt_queue *q, const struct gpt_attn *op);
bool cuda_hopper_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                     const struct gpt_attn_grad *grad);
/* True when this backward may run on the process's GPU. */
bool cuda_hopper_here();
#else
static inline bool cuda_hopper_fwd(struct gpt_queue *, const struct gpt_attn *) { return false; }
static inline bool cuda_hopper_bwd(struct gpt_queue *, const struct gpt_attn *,
                                   const struct gpt_attn_grad *)
{
    return false;
}
static inline bool cuda_hopper_here() { return false; }
#endif

#endif
