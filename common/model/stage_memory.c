/* A stage's memory: what there is, in which sizes, and one allocation a kind.
 * Read bind_work() and bind_slot() for what exists. */
#include "model/stage_internal.h"

#include "base/memory.h"
#include "base/num.h"

#include <string.h>

/* Logits of one chunk of rows take about this much at most. */
enum { LOGITS_LIMIT = 128 << 20, LOGITS_ROWS_MIN = 64 };

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
        [GPT_MEM_SAVING] = "saving",
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

/* A (rows, C) block of the residual stream or of what is added to it. */
static void *take_rows(const struct gpt_stage *s, struct binder *b,
                       enum gpt_memory_kind kind)
{
    return take(b, kind, gpt_stage_rows(s), s->o.config->hidden_size,
                gpt_dtype_bytes(s->o.act));
}

static void bind_statistics(const struct gpt_stage *s, struct binder *b,
                            enum gpt_memory_kind kind,
                            struct gpt_norm_acts *norm)
{
    norm->mean = take(b, kind, gpt_stage_rows(s), 1, sizeof(float));
    norm->rstd = take(b, kind, gpt_stage_rows(s), 1, sizeof(float));
}

static bool selective(const struct gpt_stage *s)
{
    return s->o.recompute == GPT_RECOMPUTE_SELECTIVE;
}

/* What a layer has besides the residual stream in front of it (norm1.r) and
 * what is cheap to compute from this. */
static void bind_dear(const struct gpt_stage *s, struct binder *b,
                      enum gpt_memory_kind kind, struct gpt_layer_acts *a)
{
    const struct gpt_config *c = s->o.config;
    int64_t n = s->o.micro_batch * s->o.seq_length, tp = s->o.layout.tp_size;
    int64_t heads = c->num_attention_heads / tp;
    int64_t groups = c->num_query_groups / tp;
    size_t act = gpt_dtype_bytes(s->o.act);

    bind_statistics(s, b, kind, &a->norm1);
    a->qkv = take(b, kind, n, (heads + 2 * groups) * c->head_size, act);
    a->norm2.r = take_rows(s, b, kind);
    bind_statistics(s, b, kind, &a->norm2);
    a->pre = take(b, kind, n, c->ffn_hidden_size / tp, act);
}

static void bind_cheap(const struct gpt_stage *s, struct binder *b,
                       enum gpt_memory_kind kind, struct gpt_layer_acts *a)
{
    const struct gpt_config *c = s->o.config;
    int64_t n = s->o.micro_batch * s->o.seq_length, tp = s->o.layout.tp_size;
    int64_t heads = c->num_attention_heads / tp;
    size_t act = gpt_dtype_bytes(s->o.act);

    a->norm1.y = take_rows(s, b, kind);
    a->att = take(b, kind, n, heads * c->head_size, act);
    a->lse = take(b, kind, n, heads, sizeof(float));
    a->norm2.y = selective(s) ? a->norm1.y : take_rows(s, b, kind);
    a->gelu = take(b, kind, n, c->ffn_hidden_size / tp, act);
}

/* What recomputed layers share; the first one's norm1.r is kept instead. */
static void bind_shared(const struct gpt_stage *s, struct binder *b)
{
    for (int64_t i = 0; i < s->group; i++) {
        struct gpt_layer_acts *a = &s->shared[i];
        bind_cheap(s, b, GPT_MEM_WORKSPACE, a);
        if (selective(s))
            continue;
        if (i > 0)
            a->norm1.r = take_rows(s, b, GPT_MEM_WORKSPACE);
        bind_dear(s, b, GPT_MEM_WORKSPACE, a);
    }
}

static void bind_layer(const struct gpt_stage *s, struct binder *b,
                       const struct gpt_stage_chunk *chunk,
                       const struct gpt_slot *slot, int64_t i)
{
    struct gpt_layer_acts *a = &slot->layers[i];
    int64_t first = gpt_stage_group(s, chunk, i);
    bool again = i < chunk->recomputed;

    if (again || selective(s))
        *a = s->shared[i - first];
    if (i == first)
        a->norm1.r = take_rows(s, b, GPT_MEM_ACTIVATIONS);
    if (again)
        return;
    bind_dear(s, b, GPT_MEM_ACTIVATIONS, a);
    if (!selective(s))
        bind_cheap(s, b, GPT_MEM_ACTIVATIONS, a);
}

static void bind_inputs(const struct gpt_stage *s, struct binder *b,
                        const struct gpt_stage_chunk *chunk,
                        struct gpt_slot *slot)
{
    int64_t n = s->o.micro_batch * s->o.seq_length;

    if (chunk->embedding) {
        slot->input = take(b, GPT_MEM_INPUTS, n, 1, sizeof(int32_t));
        slot->position = take(b, GPT_MEM_INPUTS, n, 1, sizeof(int32_t));
    }
    if (chunk->output) {
        slot->target = take(b, GPT_MEM_INPUTS, n, 1, sizeof(int32_t));
        slot->weight = take(b, GPT_MEM_INPUTS, n, 1, sizeof(float));
        slot->loss = take(b, GPT_MEM_INPUTS, n, 1, sizeof(float));
    }
    if (s->o.documents)
        slot->doc_start = take(b, GPT_MEM_INPUTS, n, 1, sizeof(int32_t));
}

static void bind_slot(const struct gpt_stage *s, struct binder *b,
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

struct gpt_pass gpt_stage_pass(const struct gpt_stage *s, struct gpt_queue *q,
                               const struct gpt_stage_chunk *chunk,
                               const struct gpt_slot *slot)
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
        .rows = gpt_stage_rows(s),
        .tp = s->o.tp,
        .sequence = s->o.sequence_parallel,
        .sample0 = slot->sample0,
        .dropout = slot->dropout,
        .selective = selective(s),
        .beta = chunk->fresh ? 0.0F : 1.0F,
        .doc_start = s->o.documents ? slot->doc_start : NULL,
        .work = s->work,
    };
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

static void bind_work(struct gpt_stage *s, struct binder *b)
{
    const struct gpt_config *c = s->o.config;
    int64_t n = s->o.micro_batch * s->o.seq_length, tp = s->o.layout.tp_size;
    int64_t channels = c->hidden_size;
    int64_t heads = c->num_attention_heads * c->head_size / tp;
    int64_t qkv = heads + 2 * c->num_query_groups * c->head_size / tp;
    int64_t wide = gpt_max_i64(qkv, c->ffn_hidden_size / tp);
    int64_t part = s->o.sequence_parallel ? (channels + tp - 1) / tp : channels;
    size_t act = gpt_dtype_bytes(s->o.act);

    s->work.x = take_rows(s, b, GPT_MEM_WORKSPACE);
    if (s->o.sequence_parallel)
        s->work.all = take(b, GPT_MEM_WORKSPACE, n, channels, act);
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

static int stage_bind(struct gpt_stage *s, struct binder *b,
                      struct gpt_err *err)
{
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

/* How many of a chunk's first layers are recomputed in full. Without backward
 * nothing is kept of any. */
static int64_t recomputed(const struct gpt_stage_options *o, int64_t n_layers)
{
    if (!o->training || o->recompute == GPT_RECOMPUTE_UNIFORM)
        return n_layers;
    if (o->recompute == GPT_RECOMPUTE_BLOCK)
        return gpt_min_i64(o->recompute_layers, n_layers);
    return 0;
}

/* How many layers share what is recomputed together. */
static int64_t group_size(const struct gpt_stage_options *o)
{
    int64_t most = 0;

    if (!o->training)
        return 1;
    if (o->recompute != GPT_RECOMPUTE_UNIFORM)
        return o->recompute == GPT_RECOMPUTE_NONE ? 0 : 1;
    for (int64_t i = 0; i < o->layout.chunks; i++)
        most = gpt_max_i64(most, o->layout.chunk[i].n_layers);
    return gpt_min_i64(o->recompute_layers, most);
}

/* Chunks, their layers and slots, empty. */
static int new_chunks(struct gpt_stage *s, struct gpt_err *err)
{
    const struct gpt_layout *layout = &s->o.layout;
    int64_t layers = 0, slots = 0, acts = 0;

    GPT_TRY(gpt_new(&s->chunks, (size_t)layout->chunks, sizeof *s->chunks,
                    "chunks", err));
    for (int64_t i = 0; i < layout->chunks; i++) {
        layers += layout->chunk[i].n_layers;
        slots += s->o.slots[i];
        acts += layout->chunk[i].n_layers * s->o.slots[i];
    }
    GPT_TRY(gpt_new(&s->all_layers, (size_t)layers, sizeof *s->all_layers,
                    "layers", err));
    GPT_TRY(gpt_new(&s->all_slots, (size_t)slots, sizeof *s->all_slots,
                    "slots", err));
    GPT_TRY(gpt_new(&s->all_acts, (size_t)acts, sizeof *s->all_acts, "slots",
                    err));
    layers = slots = acts = 0;
    for (int64_t i = 0; i < layout->chunks; i++) {
        struct gpt_stage_chunk *chunk = &s->chunks[i];
        *chunk = (struct gpt_stage_chunk){
            .layers = s->all_layers + layers,
            .n_layers = layout->chunk[i].n_layers,
            .slots = s->all_slots + slots,
            .n_slots = s->o.slots[i],
            .embedding = i == 0 && layout->has_embedding,
            .output = i == layout->chunks - 1 && layout->has_output,
            .recomputed = recomputed(&s->o, layout->chunk[i].n_layers),
        };
        for (int64_t k = 0; k < chunk->n_slots; k++)
            chunk->slots[k].layers =
                s->all_acts + acts + k * chunk->n_layers;
        layers += chunk->n_layers;
        slots += chunk->n_slots;
        acts += chunk->n_layers * chunk->n_slots;
    }
    return GPT_OK;
}

static int check_options(const struct gpt_stage_options *o,
                         struct gpt_err *err)
{
    bool full = o->recompute == GPT_RECOMPUTE_UNIFORM ||
                o->recompute == GPT_RECOMPUTE_BLOCK;
    if (full && o->recompute_layers < 1)
        return gpt_fail(err, GPT_EUSAGE,
                        "--recompute-num-layers %lld: at least 1",
                        (long long)o->recompute_layers);
    if (o->sequence_parallel &&
        o->micro_batch * o->seq_length % o->layout.tp_size != 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--sequence-parallel: --micro-batch-size %lld times "
                        "--seq-length %lld does not divide by the tensor model "
                        "parallel size (%lld)",
                        (long long)o->micro_batch, (long long)o->seq_length,
                        (long long)o->layout.tp_size);
    return GPT_OK;
}

/* Everything but device memory. */
static int stage_new(struct gpt_stage **stage, struct gpt_backend *be,
                     const struct gpt_stage_options *o, struct gpt_err *err)
{
    struct gpt_stage *s;
    int64_t row = o->config->padded_vocab_size / o->layout.tp_size *
                  (int64_t)gpt_dtype_bytes(o->act);

    GPT_TRY(check_options(o, err));
    GPT_TRY(gpt_new(stage, 1, sizeof *s, "a stage", err));
    s = *stage;
    s->be = be;
    s->o = *o;
    if (!o->training)
        s->o.recompute = GPT_RECOMPUTE_NONE;
    if (o->layout.tp_size == 1) {
        s->o.tp = NULL;
        s->o.sequence_parallel = false;
    }
    s->embedding_rng = gpt_rng_open(o->seed, "dropout/embedding");
    s->logits_rows = gpt_min_i64(
        o->micro_batch * o->seq_length,
        gpt_max_i64(LOGITS_LIMIT / row / LOGITS_ROWS_MIN, 1) * LOGITS_ROWS_MIN);
    GPT_TRY(gpt_new(&s->gradients, (size_t)o->flat->n_buckets,
                    sizeof *s->gradients, "buckets", err));
    s->group = group_size(&s->o);
    GPT_TRY(gpt_new(&s->shared, (size_t)s->group, sizeof *s->shared,
                    "activations", err));
    return new_chunks(s, err);
}

int gpt_stage_memory(struct gpt_memory *memory, struct gpt_backend *be,
                     const struct gpt_stage_options *options,
                     struct gpt_err *err)
{
    struct binder b = {.overflow = false};
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
    struct binder count = {.overflow = false}, b = {.overflow = false};

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

static void bind_parameters(struct gpt_stage *s, void *weights,
                            float *const *gradients)
{
    const struct gpt_flat *flat = s->o.flat;

    gpt_roles_bind(&s->w, flat, -1, weights, s->o.act);
    if (gradients) {
        memcpy(s->gradients, gradients,
               (size_t)flat->n_buckets * sizeof *gradients);
        gpt_roles_bind_gradients(&s->dw, flat, -1, gradients);
    }
    for (int64_t i = 0; i < s->o.layout.chunks; i++)
        for (int64_t k = 0; k < s->chunks[i].n_layers; k++)
            gpt_layer_bind(&s->chunks[i].layers[k], flat,
                           s->o.layout.chunk[i].first_layer + k, weights,
                           s->o.act, gradients, s->o.seed);
}

int gpt_stage_open(struct gpt_stage **stage, struct gpt_backend *be,
                   const struct gpt_stage_options *options, void *weights,
                   float *const *gradients, struct gpt_err *err)
{
    struct gpt_stage *s = NULL;
    int status;

    *stage = NULL;
    if (options->layout.tp_size > 1 && !options->tp)
        return gpt_fail(err, GPT_EFAIL, "a stage of %lld tensor parallel ranks "
                        "without their communicator",
                        (long long)options->layout.tp_size);
    GPT_TRY_GOTO(status, stage_new(&s, be, options, err), fail);
    GPT_TRY_GOTO(status, stage_allocate(s, err), fail);
    bind_parameters(s, weights, gradients);
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
    gpt_free(s->all_acts);
    gpt_free(s->all_slots);
    gpt_free(s->all_layers);
    gpt_free(s->chunks);
    gpt_free(s->shared);
    gpt_free(s->gradients);
    gpt_free(s);
}
