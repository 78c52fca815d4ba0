/* Running a schedule; see pipeline.h. The list of actions says everything:
 * which slot, which peer, what is exchanged together. This file knows nothing
 * of 1F1B or of interleaving, and a test (tests/unit/schedule_check.h) has
 * proved that the order cannot deadlock. Start at run_plan(). */
#include "train/pipeline.h"

#include "base/clock.h"
#include "base/memory.h"

#include <assert.h>
#include <string.h>

struct gpt_pipeline {
    struct gpt_pipeline_options o;
    struct gpt_backend *be;
    struct gpt_pipeline_plan train, eval; /* n = 0: not made yet */
    int64_t train_n, eval_n;     /* microbatches that they are for */

    void *received;    /* device: gradient of the output */
    const void *output; /* of the last forward */
    const void *made;   /* by the last backward, for the stage before */
    struct gpt_pipeline_watch watch;
    double computing, waiting, forward, backward;
};

/* The arguments of gpt_pipeline_run(). */
struct work {
    struct gpt_queue *q;
    struct gpt_feed *feed;
    enum gpt_stage_mode mode;
};

int64_t gpt_pipeline_memory(int64_t stages, int64_t message)
{
    return stages > 1 ? message : 0;
}

int gpt_pipeline_open(struct gpt_pipeline **out, struct gpt_backend *be,
                      const struct gpt_pipeline_options *options,
                      struct gpt_err *err)
{
    struct gpt_pipeline *p;
    int64_t bytes;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&p, 1, sizeof(*p), "the pipeline", err));
    p->o = *options;
    p->be = be;
    bytes = gpt_pipeline_memory(p->o.stages,
                                (int64_t)gpt_stage_bytes(p->o.stage));
    if (bytes > 0)
        GPT_TRY_GOTO(status,
                     be->alloc(be, (size_t)bytes, "the pipeline", &p->received,
                               err),
                     fail);
    *out = p;
    return GPT_OK;
fail:
    gpt_pipeline_close(p);
    return status;
}

void gpt_pipeline_close(struct gpt_pipeline *p)
{
    if (!p)
        return;
    if (p->received)
        p->be->free(p->be, p->received);
    gpt_pipeline_plan_free(&p->train);
    gpt_pipeline_plan_free(&p->eval);
    gpt_free(p);
}

void gpt_pipeline_watch(struct gpt_pipeline *p,
                        const struct gpt_pipeline_watch *watch)
{
    p->watch = *watch;
}

/* ---- actions ---- */

/* The microbatch that a stage computes, for the watch: the stage itself knows
 * no microbatches by number. */
struct watched {
    const struct gpt_pipeline *p;
    int64_t microbatch;
};

static void pass_rows(void *context, const struct gpt_logit_rows *rows)
{
    const struct watched *w = context;

    w->p->watch.rows(w->p->watch.context, w->microbatch, rows);
}

/* The output belongs to the stage. It is remembered for the send that follows,
 * which comes before the next forward. */
static void forward(struct gpt_pipeline *p, const struct work *w,
                    const struct gpt_action *a)
{
    struct watched watched = {p, a->microbatch};
    const struct gpt_stage_result result = {
        .loss = gpt_feed_losses(w->feed, a->microbatch),
        .rows = p->watch.rows ? pass_rows : NULL,
        .context = &watched,
    };

    p->output = gpt_stage_forward(
        p->o.stage, w->q, a->chunk, a->slot, w->mode,
        gpt_feed_microbatch(w->feed, a->microbatch),
        gpt_stage_input(p->o.stage, a->chunk, a->slot), &result);
}

/* Computes a backward pass. The last stage receives no gradient: its gradient
 * is that of the loss. */
static void backward(struct gpt_pipeline *p, const struct work *w,
                     const struct gpt_action *a)
{
    const bool end = p->o.stage_index == p->o.stages - 1 &&
                     a->chunk == p->o.chunks - 1;

    gpt_reducer_begin_backward(p->o.reducer, a->last);
    p->made = gpt_stage_backward(p->o.stage, w->q, a->chunk, a->slot,
                                 end ? NULL : p->received);
}

/* The buffer of a transfer. One buffer each for the last output, the gradient
 * received and the gradient made is enough: the checker proves that each is
 * sent or used before it is written again. What is sent is only read. */
static void *buffer_of(const struct gpt_pipeline *p, const struct gpt_action *a)
{
    const void *from = NULL;
    void *buf;

    switch (a->kind) {
    case GPT_ACT_SEND_FORWARD:
        from = p->output;
        break;
    case GPT_ACT_RECV_FORWARD:
        return gpt_stage_input(p->o.stage, a->chunk, a->slot);
    case GPT_ACT_SEND_BACKWARD:
        from = p->made;
        break;
    default:
        return p->received;
    }
    memcpy(&buf, &from, sizeof(buf));
    return buf;
}

int64_t gpt_pipeline_transfers(const struct gpt_action *actions, int64_t n,
                               int64_t message,
                               struct gpt_transfer list[GPT_GROUP_ACTIONS])
{
    const int64_t together = gpt_pipeline_plan_group(actions, n);

    for (int64_t k = 0; k < together; k++)
        list[k] = (struct gpt_transfer){
            .send = gpt_action_sends(actions[k].kind),
            .peer = actions[k].peer,
            .bytes = message,
        };
    return together;
}

/* The same with the memory of this stage. */
static int64_t list_group(const struct gpt_pipeline *p,
                          const struct gpt_action *actions, int64_t n,
                          struct gpt_transfer *list)
{
    const int64_t message = (int64_t)gpt_stage_bytes(p->o.stage);
    const int64_t together = gpt_pipeline_transfers(actions, n, message, list);

    for (int64_t k = 0; k < together; k++)
        list[k].buf = buffer_of(p, &actions[k]);
    return together;
}

/* Exchanges a group. Through Gloo the exchange would wait for the queue anyway,
 * which still computes; it is waited for before the clock starts, so that
 * `waiting` is time spent for neighbours and not for this stage's own work. A
 * failure anywhere in the world ends the run here, between two exchanges. */
static int exchange(struct gpt_pipeline *p, const struct work *w,
                    const struct gpt_transfer *list, int64_t n,
                    struct gpt_err *err)
{
    struct gpt_comm *comm = p->o.world->comm[GPT_GROUP_PP];

    assert(gpt_comm_rank(comm) == p->o.stage_index);
    if (gpt_comm_waits(comm))
        GPT_TRY(p->be->sync(w->q, err));
    const double begun = gpt_now();
    gpt_comm_exchange(comm, w->q, list, n);
    p->waiting += gpt_now() - begun;
    return gpt_world_check(p->o.world, err);
}

/* All groups of one stage are exchanged in the order of its plan, and the plans
 * of all stages are made from one rule; so each rank knows what its neighbours
 * post without a message. */
static int run_plan(struct gpt_pipeline *p,
                    const struct gpt_pipeline_plan *plan, const struct work *w,
                    struct gpt_err *err)
{
    struct gpt_transfer list[GPT_GROUP_ACTIONS];
    int64_t step;

    for (int64_t i = 0; i < plan->n; i += step) {
        const struct gpt_action *a = &plan->actions[i];
        const double begun = gpt_now();

        step = 1;
        switch (a->kind) {
        case GPT_ACT_FORWARD:
            forward(p, w, a);
            p->forward += gpt_now() - begun;
            break;
        case GPT_ACT_BACKWARD:
            backward(p, w, a);
            p->backward += gpt_now() - begun;
            break;
        default:
            step = list_group(p, a, plan->n - i, list);
            GPT_TRY(exchange(p, w, list, step, err));
        }
    }
    return GPT_OK;
}

/* ---- the schedule ---- */

/* The stage has slots for the largest step, and smaller ones need no more: a
 * failure here is a wrong prediction, not a user's mistake. */
static int check_slots(const struct gpt_pipeline *p,
                       const struct gpt_pipeline_plan *plan,
                       struct gpt_err *err)
{
    for (int64_t i = 0; i < p->o.chunks; i++)
        if (plan->slots[i] > p->o.slots[i])
            return gpt_fail(err, GPT_EFAIL,
                            "the schedule needs %d microbatches in flight, "
                            "there is memory for %d",
                            (int)plan->slots[i], (int)p->o.slots[i]);
    return GPT_OK;
}

/* The plan is kept while the number of microbatches is the same, which is
 * nearly always. After a failure no plan counts as valid. */
static int make_plan(struct gpt_pipeline *p, bool eval, int64_t n,
                     struct gpt_err *err)
{
    struct gpt_pipeline_plan *plan = eval ? &p->eval : &p->train;
    int64_t *made_for = eval ? &p->eval_n : &p->train_n;

    if (*made_for == n)
        return GPT_OK;
    gpt_pipeline_plan_free(plan);
    *made_for = 0;
    GPT_TRY((eval ? gpt_pipeline_plan_build_forward : gpt_pipeline_plan_build)(
        plan, p->o.stages, p->o.chunks, n, p->o.stage_index, err));
    GPT_TRY(check_slots(p, plan, err));
    *made_for = n;
    return GPT_OK;
}

int gpt_pipeline_run(struct gpt_pipeline *p, struct gpt_queue *q,
                     struct gpt_feed *feed, int64_t n,
                     enum gpt_stage_mode mode, struct gpt_err *err)
{
    const struct work work = {.q = q, .feed = feed, .mode = mode};
    const bool eval = mode == GPT_STAGE_EVAL;

    GPT_TRY(make_plan(p, eval, n, err));
    const double begun = gpt_now();
    p->waiting = p->forward = p->backward = 0;
    int status = run_plan(p, eval ? &p->eval : &p->train, &work, err);
    p->computing = gpt_now() - begun - p->waiting;
    return status;
}

void gpt_pipeline_times(const struct gpt_pipeline *p, double *computing,
                        double *waiting)
{
    *computing = p->computing;
    *waiting = p->waiting;
}

void gpt_pipeline_passes(const struct gpt_pipeline *p, double *forward_seconds,
                         double *backward_seconds)
{
    *forward_seconds = p->forward;
    *backward_seconds = p->backward;
}
