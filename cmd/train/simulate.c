/* The timeline of a plan; see simulate.h. Start at gpt_simulate() at the end:
 * the schedule of each stage is played with the times that were given, of which
 * hidden_sums() subtracts what backward's products cover. */
#include "cmd/train/simulate.h"

#include "base/io.h"
#include "base/num.h"
#include "parallel/timeline.h"
#include "parallel/lane.h"
#include "cmd/train/estimate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A longer timeline, counted in columns of all stages, cannot be read. */
enum { COLUMNS_MAX = 50000000 };

int gpt_simulate_parse(struct gpt_simulate_options *o, const char *text,
                       struct gpt_err *err)
{
    double *const fields[] = {&o->forward, &o->backward, &o->transfer, &o->sum,
                              &o->weights};
    const char *at = text;

    for (size_t i = 0; i < GPT_COUNT(fields); i++) {
        char *end;

        /* forward and backward must take time: a column is a part of them */
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

/* The schedule of every stage, and when each of its actions runs. */
struct played {
    struct gpt_pipeline_plan *plans;
    struct gpt_interval **times;
    int64_t stages;
};

static void free_played(struct played *p)
{
    /* built in the order of stages: what a failure left out is zero */
    for (int64_t s = 0; s < p->stages; s++) {
        if (p->times)
            gpt_free(p->times[s]);
        if (p->plans)
            gpt_pipeline_plan_free(&p->plans[s]);
    }
    gpt_free(p->times);
    gpt_free(p->plans);
}

/* The schedules are those that training runs: the timeline cannot show another
 * order of actions. */
static int build_plans(struct played *p, const struct gpt_topology *t,
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

/* The picture is composed in memory: a file is written whole or not at all. */
static int write_svg(const struct gpt_timeline *t,
                     const struct gpt_simulate_options *o, struct gpt_err *err)
{
    struct gpt_buf picture = {0};
    int status;

    if (gpt_timeline_svg(t, &picture))
        status = gpt_write_file(o->svg, o->force ? GPT_OUT_FORCE : 0,
                                picture.data, picture.len, err);
    else
        status = gpt_no_memory(err, "a timeline");
    gpt_buf_free(&picture);
    return status;
}

/* Seconds of a column: few enough that every action has room for the number of
 * its microbatch. */
static double column_seconds(const struct gpt_simulate_options *o,
                             const struct gpt_timeline *t)
{
    char number[32];
    int digits = snprintf(number, sizeof(number), "%lld",
                          (long long)t->microbatches - 1);

    return fmin(o->forward, o->backward) /
           (double)(digits + (t->chunks > 1) + 1);
}

/* ---- sums and gathers beside computing ---- */

/* Layers of a chunk; uneven stages are taken for even. The times of a chunk are
 * divided evenly over them. */
static int64_t layers_of_chunk(const struct gpt_train_plan *plan)
{
    const struct gpt_topology *t = &plan->topology;

    return gpt_max_i64(
        plan->replica.config.num_layers / (t->size[GPT_PP] * t->chunks), 1);
}

/* Seconds of a layer's two sums in backward, `sum` each, that are not waited
 * for: they run beside the weight gradients of qkv and fc1. Those products take
 * their share of a layer's backward, which is twice all products of forward. */
static double hidden_sums(const struct gpt_config *c, double backward,
                          double sum)
{
    const struct gpt_widths w = gpt_widths_of(c, 1);
    /* of C elements each, as those of feed-forwards are */
    const double attention =
        gpt_widths_attention_weights(&w) / (double)w.hidden;
    const double qkv = attention - (double)w.values;
    /* layers may differ here: the mean one stands for all */
    const double ffn =
        (double)gpt_widths_feed_forwards(c) / (double)c->num_layers;
    const double fc1 = ffn * (c->gated ? 2.0 / 3 : 0.5);
    /* Shares follow from the sizes of matrices, each of which has the hidden
     * size on its other side. Attention itself is left out, so that somewhat
     * more is shown as hidden than a GPU hides. */
    const double all = 2 * (attention + ffn);

    return fmin(sum, backward * qkv / all) + fmin(sum, backward * fc1 / all);
}

/* A step's sums: two in a layer's forward and two in its backward. */
static struct gpt_lane_times tensor_times(const struct gpt_train_plan *plan,
                                          const struct gpt_simulate_options *o)
{
    const int64_t n = layers_of_chunk(plan);
    const double layers = (double)(n * plan->topology.chunks *
                                   gpt_max_i64(plan->replica.micro_batches, 1));
    struct gpt_lane_times t = {.total = 4 * o->sum * layers,
                               .waited = 4 * o->sum * layers};

    if (plan->replica.exec.overlap_tensor)
        t.waited -= layers * hidden_sums(&plan->replica.config,
                                         o->backward / (double)n, o->sum);
    return t;
}

/* Seconds of a chunk's actions: computing, and what it waits for within. Sums
 * are part of forward and backward; gathering weights is not, as the simulation
 * lets it run beside. */
static struct gpt_pipeline_plan_costs
costs_of(const struct gpt_train_plan *plan,
         const struct gpt_simulate_options *o)
{
    const int64_t n = layers_of_chunk(plan);
    struct gpt_pipeline_plan_costs c = {
        .forward = o->forward + 2 * o->sum * (double)n,
        .backward = o->backward + 2 * o->sum * (double)n,
        .transfer = o->transfer,
        .layers = n,
        .end_forward = o->end_forward,
        .end_backward = o->end_backward,
        .chunks = plan->topology.chunks,
    };

    if (plan->replica.exec.overlap_tensor)
        c.backward -= (double)n * hidden_sums(&plan->replica.config,
                                              o->backward / (double)n, o->sum);
    if (plan->replica.overlap_gather)
        c.weights = o->weights;
    return c;
}

/* Times that no group of ranks could spend are refused: they would silently
 * count for nothing. */
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

/* A line of totals; nothing where no time was given. False: out of memory. */
static bool print_times(const char *what, struct gpt_lane_times t,
                        struct gpt_buf *out)
{
    return t.total == 0 ||
           gpt_buf_printf(out, "%s: %.6g s, waited %.6g s, hidden %.6g s\n",
                          what, t.total, t.waited,
                          t.total - t.waited) == GPT_OK;
}

/* ---- the timeline ---- */

static int print_timeline(struct gpt_timeline *t,
                          const struct gpt_train_plan *plan,
                          const struct gpt_simulate_options *o,
                          const struct gpt_pipeline_plan_result *r,
                          struct gpt_buf *out, struct gpt_err *err)
{
    /* without overlap all weights come before the step's first forward */
    const double all = o->weights * (double)t->chunks;
    const bool overlap = plan->replica.overlap_gather;
    const struct gpt_lane_times weights = {all, overlap ? r->weights : all};

    t->column = column_seconds(o, t);
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
        !print_times("tensor parallel sums of a step", tensor_times(plan, o),
                     out) ||
       !print_times("gathering weights", weights, out))
        return gpt_no_memory(err, "a timeline");
    return GPT_OK;
}

int gpt_simulate(const struct gpt_train_plan *plan,
                 const struct gpt_simulate_options *o, struct gpt_buf *text,
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

    int status;

    GPT_TRY(check_groups(plan, o, err));
    GPT_TRY_GOTO(status, build_plans(&p, t, m, err), out);
    GPT_TRY_GOTO(status,
                 gpt_pipeline_plan_simulate(p.plans, p.stages, &costs, p.times,
                                            &result, err),
                 out);
    timeline.plans = p.plans;
    timeline.times = (const struct gpt_interval *const *)p.times;
    timeline.total = result.total;
    status = print_timeline(&timeline, plan, o, &result, text, err);
out:
    free_played(&p);
    return status;
}

/* ---- the length alone ---- */

/* Seconds of a step of m microbatches, by the schedules that training runs: a
 * formula for each kind of schedule would be one more thing to keep true. */
static int play_step(const struct gpt_train_plan *plan,
                     const struct gpt_simulate_options *o, int64_t m,
                     double *seconds, struct gpt_err *err)
{
    const struct gpt_topology *t = &plan->topology;
    const struct gpt_pipeline_plan_costs costs = costs_of(plan, o);
    struct played p = {.stages = 0};
    struct gpt_pipeline_plan_result result;
    int status;

    GPT_TRY_GOTO(status, build_plans(&p, t, m, err), out);
    GPT_TRY_GOTO(status,
                 gpt_pipeline_plan_simulate(p.plans, p.stages, &costs, NULL,
                                            &result, err),
                 out);
    *seconds = result.total;
    /* as print_timeline(): weights that nothing hides come first */
    if (!plan->replica.overlap_gather)
        *seconds += o->weights * (double)t->chunks;
out:
    free_played(&p);
    return status;
}

int gpt_simulate_step(const struct gpt_train_plan *plan,
                      const struct gpt_simulate_options *o, double *seconds,
                      struct gpt_err *err)
{
    /* The pipeline is full before 2 P microbatches, and runs in rounds of P
     * from there: two such lengths give the time of a round. */
    const int64_t m = gpt_max_i64(plan->replica.micro_batches, 1);
    const int64_t few = 3 * plan->topology.size[GPT_PP], more = 2 * few;
    double less;

    if (m <= more + few)
        return play_step(plan, o, m, seconds, err);
    GPT_TRY(play_step(plan, o, few, &less, err));
    GPT_TRY(play_step(plan, o, more, seconds, err));
    *seconds += (*seconds - less) / (double)few * (double)(m - more);
    return GPT_OK;
}

double gpt_simulate_floor(const struct gpt_train_plan *plan,
                          const struct gpt_simulate_options *o)
{
    const struct gpt_pipeline_plan_costs c = costs_of(plan, o);

    return (double)gpt_max_i64(plan->replica.micro_batches, 1) *
           ((double)c.chunks * (c.forward + c.backward) + c.end_forward +
            c.end_backward);
}
