/* Token and position embeddings. The backward pass sorts rows by what they
 * belong to, so that the rows of one word are neighbours, in the order of
 * positions. A block adds up at most PIECE of them; the sums of the pieces of a
 * word that has more are added by another kernel, in order. */
#include "cuda/device.cuh"
#include "cuda/sort.cuh"

template <class T> struct lookup {
    int64_t n, c, v_begin, v_local;
    const int32_t *tokens, *positions;
    const T *wte, *wpe;
    T *out;
    float scale;
    struct cuda_drop drop;
};

/* The factor of words. A product with 1 costs nothing beside memory, and changes no bit. */
static float scale_of(const struct gpt_embed *op)
{
    return op->scale != 0 ? op->scale : 1;
}

/* A warp has a piece of a row: SHARE packs of each lane. */
enum { WARPS = 8, LANES = 32, SHARE = 4 };

template <class T, int W>
static __global__ void __launch_bounds__(WARPS * LANES) embed(lookup<T> p, int pieces)
{
    const int step = LANES * W;
    int64_t warp = (int64_t)blockIdx.x * WARPS + threadIdx.x / LANES, i = warp / pieces;
    int64_t j0 = (warp % pieces * LANES * SHARE + threadIdx.x % LANES) * W;
    words<T, W> word[SHARE], place[SHARE];
    uint64_t counter = drop_begin(p.drop, i, p.c);

    if (i >= p.n)
        return;
    /* A word of another rank's part: zeros, to which the sum over ranks adds that
     * rank's row. */
    int64_t row = p.tokens[i] - p.v_begin;
    bool here = row >= 0 && row < p.v_local;
    const T *at = p.wpe ? p.wpe + p.positions[i] * p.c : NULL;
#pragma unroll
    for (int k = 0; k < SHARE; k++) {
        word[k] = place[k] = {};
        if (j0 + k * step < p.c && here)
            word[k] = load_words<W>(p.wte + row * p.c + j0 + k * step);
        if (j0 + k * step < p.c && at)
            place[k] = load_words<W>(at + j0 + k * step);
    }
#pragma unroll
    for (int k = 0; k < SHARE; k++) {
        int64_t j = j0 + k * step;
        float x[W];

        if (j >= p.c)
            break;
#pragma unroll
        for (int e = 0; e < W; e++)
            x[e] = element(word[k], e) * p.scale + element(place[k], e);
        drop_any(x, p.drop, counter + j);
        store(p.out + i * p.c + j, x);
    }
}

void cuda_embed_fwd(struct gpt_queue *q, const struct gpt_embed *op)
{
    if (!cuda_ready(q, "embed_fwd", op->act) || !op->n)
        return;
    bool wide = cuda_wide(op->act, op->c, op->wte, op->wpe, op->out);
    with_access(op->act, wide, [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        int64_t pieces = cuda_blocks(op->c, LANES * SHARE * W);
        lookup<T> p = {op->n, op->c, op->v_begin, op->v_local, op->tokens, op->positions,
                      (const T *)op->wte, (const T *)op->wpe, (T *)op->out,
                      scale_of(op), cuda_drop_of(&op->dropout)};
        launch(q, embed<T, W>, cuda_blocks(op->n * pieces, WARPS), WARPS * LANES, 0, p,
               (int)pieces);
    });
}

/* Sorted rows are cut at multiples of PIECE, wherever words begin: a lane for each. */
enum { PIECE = LANES };
static_assert(PIECE == (int)GPU_EMBED_PIECE && CUDA_LISTS == (int)GPU_EMBED_TABLES,
              "gpu_embed_scratch()");

struct table {
    int32_t limit; /* rows of dw */
    float *dw, scale;
    struct cuda_sorted sorted;
    /* Two rows of sums for each PIECE of sorted rows: of the word that it begins
     * with, and of the one that begins in it and goes on in the next. */
    float *parts;
};

template <class T> struct gradient {
    int64_t n, c;
    const T *dout;
    struct cuda_drop drop;
    struct table table[CUDA_LISTS]; /* that of a block is number blockIdx.y */
};

/* What a block adds to: its table's rows are those of positions or of words, all of
 * which are called words here. */
template <class T> struct own_gradient {
    int64_t n, c;
    const T *dout;
    const struct cuda_drop &drop;
    int32_t limit;
    float *dw, scale;
    struct cuda_sorted sorted;
    float *parts;
};

template <class T> static __device__ inline own_gradient<T> own_part(const gradient<T> &p)
{
    const struct table t = blockIdx.y ? p.table[1] : p.table[0];

    return {p.n, p.c, p.dout, p.drop, t.limit, t.dw, t.scale, t.sorted, t.parts};
}

template <class T> static __device__ bool begins_word(const own_gradient<T> &p, int64_t i)
{
    return i == 0 || p.sorted.keys[i - 1] != p.sorted.keys[i];
}

/* One past the last of the equal keys from i on. */
template <class T> static __device__ int64_t word_end(const own_gradient<T> &p, int64_t i)
{
    const int32_t *keys = p.sorted.keys;
    int64_t lo = i, hi = p.n; /* keys[lo] is equal, keys[hi] is not */

    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;

        if (keys[mid] == keys[i])
            lo = mid;
        else
            hi = mid;
    }
    return hi;
}

/* The rows of one word that a warp adds: where this lane's row is in dout, its counter of dropout,
 * and how many lanes have a row. */
struct run {
    int64_t row;
    uint64_t counter;
    int n;
};

/* Finds the sorted rows from i on, before end, that have this key. */
template <class T>
static __device__ inline run run_from(const own_gradient<T> &p, int64_t i, int64_t end,
                                      int32_t key)
{
    int64_t k = i + threadIdx.x % LANES;
    bool equal = k < end && p.sorted.keys[k] == key;
    int64_t row = k < end ? p.sorted.from[k] : 0;

    /* sorted: those that are equal come first */
    return {row, drop_begin(p.drop, row, p.c), __popc(__ballot_sync(ALL_LANES, equal))};
}

/* Adds columns j .. of the run's rows of dout to sum, in order. All lanes of a warp call it, even
 * those past c. */
template <class T, int W>
static __device__ void add_run(const own_gradient<T> &p, float (&sum)[W], const run &r, int64_t j)
{
#pragma unroll 4
    for (int k = 0; k < r.n; k++) {
        int64_t row = __shfl_sync(ALL_LANES, r.row, k);
        uint64_t counter = p.drop.below ? __shfl_sync(ALL_LANES, r.counter, k) : 0;
        float x[W] = {};

        if (j < p.c) {
            load(x, p.dout + row * p.c + j);
            drop_any(x, p.drop, counter + j);
        }
#pragma unroll
        for (int e = 0; e < W; e++)
            sum[e] += x[e];
    }
}

/* Adds to an element of the table, once, after all its rows. dw is what the table holds there. */
template <class T, int W>
static __device__ void add_to_table(const own_gradient<T> &p, int32_t key, int64_t j,
                                    float (&dw)[W], const float (&sum)[W])
{
#pragma unroll
    for (int e = 0; e < W; e++)
        dw[e] += sum[e] * p.scale;
    store(p.dw + key * p.c + j, dw);
}

/* Each sorted row has a block. Blocks whose row begins a word, or a piece, add the word up to the
 * piece's end. */
template <class T, int W> static __global__ void add_rows(gradient<T> both)
{
    const own_gradient<T> p = own_part(both);
    int64_t i = blockIdx.x, next = i / PIECE * PIECE + PIECE;
    int32_t key = p.sorted.keys[i];
    bool begins = begins_word(p, i), goes_on = next < p.n && p.sorted.keys[next] == key;
    run r = run_from(p, i, min(next, p.n), key);
    int past = threadIdx.x % LANES * W;

    /* The sort is stable, so that a word's rows are in the order of positions, and
     * pieces depend on numbers of rows alone: no atomics, one order, the same bits
     * at every run. */
    if (key >= p.limit || (!begins && i % PIECE))
        return; /* the whole block */
    bool whole = begins && !goes_on;
    float *part = p.parts + (i / PIECE * 2 + (i % PIECE != 0)) * p.c;
    for (int64_t j = threadIdx.x * W; j - past < p.c; j += blockDim.x * W) {
        float sum[W] = {}, dw[W] = {};

        if (j < p.c && whole)
            load(dw, p.dw + key * p.c + j); /* on its way with the rows */
        add_run(p, sum, r, j);
        if (j >= p.c)
            continue;
        if (whole)
            add_to_table(p, key, j, dw, sum);
        else
            store(part + j, sum);
    }
}

/* Each PIECE of sorted rows has a block, which adds the sums of the word that begins in the piece
 * and continues in the next, if there is one. */
template <class T, int W> static __global__ void add_parts(gradient<T> both)
{
    const own_gradient<T> p = own_part(both);
    int64_t next = ((int64_t)blockIdx.x + 1) * PIECE, last = next - 1;

    if (next >= p.n || p.sorted.keys[last] != p.sorted.keys[next])
        return;
    int32_t key = p.sorted.keys[last];
    int64_t first = next - PIECE;
    bool whole = p.sorted.keys[first] == key;
    if (key >= p.limit || (whole && !begins_word(p, first)))
        return; /* no word of the table; or it began before */
    int64_t end = word_end(p, last);
    for (int64_t j = threadIdx.x * W; j < p.c; j += blockDim.x * W) {
        float sum[W], dw[W];

        load(dw, p.dw + key * p.c + j);
        load(sum, p.parts + ((int64_t)blockIdx.x * 2 + !whole) * p.c + j);
#pragma unroll 8
        for (int64_t k = next; k < end; k += PIECE) {
            float x[W];

            load(x, p.parts + k / PIECE * 2 * p.c + j);
#pragma unroll
            for (int e = 0; e < W; e++)
                sum[e] += x[e];
        }
        add_to_table(p, key, j, dw, sum);
    }
}

void cuda_embed_bwd(struct gpt_queue *q, const struct gpt_embed *op,
                    const struct gpt_embed_grad *grad)
{
    const struct {
        float *dw, scale;
        struct cuda_list list;
    } wanted[CUDA_LISTS] = {
        {grad->dwte, scale_of(op),
         {op->tokens, (int32_t)op->v_begin, (int32_t)op->v_local, false}},
        {grad->dwpe, 1, {op->positions, 0, (int32_t)op->t_max, true}},
    };
    struct table tables[CUDA_LISTS] = {};
    struct cuda_list list[CUDA_LISTS];
    struct cuda_sorted sorted[CUDA_LISTS] = {};
    char *work = (char *)grad->scratch;
    int n = 0;

    if (!cuda_ready(q, "embed_bwd", op->act) || !op->n)
        return;
    /* Sums of each table, then what sorts. */
    for (const auto &w : wanted) {
        if (!w.dw)
            continue;
        tables[n] = {w.list.limit, w.dw, w.scale, {}, (float *)work};
        list[n++] = w.list;
        work += gpu_embed_sums(op->n, op->c);
    }
    if (!n)
        return;
    cuda_sort(q, sorted, list, n, op->n, work);
    for (int k = 0; k < n; k++)
        tables[k].sorted = sorted[k];
    bool wide = cuda_wide(op->act, op->c, grad->dout, tables[0].dw, tables[1].dw, grad->scratch);
    with_access(op->act, wide, [&](auto type, auto width) {
        using T = decltype(type);
        const int W = decltype(width)::value;
        gradient<T> p = {op->n, op->c, (const T *)grad->dout, cuda_drop_of(&op->dropout),
                         {tables[0], tables[1]}};
        unsigned threads = cuda_threads(op->c / W, 256);
        launch(q, add_rows<T, W>, dim3(op->n, n), threads, 0, p);
        launch(q, add_parts<T, W>, dim3(cuda_blocks(op->n, PIECE), n), threads, 0, p);
    });
}
