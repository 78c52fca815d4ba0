/* The part of estimate.h about memory. Start at gpt_estimate_rank(): the one
 * place that knows everything that a rank allocates. */
#include "cmd/train/estimate.h"

#include "train/feed.h"
#include "train/texts.h"
#include "cmd/train/saver.h"
#include "cmd/train/valid_sets.h"

/* True when communicators copy through host memory. Ranks that are only planned
 * would use what such a device has. */
static bool exchanges_in_host(const struct gpt_train_plan *plan,
                              const struct gpt_backend *be)
{
    const char *asked = plan->options->backend;

    /* an open world has decided; for a planned one the device decides */
    if (plan->replica.world)
        return plan->replica.world->carrier == GPT_GLOO;
    return asked ? gpt_train_choice(gpt_train_backends, asked) == GPT_GLOO
                 : !be->collectives;
}

int gpt_estimate_rank(const struct gpt_train_plan *plan,
                      const struct gpt_replica *r, struct gpt_memory *memory,
                      struct gpt_err *err)
{
    const struct gpt_topology *t = &plan->topology;
    int64_t named = 0;
    const struct gpt_feed_options feed = {
        .micro_batch = r->o.exec.micro_batch,
        .seq_length = r->o.exec.seq_length,
        .max_micro_batches = r->o.micro_batches,
        .be = r->be,
    };

    const int status = gpt_replica_memory(r, memory, err);
    if (status == GPT_EUSAGE) /* the plan has checked all but the size */
        gpt_hint(err, "a smaller --micro-batch-size or --seq-length needs "
                      "less");
    GPT_TRY(status);
    /* The replica cannot know these: the feed, the communicators and the saver
     * allocate them beside it. */
    GPT_TRY(gpt_valid_sets_predict(&named, plan, err));
    memory->bytes[GPT_MEM_SAMPLES] = gpt_corpus_predict(&plan->corpus) + named;
    memory->bytes[GPT_MEM_BATCHES] = gpt_feed_memory(&feed);
    memory->bytes[GPT_MEM_INPUTS] += gpt_feed_device_memory(&feed);
    if (r->o.texts) {
        int64_t device, host;

        gpt_texts_memory(r, t->size[GPT_DP], &device, &host);
        memory->bytes[GPT_MEM_INPUTS] += device;
        memory->bytes[GPT_MEM_BATCHES] += host;
    }
    /* Through NCCL a communicator holds no host memory. What NCCL allocates on
     * the device is not predicted. */
    if (exchanges_in_host(plan, r->be))
        GPT_TRY(gpt_estimate_calls(r, t, &memory->bytes[GPT_MEM_EXCHANGE],
                                   err));
    if (!plan->options->save)
        return GPT_OK;
    return gpt_saver_memory(r, plan->options, t->at[GPT_DP], t->size[GPT_DP],
                            &memory->bytes[GPT_MEM_SAVING], err);
}

int gpt_estimate_memory(const struct gpt_train_plan *plan,
                        struct gpt_backend *be, int64_t pp_rank,
                        struct gpt_memory *memory, int64_t *parameters,
                        struct gpt_err *err)
{
    /* a replica that is never opened: its tables are enough to be asked */
    struct gpt_replica_options options = plan->replica;
    struct gpt_replica *r;

    GPT_TRY(gpt_train_layout(plan, 0, pp_rank, &options.layout, err));
    GPT_TRY(gpt_replica_new(&r, be, &options, err));
    int status = gpt_estimate_rank(plan, r, memory, err);
    *parameters = r->flat.count;
    gpt_replica_close(r);
    return status;
}

/* ---- the microbatch that fits ---- */

/* Every stage is asked, as no stage is always the largest: the last one has the
 * logits, and the first one keeps the activations of most microbatches. */
int gpt_estimate_largest(const struct gpt_train_plan *plan,
                         struct gpt_backend *be, double *most,
                         struct gpt_err *err)
{
    *most = 0;
    for (int64_t p = 0; p < plan->topology.size[GPT_PP]; p++) {
        struct gpt_memory memory;
        int64_t parameters;

        GPT_TRY(gpt_estimate_memory(plan, be, p, &memory, &parameters, err));
        const double total = gpt_memory_device(&memory, be);
        *most = total > *most ? total : *most;
    }
    return GPT_OK;
}

/* True when steps of every size divide into microbatches of `b` samples.
 * Interleaved schedules take them in groups of pp_size. */
static bool divides(const struct gpt_train_plan *plan, int64_t b)
{
    const struct gpt_topology *t = &plan->topology;
    const int64_t group = t->chunks == 1 ? 1 : t->size[GPT_PP];

    return gpt_rampup_check(&plan->rampup, b * t->size[GPT_DP] * group, NULL,
                            NULL) == GPT_OK;
}

int gpt_estimate_fit(const struct gpt_train_plan *plan, struct gpt_backend *be,
                     double limit, int64_t *micro_batch, struct gpt_err *err)
{
    /* A rank's samples in a step of the largest batch; smaller steps have fewer
     * microbatches of the same size. */
    const int64_t samples =
        plan->rampup.global_batch / plan->topology.size[GPT_DP];
    struct gpt_train_plan other = *plan;
    double most;

    *micro_batch = 0;
    /* the global batch stays: only divisors of a rank's share are tried */
    for (int64_t b = 1; b <= samples; b++) {
        if (!divides(plan, b))
            continue;
        other.replica.exec.micro_batch = b;
        other.replica.micro_batches = samples / b;
        GPT_TRY(gpt_estimate_largest(&other, be, &most, err));
        if (most > limit) /* larger ones need more still */
            break;
        *micro_batch = b;
    }
    return GPT_OK;
}
