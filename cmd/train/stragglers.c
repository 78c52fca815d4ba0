/* Slow ranks; see stragglers.h. One slow rank makes all others wait, so that
 * the time of a step says nothing about which one is slow. The time that a rank
 * computes, without its waits, does. Start at gpt_stragglers_report(). */
#include "cmd/train/stragglers.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"

#include <string.h>

/* A rank is judged by the mean of so many steps: single ones are disturbed by
 * whatever else a machine does. */
enum { LEAST = 10, MOST_LINES = 8 };

struct gpt_stragglers {
    struct gpt_world *world;
    int64_t ranks, stage; /* stage: ranks of one */
    int64_t steps;        /* of this window; -1: the first is still to come */
    double *sum, *sorted; /* (ranks) seconds; (stage) */
    int64_t *count;       /* (ranks) */
};

int gpt_stragglers_open(struct gpt_stragglers **out, struct gpt_world *world,
                        struct gpt_err *err)
{
    static const char what[] = "times of ranks";
    const struct gpt_topology *t = &world->topology;
    const int64_t stage = t->size[GPT_TP] * t->size[GPT_DP];
    struct gpt_stragglers *s;
    int status;

    *out = NULL;
    if (stage < 2)
        return GPT_OK;
    GPT_TRY(gpt_new(&s, 1, sizeof(*s), what, err));
    s->world = world;
    s->ranks = t->world_size;
    s->stage = stage;
    s->steps = -1;
    GPT_TRY_GOTO(status, gpt_new(&s->sum, (size_t)s->ranks, sizeof(*s->sum),
                                 what, err), fail);
    GPT_TRY_GOTO(status, gpt_new(&s->count, (size_t)s->ranks,
                                 sizeof(*s->count), what, err), fail);
    GPT_TRY_GOTO(status, gpt_new(&s->sorted, (size_t)stage,
                                 sizeof(*s->sorted), what, err), fail);
    *out = s;
    return GPT_OK;
fail:
    gpt_stragglers_close(s);
    return status;
}

void gpt_stragglers_close(struct gpt_stragglers *s)
{
    if (!s)
        return;
    gpt_free(s->sum);
    gpt_free(s->count);
    gpt_free(s->sorted);
    gpt_free(s);
}

void gpt_stragglers_add(struct gpt_stragglers *s,
                        const struct gpt_step_ranks *ranks)
{
    if (!s || s->steps++ < 0)
        return;
    for (int64_t i = 0; i < ranks->n; i++) {
        const int64_t rank = (ranks->first + i) % s->ranks;

        s->sum[rank] += ranks->busy[i];
        s->count[rank]++;
    }
}

/* Every rank has been measured when this is called. */
static double mean(const struct gpt_stragglers *s, int64_t rank)
{
    return s->sum[rank] / (double)s->count[rank];
}

/* The median of the means of a stage's ranks, which begin at `first`. */
static double median_of_stage(const struct gpt_stragglers *s, int64_t first)
{
    const int64_t n = s->stage;

    for (int64_t i = 0; i < n; i++)
        s->sorted[i] = mean(s, first + i);
    return gpt_median(s->sorted, (size_t)n);
}

/* Ranks of a stage are neighbours: stages are the slowest dimension. */
static void report_stage(const struct gpt_stragglers *s, int64_t first,
                         int64_t *lines)
{
    const double median = median_of_stage(s, first);

    for (int64_t rank = first; rank < first + s->stage; rank++) {
        char host[128];

        if (!(mean(s, rank) > 1.1 * median) || ++*lines > MOST_LINES)
            continue;
        gpt_world_host(s->world, rank, host, sizeof(host));
        gpt_log_line(" straggler: rank %lld on %s computes %.1f ms a step, "
                     "%.0f %% more than the median of the %lld ranks of its "
                     "stage, %.1f ms; over %lld steps",
                     (long long)rank, host, 1e3 * mean(s, rank),
                     100 * (mean(s, rank) / median - 1), (long long)s->stage,
                     1e3 * median, (long long)s->steps);
    }
}

void gpt_stragglers_report(struct gpt_stragglers *s)
{
    int64_t lines = 0;

    if (!s)
        return;
    /* In very large worlds ranks take turns, so that this takes many steps: the
     * window is as long as it must be, whatever the log interval is. */
    for (int64_t i = 0; i < s->ranks; i++)
        if (s->count[i] < LEAST)
            return;
    for (int64_t first = 0; first < s->ranks; first += s->stage)
        report_stage(s, first, &lines);
    /* Where a whole rack is slow a line for each rank would bury the log. */
    if (lines > MOST_LINES)
        gpt_log_line(" straggler: %lld more ranks",
                     (long long)(lines - MOST_LINES));
    s->steps = 0;
    memset(s->sum, 0, (size_t)s->ranks * sizeof(*s->sum));
    memset(s->count, 0, (size_t)s->ranks * sizeof(*s->count));
}
