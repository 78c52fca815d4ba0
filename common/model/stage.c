/* A pipeline stage: forward and backward over a chunk of its layers, with the
 * embedding in front and the output layer after them; see stage.h. Start at
 * gpt_stage_forward(). The two ends are in stage_ends.c; stage_open.c makes a
 * stage, stage_memory.c knows its memory. */
#include "model/norm_site.h"
#include "model/stage_internal.h"

#include <assert.h>

/* ---- gradients: zeroed before they are added to; hooks ---- */

/* True when a product with beta 0 writes this gradient first. */
static bool is_overwritten(const struct gpt_stage *s,
                           const struct gpt_slice *slice)
{
    switch (slice->param->first_write) {
    case GPT_FIRST_ADDS:
        return false;
    case GPT_FIRST_PRODUCT:
        return true;
    case GPT_FIRST_OUTPUT: /* an untied word table is only added to */
        return s->o.layout.has_output &&
               (slice->param->tied || slice->param->place == GPT_PLACE_FINAL);
    }
    return false;
}

/* Zeroes the gradients of a bucket that are only added to. Neighbours are
 * zeroed together, with the gap between them: fewer operations. */
static void zero_added(struct gpt_stage *s, struct gpt_queue *q, int64_t bucket)
{
    const struct gpt_bucket *b = &s->o.flat->buckets[bucket];
    const struct gpt_slice *slices = s->o.flat->slices, *last;

    for (int64_t i = b->first_slice, end; i < b->end_slice; i = end + 1) {
        for (end = i; end < b->end_slice && !is_overwritten(s, &slices[end]);)
            end++;
        if (end == i)
            continue;
        last = &slices[end - 1];
        s->be->zero(q, s->gradients[bucket] + slices[i].offset - b->begin,
                    (size_t)(last->offset + last->count - slices[i].offset) *
                        sizeof(float));
    }
}

/* Zeroes what is between the slices of a bucket. Layers with experts and those
 * without have other gaps: where they share memory, one has the other's
 * gradients there, which would count in the norm. */
static void zero_gaps(struct gpt_stage *s, struct gpt_queue *q, int64_t bucket)
{
    const struct gpt_bucket *b = &s->o.flat->buckets[bucket];
    const struct gpt_slice *slices = s->o.flat->slices;

    for (int64_t i = b->first_slice; i < b->end_slice; i++) {
        const int64_t from = slices[i].offset + slices[i].count;
        const int64_t to = i + 1 < b->end_slice ? slices[i + 1].offset : b->end;

        if (to > from)
            s->be->zero(q, s->gradients[bucket] + from - b->begin,
                        (size_t)(to - from) * sizeof(float));
    }
}

/* Buckets of layers are zeroed later, each when its first backward begins: its
 * memory may be another layer's until then. Those outside layers collect over
 * the whole step, and the output layer adds to them in forward already. */
void gpt_stage_begin(struct gpt_stage *s, struct gpt_queue *q)
{
    for (int64_t i = 0; i < s->o.flat->n_buckets; i++)
        if (s->o.flat->buckets[i].layer < 0)
            zero_added(s, q, i);
    for (int64_t i = 0; i < s->o.layout.chunks; i++)
        s->chunks[i].fresh = true;
    s->fresh_output = true;
    if (s->work.experts.losses)
        s->be->zero(q, s->work.experts.losses, 2 * sizeof(float));
}

void gpt_stage_router_losses(struct gpt_stage *s, struct gpt_queue *q,
                             float losses[2])
{
    losses[0] = losses[1] = 0;
    if (s->work.experts.losses)
        s->be->copy_out(q, losses, s->work.experts.losses, 2 * sizeof(float));
}

void gpt_stage_scale(struct gpt_stage *s, struct gpt_queue *q, float scale)
{
    /* 0 until the first call: the kernels are then given no scale at all */
    if (*s->host_scale == scale)
        return;
    *s->host_scale = scale;
    s->be->copy_in(q, s->scale, s->host_scale, sizeof(scale));
}

static void call_hook(const struct gpt_stage *s, void (*hook)(void *, int64_t),
                      int64_t bucket)
{
    if (hook)
        hook(s->o.hooks.context, bucket);
}

/* True for a bucket outside the layers: with `embedding` the first stage's
 * first one, which holds the embedding, else the others. */
static bool is_outside(const struct gpt_stage *s, int64_t bucket,
                       bool embedding)
{
    const bool holds_embedding = bucket == 0 && s->o.layout.has_embedding;

    return s->o.flat->buckets[bucket].layer < 0 && holds_embedding == embedding;
}

static void call_hook_outside(const struct gpt_stage *s,
                              void (*hook)(void *, int64_t), bool embedding)
{
    for (int64_t i = 0; i < s->o.flat->n_buckets; i++)
        if (is_outside(s, i, embedding))
            call_hook(s, hook, i);
}

/* ---- weights: a hook waits for them before they are read ---- */

static void await_weights(const struct gpt_stage *s, int64_t bucket)
{
    if (s->o.weights.before)
        s->o.weights.before(s->o.weights.context, bucket);
}

static void await_weights_outside(const struct gpt_stage *s, bool embedding)
{
    for (int64_t i = 0; i < s->o.flat->n_buckets; i++)
        if (is_outside(s, i, embedding))
            await_weights(s, i);
}

/* ---- forward ---- */

/* Made anew for every pass: what changes from one to the next is here (queue,
 * slot, dropout, beta), and layers keep none of it. */
struct gpt_pass gpt_stage_pass(const struct gpt_stage *s, struct gpt_queue *q,
                               const struct gpt_stage_chunk *chunk,
                               const struct gpt_slot *slot)
{
    return (struct gpt_pass){
        .be = s->be,
        .q = q,
        .config = s->o.config,
        .layout = &s->o.layout,
        .widths = s->widths,
        .act = s->o.exec.act,
        .b = s->o.exec.micro_batch,
        .t = s->o.exec.seq_length,
        .n = s->rows.n,
        .rows = s->rows.kept,
        .tp = s->o.tp,
        .lane = s->lane,
        .sequence = s->o.exec.sequence_parallel,
        .samples = slot->in.sample0,
        .dropout = slot->dropout,
        .selective = gpt_stage_selective(s),
        .beta = chunk->fresh ? 0.0F : 1.0F,
        .is_long = gpt_config_is_long(s->o.config, s->o.exec.seq_length),
        .doc_start = s->o.exec.documents ? slot->in.doc_start : NULL,
        .weights = slot->in.weight,
        .scale = gpt_stage_scale_of(s),
        .work = s->work,
    };
}

/* A stage copies what its chunk reads: middle chunks only the sample's number,
 * for dropout, where documents begin, and weights, where they have routers. */
static void copy_inputs(struct gpt_stage *s, struct gpt_queue *q,
                        const struct gpt_stage_chunk *chunk,
                        struct gpt_slot *slot, const struct gpt_microbatch *mb)
{
    const struct gpt_microbatch_block *in = &slot->in;
    size_t bytes = (size_t)s->rows.n * sizeof(int32_t);

    /* one copy on the device takes less time than five from the host */
    if (mb->device) {
        s->be->copy(q, slot->block, mb->device,
                    (size_t)gpt_microbatch_bytes(s->rows.n));
        return;
    }
    slot->sample0 = mb->sample0;
    s->be->copy_in(q, in->sample0, &slot->sample0, sizeof(slot->sample0));
    if (chunk->embedding) {
        s->be->copy_in(q, in->input, mb->input, bytes);
        s->be->copy_in(q, in->position, mb->position, bytes);
    }
    if (chunk->output)
        s->be->copy_in(q, in->target, mb->target, bytes);
    /* losses of routers count as those of the tokens do */
    if (chunk->output || s->work.experts.losses)
        s->be->copy_in(q, in->weight, mb->weight, bytes);
    if (s->o.exec.documents)
        s->be->copy_in(q, in->doc_start, mb->doc_start, bytes);
}

/* The dropout stream of what the layer before layer i of the chunk leaves to be
 * added; NULL when the stream in front of layer i is complete. */
static const struct gpt_rng *rng_before(const struct gpt_stage_chunk *chunk,
                                        int64_t i)
{
    return i > 0 ? &chunk->layers[i - 1].mlp_rng : NULL;
}

/* After the last layer: its output is added, and normed for the output
 * layer. */
static struct gpt_norm_site end_site(const struct gpt_stage *s,
                                     const struct gpt_stage_chunk *chunk,
                                     const struct gpt_slot *slot)
{
    return (struct gpt_norm_site){
        .acts = &slot->end,
        .norms = true,
        .w = s->w.at[GPT_FINAL_NORM_WEIGHT],
        .b = s->w.at[GPT_FINAL_NORM_BIAS],
        .dw = s->dw.at[GPT_FINAL_NORM_WEIGHT],
        .db = s->dw.at[GPT_FINAL_NORM_BIAS],
        .x_rng = rng_before(chunk, chunk->n_layers),
    };
}

size_t gpt_stage_bytes(const struct gpt_stage *s)
{
    return (size_t)gpt_message_bytes(s->o.config, s->rows, s->o.exec.act);
}

struct gpt_lane *gpt_stage_lane(const struct gpt_stage *s)
{
    return s->lane;
}

void *gpt_stage_input(struct gpt_stage *s, int64_t chunk, int64_t slot)
{
    /* a microbatch's input is kept for backward: receiving it in its place
     * needs no copy, and lets the pass be recorded */
    const struct gpt_stage_chunk *c = &s->chunks[chunk];

    return c->embedding ? NULL : c->slots[slot].layers[0].norm1.r;
}

/* Forward or backward of a microbatch through a chunk. */
struct walk {
    struct gpt_stage *s;
    struct gpt_queue *q;
    struct gpt_stage_chunk *chunk;
    struct gpt_slot *slot;
    /* forward */
    enum gpt_stage_mode mode;
    const void *in;
    const struct gpt_stage_result *result; /* NULL: no output layer */
};

static void walk_forward(void *context)
{
    const struct walk *w = context;
    struct gpt_stage *s = w->s;
    const struct gpt_stage_chunk *chunk = w->chunk;
    struct gpt_slot *slot = w->slot;
    struct gpt_pass pass = gpt_stage_pass(s, w->q, chunk, slot);
    const void *r = w->in;

    if (chunk->embedding) {
        /* gathered weights come bucket by bucket, in forward's order */
        await_weights_outside(s, true);
        gpt_stage_embed(s, &pass, slot);
    }
    for (int64_t i = 0; i < chunk->n_layers; i++) {
        await_weights(s, chunk->layers[i].bucket);
        gpt_layer_forward(&chunk->layers[i], &pass, &slot->layers[i], r,
                          rng_before(chunk, i));
        r = slot->layers[i].norm2.r;
    }
    if (chunk->output)
        await_weights_outside(s, false);
    struct gpt_norm_site end = end_site(s, chunk, slot);
    gpt_norm_site_forward(&pass, &end, r);
    if (chunk->output)
        gpt_stage_output(s, &pass, slot, w->mode != GPT_STAGE_EVAL, w->result);
}

/* A recording fixes every argument of its operations. Besides chunk and slot
 * they depend on the mode and on fresh_output alone. */
static int forward_variant(const struct walk *w)
{
    return (int)w->mode * 2 + w->s->fresh_output;
}

static bool can_record_forward(const struct walk *w)
{
    /* hooks wait for other ranks, and logits go to the caller's memory */
    const bool seen = w->result && (w->result->logits || w->result->rows);

    return w->s->recorder && !w->s->o.weights.before && !seen &&
           w->in == w->slot->layers[0].norm1.r;
}

/* Puts a walk on the queue: directly, or by the recorder. */
static void queue_walk(const struct walk *w, bool can_record, int variant,
                       void (*walk)(void *))
{
    struct walk context = *w;
    const int64_t slot = w->slot - w->s->all_slots;

    assert(variant >= 0 && variant < GPT_STAGE_VARIANTS);
    if (can_record)
        gpt_recorder_run(w->s->recorder, w->q,
                         slot * GPT_STAGE_VARIANTS + variant, walk, &context);
    else
        walk(&context);
}

const void *gpt_stage_forward(struct gpt_stage *s, struct gpt_queue *q,
                              int64_t chunk_number, int64_t slot_number,
                              enum gpt_stage_mode mode,
                              const struct gpt_microbatch *mb, const void *in,
                              const struct gpt_stage_result *result)
{
    struct gpt_stage_chunk *chunk = &s->chunks[chunk_number];
    struct gpt_slot *slot = &chunk->slots[slot_number];

    assert(chunk_number >= 0 && chunk_number < s->o.layout.chunks);
    assert(slot_number >= 0 && slot_number < chunk->n_slots);
    assert(chunk->embedding || in);
    const struct walk w = {
        .s = s,
        .q = q,
        .chunk = chunk,
        .slot = slot,
        .mode = mode,
        .in = chunk->embedding ? slot->layers[0].norm1.r : in,
        .result = chunk->output ? result : NULL,
    };

    /* backward of this slot must draw the same masks */
    slot->dropout = mode == GPT_STAGE_TRAIN;
    /* never recorded: the copies read memory that changes its place */
    copy_inputs(s, q, chunk, slot, mb);
    queue_walk(&w, can_record_forward(&w), forward_variant(&w), walk_forward);
    if (!chunk->output)
        return slot->end.r;
    if (mode != GPT_STAGE_EVAL)
        s->fresh_output = false;
    s->be->copy_out(q, result->loss, slot->loss,
                    (size_t)s->rows.n * sizeof(float));
    return NULL;
}

/* ---- backward ---- */

/* Gradients of a chunk's end into work.dresid and work.x. Without an output
 * layer the first is there: the caller has put it there. */
static void backward_end(struct gpt_stage *s, const struct gpt_pass *pass,
                         const struct gpt_stage_chunk *chunk,
                         const struct gpt_slot *slot)
{
    struct gpt_norm_site end = end_site(s, chunk, slot);

    if (chunk->output) {
        call_hook_outside(s, s->o.hooks.before, false);
        /* nothing follows the final norm in the residual stream */
        s->be->zero(pass->q, s->work.dresid, gpt_stage_bytes(s));
        gpt_norm_site_backward(pass, &end, slot->end.y);
        call_hook_outside(s, s->o.hooks.after, false);
        return;
    }
    /* the chunk's output was r + dropout(x): x's gradient has its mask */
    struct gpt_dropout dropout =
        gpt_pass_dropout(pass, *end.x_rng, s->o.config->hidden_dropout);
    s->be->dropout(pass->q, s->work.x, s->work.dresid, pass->rows,
                   s->o.config->hidden_size, s->o.exec.act, &dropout);
}

static void backward_layer(struct gpt_stage *s, const struct gpt_pass *pass,
                           const struct gpt_stage_chunk *chunk,
                           const struct gpt_slot *slot, int64_t i)
{
    const struct gpt_layer *layer = &chunk->layers[i];

    call_hook(s, s->o.hooks.before, layer->bucket);
    /* after the hook: it may wait for the bucket's memory, which other layers
     * share */
    if (pass->beta == 0)
        zero_added(s, pass->q, layer->bucket);
    if (s->o.fresh_gradients && s->o.config->num_experts > 0)
        zero_gaps(s, pass->q, layer->bucket);
    gpt_layer_backward(layer, pass, &slot->layers[i], rng_before(chunk, i));
    call_hook(s, s->o.hooks.after, layer->bucket);
}

int64_t gpt_stage_group(const struct gpt_stage *s,
                        const struct gpt_stage_chunk *chunk, int64_t i)
{
    return i < chunk->recomputed ? i / s->group * s->group : i;
}

/* Forward once more through layers [first, end), of which only the residual
 * stream in front of the first was kept. */
static void forward_again(const struct gpt_pass *pass,
                          const struct gpt_stage_chunk *chunk,
                          const struct gpt_slot *slot, int64_t first,
                          int64_t end)
{
    const struct gpt_layer_acts *acts = slot->layers;
    struct gpt_pass again = *pass;

    again.work.x = pass->work.dy; /* x holds a gradient; dy is not used yet */
    for (int64_t i = first; i < end; i++) {
        const void *r = i > first ? acts[i - 1].norm2.r : acts[i].norm1.r;
        const struct gpt_rng *x_rng = i > first ? rng_before(chunk, i) : NULL;

        if (i + 1 < end)
            gpt_layer_forward(&chunk->layers[i], &again, &acts[i], r, x_rng);
        else
            gpt_layer_recompute(&chunk->layers[i], &again, &acts[i], r, x_rng);
    }
}

static void walk_backward(void *context)
{
    const struct walk *w = context;
    struct gpt_stage *s = w->s;
    const struct gpt_stage_chunk *chunk = w->chunk;
    const struct gpt_slot *slot = w->slot;
    struct gpt_pass pass = gpt_stage_pass(s, w->q, chunk, slot);

    backward_end(s, &pass, chunk, slot);
    /* groups from the last to the first; a layer that is not recomputed is a
     * group of its own */
    for (int64_t end = chunk->n_layers, first; end > 0; end = first) {
        first = gpt_stage_group(s, chunk, end - 1);
        if (end <= chunk->recomputed)
            forward_again(&pass, chunk, slot, first, end);
        for (int64_t i = end - 1; i >= first; i--)
            backward_layer(s, &pass, chunk, slot, i);
    }
    if (!chunk->embedding)
        return;
    call_hook_outside(s, s->o.hooks.before, true);
    gpt_stage_embed_backward(s, &pass, slot);
    call_hook_outside(s, s->o.hooks.after, true);
}

/* The same for backward: whether it overwrites gradients, and masks. */
static int backward_variant(const struct walk *w)
{
    return GPT_STAGE_FORWARDS + w->chunk->fresh * 2 + w->slot->dropout;
}

const void *gpt_stage_backward(struct gpt_stage *s, struct gpt_queue *q,
                               int64_t chunk_number, int64_t slot_number,
                               const void *dout)
{
    struct gpt_stage_chunk *chunk = &s->chunks[chunk_number];
    const struct walk w = {
        .s = s,
        .q = q,
        .chunk = chunk,
        .slot = &chunk->slots[slot_number],
    };

    assert(chunk_number >= 0 && chunk_number < s->o.layout.chunks);
    assert(slot_number >= 0 && slot_number < chunk->n_slots);
    assert(s->o.training && (chunk->output || dout));
    if (!chunk->output && dout != s->work.dresid)
        s->be->copy(q, s->work.dresid, dout, gpt_stage_bytes(s));
    queue_walk(&w, s->recorder && !s->o.hooks.before, backward_variant(&w),
               walk_backward);
    /* with ZeRO-2 the sums have taken the gradients away: overwrite again */
    chunk->fresh = s->o.fresh_gradients;
    return chunk->embedding ? NULL : s->work.dresid;
}
