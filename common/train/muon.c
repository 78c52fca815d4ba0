/* Muon; see muon.h. Start at orthogonalise(), which is the iteration; what is
 * made orthogonal together is a `part`: a matrix, or the queries, the keys or
 * the values of one.
 *
 * The iteration is x <- a x + (b G + c G^2) x with G = x x^T, of which the
 * polynomial a s + b s^3 + c s^5 moves every singular value s towards 1. With
 * G = x^T x and the factor on the other side it is the same function; so G is
 * taken over the shorter dimension, or over the one that is not cut over
 * ranks. */
#include "train/muon.h"

#include "base/memory.h"
#include "base/num.h"

#include <assert.h>
#include <math.h>

const char *const gpt_muon_scales[] = {
    [GPT_MUON_SPECTRAL] = "spectral",
    [GPT_MUON_UNIT_RMS_NORM] = "unit_rms_norm",
    [GPT_MUON_SHAPE_SCALING] = "shape_scaling",
    NULL,
};
const char *const gpt_muon_coefficient_types[] = {
    [GPT_MUON_SIMPLE] = "simple",
    [GPT_MUON_QUINTIC] = "quintic",
    [GPT_MUON_POLAR_EXPRESS] = "polar_express",
    NULL,
};

/* The polynomials, one a step. More steps than polynomials begin anew, or
 * repeat the last one, which has 1 as its fixed point. Jordan 2024; Cesista et
 * al. 2025; Amsel et al. 2025, with a margin of 1 %. */
struct polynomial {
    double a, b, c;
};
static const struct {
    int n;
    bool repeats_last;
    struct polynomial each[8];
} polynomials[] = {
    [GPT_MUON_SIMPLE] = {1, true, {{3.4445, -4.7750, 2.0315}}},
    [GPT_MUON_QUINTIC] = {5, false,
                          {{4.0848, -6.8946, 2.9270},
                           {3.9505, -6.3029, 2.6377},
                           {3.7418, -5.5913, 2.3037},
                           {2.8769, -3.1427, 1.2046},
                           {2.8366, -3.0525, 1.2012}}},
    [GPT_MUON_POLAR_EXPRESS] =
        {8, true,
         {{8.237312490495555, -23.157747414558198, 16.680568411445915},
          {4.082441999064835, -2.893047735332586, 0.5252849256975648},
          {3.9263479922546582, -2.8547468034765298, 0.5318022422894988},
          {3.2982187133085143, -2.424541981026706, 0.48632008358844075},
          {2.2970369434552573, -1.63662558125903, 0.4002628455953627},
          {1.8763805351440397, -1.2347896577722228, 0.35891887501668385},
          {1.8564423485617974, -1.2132449880935525, 0.3568003487825883},
          {1.8749994008682747, -1.2499988017229169, 0.3749994008546422}}},
};

/* Sizes of the workspace in elements of float; see allocate(). */
struct sizes {
    int64_t place, packed, next, square;
};

struct gpt_muon {
    struct gpt_muon_options o;
    const struct gpt_flat *flat;
    struct gpt_backend *be;
    struct gpt_comm *tp, *dp;
    float *memory;         /* all of it */
    float *place;          /* see gpt_muon_place() */
    float *packed;         /* rows of queries, keys or values, together */
    float *next;           /* what a step of the iteration writes */
    float *gram, *squared; /* G, G^2 */
    double *squares;       /* the sum of squares of a part */
};

bool gpt_muon_updates(const struct gpt_param *p)
{
    return p->place == GPT_PLACE_LAYER && p->decay;
}

/* ---- parts ---- */

/* Rows that are made orthogonal together. In each of the slice's query groups
 * they are `each` rows from `first` on; a whole matrix is one group. */
struct part {
    int64_t groups, first, each; /* on this rank */
    int64_t columns;             /* on this rank */
    int64_t out, in;             /* of the matrix whose form scales it */
    bool shared;                 /* tensor parallel ranks have a part each */
    bool by_columns;             /* G is over columns */
};

static int64_t part_rows(const struct part *p)
{
    return p->groups * p->each;
}

/* The dimension of G. */
static int64_t part_side(const struct part *p)
{
    return p->by_columns ? p->columns : part_rows(p);
}

/* How many parts a slice has: those of queries, keys and values, or a rank's
 * matrices of experts. */
static int64_t count_parts(const struct gpt_muon_options *o,
                           const struct gpt_slice *s)
{
    const struct gpt_param *p = s->param;

    if (p->role == GPT_QKV_WEIGHT && o->split_qkv)
        return 3;
    return p->matrices == 1 ? 1 : p->matrices * s->shape[0] / p->shape[0];
}

/* Part i of those of experts, which are a rank's own. */
static struct part expert_part(const struct gpt_slice *s, int64_t n, int64_t i)
{
    const int64_t rows = s->shape[0] / n;

    return (struct part){
        .groups = 1,
        .first = i * rows,
        .each = rows,
        .columns = s->shape[1],
        .out = rows,
        .in = s->shape[1],
        .by_columns = rows > s->shape[1],
    };
}

/* Part i of a slice. Ranks share a matrix but in blockwise mode, where the part
 * of a rank has a form of its own. */
static struct part part_of(const struct gpt_muon_options *o,
                           const struct gpt_flat *flat,
                           const struct gpt_slice *s, int64_t i)
{
    const struct gpt_param *p = s->param;
    const bool shared = flat->tp_size > 1 && !o->blockwise &&
                        p->split != GPT_SPLIT_NONE;
    const bool qkv = p->role == GPT_QKV_WEIGHT && o->split_qkv;
    const int64_t unit = qkv ? p->split_unit : s->shape[0];
    const int64_t d = qkv ? p->key_rows : 0, queries = unit - 2 * d;
    const int64_t cut = shared && p->split != GPT_SPLIT_COLUMNS
                            ? flat->tp_size
                            : 1;
    struct part to = {
        .groups = s->shape[0] / unit,
        .first = i == 0 ? 0 : queries + (i - 1) * d,
        .each = i == 0 ? queries : d,
        .columns = s->shape[1],
        .shared = shared,
    };

    if (p->matrices > 1)
        return expert_part(s, count_parts(o, s), i);
    assert(queries > 0 && s->shape[0] % unit == 0);
    to.out = part_rows(&to) * cut;
    to.in = shared ? p->shape[1] : s->shape[1];
    to.by_columns = shared ? p->split != GPT_SPLIT_COLUMNS
                           : part_rows(&to) > to.columns;
    return to;
}

/* An orthogonal matrix has singular values of 1, whatever its shape: the factor
 * decides how far a step moves an output. */
static double part_scale(const struct gpt_muon_options *o, const struct part *p)
{
    const double out = (double)p->out, in = (double)p->in;

    switch (o->scale) {
    case GPT_MUON_SPECTRAL:
        return o->extra_scale * sqrt(fmax(out, in));
    case GPT_MUON_UNIT_RMS_NORM:
        return o->extra_scale * sqrt(out / in);
    case GPT_MUON_SHAPE_SCALING:
        return o->extra_scale * sqrt(fmax(1, out / in));
    }
    return o->extra_scale;
}

/* ---- sizes ---- */

/* The slices are walked by prediction and allocation alike. */
static struct sizes count_sizes(const struct gpt_muon_options *o,
                                const struct gpt_flat *flat)
{
    struct sizes n = {0};

    for (int64_t i = 0; i < flat->n; i++) {
        const struct gpt_slice *s = &flat->slices[i];
        const struct gpt_bucket *b = &flat->buckets[s->bucket];

        if (!gpt_muon_updates(s->param))
            continue;
        n.place = gpt_max_i64(n.place,
                              flat->shards > 1 ? b->end - b->begin : s->count);
        n.next = gpt_max_i64(n.next, s->count);
        for (int64_t k = 0; k < count_parts(o, s); k++) {
            const struct part part = part_of(o, flat, s, k);

            n.square = gpt_max_i64(n.square,
                                   part_side(&part) * part_side(&part));
        }
        if (count_parts(o, s) > 1)
            n.packed = gpt_max_i64(n.packed, s->count);
    }
    n.place = gpt_round_up(n.place, 64);
    n.packed = gpt_round_up(n.packed, 64);
    n.next = gpt_round_up(n.next, 64);
    n.square = gpt_round_up(n.square, 64);
    return n;
}

/* The sum of squares is a double at the end, with its own cache line. */
int64_t gpt_muon_memory(const struct gpt_muon_options *o,
                        const struct gpt_flat *flat)
{
    const struct sizes n = count_sizes(o, flat);

    return (n.place + n.packed + n.next + 2 * n.square) *
               (int64_t)sizeof(float) +
           64;
}

/* The largest call decides what a communicator holds; the sum of squares, a
 * double, is smaller than any of these. */
int64_t gpt_muon_sum(const struct gpt_muon_options *o,
                     const struct gpt_flat *flat)
{
    int64_t most = 0;

    for (int64_t i = 0; i < flat->n; i++) {
        const struct gpt_slice *s = &flat->slices[i];

        if (!gpt_muon_updates(s->param))
            continue;
        for (int64_t k = 0; k < count_parts(o, s); k++) {
            const struct part part = part_of(o, flat, s, k);

            if (part.shared)
                most = gpt_max_i64(most, part_side(&part) * part_side(&part));
        }
    }
    return most;
}

bool gpt_muon_gathers(const struct gpt_flat *flat, int64_t bucket)
{
    const struct gpt_bucket *b = &flat->buckets[bucket];

    for (int64_t i = b->first_slice; i < b->end_slice; i++)
        if (gpt_muon_updates(flat->slices[i].param))
            return flat->shards > 1;
    return false;
}

int64_t gpt_muon_gather(const struct gpt_flat *flat)
{
    int64_t most = 0;

    for (int64_t b = 0; b < flat->n_buckets; b++)
        if (gpt_muon_gathers(flat, b))
            most = gpt_max_i64(most,
                               (flat->buckets[b].end - flat->buckets[b].begin) /
                                   flat->shards);
    return most;
}

/* A rank makes those matrices orthogonal that its shard is a part of. */
double gpt_muon_sums(const struct gpt_muon_options *o,
                     const struct gpt_flat *flat)
{
    double sum = 0;

    for (int64_t i = 0; i < flat->n; i++) {
        const struct gpt_slice *s = &flat->slices[i];

        if (!gpt_muon_updates(s->param) || gpt_slice_shard(flat, s).end == 0)
            continue;
        for (int64_t k = 0; k < count_parts(o, s); k++) {
            const struct part part = part_of(o, flat, s, k);

            if (part.shared) /* a double is two floats */
                sum += 2 + (double)o->steps * (double)part_side(&part) *
                               (double)part_side(&part);
        }
    }
    return sum;
}

/* ---- open and close ---- */

int gpt_muon_open(struct gpt_muon **muon, struct gpt_backend *be,
                  const struct gpt_muon_options *options,
                  const struct gpt_flat *flat, struct gpt_comm *tp,
                  struct gpt_comm *dp, struct gpt_err *err)
{
    const struct sizes n = count_sizes(options, flat);
    struct gpt_muon *m;
    void *memory;

    *muon = NULL;
    GPT_TRY(gpt_new(&m, 1, sizeof(*m), "the optimizer", err));
    *m = (struct gpt_muon){
        .o = *options, .flat = flat, .be = be, .tp = tp, .dp = dp};
    int status = be->alloc(be, (size_t)gpt_muon_memory(options, flat),
                           "Muon's workspace", &memory, err);
    if (status != GPT_OK) {
        gpt_free(m);
        return status;
    }
    m->memory = memory;
    m->place = m->memory;
    m->packed = m->place + n.place;
    m->next = m->packed + n.packed;
    m->gram = m->next + n.next;
    m->squared = m->gram + n.square;
    m->squares = (double *)(void *)(m->squared + n.square);
    *muon = m;
    return GPT_OK;
}

void gpt_muon_close(struct gpt_muon *m)
{
    if (!m)
        return;
    m->be->free(m->be, m->memory);
    gpt_free(m);
}

/* ---- the iteration ---- */

/* G, summed over the ranks that share the part. */
static void make_gram(struct gpt_muon *m, struct gpt_queue *q,
                      const struct part *p, const float *x)
{
    const int64_t side = part_side(p);
    const struct gpt_matmul gram = {
        .m = side,
        .n = side,
        .k = p->by_columns ? part_rows(p) : p->columns,
        .ta = p->by_columns,
        .tb = !p->by_columns,
        .a = x,
        .b = x,
        .c = m->gram,
        .act = GPT_F32,
        .c_type = GPT_F32,
    };

    m->be->matmul(q, &gram);
    if (p->shared)
        gpt_comm_all_reduce(m->tp, q, m->gram, side * side, GPT_F32, GPT_SUM);
}

/* m->squared = b G + c G^2. */
static void make_polynomial(struct gpt_muon *m, struct gpt_queue *q,
                            int64_t side, const struct polynomial *f)
{
    const struct gpt_matmul square = {
        .m = side, .n = side, .k = side, .a = m->gram, .b = m->gram,
        .c = m->squared, .act = GPT_F32, .c_type = GPT_F32,
    };
    const struct gpt_mix sum = {
        .n = side * side, .out = m->squared, .x = m->gram, .y = m->squared,
        .a = f->b, .b = f->c,
    };

    m->be->matmul(q, &square);
    m->be->mix(q, &sum);
}

/* y = a x + (b G + c G^2) x, or with the factor on the right. */
static void iterate(struct gpt_muon *m, struct gpt_queue *q,
                    const struct part *p, const struct polynomial *f,
                    const float *x, float *y)
{
    const int64_t rows = part_rows(p);
    const struct gpt_mix start = {
        .n = rows * p->columns, .out = y, .x = x, .a = f->a};
    const struct gpt_matmul add = {
        .m = rows,
        .n = p->columns,
        .k = part_side(p),
        .a = p->by_columns ? x : m->squared,
        .b = p->by_columns ? m->squared : x,
        .c = y,
        .act = GPT_F32,
        .c_type = GPT_F32,
        .beta = 1,
    };

    make_gram(m, q, p, x);
    make_polynomial(m, q, part_side(p), f);
    m->be->mix(q, &start);
    m->be->matmul(q, &add);
}

/* Makes the part at x orthogonal: x and y are written in turns. Returns the one
 * that has the result. Its norm is 1 at first, so that no singular value is
 * above 1, where the polynomials would lead away. */
static float *orthogonalise(struct gpt_muon *m, struct gpt_queue *q,
                            const struct part *p, float *x, float *y)
{
    const struct gpt_mix normalize = {
        .n = part_rows(p) * p->columns, .out = x, .x = x, .a = 1,
        .squares = m->squares, .least = 1e-7,
    };

    m->be->sumsq(q, m->squares, x, normalize.n);
    if (p->shared)
        gpt_comm_all_reduce(m->tp, q, m->squares, 1, GPT_F64, GPT_SUM);
    m->be->mix(q, &normalize);
    for (int64_t i = 0; i < m->o.steps; i++) {
        const int n = polynomials[m->o.coefficients].n;
        const int64_t k =
            i < n || !polynomials[m->o.coefficients].repeats_last ? i % n
                                                                  : n - 1;
        float *swap = x;

        iterate(m, q, p, &polynomials[m->o.coefficients].each[k], x, y);
        x = y;
        y = swap;
    }
    return x;
}

/* ---- matrices ---- */

float *gpt_muon_place(struct gpt_muon *m, int64_t bucket, int64_t begin)
{
    if (m->flat->shards == 1)
        return m->place;
    return m->place + begin - m->flat->buckets[bucket].begin;
}

/* In place: every rank's shard is where it belongs in the bucket. What of the
 * bucket is no matrix travels too, and is not read. */
void gpt_muon_gather_bucket(struct gpt_muon *m, struct gpt_queue *q,
                            int64_t bucket)
{
    const struct gpt_flat *flat = m->flat;
    int64_t begin, end;

    assert(gpt_muon_gathers(flat, bucket));
    gpt_bucket_shard(flat, bucket, flat->shard, &begin, &end);
    gpt_comm_all_gather(m->dp, q, m->place,
                        gpt_muon_place(m, bucket, begin), end - begin, GPT_F32);
}

/* Copies the rows of a part out of the matrix, or back. Query groups are few,
 * and the rows of one lie together. */
static void copy_rows(struct gpt_muon *m, struct gpt_queue *q,
                      const struct part *p, float *matrix, int64_t unit,
                      float *rows, bool back)
{
    const int64_t n = p->each * p->columns;

    for (int64_t g = 0; g < p->groups; g++) {
        float *there = matrix + (g * unit + p->first) * p->columns;
        float *here = rows + g * n;

        m->be->copy(q, back ? there : here, back ? here : there,
                    (size_t)n * sizeof(*rows));
    }
}

/* A whole matrix stays where it is, or ends in the other buffer of the
 * iteration; parts are put back into their rows. */
const float *gpt_muon_orthogonal(struct gpt_muon *m, struct gpt_queue *q,
                                 const struct gpt_slice *s)
{
    float *matrix = gpt_muon_place(m, s->bucket, s->offset);
    const int64_t n = count_parts(&m->o, s);

    for (int64_t i = 0; i < n; i++) {
        const struct part part = part_of(&m->o, m->flat, s, i), *p = &part;
        float *x = n > 1 ? m->packed : matrix;

        if (n > 1)
            copy_rows(m, q, p, matrix, s->param->split_unit, x, false);
        x = orthogonalise(m, q, p, x, m->next);
        const struct gpt_mix scale = {.n = part_rows(p) * p->columns,
                                        .out = x,
                                        .x = x,
                                        .a = part_scale(&m->o, p)};
        m->be->mix(q, &scale);
        if (n == 1)
            return x;
        copy_rows(m, q, p, matrix, s->param->split_unit, x, true);
    }
    return matrix;
}
