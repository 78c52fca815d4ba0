/* A pipeline stage: forward and backward over its layers, with the embedding
 * in front and the output layer behind; see stage.h. Start at
 * gpt_stage_forward(). Memory is in stage_memory.c.
 *
 * Points where a pipeline or tensor parallel ranks will communicate are the
 * stage's in and out, and the "sum over TP" comments here and in layer.c. */
#include "model/stage_internal.h"

#include "base/num.h"

/* ---- the two ends: embedding and output layer ---- */

static struct gpt_embed embed_op(const struct gpt_stage *s,
                                 const struct gpt_pass *pass,
                                 const struct gpt_slot *slot)
{
    int64_t rows = s->o.config->padded_vocab_size / s->o.layout.tp_size;
    return (struct gpt_embed){
        .n = pass->n,
        .c = s->o.config->hidden_size,
        .v_begin = rows * s->o.layout.tp_rank,
        .v_local = rows,
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

static struct gpt_norm_site final_site(const struct gpt_stage *s,
                                       const struct gpt_slot *slot)
{
    const struct gpt_layer *last = &s->layers[s->o.layout.chunk[0].n_layers - 1];
    return (struct gpt_norm_site){
        .acts = &slot->final,
        .w = s->w.at[GPT_FINAL_NORM_WEIGHT],
        .b = s->w.at[GPT_FINAL_NORM_BIAS],
        .dw = s->dw.at[GPT_FINAL_NORM_WEIGHT],
        .db = s->dw.at[GPT_FINAL_NORM_BIAS],
        .x_rng = &last->mlp_rng,
    };
}

/* Backward of the output layer for `rows` rows at y: dW += dlogits^T y, then
 * y is overwritten by its own gradient, dlogits W. */
static void output_backward(struct gpt_stage *s, struct gpt_queue *q, void *y,
                            int64_t rows)
{
    int64_t v = s->o.config->padded_vocab_size / s->o.layout.tp_size;
    struct gpt_matmul dw = {
        .m = v,
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
        .k = v,
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

/* Logits, losses and (grad) the whole backward of the output layer, a chunk of
 * rows at a time; afterwards final.y holds the gradient of the final norm. */
static void output_layer(struct gpt_stage *s, struct gpt_queue *q,
                         const struct gpt_slot *slot, bool grad,
                         const struct gpt_stage_result *result)
{
    int64_t n = s->o.micro_batch * s->o.seq_length;
    int64_t c = s->o.config->hidden_size;
    int64_t v = s->o.config->padded_vocab_size / s->o.layout.tp_size;
    size_t act = gpt_dtype_bytes(s->o.act);

    for (int64_t i = 0; i < n; i += s->logits_rows) {
        int64_t rows = gpt_min_i64(s->logits_rows, n - i);
        void *y = (char *)slot->final.y + (size_t)(i * c) * act;
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

/* ---- a step ---- */

/* Is this gradient first written by a matmul with beta 0? */
static bool overwritten(const struct gpt_stage *s,
                        const struct gpt_slice *slice)
{
    switch (slice->param->role) {
    case GPT_QKV_WEIGHT:
    case GPT_PROJ_WEIGHT:
    case GPT_FC1_WEIGHT:
    case GPT_FC2_WEIGHT:
        return true;
    case GPT_OUTPUT_WEIGHT:
        return s->o.layout.has_output;
    case GPT_WORD_EMBEDDING:
        return s->o.layout.has_output && s->o.config->tied_embeddings;
    default:
        return false;
    }
}

void gpt_stage_begin(struct gpt_stage *s, struct gpt_queue *q)
{
    const struct gpt_flat *flat = s->o.flat;
    for (int64_t i = 0, end; i < flat->n; i = end + 1) {
        const struct gpt_slice *slices = flat->slices, *last;
        for (end = i; end < flat->n && !overwritten(s, &slices[end]);)
            end++;
        if (end == i)
            continue;
        last = &slices[end - 1]; /* neighbours are zeroed together */
        s->be->zero(q, s->gradients[0] + slices[i].offset,
                    (size_t)(last->offset + last->count - slices[i].offset) *
                        sizeof(float));
    }
    s->fresh_layers = s->fresh_output = true;
}

static void copy_inputs(struct gpt_stage *s, struct gpt_queue *q,
                        struct gpt_slot *slot, const struct gpt_microbatch *mb)
{
    size_t bytes =
        (size_t)(s->o.micro_batch * s->o.seq_length) * sizeof(int32_t);
    if (s->o.layout.has_embedding) {
        s->be->copy_in(q, slot->input, mb->input, bytes);
        s->be->copy_in(q, slot->position, mb->position, bytes);
    }
    if (s->o.layout.has_output) {
        s->be->copy_in(q, slot->target, mb->target, bytes);
        s->be->copy_in(q, slot->weight, mb->weight, bytes);
    }
    if (s->o.documents)
        s->be->copy_in(q, slot->doc_start, mb->doc_start, bytes);
}

/* The dropout stream of what the layer below layer i leaves to be added. */
static const struct gpt_rng *below(const struct gpt_stage *s, int64_t i)
{
    return i > 0 ? &s->layers[i - 1].mlp_rng : NULL;
}

int64_t gpt_stage_rows(const struct gpt_stage *s)
{
    return s->o.micro_batch * s->o.seq_length;
}

size_t gpt_stage_bytes(const struct gpt_stage *s)
{
    return (size_t)(gpt_stage_rows(s) * s->o.config->hidden_size) *
           gpt_dtype_bytes(s->o.act);
}

void *gpt_stage_input(struct gpt_stage *s, int64_t chunk, int64_t slot)
{
    (void)chunk;
    return s->o.layout.has_embedding ? NULL : s->slots[slot].layers[0].norm1.r;
}

const void *gpt_stage_forward(struct gpt_stage *s, struct gpt_queue *q,
                              int64_t chunk, int64_t slot_number,
                              enum gpt_stage_mode mode,
                              const struct gpt_microbatch *mb, const void *in,
                              const struct gpt_stage_result *result)
{
    (void)chunk;
    struct gpt_slot *slot = &s->slots[slot_number];
    int64_t n_layers = s->o.layout.chunk[0].n_layers;

    slot->sample0 = mb->sample0;
    slot->dropout = mode == GPT_STAGE_TRAIN;
    copy_inputs(s, q, slot, mb);
    struct gpt_pass pass = gpt_stage_pass(s, q, slot);
    if (s->o.layout.has_embedding) {
        struct gpt_embed embed = embed_op(s, &pass, slot);
        s->be->embed_fwd(q, &embed);
        in = embed.out;
    }
    for (int64_t i = 0; i < n_layers; i++)
        gpt_layer_forward(&s->layers[i], &pass, &slot->layers[i],
                          i > 0 ? slot->layers[i - 1].norm2.r : in,
                          below(s, i));

    struct gpt_norm_site final = final_site(s, slot);
    if (!s->o.layout.has_output) /* only the sum r + x is wanted */
        final.w = s->layers[n_layers - 1].w.at[GPT_NORM2_WEIGHT];
    gpt_norm_site_forward(&pass, &final, slot->layers[n_layers - 1].norm2.r);
    if (!s->o.layout.has_output)
        return slot->final.r;
    output_layer(s, q, slot, mode != GPT_STAGE_EVAL, result);
    return NULL;
}

/* Gradients of the stage's end into work.dresid and work.x. */
static void backward_end(struct gpt_stage *s, const struct gpt_pass *pass,
                         const struct gpt_slot *slot, const void *dout)
{
    int64_t c = s->o.config->hidden_size;
    size_t bytes = (size_t)(pass->n * c) * gpt_dtype_bytes(s->o.act);
    struct gpt_norm_site final = final_site(s, slot);

    if (s->o.layout.has_output) {
        s->be->zero(pass->q, s->work.dresid, bytes);
        gpt_norm_site_backward(pass, &final, slot->final.y);
        return;
    }
    struct gpt_dropout dropout =
        gpt_pass_dropout(pass, *final.x_rng, s->o.config->hidden_dropout);
    s->be->copy(pass->q, s->work.dresid, dout, bytes);
    s->be->dropout(pass->q, s->work.x, s->work.dresid, pass->n, c, s->o.act,
                   &dropout);
}

const void *gpt_stage_backward(struct gpt_stage *s, struct gpt_queue *q,
                               int64_t chunk, int64_t slot_number,
                               const void *dout)
{
    (void)chunk;
    const struct gpt_slot *slot = &s->slots[slot_number];
    struct gpt_pass pass = gpt_stage_pass(s, q, slot);

    backward_end(s, &pass, slot, dout);
    for (int64_t i = s->o.layout.chunk[0].n_layers - 1; i >= 0; i--)
        gpt_layer_backward(&s->layers[i], &pass, &slot->layers[i], below(s, i));
    s->fresh_layers = false;
    if (!s->o.layout.has_embedding)
        return s->work.dresid;
    struct gpt_embed embed = embed_op(s, &pass, slot);
    s->be->embed_bwd(q, &embed, s->work.dresid, s->dw.at[GPT_WORD_EMBEDDING],
                     s->dw.at[GPT_POSITION_EMBEDDING]);
    return NULL;
}
