/* The part of estimate.h about what communicators hold in host memory: the
 * calls of a step, by group. Files that make calls of data parallel ranks and
 * of stages are asked for them: reduce.c, gather.c, pipeline.c. Those of tensor
 * parallel ranks (stage_ends.c, pass.c, heads.c, reduce.c, muon.c) and of all
 * ranks (step.c, texts.c) are described here; tests compare the result with
 * what is then held. Start at gpt_estimate_calls(). */
#include "cmd/train/estimate.h"

#include "base/num.h"
#include "train/gather.h"
#include "train/pipeline.h"
#include "train/reduce.h"
#include "train/texts.h"

/* The room that the calls of a group need: the largest call counts, as each
 * uses it in its turn. */
struct calls {
    struct gpt_comm_room room;
    int64_t size; /* of the group */
    bool staged;
};

static void add(struct calls *c, struct gpt_collective call)
{
    if (c->size > 1)
        gpt_comm_room_add(&c->room, c->size, c->staged, &call);
}

static void add_call(struct calls *c, enum gpt_collective_kind kind, int64_t n,
                     enum gpt_dtype type)
{
    add(c, (struct gpt_collective){.kind = kind, .n = n, .type = type});
}

static struct gpt_reducer_options reducer_of(const struct gpt_replica *r)
{
    return (struct gpt_reducer_options){
        .flat = &r->flat,
        .zero = r->o.zero,
        .sequence_parallel = r->o.exec.sequence_parallel,
    };
}

/* Rows of the residual stream; statistics of a softmax, and of heads that are
 * normed together; gradients that sequence parallel ranks hold in parts. */
static void tensor_calls(const struct gpt_replica *r, struct calls *c)
{
    const struct gpt_reducer_options reducer = reducer_of(r);
    const struct gpt_rows rows = gpt_replica_rows(r);
    const int64_t n = rows.kept * r->o.config.hidden_size;

    if (r->o.exec.sequence_parallel) {
        add_call(c, GPT_ALL_GATHER, n, r->o.exec.act);
        add_call(c, GPT_REDUCE_SCATTER, n, r->o.exec.act);
    } else {
        add_call(c, GPT_ALL_REDUCE, n, r->o.exec.act);
    }
    if (r->o.layout.has_output)
        add_call(c, GPT_ALL_GATHER,
                 GPT_XENT_STATS *
                     gpt_stage_logits_rows(r->be, &r->o.config,
                                           &r->o.layout, r->o.exec.act, rows.n),
                 GPT_F32);
    if (r->o.layout.has_output && r->o.texts)
        add_call(c, GPT_ALL_GATHER,
                 r->o.config.padded_vocab_size / r->o.layout.size[GPT_TP],
                 r->o.exec.act);
    if (r->o.config.qk_norm_whole) /* two sums a row */
        add_call(c, GPT_ALL_REDUCE, 2 * rows.n, GPT_F32);
    add_call(c, GPT_ALL_REDUCE, gpt_reducer_pieces(&reducer), GPT_F32);
    /* a sum of squares for the norm of a matrix, then square matrices */
    if (r->o.optimizer.kind == GPT_MUON) {
        const int64_t sum = gpt_muon_sum(&r->o.optimizer.muon, &r->flat);

        add_call(c, GPT_ALL_REDUCE, sum, GPT_F32);
        add_call(c, GPT_ALL_REDUCE, sum > 0, GPT_F64);
    }
}

static void gradient_calls(const struct gpt_replica *r, struct calls *c)
{
    for (int64_t b = 0; b < r->flat.n_buckets; b++)
        add(c, gpt_reducer_call(&r->flat, b));
}

static void weight_calls(const struct gpt_replica *r, struct calls *c)
{
    for (int64_t b = 0; r->flat.shards > 1 && b < r->flat.n_buckets; b++)
        add(c, gpt_gatherer_call(&r->flat, b, r->o.exec.act));
    if (r->o.optimizer.kind == GPT_MUON) /* its momentum goes the same way */
        add_call(c, GPT_ALL_GATHER, gpt_muon_gather(&r->flat), GPT_F32);
}

/* The first and the last stage sum the gradients of their copies. A stage
 * between them has no tied slice, and makes no call. */
static void tied_calls(const struct gpt_replica *r, struct calls *c)
{
    for (int64_t i = 0; i < r->flat.n; i++)
        if (r->flat.slices[i].param->tied)
            add_call(c, GPT_ALL_REDUCE, r->flat.slices[i].count, GPT_F32);
}

/* The messages of a pipeline plan: those of neighbouring actions are posted
 * together, as one call. */
static void plan_calls(const struct gpt_pipeline_plan *plan, int64_t bytes,
                       struct calls *c)
{
    struct gpt_transfer list[GPT_GROUP_ACTIONS];
    struct gpt_collective call = {.kind = GPT_EXCHANGE, .list = list};

    for (int64_t i = 0; i < plan->n; i += gpt_max_i64(call.n_list, 1)) {
        call.n_list = gpt_pipeline_transfers(&plan->actions[i], plan->n - i,
                                             bytes, list);
        add(c, call);
    }
}

static int pipeline_calls(const struct gpt_replica *r, struct calls *c,
                          struct gpt_err *err)
{
    const struct gpt_layout *l = &r->o.layout;
    const int64_t m = gpt_max_i64(r->o.micro_batches, 1);
    struct gpt_pipeline_plan plan;

    if (c->size == 1)
        return GPT_OK;
    /* training, then validation: its forwards are grouped in another way */
    GPT_TRY(gpt_pipeline_plan_build(&plan, l->size[GPT_PP], l->chunks, m,
                                    l->at[GPT_PP], err));
    plan_calls(&plan, gpt_replica_message(r), c);
    gpt_pipeline_plan_free(&plan);
    GPT_TRY(gpt_pipeline_plan_build_forward(&plan, l->size[GPT_PP], l->chunks,
                                            m, l->at[GPT_PP], err));
    plan_calls(&plan, gpt_replica_message(r), c);
    gpt_pipeline_plan_free(&plan);
    return GPT_OK;
}

int gpt_estimate_calls(const struct gpt_replica *r,
                       const struct gpt_topology *t, int64_t *bytes,
                       struct gpt_err *err)
{
    const bool ends = t->size[GPT_PP] > 1 && r->o.config.tied_embeddings;
    /* what is on a device goes through a block of host memory besides */
    const bool staged = !r->be->host_memory;
    struct calls tensor = {.size = t->size[GPT_TP], .staged = staged};
    struct calls gradients = {.size = t->size[GPT_DP], .staged = staged};
    /* The same ranks have two communicators, as gradients are summed while
     * weights are gathered; each of the two holds room of its own. */
    struct calls weights = gradients;
    struct calls tied = {.size = ends ? 2 : 1, .staged = staged};
    struct calls stages = {.size = t->size[GPT_PP], .staged = staged};
    struct calls world = {.size = t->world_size, .staged = staged};
    const struct calls *const all[] = {&tensor, &gradients, &weights,
                                       &tied,   &stages,    &world};

    tensor_calls(r, &tensor);
    gradient_calls(r, &gradients);
    weight_calls(r, &weights);
    tied_calls(r, &tied);
    GPT_TRY(pipeline_calls(r, &stages, err));
    /* losses, norms and flags of a step */
    add_call(&world, GPT_ALL_REDUCE, GPT_REPLICA_SUMS, GPT_F64);
    if (r->o.texts)
        add_call(&world, GPT_ALL_REDUCE,
                 gpt_texts_sums(r, t->size[GPT_DP]), GPT_F64);
    /* Each communicator keeps the room of its largest call until the end, so
     * that the rooms add up, though the calls do not coincide. */
    *bytes = 0;
    for (size_t i = 0; i < GPT_COUNT(all); i++)
        *bytes += gpt_comm_room_bytes(&all[i]->room);
    return GPT_OK;
}
