/* From prompts to texts; see generate.h. Start at gpt_generate(): begin
 * requests while slots are free, then one step for all texts under way. */
#include "generate/generate.h"

#include "base/memory.h"
#include "base/signals.h"

/* A walk over requests; those that were refused have no prompt. */
struct queue {
    const struct gpt_request *requests;
    int64_t n, begun;
    int64_t *names; /* (n): their numbers */
};

/* All free slots are filled before the next step, since a step costs much the
 * same for one text as for many, and so does a pass of several prompts. */
static int fill_batch(struct gpt_batch *batch, struct queue *q,
                      struct gpt_err *err)
{
    int64_t n = gpt_batch_room(batch);

    for (int64_t i = 0; i < n; i++)
        if (q->begun + i >= q->n || q->requests[q->begun + i].n_prompt == 0)
            n = i;
    if (n == 0)
        return GPT_OK;
    q->begun += n;
    return gpt_batch_begin(batch, q->requests + q->begun - n,
                           q->names + q->begun - n, n, err);
}

static int answer_all(struct gpt_batch *batch, struct queue *q,
                      const struct gpt_sink *sink, struct gpt_err *err)
{
    while (!gpt_signals_stop() &&
           (q->begun < q->n || gpt_batch_texts(batch) > 0)) {
        if (q->begun < q->n && q->requests[q->begun].n_prompt == 0)
            GPT_TRY(
                sink->finish(sink->user, q->begun++, GPT_FINISH_REFUSED, err));
        else if (q->begun < q->n && gpt_batch_room(batch) > 0)
            GPT_TRY(fill_batch(batch, q, err));
        else
            GPT_TRY(gpt_batch_step(batch, err));
    }
    return gpt_batch_stop(batch, err);
}

int gpt_generate(struct gpt_decoder *d, const struct gpt_request *requests,
                 int64_t n, int64_t guesses, const struct gpt_sink *sink,
                 struct gpt_speed *speed, struct gpt_err *err)
{
    struct queue q = {.requests = requests, .n = n};
    struct gpt_batch *batch = NULL;
    int status;

    *speed = (struct gpt_speed){0};
    GPT_TRY(gpt_requests_check(d, requests, n, err));
    GPT_TRY(gpt_new(&q.names, (size_t)n, sizeof(*q.names), "requests", err));
    for (int64_t i = 0; i < n; i++)
        q.names[i] = i;
    GPT_TRY_GOTO(status,
                 gpt_batch_open(&batch, d, gpt_decoder_shape(d)->slots, sink,
                                err),
                 out);
    GPT_TRY_GOTO(status, gpt_batch_guess(batch, guesses, err), out);
    status = answer_all(batch, &q, sink, err);
    *speed = *gpt_batch_speed(batch);
out:
    gpt_batch_close(batch);
    gpt_free(q.names);
    return status;
}
