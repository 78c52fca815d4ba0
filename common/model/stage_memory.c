/* A stage's memory: what there is, in which sizes. Read bind_work() and
 * bind_slot(). */
#include "model/stage_internal.h"

#include "base/memory.h"
#include "base/num.h"

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
        [GPT_MEM_EXCHANGE] = "exchange",
        [GPT_MEM_SAVING] = "saving",
    };

    return names[kind];
}

static void *take(struct gpt_binder *b, enum gpt_memory_kind kind, int64_t rows,
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

/* A (rows, C) block of the residual stream or of what is added to it. */
static void *take_rows(const struct gpt_stage *s, struct gpt_binder *b,
                       enum gpt_memory_kind kind)
{
    return take(b, kind, gpt_stage_rows(s), s->o.config->hidden_size,
                gpt_dtype_bytes(s->o.act));
}

static void bind_statistics(const struct gpt_stage *s, struct gpt_binder *b,
                            enum gpt_memory_kind kind,
                            struct gpt_norm_acts *norm)
{
    norm->mean = take(b, kind, gpt_stage_rows(s), 1, sizeof(float));
    norm->rstd = take(b, kind, gpt_stage_rows(s), 1, sizeof(float));
}

/* What a layer has besides the residual stream in front of it (norm1.r) and
 * what is cheap to compute from this. */
static void bind_dear(const struct gpt_stage *s, struct gpt_binder *b,
                      enum gpt_memory_kind kind, struct gpt_layer_acts *a)
{
    const struct gpt_config *c = s->o.config;
    int64_t n = s->o.micro_batch * s->o.seq_length;
    int64_t tp = s->o.layout.size[GPT_TP];
    int64_t heads = c->num_attention_heads / tp;
    int64_t groups = c->num_query_groups / tp;
    size_t act = gpt_dtype_bytes(s->o.act);

    bind_statistics(s, b, kind, &a->norm1);
    a->qkv = take(b, kind, n, (heads + 2 * groups) * c->head_size, act);
    a->norm2.r = take_rows(s, b, kind);
    bind_statistics(s, b, kind, &a->norm2);
    a->pre = take(b, kind, n, c->ffn_hidden_size / tp, act);
}

static void bind_cheap(const struct gpt_stage *s, struct gpt_binder *b,
                       enum gpt_memory_kind kind, struct gpt_layer_acts *a)
{
    const struct gpt_config *c = s->o.config;
    int64_t n = s->o.micro_batch * s->o.seq_length;
    int64_t tp = s->o.layout.size[GPT_TP];
    int64_t heads = c->num_attention_heads / tp;
    size_t act = gpt_dtype_bytes(s->o.act);

    a->norm1.y = take_rows(s, b, kind);
    a->att = take(b, kind, n, heads * c->head_size, act);
    a->lse = take(b, kind, n, heads, sizeof(float));
    a->norm2.y = gpt_stage_selective(s) ? a->norm1.y : take_rows(s, b, kind);
    a->gelu = take(b, kind, n, c->ffn_hidden_size / tp, act);
}

/* What recomputed layers share; the first one's norm1.r is kept instead. */
static void bind_shared(const struct gpt_stage *s, struct gpt_binder *b)
{
    for (int64_t i = 0; i < s->group; i++) {
        struct gpt_layer_acts *a = &s->shared[i];

        bind_cheap(s, b, GPT_MEM_WORKSPACE, a);
        if (gpt_stage_selective(s))
            continue;
        if (i > 0)
            a->norm1.r = take_rows(s, b, GPT_MEM_WORKSPACE);
        bind_dear(s, b, GPT_MEM_WORKSPACE, a);
    }
}

static void bind_layer(const struct gpt_stage *s, struct gpt_binder *b,
                       const struct gpt_stage_chunk *chunk,
                       const struct gpt_slot *slot, int64_t i)
{
    struct gpt_layer_acts *a = &slot->layers[i];
    int64_t first = gpt_stage_group(s, chunk, i);
    bool again = i < chunk->recomputed;

    if (again || gpt_stage_selective(s))
        *a = s->shared[i - first];
    if (i == first)
        a->norm1.r = take_rows(s, b, GPT_MEM_ACTIVATIONS);
    if (again)
        return;
    bind_dear(s, b, GPT_MEM_ACTIVATIONS, a);
    if (!gpt_stage_selective(s))
        bind_cheap(s, b, GPT_MEM_ACTIVATIONS, a);
}

static void bind_inputs(const struct gpt_stage *s, struct gpt_binder *b,
                        const struct gpt_stage_chunk *chunk,
                        struct gpt_slot *slot)
{
    int64_t n = s->o.micro_batch * s->o.seq_length;

    slot->block = take(b, GPT_MEM_INPUTS, 1, gpt_microbatch_bytes(n), 1);
    gpt_microbatch_lay_out(&slot->in, slot->block, n);
    if (chunk->output)
        slot->loss = take(b, GPT_MEM_INPUTS, n, 1, sizeof(float));
}

static void bind_slot(const struct gpt_stage *s, struct gpt_binder *b,
                      const struct gpt_stage_chunk *chunk,
                      struct gpt_slot *slot)
{
    for (int64_t i = 0; i < chunk->n_layers; i++)
        bind_layer(s, b, chunk, slot, i);
    slot->end.r = s->out;
    if (chunk->output) {
        slot->end.r = take_rows(s, b, GPT_MEM_ACTIVATIONS);
        slot->end.y = take_rows(s, b, GPT_MEM_ACTIVATIONS);
        bind_statistics(s, b, GPT_MEM_ACTIVATIONS, &slot->end);
    }
    bind_inputs(s, b, chunk, slot);
}

static size_t scratch_bytes(const struct gpt_stage *s)
{
    const struct gpt_stage_chunk *chunk = &s->chunks[0];
    struct gpt_pass pass = gpt_stage_pass(s, NULL, chunk, &chunk->slots[0]);
    struct gpt_attn attn =
        gpt_layer_attn(&chunk->layers[0], &pass, &chunk->slots[0].layers[0]);
    size_t norm = s->be->norm_scratch(pass.rows, s->o.config->hidden_size);
    size_t attention = s->be->attn_scratch(&attn);

    return norm > attention ? norm : attention;
}

static void bind_work(struct gpt_stage *s, struct gpt_binder *b)
{
    const struct gpt_config *c = s->o.config;
    int64_t n = s->o.micro_batch * s->o.seq_length;
    int64_t tp = s->o.layout.size[GPT_TP];
    int64_t channels = c->hidden_size;
    int64_t heads = c->num_attention_heads * c->head_size / tp;
    int64_t qkv = heads + 2 * c->num_query_groups * c->head_size / tp;
    int64_t wide = gpt_max_i64(qkv, c->ffn_hidden_size / tp);
    int64_t part = s->o.sequence_parallel ? (channels + tp - 1) / tp : channels;
    size_t act = gpt_dtype_bytes(s->o.act);

    s->work.x = take_rows(s, b, GPT_MEM_WORKSPACE);
    if (s->o.sequence_parallel)
        s->work.part = s->work.all =
            take(b, GPT_MEM_WORKSPACE, n, channels, act);
    if (s->o.sequence_parallel && s->o.training)
        s->work.part = take(b, GPT_MEM_WORKSPACE, n, channels, act);
    if (s->o.layout.chunks > 1 || !s->o.layout.has_output)
        s->out = take_rows(s, b, GPT_MEM_WORKSPACE);
    if (s->o.training) {
        s->work.dresid = take_rows(s, b, GPT_MEM_WORKSPACE);
        s->work.dy =
            take(b, GPT_MEM_WORKSPACE, n, gpt_max_i64(part, heads), act);
        s->work.dwide = take(b, GPT_MEM_WORKSPACE, n, wide, act);
        s->work.scratch =
            take(b, GPT_MEM_WORKSPACE, 1, (int64_t)scratch_bytes(s), 1);
    }
    if (s->o.layout.has_output) {
        s->logits = take(b, GPT_MEM_LOGITS, s->logits_rows,
                         c->padded_vocab_size / tp, act);
        if (tp > 1)
            s->stats = take(b, GPT_MEM_LOGITS, s->logits_rows * tp,
                            GPT_XENT_STATS, sizeof(float));
    }
}

int gpt_stage_bind(struct gpt_stage *s, struct gpt_binder *b,
                   struct gpt_err *err)
{
    s->scale = take(b, GPT_MEM_INPUTS, 1, 1, sizeof(float));
    bind_work(s, b);
    bind_shared(s, b);
    for (int64_t i = 0; i < s->o.layout.chunks; i++)
        for (int64_t k = 0; k < s->chunks[i].n_slots; k++)
            bind_slot(s, b, &s->chunks[i], &s->chunks[i].slots[k]);
    if (b->overflow)
        return gpt_fail(err, GPT_EUSAGE,
                        "--micro-batch-size %lld with --seq-length %lld needs "
                        "more memory than can be counted",
                        (long long)s->o.micro_batch,
                        (long long)s->o.seq_length);
    return GPT_OK;
}
