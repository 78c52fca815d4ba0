/* The two ends of a pipeline: the embedding in front of the first layer, the
 * output layer with its losses behind the last. */
#include "model/stage_internal.h"

#include "base/num.h"

static int64_t vocabulary(const struct gpt_stage *s)
{
    return s->o.config->padded_vocab_size / s->o.layout.tp_size;
}

/* ---- embedding ---- */

static struct gpt_embed embed_op(const struct gpt_stage *s,
                                 const struct gpt_pass *pass,
                                 const struct gpt_slot *slot)
{
    return (struct gpt_embed){
        .n = pass->n,
        .c = s->o.config->hidden_size,
        .v_begin = vocabulary(s) * s->o.layout.tp_rank,
        .v_local = vocabulary(s),
        .act = s->o.act,
        .tokens = slot->input,
        .positions = slot->position,
        .wte = s->w.at[GPT_WORD_EMBEDDING],
        .wpe = s->w.at[GPT_POSITION_EMBEDDING],
        .out = slot->layers[0].norm1.r,
        .dropout = gpt_pass_dropout(pass, s->embedding_rng,
                                    s->o.config->hidden_dropout),
    };
    /* sum over TP: the words; positions and dropout come after it */
}

void gpt_stage_embed(struct gpt_stage *s, const struct gpt_pass *pass,
                     const struct gpt_slot *slot)
{
    struct gpt_embed embed = embed_op(s, pass, slot);
    s->be->embed_fwd(pass->q, &embed);
}

void gpt_stage_embed_backward(struct gpt_stage *s, const struct gpt_pass *pass,
                              const struct gpt_slot *slot)
{
    struct gpt_embed embed = embed_op(s, pass, slot);
    s->be->embed_bwd(pass->q, &embed, s->work.dresid,
                     s->dw.at[GPT_WORD_EMBEDDING],
                     s->dw.at[GPT_POSITION_EMBEDDING]);
}

/* ---- output layer ---- */

/* Backward of the output layer for `rows` rows at y: dW += dlogits^T y, then
 * y is overwritten by its own gradient, dlogits W. */
static void output_backward(struct gpt_stage *s, struct gpt_queue *q, void *y,
                            int64_t rows)
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
        .beta = s->fresh_output ? 0.0F : 1.0F,
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
    s->be->matmul(q, &dy); /* sum over TP */
    s->fresh_output = false;
}

void gpt_stage_output(struct gpt_stage *s, const struct gpt_pass *pass,
                      const struct gpt_slot *slot, bool grad,
                      const struct gpt_stage_result *result)
{
    struct gpt_queue *q = pass->q;
    int64_t n = pass->n, c = s->o.config->hidden_size, v = vocabulary(s);
    size_t act = gpt_dtype_bytes(s->o.act);

    for (int64_t i = 0; i < n; i += s->logits_rows) {
        int64_t rows = gpt_min_i64(s->logits_rows, n - i);
        void *y = (char *)slot->end.y + (size_t)(i * c) * act;
        struct gpt_matmul logits = {
            .m = rows,
            .n = v,
            .k = c,
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
            .ld = v,
            .act = s->o.act,
            .logits = s->logits,
            .target = slot->target + i,
            .weight = slot->weight + i,
            .loss = slot->loss + i,
            .grad = grad,
        };
        s->be->matmul(q, &logits);
        if (result->logits)
            s->be->copy_out(q, result->logits + i * v, s->logits,
                            (size_t)(rows * v) * sizeof(float));
        s->be->xent(q, &xent);
        if (grad)
            output_backward(s, q, y, rows);
    }
    s->be->copy_out(q, result->loss, slot->loss, (size_t)n * sizeof(float));
}
