/* A rank's model, its memory and its initial values; see replica.h.
 *
 * gpt_replica_open() opens what others need before them: weights, then the
 * memory of gradients, which the reducer owns because its sums decide where
 * they are; the gatherer and the optimizer; the stage, which gets the hooks of
 * reducer and gatherer; the pipeline that runs it. Start there. */
#include "train/replica.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"

#include <string.h>

/* The slots that the largest step needs. Fewer microbatches never need more, so
 * a ramp-up of the batch allocates nothing. */
static int plan_slots(struct gpt_replica *r, struct gpt_err *err)
{
    const struct gpt_layout *layout = &r->o.layout;
    struct gpt_pipeline_plan plan;

    GPT_TRY(gpt_pipeline_plan_build(&plan, layout->size[GPT_PP], layout->chunks,
                                    gpt_max_i64(r->o.micro_batches, 1),
                                    layout->at[GPT_PP], err));
    memcpy(r->slots, plan.slots, sizeof(r->slots));
    gpt_pipeline_plan_free(&plan);
    return GPT_OK;
}

/* The tables need no device memory, so a prediction of memory can be made for a
 * model that fits no device at hand. */
int gpt_replica_new(struct gpt_replica **replica, struct gpt_backend *be,
                    const struct gpt_replica_options *options,
                    struct gpt_err *err)
{
    struct gpt_replica *r = NULL;
    int status;

    *replica = NULL;
    GPT_TRY(gpt_new(&r, 1, sizeof(*r), "the model", err));
    r->o = *options;
    r->be = be;
    r->scale = gpt_loss_scale_new(&options->loss_scale);
    GPT_TRY_GOTO(status, gpt_params_build(&r->table, &r->o.config, err), fail);
    GPT_TRY_GOTO(status, gpt_flat_build(&r->flat, &r->table, &r->o.layout, err),
                 fail);
    GPT_TRY_GOTO(status, plan_slots(r, err), fail);
    *replica = r;
    return GPT_OK;
fail:
    gpt_replica_close(r);
    return status;
}

static struct gpt_reducer_options reducer_options(const struct gpt_replica *r)
{
    return (struct gpt_reducer_options){
        .flat = &r->flat,
        .zero = r->o.zero,
        .sequence_parallel = r->o.exec.sequence_parallel,
        .world = r->o.world,
        .q = r->q,
    };
}

/* The same options for the prediction of memory and for the allocation. Hooks
 * and pointers to memory are not among them: gpt_replica_open() adds those. */
static struct gpt_stage_options stage_options(const struct gpt_replica *r)
{
    const struct gpt_reducer_options reducer = reducer_options(r);
    struct gpt_stage_options o = {
        .config = &r->o.config,
        .flat = &r->flat,
        .layout = r->o.layout,
        .exec = r->o.exec,
        .training = true,
        .tp = r->o.world ? r->o.world->comm[GPT_GROUP_TP] : NULL,
        .fresh_gradients = gpt_reducer_overwrites(&reducer),
    };

    memcpy(o.slots, r->slots, sizeof(o.slots));
    return o;
}

struct gpt_rows gpt_replica_rows(const struct gpt_replica *r)
{
    const struct gpt_execution *e = &r->o.exec;

    return gpt_rows_of(e->micro_batch, e->seq_length, r->o.layout.size[GPT_TP],
                       e->sequence_parallel);
}

int64_t gpt_replica_message(const struct gpt_replica *r)
{
    return gpt_message_bytes(&r->o.config, gpt_replica_rows(r),
                             r->o.exec.act);
}

bool gpt_replica_compact(const struct gpt_replica *r)
{
    return r->o.exec.act != GPT_F32;
}

static int64_t weight_bytes(const struct gpt_replica *r)
{
    return r->flat.elements * (int64_t)gpt_dtype_bytes(r->o.exec.act);
}

/* Bytes of `params` where they are not the weights. */
static int64_t param_bytes(const struct gpt_replica *r)
{
    if (!gpt_replica_compact(r))
        return 0;
    return gpt_flat_compact(&r->flat) * (int64_t)sizeof(float);
}

bool gpt_replica_sums(const struct gpt_replica *r)
{
    return r->o.world || r->o.planned;
}

/* Each part is asked for its own size by the code that allocates it. What is
 * missing in this sum would be missing in the prediction, so every new
 * allocation has a line here. */
int gpt_replica_memory(const struct gpt_replica *r, struct gpt_memory *memory,
                       struct gpt_err *err)
{
    const struct gpt_stage_options stage = stage_options(r);
    const struct gpt_reducer_options reducer = reducer_options(r);

    *memory = (struct gpt_memory){.bytes = {0}};
    memory->bytes[GPT_MEM_PARAMETERS] = weight_bytes(r);
    memory->bytes[GPT_MEM_GRADIENTS] = gpt_reducer_memory(&reducer);
    memory->bytes[GPT_MEM_OPTIMIZER] =
        gpt_optimizer_memory(&r->o.optimizer, &r->flat) + param_bytes(r);
    GPT_TRY(gpt_stage_memory(memory, r->be, &stage, err));
    memory->bytes[GPT_MEM_WORKSPACE] +=
        gpt_pipeline_memory(r->o.layout.size[GPT_PP], gpt_replica_message(r));
    if (r->o.noise_scale)
        memory->bytes[GPT_MEM_WORKSPACE] += gpt_noise_memory(&r->flat);
    if (gpt_replica_sums(r))
        memory->bytes[GPT_MEM_WORKSPACE] +=
            GPT_REPLICA_SUMS * (int64_t)sizeof(double);
    return GPT_OK;
}

static int open_reducer(struct gpt_replica *r, struct gpt_err *err)
{
    const struct gpt_reducer_options options = reducer_options(r);

    return gpt_reducer_open(&r->reducer, r->be, &options, err);
}

/* On the first communicator of the group: the reducer uses the second one, and
 * a gather may still run when the next backward begins to reduce. */
static int open_gatherer(struct gpt_replica *r, struct gpt_err *err)
{
    const struct gpt_gatherer_options options = {
        .flat = &r->flat,
        .weights = r->weights,
        .act = r->o.exec.act,
        .comm = r->o.world ? r->o.world->comm[GPT_GROUP_DP] : NULL,
        .q = r->q,
        .overlap = r->o.overlap_gather,
    };

    return gpt_gatherer_open(&r->gatherer, r->be, &options, err);
}

/* Opens the measurement of noise between the stage and the reducer, where it
 * sees gradients that are not summed. */
static int open_noise(struct gpt_replica *r, struct gpt_err *err)
{
    const struct gpt_noise_options options = {
        .flat = &r->flat,
        .buckets = gpt_reducer_buckets(r->reducer),
        .shards = gpt_reducer_shards(r->reducer),
        .hooks = gpt_reducer_hooks(r->reducer),
        .q = r->q,
        .dp_rank = r->o.world ? r->o.world->topology.at[GPT_DP] : 0,
    };

    return r->o.noise_scale ? gpt_noise_open(&r->noise, r->be, &options, err)
                            : GPT_OK;
}

/* The stage gets its hooks at opening: backward hands each bucket to the
 * reducer, and forward waits for the gatherer, without knowing of either. */
static int open_stage(struct gpt_replica *r, struct gpt_err *err)
{
    struct gpt_stage_options options = stage_options(r);

    options.hooks = r->noise ? gpt_noise_hooks(r->noise)
                             : gpt_reducer_hooks(r->reducer);
    options.weights = gpt_gatherer_hook(r->gatherer);
    return gpt_stage_open(&r->stage, r->be, &options, r->weights,
                          gpt_reducer_buckets(r->reducer), err);
}

static int open_pipeline(struct gpt_replica *r, struct gpt_err *err)
{
    const struct gpt_pipeline_options options = {
        .stage = r->stage,
        .reducer = r->reducer,
        .world = r->o.world,
        .stages = r->o.layout.size[GPT_PP],
        .stage_index = r->o.layout.at[GPT_PP],
        .chunks = r->o.layout.chunks,
        .slots = r->slots,
    };

    return gpt_pipeline_open(&r->pipeline, r->be, &options, err);
}

/* With weights of F32 the optimizer updates the weights themselves, and
 * `params` is another name of the same memory. */
static int open_weights(struct gpt_replica *r, struct gpt_err *err)
{
    void *params;

    GPT_TRY(r->be->alloc(r->be, (size_t)weight_bytes(r),
                         gpt_memory_kind_name(GPT_MEM_PARAMETERS), &r->weights,
                         err));
    params = r->weights;
    if (gpt_replica_compact(r))
        GPT_TRY(r->be->alloc(r->be, (size_t)param_bytes(r),
                             gpt_memory_kind_name(GPT_MEM_OPTIMIZER), &params,
                             err));
    r->params = params;
    return GPT_OK;
}

/* The host's copy is pinned memory, so that copying does not stop the queue. */
static int open_sums(struct gpt_replica *r, struct gpt_err *err)
{
    static const size_t bytes = GPT_REPLICA_SUMS * sizeof(*r->sums);
    static const char what[] = "sums over ranks";
    void *sums;

    GPT_TRY(r->be->host_alloc(r->be, bytes, what, &sums, err));
    r->host_sums = sums;
    if (!r->o.world)
        return GPT_OK;
    GPT_TRY(r->be->alloc(r->be, bytes, what, &sums, err));
    r->sums = sums;
    return GPT_OK;
}

/* Muon's calls are made on the step's own queue, between backward and the
 * gathering of weights, when nothing else uses these communicators. */
static int open_optimizer(struct gpt_replica *r, struct gpt_err *err)
{
    const struct gpt_world *world = r->o.world;
    struct gpt_optimizer_options *o = &r->o.optimizer;

    o->tp = world ? world->comm[GPT_GROUP_TP] : NULL;
    o->dp = world ? world->comm[GPT_GROUP_DP] : NULL;
    return gpt_optimizer_open(&r->optimizer, r->be, r->q, &r->flat,
                              r->o.layout.at[GPT_TP], o, err);
}

/* A failure in the middle leaves what was opened for gpt_replica_close(), which
 * takes each pointer for open or NULL. */
int gpt_replica_open(struct gpt_replica *r, struct gpt_err *err)
{
    GPT_TRY(r->be->queue_open(r->be, &r->q, err));
    GPT_TRY(open_weights(r, err));
    GPT_TRY(open_sums(r, err));
    GPT_TRY(open_reducer(r, err));
    GPT_TRY(open_gatherer(r, err));
    GPT_TRY(open_optimizer(r, err));
    GPT_TRY(open_noise(r, err));
    GPT_TRY(open_stage(r, err));
    return open_pipeline(r, err);
}

/* Reducer and gatherer close before the memory is freed: their lanes have
 * threads that may still use gradients and weights. The queue is last, because
 * all operations were put on it. */
void gpt_replica_close(struct gpt_replica *r)
{
    if (!r)
        return;
    gpt_pipeline_close(r->pipeline);
    gpt_reducer_close(r->reducer);
    gpt_gatherer_close(r->gatherer);
    gpt_stage_close(r->stage);
    gpt_noise_close(r->noise);
    gpt_optimizer_close(r->optimizer);
    if (r->sums)
        r->be->free(r->be, r->sums);
    if (r->host_sums)
        r->be->host_free(r->be, r->host_sums);
    if (r->params && gpt_replica_compact(r))
        r->be->free(r->be, r->params);
    if (r->weights)
        r->be->free(r->be, r->weights);
    if (r->q)
        r->be->queue_close(r->q);
    gpt_flat_free(&r->flat);
    gpt_params_free(&r->table);
    gpt_free(r);
}

/* ---- values ---- */

/* Casts this rank's shards only; the others' come by gathering, as they do
 * after every update. So loading and training give weights the same rounding.
 * The gather follows the casts on one queue; its lane waits for them by an
 * event, so the host does not wait between the two. */
int gpt_replica_refresh(struct gpt_replica *r, struct gpt_err *err)
{
    const struct gpt_flat *flat = &r->flat;
    const int64_t type = (int64_t)gpt_dtype_bytes(r->o.exec.act);
    int64_t begin, end;

    if (!gpt_replica_compact(r))
        return GPT_OK;
    for (int64_t b = 0; b < flat->n_buckets; b++) {
        gpt_bucket_shard(flat, b, flat->shard, &begin, &end);
        r->be->cast(r->q, (char *)r->weights + begin * type, r->o.exec.act,
                    r->params + gpt_bucket_compact(flat, b), GPT_F32,
                    end - begin);
    }
    gpt_gatherer_begin(r->gatherer);
    gpt_gatherer_wait(r->gatherer);
    GPT_TRY(r->be->sync(r->q, err));
    return r->o.world ? gpt_world_check(r->o.world, err) : GPT_OK;
}

/* Copies to `params` the part of a slice that it holds. values: the whole
 * slice. Compact `params` hold this rank's shard of each bucket only, one after
 * the other. */
static void put_slice(struct gpt_replica *r, const struct gpt_slice *s,
                      const float *values)
{
    struct gpt_shard_part part = {.end = s->count, .at = s->offset};

    if (gpt_replica_compact(r)) {
        part = gpt_slice_shard(&r->flat, s);
        part.at += gpt_bucket_compact(&r->flat, s->bucket);
    }
    if (part.begin < part.end)
        r->be->copy_in(r->q, r->params + part.at, values + part.begin,
                       (size_t)(part.end - part.begin) * sizeof(*values));
}

/* Slice by slice through one host buffer. A value depends on the seed, the name
 * and the global index only, so ranks of any layout start from one model
 * without exchanging anything. The buffer is used again for the next slice, so
 * each copy is waited for. */
int gpt_replica_init_values(struct gpt_replica *r, struct gpt_err *err)
{
    int64_t largest = 0;
    float *host = NULL;
    int status = GPT_OK;

    for (int64_t i = 0; i < r->flat.n; i++)
        largest = gpt_max_i64(largest, r->flat.slices[i].count);
    GPT_TRY(
        gpt_new(&host, (size_t)largest, sizeof(*host), "initial values", err));
    for (int64_t i = 0; i < r->flat.n && status == GPT_OK; i++) {
        gpt_param_init(&r->o.config, &r->flat.slices[i], r->o.exec.seed, host);
        put_slice(r, &r->flat.slices[i], host);
        status = r->be->sync(r->q, err);
    }
    gpt_free(host);
    return status;
}

int gpt_replica_init(struct gpt_replica *r, struct gpt_err *err)
{
    GPT_TRY(gpt_replica_init_values(r, err));
    return gpt_replica_refresh(r, err);
}

void gpt_memory_print(const struct gpt_memory *memory)
{
    char text[32];
    int64_t total = 0;

    for (int kind = 0; kind < GPT_N_MEMORY_KINDS; kind++) {
        int64_t bytes = memory->bytes[kind];

        total += bytes;
        gpt_log_line("   %-16s %15lld bytes  %s",
                     gpt_memory_kind_name((enum gpt_memory_kind)kind),
                     (long long)bytes, gpt_text_bytes(text, (double)bytes));
    }
    gpt_log_line("   %-16s %15lld bytes  %s", "total", (long long)total,
                 gpt_text_bytes(text, (double)total));
}
