/* Entries of safetensors and of files like them: see entry.h. */
#include "checkpoint/safetensors/entry.h"

#include <assert.h>
#include <string.h>

static_assert((int)GPT_STORED_DIMS == (int)GPT_SAFETENSORS_DIMS,
              "an entry is listed with its whole shape");

struct gpt_stored gpt_stored_entry(const struct gpt_safetensor *entry,
                                   const char *file)
{
    struct gpt_stored stored = {
        .name = entry->name,
        .file = file,
        .dtype = entry->dtype,
        .ndim = entry->ndim,
        .slices = 1,
    };

    memcpy(stored.shape, entry->shape, sizeof(stored.shape));
    return stored;
}

/* Entries of safetensors are tight; those of other files may be any view. */
int gpt_stored_add(struct gpt_tensor *t, struct gpt_in *in,
                   const struct gpt_safetensor *entry, struct gpt_err *err)
{
    static const int64_t zero[GPT_TENSOR_DIMS];
    struct gpt_file_box box = {
        .in = in, .offset = entry->begin, .dtype = entry->dtype};

    assert(entry->ndim == t->ndim);
    if (!entry->strides)
        return gpt_tensor_add_rows(t, in, entry->begin, entry->dtype, zero,
                                   entry->shape, err);
    memcpy(box.shape, entry->shape, (size_t)t->ndim * sizeof(*box.shape));
    memcpy(box.stride, entry->strides, (size_t)t->ndim * sizeof(*box.stride));
    return gpt_tensor_add(t, &box, err);
}

/* Views may repeat elements, and would make a small file a long read: what is
 * larger than its file is equal to nothing. */
int gpt_stored_equal(bool *equal, struct gpt_in *in_a,
                     const struct gpt_safetensor *a, struct gpt_in *in_b,
                     const struct gpt_safetensor *b, struct gpt_err *err)
{
    int64_t bytes;
    int status;

    *equal = a->ndim > 0 && a->ndim <= 2 && b->ndim > 0 && b->ndim <= 2 &&
             gpt_safetensor_bytes(a, &bytes) && bytes <= gpt_in_size(in_a);
    if (!*equal)
        return GPT_OK;
    struct gpt_tensor x = gpt_tensor_make(a->name, a->dtype, a->ndim, a->shape);
    struct gpt_tensor y = gpt_tensor_make(b->name, b->dtype, b->ndim, b->shape);
    GPT_TRY_GOTO(status, gpt_stored_add(&x, in_a, a, err), out);
    GPT_TRY_GOTO(status, gpt_stored_add(&y, in_b, b, err), out);
    status = gpt_tensor_equal(equal, &x, &y, err);
out:
    gpt_tensor_free(&x);
    gpt_tensor_free(&y);
    return status;
}
