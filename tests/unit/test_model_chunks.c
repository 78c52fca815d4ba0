/* Chunks and stages run by hand against one stage; what is told of gradients,
 * and where they are. */
#include "tests/unit/model_rig.h"

/* ---- chunks and stages by hand against one stage ---- */

enum { STAGES = 2, CHUNKS = 2 };

static struct gpt_stage_options chunk_options(const struct gpt_config *c,
                                              int64_t pp, int64_t rank,
                                              int64_t chunks)
{
    struct gpt_stage_options o = {
        .micro_batch = 2, .seq_length = 9, .slots = {2, 2}, .act = GPT_F32};
    struct gpt_topology t;
    struct gpt_err err;

    if (pp == 1) { /* what no schedule asks for, but a stage can do */
        o.layout = GPT_LAYOUT_SINGLE(c);
        o.layout.chunks = chunks;
        for (int64_t i = 0; i < chunks; i++)
            o.layout.chunk[i] = (struct gpt_layer_range){
                i * c->num_layers / chunks, c->num_layers / chunks};
        return o;
    }
    must(gpt_topology_init(&t, pp, rank,
                           (int64_t[]){[GPT_TP] = 1, [GPT_PP] = pp}, chunks,
                           &err),
         &err);
    must(gpt_layout_init(&o.layout, c, &t, 0, 0, &err), &err);
    return o;
}

/* Virtual stage v is chunk v / stages of stage v % stages. Odd microbatches
 * are received in place. True when nothing stuck out at the pipeline's ends. */
static bool forward_by_hand(struct rig *r, int64_t stages, int64_t chunks,
                            struct batch *x, int64_t m)
{
    struct gpt_microbatch mb = micro(x, m);
    struct gpt_stage_result result = {.loss = x->loss[m]};
    const void *in = NULL;
    bool first_has_place = gpt_stage_input(r[0].stage, 0, 0) != NULL;

    for (int64_t v = 0; v < stages * chunks; v++) {
        struct rig *at = &r[v % stages];
        void *place = gpt_stage_input(at->stage, v / stages, m % 2);

        if (place && m % 2) {
            be->copy(at->q, place, in, gpt_stage_bytes(at->stage));
            in = place;
        }
        in = gpt_stage_forward(at->stage, at->q, v / stages, m % 2,
                               GPT_STAGE_TRAIN, &mb, in, &result);
    }
    return in == NULL && !first_has_place;
}

static bool backward_by_hand(struct rig *r, int64_t stages, int64_t chunks,
                             int64_t m)
{
    const void *dout = NULL;

    for (int64_t v = stages * chunks - 1; v >= 0; v--)
        dout = gpt_stage_backward(r[v % stages].stage, r[v % stages].q,
                                  v / stages, m % 2, dout);
    return dout == NULL;
}

/* The copy of a tied word table is added to the first stage's. */
static void add_copies(struct rig *r, int64_t stages)
{
    const struct rig *last = &r[stages - 1];

    for (int64_t i = 0; i < last->flat.n; i++) {
        const struct gpt_slice *s = &last->flat.slices[i];
        float *to = gradient(r, &r->flat.slices[0]);

        for (int64_t k = 0; s->copy && k < s->count; k++)
            to[k] += gradient(last, s)[k];
    }
}

/* Two microbatches are in flight at once. */
static void chunks_by_hand(int64_t stages, int64_t chunks, bool tied)
{
    struct gpt_config c = config(tied, 8);
    static struct batch x, want;
    struct rig r[STAGES], whole;
    double worst = 0;
    bool ends = true;

    batch_open(&x, 2, 9, c.padded_vocab_size);
    batch_open(&want, 2, 9, c.padded_vocab_size);
    rig_open(&whole, &c, chunk_options(&c, 1, 0, 1), false);
    run(&whole, &want, c.padded_vocab_size);
    for (int64_t i = 0; i < stages; i++) {
        rig_open(&r[i], &c, chunk_options(&c, stages, i, chunks), false);
        gpt_stage_begin(r[i].stage, r[i].q);
    }
    for (int64_t m = 0; m < MICROBATCHES + 1; m++) {
        if (m < MICROBATCHES)
            ends = forward_by_hand(r, stages, chunks, &x, m) && ends;
        if (m > 0)
            ends = backward_by_hand(r, stages, chunks, m - 1) && ends;
    }
    add_copies(r, stages);
    for (int64_t i = 0; i < stages; i++) {
        for (int64_t k = 0; k < r[i].flat.n; k++) {
            const struct gpt_slice *s = &r[i].flat.slices[k];

            if (!s->copy)
                worst = fmax(worst, slice_error(s, gradient(&r[i], s), &whole));
        }
        rig_close(&r[i]);
    }
    ok(memcmp(x.loss, want.loss, sizeof(x.loss)) == 0 && worst <= 1e-6 && ends,
       "%lld stages of %lld chunks, %s: losses equal, gradients %.1e",
       (long long)stages, (long long)chunks, tied ? "tied" : "untied", worst);
    rig_close(&whole);
    gpt_free(x.logits);
    gpt_free(want.logits);
}

/* ---- hooks, and layers that share the memory of gradients ---- */

struct watch {
    const struct rig *r;
    char seen[400]; /* "+5 -5 +4 ...": before and after */
    float *sum;     /* flat: what was there after each microbatch */
};

static void note(struct watch *w, char what, int64_t bucket)
{
    size_t n = strlen(w->seen);

    snprintf(w->seen + n, sizeof(w->seen) - n, "%c%d ", what, (int)bucket);
}

static void before(void *context, int64_t bucket)
{
    note(context, '+', bucket);
}

static void after(void *context, int64_t bucket)
{
    struct watch *w = context;
    const struct gpt_bucket *b = &w->r->flat.buckets[bucket];

    note(w, '-', bucket);
    for (int64_t i = b->begin; i < b->end; i++)
        w->sum[i] = w->r->gradients[bucket][i - b->begin] +
                    (b->layer >= 0 ? w->sum[i] : 0);
}

static void hooks(bool tied)
{
    struct gpt_config c = config(tied, 8);
    static struct batch x;
    struct rig r, whole;
    struct watch w = {.r = &r};
    struct gpt_stage_options o = chunk_options(&c, 1, 0, 1);
    double worst = 0;

    batch_open(&x, 2, 9, c.padded_vocab_size);
    rig_open(&whole, &c, o, false);
    run(&whole, &x, c.padded_vocab_size);
    o.hooks = (struct gpt_gradient_hooks){&w, before, after};
    rig_open(&r, &c, o, true);
    w.sum = gpt_alloc((size_t)r.flat.elements, sizeof(float));
    run(&r, &x, c.padded_vocab_size);
    char want[400] = "";
    for (int m = 0; m < MICROBATCHES; m++)
        strcat(want, "+5 -5 +4 -4 +3 -3 +2 -2 +1 -1 +0 -0 ");
    is_str(w.seen, want, "hooks: from the last bucket to the first");
    for (int64_t i = 0; i < r.flat.n; i++)
        worst = fmax(worst,
                     slice_error(&r.flat.slices[i],
                                 w.sum + r.flat.slices[i].offset, &whole));
    ok(worst <= 1e-6, "%s: fresh gradients, summed outside: error %.1e",
       tied ? "tied" : "untied", worst);
    gpt_free(w.sum);
    rig_close(&r);
    rig_close(&whole);
    gpt_free(x.logits);
}

/* A last stage with a copy of the word table: both buckets outside the layers
 * are complete with the final norm. */
static void hooks_of_a_last_stage(void)
{
    struct gpt_config c = config(true, 8);
    static struct batch x;
    struct rig r[STAGES];
    struct watch w[STAGES];

    batch_open(&x, 2, 9, c.padded_vocab_size);
    for (int i = 0; i < STAGES; i++) {
        struct gpt_stage_options o = chunk_options(&c, STAGES, i, 1);

        w[i] = (struct watch){.r = &r[i]};
        o.hooks = (struct gpt_gradient_hooks){&w[i], before, after};
        rig_open(&r[i], &c, o, false);
        w[i].sum = gpt_alloc((size_t)r[i].flat.elements, sizeof(float));
        gpt_stage_begin(r[i].stage, r[i].q);
    }
    ok(forward_by_hand(r, STAGES, 1, &x, 0) &&
           backward_by_hand(r, STAGES, 1, 0), "two stages, one microbatch");
    is_str(w[1].seen, "+0 +3 -0 -3 +2 -2 +1 -1 ", "hooks of the last stage");
    is_str(w[0].seen, "+2 -2 +1 -1 +0 -0 ", "hooks of the first stage");
    for (int i = 0; i < STAGES; i++) {
        gpt_free(w[i].sum);
        rig_close(&r[i]);
    }
    gpt_free(x.logits);
}

int main(void)
{
    struct gpt_err err;

    must(gpt_backend_cpu(&be, &err), &err);
    for (int tied = 0; tied < 2; tied++) {
        chunks_by_hand(1, CHUNKS, tied);
        chunks_by_hand(STAGES, 1, tied);
        chunks_by_hand(STAGES, CHUNKS, tied);
        hooks(tied);
    }
    hooks_of_a_last_stage();
    return tap_done();
}
