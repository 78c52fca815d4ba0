/* The two ends of a pipeline: the embedding in front of the first layer, the
 * output layer with its losses after the last. Tensor parallel ranks hold V /
 * tp words each. Start at gpt_stage_output(). */
#include "model/norm_site.h"
#include "model/stage_internal.h"

#include "base/num.h"
#include "model/gpt_loss.h"

/* ---- embedding ---- */

/* The embedding of all rows; forward and backward add out and dropout. */
static struct gpt_embed embed_op(const struct gpt_stage *s,
                                 const struct gpt_pass *pass,
                                 const struct gpt_slot *slot)
{
    return (struct gpt_embed){
        .n = pass->n,
        .c = s->widths.hidden,
        .v_begin = s->widths.vocab * s->o.layout.at[GPT_TP],
        .v_local = s->widths.vocab,
        .t_max = s->o.config->max_positions,
        .act = s->o.exec.act,
        .tokens = slot->in.input,
        .positions = slot->in.position,
        .wte = s->w.at[GPT_WORD_EMBEDDING],
        .wpe = gpt_roles_positions(&s->w, s->o.config,
                                   gpt_dtype_bytes(s->o.exec.act)),
        .scale = gpt_config_word_scale(s->o.config),
    };
}

/* The norm after the embedding, where there is one. It is in front of all
 * layers: its input is kept by the slot, and its output is the stream. */
static struct gpt_norm_site embedded_site(const struct gpt_stage *s,
                                          const struct gpt_slot *slot)
{
    return (struct gpt_norm_site){
        .acts = &slot->embedded,
        .norms = s->o.config->embedding_norm,
        .w = s->w.at[GPT_EMBEDDING_NORM_WEIGHT],
        .b = s->w.at[GPT_EMBEDDING_NORM_BIAS],
        .dw = s->dw.at[GPT_EMBEDDING_NORM_WEIGHT],
        .db = s->dw.at[GPT_EMBEDDING_NORM_BIAS],
    };
}

void gpt_stage_embed(struct gpt_stage *s, const struct gpt_pass *pass,
                     const struct gpt_slot *slot)
{
    int64_t c = s->widths.hidden;
    void *r = slot->layers[0].norm1.r;
    const struct gpt_norm_site norm = embedded_site(s, slot);
    void *out = norm.norms ? slot->embedded.r : r;
    struct gpt_embed embed = embed_op(s, pass, slot);
    struct gpt_dropout dropout = gpt_pass_dropout(
        pass, s->embedding_rng, s->o.config->hidden_dropout);

    embed.out = gpt_pass_part(pass, out);
    /* dropout comes after the norm and after the sum: without both, it is part
     * of the lookup */
    if (!pass->tp && !norm.norms) {
        embed.dropout = dropout;
        s->be->embed_fwd(pass->q, &embed);
        return;
    }
    /* One rank holds the word, and the first one adds the position. All others
     * give zeros, so that the sum has the bits that one rank alone computes. */
    if (s->o.layout.at[GPT_TP] > 0)
        embed.wpe = NULL;
    s->be->embed_fwd(pass->q, &embed);
    gpt_pass_sum(pass, embed.out, out);
    if (norm.norms)
        gpt_norm_site_forward(pass, &norm, out);
    s->be->dropout(pass->q, r, r, pass->rows, c, s->o.exec.act, &dropout);
}

/* From the gradient of what follows dropout to that of what precedes the norm,
 * both in work.dresid: the stream has no other part there. */
static void embedded_backward(struct gpt_stage *s, const struct gpt_pass *pass,
                              const struct gpt_norm_site *norm)
{
    const struct gpt_dropout dropout = gpt_pass_dropout(
        pass, s->embedding_rng, s->o.config->hidden_dropout);

    s->be->dropout(pass->q, s->work.x, s->work.dresid, pass->rows,
                   s->widths.hidden, s->o.exec.act, &dropout);
    s->be->zero(pass->q, s->work.dresid, gpt_stage_bytes(s));
    gpt_norm_site_backward(pass, norm, s->work.x);
}

void gpt_stage_embed_backward(struct gpt_stage *s, const struct gpt_pass *pass,
                              const struct gpt_slot *slot)
{
    struct gpt_embed embed = embed_op(s, pass, slot);
    const struct gpt_norm_site norm = embedded_site(s, slot);
    struct gpt_pass whole = *pass; /* every rank handles all rows, as any of
                                    * them may hold the word of any row */

    whole.rows = pass->n;
    whole.sequence = false;
    if (norm.norms)
        embedded_backward(s, pass, &norm);
    else
        embed.dropout = gpt_pass_dropout(&whole, s->embedding_rng,
                                         s->o.config->hidden_dropout);
    const struct gpt_embed_grad grad = {
        .dout = gpt_pass_gather(pass, s->work.dresid),
        .dwte = s->dw.at[GPT_WORD_EMBEDDING],
        .dwpe = gpt_roles_positions(&s->dw, s->o.config, sizeof(float)),
        .scratch = s->work.scratch,
    };
    s->be->embed_bwd(pass->q, &embed, &grad);
}

/* ---- output layer ---- */

/* Backward of the output layer for `rows` rows at y: dW += dlogits^T y, the
 * bias's gradient is the sum of dlogits over rows, which all are here; then
 * y is overwritten by this rank's part of its own gradient, dlogits W. fresh:
 * dW is overwritten. */
static void output_backward(struct gpt_stage *s, struct gpt_queue *q, void *y,
                            int64_t rows, bool fresh)
{
    struct gpt_matmul dw = {
        .m = s->widths.vocab,
        .n = s->widths.hidden,
        .k = rows,
        .ta = true,
        .a = s->logits,
        .b = y,
        .c = gpt_roles_output(&s->dw),
        .act = s->o.exec.act,
        .c_type = GPT_F32,
        .beta = fresh ? 0.0F : 1.0F,
    };
    struct gpt_matmul dy = {
        .m = rows,
        .n = s->widths.hidden,
        .k = s->widths.vocab,
        .a = s->logits,
        .b = gpt_roles_output(&s->w),
        .c = y,
        .act = s->o.exec.act,
        .c_type = s->o.exec.act,
    };

    s->be->matmul(q, &dw);
    if (s->dw.at[GPT_OUTPUT_BIAS])
        s->be->bias_grad(q, s->dw.at[GPT_OUTPUT_BIAS], s->logits, rows,
                         s->widths.vocab, s->o.exec.act);
    s->be->matmul(q, &dy);
}

/* Ranks that share the vocabulary exchange GPT_XENT_STATS numbers a row; each
 * then finishes its own columns of the softmax. */
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

/* A loss of tokens instead of cross-entropy: a pass for the cross-entropies,
 * the function of them on the host, then the pass for the gradient, in which
 * the function's slopes are factors of the weights: the chain rule, as a loss
 * depends on the logits of its row through the cross-entropy alone. The host's
 * buffers are filled and emptied once a chunk of rows, and the queue is waited
 * for between the two. A failure of the queue shows when the step waits for
 * it. */
static void own_loss(struct gpt_stage *s, const struct gpt_pass *pass,
                     const struct gpt_xent *op)
{
    const struct gpt_token_loss *own = s->o.exec.token_loss;
    const size_t bytes = (size_t)op->n * sizeof(float);
    float *nll = s->host_tokens, *loss = nll + s->logits_rows;
    float *weight = loss + s->logits_rows, *slope = weight + s->logits_rows;
    int32_t *target = (int32_t *)(void *)(slope + s->logits_rows);
    struct gpt_xent xent = *op;
    struct gpt_err err;

    /* without gradients the logits stay for the second pass */
    xent.grad = false;
    cross_entropy(s, pass, &xent);
    s->be->copy_out(pass->q, nll, op->loss, bytes);
    s->be->copy_out(pass->q, weight, op->weight, bytes);
    s->be->copy_out(pass->q, target, op->target, bytes);
    if (s->be->sync(pass->q, &err) != GPT_OK)
        return;
    const struct gpt_loss_tokens tokens = {.n = op->n, .target = target,
                                           .nll = nll, .loss = loss,
                                           .slope = slope};
    own->call(own->context, &tokens);
    for (int64_t i = 0; i < op->n; i++)
        weight[i] *= slope[i];
    s->be->copy_in(pass->q, s->token_weights, weight, bytes);
    xent.grad = true;
    xent.weight = s->token_weights;
    cross_entropy(s, pass, &xent);
    /* over the cross-entropies that the second pass has left there */
    s->be->copy_in(pass->q, op->loss, loss, bytes);
}

/* Logits, losses and with `grad` the backward of rows [i, i + rows) of the
 * batch, which are at y. */
static void output_rows(struct gpt_stage *s, const struct gpt_pass *pass,
                        const struct gpt_slot *slot, int64_t i, int64_t rows,
                        void *y, bool grad,
                        const struct gpt_stage_result *result)
{
    int64_t v = s->widths.vocab;
    const int64_t elements = rows * s->widths.hidden;
    const float factor = (float)s->o.config->logit_multiplier;
    const float cap = (float)s->o.config->final_logit_softcapping;
    size_t row = (size_t)v * gpt_dtype_bytes(s->o.exec.act);
    struct gpt_matmul logits = {
        .m = rows,
        .n = v,
        .k = s->widths.hidden,
        .tb = true,
        .a = y,
        .b = gpt_roles_output(&s->w),
        .c = s->logits,
        .act = s->o.exec.act,
        .c_type = s->o.exec.act,
        .epilogue = s->w.at[GPT_OUTPUT_BIAS] ? GPT_EPI_BIAS : GPT_EPI_NONE,
        .bias = s->w.at[GPT_OUTPUT_BIAS],
    };
    struct gpt_xent xent = {
        .n = rows,
        .v = v,
        .v_real = s->o.config->vocab_size, /* dummies take no probability */
        .v_begin = v * s->o.layout.at[GPT_TP],
        .ld = v,
        .act = s->o.exec.act,
        .logits = s->logits,
        .target = slot->in.target + i,
        .weight = slot->in.weight + i,
        .loss = slot->loss + i,
        .grad = grad,
        .scale = gpt_stage_scale_of(s),
        .smoothing = grad ? s->o.exec.label_smoothing : 0,
        .z_loss = grad ? s->o.exec.z_loss : 0,
    };

    /* of the rows, which are fewer than the logits: the same products */
    if (factor > 0)
        s->be->scale(pass->q, y, elements, factor, s->o.exec.act);
    s->be->matmul(pass->q, &logits);
    if (cap > 0)
        s->be->softcap(pass->q, s->logits, grad ? s->logit_slopes : NULL,
                       rows * v, cap, s->o.exec.act);
    /* before the softmax, which leaves gradients in their place */
    if (result->logits)
        s->be->copy_out(pass->q, (char *)result->logits + (size_t)i * row,
                        s->logits, (size_t)rows * row);
    if (result->rows)
        result->rows(result->context,
                     &(struct gpt_logit_rows){pass->q, i, rows, s->logits});
    if (grad && s->o.exec.token_loss)
        own_loss(s, pass, &xent);
    else
        cross_entropy(s, pass, &xent);
    /* from the gradient of capped logits to that of the product's */
    if (cap > 0 && grad)
        s->be->times(pass->q, s->logits, s->logit_slopes, rows * v,
                     s->o.exec.act);
    /* the first rows of a step overwrite dW, all others add to it */
    if (grad)
        output_backward(s, pass->q, y, rows, s->fresh_output && i == 0);
    /* from the gradient of the rows that were multiplied to that of y */
    if (grad && factor > 0)
        s->be->scale(pass->q, y, elements, factor, s->o.exec.act);
}

/* A few rows at a time: the logits of a whole microbatch would be the largest
 * buffer of all. With `grad` each chunk of rows is finished before the next, so
 * that no logits are kept for backward. */
void gpt_stage_output(struct gpt_stage *s, const struct gpt_pass *pass,
                      const struct gpt_slot *slot, bool grad,
                      const struct gpt_stage_result *result)
{
    size_t row =
        (size_t)s->widths.hidden * gpt_dtype_bytes(s->o.exec.act);
    char *y = gpt_pass_gather(pass, slot->end.y);

    for (int64_t i = 0; i < pass->n; i += s->logits_rows)
        output_rows(s, pass, slot, i, gpt_min_i64(s->logits_rows, pass->n - i),
                    y + (size_t)i * row, grad, result);
    if (grad)
        gpt_pass_sum(pass, y, slot->end.y);
}
