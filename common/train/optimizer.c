/* AdamW and the gradient norm over the shards of flat buffers; see
 * optimizer.h. Start at cut_stretch(): it finds what one call of the backend
 * can do.
 *
 * The lists are made once, from the parameter table, and a step walks them: a
 * call a stretch for the update, a call a run for the norm. Neighbouring
 * parameters that are treated alike are one run or segment, so a model of
 * hundreds of tensors takes a few calls.
 *
 * The norm is a sum of doubles in the order of runs on each rank, and of the
 * ranks' sums in the order of ranks (step.c): the same bits on every rank and
 * in every repetition. Another layout cuts it elsewhere, so there it agrees to
 * rounding only. */
#include "train/optimizer.h"

#include "base/memory.h"
#include "base/num.h"

#include <math.h>

/* A part of the flat buffer that lies in one piece, also in gradients and
 * moments: everything, or this rank's shard of a bucket. */
struct stretch {
    int64_t begin, end; /* in the flat buffer */
    int64_t bucket;     /* whose gradients begin here */
    int64_t moments;    /* where its moments begin */
    int64_t segment, n_segments;
};

/* Gradients that count in the norm; gaps inside are zero. */
struct run {
    int64_t bucket, offset, n; /* elements, from the shard's begin on */
};

/* Sums of squares and segments are after the moments, in the same
 * allocation. */
static int64_t moment_bytes(const struct gpt_flat *flat)
{
    return gpt_flat_compact(flat) * (int64_t)sizeof(float);
}

int64_t gpt_optimizer_memory(const struct gpt_flat *flat)
{
    const size_t each = sizeof(double) + sizeof(struct gpt_adamw_segment);

    return 2 * moment_bytes(flat) + flat->n * (int64_t)each;
}

/* ---- what is updated and counted ---- */

/* Adds elements [begin, end) of a stretch; neighbours that are treated alike
 * become one segment. */
static void add_segment(struct gpt_optimizer *o, struct stretch *t,
                        int64_t begin, bool decay)
{
    struct gpt_adamw_segment *last = o->segments + o->n_segments - 1;

    if (t->n_segments > 0 && last->decay == decay)
        return;
    if (t->n_segments++ == 0)
        t->segment = o->n_segments;
    o->segments[o->n_segments++] = (struct gpt_adamw_segment){
        .begin = t->n_segments == 1 ? 0 : begin - t->begin,
        .decay = decay,
    };
}

/* Runs are joined over gaps, too, since the padding between parameters is zero
 * and adds nothing to a sum of squares. */
static void add_run(struct gpt_optimizer *o, const struct stretch *t,
                    int64_t begin, int64_t end, bool joined)
{
    struct run *last = o->runs + o->n_runs - 1;

    if (joined) {
        last->n = end - t->begin - last->offset;
        return;
    }
    o->runs[o->n_runs++] = (struct run){
        .bucket = t->bucket, .offset = begin - t->begin, .n = end - begin};
}

/* Finds the segments and runs of a stretch. A slice counts in the norm once
 * over all ranks: not as the second copy of the tied table, and where tensor
 * parallel ranks hold the same, on the first of them only. */
static void cut_stretch(struct gpt_optimizer *o, struct stretch *t,
                        int64_t tp_rank)
{
    bool counted = false;

    for (int64_t i = 0; i < o->flat->n; i++) {
        const struct gpt_slice *s = &o->flat->slices[i];
        const int64_t begin = gpt_max_i64(s->offset, t->begin);
        const int64_t end = gpt_min_i64(s->offset + s->count, t->end);
        const bool before = counted;

        if (begin >= end)
            continue;
        add_segment(o, t, begin, s->param->decay);
        counted = !s->copy &&
                  (s->param->split != GPT_SPLIT_NONE || tp_rank == 0);
        if (counted)
            add_run(o, t, begin, end, before);
    }
}

static void list_stretches(struct gpt_optimizer *o, int64_t tp_rank)
{
    const struct gpt_flat *flat = o->flat;

    o->n_stretches = flat->shards == 1 ? 1 : flat->n_buckets;
    for (int64_t b = 0; b < o->n_stretches; b++) {
        struct stretch *t = &o->stretches[b];

        *t = (struct stretch){
            .end = flat->elements,
            .bucket = b,
            .moments = gpt_bucket_compact(flat, b),
        };
        if (flat->shards > 1)
            gpt_bucket_shard(flat, b, flat->shard, &t->begin, &t->end);
        cut_stretch(o, t, tp_rank);
    }
}

/* ---- open and close ---- */

/* Segments are copied once: the device reads them in every step. */
static int upload_segments(struct gpt_optimizer *o, struct gpt_queue *q,
                           struct gpt_err *err)
{
    o->be->copy_in(q, o->device_segments, o->segments,
                   (size_t)o->n_segments * sizeof(*o->segments));
    return o->be->sync(q, err);
}

static int allocate(struct gpt_optimizer *o, struct gpt_err *err)
{
    static const char what[] = "the optimizer";
    const size_t n = (size_t)o->flat->n;
    void *run_sums;

    GPT_TRY(gpt_new(&o->stretches, (size_t)o->flat->n_buckets,
                    sizeof(*o->stretches), what, err));
    GPT_TRY(gpt_new(&o->segments, n, sizeof(*o->segments), what, err));
    GPT_TRY(gpt_new(&o->runs, n, sizeof(*o->runs), what, err));
    GPT_TRY(o->be->host_alloc(o->be, n * sizeof(*o->run_sums), what, &run_sums,
                              err));
    o->run_sums = run_sums;
    return o->be->alloc(o->be, (size_t)gpt_optimizer_memory(o->flat),
                        "optimizer state", &o->memory,
                        err);
}

int gpt_optimizer_open(struct gpt_optimizer **optimizer, struct gpt_backend *be,
                       struct gpt_queue *q, const struct gpt_flat *flat,
                       int64_t tp_rank,
                       const struct gpt_optimizer_options *options,
                       struct gpt_err *err)
{
    struct gpt_optimizer *o;
    int status;

    *optimizer = NULL;
    GPT_TRY(gpt_new(&o, 1, sizeof(*o), "the optimizer", err));
    o->o = *options;
    o->flat = flat;
    o->be = be;
    GPT_TRY_GOTO(status, allocate(o, err), fail);
    o->exp_avg = o->memory;
    o->exp_avg_sq = o->exp_avg + gpt_flat_compact(flat);
    o->sums = (char *)o->memory + 2 * moment_bytes(flat);
    o->device_segments = (char *)o->sums + flat->n * (int64_t)sizeof(double);
    list_stretches(o, tp_rank);
    GPT_TRY_GOTO(status, upload_segments(o, q, err), fail);
    *optimizer = o;
    return GPT_OK;
fail:
    gpt_optimizer_close(o);
    return status;
}

void gpt_optimizer_close(struct gpt_optimizer *o)
{
    if (!o)
        return;
    if (o->memory)
        o->be->free(o->be, o->memory);
    if (o->run_sums)
        o->be->host_free(o->be, o->run_sums);
    gpt_free(o->runs);
    gpt_free(o->segments);
    gpt_free(o->stretches);
    gpt_free(o);
}

/* ---- a step ---- */

int gpt_optimizer_squares(struct gpt_optimizer *o, struct gpt_queue *q,
                          float *const *gradients, double *sum,
                          struct gpt_err *err)
{
    double *sums = o->sums;

    for (int64_t i = 0; i < o->n_runs; i++)
        o->be->sumsq(q, sums + i,
                     gradients[o->runs[i].bucket] + o->runs[i].offset,
                     o->runs[i].n);
    o->be->copy_out(q, o->run_sums, sums, (size_t)o->n_runs * sizeof(*sums));
    GPT_TRY(o->be->sync(q, err));
    *sum = 0;
    for (int64_t i = 0; i < o->n_runs; i++)
        *sum += o->run_sums[i];
    return GPT_OK;
}

/* The place of element i among the weights in `act`; NULL where there are
 * none. */
static void *weight_at(const struct gpt_update *u, int64_t i)
{
    if (!u->weights)
        return NULL;
    return (char *)u->weights + (size_t)i * gpt_dtype_bytes(u->act);
}

void gpt_optimizer_update(struct gpt_optimizer *o, struct gpt_queue *q,
                          const struct gpt_update *u)
{
    struct gpt_adamw op = {
        .act = u->act,
        .lr = u->lr,
        .beta1 = o->o.beta1,
        .beta2 = o->o.beta2,
        .eps = o->o.eps,
        .weight_decay = u->weight_decay,
        .grad_scale = 1 / u->loss_scale,
        .step = ++o->step,
    };

    /* one factor for both, applied to the gradient as it is read: neither is a
     * pass over memory of its own */
    if (o->o.clip_grad > 0 && u->norm > 0)
        op.grad_scale *= fmin(1, o->o.clip_grad / (u->norm + 1e-6));
    for (int64_t i = 0; i < o->n_stretches; i++) {
        const struct stretch *t = &o->stretches[i];

        op.n = t->end - t->begin;
        op.p = u->params + (u->compact ? t->moments : t->begin);
        op.p_act = weight_at(u, t->begin);
        op.m = o->exp_avg + t->moments;
        op.v = o->exp_avg_sq + t->moments;
        op.g = u->gradients[t->bucket];
        op.segments =
            (const struct gpt_adamw_segment *)o->device_segments + t->segment;
        op.n_segments = t->n_segments;
        o->be->adamw(q, &op);
    }
}
