/* Adding a product to a rectangle of a matrix in memory; see merge_internal.h.
 * Start at gpt_merge_add().
 *
 * The factor that runs along a line is kept as a panel of doubles, for as many
 * positions as fit. Tiles that follow each other have the same positions, so a
 * panel is read once for many of them, and the cost is that of the sums. A
 * panel is a list of strips of LANES positions; in a strip, the positions of a
 * rank are together. So a strip is one stretch of memory, which stays in the
 * cache while all lines of a block take their sums from it. */
#include "checkpoint/merge_internal.h"

#include "base/cpu.h"
#include "base/num.h"

#include <float.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <math.h>
#include <pthread.h>
#include <string.h>

enum {
    LANES = 16,      /* positions of a strip, whose sums are in registers */
    GROUP = 4,       /* lines whose sums are */
    LINES = 16,      /* lines of a block */
    PANEL = 1 << 18, /* doubles of a panel */
    LEFTS = 1 << 14, /* doubles of a block's lines */
    LOADED = LINES * GPT_MERGE_BLOCK / 2, /* doubles that are read at once */
};

struct room {
    struct gpt_merge_room open;
    const struct gpt_merging *of; /* whose panel it is, or NULL, */
    int64_t from;                 /* and of which positions */
    double panel[PANEL], lefts[LEFTS];
    union {
        double loaded[LOADED]; /* of the panel, row after row */
        float sums[LINES * GPT_MERGE_BLOCK];
    };
    float base[GPT_MERGE_BLOCK];
};

_Static_assert(sizeof(struct room) <= GPT_MERGE_SCRATCH, "see merge.h");
_Static_assert(PANEL / GPT_MERGE_RANK >= LANES, "a strip fits");

static int64_t rank_of(const struct gpt_product *p)
{
    return p->left.shape[1];
}

/* ---- sums ---- */

typedef double eight __attribute__((vector_size(64)));
typedef float eight_floats __attribute__((vector_size(32)));

/* Sums over the rank of `lines` lines at the LANES positions of a strip:
 * to[i][j] = left[i][0] strip[0][j] + left[i][1] strip[1][j] + ... Lines of
 * `left` are `rank` apart, those of `to` GPT_MERGE_BLOCK. */
#define SUM(isa, target, STEP)                                            \
    target static inline __attribute__((always_inline)) void group_##isa( \
        float *to, const double *left, const double *strip, int64_t rank, \
        int lines)                                                        \
    {                                                                     \
        eight s[GROUP][LANES / 8] = {{{0}}}, v;                           \
                                                                          \
        for (int64_t k = 0; k < rank; k++)                                \
            for (int j = 0; j < LANES / 8; j++) {                         \
                memcpy(&v, strip + k * LANES + 8 * j, sizeof(v));         \
                for (int i = 0; i < lines; i++)                           \
                    s[i][j] = STEP(s[i][j], left[i * rank + k], v);       \
            }                                                             \
        for (int i = 0; i < lines; i++)                                   \
            for (int j = 0; j < LANES / 8; j++) {                         \
                const eight_floats f =                                    \
                    __builtin_convertvector(s[i][j], eight_floats);       \
                memcpy(to + i * GPT_MERGE_BLOCK + 8 * j, &f, sizeof(f));  \
            }                                                             \
    }                                                                     \
    target static void sum_##isa(float *to, const double *left,           \
                                 const double *strip, int64_t rank,       \
                                 int64_t lines)                           \
    {                                                                     \
        int64_t i = 0;                                                    \
                                                                          \
        for (; i + GROUP <= lines; i += GROUP)                            \
            group_##isa(to + i * GPT_MERGE_BLOCK, left + i * rank, strip, \
                        rank, GROUP);                                     \
        for (; i < lines; i++)                                            \
            group_##isa(to + i * GPT_MERGE_BLOCK, left + i * rank, strip, \
                        rank, 1);                                         \
    }

typedef void sum_function(float *to, const double *left, const double *strip,
                          int64_t rank, int64_t lines);

/* One rounding more or less is none where the product is exact, as that of two
 * floats in a double is: fused, the sums have the same bits. Factors of doubles
 * are multiplied, then added, on all processors. */
#define ADD(sum, a, v) ((sum) + (a) * (v))
#if defined(__x86_64__) && defined(GPT_HAVE_ISA_avx512)
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,fma")))
#define FUSED(sum, a, v) \
    ((eight)_mm512_fmadd_pd(_mm512_set1_pd(a), (__m512d)(v), (__m512d)(sum)))
SUM(base, , ADD)
SUM(avx2, __attribute__((target("avx2"))), ADD)
SUM(avx512, AVX512, ADD)
SUM(fused, AVX512, FUSED)
static sum_function *const sums[2][3] = {
    {sum_base, sum_avx2, sum_avx512}, {sum_base, sum_avx2, sum_fused}};
#else
SUM(base, , ADD)
static sum_function *const sums[2][3] = {{sum_base, sum_base, sum_base},
                                         {sum_base, sum_base, sum_base}};
#endif

static int loops;

static void find_best(void)
{
    loops = gpt_cpu_loops();
}

static sum_function *best_sum(const struct gpt_product *p)
{
    const bool exact = p->left.dtype != GPT_F64 && p->right.dtype != GPT_F64;

    return sums[exact][loops];
}

/* ---- memory of a thread ---- */

/* A room begins with what is open of it. */
static struct room *open_room(struct gpt_merge_room *room)
{
    return (struct room *)(void *)room;
}

static void free_room(struct gpt_merge_room *room)
{
    gpt_free(room);
}

static int64_t panel_width(int64_t rank)
{
    return PANEL / rank / LANES * LANES;
}

int gpt_merge_make_room(struct gpt_merge_room **room, struct gpt_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct room *r;

    pthread_once(&once, find_best);
    if (*room)
        return GPT_OK;
    GPT_TRY(gpt_new(&r, 1, sizeof(*r), "merging", err));
    r->open.free = free_room;
    *room = &r->open;
    return GPT_OK;
}

/* Rows [k, k + rows) of what was loaded, of positions [at, at + n) of the
 * panel, go to their strips. Lanes behind the last position are zeros. */
static void put_in_strips(struct room *room, int64_t rank, int64_t k,
                          int64_t rows, int64_t at, int64_t n)
{
    for (int64_t j = 0; j < n; j += LANES) {
        double *strip = room->panel + (at + j) * rank + k * LANES;
        const int64_t lanes = gpt_min_i64(LANES, n - j);

        for (int64_t i = 0; i < rows; i++) {
            memset(strip + i * LANES, 0, LANES * sizeof(double));
            memcpy(strip + i * LANES, room->loaded + i * n + j,
                   (size_t)lanes * sizeof(double));
        }
    }
}

/* Positions [from, from + width) of the factor that runs along lines, as many
 * as there are. Whole rows are read together where they are short. */
static int load_panel(const struct gpt_merging *m, struct room *room,
                      int64_t from, struct gpt_err *err)
{
    const struct gpt_product *p = m->product;
    const struct gpt_tensor *along = m->columns ? &p->left_turned : &p->right;
    const int64_t rank = rank_of(p);
    const int64_t n = gpt_min_i64(panel_width(rank), m->at + m->n - from);
    const int64_t wide = gpt_min_i64(n, LOADED), high = LOADED / wide;

    if (room->of == m && room->from == from)
        return GPT_OK;
    room->of = NULL;
    for (int64_t i = 0; along->n == 0 && i < n; i++)
        room->panel[i] = 1; /* of one line, of rank 1 */
    for (int64_t j = 0; along->n && j < n; j += wide)
        for (int64_t k = 0; k < rank; k += high) {
            const int64_t begin[GPT_TENSOR_DIMS] = {k, from + j};
            const int64_t shape[GPT_TENSOR_DIMS] = {gpt_min_i64(high, rank - k),
                                                    gpt_min_i64(wide, n - j)};

            GPT_TRY(gpt_tensor_gather(along, begin, shape, GPT_F64,
                                      room->loaded, err));
            put_in_strips(room, rank, k, shape[0], j, shape[1]);
        }
    room->of = m;
    room->from = from;
    return GPT_OK;
}

/* The other factor, of lines [line, line + n). */
static int load_lefts(const struct gpt_merging *m, struct room *room,
                      int64_t line, int64_t n, struct gpt_err *err)
{
    const struct gpt_product *p = m->product;
    const struct gpt_tensor *across = m->columns ? &p->right_turned : &p->left;
    const int64_t begin[GPT_TENSOR_DIMS] = {line};
    const int64_t shape[GPT_TENSOR_DIMS] = {n, rank_of(p)};

    for (int64_t i = 0; across->n == 0 && i < n; i++)
        room->lefts[i] = 1;
    return across->n ? gpt_tensor_gather(across, begin, shape, GPT_F64,
                                         room->lefts, err)
                     : GPT_OK;
}

/* ---- blocks ---- */

/* Largest float whose rounding to the type is finite. */
static float largest(enum gpt_dtype type)
{
    return type == GPT_F16    ? 65519.996F
           : type == GPT_BF16 ? 3.3961775e38F
                              : FLT_MAX;
}

static int fail_of_sum(const struct gpt_merging *m, double base, double sum,
                       int64_t line, int64_t at, struct gpt_err *err)
{
    return gpt_fail(err, GPT_EDATA,
                    "%s: element %lld, %lld of the model's %s is %g, and with "
                    "the adapter %g, which %s does not hold",
                    m->product->what, (long long)(m->columns ? at : line),
                    (long long)(m->columns ? line : at), m->product->base.name,
                    base, sum, gpt_dtype_name(m->kept));
}

/* What output j of a line is multiplied by; 1 without lengths. */
static float factor_of(const struct gpt_merging *m,
                       const struct gpt_merge_area *l, int64_t j)
{
    return !l->factors ? 1
                       : l->factors[m->product->out_rows != m->columns
                                        ? l->line
                                        : l->at + j];
}

/* The sums of a line become merged elements. That all are finite is found
 * without a branch; which one is not, afterwards. */
static int add_line(const struct gpt_merging *m, const struct gpt_merge_area *l,
                    const float *base, float *sum, float scale,
                    struct gpt_err *err)
{
    const float most = largest(m->kept);
    const int64_t n = l->n;
    int beyond = 0;

    for (int64_t j = 0; j < n; j++)
        sum[j] = base[j] + sum[j] * scale;
    for (int64_t j = 0; l->factors && j < n; j++)
        sum[j] *= factor_of(m, l, j);
    for (int64_t j = 0; j < n; j++)
        beyond |= !(fabsf(sum[j]) <= most); /* a NaN compares false */
    /* what the file has itself is left alone */
    for (int64_t j = 0; beyond && j < n; j++)
        if (!(fabsf(sum[j]) <= most) && isfinite(base[j]))
            return fail_of_sum(m, (double)base[j], (double)sum[j], l->line,
                               l->at + j, err);
    return GPT_OK;
}

/* A matrix of doubles: the sum is of double then. */
static void add_doubles(const struct gpt_merging *m,
                        const struct gpt_merge_area *l, const float *sum)
{
    double *x = (double *)(void *)l->dst;

    for (int64_t j = 0; j < l->n; j++) {
        const float scaled = sum[j] * m->product->scale;

        x[j] = (x[j] + (double)scaled) * (double)factor_of(m, l, j);
    }
}

/* Rounds n <= GPT_MERGE_BLOCK floats to a type of two bytes. */
void gpt_merge_round_floats(float *x, enum gpt_dtype type, int64_t n)
{
    uint16_t rounded[GPT_MERGE_BLOCK];

    if (gpt_dtype_bytes(type) != 2)
        return;
    (void)!gpt_convert(rounded, type, x, GPT_F32, (size_t)n);
    (void)!gpt_convert(x, GPT_F32, rounded, type, (size_t)n);
}

/* Scales sums and rounds them to the type of the matrix. */
static void round_sums(const struct gpt_merging *m, float *sum, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        sum[j] *= m->product->scale;
    gpt_merge_round_floats(sum, m->kept, n);
}

/* At most GPT_MERGE_BLOCK elements of one line. */
static int finish_line(const struct gpt_merging *m, struct room *room,
                       const struct gpt_merge_area *l, float *sum,
                       struct gpt_err *err)
{
    const bool narrow = gpt_dtype_bytes(m->kept) == 2;
    const bool rounds = m->product->rounds && narrow;

    if (m->dtype == GPT_F64) {
        add_doubles(m, l, sum);
        return GPT_OK;
    }
    if (!gpt_convert(room->base, GPT_F32, l->dst, m->dtype, (size_t)l->n))
        return gpt_fail(err, GPT_EDATA,
                        "%s: cannot be added to elements of "
                        "type %s",
                        m->product->what, gpt_dtype_name(m->dtype));
    if (rounds)
        round_sums(m, sum, l->n);
    GPT_TRY(add_line(m, l, room->base, sum, rounds ? 1 : m->product->scale,
                     err));
    if (narrow && m->dtype != m->kept)
        gpt_merge_round_floats(sum, m->kept, l->n);
    (void)!gpt_convert(l->dst, m->dtype, sum, GPT_F32, (size_t)l->n);
    return GPT_OK;
}

/* A block of lines, whose positions are of one block of the panel. Its strips
 * are summed from the one that has the first of them on. */
static int add_block(const struct gpt_merging *m, struct room *room,
                     const struct gpt_merge_area *block, struct gpt_err *err)
{
    const int64_t rank = rank_of(m->product);
    const int64_t before = (block->at - room->from) % LANES;
    const double *strip =
        room->panel + (block->at - room->from - before) * rank;
    struct gpt_merge_area line = *block;

    sum_function *const sum = best_sum(m->product);

    for (int64_t j = 0; j < before + block->n; j += LANES)
        sum(room->sums + j, room->lefts, strip + j * rank, rank, block->lines);
    line.lines = 1;
    for (int64_t i = 0; i < block->lines; i++) {
        GPT_TRY(finish_line(m, room, &line,
                            room->sums + i * GPT_MERGE_BLOCK + before, err));
        line.dst += m->pitch;
        line.line++;
    }
    return GPT_OK;
}

/* The part of an area that lines [line, line + lines) and elements [at, end)
 * are. */
static struct gpt_merge_area part_of(const struct gpt_merging *m,
                                     const struct gpt_merge_area *area,
                                     int64_t line, int64_t lines, int64_t at,
                                     int64_t end)
{
    struct gpt_merge_area part = *area;

    part.dst += (line - area->line) * m->pitch +
                (at - area->at) * (int64_t)gpt_dtype_bytes(m->dtype);
    part.line = line;
    part.lines = lines;
    part.at = at;
    part.n = end - at;
    return part;
}

int gpt_merge_add(const struct gpt_merging *m, struct gpt_merge_room *own,
                  const struct gpt_merge_area *area, struct gpt_err *err)
{
    struct room *room = open_room(own);
    const int64_t rank = rank_of(m->product), width = panel_width(rank);
    const int64_t most = gpt_max_i64(1, gpt_min_i64(LINES, LEFTS / rank));
    const int64_t end = area->at + area->n;
    const int64_t last = area->line + area->lines;

    for (int64_t x = area->at, panel_end; x < end; x = panel_end) {
        const int64_t from = m->at + (x - m->at) / width * width;

        panel_end = gpt_min_i64(end, from + width);
        GPT_TRY(load_panel(m, room, from, err));
        for (int64_t i = area->line; i < last; i += most) {
            const int64_t k = gpt_min_i64(most, last - i);

            GPT_TRY(load_lefts(m, room, i, k, err));
            for (int64_t j = x, next; j < panel_end; j = next) {
                next = gpt_min_i64(panel_end, j + GPT_MERGE_BLOCK -
                                                  (j - from) % GPT_MERGE_BLOCK);
                const struct gpt_merge_area block =
                    part_of(m, area, i, k, j, next);

                GPT_TRY(add_block(m, room, &block, err));
            }
        }
    }
    return GPT_OK;
}
