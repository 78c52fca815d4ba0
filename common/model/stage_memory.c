/* A stage's memory: what there is, in which sizes, and one allocation a kind.
 * Read bind_slot() and bind_work() for what exists. */
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
                      struct gpt_slot *slot)
{
    const struct gpt_config *c = s->o.config;
    int64_t n = s->o.micro_batch * s->o.seq_length, tp = s->o.layout.tp_size;
    int64_t heads = c->num_attention_heads / tp;
    int64_t groups = c->num_query_groups / tp;
    size_t act = gpt_dtype_bytes(s->o.act);

    for (int64_t i = 0; i < s->o.layout.chunk[0].n_layers; i++) {
        struct gpt_layer_acts *a = &slot->layers[i];
        bind_norm(b, &a->norm1, n, c->hidden_size, act);
        a->qkv = take(b, GPT_MEM_ACTIVATIONS, n,
                      (heads + 2 * groups) * c->head_size, act);
        a->att = take(b, GPT_MEM_ACTIVATIONS, n, heads * c->head_size, act);
        a->lse = take(b, GPT_MEM_ACTIVATIONS, n, heads, sizeof(float));
        bind_norm(b, &a->norm2, n, c->hidden_size, act);
        a->pre = take(b, GPT_MEM_ACTIVATIONS, n, c->ffn_hidden_size / tp, act);
        a->gelu = take(b, GPT_MEM_ACTIVATIONS, n, c->ffn_hidden_size / tp, act);
    }
    bind_norm(b, &slot->final, n, c->hidden_size, act);
    slot->input = take(b, GPT_MEM_INPUTS, n, 1, sizeof(int32_t));
    slot->position = take(b, GPT_MEM_INPUTS, n, 1, sizeof(int32_t));
    slot->target = take(b, GPT_MEM_INPUTS, n, 1, sizeof(int32_t));
    slot->doc_start = take(b, GPT_MEM_INPUTS, n, 1, sizeof(int32_t));
    slot->weight = take(b, GPT_MEM_INPUTS, n, 1, sizeof(float));
    slot->loss = take(b, GPT_MEM_INPUTS, n, 1, sizeof(float));
}

struct gpt_pass gpt_stage_pass(const struct gpt_stage *s, struct gpt_queue *q,
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
        .sample0 = slot->sample0,
        .dropout = slot->dropout,
        .beta = s->fresh_layers ? 0.0F : 1.0F,
        .doc_start = s->o.documents ? slot->doc_start : NULL,
        .work = s->work,
    };
}

static size_t scratch_bytes(struct gpt_stage *s)
{
    struct gpt_pass pass = gpt_stage_pass(s, NULL, &s->slots[0]);
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
    int64_t wide =
        (c->num_attention_heads + 2 * c->num_query_groups) * c->head_size / tp;
    size_t act = gpt_dtype_bytes(s->o.act);

    s->work.x = take(b, GPT_MEM_WORKSPACE, n, c->hidden_size, act);
    s->work.scratch =
        take(b, GPT_MEM_WORKSPACE, 1, (int64_t)scratch_bytes(s), 1);
    /* a stage that is not the last has no use for its final norm's y */
    s->work.dy = take(
        b, GPT_MEM_WORKSPACE, n,
        gpt_max_i64(c->hidden_size, c->num_attention_heads * c->head_size / tp),
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
    for (int64_t i = 0; i < s->o.slots[0]; i++)
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
    size_t layers = (size_t)o->layout.chunk[0].n_layers, slots = (size_t)o->slots[0];

    GPT_TRY(gpt_new(stage, 1, sizeof *s, "a stage", err));
    s = *stage;
    s->be = be;
    s->o = *o;
    s->embedding_rng = gpt_rng_open(o->seed, "dropout/embedding");
    s->logits_rows = gpt_min_i64(
        o->micro_batch * o->seq_length,
        gpt_max_i64(LOGITS_LIMIT / row / LOGITS_ROWS_MIN, 1) * LOGITS_ROWS_MIN);
    GPT_TRY(gpt_new(&s->layers, layers, sizeof *s->layers, "layers", err));
    GPT_TRY(gpt_new(&s->gradients, (size_t)o->flat->n_buckets,
                    sizeof *s->gradients, "buckets", err));
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

int gpt_stage_open(struct gpt_stage **stage, struct gpt_backend *be,
                   const struct gpt_stage_options *options, void *weights,
                   float *const *gradients, struct gpt_err *err)
{
    const struct gpt_layout *layout = &options->layout;
    struct gpt_stage *s = NULL;
    int status;

    *stage = NULL;
    GPT_TRY_GOTO(status, stage_new(&s, be, options, err), fail);
    GPT_TRY_GOTO(status, stage_allocate(s, err), fail);
    if (gradients)
        memcpy(s->gradients, gradients,
               (size_t)options->flat->n_buckets * sizeof *gradients);
    gpt_roles_bind(&s->w, options->flat, -1, weights, options->act);
    if (gradients)
        gpt_roles_bind_gradients(&s->dw, options->flat, -1, gradients);
    for (int64_t i = 0; i < layout->chunk[0].n_layers; i++)
        gpt_layer_bind(&s->layers[i], options->flat, layout->chunk[0].first_layer + i,
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
    gpt_free(s->gradients);
    gpt_free(s->layers);
    gpt_free(s);
}
