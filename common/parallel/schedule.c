/* Building the list of one stage. A stage computes a fixed order of forwards
 * and backwards; what has to be received before and sent after each follows
 * from it. Between two steps of computing there is one group of transfers: the
 * results of the first go out while the inputs of the second come in. A
 * transfer may block until its other end is posted, so a stage that first sent
 * and then received could wait for a neighbour that does the same; posted as
 * one group they cannot.
 *
 * Backwards run in the order of microbatches on every stage and in every
 * schedule. Gradients are added up in that order, so their bits do not depend
 * on the schedule. Start at build(). */
#include "parallel/schedule.h"

#include "base/memory.h"
#include "base/num.h"

#include <assert.h>

struct builder {
    struct gpt_pipeline_plan *plan;
    int64_t stages, chunks, microbatches, stage;
    int64_t total, warmup; /* forwards of all chunks; those before the first
                            * backward */
    int32_t group;         /* the last one used */
    int32_t *slot_of;      /* by chunk * microbatches + microbatch */
    uint8_t *used;         /* by chunk * microbatches + slot */
    int32_t in_use;
};

const char *gpt_action_name(enum gpt_action_kind kind)
{
    static const char *const names[GPT_N_ACTIONS] = {
        [GPT_ACT_FORWARD] = "forward",
        [GPT_ACT_BACKWARD] = "backward",
        [GPT_ACT_SEND_FORWARD] = "send-forward",
        [GPT_ACT_RECV_FORWARD] = "recv-forward",
        [GPT_ACT_SEND_BACKWARD] = "send-backward",
        [GPT_ACT_RECV_BACKWARD] = "recv-backward",
    };

    return names[kind];
}

bool gpt_action_sends(enum gpt_action_kind kind)
{
    return kind == GPT_ACT_SEND_FORWARD || kind == GPT_ACT_SEND_BACKWARD;
}

bool gpt_action_receives(enum gpt_action_kind kind)
{
    return kind == GPT_ACT_RECV_FORWARD || kind == GPT_ACT_RECV_BACKWARD;
}

/* ---- order ---- */

struct unit { /* one forward or backward */
    int32_t microbatch, chunk;
};

/* The k-th forward (backward) of a stage. Interleaved: `stages` microbatches
 * go through chunk 0, the same ones through chunk 1, and so on; backwards begin
 * with the last chunk. With groups of just `stages` the first microbatch comes
 * back from the last stage when the first stage has finished the group. */
static struct unit unit_at(const struct builder *b, int64_t k, bool forward)
{
    int64_t group = b->chunks > 1 ? b->stages : b->microbatches;
    int64_t round = k / (group * b->chunks), chunk = k / group % b->chunks;

    return (struct unit){
        .microbatch = (int32_t)(round * group + k % group),
        .chunk = (int32_t)(forward ? chunk : b->chunks - 1 - chunk),
    };
}

/* Forwards before the first backward: enough for the stages after this one to
 * have work, and not more, since each keeps its activations. */
static int64_t warmup_of(const struct builder *b)
{
    int64_t later = b->stages - 1 - b->stage;

    if (b->plan->forward_only)
        return b->total;
    if (b->chunks > 1)
        later = later * 2 + (b->chunks - 1) * b->stages;
    return gpt_min_i64(later, b->total);
}

/* ---- slots ----
 *
 * A slot holds a microbatch from the receipt of its input (or its forward, on
 * the first stage) to its backward. The lowest free one is taken, so the
 * highest number ever used is the number of slots that a chunk needs: memory
 * follows from the list. */

static int32_t slot_take(struct builder *b, struct unit u)
{
    uint8_t *used = b->used + u.chunk * b->microbatches;
    int32_t s = 0;

    while (used[s])
        s++;
    assert(s < b->microbatches);
    used[s] = 1;
    b->slot_of[u.chunk * b->microbatches + u.microbatch] = s;
    if (b->plan->slots[u.chunk] < s + 1)
        b->plan->slots[u.chunk] = s + 1;
    b->in_use++;
    if (b->plan->live < b->in_use)
        b->plan->live = b->in_use;
    return s;
}

static int32_t slot_of(const struct builder *b, struct unit u)
{
    return b->slot_of[u.chunk * b->microbatches + u.microbatch];
}

/* slot_of() keeps its answer: the send after a backward still names the slot,
 * whose memory it does not use. */
static void slot_release(struct builder *b, struct unit u)
{
    b->used[u.chunk * b->microbatches + slot_of(b, u)] = 0;
    b->in_use--;
}

/* ---- actions ---- */

static struct gpt_action *emit(struct builder *b, enum gpt_action_kind kind,
                               struct unit u, int32_t slot)
{
    struct gpt_action *a = &b->plan->actions[b->plan->n++];

    *a = (struct gpt_action){.kind = kind,
                             .microbatch = u.microbatch,
                             .chunk = u.chunk,
                             .slot = slot,
                             .peer = -1};
    return a;
}

/* The stage before (step -1) or after (+1) this one on a microbatch's way
 * through all chunks of all stages, or -1 at the ends of that way. The way
 * leads from the last stage to the first one again, one chunk further. */
static int32_t neighbour(const struct builder *b, struct unit u, int step)
{
    int64_t at = u.chunk * b->stages + b->stage + step;

    if (at < 0 || at >= b->stages * b->chunks)
        return -1;
    return (int32_t)(at % b->stages);
}

/* The receipt of an input is the first use of a slot. All other transfers come
 * after it and find the slot that it took. */
static void transfer(struct builder *b, enum gpt_action_kind kind,
                     struct unit u, int step)
{
    int32_t peer = neighbour(b, u, step);

    if (peer < 0)
        return;
    int32_t slot =
        kind == GPT_ACT_RECV_FORWARD ? slot_take(b, u) : slot_of(b, u);
    struct gpt_action *a = emit(b, kind, u, slot);
    a->peer = peer;
    a->group = b->group;
}

/* Where nothing is received, the forward itself takes the slot. Without
 * backwards nothing is kept, so the slot is free at once. */
static void forward(struct builder *b, struct unit u)
{
    bool received = neighbour(b, u, -1) >= 0;

    emit(b, GPT_ACT_FORWARD, u, received ? slot_of(b, u) : slot_take(b, u));
    if (b->plan->forward_only)
        slot_release(b, u);
}

static void backward(struct builder *b, struct unit u)
{
    struct gpt_action *a = emit(b, GPT_ACT_BACKWARD, u, slot_of(b, u));

    slot_release(b, u);
    a->last = u.microbatch == b->microbatches - 1; /* they run in order */
}

/* ---- the schedule ---- */

/* What is computed between two exchanges: a forward, a backward, or one of
 * each; -1 is none. */
struct step {
    int64_t f, g;
};

/* 1F1B exchanges between a forward and a backward. Interleaved, the pair is one
 * step: the next stage needs the forward's result only a pair later. */
static struct step step_at(const struct builder *b, int64_t s)
{
    const int64_t pairs = b->total - b->warmup;

    if (s < b->warmup)
        return (struct step){s, -1};
    s -= b->warmup;
    if (b->chunks > 1) {
        if (s < pairs)
            return (struct step){b->warmup + s, s};
        return (struct step){-1, s};
    }
    if (s < 2 * pairs)
        return s % 2 == 0 ? (struct step){b->warmup + s / 2, -1}
                          : (struct step){-1, s / 2};
    return (struct step){-1, s - pairs};
}

static int64_t steps_of(const struct builder *b)
{
    if (b->plan->forward_only)
        return b->total;
    return b->chunks > 1 ? b->total + b->warmup : 2 * b->total;
}

/* One group of transfers: the results of one step and the inputs of the next.
 * Both ends list forwards before backwards. With two interleaved stages both
 * kinds go to the same peer, and only the order of messages tells them
 * apart. */
static void exchange(struct builder *b, struct step done, struct step next)
{
    b->group++;
    if (done.f >= 0)
        transfer(b, GPT_ACT_SEND_FORWARD, unit_at(b, done.f, true), +1);
    if (next.f >= 0)
        transfer(b, GPT_ACT_RECV_FORWARD, unit_at(b, next.f, true), -1);
    if (done.g >= 0)
        transfer(b, GPT_ACT_SEND_BACKWARD, unit_at(b, done.g, false), -1);
    if (next.g >= 0)
        transfer(b, GPT_ACT_RECV_BACKWARD, unit_at(b, next.g, false), +1);
}

/* The first group only receives and the last one only sends. All stages go
 * through the forwards in one order, and through the backwards in one order;
 * only the number of forwards before the first backward differs. So the n-th
 * send of a kind meets the n-th receipt of that kind. */
static void build(struct builder *b)
{
    const struct step none = {-1, -1};
    struct step done = none;

    for (int64_t s = 0; s < steps_of(b); s++) {
        struct step next = step_at(b, s);

        exchange(b, done, next);
        if (next.f >= 0)
            forward(b, unit_at(b, next.f, true));
        if (next.g >= 0)
            backward(b, unit_at(b, next.g, false));
        done = next;
    }
    exchange(b, done, none);
}

static int check(int64_t stages, int64_t chunks, int64_t microbatches,
                 int64_t stage, struct gpt_err *err)
{
    if (stages < 1 || stages > GPT_MAX_STAGES || chunks < 1 ||
        chunks > GPT_MAX_CHUNKS || stage < 0 || stage >= stages)
        return gpt_fail(err, GPT_EUSAGE,
                        "pipeline stage %lld of %lld with %lld chunks: limits "
                        "are %d stages and %d chunks",
                        (long long)stage, (long long)stages, (long long)chunks,
                        GPT_MAX_STAGES, GPT_MAX_CHUNKS);
    if (microbatches < 1 || microbatches > INT32_MAX / (8 * chunks))
        return gpt_fail(
            err, GPT_EUSAGE, "a step has %lld microbatches, must have 1 to "
            "%lld",
            (long long)microbatches, (long long)(INT32_MAX / (8 * chunks)));
    if (chunks > 1 && stages < 2)
        return gpt_fail(err, GPT_EUSAGE,
                        "an interleaved schedule needs at least 2 pipeline "
                        "stages");
    if (chunks > 1 && microbatches % stages != 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld microbatches are not a multiple of %lld pipeline "
                        "stages, as the interleaved schedule needs",
                        (long long)microbatches, (long long)stages);
    return GPT_OK;
}

static int build_plan(struct gpt_pipeline_plan *p, bool forward_only,
                      int64_t stages, int64_t chunks, int64_t microbatches,
                      int64_t stage, struct gpt_err *err)
{
    struct builder b = {.plan = p,
                        .stages = stages,
                        .chunks = chunks,
                        .microbatches = microbatches,
                        .stage = stage};
    int status;

    *p = (struct gpt_pipeline_plan){.forward_only = forward_only};
    GPT_TRY(check(stages, chunks, microbatches, stage, err));
    b.total = microbatches * chunks;
    b.warmup = warmup_of(&b);
    /* a forward and a backward with two transfers each */
    size_t most = (size_t)(6 * b.total);
    GPT_TRY_GOTO(status,
                 gpt_new(&p->actions, most, sizeof(*p->actions),
                         "a pipeline schedule", err),
                 out);
    GPT_TRY_GOTO(status,
                 gpt_new(&b.slot_of, (size_t)b.total, sizeof(*b.slot_of),
                         "slots of a pipeline schedule", err),
                 out);
    GPT_TRY_GOTO(status,
                 gpt_new(&b.used, (size_t)b.total, 1,
                         "slots of a pipeline schedule", err),
                 out);
    build(&b);
    assert(p->n <= 6 * b.total);
    assert(forward_only || b.in_use == 0);
out:
    gpt_free(b.slot_of);
    gpt_free(b.used);
    if (status != GPT_OK)
        gpt_pipeline_plan_free(p);
    return status;
}

int gpt_pipeline_plan_build(struct gpt_pipeline_plan *p, int64_t stages,
                            int64_t chunks, int64_t microbatches, int64_t stage,
                            struct gpt_err *err)
{
    return build_plan(p, false, stages, chunks, microbatches, stage, err);
}

int gpt_pipeline_plan_build_forward(struct gpt_pipeline_plan *p, int64_t stages,
                                    int64_t chunks, int64_t microbatches,
                                    int64_t stage, struct gpt_err *err)
{
    return build_plan(p, true, stages, chunks, microbatches, stage, err);
}

/* A transfer of group 0 is posted alone. */
int64_t gpt_pipeline_plan_group(const struct gpt_action *actions, int64_t n)
{
    int64_t k = 0;

    while (k < n && k < GPT_GROUP_ACTIONS && actions[k].peer >= 0 &&
           (k == 0 || (actions[k].group == actions[0].group &&
                       actions[0].group != 0)))
        k++;
    return k;
}

void gpt_pipeline_plan_free(struct gpt_pipeline_plan *p)
{
    gpt_free(p->actions);
    *p = (struct gpt_pipeline_plan){0};
}
