/* Time: a stage computes one thing after the other; a transfer begins when both
 * ends have posted it, and a group is over with its last transfer. */
#include "parallel/schedule_play.h"

#include "base/memory.h"

struct clock {
    double now;  /* the stage is busy, or waits in a group, since */
    double busy; /* seconds of computing so far */
};

static double later(double a, double b)
{
    return a > b ? a : b;
}

static void note(struct gpt_span **times, int64_t stage, int64_t action,
                 double begin, double end)
{
    if (times)
        times[stage][action] = (struct gpt_span){begin, end};
}

/* posted: when the group that a stage waits in was posted. */
static void run(struct gpt_play *y, const double seconds[GPT_N_ACTIONS],
                double transfer, struct clock *clocks, double *posted,
                struct gpt_span **times)
{
    struct gpt_play_event e;

    while (gpt_play_next(y, &e)) {
        struct clock *a = &clocks[e.stage];
        if (e.to < 0) {
            double took = seconds[y->plans[e.stage].actions[e.action].kind];
            note(times, e.stage, e.action, a->now, a->now + took);
            a->now += took;
            a->busy += took;
            posted[e.stage] = a->now;
            continue;
        }
        struct clock *b = &clocks[e.to];
        double begin = later(posted[e.stage], posted[e.to]);
        note(times, e.stage, e.action, begin, begin + transfer);
        note(times, e.to, e.receive, begin, begin + transfer);
        a->now = later(a->now, begin + transfer);
        b->now = later(b->now, begin + transfer);
        if (y->end[e.stage] == 0)
            posted[e.stage] = a->now;
        if (y->end[e.to] == 0)
            posted[e.to] = b->now;
    }
}

int gpt_plan_simulate(const struct gpt_plan *plans, int64_t stages,
                      double forward, double backward, double transfer,
                      struct gpt_span **times, double *total, double *bubble,
                      struct gpt_err *err)
{
    const double seconds[GPT_N_ACTIONS] = {
        [GPT_ACT_FORWARD] = forward, [GPT_ACT_BACKWARD] = backward};
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
    run(&y, seconds, transfer, clocks, posted, times);
    if (gpt_play_stuck(&y) >= 0) {
        status = gpt_fail(err, GPT_EFAIL,
                          "the pipeline schedule stops at stage %lld, action "
                          "%lld",
                          (long long)gpt_play_stuck(&y),
                          (long long)y.at[gpt_play_stuck(&y)]);
        goto out;
    }
    *total = 0;
    for (int64_t s = 0; s < stages; s++) {
        *total = later(*total, clocks[s].now);
        busiest = later(busiest, clocks[s].busy);
    }
    *bubble = busiest > 0 ? (*total - busiest) / busiest : 0;
out:
    gpt_free(clocks);
    gpt_free(posted);
    gpt_play_close(&y);
    return status;
}
