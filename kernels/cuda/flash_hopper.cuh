/* What the forward and backward kernels for Hopper share: the order of work,
 * tensor maps, and scores by wgmma. Fragments are as in flash.cuh. */
#ifndef GPT_KERNELS_CUDA_FLASH_HOPPER_CUH
#define GPT_KERNELS_CUDA_FLASH_HOPPER_CUH

#include "cuda/flash.cuh"
#include "cuda/hopper.cuh"

/* True when q's GPU runs these kernels for the type and head size of op. Heads are padded to 64 or
 * 128 elements, in shared memory only: copies put zeros there. */
static inline bool hopper_size(const struct gpt_queue *q, const struct gpt_attn *op)
{
    return q->hopper && op->act != GPT_F32 && op->d <= 128 &&
           cuda_wide(op->act, op->d, op->qkv, op->out);
}

/* Calls f(T(), D), both as types, D being the padded head size. */
template <class F> void hopper_with_size(const struct gpt_attn *op, F f)
{
    auto sized = [&](auto type) {
        if (op->d <= 64)
            f(type, std::integral_constant<int, 64>());
        else
            f(type, std::integral_constant<int, 128>());
    };

    if (op->act == GPT_BF16)
        sized(__nv_bfloat16());
    else
        sized(__half());
}

/* x (B, T, `heads` of D elements) in boxes of 64 positions of 64 elements. */
static inline bool hopper_map(struct gpt_queue *q, CUtensorMap *map, const struct gpt_attn *op,
                              const void *x, int64_t heads)
{
    int64_t row = heads * op->d * 2;
    struct tensor t = {x, op->act, {op->d, heads, op->t, op->b},
                       {op->d * 2, row, op->t * row}, {TILE_COLUMNS, 1, 64, 1}};

    return cuda_tensor_map(q, map, t);
}

/* ---- the order of work ---- */

/* Pieces of work: `blocks` of rows of each of `heads`, over all samples. As
 * many heads at a time as the L2 cache holds; of these, the blocks with most to
 * do first. Blocks of threads take turns back and forth, so that each gets as
 * much as the others. */
struct hopper_plan {
    int blocks, heads, at_once;
};

/* bytes: what a head's blocks read in common. */
static inline struct hopper_plan hopper_plan_of(const struct gpt_queue *q, int64_t blocks,
                                                int64_t heads, int64_t bytes)
{
    int64_t fit = q->l2_bytes / 2 / (bytes ? bytes : 1);
    struct hopper_plan p = {(int)blocks, (int)heads, (int)min(max(fit, (int64_t)1), heads)};

    return p;
}

struct hopper_work {
    int head, rank; /* rank 0: the block with most to do */
};

static __host__ __device__ inline int64_t hopper_works(const struct hopper_plan &p)
{
    return (int64_t)p.blocks * p.heads;
}

/* This block's work of a round; false: none. */
__device__ inline bool hopper_next_work(struct hopper_work &w, const struct hopper_plan &p,
                                        int round)
{
    unsigned turn = round % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    unsigned at = (unsigned)round * gridDim.x + turn;
    unsigned each = (unsigned)(p.blocks * p.at_once), section = at / each * p.at_once;
    unsigned heads = min((unsigned)p.at_once, (unsigned)p.heads - section);

    if (at >= hopper_works(p))
        return false;
    w.rank = (int)(at % each / heads);
    w.head = (int)(section + at % each % heads);
    return true;
}

static inline unsigned hopper_blocks(const struct gpt_queue *q, const struct hopper_plan &p)
{
    return (unsigned)min((int64_t)q->processors, hopper_works(p));
}

__device__ inline int hopper_rounds(const struct hopper_plan &p)
{
    return (int)((hopper_works(p) + gridDim.x - 1) / gridDim.x);
}

/* Work that is a tile of queries of a head; the keys that they see are counted
 * in tiles. */
struct hopper_queries {
    int t0, h, b, begin, end; /* first query; tiles of keys */
};

template <int ROWS, int KEYS>
__device__ inline struct hopper_queries hopper_queries_of(const struct attn_shape &s,
                                                          const struct hopper_plan &plan,
                                                          const struct hopper_work &w)
{
    struct hopper_queries p;

    p.t0 = (plan.blocks - 1 - w.rank) * ROWS;
    p.h = w.head % (int)s.h;
    p.b = w.head / (int)s.h;
    p.begin = flash_first<ROWS>(s, p.b, p.t0) / KEYS;
    p.end = ((int)min(p.t0 + (int64_t)ROWS, s.t) - 1) / KEYS + 1;
    return p;
}

/* ---- scores ---- */

/* s (64, 8 N) = rows 0.. of a times the transpose of rows 0.. of b, begun. */
template <int N, class T, int ROWS_A, int ROWS_B, int D>
__device__ inline void hopper_scores(float (&s)[N][4], const tile<T, ROWS_A, D> &a, int row,
                                     const tile<T, ROWS_B, D> &b)
{
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        wgmma<T>(s, wgmma_rows(a, row, i), wgmma_rows(b, 0, i), i > 0);
    wgmma_commit();
}

/* sum (64, D) += p (64, ROWS) times b (ROWS, D), begun. */
template <class T, int ROWS, int D>
__device__ inline void hopper_add(float (&sum)[D / 8][4], const uint32_t (&p)[ROWS / 16][4],
                                  const tile<T, ROWS, D> &b)
{
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < ROWS / 16; i++)
        wgmma<T>(sum, p[i], wgmma_columns(b, i), true);
    wgmma_commit();
}

/* Rounded, as `a` of a product. */
template <class T, int N>
__device__ inline void hopper_round(uint32_t (&a)[N / 2][4], const float (&s)[N][4])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        flash_d_to_a<T>(a[i], s[2 * i], s[2 * i + 1]);
}

#endif
