/* LayerNorm and RMSNorm, with the residual add and dropout before them, in
 * float or in bf16, whose rows are widened in the first cache.
 * Gradients of w and b are summed over fixed blocks of rows, then in order. */
#include "cpu/cpu.h"

#include <omp.h>
#include <string.h>

/* Computes out = in + dropout(x) for row i. in, x (NULL: none) and out point to
 * the row. */
static void add_residual(const struct gpt_norm *op, const struct cpu_drop *drop,
                         int64_t i, const float *in, const float *x, float *out)
{
    enum { PART = 256 };
    int64_t c = op->c;

    if (!x && out != in)
        memcpy(out, in, (size_t)c * sizeof(*out));
    else if (x && op->dropout.p == 0)
        cpu_isa->add(out, in, x, c);
    else if (x) /* by way of a buffer, as out may be in */
        for (int64_t j = 0; j < c; j += PART) {
            /* The mask of a part, and its sum, before the next: resid_in may be
             * overwritten as soon as its part was added. */
            float kept[PART];
            int64_t n = c - j < PART ? c - j : PART;
            uint64_t at = cpu_drop_index(&op->dropout, i, c) + (uint64_t)j;

            cpu_isa->drop(kept, x + j, n, drop, at);
            cpu_isa->add(out + j, in + j, kept, n);
        }
}

/* What the loops read: weights as floats, with 1 added where the norm asks for
 * that, and for bf16 room for a thread's rows as floats, `each` floats a
 * thread. */
struct widened {
    const float *w, *b;
    float *rows;
    int64_t each;
};

/* Returns the n elements at `from` of type `act` as floats, `more` added to
 * each; they are written to `to` where they are not so yet. */
static const float *floats_of(float *to, const void *from, enum gpt_dtype act,
                              int64_t n, float more)
{
    if (!from || (act == GPT_F32 && more == 0))
        return from;
    cpu_convert(to, GPT_F32, from, act, n);
    for (int64_t j = 0; j < n && more != 0; j++)
        to[j] += more;
    return to;
}

/* Widens the weights, ones where a norm has none, and finds room for `rows`
 * rows of floats a thread, which bf16 needs. False after a failure. */
static bool widen_weights(struct gpt_queue *q, const struct gpt_norm *op,
                          bool norms, int64_t rows, struct widened *wide)
{
    bool narrow = op->act == GPT_BF16;
    int64_t c = (op->c + 15) / 16 * 16;
    int64_t threads = narrow ? omp_get_max_threads() : 0;
    float *mem = cpu_work(q, (size_t)(2 * c + threads * rows * c));

    if (!mem)
        return false;
    wide->w = floats_of(mem, op->w, op->act, op->c, op->plus_one ? 1 : 0);
    if (!op->w && norms) {
        for (int64_t j = 0; j < op->c; j++)
            mem[j] = 1;
        wide->w = mem;
    }
    wide->b = floats_of(mem + c, op->b, op->act, op->c, 0);
    wide->rows = mem + 2 * c;
    wide->each = rows * c;
    return true;
}

/* Writes to y the norm of row i, which is at x. */
static void norm_row(const struct gpt_norm *op, const struct widened *wide,
                     int64_t i, const float *x, float *y)
{
    bool centred = op->kind == GPT_LAYERNORM;

    cpu_isa->moments(x, op->c, op->eps, centred ? &op->mean[i] : NULL,
                     &op->rstd[i]);
    cpu_isa->norm_row(y, x, wide->w, wide->b, op->c,
                      centred ? op->mean[i] : 0, op->rstd[i]);
}

/* Adds and norms a row, which is still in the cache when it is read again. */
static void forward_row(const struct gpt_norm *op, const struct cpu_drop *drop,
                        const struct widened *wide, int64_t i)
{
    int64_t at = i * op->c;
    float *out = (float *)op->resid_out + at;

    add_residual(op, drop, i, (const float *)op->resid_in + at,
                 op->x ? (const float *)op->x + at : NULL, out);
    if (op->y)
        norm_row(op, wide, i, out, (float *)op->y + at);
}

/* Adds and norms a row of bf16. The norm is that of the sum as it is stored:
 * recomputing it later from resid_out then gives the same bits. */
static void forward_narrow(const struct gpt_norm *op,
                           const struct cpu_drop *drop,
                           const struct widened *wide, int64_t i)
{
    int64_t c = op->c, at = i * c;
    float *row = wide->rows + omp_get_thread_num() * wide->each;
    float *other = row + wide->each / 2;
    uint16_t *out = (uint16_t *)op->resid_out + at;

    cpu_isa->widen(row, (const uint16_t *)op->resid_in + at, c);
    if (op->x)
        cpu_isa->widen(other, (const uint16_t *)op->x + at, c);
    add_residual(op, drop, i, row, op->x ? other : NULL, row);
    cpu_isa->narrow(out, row, c);
    if (!op->y)
        return;
    cpu_isa->widen(row, out, c);
    norm_row(op, wide, i, row, other);
    cpu_isa->narrow((uint16_t *)op->y + at, other, c);
}

static struct cpu_drop drop_of(const struct gpt_norm *op)
{
    return op->dropout.p > 0 ? cpu_drop_of(&op->dropout) : (struct cpu_drop){0};
}

void cpu_norm_fwd(struct gpt_queue *q, const struct gpt_norm *op)
{
    bool narrow = op->act == GPT_BF16;
    struct widened wide;

    if (!cpu_ready_narrow(q, "norm_fwd", op->act) ||
        !widen_weights(q, op, op->y != NULL, 2, &wide))
        return;
    struct cpu_drop drop = drop_of(op);
#pragma omp parallel for schedule(static) if (cpu_worth_threads(op->n * op->c))
    for (int64_t i = 0; i < op->n; i++) {
        if (narrow)
            forward_narrow(op, &drop, &wide, i);
        else
            forward_row(op, &drop, &wide, i);
    }
}

size_t cpu_norm_scratch(int64_t n, int64_t c)
{
    return (size_t)(cpu_row_blocks(n) * 2 * c) * sizeof(float);
}

/* Computes the gradient of one row. Its own gradient is at dr, that of y at dy,
 * and x is what was normed. dx (NULL: none) is the gradient of what dropout
 * took: the same mask and scale, from the same counters. */
static void backward_row(const struct gpt_norm *op, const struct cpu_drop *drop,
                         int64_t i, const float *w, const float *x,
                         const float *dy, float *dr, float *dx, float *dw,
                         float *db)
{
    int64_t c = op->c;
    bool centred = op->kind == GPT_LAYERNORM;

    cpu_isa->norm_grad_row(dr, dy, x, w, dw, db, c, centred ? op->mean[i] : 0,
                           op->rstd[i], centred);
    if (dx && op->dropout.p > 0)
        cpu_isa->drop(dx, dr, c, drop, cpu_drop_index(&op->dropout, i, c));
    else if (dx && dx != dr)
        memcpy(dx, dr, (size_t)c * sizeof(*dx));
}

static void backward_float(const struct gpt_norm *op,
                           const struct gpt_norm_grad *grad,
                           const struct cpu_drop *drop,
                           const struct widened *wide, int64_t i, float *dw,
                           float *db)
{
    int64_t at = i * op->c;

    backward_row(op, drop, i, wide->w, (const float *)op->resid_out + at,
                 (const float *)grad->dy + at, (float *)grad->dresid + at,
                 grad->dx ? (float *)grad->dx + at : NULL, dw, db);
}

/* Computes the gradient of a row of bf16 by way of floats. dx comes from dresid
 * before that is rounded. */
static void backward_narrow(const struct gpt_norm *op,
                            const struct gpt_norm_grad *grad,
                            const struct cpu_drop *drop,
                            const struct widened *wide, int64_t i, float *dw,
                            float *db)
{
    int64_t c = op->c, at = i * c, next = wide->each / 4;
    float *x = wide->rows + omp_get_thread_num() * wide->each;
    float *dy = x + next, *dr = dy + next, *dx = grad->dx ? dr + next : NULL;
    uint16_t *dresid = (uint16_t *)grad->dresid + at;

    cpu_isa->widen(x, (const uint16_t *)op->resid_out + at, c);
    cpu_isa->widen(dy, (const uint16_t *)grad->dy + at, c);
    cpu_isa->widen(dr, dresid, c);
    backward_row(op, drop, i, wide->w, x, dy, dr, dx, dw, db);
    cpu_isa->narrow(dresid, dr, c);
    if (dx)
        cpu_isa->narrow((uint16_t *)grad->dx + at, dx, c);
}

void cpu_norm_bwd(struct gpt_queue *q, const struct gpt_norm *op,
                  const struct gpt_norm_grad *grad)
{
    bool narrow = op->act == GPT_BF16;
    struct widened wide;

    if (!cpu_ready_narrow(q, "norm_bwd", op->act) ||
        !widen_weights(q, op, true, 4, &wide))
        return;
    /* Gradients of w and b are sums over all rows. Each of up to 64 blocks of
     * rows sums its own, then blocks are added in order: the parentheses of the
     * sum depend on n alone, not on the threads. */
    int64_t c = op->c, blocks = cpu_row_blocks(op->n);
    float *part = grad->scratch;
    struct cpu_drop drop = drop_of(op);
#pragma omp parallel for schedule(static) if (cpu_worth_threads(op->n * c))
    for (int64_t k = 0; k < blocks; k++) {
        float *dw = part + k * 2 * c, *db = grad->db ? dw + c : NULL;

        /* Scratch is not zero: it is kept between operations. */
        memset(dw, 0, (size_t)(2 * c) * sizeof(*dw));
        int64_t end = cpu_cut(op->n, blocks, k + 1);
        for (int64_t i = cpu_cut(op->n, blocks, k); i < end; i++) {
            if (narrow)
                backward_narrow(op, grad, &drop, &wide, i, dw, db);
            else
                backward_float(op, grad, &drop, &wide, i, dw, db);
        }
    }
    /* The second pass is cut by columns, for the same reason. */
    enum { COLUMNS = 64 };
#pragma omp parallel for schedule(static) if (cpu_worth_threads(blocks * c))
    for (int64_t j = 0; j < c; j += COLUMNS)
        for (int64_t k = 0; k < blocks; k++) {
            int64_t n = c - j < COLUMNS ? c - j : COLUMNS;
            const float *dw = part + k * 2 * c + j;

            if (grad->dw)
                cpu_isa->add(grad->dw + j, grad->dw + j, dw, n);
            if (grad->db)
                cpu_isa->add(grad->db + j, grad->db + j, dw + c, n);
        }
}
