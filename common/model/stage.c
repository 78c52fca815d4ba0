/* A pipeline stage: forward and backward over a chunk of its layers, with the
 * embedding in front and the output layer behind; see stage.h. Start at
 * gpt_stage_forward(). The two ends are in stage_ends.c; stage_open.c makes a
 * stage, stage_memory.c knows its memory. */
#include "model/stage_internal.h"

/* ---- gradients: zeroed before they are added to, told of ---- */

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

/* Zeroes those of a bucket that are only added to; neighbours together. */
static void zero_added(struct gpt_stage *s, struct gpt_queue *q, int64_t bucket)
{
    const struct gpt_bucket *b = &s->o.flat->buckets[bucket];
    const struct gpt_slice *slices = s->o.flat->slices, *last;

    for (int64_t i = b->first_slice, end; i < b->end_slice; i = end + 1) {
        for (end = i; end < b->end_slice && !overwritten(s, &slices[end]);)
            end++;
        if (end == i)
            continue;
        last = &slices[end - 1];
        s->be->zero(q, s->gradients[bucket] + slices[i].offset - b->begin,
                    (size_t)(last->offset + last->count - slices[i].offset) *
                        sizeof(float));
    }
}

void gpt_stage_begin(struct gpt_stage *s, struct gpt_queue *q)
{
    for (int64_t i = 0; i < s->o.flat->n_buckets; i++)
        if (s->o.flat->buckets[i].layer < 0)
            zero_added(s, q, i);
    for (int64_t i = 0; i < s->o.layout.chunks; i++)
        s->chunks[i].fresh = true;
    s->fresh_output = true;
}

void gpt_stage_scale(struct gpt_stage *s, struct gpt_queue *q, float scale)
{
    if (*s->host_scale == scale)
        return;
    *s->host_scale = scale;
    s->be->copy_in(q, s->scale, s->host_scale, sizeof(scale));
}

static void tell(const struct gpt_stage *s, void (*hook)(void *, int64_t),
                 int64_t bucket)
{
    if (hook)
        hook(s->o.hooks.context, bucket);
}

/* Is this bucket outside the layers, and the embedding's (the first one), or
 * not? */
static bool is_outside(const struct gpt_stage *s, int64_t bucket,
                       bool embedding)
{
    const bool holds_embedding = bucket == 0 && s->o.layout.has_embedding;

    return s->o.flat->buckets[bucket].layer < 0 && holds_embedding == embedding;
}

static void tell_outside(const struct gpt_stage *s,
                         void (*hook)(void *, int64_t), bool embedding)
{
    for (int64_t i = 0; i < s->o.flat->n_buckets; i++)
        if (is_outside(s, i, embedding))
            tell(s, hook, i);
}

/* ---- weights: told of before they are read ---- */

static void need(const struct gpt_stage *s, int64_t bucket)
{
    if (s->o.weights.before)
        s->o.weights.before(s->o.weights.context, bucket);
}

static void need_outside(const struct gpt_stage *s, bool embedding)
{
    for (int64_t i = 0; i < s->o.flat->n_buckets; i++)
        if (is_outside(s, i, embedding))
            need(s, i);
}

/* ---- forward ---- */

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
        .lane = s->lane,
        .sequence = s->o.sequence_parallel,
        .samples = slot->in.sample0,
        .dropout = slot->dropout,
        .selective = gpt_stage_selective(s),
        .beta = chunk->fresh ? 0.0F : 1.0F,
        .doc_start = s->o.documents ? slot->in.doc_start : NULL,
        .work = s->work,
    };
}

static void copy_inputs(struct gpt_stage *s, struct gpt_queue *q,
                        const struct gpt_stage_chunk *chunk,
                        struct gpt_slot *slot, const struct gpt_microbatch *mb)
{
    const struct gpt_microbatch_block *in = &slot->in;
    int64_t rows = s->o.micro_batch * s->o.seq_length;
    size_t bytes = (size_t)rows * sizeof(int32_t);

    if (mb->device) {
        s->be->copy(q, slot->block, mb->device,
                    (size_t)gpt_microbatch_bytes(rows));
        return;
    }
    slot->sample0 = mb->sample0;
    s->be->copy_in(q, in->sample0, &slot->sample0, sizeof(slot->sample0));
    if (chunk->embedding) {
        s->be->copy_in(q, in->input, mb->input, bytes);
        s->be->copy_in(q, in->position, mb->position, bytes);
    }
    if (chunk->output) {
        s->be->copy_in(q, in->target, mb->target, bytes);
        s->be->copy_in(q, in->weight, mb->weight, bytes);
    }
    if (s->o.documents)
        s->be->copy_in(q, in->doc_start, mb->doc_start, bytes);
}

/* The dropout stream of what the layer below layer i of the chunk leaves to be
 * added. */
static const struct gpt_rng *below(const struct gpt_stage_chunk *chunk,
                                   int64_t i)
{
    return i > 0 ? &chunk->layers[i - 1].mlp_rng : NULL;
}

/* Behind the last layer: its output is added, and normed for the output
 * layer. */
static struct gpt_norm_site end_site(const struct gpt_stage *s,
                                     const struct gpt_stage_chunk *chunk,
                                     const struct gpt_slot *slot)
{
    return (struct gpt_norm_site){
        .acts = &slot->end,
        .w = s->w.at[GPT_FINAL_NORM_WEIGHT],
        .b = s->w.at[GPT_FINAL_NORM_BIAS],
        .dw = s->dw.at[GPT_FINAL_NORM_WEIGHT],
        .db = s->dw.at[GPT_FINAL_NORM_BIAS],
        .x_rng = below(chunk, chunk->n_layers),
    };
}

int64_t gpt_stage_rows(const struct gpt_stage *s)
{
    int64_t n = s->o.micro_batch * s->o.seq_length;

    return s->o.sequence_parallel ? n / s->o.layout.size[GPT_TP] : n;
}

size_t gpt_stage_bytes(const struct gpt_stage *s)
{
    return (size_t)(gpt_stage_rows(s) * s->o.config->hidden_size) *
           gpt_dtype_bytes(s->o.act);
}

struct gpt_lane *gpt_stage_lane(const struct gpt_stage *s)
{
    return s->lane;
}

void *gpt_stage_input(struct gpt_stage *s, int64_t chunk, int64_t slot)
{
    const struct gpt_stage_chunk *c = &s->chunks[chunk];

    return c->embedding ? NULL : c->slots[slot].layers[0].norm1.r;
}

/* A pass over a chunk, for one microbatch. */
struct work {
    struct gpt_stage *s;
    struct gpt_queue *q;
    struct gpt_stage_chunk *chunk;
    struct gpt_slot *slot;
    /* forward */
    enum gpt_stage_mode mode;
    const void *in;
    void *logits;
};

static void run_forward(void *context)
{
    const struct work *w = context;
    struct gpt_stage *s = w->s;
    const struct gpt_stage_chunk *chunk = w->chunk;
    struct gpt_slot *slot = w->slot;
    struct gpt_pass pass = gpt_stage_pass(s, w->q, chunk, slot);
    const void *r = w->in;

    if (chunk->embedding) {
        need_outside(s, true);
        gpt_stage_embed(s, &pass, slot);
    }
    for (int64_t i = 0; i < chunk->n_layers; i++) {
        need(s, chunk->layers[i].bucket);
        gpt_layer_forward(&chunk->layers[i], &pass, &slot->layers[i], r,
                          below(chunk, i));
        r = slot->layers[i].norm2.r;
    }
    if (chunk->output)
        need_outside(s, false);
    struct gpt_norm_site end = end_site(s, chunk, slot);
    gpt_norm_site_forward(&pass, &end, r);
    if (chunk->output)
        gpt_stage_output(s, &pass, slot, w->mode != GPT_STAGE_EVAL, w->logits);
}

/* What its operations depend on, besides chunk and slot. */
static int forward_variant(const struct work *w)
{
    return (int)w->mode * 2 + w->s->fresh_output;
}

static bool can_record_forward(const struct work *w)
{
    return w->s->pieces && !w->s->o.weights.before && !w->logits &&
           w->in == w->slot->layers[0].norm1.r;
}

/* Directly, or as the recorded piece that it is. */
static void run(const struct work *w, bool can_record, int variant,
                void (*passes)(void *))
{
    struct work context = *w;
    const int64_t slot = w->slot - w->s->all_slots;

    if (can_record)
        gpt_recorder_run(w->s->pieces, w->q,
                         slot * GPT_STAGE_VARIANTS + variant, passes, &context);
    else
        passes(&context);
}

const void *gpt_stage_forward(struct gpt_stage *s, struct gpt_queue *q,
                              int64_t chunk_number, int64_t slot_number,
                              enum gpt_stage_mode mode,
                              const struct gpt_microbatch *mb, const void *in,
                              const struct gpt_stage_result *result)
{
    struct gpt_stage_chunk *chunk = &s->chunks[chunk_number];
    struct gpt_slot *slot = &chunk->slots[slot_number];
    const struct work w = {
        .s = s,
        .q = q,
        .chunk = chunk,
        .slot = slot,
        .mode = mode,
        .in = chunk->embedding ? slot->layers[0].norm1.r : in,
        .logits = chunk->output ? result->logits : NULL,
    };

    slot->dropout = mode == GPT_STAGE_TRAIN;
    copy_inputs(s, q, chunk, slot, mb);
    run(&w, can_record_forward(&w), forward_variant(&w), run_forward);
    if (!chunk->output)
        return slot->end.r;
    if (mode != GPT_STAGE_EVAL)
        s->fresh_output = false;
    s->be->copy_out(q, result->loss, slot->loss,
                    (size_t)(s->o.micro_batch * s->o.seq_length) *
                        sizeof(float));
    return NULL;
}

/* ---- backward ---- */

/* Gradients of a chunk's end into work.dresid, where they are unless the output
 * layer made them, and work.x. */
static void backward_end(struct gpt_stage *s, const struct gpt_pass *pass,
                         const struct gpt_stage_chunk *chunk,
                         const struct gpt_slot *slot)
{
    struct gpt_norm_site end = end_site(s, chunk, slot);

    if (chunk->output) {
        tell_outside(s, s->o.hooks.before, false);
        s->be->zero(pass->q, s->work.dresid, gpt_stage_bytes(s));
        gpt_norm_site_backward(pass, &end, slot->end.y);
        tell_outside(s, s->o.hooks.after, false);
        return;
    }
    struct gpt_dropout dropout =
        gpt_pass_dropout(pass, *end.x_rng, s->o.config->hidden_dropout);
    s->be->dropout(pass->q, s->work.x, s->work.dresid, pass->rows,
                   s->o.config->hidden_size, s->o.act, &dropout);
}

static void backward_layer(struct gpt_stage *s, const struct gpt_pass *pass,
                           const struct gpt_stage_chunk *chunk,
                           const struct gpt_slot *slot, int64_t i)
{
    const struct gpt_layer *layer = &chunk->layers[i];

    tell(s, s->o.hooks.before, layer->bucket);
    if (pass->beta == 0)
        zero_added(s, pass->q, layer->bucket);
    gpt_layer_backward(layer, pass, &slot->layers[i], below(chunk, i));
    tell(s, s->o.hooks.after, layer->bucket);
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

    again.work.x = pass->work.dy; /* x is a gradient, dy is free by now */
    for (int64_t i = first; i < end; i++) {
        const void *r = i > first ? acts[i - 1].norm2.r : acts[i].norm1.r;
        const struct gpt_rng *x_rng = i > first ? below(chunk, i) : NULL;

        if (i + 1 < end)
            gpt_layer_forward(&chunk->layers[i], &again, &acts[i], r, x_rng);
        else
            gpt_layer_recompute(&chunk->layers[i], &again, &acts[i], r, x_rng);
    }
}

static void run_backward(void *context)
{
    const struct work *w = context;
    struct gpt_stage *s = w->s;
    const struct gpt_stage_chunk *chunk = w->chunk;
    const struct gpt_slot *slot = w->slot;
    struct gpt_pass pass = gpt_stage_pass(s, w->q, chunk, slot);

    backward_end(s, &pass, chunk, slot);
    for (int64_t end = chunk->n_layers, first; end > 0; end = first) {
        first = gpt_stage_group(s, chunk, end - 1);
        if (end <= chunk->recomputed)
            forward_again(&pass, chunk, slot, first, end);
        for (int64_t i = end - 1; i >= first; i--)
            backward_layer(s, &pass, chunk, slot, i);
    }
    if (!chunk->embedding)
        return;
    tell_outside(s, s->o.hooks.before, true);
    gpt_stage_embed_backward(s, &pass, slot);
    tell_outside(s, s->o.hooks.after, true);
}

static int backward_variant(const struct work *w)
{
    return GPT_STAGE_FORWARDS + w->chunk->fresh * 2 + w->slot->dropout;
}

const void *gpt_stage_backward(struct gpt_stage *s, struct gpt_queue *q,
                               int64_t chunk_number, int64_t slot_number,
                               const void *dout)
{
    struct gpt_stage_chunk *chunk = &s->chunks[chunk_number];
    const struct work w = {
        .s = s,
        .q = q,
        .chunk = chunk,
        .slot = &chunk->slots[slot_number],
    };

    if (!chunk->output && dout != s->work.dresid)
        s->be->copy(q, s->work.dresid, dout, gpt_stage_bytes(s));
    run(&w, s->pieces && !s->o.hooks.before, backward_variant(&w),
        run_backward);
    chunk->fresh = s->o.fresh_gradients;
    return chunk->embedding ? NULL : s->work.dresid;
}
