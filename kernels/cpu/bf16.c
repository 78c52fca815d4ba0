/* Activations in bf16, but for matrix products (matmul.c): operands are widened
 * into work memory, the operation runs in float, results are rounded once, to
 * nearest even. So sums are float sums, and memory that lasts (kept
 * activations) takes half; the time is that of float and of the conversions.
 * Each function stands in front of the one in float. Start at stage(). */
#include "cpu/cpu.h"

#include <string.h>

/* One operand of n elements: where it is read from and written to (NULL: it is
 * not), and its place in work memory (NULL when neither). */
struct operand {
    const void *from;
    void *to;
    int64_t n;
    float *wide;
};

#define IN(mem, n) {(mem), NULL, (n), NULL}
#define OUT(mem, n) {NULL, (mem), (n), NULL}
#define IN_OUT(mem, n) {(mem), (mem), (n), NULL}

static int64_t padded(const struct operand *o)
{
    return o->from || o->to ? (o->n + 15) / 16 * 16 : 0;
}

/* Gives every operand its place and fills those that are read; false after a
 * failure of the queue. */
static bool stage(struct gpt_queue *q, struct operand *list, size_t n)
{
    int64_t total = 0;

    for (size_t i = 0; i < n; i++)
        total += padded(&list[i]);
    float *at = cpu_wide(q, (size_t)total);
    if (!at)
        return false;
    for (size_t i = 0; i < n; i++) {
        struct operand *o = &list[i];

        if (padded(o) > 0)
            o->wide = at;
        at += padded(o);
        if (o->from)
            cpu_cast(q, o->wide, GPT_F32, o->from, GPT_BF16, o->n);
    }
    return true;
}

/* Rounds what was written. */
static void unstage(struct gpt_queue *q, const struct operand *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i].to)
            cpu_cast(q, list[i].to, GPT_BF16, list[i].wide, GPT_F32,
                     list[i].n);
    }
}

/* Elements between the first and the last of `rows` rows, ld apart. */
static int64_t span(int64_t rows, int64_t columns, int64_t ld)
{
    return rows > 0 ? (rows - 1) * (ld ? ld : columns) + columns : 0;
}

void cpu_bf16_bias_grad(struct gpt_queue *q, float *dbias, const void *dy,
                        int64_t m, int64_t n, enum gpt_dtype act)
{
    struct operand list[] = {IN(dy, m * n)};

    if (act != GPT_BF16)
        cpu_bias_grad(q, dbias, dy, m, n, act);
    else if (stage(q, list, GPT_COUNT(list)))
        cpu_bias_grad(q, dbias, list[0].wide, m, n, GPT_F32);
}

void cpu_bf16_bias_add(struct gpt_queue *q, void *x, const void *bias,
                       int64_t m, int64_t n, enum gpt_dtype act)
{
    struct operand list[] = {IN_OUT(x, m * n),
                             IN(bias, n)};

    if (act != GPT_BF16) {
        cpu_bias_add(q, x, bias, m, n, act);
    } else if (stage(q, list, GPT_COUNT(list))) {
        cpu_bias_add(q, list[0].wide, list[1].wide, m, n, GPT_F32);
        unstage(q, list, GPT_COUNT(list));
    }
}

void cpu_bf16_gelu(struct gpt_queue *q, void *y, const void *x, int64_t n,
                   enum gpt_dtype act)
{
    struct operand list[] = {IN(x, n), OUT(y, n)};

    if (act != GPT_BF16) {
        cpu_gelu(q, y, x, n, act);
    } else if (stage(q, list, GPT_COUNT(list))) {
        cpu_gelu(q, list[1].wide, list[0].wide, n, GPT_F32);
        unstage(q, list, GPT_COUNT(list));
    }
}

void cpu_bf16_norm_fwd(struct gpt_queue *q, const struct gpt_norm *op)
{
    if (op->act != GPT_BF16) {
        cpu_norm_fwd(q, op);
        return;
    }
    if (op->x && op->y) { /* the norm is that of the sum as it is stored */
        struct gpt_norm part = *op;
        part.y = NULL;
        cpu_bf16_norm_fwd(q, &part);
        part = *op;
        part.x = NULL;
        part.resid_in = op->resid_out;
        cpu_bf16_norm_fwd(q, &part);
        return;
    }
    int64_t n = op->n * op->c;
    struct operand list[] = {
        IN(op->resid_in, n), IN(op->x, n),
        OUT(op->resid_out, n), OUT(op->y, n),
        IN(op->w, op->c), IN(op->b, op->c),
    };
    if (!stage(q, list, GPT_COUNT(list)))
        return;
    struct gpt_norm wide = *op;
    wide.act = GPT_F32;
    wide.resid_in = list[0].wide;
    wide.x = list[1].wide;
    wide.resid_out = list[2].wide;
    wide.y = list[3].wide;
    wide.w = list[4].wide;
    wide.b = list[5].wide;
    cpu_norm_fwd(q, &wide);
    unstage(q, list, GPT_COUNT(list));
}

void cpu_bf16_norm_bwd(struct gpt_queue *q, const struct gpt_norm *op,
                       const struct gpt_norm_grad *grad)
{
    if (op->act != GPT_BF16) {
        cpu_norm_bwd(q, op, grad);
        return;
    }
    int64_t n = op->n * op->c;
    struct operand list[] = {
        IN(op->resid_out, n), IN(op->w, op->c),
        IN(grad->dy, n), IN_OUT(grad->dresid, n),
        OUT(grad->dx, n),
    };
    if (!stage(q, list, GPT_COUNT(list)))
        return;
    struct gpt_norm wide = *op;
    wide.act = GPT_F32;
    wide.resid_out = list[0].wide;
    wide.w = list[1].wide;
    struct gpt_norm_grad wide_grad = *grad;
    wide_grad.dy = list[2].wide;
    wide_grad.dresid = list[3].wide;
    wide_grad.dx = list[4].wide;
    cpu_norm_bwd(q, &wide, &wide_grad);
    unstage(q, list, GPT_COUNT(list));
}

void cpu_bf16_dropout(struct gpt_queue *q, void *y, const void *x, int64_t n,
                      int64_t c, enum gpt_dtype act,
                      const struct gpt_dropout *d)
{
    struct operand list[] = {IN(x, n * c), OUT(y, n * c)};

    if (act != GPT_BF16) {
        cpu_dropout(q, y, x, n, c, act, d);
    } else if (stage(q, list, GPT_COUNT(list))) {
        cpu_dropout(q, list[1].wide, list[0].wide, n, c, GPT_F32, d);
        unstage(q, list, GPT_COUNT(list));
    }
}

void cpu_bf16_embed_bwd(struct gpt_queue *q, const struct gpt_embed *op,
                        const void *dout, float *dwte, float *dwpe)
{
    struct operand list[] = {IN(dout, op->n * op->c)};
    struct gpt_embed wide = *op;

    wide.act = GPT_F32;
    if (op->act != GPT_BF16)
        cpu_embed_bwd(q, op, dout, dwte, dwpe);
    else if (stage(q, list, GPT_COUNT(list)))
        cpu_embed_bwd(q, &wide, list[0].wide, dwte, dwpe);
}

/* Elements of qkv. */
static int64_t qkv_elements(const struct gpt_attn *op)
{
    return op->b * op->t * (op->h + 2 * op->g) * op->d;
}

void cpu_bf16_attn_fwd(struct gpt_queue *q, const struct gpt_attn *op)
{
    if (op->act != GPT_BF16) {
        cpu_attn_fwd(q, op);
        return;
    }
    struct operand list[] = {
        IN(op->qkv, qkv_elements(op)),
        OUT(op->out, op->b * op->t * op->h * op->d),
    };
    if (!stage(q, list, GPT_COUNT(list)))
        return;
    struct gpt_attn wide = *op;
    wide.act = GPT_F32;
    wide.qkv = list[0].wide;
    wide.out = list[1].wide;
    cpu_attn_fwd(q, &wide);
    unstage(q, list, GPT_COUNT(list));
}

void cpu_bf16_attn_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                       const struct gpt_attn_grad *grad)
{
    if (op->act != GPT_BF16) {
        cpu_attn_bwd(q, op, grad);
        return;
    }
    int64_t out = op->b * op->t * op->h * op->d;
    struct operand list[] = {
        IN(op->qkv, qkv_elements(op)),
        IN(op->out, out),
        IN(grad->dout, out),
        OUT(grad->dqkv, qkv_elements(op)),
    };
    if (!stage(q, list, GPT_COUNT(list)))
        return;
    struct gpt_attn wide = *op;
    wide.act = GPT_F32;
    wide.qkv = list[0].wide;
    wide.out = list[1].wide;
    struct gpt_attn_grad wide_grad = *grad;
    wide_grad.dout = list[2].wide;
    wide_grad.dqkv = list[3].wide;
    cpu_attn_bwd(q, &wide, &wide_grad);
    unstage(q, list, GPT_COUNT(list));
}

/* Logits are read, and written when a gradient, or what leads to it, is left
 * in them. */
static bool stage_logits(struct gpt_queue *q, const struct gpt_xent *op,
                         struct operand *logits, struct gpt_xent *wide)
{
    *logits = (struct operand){op->logits, op->grad ? op->logits : NULL,
                               span(op->n, op->v, op->ld), NULL};
    if (!stage(q, logits, 1))
        return false;
    *wide = *op;
    wide->act = GPT_F32;
    wide->logits = logits->wide;
    return true;
}

void cpu_bf16_xent(struct gpt_queue *q, const struct gpt_xent *op)
{
    struct operand logits;
    struct gpt_xent wide;

    if (op->act != GPT_BF16) {
        cpu_xent(q, op);
    } else if (stage_logits(q, op, &logits, &wide)) {
        cpu_xent(q, &wide);
        unstage(q, &logits, 1);
    }
}

void cpu_bf16_xent_partial(struct gpt_queue *q, const struct gpt_xent *op,
                           float *stats)
{
    struct operand logits;
    struct gpt_xent wide;

    if (op->act != GPT_BF16) {
        cpu_xent_partial(q, op, stats);
    } else if (stage_logits(q, op, &logits, &wide)) {
        cpu_xent_partial(q, &wide, stats);
        unstage(q, &logits, 1);
    }
}

void cpu_bf16_xent_finish(struct gpt_queue *q, const struct gpt_xent *op,
                          const float *stats, int64_t ranks, int64_t rank)
{
    struct operand logits;
    struct gpt_xent wide;

    if (op->act != GPT_BF16) {
        cpu_xent_finish(q, op, stats, ranks, rank);
    } else if (stage_logits(q, op, &logits, &wide)) {
        cpu_xent_finish(q, &wide, stats, ranks, rank);
        unstage(q, &logits, 1);
    }
}
