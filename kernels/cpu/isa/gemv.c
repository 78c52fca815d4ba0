/* Products with few rows: each row of w is read once, in order, at the speed
 * of memory, and meets all rows of x, which stay in the first cache. Start at
 * all_dots(). */
#include "cpu/isa/lanes.h"
#include "cpu/isa/weights.h"

#include "base/num.h"

enum { SHORT = 512 }; /* bytes of a row: below, nothing is asked for ahead */

/* A product that is not fused with a sum after it: whether the compiler fuses
 * would depend on M and R. */
static __attribute__((noinline)) float rounded_product(float x, float y)
{
    return x * y;
}

/* True when rows are read one after the other. AMD's processors foresee memory
 * that is read from its beginning to its end, and ask for twice as much of it
 * at once as a program can (Zen 4: 29 and 15 GB/s a core); they do not foresee
 * rows side by side. But 16 bytes of one row take as long as 16 floats, so that
 * bytes for one row of x come faster side by side. */
static inline bool reads_in_order(int64_t m, enum kind kind)
{
#if defined(__AVX512F__)
    return (m > 1 || kind == FLOATS || kind == BF16) &&
           __builtin_cpu_is("amd");
#else
    (void)m;
    (void)kind;
    return false;
#endif
}

/* On other processors, while a strip of rows is multiplied, the next one is
 * asked for: stretches side by side, as far apart as the processor foresees,
 * and far enough ahead of what is multiplied. A call has n rows, and the next
 * call those after them. Where rows are short, strips have the fewest rows, and
 * what follows a strip is left to the processor. */
static inline int64_t strip_of(int64_t row_bytes, int64_t n)
{
    enum { LEAST = 4, ENOUGH = 48 << 10 };
    int64_t rows = row_bytes < SHORT ? LEAST : ENOUGH / row_bytes;

    rows = rows < n ? rows : n;
    return rows < LEAST ? LEAST : rows / LEAST * LEAST;
}

/* Keeps v in a register: the compiler would load it again for each product. */
static inline vf held(vf v)
{
#if defined(__AVX512F__)
    __asm__("" : "+v"(v));
#elif defined(__SSE__)
    __asm__("" : "+x"(v));
#endif
    return v;
}

/* Where a product's inputs are, and where its results go. Inputs whose ldx is 0
 * are packed: W columns of each of up to EIGHT rows, then the next W. */
enum { EIGHT = W == 16 ? 8 : 4 };

struct ends {
    float *y;
    const float *x;
    int64_t ldy, ldx, m;
    bool add;
};

/* How many rows are multiplied at once from row i on. */
static inline int64_t rows_from(int64_t i, int64_t m)
{
    return m - i >= EIGHT ? EIGHT : m - i < 4 ? m - i : 4;
}

/* Memory that will be read soon, in order. It is asked for `step` lines at a
 * time. Near lines go to the first cache, others to the second, since the first
 * one asks for too few at once. */
struct ahead {
    const char *at, *end;
    int64_t step;
};

static inline __attribute__((always_inline)) void
fetch(struct ahead *a, const bool near)
{
    for (int64_t n = a->step; n > 0 && a->at < a->end; n--, a->at += 64)
        if (near)
            __builtin_prefetch(a->at, 0, 3);
        else
            __builtin_prefetch(a->at, 0, 2);
}

/* A part of a product: rows first .. end - 1 of w, columns begin .. to - 1 of
 * k. The sums over earlier columns are in `kept`, and the new ones go there,
 * too, until k is reached. */
enum { KEPT = 16 };

struct part {
    int64_t first, end, begin, to;
    vf (*kept)[EIGHT]; /* [row of w - first][row of x] */
    struct ahead *next;
};

/* Moves sums to the place where they are kept (`keep`), or back from there. */
static inline __attribute__((always_inline)) void
move_sums(vf acc[8][4], vf (*kept)[EIGHT], int64_t first, const int M,
          const int R, bool keep)
{
#pragma GCC unroll 8
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int r = 0; r < R; r++)
            if (keep)
                kept[r][first + i] = acc[i][r];
            else
                acc[i][r] = kept[r][first + i];
}

/* Writes results from the sums of M x R vectors. */
static inline __attribute__((always_inline)) void
put_results(const struct ends *e, const struct rows *w, vf acc[8][4],
            int64_t j, int64_t first_row, const int M, const int R,
            enum kind kind)
{
    float dot[24];
    vf flat[24];

#pragma GCC unroll 8
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int r = 0; r < R; r++)
            flat[i * R + r] = acc[i][r];
    sum_lanes(dot, flat, M * R);
#pragma GCC unroll 8
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            float *out = e->y + (first_row + i) * e->ldy + j + r;
            float sum = dot[i * R + r];

            /* one scale a row: that of the sum */
            if (kind == INT8)
                sum = rounded_product(sum, of_bf16(w->scales[j + r]));
            *out = e->add ? *out + sum : sum;
        }
}

/* Multiplies M rows of x with R rows of w from row j on; w is read from the
 * cache once for all M, x once for all R. Each result has one vector of sums,
 * so that it does not depend on M and R: a text is generated the same, to the
 * bit, whatever is generated beside it. */
static inline __attribute__((always_inline)) void
dots_of(const struct ends *e, const struct rows *w, const struct part *p,
        int64_t j, int64_t first_row, const int M, const int R, enum kind kind,
        bool packed)
{
    /* Sums live in registers, at most eight, or with AVX-512 24 of 32: what is
     * read of w then serves eight rows of x at once. The compiler sees M and R
     * as constants and drops the rest of the array. */
    vf acc[8][4] = {{{0}}}; /* [row of x][row of w] */
    const int64_t part = w->strip / R, past = j % w->strip;
    const int64_t ahead = j - past + w->strip + past / R;
    /* from one row to the next, and from W columns to those after them */
    const int64_t ldx = packed ? W : e->ldx, k = p->to;
    const int64_t on = packed ? e->m * W : W;
    const float *x = e->x + first_row * ldx;
    int64_t l = p->begin;

    if (l > 0)
        move_sums(acc, p->kept + j - p->first, first_row, M, R, false);
    for (; l + 2 * W <= k; l += 2 * W) {
        vf scale[4];

        /* 2 W columns have the same scale */
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            scale[r] = scale_of(w, j + r, l, kind);
            if (!w->in_order)
                __builtin_prefetch(value_at(w, ahead + r * part, l, kind));
        }
        fetch(p->next, M == 1);
#pragma GCC unroll 2
        for (int u = 0; u < 2; u++) {
            vf wr[4];

#pragma GCC unroll 4
            for (int r = 0; r < R; r++)
                wr[r] = weights(w, j + r, l + u * W, W, scale[r], kind);
#pragma GCC unroll 8
            for (int i = 0; i < M; i++) {
                const vf xi = held(load(x + i * ldx + (l / W + u) * on));

#pragma GCC unroll 4
                for (int r = 0; r < R; r++)
                    acc[i][r] += wr[r] * xi;
            }
        }
    }
    if (k < w->k) {
        move_sums(acc, p->kept + j - p->first, first_row, M, R, true);
        return;
    }
    for (; l < k; l += W) {
        /* The last part of a row: lanes past the end add zero times zero. */
        int64_t n = k - l < W ? k - l : W;
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            vf wr = weights(w, j + r, l, n, scale_of(w, j + r, l, kind), kind);
#pragma GCC unroll 8
            for (int i = 0; i < M; i++)
                acc[i][r] += wr *
                    (packed && M > 1
                         ? load(x + i * ldx + l / W * on)
                         : load_part(x + i * ldx + l / W * on, n, 0));
        }
    }
    put_results(e, w, acc, j, first_row, M, R, kind);
}

/* Multiplies all rows of a part with at most 8 rows of x. */
static inline __attribute__((always_inline)) void
some_dots(const struct ends *e, const struct rows *w, const struct part *p,
          enum kind kind, bool packed)
{
    const int64_t m = e->m;
    const bool alone = m == 1 && w->in_order;
    const int64_t pairs = alone && kind == FLOATS ? 0 : p->end;
    int64_t j = p->first;

    /* One row of x: four rows of w side by side keep as many streams of memory
     * open as other prefetchers follow; where w is read in order, one row of
     * floats, or two of bf16. More rows of x: two of w, or sums would not fit
     * the registers. */
    for (; m == 1 && !alone && j + 4 <= pairs; j += 4)
        dots_of(e, w, p, j, 0, 1, 4, kind, packed);
    for (; j + 2 <= pairs; j += 2)
        if (W == 16 && m == 8)
            dots_of(e, w, p, j, 0, 8, 2, kind, packed);
        else if (m == 4)
            dots_of(e, w, p, j, 0, 4, 2, kind, packed);
        else if (m == 3)
            dots_of(e, w, p, j, 0, 3, 2, kind, packed);
        else if (m == 2)
            dots_of(e, w, p, j, 0, 2, 2, kind, packed);
        else
            dots_of(e, w, p, j, 0, 1, 2, kind, packed);
    for (; j < p->end; j++)
        for (int64_t i = 0; i < m; i++)
            dots_of(e, w, p, j, i, 1, 1, kind, packed);
}

/* Multiplies some rows of x with a part of all of k. A block of x stays in the
 * first cache while rows of w pass, which come from the second, or from
 * memory. */
static inline __attribute__((always_inline)) void
block_dots(const struct ends *e, const struct rows *w, struct part *p,
           enum kind kind, bool packed)
{
    enum { FLOATS_OF_X = 6144 };
    const int64_t most = FLOATS_OF_X / e->m / (2 * W) * (2 * W);

    p->to = 0;
    do { /* once where k is 0: such sums are 0 */
        p->begin = p->to;
        p->to = w->in_order && e->m > 1 && w->k - p->begin > most
            ? p->begin + most
            : w->k;
        some_dots(e, w, p, kind, packed);
    } while (p->to < w->k);
}

/* How many bytes ahead memory is asked for that goes to the first cache. */
enum { NEAR = 6144 };

/* How many rows of w are taken at a time where they are read in order. */
static int64_t rows_at_once(const struct rows *w, int64_t row_bytes)
{
    enum { ENOUGH = 64 << 10 };
    const int64_t rows = ENOUGH / (row_bytes + 1) / 2 * 2;

    return !w->in_order ? w->n : rows < 4 ? 4 : rows < KEPT ? rows : KEPT;
}

/* Multiplies all rows of w. Rows of x stay in the first cache while rows of w
 * pass. Where w is read in order, the rows after those that are multiplied come
 * meanwhile. With floats and one row of x multiplying is faster than memory:
 * the processor itself looks ahead. */
static inline __attribute__((always_inline)) void
all_dots(const struct ends *e, const struct rows *w, enum kind kind,
         bool packed)
{
    const int64_t row = w->ld * (int64_t)value_bytes(kind), m = e->m;
    const int64_t rows = rows_at_once(w, row);
    const bool asks = w->in_order && (m > 1 || kind == BF16);
    vf kept[KEPT][EIGHT];

    for (int64_t j = 0; j < w->n; j += rows) {
        struct ahead next = {0};
        struct part p = {.first = j,
                         .end = w->n - j < rows ? w->n : j + rows,
                         .kept = kept,
                         .next = &next};

        if (asks && row >= SHORT) {
            next.at = value_at(w, p.end, 0, kind);
            next.end = next.at + rows * row;
            /* all rows of x share in asking */
            const int64_t lines = 4 * W * (int64_t)value_bytes(kind) / 64;

            next.step = gpt_ceil_div(lines, gpt_ceil_div(m, 8));
            /* one row of x leaves room in the first cache */
            if (m == 1) {
                next.at = value_at(w, j, 0, kind) + NEAR;
                next.end = value_at(w, p.end, 0, kind) + NEAR;
            }
        }
        for (int64_t i = 0, taken; i < m; i += taken) {
            taken = rows_from(i, m);
            const struct ends some = {
                e->y + i * e->ldy,
                e->x + i * (packed ? gpt_round_up(w->k, W) : e->ldx),
                e->ldy, e->ldx, taken, e->add};

            block_dots(&some, w, &p, kind, packed);
        }
    }
}

static inline __attribute__((always_inline)) void
multiply(const struct ends *e, struct rows *w, enum kind kind)
{
    w->strip = strip_of(w->ld * (int64_t)value_bytes(kind), w->n);
    w->in_order = reads_in_order(e->m, kind);
    /* one row is the same packed, but for its end */
    if (kind != FLOATS || (e->m > 1 && e->ldx == 0))
        all_dots(e, w, kind, true);
    else
        all_dots(e, w, kind, false);
}

void ISA(pack_x)(float *to, const float *x, int64_t m, int64_t i, int64_t k)
{
    int64_t first = 0;

    while (first + rows_from(first, m) <= i)
        first += rows_from(first, m);
    const int64_t step = rows_from(first, m) * W;

    to += first * gpt_round_up(k, W) + (i - first) * W;
    for (int64_t l = 0; l < k; l += W, to += step)
        store(to, any_load(x, l, k));
}

void ISA(dots)(float *y, int64_t ldy, const float *x, int64_t ldx,
               const float *w, int64_t ldw, int64_t m, int64_t n, int64_t k,
               bool add)
{
    const struct ends e = {y, x, ldy, ldx, m, add};
    struct rows rows = {.w = w, .ld = ldw, .n = n, .k = k};

    multiply(&e, &rows, FLOATS);
}

void ISA(dots_bf16)(float *y, int64_t ldy, const float *x, int64_t ldx,
                    const uint16_t *w, int64_t m, int64_t n, int64_t k,
                    bool add)
{
    const struct ends e = {y, x, ldy, ldx, m, add};
    struct rows rows = {.w = w, .ld = k, .n = n, .k = k};

    multiply(&e, &rows, BF16);
}

void ISA(dots_int8)(float *y, int64_t ldy, const float *x, int64_t ldx,
                    const int8_t *w, const uint16_t *scales, int64_t lds,
                    int64_t m, int64_t n, int64_t k, bool add)
{
    const struct ends e = {y, x, ldy, ldx, m, add};
    struct rows rows = {
        .w = w, .scales = scales, .ld = k, .lds = lds, .n = n, .k = k};

    if (lds)
        multiply(&e, &rows, INT8_GROUPS);
    else
        multiply(&e, &rows, INT8);
}

void ISA(widen_bytes)(float *y, const int8_t *x, float scale, int64_t n)
{
    int64_t i = 0;

    for (; i + W <= n; i += W)
        store(y + i, float_bytes((const char *)x + i) * all(scale));
    for (; i < n; i++)
        y[i] = (float)x[i] * scale;
}
