/* See adam.h. */
#include "checkpoint/torch/adam.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { NAME = GPT_TORCH_PATH + 16 };

/* ---- whose state it is ---- */

/* Settings that groups of other optimizers have, which keep Adam's two moments
 * and take other steps by them. */
static const struct {
    const char *setting, *optimizer;
} others[] = {
    {"momentum_decay", "NAdam"},
    {"grad_averaging", "LAMB"},
    {"max_coeff", "LAMB"},
    {"trust_clip", "LAMB"},
    {"wd_ratio", "AdamP"},
    {"shampoo_beta", "SOAP"},
    {"d_coef", "Prodigy"},
    {"N_sma_threshhold", "Ranger"},
    {"degenerated_to_sgd", "RAdam"},
    {"update_proj_gap", "GaLore"},
    {"clip_exp", "ADOPT"},
};

static bool is_off(const struct gpt_pickle_value *v)
{
    return v && (v->kind == GPT_PICKLE_BOOL || v->kind == GPT_PICKLE_INT) &&
           v->i == 0;
}

/* PyTorch's Adam and AdamW have had amsgrad since they exist; its RAdam has
 * never, nor SparseAdam a weight decay. */
const char *gpt_torch_adam_denied(const struct gpt_pickle_value *group,
                                  struct gpt_arena *arena)
{
    const char *why;

    for (size_t i = 0; i < GPT_COUNT(others); i++) {
        if (!gpt_pickle_find(group, others[i].setting))
            continue;
        why = gpt_arena_printf(arena,
                               "it is that of %s, whose groups have '%s'",
                               others[i].optimizer, others[i].setting);
        return why ? why : "it is that of another optimizer than Adam";
    }
    if (!gpt_pickle_find(group, "amsgrad") &&
        (gpt_pickle_find(group, "foreach") ||
         gpt_pickle_find(group, "decoupled_weight_decay")))
        return gpt_pickle_find(group, "weight_decay")
                   ? "it is that of RAdam, whose groups have no 'amsgrad'"
                   : "it is not that of Adam: its groups have no 'amsgrad'";
    if (gpt_pickle_find(group, "betas") &&
        !gpt_pickle_find(group, "weight_decay"))
        return "it is that of SparseAdam, whose groups have no 'weight_decay'";
    if (is_off(gpt_pickle_find(group, "correct_bias")) ||
        is_off(gpt_pickle_find(group, "bias_correction")))
        return "it is of Adam without the correction of bias, which is not "
               "computed";
    return NULL;
}

/* What no program is known to have in Adam's groups is said: a user's own
 * settings, or an optimizer of his. */
static void report_settings(const struct gpt_torch_adam *a,
                            const struct gpt_torch *t, struct gpt_arena *arena)
{
    static const char *const known[] = {
        "params", "param_names", "lr", "betas", "eps", "weight_decay",
        "amsgrad", "maximize", "foreach", "capturable", "differentiable",
        "fused", "decoupled_weight_decay", "correct_bias", "bias_correction",
        "step", "adam_w_mode", "initial_lr", "lr_scale", "max_lr", "min_lr",
        "max_momentum", "base_momentum", "swa_lr", "name", "group_name", NULL};
    const char *own = gpt_pickle_others(a->groups[0], known, arena);

    if (own)
        gpt_warn("%s: groups of its optimizer have %s, which Adam's have not: "
                 "its state is read as Adam's", gpt_in_path(t->in), own);
}

/* ---- the state ---- */

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
    for (int64_t i = 0; !*why && i < a->n_groups; i++)
        *why = gpt_torch_adam_denied(a->groups[i], arena);
    if (*why)
        return GPT_OK;
    report_settings(a, t, arena);
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
