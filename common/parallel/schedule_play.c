/* Playing the plans of all stages. A stage runs until it posts a group of
 * transfers that is not complete. The stage that posts the later end of a
 * transfer finds the match, and wakes the other one when that one's group is
 * done. So a stage is looked at only when something has changed for it, and the
 * time is that of the actions, not of actions times stages: plans of thousands
 * of stages are checked in a test. Start at gpt_play_next(). */
#include "parallel/schedule_play.h"

#include "base/memory.h"

static bool is_transfer(const struct gpt_action *a)
{
    return gpt_action_sends(a->kind) || gpt_action_receives(a->kind);
}

/* Puts a stage on the list of those that may have something to do. A stage is
 * on the list once at most, so the list has room for all stages and never
 * grows. */
static void wake(struct gpt_play *y, int64_t stage)
{
    if (y->is_ready[stage])
        return;
    y->is_ready[stage] = true;
    y->ready[y->n_ready++] = stage;
}

int gpt_play_open(struct gpt_play *y, const struct gpt_pipeline_plan *plans,
                  int64_t stages, struct gpt_err *err)
{
    const char *what = "the play of a pipeline schedule";
    const size_t n = (size_t)stages;
    int status;

    *y = (struct gpt_play){.plans = plans, .stages = stages};
    GPT_TRY_GOTO(status, gpt_new(&y->at, n, sizeof(*y->at), what, err), fail);
    GPT_TRY_GOTO(status, gpt_new(&y->end, n, sizeof(*y->end), what, err), fail);
    GPT_TRY_GOTO(status, gpt_new(&y->ready, n, sizeof(*y->ready), what, err),
                 fail);
    GPT_TRY_GOTO(status,
                 gpt_new(&y->is_ready, n, sizeof(*y->is_ready), what, err),
                 fail);
    GPT_TRY_GOTO(status, gpt_new(&y->met, n, sizeof(*y->met), what, err), fail);
    for (int64_t s = 0; s < stages; s++)
        GPT_TRY_GOTO(status,
                     gpt_new(&y->met[s], (size_t)plans[s].n, 1, what, err),
                     fail);
    for (int64_t s = stages - 1; s >= 0; s--)
        wake(y, s);
    return GPT_OK;
fail:
    gpt_play_close(y);
    return status;
}

void gpt_play_close(struct gpt_play *y)
{
    for (int64_t s = 0; y->met && s < y->stages; s++)
        gpt_free(y->met[s]);
    gpt_free(y->met);
    gpt_free(y->at);
    gpt_free(y->end);
    gpt_free(y->ready);
    gpt_free(y->is_ready);
    *y = (struct gpt_play){0};
}

/* Posts the transfers that begin at the stage's next action, as an executor
 * groups them. */
static void post(struct gpt_play *y, int64_t s)
{
    const struct gpt_pipeline_plan *p = &y->plans[s];

    y->end[s] = y->at[s] + gpt_pipeline_plan_group(p->actions + y->at[s],
                                                   p->n - y->at[s]);
}

/* The first transfer of a stage's posted group, sending or receiving, with
 * `peer` that is not done; -1 when there is none. */
static int64_t first_open(const struct gpt_play *y, int64_t s, int64_t peer,
                          bool sends)
{
    const struct gpt_action *a = y->plans[s].actions;

    for (int64_t i = y->at[s]; i < y->end[s]; i++)
        if (!y->met[s][i] && a[i].peer == peer &&
            gpt_action_sends(a[i].kind) == sends)
            return i;
    return -1;
}

/* Ends the posted group of a stage when all of its transfers are done. The
 * stage moves beyond the group only as a whole: no action after the group may
 * run before its last transfer. */
static void leave_if_done(struct gpt_play *y, int64_t s)
{
    for (int64_t i = y->at[s]; i < y->end[s]; i++)
        if (!y->met[s][i])
            return;
    y->at[s] = y->end[s];
    y->end[s] = 0;
    wake(y, s);
}

/* Finds one match for the posted group of stage s. Between two stages messages
 * arrive in order: only the first open transfer of a direction can match. */
static bool match(struct gpt_play *y, int64_t s, struct gpt_play_event *e)
{
    const struct gpt_action *a = y->plans[s].actions;

    for (int64_t i = y->at[s]; i < y->end[s]; i++) {
        if (y->met[s][i])
            continue;
        const bool sends = gpt_action_sends(a[i].kind);
        const int64_t peer = a[i].peer;
        if (first_open(y, s, peer, sends) != i)
            continue; /* an earlier one of the same kind comes first */
        int64_t j = first_open(y, peer, s, !sends);
        if (j < 0 || (peer == s && j == i))
            continue;
        y->met[s][i] = y->met[peer][j] = 1;
        *e = sends ? (struct gpt_play_event){s, i, peer, j}
                   : (struct gpt_play_event){peer, j, s, i};
        leave_if_done(y, peer);
        if (peer != s)
            leave_if_done(y, s);
        return true;
    }
    return false;
}

bool gpt_play_next(struct gpt_play *y, struct gpt_play_event *e)
{
    while (y->n_ready > 0) {
        int64_t s = y->ready[y->n_ready - 1];

        if (y->end[s] == 0 && y->at[s] < y->plans[s].n) {
            if (!is_transfer(&y->plans[s].actions[y->at[s]])) {
                *e = (struct gpt_play_event){s, y->at[s]++, -1, -1};
                return true;
            }
            post(y, s);
        }
        if (y->end[s] != 0 && match(y, s, e))
            return true;
        /* It is the last of the list: only match() wakes others. */
        y->n_ready--;
        y->is_ready[s] = false;
    }
    return false;
}

/* When gpt_play_next() has no more events, a stage that is not at its end waits
 * for a transfer that no stage will ever post: a deadlock. */
int64_t gpt_play_stuck(const struct gpt_play *y)
{
    for (int64_t s = 0; s < y->stages; s++)
        if (y->at[s] < y->plans[s].n)
            return s;
    return -1;
}
