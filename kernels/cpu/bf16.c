/* Activations in bf16, for operations that take only floats: operands are
 * widened into work memory, the operation runs in float, results are rounded
 * once, to nearest even. Sums are therefore float sums, and memory that lasts
 * (kept activations) takes half; the time is that of float and of the
 * conversions. Operations whose rows are widened in the cache instead have no
 * function here.
 *
 * Each function has the arguments of the one in float that it calls. It lists
 * the pointers among them; stage() puts the widened operands in their place, or
 * leaves all as it is where the type is not bf16. Start at stage(). */
#include "cpu/attn.h"

#include <assert.h>
#include <string.h>

/* One operand of n elements. slot is the address of the pointer to it, which is
 * an argument or a member of the operation's copy. A NULL pointer stands for an
 * operand that is not given. */
struct operand {
    void *slot;
    bool read, written;
    int64_t n;
    void *mem;   /* set by stage(): where the operand is in bf16 */
    float *wide; /* and its place in work memory; NULL: not staged */
};

#define IN(slot, n) {(slot), true, false, (n), NULL, NULL}
#define OUT(slot, n) {(slot), false, true, (n), NULL, NULL}
#define IN_OUT(slot, n) {(slot), true, true, (n), NULL, NULL}

/* Rounds up to whole cache lines, so that two operands never share one. */
static int64_t padded(int64_t n)
{
    return (n + 15) / 16 * 16;
}

/* Slots are of type void * and const void *; bytes are copied because C has no
 * one type of pointer to both. */
static void *read_slot(const struct operand *o)
{
    void *mem;

    memcpy(&mem, o->slot, sizeof(mem));
    return mem;
}

static void write_slot(const struct operand *o)
{
    memcpy(o->slot, &o->wide, sizeof(o->wide));
}

/* Where *act is bf16: gives every operand its place, fills those that are read,
 * points the slots there and makes *act float. Another type is left as it is.
 * False after a failure of the queue. All operands of one call come here
 * together, since the next call reuses the work memory. */
static bool stage(struct gpt_queue *q, enum gpt_dtype *act,
                  struct operand *list, size_t n)
{
    int64_t total = 0;

    if (*act != GPT_BF16)
        return true;
    for (size_t i = 0; i < n; i++) {
        list[i].mem = read_slot(&list[i]);
        total += list[i].mem ? padded(list[i].n) : 0;
    }
    /* cpu_wide(), not cpu_work(): the float operation uses the latter. */
    float *at = cpu_wide(q, (size_t)total);
    if (!at)
        return false;
    *act = GPT_F32;
    for (size_t i = 0; i < n; i++) {
        struct operand *o = &list[i];

        if (!o->mem)
            continue;
        o->wide = at;
        at += padded(o->n);
        if (o->read)
            cpu_cast(q, o->wide, GPT_F32, o->mem, GPT_BF16, o->n);
        write_slot(o);
    }
    return true;
}

/* Rounds what was written. An operand that is read and written again loses
 * nothing where it did not change: bf16, widened and rounded, is itself. */
static void unstage(struct gpt_queue *q, const struct operand *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert(list[i].read || list[i].written);
        if (list[i].written && list[i].wide)
            cpu_cast(q, list[i].mem, GPT_BF16, list[i].wide, GPT_F32,
                     list[i].n);
    }
}

void cpu_bf16_bias_add(struct gpt_queue *q, void *x, const void *bias,
                       int64_t m, int64_t n, enum gpt_dtype act)
{
    struct operand list[] = {IN_OUT(&x, m * n), IN(&bias, n)};

    if (!stage(q, &act, list, GPT_COUNT(list)))
        return;
    cpu_bias_add(q, x, bias, m, n, act);
    unstage(q, list, GPT_COUNT(list));
}

static int64_t head_elements(const struct gpt_head_norm *op)
{
    return op->n * (op->h + 2 * op->g) * op->d;
}

/* Elements of the weights of `heads` heads of queries or of keys. */
static int64_t weights_of(const struct gpt_head_norm *op, int64_t heads)
{
    return op->squares || op->each ? heads * op->d : op->d;
}

void cpu_bf16_head_norm(struct gpt_queue *q, const struct gpt_head_norm *op)
{
    struct gpt_head_norm wide = *op;
    struct operand list[] = {
        IN(&wide.in, head_elements(op)), OUT(&wide.out, head_elements(op)),
        IN(&wide.wq, weights_of(op, op->h)), IN(&wide.bq, op->d),
        IN(&wide.wk, weights_of(op, op->g)), IN(&wide.bk, op->d),
    };

    if (!stage(q, &wide.act, list, GPT_COUNT(list)))
        return;
    cpu_head_norm(q, &wide);
    unstage(q, list, GPT_COUNT(list));
}

void cpu_bf16_head_norm_bwd(struct gpt_queue *q,
                            const struct gpt_head_norm *op,
                            const struct gpt_head_norm_grad *grad)
{
    struct gpt_head_norm wide = *op;
    struct gpt_head_norm_grad wide_grad = *grad;
    struct operand list[] = {
        IN(&wide.in, head_elements(op)), IN(&wide.wq, weights_of(op, op->h)),
        IN(&wide.wk, weights_of(op, op->g)),
        IN_OUT(&wide_grad.dqkv, head_elements(op)),
    };

    if (!stage(q, &wide.act, list, GPT_COUNT(list)))
        return;
    cpu_head_norm_bwd(q, &wide, &wide_grad);
    unstage(q, list, GPT_COUNT(list));
}

void cpu_bf16_head_norm_sums(struct gpt_queue *q,
                             const struct gpt_head_norm *op, const void *dqkv,
                             float *sums)
{
    struct gpt_head_norm wide = *op;
    struct operand list[] = {
        IN(&wide.in, head_elements(op)), IN(&wide.wq, weights_of(op, op->h)),
        IN(&wide.wk, weights_of(op, op->g)), IN(&dqkv, head_elements(op)),
    };

    if (stage(q, &wide.act, list, GPT_COUNT(list)))
        cpu_head_norm_sums(q, &wide, dqkv, sums);
}

void cpu_bf16_softcap(struct gpt_queue *q, void *x, void *slope, int64_t n,
                      float c, enum gpt_dtype act)
{
    struct operand list[] = {IN_OUT(&x, n), OUT(&slope, n)};

    if (!stage(q, &act, list, GPT_COUNT(list)))
        return;
    cpu_softcap(q, x, slope, n, c, act);
    unstage(q, list, GPT_COUNT(list));
}

void cpu_bf16_times(struct gpt_queue *q, void *x, const void *y, int64_t n,
                    enum gpt_dtype act)
{
    struct operand list[] = {IN_OUT(&x, n), IN(&y, n)};

    if (!stage(q, &act, list, GPT_COUNT(list)))
        return;
    cpu_times(q, x, y, n, act);
    unstage(q, list, GPT_COUNT(list));
}

void cpu_bf16_scale(struct gpt_queue *q, void *x, int64_t n, float factor,
                    enum gpt_dtype act)
{
    struct operand list[] = {IN_OUT(&x, n)};

    if (!stage(q, &act, list, GPT_COUNT(list)))
        return;
    cpu_scale(q, x, n, factor, act);
    unstage(q, list, GPT_COUNT(list));
}

/* A limit is compared with what clip() has stored: as that was rounded. */
static float limit_of(float limit, enum gpt_dtype act)
{
    uint16_t narrow;

    if (act != GPT_BF16)
        return limit;
    cpu_isa->narrow(&narrow, &limit, 1);
    cpu_isa->widen(&limit, &narrow, 1);
    return limit;
}

void cpu_bf16_clip(struct gpt_queue *q, void *x, int64_t n, float limit,
                   enum gpt_dtype act)
{
    struct operand list[] = {IN_OUT(&x, n)};
    const float rounded = limit_of(limit, act);

    if (!stage(q, &act, list, GPT_COUNT(list)))
        return;
    cpu_clip(q, x, n, rounded, act);
    unstage(q, list, GPT_COUNT(list));
}

void cpu_bf16_clip_bwd(struct gpt_queue *q, void *d, const void *x, int64_t n,
                       float limit, enum gpt_dtype act)
{
    struct operand list[] = {IN_OUT(&d, n), IN(&x, n)};
    const float rounded = limit_of(limit, act);

    if (!stage(q, &act, list, GPT_COUNT(list)))
        return;
    cpu_clip_bwd(q, d, x, n, rounded, act);
    unstage(q, list, GPT_COUNT(list));
}

void cpu_bf16_dropout(struct gpt_queue *q, void *y, const void *x, int64_t n,
                      int64_t c, enum gpt_dtype act,
                      const struct gpt_dropout *d)
{
    struct operand list[] = {IN(&x, n * c), OUT(&y, n * c)};

    if (!stage(q, &act, list, GPT_COUNT(list)))
        return;
    cpu_dropout(q, y, x, n, c, act, d);
    unstage(q, list, GPT_COUNT(list));
}

void cpu_bf16_embed_bwd(struct gpt_queue *q, const struct gpt_embed *op,
                        const struct gpt_embed_grad *grad)
{
    struct gpt_embed wide = *op; /* its tables and output are not touched */
    struct gpt_embed_grad wide_grad = *grad;
    struct operand list[] = {IN(&wide_grad.dout, op->n * op->c)};

    if (stage(q, &wide.act, list, GPT_COUNT(list)))
        cpu_embed_bwd(q, &wide, &wide_grad);
}

/* Elements of qkv. */
static int64_t qkv_elements(const struct gpt_attn *op)
{
    return op->b * op->t * (op->h + 2 * op->g) * op->d;
}

void cpu_bf16_attn_fwd(struct gpt_queue *q, const struct gpt_attn *op)
{
    struct gpt_attn wide = *op;
    struct operand list[] = {
        IN(&wide.qkv, qkv_elements(op)),
        OUT(&wide.out, op->b * op->t * op->h * op->d),
    };

    if (op->act == GPT_BF16 && cpu_attn_has_pairs(op->alibi)) {
        cpu_attn_pairs_fwd(q, op);
        return;
    }
    if (!stage(q, &wide.act, list, GPT_COUNT(list)))
        return;
    cpu_attn_fwd(q, &wide);
    unstage(q, list, GPT_COUNT(list));
}

void cpu_bf16_attn_bwd(struct gpt_queue *q, const struct gpt_attn *op,
                       const struct gpt_attn_grad *grad)
{
    int64_t out = op->b * op->t * op->h * op->d;
    struct gpt_attn wide = *op;
    struct gpt_attn_grad wide_grad = *grad; /* scratch is float as it is */
    struct operand list[] = {
        IN(&wide.qkv, qkv_elements(op)),
        IN(&wide.out, out),
        IN(&wide_grad.dout, out),
        OUT(&wide_grad.dqkv, qkv_elements(op)),
    };

    if (op->act == GPT_BF16 && cpu_attn_has_pairs(op->alibi)) {
        cpu_attn_pairs_bwd(q, op, grad);
        return;
    }
    if (!stage(q, &wide.act, list, GPT_COUNT(list)))
        return;
    cpu_attn_bwd(q, &wide, &wide_grad);
    unstage(q, list, GPT_COUNT(list));
}

/* Logits are read, and written when a gradient, or the exponentials that lead
 * to one, are left in them. Rows are ld apart; what is between them is copied
 * to and fro, too, and keeps its bits. */
static struct operand logits_operand(struct gpt_xent *op)
{
    int64_t ld = op->ld ? op->ld : op->v;
    int64_t n = op->n > 0 ? (op->n - 1) * ld + op->v : 0;

    return (struct operand){&op->logits, true, op->grad, n, NULL, NULL};
}

void cpu_bf16_xent_partial(struct gpt_queue *q, const struct gpt_xent *op,
                           float *stats)
{
    struct gpt_xent wide = *op;
    struct operand logits = logits_operand(&wide);

    if (!stage(q, &wide.act, &logits, 1))
        return;
    cpu_xent_partial(q, &wide, stats);
    unstage(q, &logits, 1);
}

void cpu_bf16_xent_finish(struct gpt_queue *q, const struct gpt_xent *op,
                          const float *stats, int64_t ranks, int64_t rank)
{
    struct gpt_xent wide = *op;
    struct operand logits = logits_operand(&wide);

    if (!stage(q, &wide.act, &logits, 1))
        return;
    cpu_xent_finish(q, &wide, stats, ranks, rank);
    unstage(q, &logits, 1);
}
