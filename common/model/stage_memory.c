/* A stage's memory: which buffers there are, and their sizes. Read bind_work()
 * for what all layers share, then bind_slot() for what a microbatch keeps. */
#include "model/experts.h"
#include "model/latent.h"
#include "model/linear.h"
#include "model/stage_internal.h"

#include "base/memory.h"
#include "base/num.h"

/* The next rows x columns elements of a kind; NULL while only counting. */
static void *take_block(struct gpt_binder *b, enum gpt_memory_kind kind,
                        int64_t rows, int64_t columns, size_t element)
{
    int64_t n, bytes, end;
    int64_t at = b->used[kind];

    /* options may ask for any size: a product that overflows is reported at
     * the end, once, by gpt_stage_bind() */
    if (!gpt_mul(rows, columns, &n) || !gpt_mul(n, (int64_t)element, &bytes) ||
        bytes > INT64_MAX / 2 || !gpt_add(at, bytes + GPT_ALIGN, &end)) {
        b->overflow = true;
        return NULL;
    }
    b->used[kind] = gpt_round_up(at + bytes, GPT_ALIGN);
    return b->base[kind] ? b->base[kind] + at : NULL;
}

/* A (N, width) block of activations. */
static void *take_all(const struct gpt_stage *s, struct gpt_binder *b,
                      enum gpt_memory_kind kind, int64_t width)
{
    return take_block(b, kind, s->rows.n, width,
                      gpt_dtype_bytes(s->o.exec.act));
}

/* A (rows, C) block of the residual stream or of what is added to it. */
static void *take_rows(const struct gpt_stage *s, struct gpt_binder *b,
                       enum gpt_memory_kind kind)
{
    return take_block(b, kind, s->rows.kept, s->widths.hidden,
                      gpt_dtype_bytes(s->o.exec.act));
}

/* Statistics are float whatever the type of activations: backward reads them
 * again, and an error of one would be in every element of its row. */
static void bind_statistics(const struct gpt_stage *s, struct gpt_binder *b,
                            enum gpt_memory_kind kind,
                            struct gpt_norm_acts *norm)
{
    norm->mean = take_block(b, kind, s->rows.kept, 1, sizeof(float));
    norm->rstd = take_block(b, kind, s->rows.kept, 1, sizeof(float));
}

/* In place of a layer's number: what any layer of the model needs. */
enum { ANY = -1 };

static bool has_experts(const struct gpt_stage *s, int64_t layer)
{
    return layer == ANY ? s->o.config->num_experts > 0
                        : gpt_config_has_experts(s->o.config, layer);
}

/* The width of a layer's feed-forward of all tokens, after the activation. */
static int64_t ffn_of(const struct gpt_stage *s, int64_t layer)
{
    if (layer == ANY)
        return gpt_widths_widest(s->o.config, &s->widths);
    return has_experts(s, layer) ? s->widths.shared : s->widths.ffn;
}

static int64_t first_layer(const struct gpt_stage *s,
                           const struct gpt_stage_chunk *chunk)
{
    return s->o.layout.chunk[chunk - s->chunks].first_layer;
}

/* A row for each pair of a token and one of its experts. All experts of a token
 * may be this rank's. */
static void *take_pairs(const struct gpt_stage *s, struct gpt_binder *b,
                        enum gpt_memory_kind kind, int64_t width)
{
    return take_block(b, kind, s->rows.n * s->o.config->moe_router_topk, width,
                      gpt_dtype_bytes(s->o.exec.act));
}

/* A block of so many bytes, that something else lays out. */
static void *take_bytes(struct gpt_binder *b, enum gpt_memory_kind kind,
                        int64_t bytes)
{
    return take_block(b, kind, 1, bytes, 1);
}

/* Tables of the router are small, and are kept with its logits, from which
 * backward computes scores again. */
static void bind_experts(const struct gpt_stage *s, struct gpt_binder *b,
                         enum gpt_memory_kind kind, struct gpt_expert_acts *a)
{
    const struct gpt_config *c = s->o.config;
    const int64_t bytes = gpt_experts_lay_out(a, c, s->rows.n, NULL);

    gpt_experts_lay_out(a, c, s->rows.n, take_bytes(b, kind, bytes));
    a->pre = take_pairs(s, b, kind, s->widths.expert_in);
}

static void bind_latent_products(const struct gpt_stage *s,
                                 struct gpt_binder *b,
                                 enum gpt_memory_kind kind,
                                 struct gpt_latent_acts *a)
{
    const int64_t n = s->rows.n;
    const enum gpt_dtype act = s->o.exec.act;
    const int64_t bytes =
        gpt_latent_lay_products(a, &s->widths, n, act, NULL);

    gpt_latent_lay_products(a, &s->widths, n, act, take_bytes(b, kind, bytes));
}

static void bind_latent_normed(const struct gpt_stage *s, struct gpt_binder *b,
                               enum gpt_memory_kind kind,
                               struct gpt_latent_acts *a)
{
    const int64_t n = s->rows.n;
    const enum gpt_dtype act = s->o.exec.act;
    const int64_t bytes = gpt_latent_lay_normed(a, &s->widths, n, act, NULL);

    gpt_latent_lay_normed(a, &s->widths, n, act, take_bytes(b, kind, bytes));
}

static void bind_latent_work(struct gpt_stage *s, struct gpt_binder *b)
{
    const int64_t n = s->rows.n;
    const enum gpt_dtype act = s->o.exec.act;
    const bool backward = s->o.training;
    struct gpt_latent_work *work = &s->work.latent;
    const int64_t bytes =
        gpt_latent_lay_work(work, &s->widths, n, act, backward, NULL);

    gpt_latent_lay_work(work, &s->widths, n, act, backward,
                        take_bytes(b, GPT_MEM_WORKSPACE, bytes));
}

/* What selective recomputation keeps of a layer, beside the residual stream in
 * front of it (norm1.r): results of products, which take long to make again. */
static void bind_products(const struct gpt_stage *s, struct gpt_binder *b,
                          enum gpt_memory_kind kind, int64_t layer,
                          struct gpt_layer_acts *a)
{
    const struct gpt_config *c = s->o.config;

    if (!c->no_pre_norm)
        bind_statistics(s, b, kind, &a->norm1);
    a->qkv = take_all(s, b, kind, s->widths.qkv);
    if (gpt_config_is_latent(c))
        bind_latent_products(s, b, kind, &a->latent);
    /* two blocks side by side have one stream, and may have one norm */
    if (!c->parallel_blocks)
        a->norm2.r = take_rows(s, b, kind);
    if (!c->shared_norm && !c->no_pre_norm)
        bind_statistics(s, b, kind, &a->norm2);
    if (c->qk_norm_whole)
        a->squares = take_block(b, kind, s->rows.n, 2, sizeof(float));
    /* the inputs of norms after blocks are products */
    if (c->post_norm) {
        a->post1.r = take_rows(s, b, kind);
        bind_statistics(s, b, kind, &a->post1);
        a->post2.r = take_rows(s, b, kind);
        bind_statistics(s, b, kind, &a->post2);
    }
    a->pre = take_all(s, b, kind, gpt_widths_before(c, ffn_of(s, layer)));
    if (has_experts(s, layer))
        bind_experts(s, b, kind, &a->experts);
}

/* The rest, which selective recomputation makes again from these. Backward is
 * through with norm2.y before it makes norm1.y, so that they share a block. */
static void bind_derived(const struct gpt_stage *s, struct gpt_binder *b,
                         enum gpt_memory_kind kind, int64_t layer,
                         struct gpt_layer_acts *a)
{
    if (!s->o.config->no_pre_norm)
        a->norm1.y = take_rows(s, b, kind);
    /* norms of heads need their input in backward, and what was clipped must be
     * seen there: qkv stays as it is */
    if (s->o.config->qk_norm ||
        (s->o.config->clip_qkv > 0 &&
         s->o.config->position_embedding == GPT_POSITION_ROPE))
        a->heads = take_all(s, b, kind, s->widths.qkv);
    if (gpt_config_is_latent(s->o.config))
        bind_latent_normed(s, b, kind, &a->latent);
    a->att = take_all(s, b, kind, s->widths.attention);
    a->lse = take_block(b, kind, s->rows.n, s->widths.heads, sizeof(float));
    a->norm2.y = gpt_stage_selective(s) || s->o.config->shared_norm ||
                         s->o.config->no_pre_norm
                     ? a->norm1.y
                     : take_rows(s, b, kind);
    a->activated = take_all(s, b, kind, ffn_of(s, layer));
    if (has_experts(s, layer))
        a->experts.activated = take_pairs(s, b, kind, s->widths.expert);
}

/* What the layers of a group share while backward is there. The first one's
 * norm1.r is not shared: it is what every slot keeps. */
static void bind_shared(const struct gpt_stage *s, struct gpt_binder *b)
{
    for (int64_t i = 0; i < s->group; i++) {
        struct gpt_layer_acts *a = &s->shared[i];

        bind_derived(s, b, GPT_MEM_WORKSPACE, ANY, a);
        if (gpt_stage_selective(s))
            continue;
        if (i > 0)
            a->norm1.r = take_rows(s, b, GPT_MEM_WORKSPACE);
        bind_products(s, b, GPT_MEM_WORKSPACE, ANY, a);
    }
}

/* A layer's activations in one slot, by what of it is recomputed: all but the
 * stream in front of its group, all but products, or nothing. */
static void bind_layer(const struct gpt_stage *s, struct gpt_binder *b,
                       const struct gpt_stage_chunk *chunk,
                       const struct gpt_slot *slot, int64_t i)
{
    struct gpt_layer_acts *a = &slot->layers[i];
    const int64_t layer = first_layer(s, chunk) + i;
    int64_t first = gpt_stage_group(s, chunk, i);
    bool again = i < chunk->recomputed;

    /* begins with the shared buffers; those of its own replace them below */
    if (again || gpt_stage_selective(s))
        *a = s->shared[i - first];
    if (i == first)
        a->norm1.r = take_rows(s, b, GPT_MEM_ACTIVATIONS);
    if (!again)
        bind_products(s, b, GPT_MEM_ACTIVATIONS, layer, a);
    if (!again && !gpt_stage_selective(s))
        bind_derived(s, b, GPT_MEM_ACTIVATIONS, layer, a);
    /* attention adds nothing to the stream before the feed-forward reads it */
    if (s->o.config->parallel_blocks)
        a->norm2.r = a->norm1.r;
    /* without norms, blocks read the stream itself: after all places are known,
     * as those of a group's first layer come from elsewhere */
    if (s->o.config->no_pre_norm) {
        a->norm1.y = a->norm1.r;
        a->norm2.y = a->norm2.r;
    }
}

/* Tokens stay with the slot: the embedding's backward reads them again. */
static void bind_inputs(const struct gpt_stage *s, struct gpt_binder *b,
                        const struct gpt_stage_chunk *chunk,
                        struct gpt_slot *slot)
{
    slot->block =
        take_block(b, GPT_MEM_INPUTS, 1, gpt_microbatch_bytes(s->rows.n), 1);
    gpt_microbatch_lay_out(&slot->in, slot->block, s->rows.n);
    if (chunk->output)
        slot->loss = take_block(b, GPT_MEM_INPUTS, s->rows.n, 1, sizeof(float));
}

static void bind_slot(const struct gpt_stage *s, struct gpt_binder *b,
                      const struct gpt_stage_chunk *chunk,
                      struct gpt_slot *slot)
{
    for (int64_t i = 0; i < chunk->n_layers; i++)
        bind_layer(s, b, chunk, slot, i);
    /* its backward comes last of all, and reads what went in */
    if (chunk->embedding && s->o.config->embedding_norm) {
        slot->embedded.r = take_rows(s, b, GPT_MEM_ACTIVATIONS);
        slot->embedded.y = slot->layers[0].norm1.r;
        bind_statistics(s, b, GPT_MEM_ACTIVATIONS, &slot->embedded);
    }
    /* another stage's chunk follows: it gets the stream before the next
     * forward, so that all slots share one output buffer */
    slot->end.r = s->out;
    if (chunk->output) {
        slot->end.r = take_rows(s, b, GPT_MEM_ACTIVATIONS);
        slot->end.y = take_rows(s, b, GPT_MEM_ACTIVATIONS);
        bind_statistics(s, b, GPT_MEM_ACTIVATIONS, &slot->end);
    }
    bind_inputs(s, b, chunk, slot);
}

/* The widest output of a first product of all tokens. */
static int64_t widest_in(const struct gpt_stage *s)
{
    return gpt_widths_before(s->o.config, ffn_of(s, ANY));
}

/* Norms, attention, sums of biases, the embedding and products never run at the
 * same time: one scratch serves all. Attention has the same shapes in all
 * layers, so the first one speaks for all. */
static size_t scratch_bytes(const struct gpt_stage *s)
{
    const struct gpt_stage_chunk *chunk = &s->chunks[0];
    struct gpt_pass pass = gpt_stage_pass(s, NULL, chunk, &chunk->slots[0]);
    struct gpt_attn attn =
        gpt_layer_attn(&chunk->layers[0], &pass, &chunk->slots[0].layers[0]);
    const struct gpt_config *c = s->o.config;
    /* columns' sums of two biases with a gap between them come last */
    const size_t needs[] = {
        s->be->norm_scratch(pass.rows, s->widths.hidden),
        s->be->norm_scratch(pass.n, gpt_max_i64(s->widths.q_rank,
                                                s->widths.kv_rank)),
        s->be->attn_scratch(&attn),
        c->qk_norm ? s->be->head_norm_scratch(
                         pass.n, c->qk_norm_whole || c->qk_norm_each
                                     ? s->widths.attention + s->widths.keys
                                     : c->head_size)
                   : 0,
        c->gated ? (size_t)widest_in(s) * sizeof(float) : 0,
        chunk->embedding
            ? s->be->embed_scratch(pass.n, s->widths.hidden,
                                   c->position_embedding ==
                                       GPT_POSITION_LEARNED)
            : 0,
    };
    size_t most = 0;

    for (size_t i = 0; i < GPT_COUNT(needs); i++)
        most = needs[i] > most ? needs[i] : most;
    return most;
}

/* Gradients of a layer's experts; those behind the activation have a place for
 * the feed-forward of all tokens, which is through with it before. */
static void bind_experts_backward(struct gpt_stage *s, struct gpt_binder *b)
{
    const struct gpt_config *c = s->o.config;
    const struct gpt_widths *w = &s->widths;
    struct gpt_expert_work *work = &s->work.experts;
    const int64_t n = s->rows.n;

    work->dactivated =
        take_all(s, b, GPT_MEM_WORKSPACE,
                 gpt_max_i64(c->moe_router_topk * w->expert, w->shared));
    work->dpre = take_pairs(s, b, GPT_MEM_WORKSPACE, w->expert_in);
    work->dlogits = take_all(s, b, GPT_MEM_WORKSPACE, c->num_experts + 1);
    work->dweight = take_block(b, GPT_MEM_WORKSPACE, n, c->moe_router_topk,
                               sizeof(float));
    if (c->moe_aux_loss_coeff > 0 || c->moe_z_loss_coeff > 0)
        work->losses = take_block(b, GPT_MEM_WORKSPACE, 2, 1, sizeof(float));
}

/* Gradients of one layer at a time, and the kernels' scratch. dy is a gradient
 * of attention's output, or of the rows that a rank keeps: with sequence
 * parallelism those are n / tp rows of C, here counted as n rows of C / tp. */
static void bind_backward(struct gpt_stage *s, struct gpt_binder *b)
{
    const struct gpt_widths *w = &s->widths;
    const int64_t part = s->o.exec.sequence_parallel
                             ? gpt_ceil_div(w->hidden, s->o.layout.size[GPT_TP])
                             : w->hidden;

    s->work.dresid = take_rows(s, b, GPT_MEM_WORKSPACE);
    s->work.dy = take_all(s, b, GPT_MEM_WORKSPACE,
                          gpt_max_i64(part, w->attention));
    s->work.dwide = take_all(s, b, GPT_MEM_WORKSPACE,
                             gpt_max_i64(w->qkv, widest_in(s)));
    if (s->o.config->num_experts > 0)
        bind_experts_backward(s, b);
    /* one layer at a time needs them: nothing is kept of a backward */
    if (s->o.config->qk_norm_whole)
        s->work.dots =
            take_block(b, GPT_MEM_WORKSPACE, s->rows.n, 2, sizeof(float));
}

/* Alone forward, only products of eight bits need scratch. A rounded factor
 * lives as long as its product, so that one place serves all products. */
static void bind_scratch(struct gpt_stage *s, struct gpt_binder *b)
{
    const bool eight = s->o.exec.fp8.types.forward != GPT_FP8_NONE;
    const size_t products =
        eight ? gpt_fp8_scratch(s->be, &s->widths, s->rows.n) : 0;
    const size_t others = s->o.training ? scratch_bytes(s) : 0;

    if (eight)
        s->work.amax = take_block(b, GPT_MEM_WORKSPACE, 1,
                                  GPT_N_LINEAR_TENSORS, sizeof(float));
    if (eight || s->o.training)
        s->work.scratch = take_block(
            b, GPT_MEM_WORKSPACE, 1,
            (int64_t)(products > others ? products : others), 1);
}

static void bind_work(struct gpt_stage *s, struct gpt_binder *b)
{
    const int64_t tp = s->o.layout.size[GPT_TP];

    s->work.x = take_rows(s, b, GPT_MEM_WORKSPACE);
    if (s->o.exec.sequence_parallel)
        s->work.part = s->work.all =
            take_all(s, b, GPT_MEM_WORKSPACE, s->widths.hidden);
    /* backward gathers rows while a part of another sum is under way; blocks
     * side by side begin a sum before the feed-forward gathers */
    if (s->o.exec.sequence_parallel &&
        (s->o.training || s->o.config->parallel_blocks))
        s->work.part = take_all(s, b, GPT_MEM_WORKSPACE, s->widths.hidden);
    if (s->o.layout.chunks > 1 || !s->o.layout.has_output)
        s->out = take_rows(s, b, GPT_MEM_WORKSPACE);
    if (s->o.config->num_experts > 0)
        s->work.experts.rows = take_pairs(s, b, GPT_MEM_WORKSPACE,
                                          s->widths.hidden);
    if (gpt_config_is_latent(s->o.config))
        bind_latent_work(s, b);
    if (s->o.training)
        bind_backward(s, b);
    bind_scratch(s, b);
    if (s->o.layout.has_output) {
        s->logits = take_block(b, GPT_MEM_LOGITS, s->logits_rows,
                               s->widths.vocab,
                               gpt_dtype_bytes(s->o.exec.act));
        /* the softmax leaves gradients in place of the capped logits */
        if (s->o.config->final_logit_softcapping > 0 && s->o.training)
            s->logit_slopes = take_block(b, GPT_MEM_LOGITS, s->logits_rows,
                                         s->widths.vocab,
                                         gpt_dtype_bytes(s->o.exec.act));
        if (tp > 1)
            s->stats = take_block(b, GPT_MEM_LOGITS, s->logits_rows * tp,
                                  GPT_XENT_STATS, sizeof(float));
        if (s->o.training && s->o.exec.token_loss)
            s->token_weights = take_block(b, GPT_MEM_LOGITS, s->logits_rows, 1,
                                          sizeof(float));
    }
}

int gpt_stage_bind(struct gpt_stage *s, struct gpt_binder *b,
                   struct gpt_err *err)
{
    s->scale = take_block(b, GPT_MEM_INPUTS, 1, 1, sizeof(float));
    bind_work(s, b);
    bind_shared(s, b);
    for (int64_t i = 0; i < s->o.layout.chunks; i++)
        for (int64_t k = 0; k < s->chunks[i].n_slots; k++)
            bind_slot(s, b, &s->chunks[i], &s->chunks[i].slots[k]);
    if (b->overflow)
        return gpt_fail(err, GPT_EUSAGE,
                        "a micro batch of %lld x %lld tokens needs more memory "
                        "than can be counted",
                        (long long)s->o.exec.micro_batch,
                        (long long)s->o.exec.seq_length);
    return GPT_OK;
}
