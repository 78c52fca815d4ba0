/* A step: see step.h. */
#include "train/step.h"

#include <math.h>

/* Forward (and backward) of every microbatch, in slot 0: plain accumulation. */
static void run_microbatches(struct gpt_replica *r, struct gpt_feed *feed,
                             int64_t n, enum gpt_stage_mode mode)
{
    for (int64_t i = 0; i < n; i++) {
        struct gpt_stage_result result = {.loss = gpt_feed_losses(feed, i)};
        gpt_stage_forward(r->stage, r->q, 0, 0, mode,
                          gpt_feed_microbatch(feed, i), NULL, &result);
        if (mode != GPT_STAGE_EVAL)
            gpt_stage_backward(r->stage, r->q, 0, 0, NULL);
    }
}

int gpt_step_train(struct gpt_replica *r, struct gpt_feed *feed,
                   struct gpt_step *step, struct gpt_err *err)
{
    int64_t rows;

    gpt_stage_begin(r->stage, r->q);
    run_microbatches(r, feed, step->micro_batches, GPT_STAGE_TRAIN);
    GPT_TRY(gpt_optimizer_norm(r->optimizer, r->q, r->gradients,
                               &step->grad_norm, err));
    step->loss = gpt_feed_loss(feed, &rows);
    if (rows > 0)
        step->loss /= (double)rows;
    step->skipped = !isfinite(step->loss) || !isfinite(step->grad_norm);
    if (step->skipped)
        return GPT_OK;
    const struct gpt_update update = {
        .params = r->params,
        .gradients = r->gradients,
        .act = GPT_F32,
        .norm = step->grad_norm,
        .lr = step->lr,
        .weight_decay = step->weight_decay,
    };
    gpt_optimizer_update(r->optimizer, r->q, &update);
    return r->be->sync(r->q, err);
}

int gpt_step_eval(struct gpt_replica *r, struct gpt_feed *feed,
                  int64_t micro_batches, double *loss_sum, int64_t *rows,
                  struct gpt_err *err)
{
    int64_t n;

    run_microbatches(r, feed, micro_batches, GPT_STAGE_EVAL);
    GPT_TRY(r->be->sync(r->q, err));
    *loss_sum += gpt_feed_loss(feed, &n);
    *rows += n;
    return GPT_OK;
}
