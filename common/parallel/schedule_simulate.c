/* The time that a schedule takes: a stage computes one thing after the other; a
 * transfer begins when both ends have posted it, and a group is over with its
 * last transfer. Start at play_with_clocks(). */
#include "parallel/schedule_play.h"

#include "base/memory.h"

struct clock {
    double now;  /* the stage is busy, or waits in a group, since */
    double busy; /* seconds of computing so far */
    double weights; /* of waiting for weights */
};

static double later(double a, double b)
{
    return a > b ? a : b;
}

static void note(struct gpt_interval **times, int64_t stage, int64_t action,
                 double begin, double end)
{
    if (times)
        times[stage][action] = (struct gpt_interval){begin, end};
}

static double seconds_of(const struct gpt_pipeline_plan_costs *costs,
                         const struct gpt_action *a, bool last_stage)
{
    const bool end = last_stage && a->chunk == costs->chunks - 1;

    return a->kind == GPT_ACT_FORWARD
               ? costs->forward + (end ? costs->end_forward : 0)
           : a->kind == GPT_ACT_BACKWARD
               ? costs->backward + (end ? costs->end_backward : 0)
               : 0;
}

/* Seconds that an action which could begin now waits for weights. A forward
 * goes from layer to layer, and the layers' weights come one after the other,
 * both at an even rate. So either the weights come faster, and only the first
 * layer waits, or the computing is faster, and the last layer decides. */
static double wait_for_weights(const struct gpt_pipeline_plan_costs *costs,
                               const struct gpt_action *a, double now)
{
    const double n = (double)costs->layers, begun = costs->weights * a->chunk;

    /* Later microbatches find the weights of their chunk in place. */
    if (costs->weights == 0 || a->kind != GPT_ACT_FORWARD || a->microbatch > 0)
        return 0;
    const double first = begun + costs->weights / n;
    const double last = begun + costs->weights -
                        costs->forward * (n - 1) / n; /* of the layers before */
    return later(0, later(first, last) - now);
}

/* Advances a stage's clock by an action; returns the time when it begins. */
static double compute(struct clock *c,
                      const struct gpt_pipeline_plan_costs *costs,
                      const struct gpt_action *a, bool last_stage)
{
    const double wait = wait_for_weights(costs, a, c->now);
    const double begin = c->now + wait;
    const double seconds = seconds_of(costs, a, last_stage);

    c->weights += wait;
    c->now = begin + seconds;
    c->busy += seconds;
    return begin;
}

/* posted: by stage, the time when the group that it waits in was posted. The
 * play gives events in an order that respects every dependency, and each time
 * is computed from the events that it depends on alone. So the times are the
 * same for all orders in which the play could give the events. */
static void play_with_clocks(struct gpt_play *y,
                             const struct gpt_pipeline_plan_costs *costs,
                             struct clock *clocks, double *posted,
                             struct gpt_interval **times)
{
    const double transfer = costs->transfer;
    struct gpt_play_event e;

    while (gpt_play_next(y, &e)) {
        struct clock *a = &clocks[e.stage];

        if (e.to < 0) {
            const struct gpt_pipeline_plan *plan = &y->plans[e.stage];
            const double begin = compute(a, costs, &plan->actions[e.action],
                                         e.stage == y->stages - 1);

            note(times, e.stage, e.action, begin, a->now);
            posted[e.stage] = a->now;
            continue;
        }
        struct clock *b = &clocks[e.to];
        double begin = later(posted[e.stage], posted[e.to]);
        note(times, e.stage, e.action, begin, begin + transfer);
        note(times, e.to, e.receive, begin, begin + transfer);
        a->now = later(a->now, begin + transfer);
        b->now = later(b->now, begin + transfer);
        /* The play sets the end of a group to 0 when its last transfer is done.
         * From that moment on the stage can post its next group. */
        if (y->end[e.stage] == 0)
            posted[e.stage] = a->now;
        if (y->end[e.to] == 0)
            posted[e.to] = b->now;
    }
}

int gpt_pipeline_plan_simulate(const struct gpt_pipeline_plan *plans,
                               int64_t stages,
                               const struct gpt_pipeline_plan_costs *costs,
                               struct gpt_interval **times,
                               struct gpt_pipeline_plan_result *result,
                               struct gpt_err *err)
{
    const char *what = "the simulation of a pipeline schedule";
    struct clock *clocks = NULL;
    double *posted = NULL, busiest = 0;
    struct gpt_play y;
    int status;

    GPT_TRY(gpt_play_open(&y, plans, stages, err));
    GPT_TRY_GOTO(status,
                 gpt_new(&clocks, (size_t)stages, sizeof(*clocks), what, err),
                 out);
    GPT_TRY_GOTO(status,
                 gpt_new(&posted, (size_t)stages, sizeof(*posted), what, err),
                 out);
    play_with_clocks(&y, costs, clocks, posted, times);
    if (gpt_play_stuck(&y) >= 0) {
        status = gpt_fail(err, GPT_EFAIL,
                          "the pipeline schedule stops at stage %lld, action "
                          "%lld",
                          (long long)gpt_play_stuck(&y),
                          (long long)y.at[gpt_play_stuck(&y)]);
        goto out;
    }
    *result = (struct gpt_pipeline_plan_result){.total = 0};
    for (int64_t s = 0; s < stages; s++) {
        result->total = later(result->total, clocks[s].now);
        result->weights = later(result->weights, clocks[s].weights);
        busiest = later(busiest, clocks[s].busy);
    }
    /* The bubble compares the whole with the busiest stage: no schedule is
     * shorter than the work of that stage. */
    if (busiest > 0)
        result->bubble = (result->total - busiest) / busiest;
out:
    gpt_free(clocks);
    gpt_free(posted);
    gpt_play_close(&y);
    return status;
}
