/* From prompts to texts; see generate.h. Start at gpt_generate(): begin
 * requests while slots are free, then one step for all texts under way. */
#include "generate/generate.h"

#include "base/signals.h"

/* A free slot is filled before the next step, since a step costs much the same
 * for one text as for many. */
static int answer_all(struct gpt_batch *batch,
                      const struct gpt_request *requests, int64_t n,
                      const struct gpt_sink *sink, struct gpt_err *err)
{
    int64_t begun = 0;

    while (!gpt_signals_stop() && (begun < n || gpt_batch_texts(batch) > 0)) {
        if (begun < n && requests[begun].n_prompt == 0) {
            GPT_TRY(sink->finish(sink->user, begun++, GPT_FINISH_REFUSED, err));
        } else if (begun < n && !gpt_batch_full(batch)) {
            GPT_TRY(gpt_batch_begin(batch, &requests[begun], begun, err));
            begun++;
        } else {
            GPT_TRY(gpt_batch_step(batch, err));
        }
    }
    return gpt_batch_end(batch, GPT_FINISH_STOPPED, err);
}

/* Before anything is generated: a long prompt among many must not be found
 * after an hour of texts. */
static int check_prompts(const struct gpt_decoder *d,
                         const struct gpt_request *requests, int64_t n,
                         struct gpt_err *err)
{
    const int64_t positions = gpt_decoder_shape(d)->positions;

    for (int64_t i = 0; i < n; i++)
        if (requests[i].n_prompt > positions)
            return gpt_fail(err, GPT_EDATA,
                            "prompt %llu has %lld tokens, but there are only "
                            "%lld positions",
                            (unsigned long long)requests[i].number + 1,
                            (long long)requests[i].n_prompt,
                            (long long)positions);
    return GPT_OK;
}

int gpt_generate(struct gpt_decoder *d, const struct gpt_request *requests,
                 int64_t n, const struct gpt_sink *sink,
                 struct gpt_speed *speed, struct gpt_err *err)
{
    struct gpt_batch *batch = NULL;

    *speed = (struct gpt_speed){0};
    GPT_TRY(check_prompts(d, requests, n, err));
    GPT_TRY(gpt_batch_open(&batch, d, sink, err));
    int status = answer_all(batch, requests, n, sink, err);
    *speed = *gpt_batch_speed(batch);
    gpt_batch_close(batch);
    return status;
}
