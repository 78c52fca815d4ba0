/* AdamW and the gradient norm over flat buffers; see optimizer.h. */
#include "train/optimizer.h"

#include "base/memory.h"

#include <math.h>

/* A stretch of the flat buffer; gaps inside are zero. */
struct run {
    int64_t begin, end;
};

/* Sums of squares live behind the moments, in the same allocation. */
static int64_t moment_bytes(const struct gpt_flat *flat)
{
    return flat->elements * (int64_t)sizeof(float);
}

int64_t gpt_optimizer_memory(const struct gpt_flat *flat)
{
    return 2 * moment_bytes(flat) + flat->n * (int64_t)sizeof(double);
}

/* Neighbours that are treated alike become one segment, one run. */
static void cut(struct gpt_optimizer *o)
{
    for (int64_t i = 0; i < o->flat->n; i++) {
        const struct gpt_slice *s = &o->flat->slices[i];
        struct gpt_adamw_segment *segment = o->segments + o->n_segments - 1;
        struct run *run = o->runs + o->n_runs - 1;
        if (o->n_segments == 0 || segment->decay != s->param->decay) {
            o->segments[o->n_segments] = (struct gpt_adamw_segment){
                .begin = o->n_segments == 0 ? 0 : s->offset,
                .decay = s->param->decay,
            };
            o->n_segments++;
        }
        if (s->copy)
            continue;
        if (o->n_runs > 0 && !o->flat->slices[i - 1].copy)
            run->end = s->offset + s->count;
        else
            o->runs[o->n_runs++] =
                (struct run){s->offset, s->offset + s->count};
    }
}

int gpt_optimizer_open(struct gpt_optimizer **optimizer, struct gpt_backend *be,
                       const struct gpt_flat *flat,
                       const struct gpt_optimizer_options *options,
                       struct gpt_err *err)
{
    struct gpt_optimizer *o = NULL;
    size_t n = (size_t)flat->n;
    int status;

    *optimizer = NULL;
    GPT_TRY(gpt_new(&o, 1, sizeof *o, "the optimizer", err));
    o->o = *options;
    o->flat = flat;
    o->be = be;
    GPT_TRY_GOTO(
        status,
        gpt_new(&o->segments, n, sizeof *o->segments, "the optimizer", err),
        fail);
    GPT_TRY_GOTO(status,
                 gpt_new(&o->runs, n, sizeof *o->runs, "the optimizer", err),
                 fail);
    GPT_TRY_GOTO(
        status,
        gpt_new(&o->run_sums, n, sizeof *o->run_sums, "the optimizer", err),
        fail);
    GPT_TRY_GOTO(status,
                 be->alloc(be, (size_t)gpt_optimizer_memory(flat),
                           "optimizer state", &o->memory, err),
                 fail);
    o->exp_avg = o->memory;
    o->exp_avg_sq = o->exp_avg + flat->elements;
    o->sums = (char *)o->memory + 2 * moment_bytes(flat);
    cut(o);
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
    gpt_free(o->run_sums);
    gpt_free(o->runs);
    gpt_free(o->segments);
    gpt_free(o);
}

int gpt_optimizer_norm(struct gpt_optimizer *o, struct gpt_queue *q,
                       const float *gradients, double *norm,
                       struct gpt_err *err)
{
    double *sums = o->sums, total = 0;

    for (int64_t i = 0; i < o->n_runs; i++)
        o->be->sumsq(q, sums + i, gradients + o->runs[i].begin,
                     o->runs[i].end - o->runs[i].begin);
    o->be->copy_out(q, o->run_sums, sums, (size_t)o->n_runs * sizeof *sums);
    GPT_TRY(o->be->sync(q, err));
    for (int64_t i = 0; i < o->n_runs; i++)
        total += o->run_sums[i];
    *norm = sqrt(total);
    return GPT_OK;
}

void gpt_optimizer_update(struct gpt_optimizer *o, struct gpt_queue *q,
                          const struct gpt_update *u)
{
    double scale = 1;
    if (o->o.clip_grad > 0 && u->norm > 0)
        scale = fmin(1, o->o.clip_grad / (u->norm + 1e-6));
    struct gpt_adamw op = {
        .n = o->flat->elements,
        .p = u->params,
        .m = o->exp_avg,
        .v = o->exp_avg_sq,
        .g = u->gradients,
        .p_act = u->params_act,
        .act = u->act,
        .lr = u->lr,
        .beta1 = o->o.beta1,
        .beta2 = o->o.beta2,
        .eps = o->o.eps,
        .weight_decay = u->weight_decay,
        .grad_scale = scale,
        .step = ++o->step,
        .segments = o->segments,
        .n_segments = o->n_segments,
    };
    o->be->adamw(q, &op);
}
