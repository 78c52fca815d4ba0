/* The timeline of a plan; see simulate.h. */
#include "train/simulate.h"

#include "base/io.h"
#include "base/num.h"
#include "parallel/timeline.h"
#include "train/estimate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A timeline of more columns, all stages together, is of no use to anybody. */
enum { COLUMNS_MAX = 50000000 };

int gpt_simulate_parse(struct gpt_simulate_options *o, const char *text,
                       struct gpt_err *err)
{
    double *const fields[] = {&o->forward, &o->backward, &o->transfer};
    const char *at = text;

    for (size_t i = 0; i < GPT_COUNT(fields); i++) {
        char *end;
        *fields[i] = strtod(at, &end);
        const bool good = end > at && isfinite(*fields[i]) &&
                          (i == 2 ? *fields[i] >= 0 : *fields[i] > 0);
        if (!good || (*end && *end != ':'))
            break;
        if (!*end && i > 0)
            return GPT_OK;
        at = end + 1;
    }
    return gpt_fail(err, GPT_EUSAGE,
                    "--simulate '%s' is not FORWARD:BACKWARD[:TRANSFER], in "
                    "seconds",
                    text);
}

struct played {
    struct gpt_plan *plans;
    struct gpt_span **times;
    int64_t stages;
};

static void played_free(struct played *p)
{
    for (int64_t s = 0; s < p->stages; s++) {
        if (p->times)
            gpt_free(p->times[s]);
        if (p->plans)
            gpt_plan_free(&p->plans[s]);
    }
    gpt_free(p->times);
    gpt_free(p->plans);
}

static int played_new(struct played *p, const struct gpt_topology *t,
                      int64_t micro_batches, struct gpt_err *err)
{
    static const char what[] = "the simulation of a pipeline";

    p->stages = t->pp_size;
    GPT_TRY(gpt_new(&p->plans, (size_t)p->stages, sizeof *p->plans, what, err));
    GPT_TRY(gpt_new(&p->times, (size_t)p->stages, sizeof *p->times, what, err));
    for (int64_t s = 0; s < p->stages; s++) {
        GPT_TRY(gpt_plan_build(&p->plans[s], t->pp_size, t->chunks,
                               micro_batches, s, err));
        GPT_TRY(gpt_new(&p->times[s], (size_t)p->plans[s].n,
                        sizeof **p->times, what, err));
    }
    return GPT_OK;
}

static int write_svg(const struct gpt_timeline *t,
                     const struct gpt_simulate_options *o, struct gpt_err *err)
{
    struct gpt_buf picture = {0};
    struct gpt_out *out;

    if (!gpt_timeline_svg(t, &picture)) {
        gpt_buf_free(&picture);
        return gpt_fail(err, GPT_EFAIL, "out of memory for a timeline");
    }
    int status = gpt_out_open(&out, o->svg, o->force ? GPT_OUT_FORCE : 0,
                              (int64_t)picture.len, err);
    if (status == GPT_OK) {
        status = gpt_out_write(out, picture.data, picture.len, err);
        if (status == GPT_OK)
            status = gpt_out_commit(out, err);
        else
            gpt_out_abort(out);
    }
    gpt_buf_free(&picture);
    return status;
}

/* A column is short enough for the number of every microbatch to be seen. */
static double column(const struct gpt_simulate_options *o,
                     const struct gpt_timeline *t)
{
    char number[32];
    int digits = snprintf(number, sizeof number, "%lld",
                          (long long)t->microbatches - 1);

    return fmin(o->forward, o->backward) /
           (double)(digits + (t->chunks > 1) + 1);
}

static int show(struct gpt_timeline *t, const struct gpt_train_plan *plan,
                const struct gpt_simulate_options *o, double bubble,
                struct gpt_buf *out, struct gpt_err *err)
{
    t->column = column(o, t);
    if (t->total / t->column * (double)t->stages > COLUMNS_MAX)
        return gpt_fail(err, GPT_EUSAGE,
                        "--simulate: %lld stages and %lld microbatches are "
                        "too many to be drawn",
                        (long long)t->stages, (long long)t->microbatches);
    if (o->svg)
        GPT_TRY(write_svg(t, o, err));
    if (!gpt_timeline_text(t, out) ||
        gpt_buf_printf(out,
                       "step: %.6g s, bubble: %.4f of the time of computing, "
                       "(P - 1) / (V m) = %.4f\n",
                       t->total, bubble, gpt_estimate_bubble(plan)) != GPT_OK)
        return gpt_fail(err, GPT_EFAIL, "out of memory for a timeline");
    return GPT_OK;
}

int gpt_simulate(const struct gpt_train_plan *plan,
                 const struct gpt_simulate_options *o, struct gpt_buf *out,
                 struct gpt_err *err)
{
    const struct gpt_topology *t = &plan->topology;
    const int64_t m = gpt_max_i64(plan->replica.micro_batches, 1);
    struct played p = {.stages = 0};
    struct gpt_timeline timeline = {
        .stages = t->pp_size,
        .chunks = t->chunks,
        .microbatches = m,
    };
    double bubble;

    int status = played_new(&p, t, m, err);
    if (status == GPT_OK)
        status = gpt_plan_simulate(p.plans, p.stages, o->forward, o->backward,
                                   o->transfer, p.times, &timeline.total,
                                   &bubble, err);
    timeline.plans = p.plans;
    timeline.times = (const struct gpt_span *const *)p.times;
    if (status == GPT_OK)
        status = show(&timeline, plan, o, bubble, out, err);
    played_free(&p);
    return status;
}
