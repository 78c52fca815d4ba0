/* Tensors as lists of pieces: building, checking, views. What moves bytes is in
 * move.c. The one idea of geometry is the intersection of boxes; a view is a
 * piece intersected with a rule, in other coordinates.
 *
 * Cost: a view visits every piece for every rule. Pieces are few (a tensor is
 * cut by tensor parallelism and at the ends of shards), and so are rules (three
 * a query group for QKV). */
#include "checkpoint/plan.h"

#include "base/memory.h"
#include "base/num.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BESIDE = 1024 };

struct gpt_tensor gpt_tensor_make(const char *name, enum gpt_dtype dtype,
                                  int ndim, const int64_t *shape)
{
    struct gpt_tensor t = {.name = name, .dtype = dtype, .ndim = ndim};

    assert(ndim >= 0 && ndim <= GPT_TENSOR_DIMS);
    for (int d = 0; d < ndim; d++)
        t.shape[d] = shape[d];
    return t;
}

void gpt_tensor_free(struct gpt_tensor *t)
{
    gpt_free(t->pieces);
    *t = (struct gpt_tensor){0};
}

/* The limit is on what a hostile manifest can make the checks below do, not on
 * what a real checkpoint has. */
int gpt_tensor_add(struct gpt_tensor *t, const struct gpt_file_box *p,
                   struct gpt_err *err)
{
    if (t->n == GPT_TENSOR_PIECES)
        return gpt_fail(err, GPT_EDATA,
                        "tensor '%s' has more than %d pieces", t->name,
                        GPT_TENSOR_PIECES);
    GPT_TRY(gpt_grow(&t->pieces, &t->cap, t->n + 1, sizeof(*t->pieces),
                     "pieces of a tensor", err));
    t->pieces[t->n++] = *p;
    return GPT_OK;
}

/* A tensor without pieces has a type by default, which is none of theirs. */
void gpt_tensor_widen(struct gpt_tensor *t, enum gpt_dtype of_pieces)
{
    t->dtype = t->n ? gpt_dtype_join(t->dtype, of_pieces) : of_pieces;
}

/* Computes the strides of a tight box, innermost first. A shape whose bytes
 * overflow is refused here, before an offset is computed from it. */
int gpt_tensor_add_rows(struct gpt_tensor *t, struct gpt_in *in,
                        int64_t offset, enum gpt_dtype dtype,
                        const int64_t *begin, const int64_t *shape,
                        struct gpt_err *err)
{
    struct gpt_file_box p = {.in = in, .offset = offset, .dtype = dtype};
    int64_t stride = (int64_t)gpt_dtype_bytes(dtype);

    for (int d = t->ndim - 1; d >= 0; d--) {
        p.begin[d] = begin[d];
        p.shape[d] = shape[d];
        p.stride[d] = stride;
        if (!gpt_mul(stride, shape[d], &stride))
            return gpt_fail(err, GPT_EDATA, "tensor '%s': size overflows",
                            t->name);
    }
    return gpt_tensor_add(t, &p, err);
}

/* The elements are at most three boxes: the rest of a row, whole rows, and the
 * beginning of another row. */
int gpt_tensor_add_flat(struct gpt_tensor *t, const struct gpt_file_box *p,
                        int64_t from, int64_t end, struct gpt_err *err)
{
    const int64_t size = (int64_t)gpt_dtype_bytes(p->dtype);
    const int64_t columns = t->ndim > 1 ? p->shape[1] : end;
    int64_t offset = p->offset;

    assert(t->ndim <= 2);
    while (from < end) {
        const int64_t column = from % columns, rest = end - from;
        const int64_t rows =
            column == 0 && rest >= columns ? rest / columns : 1;
        const int64_t width = gpt_min_i64(columns - column, rest);
        int64_t at[2] = {p->begin[0] + from, 0}, box[2] = {width, 1};

        if (t->ndim > 1) {
            at[0] = p->begin[0] + from / columns;
            at[1] = p->begin[1] + column;
            box[0] = rows;
            box[1] = width;
        }
        GPT_TRY(gpt_tensor_add_rows(t, p->in, offset, p->dtype, at, box, err));
        from += rows * width;
        offset += rows * width * size;
    }
    return GPT_OK;
}

int gpt_tensor_add_span(struct gpt_tensor *t, struct gpt_in *in, int64_t offset,
                        enum gpt_dtype dtype, int64_t from, int64_t end,
                        struct gpt_err *err)
{
    struct gpt_file_box all = {.in = in, .offset = offset, .dtype = dtype};

    memcpy(all.shape, t->shape, sizeof(all.shape));
    return gpt_tensor_add_flat(t, &all, from, end, err);
}

/* Boxes are disjoint when one ends before the other begins in any dimension. */
static bool disjoint(const struct gpt_file_box *a, const struct gpt_file_box *b,
                     int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (a->begin[d] >= b->begin[d] + b->shape[d] ||
            b->begin[d] >= a->begin[d] + a->shape[d])
            return true;
    return false;
}

/* The number of elements of a shape, or -1 when that overflows or is
 * negative. */
static int64_t volume(const int64_t *shape, int ndim)
{
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        if (shape[d] < 0 || !gpt_mul(n, shape[d], &n))
            return -1;
    return n;
}

/* Written without a sum of begin and shape, which a hostile manifest could make
 * overflow. */
static int check_inside(const struct gpt_tensor *t, size_t i,
                        const char *what, struct gpt_err *err)
{
    const struct gpt_file_box *p = &t->pieces[i];

    for (int d = 0; d < t->ndim; d++)
        if (p->begin[d] < 0 || p->shape[d] < 0 ||
            p->shape[d] > t->shape[d] ||
            p->begin[d] > t->shape[d] - p->shape[d])
            return gpt_fail(err, GPT_EDATA,
                            "%s: tensor '%s': slice %zu: [%lld, +%lld) of "
                            "dimension %d leaves its size %lld",
                            what, t->name, i, (long long)p->begin[d],
                            (long long)p->shape[d], d,
                            (long long)t->shape[d]);
    return GPT_OK;
}

static int by_first_row(const void *a, const void *b)
{
    const struct gpt_file_box *const *x = a, *const *y = b;
    int64_t p = (*x)->begin[0], q = (*y)->begin[0];

    return (p > q) - (p < q);
}

/* Sweeps down the rows. `live` holds the pieces that reach the present row,
 * which are few: a row is cut by tensor parallelism and at the ends of shards.
 * Each piece is compared with these alone, so the check is O(n log n) for real
 * checkpoints; MAX_BESIDE bounds it for others. */
static int check_disjoint(const struct gpt_tensor *t,
                          const struct gpt_file_box **sorted,
                          const struct gpt_file_box **live, size_t n,
                          const char *what, struct gpt_err *err)
{
    size_t n_live = 0;

    for (size_t i = 0; i < n; i++) {
        const struct gpt_file_box *p = sorted[i];
        size_t kept = 0;

        for (size_t j = 0; j < n_live; j++) {
            const struct gpt_file_box *q = live[j];

            if (!disjoint(p, q, t->ndim))
                return gpt_fail(err, GPT_EDATA,
                                "%s: tensor '%s': slices %zu and %zu overlap",
                                what, t->name, (size_t)(q - t->pieces),
                                (size_t)(p - t->pieces));
            if (t->ndim == 0 || q->begin[0] + q->shape[0] > p->begin[0])
                live[kept++] = q;
        }
        if (kept == MAX_BESIDE)
            return gpt_fail(err, GPT_EDATA,
                            "%s: tensor '%s': more than %d slices in row %lld",
                            what, t->name, MAX_BESIDE,
                            (long long)p->begin[0]);
        live[kept++] = p;
        n_live = kept;
    }
    return GPT_OK;
}

/* Coverage follows from a count: pieces that lie inside and do not overlap
 * cover the tensor exactly when their elements add up to it. Empty pieces are
 * left out, as they overlap nothing and cover nothing. */
int gpt_tensor_check(const struct gpt_tensor *t, const char *what,
                     struct gpt_err *err)
{
    int64_t total = volume(t->shape, t->ndim), covered = 0;
    const struct gpt_file_box **lists;
    size_t n = 0;

    if (total < 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%s': its shape overflows", what, t->name);
    for (size_t i = 0; i < t->n; i++)
        GPT_TRY(check_inside(t, i, what, err));
    GPT_TRY(gpt_new(&lists, 2 * t->n, sizeof(*lists), "slices", err));
    for (size_t i = 0; i < t->n; i++)
        if (volume(t->pieces[i].shape, t->ndim) > 0)
            lists[n++] = &t->pieces[i];
    if (n && t->ndim)
        qsort(lists, n, sizeof(*lists), by_first_row);
    int status = check_disjoint(t, lists, lists + t->n, n, what, err);
    for (size_t i = 0; i < n; i++) /* disjoint and inside: at most total */
        covered += volume(lists[i]->shape, t->ndim);
    gpt_free(lists);
    if (status == GPT_OK && covered != total)
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%s': its slices hold %lld of %lld "
                        "elements",
                        what, t->name, (long long)covered, (long long)total);
    return status;
}

/* Makes *out the part of piece p that rule m shows, in the coordinates of the
 * view. Only the strides are permuted and the offset moved: no element is read.
 * A held dimension gets stride 0, which repeats the one row for as long as the
 * view is. */
static bool show_piece(struct gpt_file_box *out, const struct gpt_file_box *p,
                       const struct gpt_map *m, int ndim)
{
    *out = *p;
    for (int d = 0; d < ndim; d++) {
        int f = m->perm[d];
        int64_t extent = m->hold[d] ? 1 : m->shape[d];
        int64_t lo = gpt_max_i64(m->from[f], p->begin[f]);
        int64_t hi = gpt_min_i64(m->from[f] + extent,
                                 p->begin[f] + p->shape[f]);

        if (lo >= hi)
            return false;
        out->offset += (lo - p->begin[f]) * p->stride[f];
        out->stride[d] = m->hold[d] ? 0 : p->stride[f];
        out->begin[d] = m->to[d] + (m->hold[d] ? 0 : lo - m->from[f]);
        out->shape[d] = m->hold[d] ? m->shape[d] : hi - lo;
    }
    return true;
}

int gpt_tensor_view(struct gpt_tensor *out, const struct gpt_tensor *in,
                    const struct gpt_map *maps, int64_t n,
                    struct gpt_err *err)
{
    struct gpt_file_box p;

    assert(out->ndim == in->ndim);
    for (int64_t i = 0; i < n; i++)
        for (size_t j = 0; j < in->n; j++)
            if (show_piece(&p, &in->pieces[j], &maps[i], in->ndim))
                GPT_TRY(gpt_tensor_add(out, &p, err));
    return GPT_OK;
}

/* Rows that both tensors have are those of `in`. New rows repeat its last one,
 * or are zero. */
int gpt_tensor_resize(struct gpt_tensor *out, const struct gpt_tensor *in,
                      bool repeat_last, struct gpt_err *err)
{
    int64_t old = in->shape[0], rows = out->shape[0];
    struct gpt_map both = {.perm = {0, 1, 2, 3}}, more = both;

    memcpy(both.shape, out->shape, sizeof(both.shape));
    both.shape[0] = gpt_min_i64(old, rows);
    GPT_TRY(gpt_tensor_view(out, in, &both, 1, err));
    if (rows <= old)
        return GPT_OK;
    memcpy(more.shape, out->shape, sizeof(more.shape));
    more.shape[0] = rows - old;
    more.to[0] = old;
    more.from[0] = old - 1;
    more.hold[0] = true;
    if (repeat_last && old > 0)
        return gpt_tensor_view(out, in, &more, 1, err);
    struct gpt_file_box zeros = {.dtype = in->dtype};
    memcpy(zeros.shape, more.shape, sizeof(zeros.shape));
    zeros.begin[0] = old;
    return gpt_tensor_add(out, &zeros, err);
}
