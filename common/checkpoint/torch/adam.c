/* See adam.h. */
#include "checkpoint/torch/adam.h"

#include <stdio.h>
#include <string.h>

enum { NAME = GPT_TORCH_PATH + 16 };

/* Tensors that are not read, as those of 8 bits of torchao, are none of Adam
 * here, and no failure. */
static int list_moments(struct gpt_torch_adam *a, const struct gpt_torch *t,
                        const struct gpt_pickle_value *state,
                        struct gpt_arena *arena, const char **why,
                        struct gpt_err *err)
{
    struct gpt_err inner = {0};
    const int status =
        gpt_torch_list(&a->moments, t, state, err ? &inner : NULL);

    if (status == GPT_EDATA) {
        *why = gpt_arena_strdup(arena, inner.text);
        return *why ? GPT_OK : gpt_no_memory(err, "a message");
    }
    if (status != GPT_OK && err)
        *err = inner;
    return status;
}

static int read_step(struct gpt_torch_adam *a, const struct gpt_torch *t,
                     const struct gpt_pickle_value *state, const char **why,
                     struct gpt_err *err)
{
    const struct gpt_pickle_value *key, *value;

    for (int64_t i = 0; !*why && i < a->n; i++) {
        gpt_pickle_pair(state, i, &key, &value);
        GPT_TRY(gpt_torch_step(t, value, i == 0, &a->step, why, err));
        if (a->step < 0)
            *why = "it does not say its step";
    }
    return GPT_OK;
}

int gpt_torch_adam_open(struct gpt_torch_adam *a, const struct gpt_torch *t,
                        const struct gpt_pickle_value *optimizer,
                        struct gpt_arena *arena, const char **why,
                        struct gpt_err *err)
{
    const struct gpt_pickle_value *state =
        gpt_pickle_mapping(gpt_pickle_find(optimizer, "state"));
    const struct gpt_pickle_value *key, *first = NULL;

    *a = (struct gpt_torch_adam){0};
    *why = "there is none";
    a->n = state ? gpt_pickle_pairs(state) : 0;
    if (a->n == 0)
        return GPT_OK;
    gpt_pickle_pair(state, 0, &key, &first);
    if (!gpt_torch_is_adam(first, arena, &a->others)) {
        *why = gpt_torch_not_adam(a->others, arena);
        return GPT_OK;
    }
    *why = "it has no groups of parameters";
    if (!gpt_pickle_sequence(gpt_pickle_find(optimizer, "param_groups"),
                             &a->groups, &a->n_groups) || a->n_groups < 1)
        return GPT_OK;
    *why = NULL;
    GPT_TRY(list_moments(a, t, state, arena, why, err));
    return *why ? GPT_OK : read_step(a, t, state, why, err);
}

void gpt_torch_adam_close(struct gpt_torch_adam *a)
{
    gpt_safetensors_close(&a->moments);
    *a = (struct gpt_torch_adam){0};
}

const struct gpt_safetensor *
gpt_torch_adam_moment(const struct gpt_torch_adam *a, enum gpt_kind kind,
                      const char *key)
{
    char path[NAME];
    const int n =
        snprintf(path, sizeof(path), "%s.%s", key, gpt_torch_adam_keys[kind]);

    return n < NAME ? gpt_safetensors_find(&a->moments, path) : NULL;
}

struct gpt_pickle_value **gpt_torch_adam_list(const struct gpt_torch_adam *a,
                                              int64_t group, const char *key,
                                              int64_t *n)
{
    struct gpt_pickle_value **items = NULL;

    *n = 0;
    return gpt_pickle_sequence(gpt_pickle_find(a->groups[group], key), &items,
                               n)
               ? items
               : NULL;
}

/* Dimensions that a tensor does not have are not looked at. */
bool gpt_torch_adam_fits(const struct gpt_torch_adam *a, const char *key,
                         int ndim, const int64_t *shape,
                         const struct gpt_safetensor **other)
{
    for (int k = 1; k < GPT_N_ADAM_KINDS; k++) {
        const struct gpt_safetensor *e =
            gpt_torch_adam_moment(a, (enum gpt_kind)k, key);

        *other = e;
        if (!e || e->ndim != ndim ||
            memcmp(e->shape, shape, (size_t)ndim * sizeof(*shape)) != 0)
            return false;
    }
    return true;
}
