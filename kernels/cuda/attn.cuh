/* Where a head lies in qkv (B, T, G, H/G + 2, D), for the attention kernels. */
#ifndef GPT_KERNELS_CUDA_ATTN_CUH
#define GPT_KERNELS_CUDA_ATTN_CUH

#include "cuda/device.cuh"

enum { ATTN_MAX_D = 256 };

struct attn_shape {
    int64_t t, h, g, d, ld; /* ld: elements between positions of qkv */
    int64_t head0, h_global;
    float scale;
    bool alibi;
    const int32_t *doc_start; /* or NULL */
    int window;               /* keys before its own that a query sees; 0: all */
    float *lse;
    struct cuda_drop drop;
};

static inline struct attn_shape attn_shape_of(const struct gpt_attn *op)
{
    struct attn_shape s = {op->t, op->h, op->g, op->d, op->g * (op->h / op->g + 2) * op->d,
                           op->head0, op->h_global, op->scale, op->alibi, op->doc_start,
                           (int)(op->window < op->t ? op->window : 0),
                           op->lse,
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

/* First key that query t of sample b sees: of its document, or of its window. */
__device__ inline int64_t attn_first(const struct attn_shape &s, int64_t b, int64_t t)
{
    int first = s.doc_start ? s.doc_start[b * s.t + t] : 0;

    return s.window ? max(first, (int)t - s.window) : first;
}

/* True when every query sees all keys before its own. */
__device__ inline bool attn_whole(const struct attn_shape &s)
{
    return !s.doc_start && !s.window;
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

/* On tensor cores; false when they do not do this type or head size. */
bool cuda_flash_fwd(struct gpt_queue *q, const struct gpt_attn *op);
bool cuda_flash_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                    const struct gpt_attn_grad *grad);
size_t cuda_flash_scratch(const struct gpt_attn *op);

/* The same by Hopper's own instructions; false elsewhere, too. */
#ifdef GPT_CUDA_HOPPER
bool cuda_hopper_fwd(struct gpt_queue *q, const struct gpt_attn *op);
bool cuda_hopper_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                     const struct gpt_attn_grad *grad);
#else
static inline bool cuda_hopper_fwd(struct gpt_queue *, const struct gpt_attn *) { return false; }
static inline bool cuda_hopper_bwd(struct gpt_queue *, const struct gpt_attn *,
                                   const struct gpt_attn_grad *)
{
    return false;
}
#endif

#endif
