/* Products that are added to matrices, and the lengths that DoRA gives to
 * outputs; see merge.h. Start at gpt_product_make(). */
#include "checkpoint/merge_internal.h"

#include "base/num.h"

#include <math.h>
#include <pthread.h>

enum { NORM_BYTES = 1 << 20 }; /* of a matrix, read at once for lengths */

/* ---- products ---- */

void gpt_product_free(struct gpt_product *p)
{
    gpt_tensor_free(&p->left);
    gpt_tensor_free(&p->right);
    gpt_tensor_free(&p->left_turned);
    gpt_tensor_free(&p->right_turned);
    gpt_tensor_free(&p->lengths);
    gpt_tensor_free(&p->base);
    gpt_free(p->factors);
}

int gpt_tensor_turn(struct gpt_tensor *to, const struct gpt_tensor *from,
                    struct gpt_err *err)
{
    const int64_t shape[2] = {from->shape[1], from->shape[0]};
    const struct gpt_map m = {.perm = {1, 0, 2, 3},
                              .shape = {shape[0], shape[1]}};

    *to = gpt_tensor_make(from->name, from->dtype, 2, shape);
    return gpt_tensor_view(to, from, &m, 1, err);
}

int gpt_product_make(struct gpt_product *p, const struct gpt_tensor *w,
                     struct gpt_err *err)
{
    pthread_mutex_init(&p->lock, NULL);
    GPT_TRY(gpt_tensor_turn(&p->left_turned, &p->left, err));
    if (p->right.n)
        GPT_TRY(gpt_tensor_turn(&p->right_turned, &p->right, err));
    p->base = gpt_tensor_make(w->name, w->dtype, w->ndim, w->shape);
    p->rows_end = 0;
    p->rows = w->shape[0];
    for (size_t i = 0; p->lengths.n && i < w->n; i++) {
        const struct gpt_file_box *b = &w->pieces[i];

        p->rows = gpt_min_i64(p->rows, b->begin[0]);
        p->rows_end = gpt_max_i64(p->rows_end, b->begin[0] + b->shape[0]);
        GPT_TRY(gpt_tensor_add(&p->base, b, err));
    }
    return GPT_OK;
}

/* ---- lengths ---- */

/* Adds the squares of rows [row, row + rows) of the sum, which are at `x`, to
 * those of their outputs. */
static void add_squares(const struct gpt_product *p, double *squares,
                        const float *x, int64_t row, int64_t rows,
                        int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const double v = (double)x[i * columns + j];

            squares[p->out_rows ? row + i : j] += v * v;
        }
}

/* Reads the matrix once: sums are of floats and are not rounded to its type. */
static int sum_squares(struct gpt_product *p, double *squares, float *x,
                       struct gpt_err *err)
{
    const int64_t rows = p->rows_end, columns = p->base.shape[1];
    const int64_t step =
        gpt_max_i64(1, NORM_BYTES / (int64_t)sizeof(*x) / columns);
    const struct gpt_merging plain = {.product = p,
                                      .dtype = GPT_F32,
                                      .kept = GPT_F32,
                                      .lines = rows,
                                      .n = columns,
                                      .pitch = columns * (int64_t)sizeof(*x)};
    struct gpt_merge_room *room = NULL;
    int status = gpt_merge_make_room(&room, err);

    for (int64_t i = p->rows; status == GPT_OK && i < rows; i += step) {
        const int64_t begin[GPT_TENSOR_DIMS] = {i};
        const int64_t box[GPT_TENSOR_DIMS] = {gpt_min_i64(step, rows - i),
                                              columns};
        const struct gpt_merge_area area = {.dst = (uint8_t *)x,
                                            .line = i,
                                            .lines = box[0],
                                            .n = columns};

        status = gpt_tensor_gather(&p->base, begin, box, GPT_F32, x, err);
        if (status == GPT_OK)
            status = gpt_merge_add(&plain, room, &area, err);
        if (status == GPT_OK)
            add_squares(p, squares, x, i, box[0], columns);
    }
    if (room)
        room->free(room);
    return status;
}

static int make_factors(struct gpt_product *p, struct gpt_err *err)
{
    const int64_t n = p->lengths.shape[0], columns = p->base.shape[1];
    const int64_t begin[GPT_TENSOR_DIMS] = {0};
    const int64_t room =
        gpt_max_i64(NORM_BYTES / (int64_t)sizeof(float), columns);
    float *factors, *x = NULL;
    double *squares = NULL;
    int status;

    GPT_TRY(gpt_new(&factors, (size_t)n, sizeof(*factors), "lengths", err));
    GPT_TRY_GOTO(status,
                 gpt_new(&squares, (size_t)n, sizeof(*squares), "lengths", err),
                 out);
    GPT_TRY_GOTO(status, gpt_new(&x, (size_t)room, sizeof(*x), "lengths", err),
                 out);
    GPT_TRY_GOTO(status,
                 gpt_tensor_gather(&p->lengths, begin, p->lengths.shape,
                                   GPT_F32, factors, err),
                 out);
    GPT_TRY_GOTO(status, sum_squares(p, squares, x, err), out);
    for (int64_t i = 0; i < n; i++)
        factors[i] /= (float)sqrt(squares[i]);
    p->factors = factors;
    factors = NULL;
out:
    gpt_free(factors);
    gpt_free(squares);
    gpt_free(x);
    return status;
}

/* Threads that come while another one reads the matrix wait for it. */
int gpt_product_factors(struct gpt_product *p, const float **factors,
                        struct gpt_err *err)
{
    int status = GPT_OK;

    *factors = NULL;
    if (p->lengths.n == 0)
        return GPT_OK;
    pthread_mutex_lock(&p->lock);
    if (!p->factors)
        status = make_factors(p, err);
    *factors = p->factors;
    pthread_mutex_unlock(&p->lock);
    return status;
}
