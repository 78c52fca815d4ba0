/* The timeline of a plan; see simulate.h. */
#include "cmd/train/simulate.h"

#include "base/io.h"
#include "base/num.h"
#include "parallel/timeline.h"
#include "parallel/lane.h"
#include "cmd/train/estimate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A timeline of more columns, all stages together, is of no use to anybody. */
enum { COLUMNS_MAX = 50000000 };

int gpt_simulate_parse(struct gpt_simulate_options *o, const char *text,
                       struct gpt_err *err)
{
    double *const fields[] = {&o->forward, &o->backward, &o->transfer, &o->sum,
                              &o->weights};
    const char *at = text;

    for (size_t i = 0; i < GPT_COUNT(fields); i++) {
        char *end;

        *fields[i] = strtod(at, &end);
        const bool good = end > at && isfinite(*fields[i]) &&
                          (i > 1 ? *fields[i] >= 0 : *fields[i] > 0);
        if (!good || (*end && *end != ':'))
            break;
        if (!*end && i > 0)
            return GPT_OK;
        at = end + 1;
    }
    return gpt_fail(err, GPT_EUSAGE,
                    "--simulate '%s' is not FORWARD:BACKWARD[:TRANSFER[:SUM"
                    "[:WEIGHTS]]], in seconds",
                    text);
}

struct played {
    struct gpt_pipeline_plan *plans;
    struct gpt_interval **times;
    int64_t stages;
};

static void played_free(struct played *p)
{
    for (int64_t s = 0; s < p->stages; s++) {
        if (p->times)
            gpt_free(p->times[s]);
        if (p->plans)
            gpt_pipeline_plan_free(&p->plans[s]);
    }
    gpt_free(p->times);
    gpt_free(p->plans);
}

static int played_new(struct played *p, const struct gpt_topology *t,
                      int64_t micro_batches, struct gpt_err *err)
{
    static const char what[] = "the simulation of a pipeline";

    p->stages = t->size[GPT_PP];
    GPT_TRY(
        gpt_new(&p->plans, (size_t)p->stages, sizeof(*p->plans), what, err));
    GPT_TRY(
        gpt_new(&p->times, (size_t)p->stages, sizeof(*p->times), what, err));
    for (int64_t s = 0; s < p->stages; s++) {
        GPT_TRY(gpt_pipeline_plan_build(&p->plans[s], t->size[GPT_PP],
                                        t->chunks, micro_batches, s, err));
        GPT_TRY(gpt_new(&p->times[s], (size_t)p->plans[s].n,
                        sizeof(**p->times), what, err));
    }
    return GPT_OK;
}

static int write_svg(const struct gpt_timeline *t,
                     const struct gpt_simulate_options *o, struct gpt_err *err)
{
    struct gpt_buf picture = {0};

    if (!gpt_timeline_svg(t, &picture)) {
        gpt_buf_free(&picture);
        return gpt_fail(err, GPT_EFAIL, "out of memory for a timeline");
    }
    int status = gpt_write_file(o->svg, o->force ? GPT_OUT_FORCE : 0,
                                picture.data, picture.len, err);
    gpt_buf_free(&picture);
    return status;
}

/* A column is short enough for the number of every microbatch to be seen. */
static double column(const struct gpt_simulate_options *o,
                     const struct gpt_timeline *t)
{
    char number[32];
    int digits = snprintf(number, sizeof(number), "%lld",
                          (long long)t->microbatches - 1);

    return fmin(o->forward, o->backward) /
           (double)(digits + (t->chunks > 1) + 1);
}

/* ---- what hides behind computing ---- */

/* Of a chunk; uneven ones are taken for even. */
static int64_t layers_of(const struct gpt_train_plan *plan)
{
    const struct gpt_topology *t = &plan->topology;

    return gpt_max_i64(
        plan->replica.config.num_layers / (t->size[GPT_PP] * t->chunks), 1);
}

/* Of the two sums in a layer's backward, `sum` seconds each: what the weight
 * gradients of qkv and fc1 hide, which take so much of a layer's backward,
 * twice all its products. */
static double hidden_sums(const struct gpt_config *c, double backward,
                          double sum)
{
    const double heads = (double)(c->num_attention_heads * c->head_size);
    const double groups = (double)(c->num_query_groups * c->head_size);
    const double ffn = (double)c->ffn_hidden_size;
    const double all = 2 * (2 * heads + 2 * groups + 2 * ffn);

    return fmin(sum, backward * (heads + 2 * groups) / all) +
           fmin(sum, backward * ffn / all);
}

/* A step's sums: two in a layer's forward and two in its backward. */
static struct gpt_lane_times tensor_times(const struct gpt_train_plan *plan,
                                          const struct gpt_simulate_options *o)
{
    const int64_t n = layers_of(plan);
    const double layers = (double)(n * plan->topology.chunks *
                                   gpt_max_i64(plan->replica.micro_batches, 1));
    struct gpt_lane_times t = {.total = 4 * o->sum * layers,
                               .waited = 4 * o->sum * layers};

    if (plan->replica.overlap_tensor)
        t.waited -= layers * hidden_sums(&plan->replica.config,
                                         o->backward / (double)n, o->sum);
    return t;
}

/* What a chunk takes with what it waits for. */
static struct gpt_pipeline_plan_costs
costs_of(const struct gpt_train_plan *plan,
         const struct gpt_simulate_options *o)
{
    const int64_t n = layers_of(plan);
    struct gpt_pipeline_plan_costs c = {
        .forward = o->forward + 2 * o->sum * (double)n,
        .backward = o->backward + 2 * o->sum * (double)n,
        .transfer = o->transfer,
        .layers = n,
    };

    if (plan->replica.overlap_tensor)
        c.backward -= (double)n * hidden_sums(&plan->replica.config,
                                              o->backward / (double)n, o->sum);
    if (plan->replica.overlap_gather)
        c.weights = o->weights;
    return c;
}

static int check_groups(const struct gpt_train_plan *plan,
                        const struct gpt_simulate_options *o,
                        struct gpt_err *err)
{
    if (o->sum > 0 && plan->topology.size[GPT_TP] == 1)
        return gpt_fail(err, GPT_EUSAGE,
                        "--simulate: sums need --tensor-model-parallel-size of "
                        "at least 2");
    if (o->weights > 0 && plan->replica.zero == GPT_ZERO_OFF)
        return gpt_fail(err, GPT_EUSAGE,
                        "--simulate: weights are gathered with "
                        "--use-distributed-optimizer");
    return GPT_OK;
}

static bool show_traffic(const char *what, struct gpt_lane_times t,
                         struct gpt_buf *out)
{
    return t.total == 0 ||
           gpt_buf_printf(out, "%s: %.6g s, waited %.6g s, hidden %.6g s\n",
                          what, t.total, t.waited,
                          t.total - t.waited) == GPT_OK;
}

/* ---- the whole ---- */

static int show(struct gpt_timeline *t, const struct gpt_train_plan *plan,
                const struct gpt_simulate_options *o,
                const struct gpt_pipeline_plan_result *r, struct gpt_buf *out,
                struct gpt_err *err)
{
    const double all = o->weights * (double)t->chunks;
    const bool overlap = plan->replica.overlap_gather;
    const struct gpt_lane_times weights = {all, overlap ? r->weights : all};

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
                       r->total + (overlap ? 0 : all), r->bubble,
                       gpt_estimate_bubble(plan)) != GPT_OK ||
        !show_traffic("tensor parallel sums of a step", tensor_times(plan, o),
                      out) ||
        !show_traffic("gathering weights", weights, out))
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
        .stages = t->size[GPT_PP],
        .chunks = t->chunks,
        .microbatches = m,
    };
    const struct gpt_pipeline_plan_costs costs = costs_of(plan, o);
    struct gpt_pipeline_plan_result result;

    GPT_TRY(check_groups(plan, o, err));
    int status = played_new(&p, t, m, err);
    if (status == GPT_OK)
        status = gpt_pipeline_plan_simulate(p.plans, p.stages, &costs, p.times,
                                            &result, err);
    timeline.plans = p.plans;
    timeline.times = (const struct gpt_interval *const *)p.times;
    if (status == GPT_OK) {
        timeline.total = result.total;
        status = show(&timeline, plan, o, &result, out, err);
    }
    played_free(&p);
    return status;
}
