/* What the forward and backward kernels for Hopper share: the order of work,
 * tensor maps, and scores by wgmma. Fragments are as in flash.cuh. */
#ifndef GPT_KERNELS_CUDA_FLASH_HOPPER_CUH
#define GPT_KERNELS_CUDA_FLASH_HOPPER_CUH

#include "cuda/flash.cuh"
#include "cuda/flash_drop.cuh"
#include "cuda/hopper.cuh"

/* True when these kernels do the type, options, head size and addresses of op, on q's
 * GPU. Heads are padded to 64 or 128 elements, in shared memory only: copies put zeros
 * there. */
static inline bool hopper_size(const struct gpt_queue *q, const struct gpt_attn *op)
{
    return q->hopper && gpu_hopper_attends(op) && cuda_wide(op->act, op->d, op->qkv, op->out);
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
 * do first. A block of threads takes the next piece when it is free to copy
 * it: blocks that start late, because a collective has their multiprocessor,
 * take fewer. Which block computes a piece does not change its result. */
struct hopper_plan {
    unsigned blocks, heads, at_once;
    unsigned works, section; /* pieces in all; of at_once heads */
    struct cuda_dealer *dealer;
};

/* bytes: what a head's blocks read in common. */
static inline struct hopper_plan hopper_plan_of(const struct gpt_queue *q, int64_t blocks,
                                                int64_t heads, int64_t bytes)
{
    int64_t fit = q->l2_bytes / 2 / (bytes ? bytes : 1);
    unsigned at_once = (unsigned)min(max(fit, (int64_t)1), heads);
    struct hopper_plan p = {(unsigned)blocks, (unsigned)heads, at_once,
                            (unsigned)(blocks * heads), (unsigned)blocks * at_once, q->dealer};

    return p;
}

struct hopper_work {
    int head, rank; /* rank 0: the block with most to do */
};

static inline unsigned hopper_blocks(const struct gpt_queue *q, const struct hopper_plan &p)
{
    return min((unsigned)q->processors, p.works);
}

/* Piece number `at`; false when there is none. */
__device__ inline bool hopper_work_of(struct hopper_work &w, const struct hopper_plan &p,
                                      unsigned at)
{
    unsigned first = at / p.section * p.at_once, in = at % p.section;
    unsigned heads = min(p.at_once, p.heads - first);

    if (at >= p.works)
        return false;
    w.rank = (int)(in / heads);
    w.head = (int)(first + in % heads);
    return true;
}

/* By which the copying warp announces pieces of work to the warps that compute.
 * It copies at most two pieces ahead: when it writes the place of piece n, all
 * warps have begun, and so have read, piece n - 3. */
enum { DESK = 4 };
struct hopper_desk {
    struct mbarrier announced[DESK];
    unsigned piece[DESK];
};

__device__ inline void hopper_desk_init(struct hopper_desk &d)
{
    for (int i = 0; i < DESK; i++)
        mbarrier_init(d.announced[i], 1);
}

/* A number that no other block gets. After the last, the dealer is as it was
 * before the launch: each block has then asked once in vain. */
__device__ inline unsigned hopper_claim(const struct hopper_plan &p)
{
    unsigned at = atomicAdd(&p.dealer->next, 1u);

    if (at >= p.works && atomicAdd(&p.dealer->ended, 1u) + 1 == gridDim.x) {
        p.dealer->next = 0;
        p.dealer->ended = 0;
    }
    return at;
}

/* The block's piece n, for the copying warp; false when there is none. */
__device__ inline bool hopper_announce(struct hopper_work &w, struct hopper_desk &d,
                                       const struct hopper_plan &p, unsigned n)
{
    unsigned at = 0;

    if (threadIdx.x == 0) {
        at = hopper_claim(p);
        d.piece[n % DESK] = at;
        mbarrier_arrive(d.announced[n % DESK]);
    }
    return hopper_work_of(w, p, warp_uniform(at));
}

/* The same for a warp that computes. */
__device__ inline bool hopper_next(struct hopper_work &w, struct hopper_desk &d,
                                   const struct hopper_plan &p, unsigned n)
{
    mbarrier_wait(d.announced[n % DESK], n / DESK % 2);
    return hopper_work_of(w, p, warp_uniform(d.piece[n % DESK]));
}

/* Warpgroups that compute, from 0. */
__device__ inline int hopper_group()
{
    return (int)warp_uniform(threadIdx.x / WARPGROUP) - 1;
}

/* Work that is a tile of queries of a head; the keys that they see are counted
 * in tiles. */
struct hopper_queries {
    int t0, h, b, begin, end; /* first query, a multiple of 64; tiles of keys */
};

template <int ROWS, int KEYS>
__device__ inline struct hopper_queries hopper_queries_of(const struct attn_shape &s,
                                                          const struct hopper_work &w)
{
    struct hopper_queries p;

    /* Counted from the sequence's end: what a tile lacks lies before the sequence,
     * in the tile that sees fewest keys. */
    p.t0 = ((int)s.t + 63) / 64 * 64 - (w.rank + 1) * ROWS;
    p.h = w.head % (int)s.h;
    p.b = w.head / (int)s.h;
    p.begin = flash_first<ROWS>(s, p.b, p.t0) / KEYS;
    p.end = ((int)min(p.t0 + (int64_t)ROWS, s.t) - 1) / KEYS + 1;
    return p;
}

/* Makes the next wait for products come after x is known. The assembler moves a
 * wait up over arithmetic that does not depend on it, and the arithmetic that
 * was to run beside a product then runs after it. It does not move a wait over a
 * volatile store; x is to depend on all that shall come before. */
template <class M> __device__ inline void hopper_pin(M &m, float x)
{
    store_volatile(&m.pin[threadIdx.x - WARPGROUP], x);
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
