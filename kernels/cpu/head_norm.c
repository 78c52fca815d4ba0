/* Norms of single heads: each query and key of a row is a vector of D elements
 * with a mean and a deviation of its own. Statistics are not kept, since a head
 * is short: backward computes them again. Start at head_at().
 *
 * Every head may have weights of its own (`each`). Where all queries of a row
 * are one vector, and all keys another (`squares`), it has them, too, and
 * statistics are sums over the heads of all ranks, which come from outside. The
 * rest is the same. */
#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

/* What a head of a row of qkv is normed with. w is NULL for a value, which is
 * not normed. */
struct head {
    int64_t at; /* of its first element */
    int64_t number; /* among the queries, or the keys, of its row */
    const float *w, *b;
    bool key;
};

/* True where every head has weights of its own. */
static bool has_own(const struct gpt_head_norm *op)
{
    return op->squares || op->each;
}

/* How many weights queries have, and keys. */
static int64_t query_weights(const struct gpt_head_norm *op)
{
    return has_own(op) ? op->h * op->d : op->d;
}

static int64_t key_weights(const struct gpt_head_norm *op)
{
    return has_own(op) ? op->g * op->d : op->d;
}

/* Describes head k of row n. A group is query heads, a key, a value (Megatron's
 * order). scale holds the weights of queries, then those of keys. */
static struct head head_at(const struct gpt_head_norm *op, const float *scale,
                           int64_t n, int64_t k)
{
    int64_t heads = op->h / op->g + 2, place = k % heads;
    struct head head = {.at = (n * op->g * heads + k) * op->d};

    head.key = place == heads - 2;
    head.number = head.key ? k / heads : k / heads * (heads - 2) + place;
    if (place == heads - 1)
        return head;
    head.w = head.key ? scale + query_weights(op) : scale;
    head.b = head.key ? op->bk : op->bq;
    if (has_own(op))
        head.w += head.number * op->d;
    return head;
}

static int64_t all_heads(const struct gpt_head_norm *op)
{
    return op->h + 2 * op->g;
}

/* The weights of queries, then of keys, with 1 added where the norm wants it;
 * ones where there are none. */
static float *scales_of(struct gpt_queue *q, const struct gpt_head_norm *op)
{
    const int64_t nq = query_weights(op), nk = key_weights(op);
    float *scale = cpu_work(q, (size_t)(nq + nk));
    const float *wq = op->wq, *wk = op->wk, one = op->plus_one ? 1 : 0;

    for (int64_t j = 0; scale && j < nq; j++)
        scale[j] = wq ? wq[j] + one : 1;
    for (int64_t j = 0; scale && j < nk; j++)
        scale[nq + j] = wk ? wk[j] + one : 1;
    return scale;
}

/* The inverse deviation of the queries, or the keys, of row n over all
 * ranks. */
static float wide_rstd(const struct gpt_head_norm *op, int64_t n, bool key)
{
    const float width = (float)((key ? op->g_all : op->h_all) * op->d);

    return 1 / sqrtf(op->squares[2 * n + key] / width + op->eps);
}

static void forward_head(const struct gpt_head_norm *op, int64_t n,
                         const struct head *head)
{
    const float *x = (const float *)op->in + head->at;
    float *y = (float *)op->out + head->at, mean = 0, rstd;

    if (!head->w) {
        if (y != x)
            memcpy(y, x, (size_t)op->d * sizeof(*y));
        return;
    }
    if (op->squares)
        rstd = wide_rstd(op, n, head->key);
    else
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

            forward_head(op, n, &head);
        }
}

/* Sums products of two or three factors over the heads of a row. */
void cpu_head_norm_sums(struct gpt_queue *q, const struct gpt_head_norm *op,
                        const void *dqkv, float *sums)
{
    if (!cpu_ready(q, "head_norm_sums", op->act))
        return;
    const float *scale = scales_of(q, op);
    if (!scale)
        return;
#pragma omp parallel for schedule(static) if (                                 \
        cpu_worth_threads(op->n * all_heads(op) * op->d))
    for (int64_t n = 0; n < op->n; n++) {
        float sum[2] = {0, 0};

        for (int64_t k = 0; k < all_heads(op); k++) {
            struct head head = head_at(op, scale, n, k);
            const float *x = (const float *)op->in + head.at;
            const float *dy = dqkv ? (const float *)dqkv + head.at : NULL;

            if (!head.w)
                continue;
            if (!dy)
                sum[head.key] += cpu_isa->dot(x, x, op->d);
            for (int64_t j = 0; dy && j < op->d; j++)
                sum[head.key] += head.w[j] * dy[j] * x[j];
        }
        sums[2 * n] = sum[0];
        sums[2 * n + 1] = sum[1];
    }
}

/* What a block of rows keeps in scratch: dwq, dbq, dwk, dbk, and a head's
 * gradient; with weights of every head those of all queries, then those of all
 * keys, come first. */
enum { PARTS = 5 };

size_t cpu_head_norm_scratch(int64_t n, int64_t d)
{
    return (size_t)(cpu_row_blocks(n) * PARTS * d) * sizeof(float);
}

/* Where the gradient of a head's weights is added up, of a block's part. */
static float *weight_grad(const struct gpt_head_norm *op,
                          const struct head *head, float *part)
{
    if (!has_own(op))
        return part + (head->key ? 2 * op->d : 0);
    return part + head->number * op->d + (head->key ? query_weights(op) : 0);
}

/* With weights of every head the gradients of biases, which are none, follow
 * those of all weights. */
static void backward_head(const struct gpt_head_norm *op, void *dqkv,
                          const struct head *head, float *part)
{
    const float *x = (const float *)op->in + head->at;
    float *dy = (float *)dqkv + head->at, mean = 0, rstd;
    float *dw = weight_grad(op, head, part);
    float *db = op->each ? part + query_weights(op) + key_weights(op)
                         : dw + op->d;
    float *dx = part + 4 * (op->each ? op->h + op->g : 1) * op->d;
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

/* With r = 1 / deviation and n elements under it, dx = r (w dy - x r^2 dot / n)
 * where dot, the sum of w x dy, is over the heads of all ranks. */
static void backward_wide(const struct gpt_head_norm *op,
                          const struct gpt_head_norm_grad *grad, int64_t n,
                          const struct head *head, float *part)
{
    const float *x = (const float *)op->in + head->at;
    float *dy = (float *)grad->dqkv + head->at;
    float *dw = weight_grad(op, head, part);

    if (!head->w)
        return;
    const float rstd = wide_rstd(op, n, head->key);
    const float width = (float)((head->key ? op->g_all : op->h_all) * op->d);
    const float lean = rstd * rstd * grad->dots[2 * n + head->key] / width;
    for (int64_t j = 0; j < op->d; j++) {
        dw[j] += dy[j] * x[j] * rstd;
        dy[j] = rstd * (head->w[j] * dy[j] - x[j] * lean);
    }
}

/* Adds the gradients of weights block by block, in order. */
static void add_own(const struct gpt_head_norm *op,
                    const struct gpt_head_norm_grad *grad, int64_t blocks)
{
    const int64_t nq = query_weights(op), nk = key_weights(op);
    const float *part = grad->scratch;

    for (int64_t b = 0; b < blocks; b++, part += PARTS * (nq + nk)) {
        cpu_isa->add(grad->dwq, grad->dwq, part, nq);
        cpu_isa->add(grad->dwk, grad->dwk, part + nq, nk);
    }
}

/* Computes the gradients of each block of rows, then adds the blocks in order,
 * as norm.c does. */
void cpu_head_norm_bwd(struct gpt_queue *q, const struct gpt_head_norm *op,
                       const struct gpt_head_norm_grad *grad)
{
    if (!cpu_ready(q, "head_norm_bwd", op->act))
        return;
    int64_t blocks = cpu_row_blocks(op->n), d = op->d;
    int64_t each = PARTS * (has_own(op) ? (op->h + op->g) * d : d);
    float *part = grad->scratch;
    const float *scale = scales_of(q, op);
    if (!scale)
        return;
#pragma omp parallel for schedule(static) if (                                 \
        cpu_worth_threads(op->n * all_heads(op) * d))
    for (int64_t b = 0; b < blocks; b++) {
        float *mine = part + b * each;

        memset(mine, 0, (size_t)each * sizeof(*mine));
        int64_t end = cpu_cut(op->n, blocks, b + 1);
        for (int64_t n = cpu_cut(op->n, blocks, b); n < end; n++)
            for (int64_t k = 0; k < all_heads(op); k++) {
                struct head head = head_at(op, scale, n, k);

                if (op->squares)
                    backward_wide(op, grad, n, &head, mine);
                else
                    backward_head(op, grad->dqkv, &head, mine);
            }
    }
    if (has_own(op)) {
        add_own(op, grad, blocks);
        return;
    }
    float *sums[] = {grad->dwq, grad->dbq, grad->dwk, grad->dbk};
    for (int i = 0; i < 4; i++)
        for (int64_t b = 0; sums[i] && b < blocks; b++)
            cpu_isa->add(sums[i], sums[i], part + (b * PARTS + i) * d, d);
}
