/* Opens and closes a stage: its chunks and slots, predicted memory, one
 * allocation a kind. Start at gpt_stage_open(). */
#include "model/stage_internal.h"

#include "base/memory.h"
#include "base/num.h"
#include "model/abilities.h"

#include <string.h>

/* Logits of one chunk of rows take about be->logits_bytes at most: memory does
 * not grow with batch x vocabulary. */
enum { LOGITS_ROWS_MIN = 64 };

/* How many of a chunk's first layers are recomputed in full. Without backward
 * no layer keeps anything. */
static int64_t count_recomputed(const struct gpt_stage_options *o,
                                int64_t n_layers)
{
    if (!o->training || o->exec.recompute == GPT_RECOMPUTE_UNIFORM)
        return n_layers;
    if (o->exec.recompute == GPT_RECOMPUTE_BLOCK)
        return gpt_min_i64(o->exec.recompute_layers, n_layers);
    return 0;
}

/* How many layers are recomputed together: their activations exist at the same
 * time, in memory that all groups share. */
static int64_t group_size(const struct gpt_stage_options *o)
{
    int64_t most = 0;

    if (!o->training)
        return 1;
    /* selective and block share one layer's buffers, in turns */
    if (o->exec.recompute != GPT_RECOMPUTE_UNIFORM)
        return o->exec.recompute == GPT_RECOMPUTE_NONE ? 0 : 1;
    for (int64_t i = 0; i < o->layout.chunks; i++)
        most = gpt_max_i64(most, o->layout.chunk[i].n_layers);
    return gpt_min_i64(o->exec.recompute_layers, most);
}

/* Chunks, their layers and slots, empty: bind functions point them at memory
 * later. */
static int new_chunks(struct gpt_stage *s, struct gpt_err *err)
{
    const struct gpt_layout *layout = &s->o.layout;
    int64_t layers = 0, slots = 0, acts = 0;

    /* one block a kind for all chunks: a slot's place in all_slots is also its
     * number for the recorder */
    GPT_TRY(gpt_new(&s->chunks, (size_t)layout->chunks, sizeof(*s->chunks),
                    "chunks", err));
    for (int64_t i = 0; i < layout->chunks; i++) {
        layers += layout->chunk[i].n_layers;
        slots += s->o.slots[i];
        acts += layout->chunk[i].n_layers * s->o.slots[i];
    }
    GPT_TRY(gpt_new(&s->all_layers, (size_t)layers, sizeof(*s->all_layers),
                    "layers", err));
    GPT_TRY(gpt_new(&s->all_slots, (size_t)slots, sizeof(*s->all_slots),
                    "slots", err));
    GPT_TRY(gpt_new(&s->all_acts, (size_t)acts, sizeof(*s->all_acts), "slots",
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
            .recomputed = count_recomputed(&s->o, layout->chunk[i].n_layers),
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

/* All stages ask the same, also one whose own layers are in bf16: ranks are
 * then refused together. */
static int check_fp8(const struct gpt_stage_options *o, struct gpt_err *err)
{
    if (o->exec.fp8.types.forward == GPT_FP8_NONE)
        return GPT_OK;
    return gpt_fp8_check(o->config, o->layout.size[GPT_TP],
                         o->exec.micro_batch * o->exec.seq_length, o->exec.act,
                         err);
}

/* Tables of routers number the pairs of a token and one of its experts. */
static int check_pairs(const struct gpt_stage_options *o, struct gpt_err *err)
{
    const int64_t k = o->config->moe_router_topk;
    int64_t n, pairs;

    if (k == 0 || (gpt_mul(o->exec.micro_batch, o->exec.seq_length, &n) &&
                   gpt_mul(n, k, &pairs) && pairs <= INT32_MAX))
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE,
                    "a micro batch of %lld x %lld tokens with %lld experts "
                    "each: at most %d pairs",
                    (long long)o->exec.micro_batch,
                    (long long)o->exec.seq_length, (long long)k, INT32_MAX);
}

/* What an open stage relies on. A program that plans a run has checked the same
 * before, and names its options then. */
static int check_options(const struct gpt_stage_options *o,
                         struct gpt_err *err)
{
    const struct gpt_execution *e = &o->exec;
    bool full = e->recompute == GPT_RECOMPUTE_UNIFORM ||
                e->recompute == GPT_RECOMPUTE_BLOCK;

    if (full && e->recompute_layers < 1)
        return gpt_fail(err, GPT_EUSAGE,
                        "full recomputation of %lld layers: at least 1",
                        (long long)e->recompute_layers);
    GPT_TRY(check_fp8(o, err));
    GPT_TRY(check_pairs(o, err));
    if (!e->sequence_parallel)
        return GPT_OK;
    return gpt_rows_check(e->micro_batch, e->seq_length, o->layout.size[GPT_TP],
                          err);
}

int64_t gpt_stage_logits_rows(const struct gpt_backend *be,
                              const struct gpt_config *config,
                              const struct gpt_layout *layout,
                              enum gpt_dtype act, int64_t rows)
{
    const int64_t row = gpt_widths_of(config, layout->size[GPT_TP]).vocab *
                        (int64_t)gpt_dtype_bytes(act);
    /* whole blocks of rows, at least one, even for an enormous vocabulary */
    const int64_t blocks = be->logits_bytes / row / LOGITS_ROWS_MIN;

    return gpt_min_i64(rows, gpt_max_i64(blocks, 1) * LOGITS_ROWS_MIN);
}

/* Everything but memory of the device: prediction and opening both need it. */
static int stage_new(struct gpt_stage **stage, struct gpt_backend *be,
                     const struct gpt_stage_options *o, struct gpt_err *err)
{
    struct gpt_stage *s;

    GPT_TRY(check_options(o, err));
    GPT_TRY(gpt_abilities_check(o->config, o->exec.seq_length, be, err));
    GPT_TRY(gpt_new(stage, 1, sizeof(*s), "a stage", err));
    s = *stage;
    s->be = be;
    s->o = *o;
    /* without backward nothing is kept, so that nothing can be recomputed */
    if (!o->training)
        s->o.exec.recompute = GPT_RECOMPUTE_NONE;
    /* one rank alone has nothing to sum: every path below then asks for tp or
     * sequence_parallel and finds neither */
    if (o->layout.size[GPT_TP] == 1) {
        s->o.tp = NULL;
        s->o.exec.sequence_parallel = false;
    }
    /* after sequence_parallel is settled: rows depend on it */
    s->widths = gpt_widths_of(o->config, o->layout.size[GPT_TP]);
    s->rows = gpt_rows_of(o->exec.micro_batch, o->exec.seq_length,
                          o->layout.size[GPT_TP], s->o.exec.sequence_parallel);
    s->embedding_rng = gpt_rng_open(o->exec.seed, "dropout/embedding");
    s->logits_rows = gpt_stage_logits_rows(be, o->config, &o->layout,
                                           o->exec.act, s->rows.n);
    GPT_TRY(gpt_new(&s->gradients, (size_t)o->flat->n_buckets,
                    sizeof(*s->gradients), "buckets", err));
    s->group = group_size(&s->o);
    GPT_TRY(gpt_new(&s->shared, (size_t)s->group, sizeof(*s->shared),
                    "activations", err));
    return new_chunks(s, err);
}

/* Makes a stage without memory, counts what it would get, and closes it. */
int gpt_stage_memory(struct gpt_memory *memory, struct gpt_backend *be,
                     const struct gpt_stage_options *options,
                     struct gpt_err *err)
{
    struct gpt_binder b = {.overflow = false};
    struct gpt_stage *s = NULL;
    int status;

    GPT_TRY_GOTO(status, stage_new(&s, be, options, err), out);
    GPT_TRY_GOTO(status, gpt_stage_bind(s, &b, err), out);
    for (int kind = GPT_STAGE_FIRST_KIND; kind <= GPT_STAGE_LAST_KIND; kind++)
        memory->bytes[kind] = b.used[kind];
out:
    gpt_stage_close(s);
    return status;
}

/* Walks the buffers twice: to count, and to place them in one allocation a
 * kind. The first walk is that of gpt_stage_memory(). */
static int stage_allocate(struct gpt_stage *s, struct gpt_err *err)
{
    struct gpt_binder count = {.overflow = false}, b = {.overflow = false};

    GPT_TRY(gpt_stage_bind(s, &count, err));
    for (int kind = GPT_STAGE_FIRST_KIND; kind <= GPT_STAGE_LAST_KIND; kind++) {
        if (count.used[kind] == 0)
            continue;
        GPT_TRY(s->be->alloc(s->be, (size_t)count.used[kind],
                             gpt_memory_kind_name((enum gpt_memory_kind)kind),
                             &s->mem[kind], err));
        b.base[kind] = s->mem[kind];
    }
    return gpt_stage_bind(s, &b, err);
}

/* The loss scale is copied from pinned memory: the copy must not make the host
 * wait. */
static int allocate_host(struct gpt_stage *s, struct gpt_err *err)
{
    void *scale, *tokens;

    GPT_TRY(s->be->host_alloc(s->be, sizeof(*s->host_scale), "a loss scale",
                              &scale, err));
    s->host_scale = scale;
    if (!s->token_weights)
        return GPT_OK;
    GPT_TRY(s->be->host_alloc(s->be,
                              5 * (size_t)s->logits_rows * sizeof(float),
                              "losses of tokens", &tokens, err));
    s->host_tokens = tokens;
    return GPT_OK;
}

/* Operations that exchange bytes with other ranks are not recorded: a replay
 * could not wait for those ranks, or fail with them. */
static int open_recorder(struct gpt_stage *s, struct gpt_err *err)
{
    int64_t slots = 0;

    if (!s->o.exec.record || !s->be->record_begin || s->o.tp)
        return GPT_OK;
    for (int64_t i = 0; i < s->o.layout.chunks; i++)
        slots += s->chunks[i].n_slots;
    return gpt_recorder_open(&s->recorder, s->be, slots * GPT_STAGE_VARIANTS,
                             err);
}

/* Weights and gradients stay the caller's; layers keep pointers into them. What
 * is outside layers is bound once for the stage. */
static void bind_parameters(struct gpt_stage *s, void *weights,
                            float *const *gradients)
{
    const struct gpt_flat *flat = s->o.flat;

    gpt_roles_bind(&s->w, flat, -1, weights, s->o.exec.act);
    if (gradients) {
        memcpy(s->gradients, gradients,
               (size_t)flat->n_buckets * sizeof(*gradients));
        gpt_roles_bind_gradients(&s->dw, flat, -1, gradients);
    }
    for (int64_t i = 0; i < s->o.layout.chunks; i++)
        for (int64_t k = 0; k < s->chunks[i].n_layers; k++) {
            struct gpt_layer *layer = &s->chunks[i].layers[k];

            gpt_layer_bind(layer, flat, s->o.layout.chunk[i].first_layer + k,
                           weights, s->o.exec.act, gradients, s->o.exec.seed);
            layer->w.fp8 = layer->dw.fp8 =
                gpt_fp8_of_layer(&s->o.exec.fp8, layer->number);
        }
}

int gpt_stage_open(struct gpt_stage **stage, struct gpt_backend *be,
                   const struct gpt_stage_options *options, void *weights,
                   float *const *gradients, struct gpt_err *err)
{
    struct gpt_stage *s = NULL;
    int status;

    *stage = NULL;
    /* a prediction may lack the communicator; a stage that runs may not */
    if (options->layout.size[GPT_TP] > 1 && !options->tp)
        return gpt_fail(err, GPT_EFAIL, "a stage of %lld tensor parallel ranks "
                        "without their communicator",
                        (long long)options->layout.size[GPT_TP]);
    /* a prediction may be for the device of another machine */
    if (options->exec.fp8.types.forward != GPT_FP8_NONE &&
        !(be->abilities & GPT_CAN_FP8))
        return gpt_fail(err, GPT_EDEVICE, "device %s has no products of eight "
                        "bits: GPUs of compute capability 8.9 and above have "
                        "them", be->name);
    GPT_TRY_GOTO(status, stage_new(&s, be, options, err), fail);
    GPT_TRY_GOTO(status, stage_allocate(s, err), fail);
    GPT_TRY_GOTO(status, allocate_host(s, err), fail);
    GPT_TRY_GOTO(status, open_recorder(s, err), fail);
    bind_parameters(s, weights, gradients);
    /* one lane of one job at a time: gathers and sums of a layer alternate */
    if (s->o.tp && s->o.training && s->o.exec.overlap_tensor)
        GPT_TRY_GOTO(status, gpt_lane_open(&s->lane, be, s->o.tp, 1, err),
                     fail);
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
    gpt_lane_close(s->lane); /* first: its thread may use the buffers */
    for (int kind = 0; kind < GPT_N_MEMORY_KINDS; kind++)
        if (s->mem[kind])
            s->be->free(s->be, s->mem[kind]);
    gpt_recorder_close(s->recorder);
    if (s->host_scale)
        s->be->host_free(s->be, s->host_scale);
    if (s->host_tokens)
        s->be->host_free(s->be, s->host_tokens);
    gpt_free(s->all_acts);
    gpt_free(s->all_slots);
    gpt_free(s->all_layers);
    gpt_free(s->chunks);
    gpt_free(s->shared);
    gpt_free(s->gradients);
    gpt_free(s);
}
