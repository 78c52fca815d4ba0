/* The order of work of Hopper's backward: which keys and queries a block takes, the
 * warps that copy these, and the turns at which blocks add to dQ. What is computed
 * is in flash_bwd_sm90a.cu, where to start, and which alone includes this file: its
 * names are those of that kernel. */
#ifndef GPT_KERNELS_CUDA_FLASH_BWD_HOPPER_CUH
#define GPT_KERNELS_CUDA_FLASH_BWD_HOPPER_CUH

#include "cuda/flash_bwd.cuh"
#include "cuda/flash_hopper.cuh"
#include "cuda/hopper_bulk.cuh"

enum {
    GROUPS = 2,
    ROWS = 64 * GROUPS, /* of a block's own tiles */
    QUERIES = FLASH_QUERIES, /* of a tile that it goes over */
    N = QUERIES / 8,
    STAGES = 3,
    THREADS = WARPGROUP * (GROUPS + 1),
};

/* Tiles of a step. Heads of 64 take two, so that the warpgroups can share dQ: each
 * has 64 queries of it, or, of heads of 128, 64 columns. */
template <int D> constexpr int TILES = 128 / D;
template <int D> constexpr int STEP = QUERIES * TILES<D>;

/* A warpgroup's part of dQ: (64, 64) floats in the order of its registers. */
struct dq_part {
    float4 at[N][WARPGROUP];
};

template <class T> struct grads {
    T *dqkv;
    struct flash_queries *queries; /* (B, H, padded T / 64) */
    struct dq_part *dq;          /* (B, H, padded T / STEP, GROUPS) */
    float scale;                 /* of scores, in units of log(2) */
};

/* ---- the order of work ---- */

template <int D, class T> struct query_stage {
    tile<T, QUERIES, D> q[TILES<D>], dout[TILES<D>];
    struct flash_queries of[TILES<D>];
};

template <int D, class T> struct memory {
    tile<T, ROWS, D> k, v;
    tile<T, ROWS, QUERIES> ds[TILES<D>];
    struct dq_part dq[GROUPS];
    ring<query_stage<D, T>, STAGES> queries;
    struct mbarrier full, empty; /* k, v */
    struct mbarrier ds_read;     /* dQ and dK have taken ds: of all warps */
    struct mbarrier lent[GROUPS], back[GROUPS]; /* dq: to the warpgroup; from all its warps */
    struct hopper_desk desk;
};

/* Work that is a tile of keys of a group: the first keys first, which most queries
 * see. A block goes over these from the last step of queries to that of its own
 * keys, head by head. */
struct key_work {
    int j0, g, b;
    int h, h_end, t_last;
};

/* The last step whose queries see keys of j0.. j0 + ROWS - 1. What a query's first key
 * is grows with the query. */
template <int D> static __device__ int last_step(const struct attn_shape &s, int b, int j0)
{
    int low = 0, high = ((int)s.t - 1 - j0) / STEP<D>;

    if (!attn_hides(s))
        low = high;
    while (low < high) {
        int middle = (low + high + 1) / 2;

        if (attn_first(s, b, j0 + middle * STEP<D>) < j0 + ROWS)
            low = middle;
        else
            high = middle - 1;
    }
    return j0 + low * STEP<D>;
}

template <int D>
static __device__ struct key_work key_work_of(const struct attn_shape &s,
                                              const struct hopper_work &w)
{
    int per = (int)(s.h / s.g), j0 = w.rank * ROWS, g = w.head % (int)s.g, b = w.head / (int)s.g;

    return {j0, g, b, g * per, (g + 1) * per, last_step<D>(s, b, j0)};
}

/* Where what is known of head h's queries begins. */
static __device__ unsigned query_row(const struct attn_shape &s, int b, int h)
{
    return (unsigned)(b * (int)s.h + h) * (unsigned)padded(s.t);
}

/* A block's turn to add to dQ of a step whose first query is number t and sees keys
 * from `first` on: `before` blocks add before. The step's keys are one run, and so
 * are the blocks: from that of the first key to that of the queries' own. */
static __device__ int blocks_before(int j0, int first)
{
    return j0 / ROWS - first / ROWS;
}

static __device__ bool adds_last(int j0, int t)
{
    return t / ROWS == j0 / ROWS;
}

/* ---- copies ---- */

/* Begins to copy the queries of a step, and what is known of them. */
template <int D, class T>
static __device__ void fetch_step(memory<D, T> &m, const struct attn_shape &s,
                                  const CUtensorMap &qkv, const CUtensorMap &dout,
                                  const struct flash_queries *queries, unsigned step, int b, int h,
                                  int t)
{
    int per = (int)(s.h / s.g), to = ring_fill(m.queries, step, sizeof(m.queries.at[0]));
    struct mbarrier &full = m.queries.full[to];
    query_stage<D, T> &stage = m.queries.at[to];

    bulk_load(stage.of, queries + (query_row(s, b, h) + t) / QUERIES, sizeof(stage.of), full);
    for (int i = 0; i < TILES<D>; i++, t += QUERIES) {
        tma_load(stage.q[i], qkv, full, h / per * (per + 2) + h % per, t, b);
        tma_load(stage.dout[i], dout, full, h, t, b);
    }
}

template <int D, class T>
static __device__ void produce(memory<D, T> &m, const struct attn_shape &s,
                               const struct hopper_plan &plan, const CUtensorMap &qkv,
                               const CUtensorMap &dout, const struct flash_queries *queries)
{
    int per = (int)(s.h / s.g);
    unsigned step = 0, works = 0;
    struct hopper_work piece;

    for (; hopper_announce(piece, m.desk, plan, works); works++) {
        struct key_work w = key_work_of<D>(s, piece);
        int key = w.g * (per + 2) + per;
        if (threadIdx.x == 0) {
            mbarrier_wait(m.empty, works % 2 ^ 1);
            mbarrier_expect(m.full, sizeof(m.k) + sizeof(m.v));
            tma_load(m.k, qkv, m.full, key, w.j0, w.b);
            tma_load(m.v, qkv, m.full, key + 1, w.j0, w.b);
            for (int h = w.h; h < w.h_end; h++)
                for (int t = w.t_last; t >= w.j0; t -= STEP<D>)
                    fetch_step(m, s, qkv, dout, queries, step++, w.b, h, t);
        }
        __syncwarp();
    }
}

/* ---- turns ---- */

/* What a warp still has to do for a step's sums of dQ: let the next block add. */
struct gift {
    int *turn, to;
};

static __device__ void give(struct gift &g)
{
    if (g.turn) {
        bulk_wait();
        turn_give(g.turn, g.to);
    }
    g.turn = nullptr;
}

/* A thread for each warpgroup's part of dQ: it lends the warpgroup the place in
 * shared memory for a step, adds what it gets back to the sums when the block's
 * turn has come, and passes the turn on: the ways to other multiprocessors and back
 * cost the warpgroup nothing. The last block of a step gets the sums with the
 * place instead. */
template <int D, class T>
static __device__ void keep_turn(memory<D, T> &m, const struct attn_shape &s,
                                 const grads<T> &grad, int part, const struct key_work &w,
                                 unsigned step, int h, int t, struct gift &due)
{
    unsigned row = query_row(s, w.b, h) + t;
    int *now = &grad.queries[row / QUERIES].turn[part];
    struct dq_part &sums = grad.dq[row / STEP<D> * GROUPS + part], &place = m.dq[part];
    int before = blocks_before(w.j0, attn_hides(s) ? (int)attn_first(s, w.b, t) : 0);
    bool last = adds_last(w.j0, t);

    if (last && before) {
        give(due);
        turn_wait(now, before);
        mbarrier_expect(m.lent[part], sizeof(sums));
        bulk_load(&place, &sums, sizeof(sums), m.lent[part]);
    } else {
        mbarrier_arrive(m.lent[part]);
        give(due);
    }
    mbarrier_wait(m.back[part], step % 2);
    if (last)
        return;
    if (before) {
        turn_wait(now, before);
        bulk_add(&sums.at[0][0].x, &place.at[0][0].x, sizeof(sums));
    } else
        bulk_store(&sums, &place, sizeof(sums));
    due = {now, before + 1};
    bulk_wait_read();
}

template <int D, class T>
static __device__ void keep_turns(memory<D, T> &m, const struct attn_shape &s,
                                  const struct hopper_plan &plan, const grads<T> &grad, int part)
{
    unsigned step = 0, works = 0;
    struct hopper_work piece;

    for (; hopper_next(piece, m.desk, plan, works); works++) {
        struct key_work w = key_work_of<D>(s, piece);
        if (threadIdx.x % 32 == 0)
            for (int h = w.h; h < w.h_end; h++) {
                /* A head ends with the step of the block's own keys, after which no
                 * block adds: nothing is due then. */
                struct gift due = {};
                for (int t = w.t_last; t >= w.j0; t -= STEP<D>)
                    keep_turn<D>(m, s, grad, part, w, step++, h, t, due);
            }
        __syncwarp();
    }
}

#endif
