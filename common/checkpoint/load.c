/* Tensors of a source into a rank's buffer; see load.h. Start at
 * gpt_load_boxes(): box by box through one block of host memory, so that
 * loading takes little beside the buffer, whatever the size of the model. */
#include "checkpoint/load.h"

#include "base/num.h"

#include <assert.h>
#include <stdio.h>

/* A difference in the vocabulary's rows is padding. Any other one means that
 * the files do not hold the model that their configuration describes. */
static int check_shape(const struct gpt_source *s, const struct gpt_tensor *t,
                       const struct gpt_param *p, struct gpt_err *err)
{
    bool fits = t->ndim == p->ndim;

    for (int d = 0; fits && d < p->ndim; d++)
        fits = t->shape[d] == p->shape[d] || (d == 0 && p->vocab_rows);
    if (fits)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: tensor '%s' has %d dimensions, %lld x %lld; the "
                    "model's have %d, %lld x %lld",
                    s->dir, t->name, t->ndim, (long long)t->shape[0],
                    (long long)(t->ndim > 1 ? t->shape[1] : 1), p->ndim,
                    (long long)p->shape[0], (long long)p->shape[1]);
}

/* Finds the tensor of a parameter, of the shape that the model has. The word
 * table's copy on the last stage has the parameter's name as well, so both
 * copies are filled from the one tensor of the checkpoint. */
static int find_tensor(const struct gpt_load *load, enum gpt_kind kind,
                       const struct gpt_param *p, const struct gpt_tensor **t,
                       struct gpt_err *err)
{
    char name[GPT_PARAM_NAME + 32];

    snprintf(name, sizeof(name), "%s%s", gpt_kind_prefix(kind), p->name);
    *t = gpt_source_find(load->source, name);
    if (!*t)
        return gpt_fail(err, GPT_EDATA, "%s: no tensor '%s'", load->source->dir,
                        name);
    return check_shape(load->source, *t, p, err);
}

/* Only vocabulary rows may be missing. A shard that begins in rows that the
 * source lacks has nothing to read. The block is used again for the next box,
 * so each box waits for its copy to the device. */
static int load_box(const struct gpt_load *load, enum gpt_kind kind,
                    const struct gpt_owned_box *box, void *block,
                    struct gpt_err *err)
{
    const struct gpt_param *p = box->slice->param;
    const size_t size = gpt_dtype_bytes(load->dtype);
    const struct gpt_tensor *t;
    int64_t begin[GPT_TENSOR_DIMS] = {0}, shape[GPT_TENSOR_DIMS] = {0};
    int64_t count = 1;

    GPT_TRY(find_tensor(load, kind, p, &t, err));
    for (int d = 0; d < p->ndim; d++) {
        begin[d] = box->begin[d];
        shape[d] = box->shape[d];
        if (d == 0 && p->vocab_rows)
            shape[d] =
                gpt_max_i64(0, gpt_min_i64(shape[d], t->shape[d] - begin[d]));
        count *= shape[d];
    }
    assert(count <= box->count);
    if (count == 0)
        return GPT_OK;
    int status = gpt_tensor_gather(t, begin, shape, load->dtype, block, err);
    if (status != GPT_OK)
        return gpt_context(err, "%s", load->source->dir);
    load->be->copy_in(load->q, (char *)load->buffer + (size_t)box->at * size,
                      block, (size_t)count * size);
    return load->be->sync(load->q, err);
}

/* Boxes are read in the order of the buffer. For a rank of a layout like the
 * writer's this is the order of the file, too. */
int gpt_load_boxes(const struct gpt_load *load, enum gpt_kind kind,
                   const struct gpt_ownership *boxes, struct gpt_err *err)
{
    int64_t largest = 0;
    void *block;
    int status = GPT_OK;

    for (size_t i = 0; i < boxes->n; i++)
        largest = gpt_max_i64(largest, boxes->items[i].count);
    GPT_TRY(gpt_new(&block, (size_t)largest, gpt_dtype_bytes(load->dtype),
                    "loading", err));
    for (size_t i = 0; i < boxes->n && status == GPT_OK; i++)
        status = load_box(load, kind, &boxes->items[i], block, err);
    gpt_free(block);
    return status;
}

/* A buffer that is not compact has one box a slice, as every slice is whole
 * rows. Alignment gaps between slices are zero since the allocation. */
int gpt_load_weights(void **weights, const struct gpt_source *source,
                     const struct gpt_flat *flat, enum gpt_dtype dtype,
                     struct gpt_backend *be, struct gpt_err *err)
{
    struct gpt_load load = {.source = source, .be = be, .dtype = dtype};
    struct gpt_ownership boxes;
    int status;

    *weights = NULL;
    GPT_TRY(gpt_ownership_build(&boxes, flat, false, NULL, err));
    GPT_TRY_GOTO(status, be->queue_open(be, &load.q, err), out);
    GPT_TRY_GOTO(status,
                 be->alloc(be, (size_t)flat->elements * gpt_dtype_bytes(dtype),
                           "weights", &load.buffer, err),
                 out);
    status = gpt_load_boxes(&load, GPT_KIND_PARAMETERS, &boxes, err);
out:
    gpt_ownership_free(&boxes);
    if (load.q)
        be->queue_close(load.q);
    if (status != GPT_OK && load.buffer)
        be->free(be, load.buffer);
    else
        *weights = load.buffer;
    return status;
}
