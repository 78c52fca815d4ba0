/* The two ends of a pipeline: the embedding in front of the first layer, the
 * output layer with its losses behind the last. Tensor parallel ranks hold V /
 * tp words each. */
#include "model/stage_internal.h"

#include "base/num.h"

static int64_t vocabulary(const struct gpt_stage *s)
{
    return s->o.config->padded_vocab_size / s->o.layout.size[GPT_TP];
}

/* ---- embedding ---- */

/* For all rows; out and dropout are the passes' own. */
static struct gpt_embed embed_op(const struct gpt_stage *s,
                                 const struct gpt_pass *pass,
                                 const struct gpt_slot *slot)
{
    return (struct gpt_embed){
        .n = pass->n,
        .c = s->o.config->hidden_size,
        .v_begin = vocabulary(s) * s->o.layout.at[GPT_TP],
        .v_local = vocabulary(s),
        .act = s->o.act,
        .tokens = slot->in.input,
        .positions = slot->in.position,
        .wte = s->w.at[GPT_WORD_EMBEDDING],
        .wpe = s->w.at[GPT_POSITION_EMBEDDING],
    };
}

void gpt_stage_embed(struct gpt_stage *s, const struct gpt_pass *pass,
                     const struct gpt_slot *slot)
{
    int64_t c = s->o.config->hidden_size;
    void *r = slot->layers[0].norm1.r;
    struct gpt_embed embed = embed_op(s, pass, slot);
    struct gpt_dropout dropout = gpt_pass_dropout(
        pass, s->embedding_rng, s->o.config->hidden_dropout);

    embed.out = gpt_pass_part(pass, r);
    if (!pass->tp) {
        embed.dropout = dropout;
        s->be->embed_fwd(pass->q, &embed);
        return;
    }
    /* One rank knows the word, the first one adds the position: the sum over
     * the ranks has the bits of one rank's. */
    if (s->o.layout.at[GPT_TP] > 0)
        embed.wpe = NULL;
    s->be->embed_fwd(pass->q, &embed);
    gpt_pass_sum(pass, embed.out, r);
    s->be->dropout(pass->q, r, r, pass->rows, c, s->o.act, &dropout);
}

void gpt_stage_embed_backward(struct gpt_stage *s, const struct gpt_pass *pass,
                              const struct gpt_slot *slot)
{
    struct gpt_embed embed = embed_op(s, pass, slot);
    struct gpt_pass whole = *pass; /* every rank sees all rows */

    whole.rows = pass->n;
    whole.sequence = false;
    embed.dropout = gpt_pass_dropout(&whole, s->embedding_rng,
                                     s->o.config->hidden_dropout);
    s->be->embed_bwd(pass->q, &embed, gpt_pass_gather(pass, s->work.dresid),
                     s->dw.at[GPT_WORD_EMBEDDING],
                     s->dw.at[GPT_POSITION_EMBEDDING]);
}

/* ---- output layer ---- */

/* Backward of the output layer for `rows` rows at y: dW += dlogits^T y, then
 * y is overwritten by its own gradient, dlogits W, as far as the words here
 * add to it. fresh: dW is overwritten. */
static void output_backward(struct gpt_stage *s, struct gpt_queue *q, void *y,
                            int64_t rows, bool fresh)
{
    struct gpt_matmul dw = {
        .m = vocabulary(s),
        .n = s->o.config->hidden_size,
        .k = rows,
        .ta = true,
        .a = s->logits,
        .b = y,
        .c = gpt_roles_output(&s->dw),
        .act = s->o.act,
        .c_type = GPT_F32,
        .beta = fresh ? 0.0F : 1.0F,
    };
    struct gpt_matmul dy = {
        .m = rows,
        .n = s->o.config->hidden_size,
        .k = vocabulary(s),
        .a = s->logits,
        .b = gpt_roles_output(&s->w),
        .c = y,
        .act = s->o.act,
        .c_type = s->o.act,
    };

    s->be->matmul(q, &dw);
    s->be->matmul(q, &dy);
}

/* The ranks' parts of a softmax meet in three numbers a row. */
static void cross_entropy(struct gpt_stage *s, const struct gpt_pass *pass,
                          const struct gpt_xent *xent)
{
    int64_t rank = s->o.layout.at[GPT_TP], n = GPT_XENT_STATS * xent->n;

    if (!pass->tp) {
        s->be->xent(pass->q, xent);
        return;
    }
    s->be->xent_partial(pass->q, xent, s->stats + rank * n);
    gpt_comm_all_gather(pass->tp, pass->q, s->stats, s->stats + rank * n, n,
                        GPT_F32);
    s->be->xent_finish(pass->q, xent, s->stats, s->o.layout.size[GPT_TP], rank);
}

/* Rows i.. of the batch, which are at y. */
static void output_rows(struct gpt_stage *s, const struct gpt_pass *pass,
                        const struct gpt_slot *slot, int64_t i, int64_t rows,
                        void *y, bool grad, void *all_logits)
{
    int64_t v = vocabulary(s);
    size_t row = (size_t)v * gpt_dtype_bytes(s->o.act);
    struct gpt_matmul logits = {
        .m = rows,
        .n = v,
        .k = s->o.config->hidden_size,
        .tb = true,
        .a = y,
        .b = gpt_roles_output(&s->w),
        .c = s->logits,
        .act = s->o.act,
        .c_type = s->o.act,
    };
    struct gpt_xent xent = {
        .n = rows,
        .v = v,
        .v_real = s->o.config->vocab_size,
        .v_begin = v * s->o.layout.at[GPT_TP],
        .ld = v,
        .act = s->o.act,
        .logits = s->logits,
        .target = slot->in.target + i,
        .weight = slot->in.weight + i,
        .loss = slot->loss + i,
        .grad = grad,
        .scale = *s->host_scale != 0 ? s->scale : NULL,
    };

    s->be->matmul(pass->q, &logits);
    if (all_logits)
        s->be->copy_out(pass->q, (char *)all_logits + (size_t)i * row,
                        s->logits, (size_t)rows * row);
    cross_entropy(s, pass, &xent);
    if (grad)
        output_backward(s, pass->q, y, rows, s->fresh_output && i == 0);
}

void gpt_stage_output(struct gpt_stage *s, const struct gpt_pass *pass,
                      const struct gpt_slot *slot, bool grad, void *logits)
{
    size_t row =
        (size_t)s->o.config->hidden_size * gpt_dtype_bytes(s->o.act);
    char *y = gpt_pass_gather(pass, slot->end.y);

    for (int64_t i = 0; i < pass->n; i += s->logits_rows)
        output_rows(s, pass, slot, i, gpt_min_i64(s->logits_rows, pass->n - i),
                    y + (size_t)i * row, grad, logits);
    if (grad)
        gpt_pass_sum(pass, y, slot->end.y);
}
