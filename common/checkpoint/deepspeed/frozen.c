/* Parameters that a run of DeepSpeed did not train. They are in no vector of
 * the optimizer, and have no moments. The states of the model have them, whole
 * in stages 1 and 2, and in stage 3 each rank's states have an equal part of
 * each. Start at gpt_deepspeed_add_frozen() and gpt_deepspeed_find_frozen(). */
#include "checkpoint/deepspeed/deepspeed.h"

#include "base/num.h"
#include "checkpoint/huggingface/huggingface.h"
#include "checkpoint/safetensors/entry.h"

#include <stdio.h>

/* Only stages 2 and 3 write it, and null where all are trained. */
static const struct gpt_pickle_value *frozen_of(const struct gpt_deepspeed *d)
{
    return gpt_pickle_mapping(
        gpt_pickle_find(d->model.root, "frozen_param_shapes"));
}

int64_t gpt_deepspeed_count_frozen(const struct gpt_deepspeed *d)
{
    const struct gpt_pickle_value *map = frozen_of(d);

    return map ? gpt_pickle_pairs(map) : 0;
}

/* Scalars are none: every parameter of a model here is a vector or a matrix. */
int gpt_deepspeed_read_param(struct gpt_deepspeed *d,
                             const struct gpt_pickle_value *key,
                             const struct gpt_pickle_value *size,
                             struct gpt_deepspeed_param *p, int64_t *n,
                             struct gpt_err *err)
{
    const char *file = gpt_in_path(d->model.in);
    int64_t shape[2];
    int ndim;

    *n = 1;
    p->name = key->kind == GPT_PICKLE_STRING
                  ? gpt_arena_printf(&d->arena, "%.*s", (int)key->n, key->text)
                  : NULL;
    if (!p->name || !gpt_pickle_sizes(size, 2, shape, &ndim))
        return gpt_fail(err, GPT_EDATA, "%s: a parameter without name or shape",
                        file);
    for (int i = 0; i < ndim; i++)
        if (!gpt_mul(*n, shape[i], n))
            return gpt_fail(err, GPT_EDATA, "%s: a shape that is none", file);
    for (int k = 0; k < GPT_N_ADAM_KINDS; k++)
        p->kinds[k] = gpt_tensor_make(p->name, GPT_F32, ndim, shape);
    return GPT_OK;
}

/* The states of all ranks but the first, whose parts are read at any time. */
static int open_others(struct gpt_deepspeed *d, struct gpt_err *err)
{
    const int64_t ranks = d->n_files;
    char path[GPT_PATH_BYTES], name[96];

    GPT_TRY(gpt_new(&d->others, (size_t)ranks, sizeof(*d->others), "files",
                    err));
    GPT_TRY(gpt_in_allow(2 * ranks + 2, err));
    for (int64_t rank = 1; rank < ranks; rank++) {
        snprintf(name, sizeof(name),
                 "zero_pp_rank_%lld_mp_rank_00_model_states.pt",
                 (long long)rank);
        GPT_TRY(gpt_path_join(path, sizeof(path), d->dir, name, err));
        if (!gpt_path_exists(path)) {
            gpt_fail(err, GPT_EDATA,
                     "%s: missing, though it has a part of each parameter that "
                     "was frozen", path);
            return gpt_hint(err, "copy the directory of the step whole");
        }
        GPT_TRY(gpt_torch_open(&d->others[d->n_others], path, err));
        d->n_others++;
    }
    return GPT_OK;
}

/* What one file has of a parameter: elements [first, first + n). A part is
 * filled up to the length of the others. */
static int add_fragment(const struct gpt_torch *t, struct gpt_tensor *to,
                        int64_t first, int64_t n, struct gpt_err *err)
{
    const struct gpt_pickle_value *v =
        gpt_pickle_find(gpt_pickle_find(t->root, "frozen_param_fragments"),
                        to->name);
    struct gpt_torch_tensor part;
    int64_t held = 1;

    if (!v || !gpt_torch_is_tensor(v))
        return gpt_fail(err, GPT_EDATA,
                        "%s: frozen_param_fragments has no tensor '%.200s'",
                        gpt_in_path(t->in), to->name);
    GPT_TRY(gpt_torch_tensor(t, to->name, v, &part, err));
    for (int k = 0; k < part.ndim; k++)
        held *= part.shape[k]; /* of elements that are in the file */
    if (!part.tight || !gpt_dtype_is_float(part.dtype) || held < n)
        return gpt_fail(err, GPT_EDATA,
                        "%s: '%.200s' in frozen_param_fragments has %lld "
                        "elements in a row, of %lld",
                        gpt_in_path(t->in), to->name, (long long)held,
                        (long long)n);
    gpt_tensor_widen(to, part.dtype);
    return gpt_tensor_add_span(to, t->in, part.begin, part.dtype, first,
                               first + n, err);
}

/* An equal part of each rank; the last may have less. */
static int add_parts(struct gpt_deepspeed *d, struct gpt_tensor *to, int64_t n,
                     struct gpt_err *err)
{
    const int64_t part = (n + d->n_files - 1) / d->n_files;

    for (int64_t rank = 0; rank < d->n_files && rank * part < n; rank++)
        GPT_TRY(add_fragment(rank ? &d->others[rank - 1] : &d->model, to,
                             rank * part, gpt_min_i64(part, n - rank * part),
                             err));
    return GPT_OK;
}

/* The count of ranks is that of their files, which has been compared with the
 * run's. */
int gpt_deepspeed_add_frozen(struct gpt_deepspeed *d, struct gpt_err *err)
{
    const struct gpt_pickle_value *map = frozen_of(d), *key, *value;
    const int64_t frozen = gpt_deepspeed_count_frozen(d);

    if (frozen)
        GPT_TRY(open_others(d, err));
    for (int64_t i = 0; i < frozen; i++) {
        struct gpt_deepspeed_param *p = &d->params[d->n];
        int64_t n;

        gpt_pickle_pair(map, i, &key, &value);
        GPT_TRY(gpt_deepspeed_read_param(d, key, value, p, &n, err));
        d->n++;
        d->n_frozen++;
        GPT_TRY(add_parts(d, &p->kinds[GPT_KIND_PARAMETERS], n, err));
    }
    return GPT_OK;
}

/* The state dict of the model has all parameters, in the type that was computed
 * in. It is listed once, at the first that the optimizer does not have. */
int gpt_deepspeed_find_frozen(struct gpt_deepspeed *d, const char *name,
                              struct gpt_deepspeed_param **param,
                              struct gpt_err *err)
{
    const struct gpt_pickle_value *module =
        gpt_pickle_find(d->model.root, "module");

    *param = NULL;
    if (!module)
        return GPT_OK;
    /* names of entries are those of parameters, which outlive this call */
    if (!d->states.tensors) {
        GPT_TRY(gpt_torch_list(&d->states, &d->model, module, err));
        GPT_TRY(gpt_hf_unwrap_names(&d->states, gpt_in_path(d->model.in), err));
    }
    const struct gpt_safetensor *entry = gpt_safetensors_find(&d->states, name);
    if (!entry || entry->ndim < 1 || entry->ndim > 2 ||
        !gpt_dtype_is_float(entry->dtype))
        return GPT_OK;
    GPT_TRY(gpt_grow(&d->whole, &d->cap_whole, d->n_whole + 1,
                     sizeof(*d->whole), "parameters", err));
    *param = gpt_arena_alloc(&d->arena, 1, sizeof(**param));
    if (!*param)
        return gpt_no_memory(err, "parameters");
    struct gpt_tensor *t = &(*param)->kinds[GPT_KIND_PARAMETERS];
    **param = (struct gpt_deepspeed_param){.name = entry->name};
    *t = gpt_tensor_make(entry->name, entry->dtype, entry->ndim, entry->shape);
    d->whole[d->n_whole++] = *param;
    d->n_frozen++;
    return gpt_stored_add(t, d->model.in, entry, err);
}
