/* A pipeline stage: memory, then forward and backward over its layers; see
 * stage.h. Read stage_bind() for what exists, then gpt_stage_forward().
 *
 * Points where a pipeline or tensor parallel ranks will communicate are the
 * stage's in and out, and the "sum over TP" comments here and in layer.c. */
#include "model/stage.h"

#include "base/memory.h"
#include "base/num.h"
#include "model/layer.h"

#include <string.h>

/* Logits of one chunk of rows take about this much at most. */
enum { LOGITS_LIMIT = 128 << 20, LOGITS_ROWS_MIN = 64 };

/* A microbatch in flight. */
struct slot {
    struct gpt_layer_acts *layers;    /* n_layers of them */
    struct gpt_norm_acts final;       /* last stage: the final norm */
    int32_t *input, *target, *position, *doc_start; /* (B, T) */
    float *weight, *loss;             /* (B, T) */
    int64_t sample0;
    bool dropout;
};

struct gpt_stage {
    struct gpt_backend *be;
    struct gpt_stage_options o;
    struct gpt_layer *layers;
    struct gpt_roles w, dw; /* outside layers */
    struct gpt_rng embedding_rng;
    float *gradients;
    struct slot *slots;
    struct gpt_layer_acts *slot_layers; /* slots x n_layers */
    struct gpt_layer_work work;
    void *logits;
    int64_t logits_rows;
    bool fresh_layers, fresh_output; /* nothing added in this step yet */
    void *mem[GPT_N_MEMORY_KINDS];
};

const char *gpt_memory_kind_name(enum gpt_memory_kind kind)
{
    static const char *const names[GPT_N_MEMORY_KINDS] = {
        [GPT_MEM_PARAMETERS] = "parameters",
        [GPT_MEM_GRADIENTS] = "gradients",
        [GPT_MEM_OPTIMIZER] = "optimizer state",
        [GPT_MEM_ACTIVATIONS] = "activations",
        [GPT_MEM_LOGITS] = "logits",
        [GPT_MEM_WORKSPACE] = "workspace",
        [GPT_MEM_INPUTS] = "inputs",
        [GPT_MEM_BATCHES] = "batches",
    };
    return names[kind];
}

/* ---- memory: one function lays everything out, with or without memory ---- */

struct binder {
    char *base[GPT_N_MEMORY_KINDS]; /* NULL: only count */
    int64_t used[GPT_N_MEMORY_KINDS];
    bool overflow;
};

static void *take(struct binder *b, enum gpt_memory_kind kind, int64_t rows,
                  int64_t columns, size_t element)
{
    int64_t n, bytes, end;
    int64_t at = b->used[kind];
    if (!gpt_mul(rows, columns, &n) || !gpt_mul(n, (int64_t)element, &bytes) ||
        bytes > INT64_MAX / 2 || !gpt_add(at, bytes + GPT_ALIGN, &end)) {
        b->overflow = true;
        return NULL;
    }
    b->used[kind] = gpt_round_up(at + bytes, GPT_ALIGN);
    return b->base[kind] ? b->base[kind] + at : NULL;
}

static void bind_norm(struct binder *b, struct gpt_norm_acts *norm, int64_t n,
                      int64_t c, size_t act)
{
    norm->r = take(b, GPT_MEM_ACTIVATIONS, n, c, act);
    norm->y = take(b, GPT_MEM_ACTIVATIONS, n, c, act);
    norm->mean = take(b, GPT_MEM_ACTIVATIONS, n, 1, sizeof(float));
    norm->rstd = take(b, GPT_MEM_ACTIVATIONS, n, 1, sizeof(float));
}

static void bind_slot(const struct gpt_stage *s, struct binder *b,
                      struct slot *slot)
{
    const struct gpt_config *c = s->o.config;
    int64_t n = s->o.micro_batch * s->o.seq_length, tp = s->o.layout.tp_size;
    int64_t heads = c->num_attention_heads / tp;
    int64_t groups = c->num_query_groups / tp;
    size_t act = gpt_dtype_bytes(s->o.act);

    for (int64_t i = 0; i < s->o.layout.n_layers; i++) {
        struct gpt_layer_acts *a = &slot->layers[i];
        bind_norm(b, &a->norm1, n, c->hidden_size, act);
        a->qkv = take(b, GPT_MEM_ACTIVATIONS, n,
                      (heads + 2 * groups) * c->head_size, act);
        a->att = take(b, GPT_MEM_ACTIVATIONS, n, heads * c->head_size, act);
        a->lse = take(b, GPT_MEM_ACTIVATIONS, n, heads, sizeof(float));
        bind_norm(b, &a->norm2, n, c->hidden_size, act);
        a->pre = take(b, GPT_MEM_ACTIVATIONS, n, c->ffn_hidden_size / tp, act);
        a->gelu = take(b, GPT_MEM_ACTIVATIONS, n, c->ffn_hidden_size / tp,
                       act);
    }
    bind_norm(b, &slot->final, n, c->hidden_size, act);
    slot->input = take(b, GPT_MEM_INPUTS, n, 1, sizeof(int32_t));
    slot->position = take(b, GPT_MEM_INPUTS, n, 1, sizeof(int32_t));
    slot->target = take(b, GPT_MEM_INPUTS, n, 1, sizeof(int32_t));
    slot->doc_start = take(b, GPT_MEM_INPUTS, n, 1, sizeof(int32_t));
    slot->weight = take(b, GPT_MEM_INPUTS, n, 1, sizeof(float));
    slot->loss = take(b, GPT_MEM_INPUTS, n, 1, sizeof(float));
}

static struct gpt_pass pass_of(const struct gpt_stage *s, struct gpt_queue *q,
                               const struct slot *slot)
{
    return (struct gpt_pass){
        .be = s->be,
        .q = q,
        .config = s->o.config,
        .layout = &s->o.layout,
        .act = s->o.act,
        .b = s->o.micro_batch,
        .t = s->o.seq_length,
        .n = s->o.micro_batch * s->o.seq_length,
        .sample0 = slot->sample0,
        .dropout = slot->dropout,
        .beta = s->fresh_layers ? 0.0F : 1.0F,
        .doc_start = s->o.documents ? slot->doc_start : NULL,
        .work = s->work,
    };
}

static size_t scratch_bytes(struct gpt_stage *s)
{
    struct gpt_pass pass = pass_of(s, NULL, &s->slots[0]);
    struct gpt_attn attn =
        gpt_layer_attn(&s->layers[0], &pass, &s->slots[0].layers[0]);
    size_t norm = s->be->norm_scratch(pass.n, s->o.config->hidden_size);
    size_t attention = s->be->attn_scratch(&attn);
    return norm > attention ? norm : attention;
}

static void bind_work(struct gpt_stage *s, struct binder *b)
{
    const struct gpt_config *c = s->o.config;
    int64_t n = s->o.micro_batch * s->o.seq_length, tp = s->o.layout.tp_size;
    int64_t wide = (c->num_attention_heads + 2 * c->num_query_groups) *
        c->head_size / tp;
    size_t act = gpt_dtype_bytes(s->o.act);

    s->work.x = take(b, GPT_MEM_WORKSPACE, n, c->hidden_size, act);
    s->work.scratch = take(b, GPT_MEM_WORKSPACE, 1,
                           (int64_t)scratch_bytes(s), 1);
    /* a stage that is not the last has no use for its final norm's y */
    s->work.dy = take(b, GPT_MEM_WORKSPACE, n,
                      gpt_max_i64(c->hidden_size,
                                  c->num_attention_heads * c->head_size / tp),
                      act);
    if (s->o.training) {
        s->work.dresid = take(b, GPT_MEM_WORKSPACE, n, c->hidden_size, act);
        s->work.dwide = take(b, GPT_MEM_WORKSPACE, n,
                             gpt_max_i64(wide, c->ffn_hidden_size / tp), act);
    }
    if (s->o.layout.has_output)
        s->logits = take(b, GPT_MEM_LOGITS, s->logits_rows,
                         c->padded_vocab_size / tp, act);
}

static int stage_bind(struct gpt_stage *s, struct binder *b,
                      struct gpt_err *err)
{
    for (int64_t i = 0; i < s->o.slots; i++)
        bind_slot(s, b, &s->slots[i]);
    bind_work(s, b);
    if (b->overflow)
        return gpt_fail(err, GPT_EUSAGE,
                        "--micro-batch-size %lld with --seq-length %lld needs "
                        "more memory than can be counted",
                        (long long)s->o.micro_batch,
                        (long long)s->o.seq_length);
    return GPT_OK;
}

/* Everything but device memory. */
static int stage_new(struct gpt_stage **stage, struct gpt_backend *be,
                     const struct gpt_stage_options *o, struct gpt_err *err)
{
    struct gpt_stage *s;
    int64_t row = o->config->padded_vocab_size / o->layout.tp_size *
        (int64_t)gpt_dtype_bytes(o->act);
    size_t layers = (size_t)o->layout.n_layers, slots = (size_t)o->slots;

    GPT_TRY(gpt_new(stage, 1, sizeof *s, "a stage", err));
    s = *stage;
    s->be = be;
    s->o = *o;
    s->embedding_rng = gpt_rng_open(o->seed, "dropout/embedding");
    s->logits_rows = gpt_min_i64(
        o->micro_batch * o->seq_length,
        gpt_max_i64(LOGITS_LIMIT / row / LOGITS_ROWS_MIN, 1) * LOGITS_ROWS_MIN);
    GPT_TRY(gpt_new(&s->layers, layers, sizeof *s->layers, "layers", err));
    GPT_TRY(gpt_new(&s->slots, slots, sizeof *s->slots, "slots", err));
    GPT_TRY(gpt_new(&s->slot_layers, slots * layers, sizeof *s->slot_layers,
                    "slots", err));
    for (size_t i = 0; i < slots; i++)
        s->slots[i].layers = s->slot_layers + i * layers;
    return GPT_OK;
}

int gpt_stage_memory(struct gpt_memory *memory, struct gpt_backend *be,
                     const struct gpt_stage_options *options,
                     struct gpt_err *err)
{
    struct binder b = { .overflow = false };
    struct gpt_stage *s = NULL;
    int status;

    GPT_TRY_GOTO(status, stage_new(&s, be, options, err), out);
    GPT_TRY_GOTO(status, stage_bind(s, &b, err), out);
    for (int kind = GPT_MEM_ACTIVATIONS; kind <= GPT_MEM_INPUTS; kind++)
        memory->bytes[kind] = b.used[kind];
out:
    gpt_stage_close(s);
    return status;
}

static int stage_allocate(struct gpt_stage *s, struct gpt_err *err)
{
    struct binder count = { .overflow = false }, b = { .overflow = false };

    GPT_TRY(stage_bind(s, &count, err));
    for (int kind = GPT_MEM_ACTIVATIONS; kind <= GPT_MEM_INPUTS; kind++) {
        if (count.used[kind] == 0)
            continue;
        GPT_TRY(s->be->alloc(s->be, (size_t)count.used[kind],
                             gpt_memory_kind_name((enum gpt_memory_kind)kind),
                             &s->mem[kind], err));
        b.base[kind] = s->mem[kind];
    }
    return stage_bind(s, &b, err);
}

int gpt_stage_open(struct gpt_stage **stage, struct gpt_backend *be,
                   const struct gpt_stage_options *options, void *weights,
                   float *gradients, struct gpt_err *err)
{
    const struct gpt_layout *layout = &options->layout;
    struct gpt_stage *s = NULL;
    int status;

    *stage = NULL;
    GPT_TRY_GOTO(status, stage_new(&s, be, options, err), fail);
    GPT_TRY_GOTO(status, stage_allocate(s, err), fail);
    s->gradients = gradients;
    gpt_roles_bind(&s->w, options->flat, -1, weights, options->act);
    if (gradients)
        gpt_roles_bind(&s->dw, options->flat, -1, gradients, GPT_F32);
    for (int64_t i = 0; i < layout->n_layers; i++)
        gpt_layer_bind(&s->layers[i], options->flat, layout->first_layer + i,
                       weights, options->act, gradients, options->seed);
    *stage = s;
    return GPT_OK;
fail:
    gpt_stage_close(s);
    return status;
}

void gpt_stage_close(struct gpt_stage *s)
{
    if (!s)
        return;
    for (int kind = 0; kind < GPT_N_MEMORY_KINDS; kind++) {
        if (s->mem[kind])
            s->be->free(s->be, s->mem[kind]);
    }
    gpt_free(s->slot_layers);
    gpt_free(s->slots);
    gpt_free(s->layers);
    gpt_free(s);
}

/* ---- the two ends: embedding and output layer ---- */

static struct gpt_embed embed_op(const struct gpt_stage *s,
                                 const struct gpt_pass *pass,
                                 const struct slot *slot)
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
                                       const struct slot *slot)
{
    const struct gpt_layer *last = &s->layers[s->o.layout.n_layers - 1];
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
                         const struct slot *slot, bool grad,
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
        s->be->zero(q, s->gradients + slices[i].offset,
                    (size_t)(last->offset + last->count - slices[i].offset) *
                        sizeof(float));
    }
    s->fresh_layers = s->fresh_output = true;
}

static void copy_inputs(struct gpt_stage *s, struct gpt_queue *q,
                        struct slot *slot, const struct gpt_microbatch *mb)
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

const void *gpt_stage_forward(struct gpt_stage *s, struct gpt_queue *q,
                              int64_t slot_number, enum gpt_stage_mode mode,
                              const struct gpt_microbatch *mb, const void *in,
                              const struct gpt_stage_result *result)
{
    struct slot *slot = &s->slots[slot_number];
    int64_t n_layers = s->o.layout.n_layers;

    slot->sample0 = mb->sample0;
    slot->dropout = mode == GPT_STAGE_TRAIN;
    copy_inputs(s, q, slot, mb);
    struct gpt_pass pass = pass_of(s, q, slot);
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
                         const struct slot *slot, const void *dout)
{
    int64_t c = s->o.config->hidden_size;
    size_t bytes = (size_t)(pass->n * c) * gpt_dtype_bytes(s->o.act);
    struct gpt_norm_site final = final_site(s, slot);

    if (s->o.layout.has_output) {
        s->be->zero(pass->q, s->work.dresid, bytes);
        gpt_norm_site_backward(pass, &final, slot->final.y);
        return;
    }
    struct gpt_dropout dropout = gpt_pass_dropout(
        pass, *final.x_rng, s->o.config->hidden_dropout);
    s->be->copy(pass->q, s->work.dresid, dout, bytes);
    s->be->dropout(pass->q, s->work.x, s->work.dresid, pass->n, c, s->o.act,
                   &dropout);
}

const void *gpt_stage_backward(struct gpt_stage *s, struct gpt_queue *q,
                               int64_t slot_number, const void *dout)
{
    const struct slot *slot = &s->slots[slot_number];
    struct gpt_pass pass = pass_of(s, q, slot);

    backward_end(s, &pass, slot, dout);
    for (int64_t i = s->o.layout.n_layers - 1; i >= 0; i--)
        gpt_layer_backward(&s->layers[i], &pass, &slot->layers[i],
                           below(s, i));
    s->fresh_layers = false;
    if (!s->o.layout.has_embedding)
        return s->work.dresid;
    struct gpt_embed embed = embed_op(s, &pass, slot);
    s->be->embed_bwd(q, &embed, s->work.dresid,
                     s->dw.at[GPT_WORD_EMBEDDING],
                     s->dw.at[GPT_POSITION_EMBEDDING]);
    return NULL;
}
