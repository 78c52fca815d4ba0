/* Finding and opening a training's state, and telling weights from moments by
 * their names; see model.h. Dicts within dicts have names with dots, of which
 * nothing but the text tells what is a key and what is a part of the model. A
 * state of an optimizer is known by its key, "state", and the kind at its end;
 * no part of a model is called so. Numbers in place of names, as an optimizer's
 * own state_dict() has them, are names that no weight has.
 *
 * Start at gpt_dcp_model_open(). */
#include "checkpoint/dcp/model.h"

#include "checkpoint/huggingface/huggingface.h"
#include "checkpoint/torch/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding ---- */

/* Megatron-LM's have names of their own, and a front end that knows them. */
static bool holds_dcp(const char *dir)
{
    return gpt_path_holds(dir, GPT_DCP_METADATA) &&
           !gpt_path_holds(dir, GPT_DCP_COMMON);
}

/* False when there is none, or no room for its path; then `out` is any text. */
static bool find_dir(char out[GPT_PATH_BYTES], const char *path,
                     const char *name)
{
    return gpt_path_join(out, GPT_PATH_BYTES, path, name, NULL) == GPT_OK &&
           holds_dcp(out);
}

/* A step may lie in a directory of steps, and of accelerate the weights in that
 * of a step; config.json may be copied to any of them. */
static bool find_config(struct gpt_dcp_model *m)
{
    static const char *const above[] = {"", "/..", "/../.."};

    for (size_t i = 0; i < GPT_COUNT(above); i++) {
        const int n = snprintf(m->root, sizeof(m->root), "%s%s", m->dir,
                               above[i]);

        if (n < (int)sizeof(m->root) && gpt_path_holds(m->root, GPT_HF_CONFIG))
            return true;
    }
    return false;
}

const char *gpt_dcp_fsdp_model(const char *dir)
{
    static const char *const names[] = {GPT_DCP_FSDP_MODEL,
                                        GPT_DCP_FSDP_OLD_MODEL};

    for (size_t i = 0; i < GPT_COUNT(names); i++)
        if (gpt_path_holds(dir, names[i]))
            return names[i];
    return NULL;
}

bool gpt_dcp_model_find(struct gpt_dcp_model *m, const char *path)
{
    const char *model = gpt_dcp_fsdp_model(path);

    /* the path of the weights alone means the optimizer beside them, too */
    m->state_dir[0] = '\0';
    snprintf(m->run_dir, sizeof(m->run_dir), "%s", path);
    if (holds_dcp(path)) {
        char up[GPT_PATH_BYTES];

        if (gpt_path_join(up, sizeof(up), path, "..", NULL) == GPT_OK &&
            gpt_dcp_fsdp_model(up))
            memcpy(m->run_dir, up, sizeof(up));
        snprintf(m->dir, sizeof(m->dir), "%s", path);
        (void)(find_dir(m->state_dir, path, "../" GPT_DCP_FSDP_OPTIMIZER) ||
               (m->state_dir[0] = '\0'));
    } else if (model && find_dir(m->dir, path, model)) {
        (void)(find_dir(m->state_dir, path, GPT_DCP_FSDP_OPTIMIZER) ||
               (m->state_dir[0] = '\0'));
    } else {
        return false;
    }
    return find_config(m);
}

/* ---- names ---- */

/* Where the name of the parameter begins in that of a state, or NULL. */
static const char *find_state(const char *name)
{
    static const char word[] = "state.";
    const char *at = strstr(name, word);

    while (at && at != name && at[-1] != '.')
        at = strstr(at + 1, word);
    return at ? at + strlen(word) : NULL;
}

/* The kind of a tensor, and what its parameter is called; -1 for what an
 * optimizer has beside the state of Adam. */
static int find_kind(struct gpt_dcp_model *m, const char *name,
                     const char **param)
{
    static const char *const words[GPT_DCP_KINDS] = {
        [GPT_KIND_EXP_AVG] = ".exp_avg",
        [GPT_KIND_EXP_AVG_SQ] = ".exp_avg_sq",
        [GPT_DCP_STEP] = ".step",
    };
    const char *state = find_state(name);

    *param = name;
    /* a weight, or a setting of a group, which is a tensor where it changes on
     * a device */
    if (!state)
        return strstr(name, "param_groups.") ? -1 : GPT_KIND_PARAMETERS;
    for (int k = 1; k < GPT_DCP_KINDS; k++)
        if (gpt_path_ends_in(state, words[k])) {
            *param = gpt_arena_printf(&m->arena, "%.*s",
                                      (int)(strlen(state) - strlen(words[k])),
                                      state);
            return k;
        }
    return -1;
}

static int compare_entries(const void *a, const void *b)
{
    const struct gpt_dcp_entry *x = a, *y = b;

    return x->kind != y->kind ? (x->kind > y->kind) - (x->kind < y->kind)
                              : strcmp(x->name, y->name);
}

/* Appends the last word of a state's name, unless it is there. */
static int add_other(struct gpt_dcp_model *m, const char *state,
                     struct gpt_err *err)
{
    enum { LONGEST = 60, MOST = 200 };
    const char *dot = strrchr(state, '.');
    const char *word = dot ? dot + 1 : state, *list = m->others;

    if (list && (strstr(list, word) || strlen(list) > MOST))
        return GPT_OK;
    m->others = gpt_arena_printf(&m->arena, "%s%s%.*s", list ? list : "",
                                 list ? ", " : "", LONGEST, word);
    return m->others ? GPT_OK : gpt_no_memory(err, "what an optimizer has");
}

/* Weights and state of one checkpoint; `state`: of the one beside it nothing
 * but the state of an optimizer, whatever else a program has put there. */
static int add_entries(struct gpt_dcp_model *m, const struct gpt_dcp *d,
                       bool state, struct gpt_err *err)
{
    for (int64_t i = 0; i < d->n; i++) {
        struct gpt_dcp_entry *e = &m->entries[m->n];
        const char *name;
        const int kind = find_kind(m, d->tensors[i].name, &name);

        /* what SGD or Muon keep, and the largest moments of AMSGrad */
        if (kind < 0 && find_state(name))
            GPT_TRY(add_other(m, find_state(name), err));
        if (kind < 0 || (state && kind == GPT_KIND_PARAMETERS))
            continue;
        if (!name)
            return gpt_no_memory(err, "names of parameters");
        GPT_TRY(gpt_hf_unwrap(&name, &m->arena, err));
        *e = (struct gpt_dcp_entry){kind, name, &d->tensors[i], false};
        m->n++;
    }
    return GPT_OK;
}

/* Names that are one without the words of wrappers are those of two models, as
 * of a model and its compiled twin. Moments of two optimizers that have one
 * parameter are refused as well. */
static int sort_entries(struct gpt_dcp_model *m, struct gpt_err *err)
{
    if (m->n)
        qsort(m->entries, (size_t)m->n, sizeof(*m->entries), compare_entries);
    for (int64_t i = 1; i < m->n; i++)
        if (compare_entries(&m->entries[i - 1], &m->entries[i]) == 0)
            return gpt_fail(err, GPT_EDATA,
                            "%s: tensors '%.200s' and '%.200s' are of one "
                            "parameter",
                            m->dir, m->entries[i - 1].tensor->name,
                            m->entries[i].tensor->name);
    return GPT_OK;
}

struct gpt_dcp_entry *gpt_dcp_model_entry(const struct gpt_dcp_model *m,
                                          int kind, const char *name)
{
    const struct gpt_dcp_entry key = {.kind = kind, .name = name};

    return m->n ? bsearch(&key, m->entries, (size_t)m->n, sizeof(*m->entries),
                          compare_entries)
                : NULL;
}

int gpt_dcp_model_keys(struct gpt_dcp_model *m, int kind, const char *name,
                       const char **keys, struct gpt_err *err)
{
    const struct gpt_dcp_entry *found = NULL;

    *keys = NULL;
    for (int64_t i = 0; i < m->n; i++) {
        const struct gpt_dcp_entry *e = &m->entries[i];
        const size_t n = strlen(e->name), tail = strlen(name);
        const size_t before = n >= tail ? n - tail : 0;

        /* "embed_tokens.weight" ends no name of "image_embed_tokens.weight" */
        if (e->kind != kind || n < tail ||
            strcmp(e->name + before, name) != 0 ||
            (before && e->name[before - 1] != '.'))
            continue;
        if (found)
            return gpt_fail(err, GPT_EDATA,
                            "%s: has two models, of '%.200s' and of '%.200s'",
                            m->dir, found->tensor->name, e->tensor->name);
        found = e;
        *keys = gpt_arena_printf(&m->arena, "%.*s", (int)before, e->name);
        if (!*keys)
            return gpt_no_memory(err, "names of tensors");
    }
    return GPT_OK;
}

/* ---- the run ---- */

/* Bytes of the keys around the model's, which other things of the run have,
 * too: of "app.model." those of "app.". */
static size_t outer_keys(const char *keys)
{
    size_t n = strlen(keys);

    for (n -= n > 0; n > 0 && keys[n - 1] != '.'; n--)
        ;
    return n;
}

const char *gpt_dcp_word(const char *keys, const char *name, int *n)
{
    const size_t outer = outer_keys(keys);

    if (strncmp(name, keys, outer) == 0)
        name += outer;
    *n = (int)strcspn(name, ".");
    return name;
}

bool gpt_dcp_is_of_run(const char *name)
{
    static const char *const words[] = {
        "lr_scheduler", "scheduler", "train_state", "trainer", "dataloader",
        "rng_state", "rng", "step", "epoch"};
    const size_t n = strcspn(name, ".");

    /* none of them is a part of a model of transformers */
    for (size_t i = 0; i < GPT_COUNT(words); i++)
        if (strlen(words[i]) == n && strncmp(name, words[i], n) == 0)
            return true;
    return false;
}

/* A count of one element, which PyTorch has in fp32; -1 when it is none. */
static int read_step(const struct gpt_tensor *t, int64_t *step,
                     struct gpt_err *err)
{
    static const int64_t zero[GPT_TENSOR_DIMS];
    float value = -1;

    *step = -1;
    if (t->ndim > 1 || (t->ndim == 1 && t->shape[0] != 1) ||
        t->dtype != GPT_F32)
        return GPT_OK;
    GPT_TRY(gpt_tensor_gather(t, zero, t->shape, GPT_F32, &value, err));
    if (value >= 0 && value < 0x1p53F)
        *step = (int64_t)value;
    return GPT_OK;
}

int gpt_dcp_model_step(const struct gpt_dcp_model *m, int64_t *step,
                       const char **why, struct gpt_err *err)
{
    int64_t count[GPT_DCP_KINDS] = {0}, here;

    *why = NULL;
    *step = -1;
    for (int64_t i = 0; i < m->n; i++) {
        const struct gpt_dcp_entry *e = &m->entries[i];

        count[e->kind]++;
        if (e->kind != GPT_DCP_STEP)
            continue;
        GPT_TRY(read_step(e->tensor, &here, err));
        if (here < 0 || (*step >= 0 && here != *step))
            *why = GPT_TORCH_STEPS_DIFFER;
        *step = here;
    }
    /* other optimizers have none of these, and SGD without momentum nothing */
    if (count[GPT_KIND_EXP_AVG] == 0 || count[GPT_KIND_EXP_AVG_SQ] == 0)
        *why = "there are no moments of Adam";
    else if (count[GPT_DCP_STEP] == 0)
        *why = "Adam's count of steps is missing";
    return GPT_OK;
}

/* ---- opening ---- */

int gpt_dcp_model_open(struct gpt_dcp_model *m, bool optimizer,
                       struct gpt_err *err)
{
    GPT_TRY(gpt_dcp_open(&m->weights, m->dir, err));
    if (optimizer && m->state_dir[0]) {
        GPT_TRY(gpt_dcp_open(&m->state, m->state_dir, err));
        /* files of both stay open, as any may be read at any time */
        GPT_TRY(gpt_in_allow(m->weights->n_files + m->state->n_files, err));
    }
    GPT_TRY(gpt_new(&m->entries,
                    (size_t)(m->weights->n + (m->state ? m->state->n : 0)),
                    sizeof(*m->entries), "tensors", err));
    GPT_TRY(add_entries(m, m->weights, false, err));
    if (m->state)
        GPT_TRY(add_entries(m, m->state, true, err));
    return sort_entries(m, err);
}

/* Also for what failed halfway: what was not made is zero. */
void gpt_dcp_model_close(struct gpt_dcp_model *m)
{
    gpt_dcp_close(m->weights);
    gpt_dcp_close(m->state);
    gpt_free(m->entries);
    gpt_arena_free(&m->arena);
    *m = (struct gpt_dcp_model){0};
}
