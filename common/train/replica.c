/* A rank's model, its memory and its initial values; see replica.h. */
#include "train/replica.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"

#include <string.h>

int gpt_replica_new(struct gpt_replica **replica, struct gpt_backend *be,
                    const struct gpt_replica_options *options,
                    struct gpt_err *err)
{
    struct gpt_replica *r = NULL;
    int status;

    *replica = NULL;
    GPT_TRY(gpt_new(&r, 1, sizeof *r, "the model", err));
    r->o = *options;
    r->be = be;
    GPT_TRY_GOTO(status, gpt_params_build(&r->table, &r->o.config, err), fail);
    GPT_TRY_GOTO(status, gpt_flat_build(&r->flat, &r->table, &r->o.layout, err),
                 fail);
    *replica = r;
    return GPT_OK;
fail:
    gpt_replica_close(r);
    return status;
}

static struct gpt_stage_options stage_options(const struct gpt_replica *r)
{
    struct gpt_stage_options o = {
        .config = &r->o.config,
        .flat = &r->flat,
        .layout = r->o.layout,
        .micro_batch = r->o.micro_batch,
        .seq_length = r->o.seq_length,
        .documents = r->o.documents,
        .training = true,
        .seed = r->o.seed,
        .act = GPT_F32,
    };
    memcpy(o.slots, r->o.slots, sizeof o.slots);
    return o;
}

int gpt_replica_memory(const struct gpt_replica *r, struct gpt_memory *memory,
                       struct gpt_err *err)
{
    struct gpt_stage_options stage = stage_options(r);
    int64_t flat = r->flat.elements * (int64_t)sizeof(float);

    *memory = (struct gpt_memory){.bytes = {0}};
    memory->bytes[GPT_MEM_PARAMETERS] = flat;
    memory->bytes[GPT_MEM_GRADIENTS] = flat;
    memory->bytes[GPT_MEM_OPTIMIZER] = gpt_optimizer_memory(&r->flat);
    return gpt_stage_memory(memory, r->be, &stage, err);
}

static int allocate(struct gpt_replica *r, enum gpt_memory_kind kind,
                    float **mem, struct gpt_err *err)
{
    void *block;
    GPT_TRY(r->be->alloc(r->be, (size_t)r->flat.elements * sizeof(float),
                         gpt_memory_kind_name(kind), &block, err));
    *mem = block;
    return GPT_OK;
}

int gpt_replica_open(struct gpt_replica *r, struct gpt_err *err)
{
    struct gpt_stage_options stage = stage_options(r);
    float **buckets;
    int status;

    GPT_TRY(r->be->queue_open(r->be, &r->q, err));
    GPT_TRY(allocate(r, GPT_MEM_PARAMETERS, &r->params, err));
    GPT_TRY(allocate(r, GPT_MEM_GRADIENTS, &r->gradients, err));
    GPT_TRY(gpt_optimizer_open(&r->optimizer, r->be, &r->flat, &r->o.optimizer,
                               err));
    GPT_TRY(gpt_new(&buckets, (size_t)r->flat.n_buckets, sizeof *buckets,
                    "buckets", err));
    for (int64_t i = 0; i < r->flat.n_buckets; i++)
        buckets[i] = r->gradients + r->flat.buckets[i].begin;
    status = gpt_stage_open(&r->stage, r->be, &stage, r->params, buckets, err);
    gpt_free(buckets);
    return status;
}

void gpt_replica_close(struct gpt_replica *r)
{
    if (!r)
        return;
    gpt_stage_close(r->stage);
    gpt_optimizer_close(r->optimizer);
    if (r->gradients)
        r->be->free(r->be, r->gradients);
    if (r->params)
        r->be->free(r->be, r->params);
    if (r->q)
        r->be->queue_close(r->q);
    gpt_flat_free(&r->flat);
    gpt_params_free(&r->table);
    gpt_free(r);
}

int gpt_replica_init(struct gpt_replica *r, struct gpt_err *err)
{
    int64_t largest = 0;
    float *host = NULL;
    int status;

    for (int64_t i = 0; i < r->flat.n; i++)
        largest = gpt_max_i64(largest, r->flat.slices[i].count);
    GPT_TRY(
        gpt_new(&host, (size_t)largest, sizeof *host, "initial values", err));
    for (int64_t i = 0; i < r->flat.n; i++) {
        const struct gpt_slice *s = &r->flat.slices[i];
        gpt_param_init(&r->o.config, s, r->o.seed, host);
        r->be->copy_in(r->q, r->params + s->offset, host,
                       (size_t)s->count * sizeof *host);
        GPT_TRY_GOTO(status, r->be->sync(r->q, err), out);
    }
    status = GPT_OK;
out:
    gpt_free(host);
    return status;
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
