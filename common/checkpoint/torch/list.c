/* Tensors in a file of torch.save() as a list of safetensors, so that weights
 * of either kind of file are read in one way. What is no plain tensor has no
 * row there: it is refused where it may be a weight. Start at
 * gpt_torch_open_tensors(). */
#include "checkpoint/torch/torch.h"

#include "checkpoint/safetensors/internal.h"

#include <string.h>

struct listing {
    const struct gpt_torch *t;
    struct gpt_safetensors *st;
    size_t cap;
};

/* Sparse and quantised tensors, those of ranks and those without elements are
 * made by other functions. Such a weight would seem to be missing. */
static int check_value(const struct listing *l, const char *path,
                       const struct gpt_pickle_value *v, struct gpt_err *err)
{
    const struct gpt_pickle_value *callee =
        v->kind == GPT_PICKLE_OBJECT ? v->callee : NULL;

    if (!callee || callee->kind != GPT_PICKLE_GLOBAL ||
        (!strstr(callee->text, "Tensor") && !strstr(callee->text, "_rebuild_")))
        return GPT_OK;
    gpt_fail(err, GPT_EDATA,
             "%s: tensor '%.200s' is made by %.200s, which is not read",
             gpt_in_path(l->t->in), path, callee->text);
    return gpt_hint(err, "save plain tensors, with all their elements: see "
                         "to_dense(), dequantize() and full_tensor() of "
                         "PyTorch");
}

/* A gpt_torch_visit. Values that are no tensors are left out: a state dict has
 * none that matter to weights. */
static int list_tensor(void *context, const char *path,
                       const struct gpt_pickle_value *v,
                       const struct gpt_torch_tensor *tensor,
                       struct gpt_err *err)
{
    struct listing *l = context;
    struct gpt_safetensors *st = l->st;

    if (!tensor)
        return check_value(l, path, v, err);
    if (tensor->dtype == GPT_N_DTYPES)
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%.200s' is of type %s, which is not read",
                        gpt_in_path(l->t->in), path, tensor->type);
    GPT_TRY(gpt_grow(&st->tensors, &l->cap, (size_t)st->n + 1,
                     sizeof(*st->tensors), "tensors", err));
    struct gpt_safetensor *to = &st->tensors[st->n];
    *to = (struct gpt_safetensor){
        .name = gpt_arena_strdup(&st->arena, path),
        .dtype = tensor->dtype,
        .ndim = tensor->ndim,
        .begin = tensor->begin,
        .end = tensor->end,
    };
    memcpy(to->shape, tensor->shape, sizeof(to->shape));
    int64_t *strides = NULL;
    if (!tensor->tight)
        strides = gpt_arena_alloc(&st->arena, 1, sizeof(tensor->stride));
    if (!to->name || (!tensor->tight && !strides))
        return gpt_no_memory(err, "tensors");
    if (strides)
        memcpy(strides, tensor->stride, sizeof(tensor->stride));
    to->strides = strides;
    st->n++;
    return GPT_OK;
}

/* Names are copied, so the list outlives the tree. A name that comes twice is
 * refused, as one of the two would be lost. */
int gpt_torch_list(struct gpt_safetensors *st, const struct gpt_torch *t,
                   const struct gpt_pickle_value *from, struct gpt_err *err)
{
    struct listing l = {.t = t, .st = st};
    int status;

    *st = (struct gpt_safetensors){0};
    GPT_TRY_GOTO(status, gpt_torch_walk(t, from, list_tensor, &l, err), fail);
    GPT_TRY_GOTO(status, gpt_safetensors_index(st, gpt_in_path(t->in), err),
                 fail);
    return GPT_OK;
fail:
    gpt_safetensors_close(st);
    return status;
}

/* The file stays open for the tensors' elements; the tree is not needed any
 * more. */
int gpt_torch_open_tensors(struct gpt_safetensors *st, const char *path,
                           struct gpt_err *err)
{
    struct gpt_torch t;

    *st = (struct gpt_safetensors){0};
    GPT_TRY(gpt_torch_open(&t, path, err));
    int status = gpt_torch_list(st, &t, t.root, err);
    if (status == GPT_OK) {
        st->in = t.in;
        t.in = NULL;
    }
    gpt_torch_close(&t);
    return status;
}
