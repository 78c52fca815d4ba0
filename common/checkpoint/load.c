/* Parameters from a checkpoint into a rank's flat buffer; see load.h. */
#include "checkpoint/load.h"

#include "base/memory.h"
#include "base/num.h"

static int64_t largest_slice(const struct gpt_flat *flat)
{
    int64_t most = 0;

    for (int64_t i = 0; i < flat->n; i++)
        most = gpt_max_i64(most, flat->slices[i].count);
    return most;
}

static int load_slice(struct gpt_checkpoint *c, const struct gpt_slice *slice,
                      enum gpt_dtype act, void *staging, struct gpt_err *err)
{
    struct gpt_tensor_slice want = {
        .name = slice->param->name,
        .dtype = act,
        .ndim = slice->param->ndim,
    };

    for (int d = 0; d < want.ndim; d++) {
        want.begin[d] = slice->begin[d];
        want.shape[d] = slice->shape[d];
    }
    return gpt_checkpoint_read(c, &want, staging, err);
}

/* The staging block is used again: each slice waits for its copy. */
static int load_all(char *weights, struct gpt_checkpoint *c,
                    const struct gpt_flat *flat, enum gpt_dtype act,
                    struct gpt_backend *be, struct gpt_queue *q,
                    void *staging, struct gpt_err *err)
{
    size_t bytes = gpt_dtype_bytes(act);

    for (int64_t i = 0; i < flat->n; i++) {
        const struct gpt_slice *slice = &flat->slices[i];

        GPT_TRY(load_slice(c, slice, act, staging, err));
        be->copy_in(q, weights + (size_t)slice->offset * bytes, staging,
                    (size_t)slice->count * bytes);
        GPT_TRY(be->sync(q, err));
    }
    return GPT_OK;
}

int gpt_load_weights(void **weights, struct gpt_checkpoint *c,
                     const struct gpt_flat *flat, enum gpt_dtype act,
                     struct gpt_backend *be, struct gpt_err *err)
{
    size_t bytes = gpt_dtype_bytes(act);
    struct gpt_queue *q = NULL;
    void *staging = NULL;

    *weights = NULL;
    int rc = be->queue_open(be, &q, err);
    if (rc == GPT_OK)
        rc = gpt_new(&staging, (size_t)largest_slice(flat), bytes,
                     "a parameter", err);
    if (rc == GPT_OK)
        rc = be->alloc(be, (size_t)flat->elements * bytes, "weights", weights,
                       err);
    if (rc == GPT_OK)
        rc = load_all(*weights, c, flat, act, be, q, staging, err);
    if (rc != GPT_OK && *weights) {
        be->free(be, *weights);
        *weights = NULL;
    }
    gpt_free(staging);
    if (q)
        be->queue_close(q);
    return rc;
}
