/* Causal self-attention on Hopper, forward (Shah et al. 2024, FlashAttention-3).
 * One block a multiprocessor goes through pieces of work: a tile of queries of
 * one head. Warpgroup 0 copies (produce()); each of the others has 64 of the
 * queries (consume()) and goes from the last 128 keys that they see to the
 * first. Two things are under way at any time: the scores of one tile of keys,
 * while the softmax of the one before is computed, and that tile's product with
 * the values. Warpgroups take turns at the tensor cores, so that one computes
 * products while another computes exponentials.
 *
 * Registers of a thread, D = 128: 64 of the sums, 64 scores, 32 probabilities. */
#include "cuda/flash_hopper.cuh"

enum { KEYS = 128, STAGES = 2, N = KEYS / 8 };

/* Heads of 64 have registers for three warpgroups, but not under dropout: three
 * would spill, and be 2 % faster on an H100. What threads have together is what a
 * launch gives: 4 * 128 or 3 * 168. */
template <int D, bool DROP> struct shape {
    enum {
        GROUPS = D == 64 && !DROP ? 3 : 2,
        ROWS = 64 * GROUPS,
        THREADS = WARPGROUP * (GROUPS + 1),
        COPY_REGISTERS = GROUPS == 3 ? 32 : 40,
        REGISTERS = GROUPS == 3 ? 160 : 232,
    };
};

template <int D, int GROUPS, class T> struct memory {
    /* Queries of a piece, too, come while the one before is at work. */
    ring<tile<T, 64 * GROUPS, D>, STAGES> q;
    ring<tile<T, KEYS, D>, STAGES> k, v;
    struct hopper_desk desk;
    float pin[WARPGROUP * GROUPS];
};

/* ---- copies: one warp, of which one thread gives the orders ---- */

template <int D, int GROUPS, class T>
static __device__ void produce(memory<D, GROUPS, T> &m, const struct attn_shape &s,
                               const struct hopper_plan &plan, const CUtensorMap &qkv)
{
    int per = (int)(s.h / s.g);
    unsigned step = 0, pieces = 0;
    struct hopper_work w;

    for (; hopper_announce(w, m.desk, plan, pieces); pieces++) {
        struct hopper_queries p = hopper_queries_of<64 * GROUPS, KEYS>(s, w);
        int group = p.h / per * (per + 2), key = group + per;
        if (threadIdx.x == 0) {
            int q = ring_fill(m.q, pieces, sizeof(m.q.at[0]));

            tma_load(m.q.at[q], qkv, m.q.full[q], group + p.h % per, p.t0, p.b);
            for (int j = p.end - 1; j >= p.begin; j--, step++) {
                /* From the last tile to the first, as consumers go; step counts
                 * on over pieces, so that phases of the rings go on, too. */
                int k = ring_fill(m.k, step, sizeof(m.k.at[0]));

                tma_load(m.k.at[k], qkv, m.k.full[k], key, j * KEYS, p.b);
                int v = ring_fill(m.v, step, sizeof(m.v.at[0]));
                tma_load(m.v.at[v], qkv, m.v.full[v], key + 1, j * KEYS, p.b);
            }
        }
        __syncwarp();
    }
}

/* ---- what a warpgroup computes ---- */

/* Turns at the tensor cores, one for each tile of keys. */
template <int GROUPS> static __device__ void turn_begin(int group)
{
    /* Barrier 1 + g is complete when group g waits and the one before it has
     * arrived: 2 * WARPGROUP threads. */
    named_sync(1 + group, 2 * WARPGROUP);
}

template <int GROUPS> static __device__ void turn_end(int group)
{
    named_arrive(1 + (group + 1) % GROUPS, 2 * WARPGROUP);
}

/* Skips a tile of keys that no query of this warpgroup sees. */
template <int GROUPS, class M> static __device__ void skip_tile(M &m, unsigned step, int group)
{
    turn_begin<GROUPS>(group);
    turn_end<GROUPS>(group);
    ring_pass(m.k, step);
    ring_pass(m.v, step);
}

/* What a thread keeps of its two queries, rows g and g + 8 of the warp's. */
template <int D> struct running {
    float out[D / 8][4], max[2], sum[2];
    int t, first[2]; /* the first query; the first keys that they see */
    float slope;     /* ALiBi's, before scores are scaled */
};

/* Sets scores that a query does not see to -inf. key is the tile's first. The warp decides
 * together: no lane leaves the others behind. */
template <int D>
static __device__ void hide_unseen(float (&s)[N][4], const running<D> &r, int key)
{
    int own = key + threadIdx.x % 4 * 2;

    if (!__all_sync(ALL_LANES, key + KEYS - 1 <= r.t)) {
        int last[2] = {r.t - own, r.t + 8 - own};
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[n][e] = n * 8 + e % 2 <= last[e / 2] ? s[n][e] : -INFINITY;
    }
    if (!__all_sync(ALL_LANES, r.first[0] <= key && r.first[1] <= key)) {
        int first[2] = {r.first[0] - own, r.first[1] - own};
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[n][e] = n * 8 + e % 2 >= first[e / 2] ? s[n][e] : -INFINITY;
    }
}

/* Scores become probabilities relative to the maximum so far; scale includes
 * log2(e). What was summed under an older maximum is to shrink. Every query
 * sees a key of the first tile, so that maxima are finite. */
template <int D>
static __device__ void softmax(float (&s)[N][4], running<D> &r, float (&shrink)[2], float scale)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = r.max[h];
#pragma unroll
        for (int n = 0; n < N; n++)
            top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 1));
        top = fmaxf(top, __shfl_xor_sync(ALL_LANES, top, 2));
        float shift = top * scale, sum = 0;
        shrink[h] = exp2_fast(r.max[h] * scale - shift);
        r.max[h] = top;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; e++) {
                s[n][e] = exp2_fast(s[n][e] * scale - shift);
                sum += s[n][e];
            }
        r.sum[h] = r.sum[h] * shrink[h] + sum;
    }
}

/* Which probabilities of a tile stay; see flash_keep_rows(). */
struct kept {
    uint32_t of[2];
};

/* at: the counter of (the warp's first query, the tile's first key); one_half:
 * the warp sees no key of the second half. */
static __device__ struct kept keep_of(const struct attn_shape &s, uint64_t at,
                                      bool one_half)
{
    struct kept k = {};

    k.of[0] = flash_keep_rows<N / 2>(s.drop, at, s.t);
    if (!one_half)
        k.of[1] = flash_keep_rows<N / 2>(s.drop, at + KEYS / 2, s.t);
    return k;
}

static __device__ void drop_scores(float (&s)[N][4], const struct kept &k)
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (!(k.of[n / 8] >> (n % 8 * 4 + e) & 1))
                s[n][e] = 0;
}

template <int D> static __device__ void shrink_sums(running<D> &r, const float (&shrink)[2])
{
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            r.out[n][e] *= shrink[e / 2];
}

/* Turns scores of the tile that begins at `key` into probabilities. */
template <bool DROP, int D>
static __device__ void probabilities(float (&s)[N][4], running<D> &r, float (&shrink)[2],
                                     const struct attn_shape &shape, int key,
                                     const struct kept &stay)
{
    if (shape.alibi)
        flash_lean(s, r.slope, r.t, key + threadIdx.x % 4 * 2);
    hide_unseen(s, r, key);
    softmax(s, r, shrink, shape.scale * FLASH_LOG2E);
    if (DROP)
        drop_scores(s, stay);
}

/* Attends to all tiles of keys of piece number `piece`. step is the first tile's in the rings;
 * drop_at is the counter of (the warp's first query, key 0). */
template <bool DROP, int D, int GROUPS, class T>
static __device__ void attend(running<D> &r, memory<D, GROUPS, T> &m, const struct attn_shape &s,
                              const struct hopper_queries &p, unsigned piece, unsigned step,
                              int group, uint64_t drop_at)
{
    /* Order of one turn: the scores of the next tile are begun, then this tile's
     * product with the values; the softmax of the next runs while the latter is
     * under way. shrink_sums() has to wait for that product. */
    const tile<T, 64 * GROUPS, D> &q = ring_get(m.q, piece);
    float score[N][4], shrink[2];
    uint32_t prob[N / 2][4];
    struct kept stay = {};
    int j = p.end - 1, end = p.t0 + 64 * group + 64; /* of this warpgroup's queries */

    for (int last = (end - 1) / KEYS; j > last; j--, step++)
        skip_tile<GROUPS>(m, step, group);
    if (DROP)
        stay = keep_of(s, drop_at + (uint64_t)j * KEYS, end <= j * KEYS + KEYS / 2);
    turn_begin<GROUPS>(group);
    hopper_scores(score, q, 64 * group, ring_get(m.k, step));
    turn_end<GROUPS>(group);
    wgmma_wait<0>(score);
    ring_free(m.k, step);
    probabilities<DROP>(score, r, shrink, s, j * KEYS, stay);
    hopper_round<T>(prob, score);
    for (j--; j >= p.begin; j--, step++) {
        turn_begin<GROUPS>(group);
        hopper_scores(score, q, 64 * group, ring_get(m.k, step + 1));
        hopper_add<T>(r.out, prob, ring_get(m.v, step));
        turn_end<GROUPS>(group);
        if (DROP)
            stay = keep_of(s, drop_at + (uint64_t)j * KEYS, false);
        wgmma_wait<1>(score);
        ring_free(m.k, step + 1);
        probabilities<DROP>(score, r, shrink, s, j * KEYS, stay);
        hopper_pin(m, r.sum[0] + r.sum[1]);
        wgmma_wait<0>(r.out, prob);
        ring_free(m.v, step);
        shrink_sums(r, shrink);
        hopper_round<T>(prob, score);
    }
    ring_free(m.q, piece); /* scores alone have read queries */
    hopper_add<T>(r.out, prob, ring_get(m.v, step));
    wgmma_wait<0>(r.out, prob);
    ring_free(m.v, step);
}

/* Divides by the sums; writes what lies inside the sequence. */
template <int D, class T>
static __device__ void write_rows(const struct attn_shape &s, const running<D> &r,
                              const struct hopper_queries &p, T *out)
{
    /* Four lanes have a row between them; each has summed its own columns. */
    float by[2], *lse = s.lse + (p.b * s.h + p.h) * s.t;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = r.sum[h];

        sum += __shfl_xor_sync(ALL_LANES, sum, 1);
        sum += __shfl_xor_sync(ALL_LANES, sum, 2);
        /* What dropout left is scaled once here, with the division. */
        by[h] = (s.drop.below ? s.drop.scale : 1) / sum;
        if (threadIdx.x % 4 == 0 && r.t + 8 * h < s.t)
            lse[r.t + 8 * h] = r.max[h] * s.scale + logf(sum);
    }
    flash_store<D>(out + (p.b * s.t * s.h + p.h) * s.d, r.out, by, r.t, s.t, s.h * s.d, s.d);
}

template <bool DROP, int D, int GROUPS, class T>
static __device__ void consume(memory<D, GROUPS, T> &m, const struct attn_shape &s,
                               const struct hopper_plan &plan, T *out)
{
    int group = hopper_group();
    int row = threadIdx.x / 32 * 16 - 64; /* the warp's first */
    unsigned step = 0;
    struct hopper_work w;

    /* A turn begins when the warpgroup before has ended its own. The last warpgroup ends a turn
     * that it never had, so that the first one can begin. */
    if (group == GROUPS - 1)
        turn_end<GROUPS>(group); /* of the first warpgroup */
    for (unsigned piece = 0; hopper_next(w, m.desk, plan, piece); piece++) {
        struct hopper_queries p = hopper_queries_of<64 * GROUPS, KEYS>(s, w);
        int t = p.t0 + row + threadIdx.x % 32 / 4;

        if (p.t0 + 64 * group < 0) { /* before the sequence */
            for (int j = p.end; j > p.begin; j--, step++)
                skip_tile<GROUPS>(m, step, group);
            ring_pass(m.q, piece);
            continue;
        }
        running<D> r = {{}, {-INFINITY, -INFINITY}, {0, 0}, t,
                        {(int)attn_first(s, p.b, min((int64_t)t, s.t - 1)),
                         (int)attn_first(s, p.b, min((int64_t)t + 8, s.t - 1))},
                        attn_slope(s, p.h) / s.scale};
        attend<DROP>(r, m, s, p, piece, step, group, attn_drop_at(s, p.b, p.h, p.t0 + row));
        step += p.end - p.begin;
        write_rows(s, r, p, out);
    }
}

template <bool DROP, int D, class T>
static __global__ void __launch_bounds__((shape<D, DROP>::THREADS), 1)
    flash_forward(struct attn_shape s, struct hopper_plan plan,
                  const __grid_constant__ CUtensorMap qkv, T *out)
{
    using S = shape<D, DROP>;
    auto &m = hopper_shared<memory<D, S::GROUPS, T>>();
    if (threadIdx.x == 0) {
        hopper_desk_init(m.desk);
        ring_init(m.q, 4 * S::GROUPS);
        ring_init(m.k, 4 * S::GROUPS);
        ring_init(m.v, 4 * S::GROUPS);
        fence_async();
    }
    __syncthreads();
    if (threadIdx.x < WARPGROUP) {
        /* All warps of the group give up registers, also the three that only
         * end; the others wait until enough are free. */
        fewer_registers<S::COPY_REGISTERS>();
        if (threadIdx.x < 32)
            produce(m, s, plan, qkv);
    } else {
        more_registers<S::REGISTERS>();
        consume<DROP>(m, s, plan, out);
    }
}

template <bool DROP, int D, class T>
static void launch_forward(struct gpt_queue *q, const struct gpt_attn *op)
{
    using S = shape<D, DROP>;
    CUtensorMap qkv;
    if (!hopper_map(q, &qkv, op, op->qkv, op->g * (op->h / op->g + 2)))
        return;
    /* The bytes of keys and values that the blocks of a head have in common; heads
     * of a group share them. */
    struct hopper_plan plan = hopper_plan_of(q, cuda_blocks(op->t, S::ROWS), op->b * op->h,
                                             op->t * op->d * 4 * op->g / op->h);
    launch(q, flash_forward<DROP, D, T>, hopper_blocks(q, plan), S::THREADS,
           sizeof(memory<D, S::GROUPS, T>), attn_shape_of(op), plan, qkv, (T *)op->out);
}

bool cuda_hopper_fwd(struct gpt_queue *q, const struct gpt_attn *op)
{
    if (!hopper_size(q, op))
        return false;
    hopper_with_size(op, [&](auto type, auto d) {
        if (op->dropout.p != 0)
            launch_forward<true, d.value, decltype(type)>(q, op);
        else
            launch_forward<false, d.value, decltype(type)>(q, op);
    });
    return true;
}
