/* Products of each expert's rows with a matrix of its own, of all experts in
 * one kernel. Which rows an expert has is known on the device alone: the grid
 * has as many tiles as there can be, a block finds the expert of its tile, and
 * what is left over ends at once. The tiles of the experts' gradients are
 * counted by shapes, and their sums are as long as the experts have rows.
 *
 * Tensor cores multiply where rows and matrices lie at multiples of 16 bytes,
 * floats where TF32 is allowed; else each thread sums a few elements. The terms
 * of an element are added in the order of k, whatever the tile. Start at
 * cuda_expert_matmul(). */
#include "cuda/mma.cuh"

enum { LANES = 32, WARPS = 8, THREADS = WARPS * LANES };

/* c (rows, n) = op(a) (rows, k) op(b) (k, n), of each expert. */
struct product {
    const int32_t *begin; /* of the first expert here */
    int count;
    int m, n, k; /* m of ta alone, k without it */
    bool ta, tb;
    const void *a, *b;
    void *c;
    float beta;
    unsigned across, down; /* tiles of n; of m, with ta */
};

/* A tile's expert, the first row of c that is the tile's and the end of the expert's, its first
 * column, and the terms of its sums. */
struct piece {
    int expert; /* -1: nothing is left */
    int row, end, column;
    int from, to;
};

/* With ta each expert has the same tiles. */
static __device__ inline piece piece_of_gradient(const product &p, int rows, int columns)
{
    const int each = (int)(p.across * p.down), tile = blockIdx.x % each;
    const int e = blockIdx.x / each, first = p.begin[0];

    return {e, tile / (int)p.across * rows, p.m, tile % (int)p.across * columns,
            p.begin[e] - first, p.begin[e + 1] - first};
}

/* Tiles of rows are those of the first expert, then those of the next; a warp looks at as many
 * experts at once as it has lanes. Tiles of the same rows are neighbours. */
static __device__ inline piece piece_of_rows(const product &p, int rows, int columns)
{
    const int tile = blockIdx.x / p.across, first = p.begin[0], lane = threadIdx.x % LANES;

    for (int e0 = 0, before = 0; e0 < p.count; e0 += LANES) {
        const int e = min(e0 + lane, p.count - 1);
        const int begin = p.begin[e] - first, end = p.begin[e + 1] - first;
        const int tiles = e0 + lane < p.count ? (end - begin + rows - 1) / rows : 0;
        int upto = tiles;

#pragma unroll
        for (int by = 1; by < LANES; by *= 2) {
            int left = __shfl_up_sync(ALL_LANES, upto, by);

            upto += lane >= by ? left : 0;
        }
        const int own = tile - before - (upto - tiles); /* of the expert's */
        const unsigned found = __ballot_sync(ALL_LANES, own >= 0 && own < tiles);
        if (found) {
            const int from = __popc((found & -found) - 1);

            return {e0 + from, __shfl_sync(ALL_LANES, begin + own * rows, from),
                    __shfl_sync(ALL_LANES, end, from),
                    (int)(blockIdx.x % p.across) * columns, 0, p.k};
        }
        before += __shfl_sync(ALL_LANES, upto, LANES - 1);
    }
    return {-1, 0, 0, 0, 0, 0};
}

static __device__ inline piece own_piece(const product &p, int rows, int columns)
{
    return p.ta ? piece_of_gradient(p, rows, columns) : piece_of_rows(p, rows, columns);
}

/* The expert's matrix; of gradients the rows of b. */
template <class T> static __device__ inline const T *own_matrix(const product &p, const piece &w)
{
    return (const T *)p.b + (p.ta ? 0 : (int64_t)w.expert * p.n * p.k);
}

/* Element (0, 0) of the c that the tile's rows are counted in. */
template <class C> static __device__ inline C *own_result(const product &p, const piece &w)
{
    return (C *)p.c + (p.ta ? (int64_t)w.expert * p.m * p.n : 0);
}

/* Where nothing is added to c: its expert has no rows. */
static __device__ inline bool stays(const product &p, const piece &w)
{
    return p.ta && w.from == w.to && p.beta != 0;
}

/* ---- by threads ---- */

enum { TILE = 64, STEP = 16, EDGE = 16, EACH = TILE / EDGE };
static_assert(EDGE * EDGE == THREADS, "a thread has EACH x EACH elements");

/* Elements l.. of TILE vectors v.. into tile[l][v], zeros past their ends; along: a vector's
 * elements are neighbours, and ld elements from one vector to the next. */
template <class T>
static __device__ void fill(float (*tile)[TILE + 1], const T *x, int64_t ld, bool along, int v,
                            int v_end, int l, int l_end)
{
    for (int i = threadIdx.x; i < TILE * STEP; i += THREADS) {
        /* neighbouring threads take neighbours in memory */
        const int dv = along ? i / STEP : i % TILE, dl = along ? i % STEP : i / TILE;
        float value = 0;

        if (v + dv < v_end && l + dl < l_end)
            value = to_float(along ? x[(v + dv) * ld + l + dl] : x[(l + dl) * ld + v + dv]);
        tile[dl][dv] = value;
    }
}

template <class T, class C>
static __global__ void __launch_bounds__(THREADS) by_threads(product p)
{
    /* TILE + 1: elements of a vector fall into different banks. */
    __shared__ float a[STEP][TILE + 1], b[STEP][TILE + 1];
    const piece w = own_piece(p, TILE, TILE);
    const int i0 = threadIdx.x / EDGE, j0 = threadIdx.x % EDGE;
    float sum[EACH][EACH] = {};

    if (w.expert < 0 || stays(p, w))
        return; /* the whole block */
    for (int l = w.from; l < w.to; l += STEP) {
        fill(a, (const T *)p.a, p.ta ? p.m : p.k, !p.ta, w.row, w.end, l, w.to);
        fill(b, own_matrix<T>(p, w), p.tb ? p.k : p.n, p.tb, w.column, p.n, l, w.to);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < STEP; k++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    /* Threads own elements EDGE apart: neighbours read neighbours. */
                    sum[i][j] += a[k][i0 + i * EDGE] * b[k][j0 + j * EDGE];
        __syncthreads();
    }
    C *c = own_result<C>(p, w);
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int row = w.row + i0 + i * EDGE, column = w.column + j0 + j * EDGE;

            if (row >= w.end || column >= p.n)
                continue;
            C *to = c + (int64_t)row * p.n + column;
            *to = from_float<C>(sum[i][j] + (p.beta != 0 ? p.beta * to_float(*to) : 0));
        }
}

/* ---- by tensor cores ---- */

/* A block has ROWS x COLUMNS elements of c; 64 bytes of k come at a time, STAGES - 1 times before
 * they are needed. */
enum { COLUMNS = 128, STAGES = 3 };
template <class T> constexpr int at_once = 16 / sizeof(T); /* elements of 16 bytes */
template <class T> constexpr int depth = 64 / sizeof(T);

/* A tile of `vectors` vectors of k, which lie along rows, or across them. Rows are padded, so that
 * what a warp reads at once lies in different banks. */
template <class T, bool along> constexpr int tile_pad = std::is_same_v<T, float> && !along
                                                            ? 8
                                                            : at_once<T>;
template <class T, int vectors, bool along>
constexpr int tile_ld = (along ? depth<T> : vectors) + tile_pad<T, along>;
template <class T, int vectors, bool along>
constexpr int tile_size = (along ? vectors : depth<T>)*tile_ld<T, vectors, along>;

/* Where a thread's pieces of a tile come from, of 16 bytes each: the place of the first, which
 * moves on by a tile at a time, and what lies between two. */
template <class T, int vectors, bool along> struct feed {
    static const int ROW = (along ? depth<T> : vectors) / at_once<T>; /* pieces of a row */
    static const int PIECES = vectors * depth<T> / at_once<T>;
    static const int EACH = (PIECES + THREADS - 1) / THREADS, APART = THREADS / ROW;
    const T *base, *from;
    int64_t apart, next;
    int left, first; /* terms from the tile on; the first piece's among those of the tile */
    unsigned here;   /* bit i: the vectors of piece i are below their end */
};

/* Tiles of vectors v.. of x, from element l on. */
template <class T, int vectors, bool along>
static __device__ inline void begin_feed(feed<T, vectors, along> &f, const T *x, int64_t ld, int v,
                                         int v_end, int l, int l_end)
{
    const int r = threadIdx.x / f.ROW, at = threadIdx.x % f.ROW * at_once<T>;

    f.base = x;
    f.from = x + (along ? (v + r) * ld + l + at : (l + r) * ld + v + at);
    f.apart = f.APART * ld;
    f.next = along ? depth<T> : depth<T> * ld;
    f.left = l_end - l;
    f.first = along ? at : r;
    f.here = 0;
#pragma unroll
    for (int i = 0; i < f.EACH; i++)
        if (f.PIECES % THREADS == 0 || threadIdx.x < f.PIECES)
            f.here |= (unsigned)(v + (along ? r + i * f.APART : at) < v_end) << i;
}

/* Begins to copy the next tile; zeros past the ends. */
template <class T, int vectors, bool along>
static __device__ inline void fetch(T *tile, feed<T, vectors, along> &f)
{
    const int r = threadIdx.x / f.ROW, at = threadIdx.x % f.ROW * at_once<T>;

#pragma unroll
    for (int i = 0; i < f.EACH; i++) {
        const bool here = f.here >> i & 1 && f.first + (along ? 0 : i * f.APART) < f.left;

        if (f.PIECES % THREADS == 0 || threadIdx.x < f.PIECES)
            copy_async(tile + (r + i * f.APART) * tile_ld<T, vectors, along> + at,
                       here ? f.from + i * f.apart : f.base, here ? 16 : 0);
    }
    f.from += f.next;
    f.left -= depth<T>;
}

/* Factors of floats are rounded where they have come. */
template <class T, int N> static __device__ inline void as_factors(uint32_t (&x)[N])
{
    if constexpr (std::is_same_v<T, float>)
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = __float_as_uint(round_tf32(__uint_as_float(x[i])));
}

/* The 16 x mma_k block of vectors v.. and elements l.. as `a` of a product. */
template <int vectors, bool along, class T>
static __device__ inline void read_a(uint32_t (&a)[4], const T *tile, int v, int l)
{
    constexpr int ld = tile_ld<T, vectors, along>;
    const int lane = threadIdx.x % LANES;

    if constexpr (along) {
        ldmatrix4(a, tile + (v + lane % 16) * ld + l + lane / 16 * at_once<T>);
    } else if constexpr (std::is_same_v<T, float>) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[i] = __float_as_uint(
                tile[(l + lane % 4 + i / 2 * 4) * ld + v + lane / 4 + i % 2 * 8]);
    } else {
        ldmatrix4_transposed(a, tile + (l + lane / 16 * 8 + lane % 8) * ld + v + lane / 8 % 2 * 8);
    }
    as_factors<T>(a);
}

/* The same as two `b`: of vectors v.., and of the eight after them. */
template <int vectors, bool along, class T>
static __device__ inline void read_b(uint32_t (&b)[2][2], const T *tile, int v, int l)
{
    constexpr int ld = tile_ld<T, vectors, along>;
    const int lane = threadIdx.x % LANES;
    uint32_t r[4];

    if constexpr (along) {
        ldmatrix4(r, tile + (v + lane / 16 * 8 + lane % 8) * ld + l + lane / 8 % 2 * at_once<T>);
    } else if constexpr (std::is_same_v<T, float>) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            r[i] = __float_as_uint(
                tile[(l + lane % 4 + i % 2 * 4) * ld + v + lane / 4 + i / 2 * 8]);
    } else {
        ldmatrix4_transposed(r, tile + (l + lane % 16) * ld + v + lane / 16 * 8);
    }
    as_factors<T>(r);
    b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
}

/* A block of ROWS rows: its warps lie DOWN x (WARPS / DOWN), and each has M x N fragments. */
template <int ROWS> struct shape {
    static const int DOWN = ROWS / 64 ? ROWS / 64 : 1, ACROSS = WARPS / DOWN;
    static const int M = ROWS / DOWN / 16, N = COLUMNS / ACROSS / 8;
};

/* Writes a warp's sums to row `row` and column `column` of c on, those below the ends. */
template <int M, int N, class C>
static __device__ inline void write(const product &p, const piece &w, C *c,
                                    const float (&sum)[M][N][4], int row, int column)
{
    const int lane = threadIdx.x % LANES;

#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int i = row + m * 16 + h * 8 + lane / 4;
            C *to = c + (int64_t)i * p.n;

            if constexpr (std::is_same_v<C, float>) {
#pragma unroll
                for (int n = 0; n < N; n++) {
                    const int j = column + n * 8 + lane % 4 * 2;

                    if (i >= w.end || j >= p.n)
                        continue;
                    float x[2] = {0, 0};
                    if (p.beta != 0)
                        load(x, to + j);
                    mma_write(to + j, make_float2(sum[m][n][2 * h] + p.beta * x[0],
                                                  sum[m][n][2 * h + 1] + p.beta * x[1]));
                }
            } else {
#pragma unroll
                for (int n = 0; n < N; n += 4) {
                    const int j = column + (n + lane % 4) * 8;
                    uint32_t v[4] = {};

#pragma unroll
                    for (int k = 0; k < 4 && n + k < N; k++)
                        v[k] = pack2<C>(sum[m][n + k][2 * h], sum[m][n + k][2 * h + 1]);
                    mma_gather(v); /* by all lanes, also those of rows past the end */
                    if (lane % 4 < N - n && i < w.end && j < p.n)
                        mma_write(to + j, make_uint4(v[0], v[1], v[2], v[3]));
                }
            }
        }
}

/* TA, TB: those of the product, as constants. */
template <class T, class C, int ROWS, bool TA, bool TB>
static __global__ void __launch_bounds__(THREADS, 2) by_tensor_cores(product p)
{
    using S = shape<ROWS>;
    constexpr int A = tile_size<T, ROWS, !TA>, B = tile_size<T, COLUMNS, TB>;
    T *const tiles = reinterpret_cast<T *>(dynamic_floats());
    const piece w = TA ? piece_of_gradient(p, ROWS, COLUMNS) : piece_of_rows(p, ROWS, COLUMNS);
    const int warp = warp_uniform((int)threadIdx.x / LANES);
    const int row = warp / S::ACROSS * S::M * 16, column = warp % S::ACROSS * S::N * 8;
    float sum[S::M][S::N][4] = {};

    if (w.expert < 0 || stays(p, w))
        return; /* the whole block */
    feed<T, ROWS, !TA> a;
    feed<T, COLUMNS, TB> b;
    begin_feed(a, (const T *)p.a, TA ? p.m : p.k, w.row, w.end, w.from, w.to);
    begin_feed(b, own_matrix<T>(p, w), TB ? p.k : p.n, w.column, p.n, w.from, w.to);
    auto fetch_to = [&](int stage) {
        T *to = tiles + stage * (A + B);

        if (a.left > 0) {
            fetch(to, a);
            fetch(to + A, b);
        }
        copy_commit(); /* an empty one, too: groups are counted */
    };

#pragma unroll
    for (int s = 0; s < STAGES - 1; s++)
        fetch_to(s);
    for (int l = w.from, stage = 0; l < w.to; l += depth<T>) {
        const T *tile = tiles + stage * (A + B);

        copy_wait<STAGES - 2>();
        __syncthreads(); /* all have come; and all have done with the stage before */
        fetch_to(stage ? stage - 1 : STAGES - 1);
#pragma unroll
        for (int k = 0; k < depth<T>; k += mma_k<T>) {
            uint32_t fa[S::M][4], fb[S::N / 2][2][2];

#pragma unroll
            for (int m = 0; m < S::M; m++)
                read_a<ROWS, !TA>(fa[m], tile, row + m * 16, k);
#pragma unroll
            for (int n = 0; n < S::N / 2; n++)
                read_b<COLUMNS, TB>(fb[n], tile + A, column + n * 16, k);
#pragma unroll
            for (int m = 0; m < S::M; m++)
#pragma unroll
                for (int n = 0; n < S::N; n++)
                    mma<T>(sum[m][n], fa[m], fb[n / 2][n % 2]);
        }
        stage = stage + 1 < STAGES ? stage + 1 : 0;
    }
    write(p, w, own_result<C>(p, w), sum, w.row + row, w.column + column);
}

template <class T, int ROWS, bool TA, bool TB>
static void launch_tensor_cores(struct gpt_queue *q, const product &p, int64_t tiles)
{
    using C = std::conditional_t<TA, float, T>;
    const size_t stage = tile_size<T, ROWS, !TA> + tile_size<T, COLUMNS, TB>;

    launch(q, by_tensor_cores<T, C, ROWS, TA, TB>, tiles, THREADS, STAGES * stage * sizeof(T), p);
}

/* ---- the operation ---- */

/* Sets the numbers of tiles of this size; returns how many blocks there may be. Each expert's last
 * tile may have rows missing. */
static int64_t count_tiles(product &p, const struct gpt_expert_rows *rows, int64_t tall,
                           int64_t wide)
{
    const int64_t pairs = rows->n * rows->k;

    p.across = (unsigned)cuda_blocks(p.n, wide);
    p.down = (unsigned)cuda_blocks(p.m, tall);
    return p.across * (p.ta ? (int64_t)p.down * p.count
                            : pairs / tall + min(pairs, (int64_t)p.count));
}

/* True when tensor cores can: 16 bytes of each row at a time. */
static bool by_tensors(const struct gpt_expert_matmul *op)
{
    const enum gpt_dtype act = op->rows->act;

    return (act != GPT_F32 || cuda_uses_tf32()) && cuda_wide(act, op->n, op->a, op->b, op->c) &&
           cuda_wide(act, op->ta ? op->m : op->k);
}

/* Few rows an expert: of all that there may be, where they are spread evenly. */
static bool is_short(const struct gpt_expert_rows *rows)
{
    return rows->n * rows->k <= 64 * rows->count;
}

template <class T>
static void put_tensor_cores(struct gpt_queue *q, const struct gpt_expert_matmul *op, product &p)
{
    auto put = [&](auto tall) {
        const int ROWS = decltype(tall)::value;
        const int64_t tiles = count_tiles(p, op->rows, ROWS, COLUMNS);

        if (op->tb)
            launch_tensor_cores<T, ROWS, false, true>(q, p, tiles);
        else
            launch_tensor_cores<T, ROWS, false, false>(q, p, tiles);
    };

    if (op->ta)
        launch_tensor_cores<T, 128, true, false>(q, p, count_tiles(p, op->rows, 128, COLUMNS));
    else if (is_short(op->rows))
        put(std::integral_constant<int, 32>());
    else
        put(std::integral_constant<int, 128>());
}

template <class T>
static void put_threads(struct gpt_queue *q, const struct gpt_expert_matmul *op, product &p)
{
    const int64_t tiles = count_tiles(p, op->rows, TILE, TILE);

    if (op->ta)
        launch(q, by_threads<T, float>, tiles, THREADS, 0, p);
    else
        launch(q, by_threads<T, T>, tiles, THREADS, 0, p);
}

void cuda_expert_matmul(struct gpt_queue *q, const struct gpt_expert_matmul *op)
{
    const struct gpt_expert_rows *rows = op->rows;
    product p = {rows->begin + rows->first, (int)rows->count, (int)op->m, (int)op->n, (int)op->k,
                 op->ta, op->tb, op->a, op->b, op->c, op->ta ? op->beta : 0, 0, 0};

    const int64_t tall = op->ta ? op->m : rows->n * rows->k;
    if (!cuda_ready(q, "expert_matmul", rows->act) || !tall || !op->n || !rows->count)
        return;
    with_type(rows->act, [&](auto type) {
        using T = decltype(type);

        if (by_tensors(op))
            put_tensor_cores<T>(q, op, p);
        else
            put_threads<T>(q, op, p);
    });
}
