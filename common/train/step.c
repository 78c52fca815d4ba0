/* A step; see step.h.
 *
 * All that the ranks must know of each other in a step goes through one
 * all-reduce of a few doubles over the world (add_up): the loss, the squares of
 * the gradients, wishes to stop or to save, and the times for the log. Every
 * rank then decides from the same sums: whether to skip the update, how far to
 * clip, whether to stop. No rank can decide differently, since sums are made in
 * the order of ranks and have the same bits everywhere.
 *
 * It is also the one place where the host waits for the device. Everything
 * before it was put on queues; the update after it is put on a queue and not
 * waited for, so the device works while the host prepares the next step.
 *
 * Start at gpt_step_train(). */
#include "train/step.h"

#include "base/clock.h"
#include "base/signals.h"

#include <math.h>
#include <string.h>

/* What the ranks add up once a step. Counts are exact in a double. */
enum sum {
    SQUARES,
    LOSS,
    ROWS,
    STOP,
    SAVE,
    SIGNALS, /* ranks that have received each of gpt_stop_signals */
    WAIT_PIPELINE = SIGNALS + GPT_STOP_SIGNALS,
    WAIT_GRADIENTS,
    WAIT_TENSOR,
    WAIT_WEIGHTS,
    NOISE_SMALL,
    NOISE_BIG,
    TEXT_LOSS,
    TEXT_BYTES,
    ROUTER_BALANCE, /* losses of routers */
    ROUTER_SIZE,
    FORWARD,
    BACKWARD,
    BUSY, /* of each rank of the turn; the others add 0 */
    N_SUMS = BUSY + GPT_REPLICA_TURN
};

_Static_assert((int)N_SUMS == (int)GPT_REPLICA_SUMS, "room for all sums");

static double *own_sums(const struct gpt_replica *r)
{
    return memset(r->host_sums, 0, N_SUMS * sizeof(double));
}

/* Replaces the sums by those of all ranks. */
static int add_up(struct gpt_replica *r, double *sums, struct gpt_err *err)
{
    const size_t bytes = N_SUMS * sizeof(*sums);
    struct gpt_world *world = r->o.world;

    if (!world || !world->comm[GPT_GROUP_WORLD])
        return GPT_OK;
    r->be->copy_in(r->q, r->sums, sums, bytes);
    gpt_comm_all_reduce(world->comm[GPT_GROUP_WORLD], r->q, r->sums, N_SUMS,
                        GPT_F64, GPT_SUM);
    r->be->copy_out(r->q, sums, r->sums, bytes);
    GPT_TRY(r->be->sync(r->q, err));
    return gpt_world_check(world, err);
}

/* Losses are on the last stage, the same on all of its tensor parallel ranks:
 * one of them counts. */
static bool counts_losses(const struct gpt_replica *r)
{
    return r->o.layout.has_output && r->o.layout.at[GPT_TP] == 0;
}

static void own_loss(const struct gpt_replica *r, const struct gpt_feed *feed,
                     double *sums)
{
    int64_t rows;

    if (!counts_losses(r))
        return;
    sums[LOSS] = gpt_feed_loss(feed, &rows);
    sums[ROWS] = (double)rows;
}

/* A step of training has no such sums, as its log has no bits a byte. */
static void own_text(const struct gpt_replica *r, const struct gpt_feed *feed,
                     double *sums)
{
    int64_t bytes;

    if (!counts_losses(r))
        return;
    sums[TEXT_LOSS] = gpt_feed_text_loss(feed, &bytes);
    sums[TEXT_BYTES] = (double)bytes;
}

/* Each gradient counts once in the norm. Without shards all data parallel ranks
 * have the same gradients, and the first one counts them; what tensor parallel
 * ranks have in common the optimizer leaves out (optimizer.c). */
static int own_squares(struct gpt_replica *r, double *sums, struct gpt_err *err)
{
    const struct gpt_world *world = r->o.world;

    if (world && r->flat.shards == 1 && world->topology.at[GPT_DP] > 0)
        return r->be->sync(r->q, err);
    return gpt_optimizer_squares(r->optimizer, r->q,
                                 gpt_reducer_shards(r->reducer),
                                 &sums[SQUARES], err);
}

/* The gradient of a microbatch has the weights of its rows, whose sum is taken
 * out: it is then that of a mean. */
static int own_noise(struct gpt_replica *r, const struct gpt_feed *feed,
                     double *sums, struct gpt_err *err)
{
    const struct gpt_microbatch *m = gpt_feed_microbatch(feed, 0);
    const int64_t rows = r->o.exec.micro_batch * r->o.exec.seq_length;
    double weight = 0;

    if (!r->noise)
        return GPT_OK;
    for (int64_t i = 0; i < rows; i++)
        weight += (double)m->weight[i];
    GPT_TRY(gpt_noise_squares(r->noise, &sums[NOISE_SMALL], &sums[NOISE_BIG],
                              err));
    if (weight > 0)
        sums[NOISE_SMALL] /= weight * weight;
    return GPT_OK;
}

/* The failures of lanes' queues. The step's queue has joined all lanes and was
 * waited for, so this does not wait. */
static int check_lanes(const struct gpt_replica *r, struct gpt_err *err)
{
    struct gpt_lane *const lanes[] = {
        gpt_stage_lane(r->stage),
        gpt_reducer_lane(r->reducer),
        gpt_gatherer_lane(r->gatherer),
    };

    for (size_t i = 0; i < GPT_COUNT(lanes); i++)
        GPT_TRY(gpt_lane_check(lanes[i], err));
    return GPT_OK;
}

/* Rows of the batch, of all ranks. */
static int64_t batch_rows(const struct gpt_replica *r,
                          const struct gpt_step *step)
{
    const struct gpt_world *w = r->o.world;
    const int64_t replicas = w ? w->topology.size[GPT_DP] : 1;

    return r->o.exec.micro_batch * r->o.exec.seq_length *
           step->micro_batches * replicas;
}

/* No token is dropped, so that the mean needs no sum over ranks. */
static double expert_mean(const struct gpt_replica *r,
                          const struct gpt_step *step)
{
    const struct gpt_config *c = &r->o.config;

    return c->num_experts > 0
               ? (double)(batch_rows(r, step) * c->moe_router_topk) /
                     (double)c->num_experts
               : 0;
}

/* Puts the update on the queue. A failure of it is reported when the next step
 * waits for the queue. */
static int update(struct gpt_replica *r, const struct gpt_step *step,
                  struct gpt_err *err)
{
    const struct gpt_update u = {
        .params = r->params,
        .compact = gpt_replica_compact(r),
        .weights = gpt_replica_compact(r) ? r->weights : NULL,
        .act = r->o.exec.act,
        .gradients = gpt_reducer_shards(r->reducer),
        .loss_scale = step->loss_scale * step->row_share,
        .norm = step->grad_norm,
        .expert_mean = expert_mean(r, step),
        .rates = step->rates,
    };

    gpt_gatherer_wait(r->gatherer); /* Muon gathers on its communicator */
    gpt_optimizer_update(r->optimizer, r->q, &u);
    gpt_gatherer_begin(r->gatherer);
    return r->o.world ? gpt_world_check(r->o.world, err) : GPT_OK;
}

static bool has_loss_scale(const struct gpt_replica *r)
{
    return r->o.loss_scale.initial > 0;
}

/* Decides whether the step is used. A step whose gradients alone are not finite
 * is an overflow as long as the loss scale can still fall: then the scale was
 * too large, and the training is not in trouble. */
static void decide_skip(struct gpt_replica *r, struct gpt_step *step)
{
    const bool finite = isfinite(step->grad_norm);
    const bool falls =
        has_loss_scale(r) && gpt_loss_scale_update(&r->scale, finite);

    step->skipped = !isfinite(step->loss) || !finite;
    step->overflow = falls && isfinite(step->loss);
}

static double mean(const struct gpt_replica *r, double sum)
{
    return r->o.world ? sum / (double)r->o.world->topology.world_size : sum;
}

/* Times of exchanges over tensor parallel ranks since gpt_replica_open(). All
 * of it is waited for but what the stage's lane hides. */
static struct gpt_lane_times tensor_times(const struct gpt_replica *r)
{
    const struct gpt_world *world = r->o.world;
    const struct gpt_lane_times lane =
        gpt_lane_times(gpt_stage_lane(r->stage));
    struct gpt_lane_times t = {0};
    int64_t bytes;

    if (world && world->comm[GPT_GROUP_TP])
        gpt_comm_counters(world->comm[GPT_GROUP_TP], &bytes, &t.total);
    t.waited = t.total - (lane.total - lane.waited);
    return t;
}

/* Seconds of forward and backward without the waits within them: called when
 * backward is over and before anything else is waited for. A rank that is slow
 * shows here; in all other times the ranks that wait for it look slow, too. */
static double busy_seconds(const struct gpt_replica *r,
                           const struct gpt_step *step)
{
    double computing, waiting;

    gpt_pipeline_times(r->pipeline, &computing, &waiting);
    return fmax(0, computing - gpt_reducer_waited(r->reducer) -
                       gpt_gatherer_times(r->gatherer).waited -
                       (tensor_times(r).waited - step->times.tensor.waited));
}

/* The ranks whose times are in this step's sums: from one step to the next the
 * turn moves on. Nothing is exchanged for it that was not exchanged before. */
static void own_turn(struct gpt_replica *r, struct gpt_step *step, double *sums)
{
    const struct gpt_world *w = r->o.world;
    const int64_t ranks = w ? w->topology.world_size : 1;
    const int64_t rank = w ? w->topology.rank : 0;
    struct gpt_step_ranks *turn = &step->ranks;

    turn->n = ranks < GPT_REPLICA_TURN ? ranks : GPT_REPLICA_TURN;
    turn->first = r->turn++ * turn->n % ranks;
    const int64_t at = (rank - turn->first + ranks) % ranks;
    if (at < turn->n)
        sums[BUSY + at] = step->times.busy;
}

/* What this rank adds to the sums besides loss and norm: whether it wants to
 * stop or to save, and how long it has waited. */
static void own_state(struct gpt_replica *r, struct gpt_step *step,
                      double *sums)
{
    struct gpt_step_times *t = &step->times;

    gpt_pipeline_times(r->pipeline, &t->computing, &t->waiting);
    gpt_pipeline_passes(r->pipeline, &t->forward, &t->backward);
    gpt_reducer_times(r->reducer, &t->exposed, &t->reducing);
    const struct gpt_lane_times tensor = tensor_times(r);
    t->tensor.total = tensor.total - t->tensor.total;
    t->tensor.waited = tensor.waited - t->tensor.waited;
    t->gathering = gpt_gatherer_times(r->gatherer);
    if (step->ask)
        step->ask(step->context, step);
    sums[STOP] = step->stop;
    sums[SAVE] = step->save;
    for (int i = 0; i < GPT_STOP_SIGNALS; i++)
        sums[SIGNALS + i] = step->signal == gpt_stop_signals[i];
    sums[WAIT_PIPELINE] = t->waiting;
    sums[WAIT_GRADIENTS] = t->exposed;
    sums[WAIT_TENSOR] = t->tensor.waited;
    sums[WAIT_WEIGHTS] = t->gathering.waited;
    sums[FORWARD] = t->forward;
    sums[BACKWARD] = t->backward;
    own_turn(r, step, sums);
}

/* Returns what gradients are divided by. The ranks' sums make a mean over all
 * rows of the batch; divided by this share it is the mean over the rows that
 * are not masked. */
static double row_share(const struct gpt_replica *r,
                        const struct gpt_step *step, double unmasked)
{
    return r->o.per_token_loss && unmasked > 0
               ? unmasked / (double)batch_rows(r, step)
               : 1;
}

/* Where ranks have received several, all take the same one. */
static int first_signal(const double *sums)
{
    for (int i = 0; i < GPT_STOP_SIGNALS; i++)
        if (sums[SIGNALS + i] > 0)
            return gpt_stop_signals[i];
    return 0;
}

/* Means over layers, without their coefficients, as Megatron-LM logs them: the
 * first is 1 where every expert has as many tokens. Weights of losses make
 * means over replicas. */
static struct gpt_router_losses router_losses(const struct gpt_replica *r,
                                              const struct gpt_step *step,
                                              const double *sums)
{
    const struct gpt_config *c = &r->o.config;
    const double times =
        (double)gpt_config_expert_layers(c) * step->row_share;

    return (struct gpt_router_losses){
        .balance = c->moe_aux_loss_coeff > 0
                       ? sums[ROUTER_BALANCE] / c->moe_aux_loss_coeff / times
                       : 0,
        .size = c->moe_z_loss_coeff > 0
                    ? sums[ROUTER_SIZE] / c->moe_z_loss_coeff / times
                    : 0,
    };
}

/* The results of the step from the sums of all ranks. */
static void take_results(const struct gpt_replica *r, struct gpt_step *step,
                         const double *sums)
{
    step->row_share = row_share(r, step, sums[ROWS]);
    step->loss = sums[ROWS] > 0 ? sums[LOSS] / sums[ROWS] : sums[LOSS];
    const double divisor = step->loss_scale * step->row_share;
    step->grad_norm = sqrt(sums[SQUARES]) / divisor;
    step->routers = router_losses(r, step, sums);
    /* the microbatch's weights are taken out already */
    step->noise_small = sums[NOISE_SMALL] / step->loss_scale / step->loss_scale;
    step->noise_big = sums[NOISE_BIG] / divisor / divisor;
    step->stop = sums[STOP] > 0;
    step->save = sums[SAVE] > 0;
    step->signal = first_signal(sums);
    step->waits = (struct gpt_step_waits){
        .pipeline = mean(r, sums[WAIT_PIPELINE]),
        .gradients = mean(r, sums[WAIT_GRADIENTS]),
        .tensor = mean(r, sums[WAIT_TENSOR]),
        .weights = mean(r, sums[WAIT_WEIGHTS]),
    };
    step->forward = mean(r, sums[FORWARD]);
    step->backward = mean(r, sums[BACKWARD]);
    memcpy(step->ranks.busy, &sums[BUSY], sizeof(step->ranks.busy));
}

int gpt_step_train(struct gpt_replica *r, struct gpt_feed *feed,
                   struct gpt_step *step, struct gpt_err *err)
{
    double *sums = own_sums(r);
    float routers[2];

    step->loss_scale = has_loss_scale(r) ? (double)r->scale.scale : 1;
    if (has_loss_scale(r))
        gpt_stage_scale(r->stage, r->q, r->scale.scale);
    step->times.tensor = tensor_times(r); /* from where it is counted */
    gpt_stage_begin(r->stage, r->q);
    gpt_reducer_begin(r->reducer);
    if (r->noise)
        gpt_noise_begin(r->noise);
    GPT_TRY(gpt_pipeline_run(r->pipeline, r->q, feed, step->micro_batches,
                             GPT_STAGE_TRAIN, err));
    if (r->o.exec.token_loss)
        GPT_TRY(r->o.exec.token_loss->check(r->o.exec.token_loss->context,
                                            err));
    step->times.busy = busy_seconds(r, step);
    GPT_TRY(gpt_reducer_finish(r->reducer, err));
    GPT_TRY(own_noise(r, feed, sums, err));
    gpt_stage_router_losses(r->stage, r->q, routers);
    GPT_TRY(own_squares(r, sums, err)); /* waits for the queue */
    GPT_TRY(check_lanes(r, err));
    sums[ROUTER_BALANCE] = (double)routers[0];
    sums[ROUTER_SIZE] = (double)routers[1];
    own_loss(r, feed, sums);
    own_state(r, step, sums);
    GPT_TRY(add_up(r, sums, err));
    take_results(r, step, sums);
    decide_skip(r, step);
    const double decided = gpt_now();
    if (!step->skipped)
        GPT_TRY(update(r, step, err));
    step->times.optimizer = gpt_now() - decided;
    return GPT_OK;
}

int gpt_step_eval(struct gpt_replica *r, struct gpt_feed *feed,
                  int64_t micro_batches, struct gpt_evaluation *sum,
                  struct gpt_err *err)
{
    double *sums = own_sums(r);

    GPT_TRY(gpt_pipeline_run(r->pipeline, r->q, feed, micro_batches,
                             GPT_STAGE_EVAL, err));
    GPT_TRY(r->be->sync(r->q, err));
    own_loss(r, feed, sums);
    own_text(r, feed, sums);
    GPT_TRY(add_up(r, sums, err));
    sum->loss += sums[LOSS];
    sum->rows += (int64_t)sums[ROWS];
    sum->text_loss += sums[TEXT_LOSS];
    sum->bytes += (int64_t)sums[TEXT_BYTES];
    return GPT_OK;
}
