/* Comparing checkpoints; see compare.h. Both are opened through their front
 * ends, so that what is compared is what a program would load, whatever the
 * files call it and however they cut it. Start at gpt_compare_equal().
 *
 * A pair is compared in tiles of whole rows. Memory is that of a conversion:
 * two tiles, and the scratch of each thread. */
#include "cmd/reshape/compare.h"

#include "base/num.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "checkpoint/adapter/adapter.h"
#include "checkpoint/names.h"
#include "model/params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows of a tile, and the bytes of one as `dtype`; a tensor without columns has
 * rows of no bytes, which are all equal. */
static int rows_of_tile(const struct gpt_tensor *t, enum gpt_dtype dtype,
                        int64_t *row, int64_t *step, struct gpt_err *err)
{
    *row = (int64_t)gpt_dtype_bytes(dtype);
    for (int d = 1; d < t->ndim; d++)
        *row *= t->shape[d];
    *step = GPT_TILE_BYTES / gpt_max_i64(*row, 1);
    if (*step < 1)
        return gpt_fail(err, GPT_EDATA,
                        "tensor '%s': a row of %lld bytes, limit %d", t->name,
                        (long long)*row, GPT_TILE_BYTES);
    return GPT_OK;
}

/* How a tensor is packed; NULL: it is not. Its pieces are of one file. */
static const struct gpt_packing *packing_of(const struct gpt_tensor *t)
{
    return t->n && t->pieces[0].packed ? t->pieces[0].packed->packing : NULL;
}

const struct gpt_packing *gpt_compare_packing(const struct gpt_tensor *in,
                                              const struct gpt_tensor *out)
{
    return packing_of(in) ? NULL : packing_of(out);
}

/* The input is cast on the way, by the code that writes checkpoints but in
 * other boxes. Rows are permuted by some formats, and none cuts them into
 * blocks in another way: packing a row again gives the same blocks. `different`
 * is the status of a difference. */
static int compare_tiles(const struct gpt_tensor *in,
                         const struct gpt_tensor *out, int64_t rows,
                         uint8_t *tiles, int different, struct gpt_err *err)
{
    const struct gpt_packing *packing = gpt_compare_packing(in, out);
    uint8_t *a = tiles, *b = tiles + GPT_TILE_BYTES;
    int64_t shape[GPT_TENSOR_DIMS], begin[GPT_TENSOR_DIMS] = {0}, row, step;

    memcpy(shape, out->shape, sizeof(shape));
    GPT_TRY(rows_of_tile(out, out->dtype, &row, &step, err));
    for (; begin[0] < rows; begin[0] += step) {
        GPT_TRY(gpt_signals_check(err));
        shape[0] = gpt_min_i64(step, rows - begin[0]);
        GPT_TRY(gpt_tensor_gather(in, begin, shape, out->dtype, a, err));
        if (packing && packing->pack)
            gpt_packing_round(packing, (float *)(void *)a,
                              shape[0] * row / (int64_t)sizeof(float));
        GPT_TRY(gpt_tensor_gather(out, begin, shape, out->dtype, b, err));
        if (memcmp(a, b, (size_t)(shape[0] * row)) != 0)
            return gpt_fail(err, different,
                            "tensor '%s': rows %lld to %lld differ", out->name,
                            (long long)begin[0],
                            (long long)(begin[0] + shape[0] - 1));
    }
    return GPT_OK;
}

/* What was just written is damaged when it is not what was read. */
int gpt_compare_rows(const struct gpt_tensor *in, const struct gpt_tensor *out,
                     int64_t rows, uint8_t *tiles, struct gpt_err *err)
{
    return compare_tiles(in, out, rows, tiles, GPT_EDATA, err);
}

/* ---- two checkpoints ---- */

/* Both, and what comparing needs. */
struct pair {
    struct gpt_source a, b;
    const char *path_a, *path_b;
    struct gpt_param_table table; /* of a: which rows are ids */
    uint8_t *tiles;
    int64_t n, elements; /* that were compared */
    bool state_apart;    /* only one of the two has optimizer state */
    /* of what b is packed by, and a not: one of few bits, and what one says
     * that has no type of its own; NULL: none */
    const struct gpt_packing *packing;
    const char *how;
};

/* Also after one that did not open: a source is zero then. */
static void close_pair(struct pair *p)
{
    gpt_free(p->tiles);
    gpt_params_free(&p->table);
    gpt_source_close(&p->b);
    gpt_source_close(&p->a);
}

static bool has_state(const struct gpt_source *s)
{
    for (int64_t i = 0; i < s->n_tensors; i++)
        if (gpt_name_is_optimizer(s->tensors[i].name))
            return true;
    return false;
}

/* A run of mixed precision has two sets of weights, those that a model is used
 * with and those that training goes on from, with the optimizer's state. Where
 * both sides have state the latter are compared, else the former. Checksums
 * have been checked when this opens one of them again: the same iteration,
 * though a run that goes on may have saved another one since. */
static int open_weights(struct pair *p, struct gpt_err *err)
{
    const struct gpt_source_options weights = {.iteration = -1,
                                               .weights_only = true};
    struct gpt_source *s = has_state(&p->a) ? &p->a : &p->b;
    char at[GPT_PATH_BYTES];

    p->state_apart = has_state(&p->a) != has_state(&p->b);
    if (!p->state_apart)
        return GPT_OK;
    snprintf(at, sizeof(at), "%s", s->at);
    gpt_source_close(s);
    return gpt_source_open(s, at, &weights, err);
}

/* Checksums are checked: two copies of a damaged checkpoint are not equal to
 * what was saved. Models of other sizes cannot be compared, and the message
 * names the first size. */
static int open_pair(struct pair *p, const char *a, const char *b,
                     const struct gpt_list *adapters, struct gpt_err *err)
{
    const bool merges = adapters && adapters->n > 0;
    const struct gpt_source_options verified = {.iteration = -1,
                                                .verify = true,
                                                .optimizer = !merges,
                                                .weights_only = merges};

    *p = (struct pair){.path_a = a, .path_b = b};
    GPT_TRY(gpt_source_open_merged(&p->a, a, &verified, adapters, err));
    GPT_TRY(gpt_source_open(&p->b, b, &verified, err));
    if (!merges)
        GPT_TRY(open_weights(p, err));
    const char *field = gpt_config_difference(&p->a.config, &p->b.config);
    if (field) {
        gpt_fail(err, GPT_EFAIL, "%s and %s are models that differ in %s", a, b,
                 field);
        return gpt_hint(err, "gpt-reshape inspect shows each");
    }
    GPT_TRY(gpt_params_build(&p->table, &p->a.config, err));
    return gpt_new(&p->tiles, 2, GPT_TILE_BYTES, "tiles", err);
}

/* Optimizer state of one side alone is no difference of the model. */
static int find_other(struct pair *p, const struct gpt_source *in,
                      const char *path, const struct gpt_tensor *t,
                      const struct gpt_tensor **other, struct gpt_err *err)
{
    *other = gpt_source_find(in, t->name);
    if (*other)
        return GPT_OK;
    p->state_apart = true;
    return gpt_name_is_optimizer(t->name)
               ? GPT_OK
               : gpt_fail(err, GPT_EFAIL, "%s has no tensor '%s'", path,
                          t->name);
}

/* Rows that both have; of a vocabulary, those of ids that exist. Padding may be
 * of any height and hold anything. Heights do not tell a vocabulary: other
 * tensors may have as many rows. */
static int64_t rows_of(const struct pair *p, const struct gpt_tensor *x,
                       const struct gpt_tensor *y)
{
    const int64_t rows = gpt_min_i64(x->shape[0], y->shape[0]);
    size_t prefix;
    const struct gpt_param *param =
        gpt_params_find(&p->table, gpt_name_parameter(x->name, &prefix));

    if (!param || !param->vocab_rows)
        return rows;
    return gpt_min_i64(rows, gpt_max_i64(p->a.config.vocab_size, 1));
}

/* Tensors of this project have two dimensions at most. */
static int64_t columns_of(const struct gpt_tensor *t)
{
    return t->ndim > 1 ? t->shape[1] : 1;
}

/* Shapes are those of the parameter table on both sides, but for padding. */
static int check_columns(const struct gpt_tensor *x, const struct gpt_tensor *y,
                         struct gpt_err *err)
{
    if (x->ndim == y->ndim && columns_of(x) == columns_of(y))
        return GPT_OK;
    return gpt_fail(err, GPT_EFAIL, "tensor '%s' has %lld columns, and %lld",
                    x->name, (long long)columns_of(x),
                    (long long)columns_of(y));
}

/* ---- equality ---- */

/* A type that differs is a difference, unless it is the one that was asked for;
 * optimizer state is never cast. What the first alone is packed by is none: its
 * elements are floats when they are read. */
static int check_types(const struct gpt_tensor *x, const struct gpt_tensor *y,
                       enum gpt_dtype dtype, struct gpt_err *err)
{
    const bool state = gpt_name_is_optimizer(y->name);
    const struct gpt_packing *packing = gpt_compare_packing(x, y);

    if (x->dtype == y->dtype && !packing)
        return GPT_OK;
    if (!state && packing && (packing->how || dtype == GPT_N_DTYPES))
        return GPT_OK; /* the sentence says so */
    if (!state && y->dtype == dtype)
        return GPT_OK;
    return gpt_fail(err, GPT_EFAIL, "tensor '%s' is of type %s, and of %s",
                    x->name, gpt_dtype_name(x->dtype),
                    gpt_dtype_name(y->dtype));
}

/* Where the second is packed and the first is not, equality is that of what
 * packing makes of the first. */
static int compare_pair(struct pair *p, const struct gpt_tensor *y,
                        enum gpt_dtype dtype, struct gpt_err *err)
{
    const struct gpt_tensor *x;

    GPT_TRY(find_other(p, &p->a, p->path_a, y, &x, err));
    if (!x)
        return GPT_OK;
    GPT_TRY(check_columns(x, y, err));
    GPT_TRY(check_types(x, y, dtype, err));
    const struct gpt_packing *packing = gpt_compare_packing(x, y);
    if (packing && packing->how)
        p->how = packing->how;
    else if (packing)
        p->packing = packing;
    const int64_t rows = rows_of(p, x, y);
    p->n++;
    p->elements += rows * columns_of(x);
    return compare_tiles(x, y, rows, p->tiles, GPT_EFAIL, err);
}

/* The tensors of both are asked for: one that only the first has is missing in
 * the second. */
static int compare_all(struct pair *p, enum gpt_dtype dtype,
                       struct gpt_err *err)
{
    const struct gpt_tensor *other;

    for (int64_t i = 0; i < p->a.n_tensors; i++)
        GPT_TRY(find_other(p, &p->b, p->path_b, &p->a.tensors[i], &other, err));
    for (int64_t i = 0; i < p->b.n_tensors; i++)
        GPT_TRY(compare_pair(p, &p->b.tensors[i], dtype, err));
    return GPT_OK;
}

/* One sentence, which a log can be searched for. What was rounded before is
 * part of it: "equal" alone would claim more than was compared. */
static int print_equal(struct gpt_buf *out, const struct pair *p,
                       enum gpt_dtype dtype)
{
    const bool rounds = p->packing || dtype != GPT_N_DTYPES;
    char count[32], word[48] = "bit for bit";

    if (p->packing)
        snprintf(word, sizeof(word), "after packing to %s", p->packing->name);
    else if (dtype != GPT_N_DTYPES)
        snprintf(word, sizeof(word), "after rounding to %s",
                 dtype == GPT_BF16  ? "bf16"
                 : dtype == GPT_F16 ? "fp16"
                                    : "fp32");
    GPT_TRY(gpt_buf_add_shown(out, p->path_b, ""));
    GPT_TRY(gpt_buf_printf(out, " equals "));
    GPT_TRY(gpt_buf_add_shown(out, p->path_a, ""));
    for (int64_t i = 0; i < p->a.n_adapters; i++) {
        GPT_TRY(gpt_buf_printf(out, i ? " and " : " with "));
        GPT_TRY(gpt_buf_add_shown(out, p->a.adapters[i], ""));
    }
    if (rounds || !p->how)
        GPT_TRY(gpt_buf_printf(out, ", %s", word));
    if (p->how)
        GPT_TRY(gpt_buf_printf(out, ", %s%s", rounds ? "and " : "", p->how));
    GPT_TRY(gpt_buf_printf(out, ": %lld tensor%s, %s elements\n",
                           (long long)p->n, gpt_plural(p->n),
                           gpt_text_si(count, (double)p->elements)));
    return p->state_apart
               ? gpt_buf_printf(out, "only one of them has optimizer state, "
                                     "which is not compared\n")
               : GPT_OK;
}

/* Nothing is printed before all is compared: a sentence on standard output
 * means that the whole of it is true. */
int gpt_compare_equal(struct gpt_buf *out, const char *a, const char *b,
                      const struct gpt_list *adapters, enum gpt_dtype dtype,
                      struct gpt_err *err)
{
    struct pair p;
    int status;

    GPT_TRY_GOTO(status, open_pair(&p, a, b, adapters, err), out);
    GPT_TRY_GOTO(status, compare_all(&p, dtype, err), out);
    if (print_equal(out, &p, dtype) != GPT_OK)
        status = gpt_no_memory(err, "the report");
out:
    close_pair(&p);
    return status;
}

/* ---- differences ---- */

/* A tensor's: the largest one, where it is, and sums over all elements. */
struct difference {
    const char *name;
    int64_t elements, differing, row, column;
    double most, sum_squares, norm_squares; /* norm: of a */
    double a, b; /* there */
};

/* A NaN on one side alone is the largest difference there is; on both sides it
 * is none. */
static double distance(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b) ? 0 : (double)INFINITY;
    return a < b || a > b ? fabs(a - b) : 0;
}

/* Two passes over a tile are not needed: the largest and the sums come out of
 * one. The first of several equal differences is kept. */
static void add_tile(struct difference *d, const double *a, const double *b,
                     int64_t n, int64_t first, int64_t columns)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = distance(a[i], b[i]);

        d->differing += x > 0;
        d->sum_squares += x * x;
        d->norm_squares += a[i] * a[i];
        if (x <= d->most)
            continue;
        d->most = x;
        d->a = a[i];
        d->b = b[i];
        d->row = (first + i) / columns;
        d->column = (first + i) % columns;
    }
    d->elements += n;
}

/* As double, which holds all types exactly. */
static int measure(struct difference *d, struct pair *p,
                   const struct gpt_tensor *x, const struct gpt_tensor *y,
                   struct gpt_err *err)
{
    double *a = (double *)(void *)p->tiles;
    double *b = (double *)(void *)(p->tiles + GPT_TILE_BYTES);
    int64_t shape[GPT_TENSOR_DIMS], begin[GPT_TENSOR_DIMS] = {0}, row, step;
    const int64_t rows = rows_of(p, x, y), columns = columns_of(x);

    memcpy(shape, x->shape, sizeof(shape));
    GPT_TRY(rows_of_tile(x, GPT_F64, &row, &step, err));
    for (; begin[0] < rows; begin[0] += step) {
        GPT_TRY(gpt_signals_check(err));
        shape[0] = gpt_min_i64(step, rows - begin[0]);
        GPT_TRY(gpt_tensor_gather(x, begin, shape, GPT_F64, a, err));
        GPT_TRY(gpt_tensor_gather(y, begin, shape, GPT_F64, b, err));
        add_tile(d, a, b, shape[0] * columns, begin[0] * columns, columns);
    }
    return GPT_OK;
}

/* The largest first, since a table is read from the top; names break ties, so
 * that output does not depend on the order of a format. */
static int by_most(const void *a, const void *b)
{
    const struct difference *x = a, *y = b;

    if (x->most > y->most || x->most < y->most)
        return x->most > y->most ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* |a - b| / |a| over all elements. A tensor of zeros has no scale: then it is
 * the largest difference itself. */
static double relative(const struct difference *d)
{
    return d->norm_squares > 0 ? sqrt(d->sum_squares / d->norm_squares)
                               : d->most;
}

/* Equal tensors are counted and not listed: of a model with hundreds, a few are
 * of interest. */
static int print_table(struct gpt_buf *out, const struct difference *list,
                       int64_t n)
{
    int64_t same = 0;

    GPT_TRY(gpt_buf_printf(out, "%11s %11s %9s  %-24s %s\n", "LARGEST",
                           "RELATIVE", "DIFFER", "AT: A, B", "TENSOR"));
    for (int64_t i = 0; i < n; i++) {
        const struct difference *d = &list[i];
        char place[100];

        if (d->differing == 0) {
            same++;
            continue;
        }
        snprintf(place, sizeof(place), "%lld,%lld: %.4g, %.4g",
                 (long long)d->row, (long long)d->column, d->a, d->b);
        GPT_TRY(gpt_buf_printf(out, "%11.4g %11.4g %8.3f%%  %-24s ", d->most,
                               relative(d),
                               100.0 * (double)d->differing /
                                   (double)d->elements,
                               place));
        GPT_TRY(gpt_buf_add_shown(out, d->name, ""));
        GPT_TRY(gpt_buf_add(out, "\n", 1));
    }
    return gpt_buf_printf(out, "%lld of %lld tensor%s equal\n",
                          (long long)same, (long long)n,
                          n == 1 ? " is" : "s are");
}

/* JSON has no infinity: a difference of NaN is null. */
static void add_real(cJSON *item, const char *key, double v)
{
    gpt_json_add(item, key,
                 isfinite(v) ? cJSON_CreateNumber(v) : cJSON_CreateNull());
}

/* All tensors, equal ones too: a program can leave them out itself. */
static int print_json(struct gpt_buf *out, const struct pair *p,
                      const struct difference *list, int64_t n)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *tensors;

    cJSON_AddStringToObject(root, "a", p->path_a);
    cJSON_AddStringToObject(root, "b", p->path_b);
    tensors = cJSON_AddArrayToObject(root, "tensors");
    for (int64_t i = 0; i < n; i++) {
        cJSON *item = cJSON_CreateObject();

        cJSON_AddStringToObject(item, "name", list[i].name);
        cJSON_AddNumberToObject(item, "elements", (double)list[i].elements);
        cJSON_AddNumberToObject(item, "differing", (double)list[i].differing);
        add_real(item, "largest", list[i].most);
        add_real(item, "relative", relative(&list[i]));
        cJSON_AddNumberToObject(item, "row", (double)list[i].row);
        cJSON_AddNumberToObject(item, "column", (double)list[i].column);
        add_real(item, "value_a", list[i].a);
        add_real(item, "value_b", list[i].b);
        gpt_json_add(tensors, NULL, item);
    }
    char *text = gpt_json_print(root, false);
    int status = text ? gpt_buf_printf(out, "%s\n", text) : GPT_EFAIL;
    cJSON_free(text);
    cJSON_Delete(root);
    return status;
}

/* Types may differ: it is the numbers that are compared. */
static int measure_all(struct pair *p, struct difference *list, int64_t *n,
                       struct gpt_err *err)
{
    const struct gpt_tensor *y;

    *n = 0;
    for (int64_t i = 0; i < p->a.n_tensors; i++) {
        const struct gpt_tensor *x = &p->a.tensors[i];

        GPT_TRY(find_other(p, &p->b, p->path_b, x, &y, err));
        if (!y)
            continue;
        GPT_TRY(check_columns(x, y, err));
        list[*n].name = x->name;
        GPT_TRY(measure(&list[(*n)++], p, x, y, err));
    }
    if (*n)
        qsort(list, (size_t)*n, sizeof(*list), by_most);
    return GPT_OK;
}

/* That there are differences is no failure here: they are what was asked for.
 * Tensors of one name are pairs, whatever their formats' order. */
int gpt_compare_differences(struct gpt_buf *out, const char *a, const char *b,
                            const struct gpt_list *adapters, bool json,
                            struct gpt_err *err)
{
    struct difference *list = NULL;
    struct pair p;
    int64_t n;
    int status;

    GPT_TRY_GOTO(status, open_pair(&p, a, b, adapters, err), out);
    GPT_TRY_GOTO(status, gpt_new(&list, (size_t)p.a.n_tensors, sizeof(*list),
                                 "differences", err), out);
    GPT_TRY_GOTO(status, measure_all(&p, list, &n, err), out);
    if ((json ? print_json(out, &p, list, n) : print_table(out, list, n)) !=
        GPT_OK)
        status = gpt_no_memory(err, "the report");
out:
    gpt_free(list);
    close_pair(&p);
    return status;
}
