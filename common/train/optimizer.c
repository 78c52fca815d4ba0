/* Updates and the gradient norm over the shards of flat buffers; see
 * optimizer.h. Start at gpt_optimizer_update(); the pieces that it walks over
 * are cut in optimizer_pieces.c.
 *
 * The lists are made once, from the parameter table, and a step walks them: a
 * call a piece for the update, a call a run for the norm. Neighbouring
 * parameters that are treated alike are one piece, run or segment, so a model
 * of hundreds of tensors takes a few calls.
 *
 * The norm is a sum of doubles in the order of runs on each rank, and of the
 * ranks' sums in the order of ranks (step.c): the same bits on every rank and
 * in every repetition. Another layout cuts it elsewhere, so there it agrees to
 * rounding only. */
#include "train/optimizer_internal.h"

#include "base/memory.h"
#include "base/num.h"

#include <math.h>

/* A run of gradients that count in the norm; gaps inside it are zero. */
struct norm_run {
    int64_t bucket, offset, n; /* elements, from the shard's begin on */
};

/* ---- memory ---- */

/* Bytes of the optimizer. Sums of squares and segments follow the states in the
 * same allocation. */
static int64_t own_bytes(const struct gpt_optimizer_options *o,
                         const struct gpt_flat *flat)
{
    const size_t each = sizeof(double) + sizeof(struct gpt_decay_segment);

    return update_first_bytes(o, flat) + update_second_bytes(o, flat) +
           flat->n * (int64_t)each;
}

static bool has_muon(const struct gpt_optimizer_options *o,
                     const struct gpt_flat *flat)
{
    return o->kind == GPT_MUON && gpt_optimizer_has(o, GPT_KIND_MOMENTUM, flat);
}

int64_t gpt_optimizer_memory(const struct gpt_optimizer_options *o,
                             const struct gpt_flat *flat)
{
    return own_bytes(o, flat) +
           (has_muon(o, flat) ? gpt_muon_memory(&o->muon, flat) : 0);
}

/* ---- what is updated and counted ---- */

/* Adds the elements of a parameter from `begin` on; neighbours that are treated
 * alike become one segment. */
static void add_segment(struct gpt_optimizer *o, struct update_piece *p,
                        int64_t begin, bool decay)
{
    struct gpt_decay_segment *last = o->segments + o->n_segments - 1;

    if (p->n_segments > 0 && last->decay == decay)
        return;
    if (p->n_segments++ == 0)
        p->segment = o->n_segments;
    o->segments[o->n_segments++] = (struct gpt_decay_segment){
        .begin = p->n_segments == 1 ? 0 : begin - p->begin,
        .decay = decay,
    };
}

static void list_segments(struct gpt_optimizer *o)
{
    for (int64_t k = 0; k < o->n_pieces; k++) {
        struct update_piece *p = &o->pieces[k];

        for (int64_t i = 0; !p->slice && i < o->flat->n; i++) {
            const struct gpt_slice *s = &o->flat->slices[i];

            if (s->offset < p->end && s->offset + s->count > p->begin)
                add_segment(o, p, gpt_max_i64(s->offset, p->begin),
                            s->param->decay);
        }
    }
}

/* Runs are joined over gaps, too, since the padding between parameters is zero
 * and adds nothing to a sum of squares. */
static void add_run(struct gpt_optimizer *o, const struct update_stretch *t,
                    int64_t begin, int64_t end, bool joined)
{
    struct norm_run *last = o->runs + o->n_runs - 1;

    if (joined) {
        last->n = end - t->begin - last->offset;
        return;
    }
    o->runs[o->n_runs++] = (struct norm_run){
        .bucket = t->bucket, .offset = begin - t->begin, .n = end - begin};
}

/* A slice counts in the norm once over all ranks: not as the second copy of the
 * tied table, and where tensor parallel ranks hold the same, on the first of
 * them only. What is no gradient does not count. */
static void list_runs(struct gpt_optimizer *o, int64_t bucket, int64_t tp_rank)
{
    const struct update_stretch t = update_stretch_of(o->flat, bucket);
    bool counted = false;

    for (int64_t i = 0; i < o->flat->n; i++) {
        const struct gpt_slice *s = &o->flat->slices[i];
        const int64_t begin = gpt_max_i64(s->offset, t.begin);
        const int64_t end = gpt_min_i64(s->offset + s->count, t.end);
        const bool before = counted;

        if (begin >= end)
            continue;
        counted = !s->copy && !s->param->counts &&
                  (s->param->split != GPT_SPLIT_NONE || tp_rank == 0);
        if (counted)
            add_run(o, &t, begin, end, before);
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
    struct update_pieces list;
    void *run_sums;

    GPT_TRY(update_pieces_new(&list, &o->o, o->flat, err));
    o->pieces = list.items;
    o->n_pieces = list.n;
    GPT_TRY(gpt_new(&o->segments, n, sizeof(*o->segments), what, err));
    GPT_TRY(gpt_new(&o->runs, n, sizeof(*o->runs), what, err));
    GPT_TRY(o->be->host_alloc(o->be, n * sizeof(*o->run_sums), what, &run_sums,
                              err));
    o->run_sums = run_sums;
    return o->be->alloc(o->be, (size_t)own_bytes(&o->o, o->flat),
                        "optimizer state", &o->memory, err);
}

/* States come first in the memory, so that they have its alignment. */
static void lay_out(struct gpt_optimizer *o)
{
    const int64_t first = update_first_bytes(&o->o, o->flat);
    const int64_t second = update_second_bytes(&o->o, o->flat);
    char *at = o->memory;

    o->first = first > 0 ? (float *)(void *)at : NULL;
    o->second = second > 0 ? (float *)(void *)(at + first) : NULL;
    o->sums = at + first + second;
    o->device_segments =
        (char *)o->sums + o->flat->n * (int64_t)sizeof(double);
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
    lay_out(o);
    list_segments(o);
    for (int64_t b = 0; b < update_stretches(flat); b++)
        list_runs(o, b, tp_rank);
    GPT_TRY_GOTO(status, upload_segments(o, q, err), fail);
    if (has_muon(options, flat))
        GPT_TRY_GOTO(status,
                     gpt_muon_open(&o->muon, be, &options->muon, flat,
                                   options->tp, options->dp, err),
                     fail);
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
    gpt_muon_close(o->muon);
    if (o->memory)
        o->be->free(o->be, o->memory);
    if (o->run_sums)
        o->be->host_free(o->be, o->run_sums);
    gpt_free(o->runs);
    gpt_free(o->segments);
    gpt_free(o->pieces);
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

/* An update in progress: what each piece of it needs besides its place. */
struct update {
    const struct gpt_update *u;
    struct gpt_queue *q;
    double grad_scale; /* for the loss scale, and for the norm */
};

/* The place of element i among the weights in `act`; NULL where there are
 * none. */
static void *weight_at(const struct gpt_update *u, int64_t i)
{
    if (!u->weights)
        return NULL;
    return (char *)u->weights + (size_t)i * gpt_dtype_bytes(u->act);
}

/* The addresses of element i of a piece among parameters, and among
 * gradients. */
static float *param_at(const struct gpt_update *u, const struct update_piece *p,
                       int64_t i)
{
    return u->params + (u->compact ? p->compact + i - p->begin : i);
}

static const float *gradient_at(const struct gpt_update *u,
                                const struct update_piece *p, int64_t i)
{
    return u->gradients[p->bucket] + p->gradient + i - p->begin;
}

static double rate_of(const struct gpt_update *u, const struct update_piece *p)
{
    return p->decoupled && u->rates.decoupled ? u->rates.decoupled_lr
                                              : u->rates.lr;
}

/* The segments of a piece, on the device. */
static const struct gpt_decay_segment *
segments_of(const struct gpt_optimizer *o, const struct update_piece *p)
{
    return (const struct gpt_decay_segment *)o->device_segments + p->segment;
}

/* Hands the lengths, places and factors of a pass to the backend, which does
 * the work. */
static void update_by_adam(struct gpt_optimizer *o, const struct update *now,
                           const struct update_piece *p)
{
    const struct gpt_update *u = now->u;
    const struct gpt_adamw op = {
        .n = p->end - p->begin,
        .p = param_at(u, p, p->begin),
        .m = o->first + p->compact,
        .v = o->second + p->second,
        .g = gradient_at(u, p, p->begin),
        .p_act = weight_at(u, p->begin),
        .act = u->act,
        .lr = rate_of(u, p),
        .beta1 = o->o.beta1,
        .beta2 = o->o.beta2,
        .eps = o->o.eps,
        .weight_decay = u->rates.weight_decay,
        .grad_scale = now->grad_scale,
        .coupled = o->o.coupled,
        .step = o->step,
        .segments = segments_of(o, p),
        .n_segments = p->n_segments,
    };

    o->be->adamw(now->q, &op);
}

static void update_by_descent(struct gpt_optimizer *o, const struct update *now,
                              const struct update_piece *p)
{
    const struct gpt_update *u = now->u;
    const struct gpt_sgd op = {
        .n = p->end - p->begin,
        .p = param_at(u, p, p->begin),
        .m = o->first ? o->first + p->compact : NULL,
        .g = gradient_at(u, p, p->begin),
        .p_act = weight_at(u, p->begin),
        .act = u->act,
        .lr = rate_of(u, p),
        .momentum = o->o.momentum,
        .weight_decay = u->rates.weight_decay,
        .grad_scale = now->grad_scale,
        .segments = segments_of(o, p),
        .n_segments = p->n_segments,
    };

    o->be->sgd(now->q, &op);
}

/* The elements of a piece that belong to its parameter, without the gap after
 * it. */
static void own_range(const struct update_piece *p, int64_t *begin,
                      int64_t *end)
{
    *begin = gpt_max_i64(p->begin, p->slice->offset);
    *end = gpt_min_i64(p->end, p->slice->offset + p->slice->count);
}

/* A shard that has a part of a router's bias updates it alone: the mean follows
 * from the batch. The gap stays 0. */
static void update_by_balance(const struct gpt_optimizer *o,
                              const struct update *now,
                              const struct update_piece *p)
{
    const struct gpt_update *u = now->u;
    int64_t begin, end;

    own_range(p, &begin, &end);
    const struct gpt_balance op = {
        .n = end - begin,
        .p = param_at(u, p, begin),
        .counts = gradient_at(u, p, begin),
        .p_act = weight_at(u, begin),
        .act = u->act,
        .mean = u->expert_mean,
        .rate = o->o.bias_rate,
    };

    o->be->balance(now->q, &op);
}

/* ---- Muon ---- */

static void mix(const struct gpt_optimizer *o, struct gpt_queue *q, int64_t n,
                float *out, double a, const float *x, double b, const float *y)
{
    const struct gpt_mix op = {
        .n = n, .out = out, .x = x, .y = y, .a = a, .b = b};

    o->be->mix(q, &op);
}

/* Sets momentum to mu momentum + (1 - mu) g, and makes what is to become
 * orthogonal: the momentum, or with Nesterov's rule a step further, mu momentum
 * + (1 - mu) g. Coupled decay is a part of g. */
static void mix_momentum(struct gpt_optimizer *o, const struct update *now,
                         const struct update_piece *p)
{
    const struct gpt_update *u = now->u;
    const double mu = o->o.momentum;
    const double decay =
        o->o.coupled && p->slice->param->decay ? u->rates.weight_decay : 0;
    int64_t begin, end;

    own_range(p, &begin, &end);
    const int64_t n = end - begin;
    float *momentum = o->first + p->compact + begin - p->begin;
    float *place = gpt_muon_place(o->muon, p->slice->bucket, begin);
    const float *g = gradient_at(u, p, begin), *w = param_at(u, p, begin);
    const double share = (1 - mu) * now->grad_scale;

    mix(o, now->q, n, momentum, mu, momentum, share, g);
    if (decay > 0)
        mix(o, now->q, n, momentum, 1, momentum, (1 - mu) * decay, w);
    if (!o->o.muon.nesterov) {
        o->be->copy(now->q, place, momentum, (size_t)n * sizeof(*place));
        return;
    }
    mix(o, now->q, n, place, mu, momentum, share, g);
    if (decay > 0)
        mix(o, now->q, n, place, 1, place, (1 - mu) * decay, w);
}

/* Decoupled decay is a factor of the parameter in the same pass. The elements
 * of other shards are other ranks' to update. */
static void step_matrix(struct gpt_optimizer *o, const struct update *now,
                        const struct update_piece *p)
{
    const struct gpt_update *u = now->u;
    const double keep = o->o.coupled || !p->slice->param->decay
                            ? 1
                            : 1 - u->rates.lr * u->rates.weight_decay;
    const float *direction =
        gpt_muon_orthogonal(o->muon, now->q, p->slice);
    int64_t begin, end;

    own_range(p, &begin, &end);
    float *w = param_at(u, p, begin);
    mix(o, now->q, end - begin, w, keep, w, -u->rates.lr,
        direction + begin - p->slice->offset);
    if (u->weights)
        o->be->cast(now->q, weight_at(u, begin), u->act, w, GPT_F32,
                    end - begin);
}

/* Updates the matrices of a bucket, pieces[0] to pieces[n - 1]. The gather is a
 * call of all data parallel ranks, for every bucket that has matrices at all: a
 * rank whose shard holds none of them takes part. */
static void update_matrices(struct gpt_optimizer *o, const struct update *now,
                            int64_t bucket, const struct update_piece *pieces,
                            int64_t n)
{
    const bool sharded = o->flat->shards > 1;

    for (int64_t i = 0; i < n; i++)
        if (pieces[i].rule == MUON_RULE) {
            mix_momentum(o, now, &pieces[i]);
            if (!sharded) /* one place serves all */
                step_matrix(o, now, &pieces[i]);
        }
    if (!sharded || !gpt_muon_gathers(o->flat, bucket))
        return;
    gpt_muon_gather_bucket(o->muon, now->q, bucket);
    for (int64_t i = 0; i < n; i++)
        if (pieces[i].rule == MUON_RULE)
            step_matrix(o, now, &pieces[i]);
}

/* Updates bucket by bucket, on all ranks in the same order. */
static void update_by_muon(struct gpt_optimizer *o, const struct update *now)
{
    int64_t at = 0;

    for (int64_t b = 0; b < update_stretches(o->flat); b++) {
        const int64_t first = at;

        while (at < o->n_pieces && o->pieces[at].bucket == b)
            at++;
        update_matrices(o, now, b, o->pieces + first, at - first);
    }
}

void gpt_optimizer_update(struct gpt_optimizer *o, struct gpt_queue *q,
                          const struct gpt_update *u)
{
    struct update now = {.u = u, .q = q, .grad_scale = 1 / u->loss_scale};

    o->step++;
    /* one factor for both, applied to the gradient as it is read: neither is a
     * pass over memory of its own */
    if (o->o.clip_grad > 0 && u->norm > 0)
        now.grad_scale *= fmin(1, o->o.clip_grad / (u->norm + 1e-6));
    for (int64_t i = 0; i < o->n_pieces; i++) {
        const struct update_piece *p = &o->pieces[i];

        switch (p->rule) {
        case ADAM_RULE:
            update_by_adam(o, &now, p);
            break;
        case MOMENTUM_RULE:
        case DESCENT_RULE:
            update_by_descent(o, &now, p);
            break;
        case BALANCE_RULE:
            update_by_balance(o, &now, p);
            break;
        case MUON_RULE: /* bucket by bucket */
            break;
        }
    }
    if (o->muon)
        update_by_muon(o, &now);
}
