/* The checker: keeps for every buffer of every stage what it holds, action
 * by action, as schedule.h describes the executor. The plans are played
 * under the strictest rule that a transport may have (schedule_play.h); a
 * plan that passes cannot deadlock under a laxer one. Start at
 * plan_check(). */
#ifndef GPT_TESTS_SCHEDULE_CHECK_H
#define GPT_TESTS_SCHEDULE_CHECK_H

#include "parallel/schedule_play.h"

#include "base/memory.h"

enum { NOTHING = -1 };

/* A slot is received before its forward and kept until its backward. A first
 * stage has nothing to receive, so its forward takes a free slot. */
enum slot_state { SLOT_FREE, SLOT_RECEIVED, SLOT_KEPT };

struct slot {
    enum slot_state state;
    int32_t microbatch;
};

/* A stage; buffers hold microbatch + microbatches * chunk, or NOTHING. */
struct holder {
    struct slot *slots; /* by chunk * microbatches + slot */
    uint8_t *forward;   /* by chunk * microbatches + microbatch: done */
    int32_t output;     /* of the last forward, to be sent */
    int32_t gradient;   /* received */
    int32_t made;       /* by the last backward, to be sent */
    int32_t backwards[GPT_MAX_CHUNKS];
};

struct checker {
    const struct gpt_pipeline_plan *plans;
    int64_t stages, chunks, microbatches;
    struct holder *holders;
    struct gpt_err *err;
};

static int wrong(struct checker *c, int64_t s, int64_t i, const char *why)
{
    const struct gpt_action *a = &c->plans[s].actions[i];

    return gpt_fail(c->err, GPT_EFAIL,
                    "stage %lld, action %lld, %s of microbatch %d, chunk %d, "
                    "slot %d: %s",
                    (long long)s, (long long)i, gpt_action_name(a->kind),
                    (int)a->microbatch, (int)a->chunk, (int)a->slot, why);
}

/* Checks that the numbers of an action are within their ranges: everything
 * after this uses them as indices. */
static int check_fields(struct checker *c, int64_t s, int64_t i)
{
    const struct gpt_action *a = &c->plans[s].actions[i];
    const bool moves =
        gpt_action_sends(a->kind) || gpt_action_receives(a->kind);

    if ((unsigned)a->kind >= GPT_N_ACTIONS)
        return gpt_fail(c->err, GPT_EFAIL,
                        "stage %lld, action %lld: unknown kind %d",
                        (long long)s, (long long)i, (int)a->kind);
    if (a->chunk < 0 || a->chunk >= c->chunks)
        return wrong(c, s, i, "no such chunk");
    if (moves && (a->peer < 0 || a->peer >= c->stages))
        return wrong(c, s, i, "its peer is no stage");
    if (a->microbatch < 0 || a->microbatch >= c->microbatches)
        return wrong(c, s, i, "no such microbatch");
    if (a->slot < 0 || a->slot >= c->plans[s].slots[a->chunk] ||
        a->slot >= c->microbatches)
        return wrong(c, s, i, "no such slot");
    return GPT_OK;
}

/* The place of a chunk on a microbatch's way: chunk 0 of all stages in turn,
 * then chunk 1 of all stages, and so on. */
static int64_t place(const struct checker *c, int64_t s, int32_t chunk)
{
    return chunk * c->stages + s;
}

/* The end of the way: the output is the loss, and nothing is sent. */
static bool is_end(const struct checker *c, int64_t s, int32_t chunk)
{
    return place(c, s, chunk) == c->stages * c->chunks - 1;
}

static int32_t unit_of(const struct checker *c, const struct gpt_action *a)
{
    return (int32_t)(a->microbatch + c->microbatches * a->chunk);
}

static struct slot *slot_of(struct checker *c, int64_t s,
                            const struct gpt_action *a)
{
    return &c->holders[s].slots[a->chunk * c->microbatches + a->slot];
}

/* ---- computing ---- */

/* A result that is not the loss occupies the one output buffer until its
 * transfer. A second forward before that would overwrite what the next stage
 * still needs. */
static int check_forward(struct checker *c, int64_t s, int64_t i)
{
    const struct gpt_action *a = &c->plans[s].actions[i];
    struct holder *h = &c->holders[s];
    struct slot *slot = slot_of(c, s, a);

    if (h->forward[unit_of(c, a)])
        return wrong(c, s, i, "it ran before");
    if (place(c, s, a->chunk) == 0) {
        if (slot->state != SLOT_FREE)
            return wrong(c, s, i, "its slot is in use");
    } else if (slot->state != SLOT_RECEIVED ||
               slot->microbatch != a->microbatch) {
        return wrong(c, s, i, "its input is not there");
    }
    if (!is_end(c, s, a->chunk)) {
        if (h->output != NOTHING)
            return wrong(c, s, i, "the output before it was not sent");
        h->output = unit_of(c, a);
    }
    h->forward[unit_of(c, a)] = 1;
    *slot = (struct slot){
        c->plans[s].forward_only ? SLOT_FREE : SLOT_KEPT, a->microbatch};
    return GPT_OK;
}

/* The gradient that was received is consumed by this backward, and the gradient
 * that this backward makes occupies its own buffer until the transfer. */
static int check_backward(struct checker *c, int64_t s, int64_t i)
{
    const struct gpt_action *a = &c->plans[s].actions[i];
    struct holder *h = &c->holders[s];
    struct slot *slot = slot_of(c, s, a);

    if (slot->state != SLOT_KEPT || slot->microbatch != a->microbatch)
        return wrong(c, s, i, "its activations are not there");
    /* the sum of gradients is a sum of floats: its order is part of a result */
    if (a->microbatch != h->backwards[a->chunk])
        return wrong(c, s, i, "gradients would be summed in another order");
    if (!is_end(c, s, a->chunk)) {
        if (h->gradient != unit_of(c, a))
            return wrong(c, s, i, "its gradient is not there");
        h->gradient = NOTHING;
    }
    if (place(c, s, a->chunk) > 0) {
        if (h->made != NOTHING)
            return wrong(c, s, i, "the gradient before it was not sent");
        h->made = unit_of(c, a);
    }
    h->backwards[a->chunk]++;
    if (a->last != (h->backwards[a->chunk] == c->microbatches))
        return wrong(c, s, i, "it is wrongly marked as last or not");
    *slot = (struct slot){SLOT_FREE, NOTHING};
    return GPT_OK;
}

/* ---- transfers ---- */

/* The buffer is free when the transfer is matched, not when the send is posted:
 * the transport may read the buffer until then. */
static int check_send(struct checker *c, int64_t s, int64_t i)
{
    const struct gpt_action *a = &c->plans[s].actions[i];
    struct holder *h = &c->holders[s];
    int32_t *buffer = a->kind == GPT_ACT_SEND_FORWARD ? &h->output : &h->made;

    if (*buffer != unit_of(c, a))
        return wrong(c, s, i, "the buffer holds something else");
    *buffer = NOTHING;
    return GPT_OK;
}

/* An input may come into any free slot; a gradient has one buffer, which the
 * backward before must have used. */
static int check_receive(struct checker *c, int64_t s, int64_t i)
{
    const struct gpt_action *a = &c->plans[s].actions[i];
    struct holder *h = &c->holders[s];

    if (a->kind == GPT_ACT_RECV_FORWARD) {
        struct slot *slot = slot_of(c, s, a);

        if (slot->state != SLOT_FREE)
            return wrong(c, s, i, "its slot is in use");
        *slot = (struct slot){SLOT_RECEIVED, a->microbatch};
        return GPT_OK;
    }
    if (h->gradient != NOTHING)
        return wrong(c, s, i, "the gradient before it was not used");
    h->gradient = unit_of(c, a);
    return GPT_OK;
}

/* Checks that both ends mean the same microbatch, and are neighbours on its
 * way. The transport pairs messages by their order and does not know what they
 * are: without this check a wrong order would compute with another microbatch's
 * data. The last stage's neighbour on the way is the first stage, one chunk
 * further. */
static int check_transfer(struct checker *c, const struct gpt_play_event *e)
{
    const struct gpt_action *a = &c->plans[e->stage].actions[e->action];
    const struct gpt_action *b = &c->plans[e->to].actions[e->receive];
    const bool forward = a->kind == GPT_ACT_SEND_FORWARD;
    const int64_t from = place(c, e->stage, a->chunk);

    if ((b->kind == GPT_ACT_RECV_FORWARD) != forward ||
        a->microbatch != b->microbatch ||
        place(c, e->to, b->chunk) != from + (forward ? 1 : -1)) {
        return gpt_fail(c->err, GPT_EFAIL,
                        "stage %lld, action %lld, %s of microbatch %d, chunk "
                        "%d, meets %s of microbatch %d, chunk %d of stage %lld",
                        (long long)e->to, (long long)e->receive,
                        gpt_action_name(b->kind), (int)b->microbatch,
                        (int)b->chunk, gpt_action_name(a->kind),
                        (int)a->microbatch, (int)a->chunk, (long long)e->stage);
    }
    GPT_TRY(check_send(c, e->stage, e->action));
    return check_receive(c, e->to, e->receive);
}

static int check_event(struct checker *c, const struct gpt_play_event *e)
{
    if (e->to >= 0)
        return check_transfer(c, e);
    if (c->plans[e->stage].actions[e->action].kind == GPT_ACT_FORWARD)
        return check_forward(c, e->stage, e->action);
    return check_backward(c, e->stage, e->action);
}

/* ---- the whole ---- */

/* Backwards run in order, so their count says which ones ran; forwards are
 * marked one by one. */
static int check_end(struct checker *c)
{
    for (int64_t s = 0; s < c->stages; s++) {
        const struct holder *h = &c->holders[s];

        for (int64_t u = 0; u < c->chunks * c->microbatches; u++)
            if (!h->forward[u])
                return gpt_fail(c->err, GPT_EFAIL,
                                "stage %lld: microbatch %lld never went "
                                "through chunk %lld", (long long)s,
                                (long long)(u % c->microbatches),
                                (long long)(u / c->microbatches));
        for (int64_t v = 0; v < c->chunks; v++)
            if (!c->plans[s].forward_only &&
                h->backwards[v] != c->microbatches)
                return gpt_fail(c->err, GPT_EFAIL,
                                "stage %lld, chunk %lld: %d of %lld backwards",
                                (long long)s, (long long)v,
                                (int)h->backwards[v],
                                (long long)c->microbatches);
        if (h->output != NOTHING || h->made != NOTHING ||
            h->gradient != NOTHING)
            return gpt_fail(c->err, GPT_EFAIL,
                            "stage %lld ends with a result that was not sent "
                            "or used",
                            (long long)s);
    }
    return GPT_OK;
}

static int holders_open(struct checker *c)
{
    const size_t units = (size_t)(c->chunks * c->microbatches);
    const char *what = "the check of a pipeline schedule";

    GPT_TRY(gpt_new(&c->holders, (size_t)c->stages, sizeof(*c->holders), what,
                    c->err));
    for (int64_t s = 0; s < c->stages; s++) {
        struct holder *h = &c->holders[s];

        h->output = h->gradient = h->made = NOTHING;
        GPT_TRY(gpt_new(&h->slots, units, sizeof(*h->slots), what, c->err));
        GPT_TRY(gpt_new(&h->forward, units, 1, what, c->err));
    }
    return GPT_OK;
}

static void holders_close(struct checker *c)
{
    for (int64_t s = 0; c->holders && s < c->stages; s++) {
        gpt_free(c->holders[s].slots);
        gpt_free(c->holders[s].forward);
    }
    gpt_free(c->holders);
}

/* A stage that waits for ever is reported only when no event failed: after a
 * failure all other stages are left in the middle of their plans. */
static int play(struct checker *c)
{
    struct gpt_play y;
    struct gpt_play_event e;
    int status = GPT_OK;

    GPT_TRY(gpt_play_open(&y, c->plans, c->stages, c->err));
    while (status == GPT_OK && gpt_play_next(&y, &e))
        status = check_event(c, &e);
    int64_t stuck = gpt_play_stuck(&y);
    if (status == GPT_OK && stuck >= 0)
        status = wrong(c, stuck, y.at[stuck], "waits for ever");
    gpt_play_close(&y);
    return status == GPT_OK ? check_end(c) : status;
}

/* Plays the plans of all stages against each other, every send waiting for its
 * receive. Checks that every receive meets its send in order, nothing is used
 * before it is there or overwritten before it is used, every microbatch runs
 * forward (and, unless the plans are forward only, backward) once, and no stage
 * waits for ever. GPT_EFAIL names stage, action and reason. */
static int plan_check(const struct gpt_pipeline_plan *plans, int64_t stages,
                      int64_t chunks, int64_t microbatches,
                      struct gpt_err *err)
{
    struct checker c = {plans, stages, chunks, microbatches, NULL, err};
    int status;

    for (int64_t s = 0; s < stages; s++)
        for (int64_t i = 0; i < plans[s].n; i++)
            GPT_TRY(check_fields(&c, s, i));
    status = holders_open(&c);
    if (status == GPT_OK)
        status = play(&c);
    holders_close(&c);
    return status;
}

#endif
