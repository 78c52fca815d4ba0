/* Norms of single heads: each query and key of a row is a vector of D elements
 * with a mean and a deviation of its own. Statistics are not kept, since a head
 * is short: backward computes them again. Start at head_at(). */
#include "cpu/cpu.h"

#include <string.h>

/* What a head of a row of qkv is normed with; w NULL: a value, which is not. */
struct head {
    int64_t at; /* of its first element */
    const float *w, *b;
    bool key;
};

/* Head k of row n. A group is query heads, a key, a value (Megatron's order).
 * scale: the weights of queries, then of keys. */
static struct head head_at(const struct gpt_head_norm *op, const float *scale,
                           int64_t n, int64_t k)
{
    int64_t heads = op->h / op->g + 2, place = k % heads;
    struct head head = {.at = (n * op->g * heads + k) * op->d};

    head.key = place == heads - 2;
    if (place == heads - 1)
        return head;
    head.w = head.key ? scale + op->d : scale;
    head.b = head.key ? op->bk : op->bq;
    return head;
}

static int64_t all_heads(const struct gpt_head_norm *op)
{
    return op->h + 2 * op->g;
}

/* (2, D): weights of queries and of keys, with 1 added where the norm wants
 * it. */
static float *scales_of(struct gpt_queue *q, const struct gpt_head_norm *op)
{
    float *scale = cpu_work(q, (size_t)(2 * op->d));
    const float *wq = op->wq, *wk = op->wk;

    for (int64_t j = 0; scale && j < op->d; j++) {
        scale[j] = op->plus_one ? wq[j] + 1 : wq[j];
        scale[op->d + j] = op->plus_one ? wk[j] + 1 : wk[j];
    }
    return scale;
}

static void forward_head(const struct gpt_head_norm *op,
                         const struct head *head)
{
    const float *x = (const float *)op->in + head->at;
    float *y = (float *)op->out + head->at, mean = 0, rstd;

    if (!head->w) {
        if (y != x)
            memcpy(y, x, (size_t)op->d * sizeof(*y));
        return;
    }
    cpu_isa->moments(x, op->d, op->eps,
                     op->kind == GPT_LAYERNORM ? &mean : NULL, &rstd);
    cpu_isa->norm_row(y, x, head->w, head->b, op->d, mean, rstd);
}

void cpu_head_norm(struct gpt_queue *q, const struct gpt_head_norm *op)
{
    if (!cpu_ready(q, "head_norm", op->act))
        return;
    const float *scale = scales_of(q, op);
    if (!scale)
        return;
#pragma omp parallel for schedule(static) if (                                 \
        cpu_worth_threads(op->n * all_heads(op) * op->d))
    for (int64_t n = 0; n < op->n; n++)
        for (int64_t k = 0; k < all_heads(op); k++) {
            struct head head = head_at(op, scale, n, k);

            forward_head(op, &head);
        }
}

/* What a block of rows has in scratch: dwq, dbq, dwk, dbk, and a head's
 * gradient. */
enum { PARTS = 5 };

size_t cpu_head_norm_scratch(int64_t n, int64_t d)
{
    return (size_t)(cpu_row_blocks(n) * PARTS * d) * sizeof(float);
}

static void backward_head(const struct gpt_head_norm *op, void *dqkv,
                          const struct head *head, float *part)
{
    const float *x = (const float *)op->in + head->at;
    float *dy = (float *)dqkv + head->at, mean = 0, rstd;
    float *dw = part + (head->key ? 2 * op->d : 0), *db = dw + op->d;
    float *dx = part + 4 * op->d;
    bool centred = op->kind == GPT_LAYERNORM;

    if (!head->w)
        return;
    cpu_isa->moments(x, op->d, op->eps, centred ? &mean : NULL, &rstd);
    /* The loop adds to what it writes, and reads dy after it has begun to. */
    memset(dx, 0, (size_t)op->d * sizeof(*dx));
    cpu_isa->norm_grad_row(dx, dy, x, head->w, dw, db, op->d, mean, rstd,
                           centred);
    memcpy(dy, dx, (size_t)op->d * sizeof(*dx));
}

/* Blocks of rows first, then blocks in order, as in norm.c. */
void cpu_head_norm_bwd(struct gpt_queue *q, const struct gpt_head_norm *op,
                       const struct gpt_head_norm_grad *grad)
{
    if (!cpu_ready(q, "head_norm_bwd", op->act))
        return;
    int64_t blocks = cpu_row_blocks(op->n), d = op->d;
    float *part = grad->scratch;
    const float *scale = scales_of(q, op);
    if (!scale)
        return;
#pragma omp parallel for schedule(static) if (                                 \
        cpu_worth_threads(op->n * all_heads(op) * d))
    for (int64_t b = 0; b < blocks; b++) {
        float *mine = part + b * PARTS * d;

        memset(mine, 0, (size_t)(PARTS * d) * sizeof(*mine));
        int64_t end = cpu_cut(op->n, blocks, b + 1);
        for (int64_t n = cpu_cut(op->n, blocks, b); n < end; n++)
            for (int64_t k = 0; k < all_heads(op); k++) {
                struct head head = head_at(op, scale, n, k);

                backward_head(op, grad->dqkv, &head, mine);
            }
    }
    float *sums[] = {grad->dwq, grad->dbq, grad->dwk, grad->dbk};
    for (int i = 0; i < 4; i++)
        for (int64_t b = 0; sums[i] && b < blocks; b++)
            cpu_isa->add(sums[i], sums[i], part + (b * PARTS + i) * d, d);
}
