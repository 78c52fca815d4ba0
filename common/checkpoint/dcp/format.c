/* The front end of checkpoints that torch.distributed.checkpoint wrote of
 * models of transformers: a row of checkpoint/format.h, read only. The rules of
 * huggingface/family.c, or of titan.c, make our parameters of them, of moments
 * as of weights.
 *
 * A tensor is found in two steps. The word table, which every model has, tells
 * the keys that a program put around the state dict of its model; all other
 * names are looked up behind these keys, and by bisection, as a model of many
 * layers has thousands. The optimizer's names are found in the same way, behind
 * keys of its own.
 *
 * Weights must be there exactly, each of them and no other: what is too much
 * would be computed by a part that this model does not have. State of the
 * optimizer is taken whole or not at all, and a warning says why not.
 *
 * Start at open_dcp(). */
#include "checkpoint/dcp/model.h"
#include "checkpoint/format.h"
#include "checkpoint/huggingface/trainer.h"
#include "checkpoint/run_state.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { NAME = GPT_PARAM_NAME + 320 };

struct dcp_source {
    struct gpt_dcp_model files;
    struct gpt_hf_extra extra;
    const char *keys[GPT_DCP_KINDS]; /* before names, of each kind */
    struct gpt_hf_importer model;
    int64_t step; /* of Adam */
    bool has_optimizer;
    cJSON *state;
};

/* By names of files; a directory without config.json is none of a model that is
 * known here. */
static bool recognise_dcp(const char *path)
{
    struct gpt_dcp_model m = {0};

    return gpt_dcp_model_find(&m, path);
}

/* What FSDP and its users save, without what says which model it is.
 * Megatron-LM's have a file of their own beside. */
static bool explain_dcp(const char *dir, struct gpt_err *err)
{
    if (recognise_dcp(dir) || (!gpt_path_holds(dir, GPT_DCP_METADATA) &&
                               !gpt_dcp_fsdp_model(dir)))
        return false;
    gpt_hint(err, "it is of torch.distributed.checkpoint: copy %s of the "
                  "model, which transformers' save_pretrained() writes, into "
                  "it or beside it", GPT_HF_CONFIG);
    return true;
}

/* What was not made is zero. */
static void close_dcp(struct gpt_source *s)
{
    struct dcp_source *d = s->data;

    if (!d)
        return;
    gpt_hf_importer_free(&d->model);
    gpt_dcp_model_close(&d->files);
    cJSON_Delete(d->state);
    gpt_free(d);
}

/* ---- tensors ---- */

/* The tensor of a kind that is `name` in the model's state dict, or NULL. */
static struct gpt_dcp_entry *find_entry(const struct dcp_source *d, int kind,
                                        const char *name)
{
    char whole[NAME];
    const int n = snprintf(whole, sizeof(whole), "%s%s", d->keys[kind], name);

    return n < NAME ? gpt_dcp_model_entry(&d->files, kind, whole) : NULL;
}

/* For the importer: state of a parameter has its weight's name. */
static int find_tensor(void *context, enum gpt_kind kind, const char *name,
                       struct gpt_hf_found *found, struct gpt_err *err)
{
    struct gpt_dcp_entry *e = find_entry(context, (int)kind, name);

    (void)err;
    if (e) {
        found->tensor = *e->tensor;
        found->used = &e->used;
    }
    return GPT_OK;
}

/* The word table, the first rule of its family, is in every model: it tells
 * which keys are before its names, and whether the base model was saved. */
static int find_model(struct gpt_source *s, struct gpt_err *err)
{
    struct dcp_source *d = s->data;
    const struct gpt_hf_family *titan =
        gpt_dcp_titan(&d->files, d->extra.family->model_type);
    const struct gpt_hf_family *family = titan ? titan : d->extra.family;
    const struct gpt_dcp *w = d->files.weights;
    const char **keys = &d->keys[GPT_KIND_PARAMETERS];
    char name[NAME];

    d->model.family = family;
    d->model.prefix = family->prefix;
    gpt_hf_word_name(name, sizeof(name), family, family->prefix);
    GPT_TRY(gpt_dcp_model_keys(&d->files, GPT_KIND_PARAMETERS, name, keys,
                               err));
    /* AutoModel is the base model: its names lack the prefix */
    if (!*keys) {
        d->model.prefix = "";
        GPT_TRY(gpt_dcp_model_keys(&d->files, GPT_KIND_PARAMETERS,
                                   family->rules[0].name, keys, err));
    }
    if (*keys)
        return GPT_OK;
    gpt_fail(err, GPT_EDATA,
             "%s: no tensor '%s'; the first of %lld is '%.200s'", s->at, name,
             (long long)w->n, w->n ? w->tensors[0].name : "");
    return gpt_hint(err, "names must be those of a model of transformers, of "
                         "the type that config.json says, or, of llama and "
                         "qwen3, those of torchtitan");
}

/* ---- the optimizer ---- */

/* True when a moment of each tensor that a parameter was made of is there. The
 * optimizer has keys of its own before names, and those of the model behind
 * them where the model was a part of what was trained. */
static int has_moments(struct gpt_source *s, int kind, bool *all,
                       struct gpt_err *err)
{
    struct dcp_source *d = s->data;
    const size_t skip = strlen(d->keys[GPT_KIND_PARAMETERS]);
    char name[NAME];

    gpt_hf_word_name(name, sizeof(name), d->model.family, d->model.prefix);
    GPT_TRY(gpt_dcp_model_keys(&d->files, kind, name, &d->keys[kind], err));
    *all = d->keys[kind] != NULL;
    for (int64_t i = 0; *all && i < d->files.n; i++) {
        const struct gpt_dcp_entry *e = &d->files.entries[i];

        if (e->kind == GPT_KIND_PARAMETERS && e->used)
            *all = find_entry(d, kind, e->name + skip) != NULL;
    }
    return GPT_OK;
}

/* A run whose optimizer has state of some parameters alone is none that could
 * go on here, where all of them are trained. */
static int import_state(struct gpt_source *s, struct gpt_err *err)
{
    struct dcp_source *d = s->data;
    const char *why;

    GPT_TRY(gpt_dcp_model_step(&d->files, &d->step, &why, err));
    for (int k = 1; !why && k < GPT_N_ADAM_KINDS; k++) {
        bool all;

        GPT_TRY(has_moments(s, k, &all, err));
        if (!all)
            why = "not every parameter has moments of Adam under its name";
    }
    const char *others = d->files.others;
    if (why) {
        gpt_warn("%s: weights alone are read: %s%s%s", s->at, why,
                 others ? ", but " : "", others ? others : "");
        return GPT_OK;
    }
    if (others)
        GPT_TRY(gpt_source_leave_out(s, others, (int)strlen(others), err));
    d->has_optimizer = true;
    for (int k = 1; k < GPT_N_ADAM_KINDS; k++) {
        d->model.keys[k] = d->keys[k];
        GPT_TRY(gpt_hf_import_kind(&d->model, (enum gpt_kind)k, err));
    }
    return GPT_OK;
}

/* ---- what is left ---- */

/* Appends the first word of a name, unless it is there, or is the optimizer's,
 * of which a message of its own tells. */
static int leave_out(struct gpt_source *s, const char *name,
                     struct gpt_err *err)
{
    const struct dcp_source *d = s->data;
    int n;
    const char *word = gpt_dcp_word(d->keys[GPT_KIND_PARAMETERS], name, &n);
    const char *at = s->left_out;

    if (strncmp(word, "optim", 5) == 0 || strncmp(word, "state", 5) == 0 ||
        strncmp(word, "param_groups", 12) == 0)
        return GPT_OK;
    /* words of the list so far, with ", " between them */
    for (; at && *at; at += at[0] == ',' ? 2 : 0) {
        const size_t held = strcspn(at, ",");

        if (held == (size_t)n && strncmp(at, word, held) == 0)
            return GPT_OK;
        at += held;
    }
    return gpt_source_leave_out(s, word, n, err);
}

/* A tensor of the model that is no parameter means that it computes something
 * that this one does not. What has other keys is of the run. */
static int check_rest(struct gpt_source *s, struct gpt_err *err)
{
    const struct dcp_source *d = s->data;
    const char *keys = d->keys[GPT_KIND_PARAMETERS];
    const size_t skip = strlen(keys);

    for (int64_t i = 0; i < d->files.n; i++) {
        const struct gpt_dcp_entry *e = &d->files.entries[i];
        /* without keys everything begins as the model's names do */
        const bool inside = strncmp(e->name, keys, skip) == 0 &&
                            (skip > 0 || !gpt_dcp_is_of_run(e->name));

        if (e->kind != GPT_KIND_PARAMETERS || e->used)
            continue;
        GPT_TRY(inside ? gpt_hf_import_check(&d->model, e->name + skip,
                                             e->tensor->name, NULL, err)
                       : leave_out(s, e->name, err));
    }
    /* schedules and places in data are objects of Python, and are not read */
    for (int64_t i = 0; i < d->files.weights->n_objects; i++)
        GPT_TRY(leave_out(s, d->files.weights->objects[i], err));
    return GPT_OK;
}

/* ---- the source ---- */

static int import_tensors(struct gpt_source *s, bool optimizer,
                          struct gpt_err *err)
{
    struct dcp_source *d = s->data;

    d->model.where = s->at;
    d->model.config = &s->config;
    d->model.find = find_tensor;
    d->model.context = d;
    d->model.n_held = d->files.n;
    for (int64_t i = 0; i < d->files.weights->n_files; i++)
        d->model.bytes += gpt_in_size(d->files.weights->files[i].in);
    GPT_TRY(find_model(s, err));
    d->model.keys[GPT_KIND_PARAMETERS] = d->keys[GPT_KIND_PARAMETERS];
    GPT_TRY(gpt_hf_import_model(&d->model, err));
    if (optimizer)
        GPT_TRY(import_state(s, err));
    return check_rest(s, err);
}

/* The run's place is that of Trainer's own file, or else Adam's count, which is
 * all that tensors say of it. */
static int make_state(struct gpt_source *s, struct gpt_err *err)
{
    struct dcp_source *d = s->data;

    /* a step that was skipped for its gradients is not counted there either */
    if (d->has_optimizer)
        s->iteration = gpt_hf_trainer_steps(d->files.run_dir, d->step);
    d->state = gpt_run_state_make(s->iteration, 0, 0);
    if (d->has_optimizer)
        gpt_run_state_put_run(d->state, d->step, GPT_RUN_SEED_UNKNOWN,
                              "torch.distributed.checkpoint");
    else
        cJSON_AddStringToObject(d->state, GPT_RUN_CONVERTED, "dcp");
    gpt_run_state_put_tokens(d->state, s->bos_token_id, s->eos_token_id,
                             &s->ends);
    gpt_run_state_put_family(d->state, s->family);
    s->state = d->state;
    return d->state ? GPT_OK : gpt_no_memory(err, "the state of a run");
}

/* Files of accelerate's two directories have the same names. */
static const char *name_file(struct gpt_source *s, int part, const char *name)
{
    const struct dcp_source *d = s->data;
    const char *model = gpt_dcp_fsdp_model(d->files.run_dir);

    return model && d->files.state_dir[0]
               ? gpt_arena_printf(&s->arena, "%s/%s",
                                  part ? GPT_DCP_FSDP_OPTIMIZER : model, name)
               : name;
}

/* Those of the weights, and of the optimizer where it has a directory. */
static int list_files(struct gpt_source *s, struct gpt_err *err)
{
    const struct dcp_source *d = s->data;
    const struct gpt_dcp *parts[] = {d->files.weights, d->files.state};
    const int64_t n =
        parts[0]->n_files + (parts[1] ? parts[1]->n_files : 0);
    struct gpt_source_file *files =
        gpt_arena_alloc(&s->arena, (size_t)n, sizeof(*files));

    if (!files)
        return gpt_no_memory(err, "names of files");
    for (int k = 0; k < 2 && parts[k]; k++)
        for (int64_t i = 0; i < parts[k]->n_files; i++) {
            struct gpt_source_file *f = &files[s->n_files++];

            *f = (struct gpt_source_file){
                .name = name_file(s, k, parts[k]->files[i].name),
                .bytes = gpt_in_size(parts[k]->files[i].in),
                .tensors = parts[k]->files[i].parts,
            };
            if (!f->name)
                return gpt_no_memory(err, "names of files");
            s->weight_bytes += f->bytes;
        }
    s->files = files;
    GPT_TRY(gpt_hf_import_attached(s, NULL, err));
    return strcmp(d->files.run_dir, s->dir) != 0
               ? gpt_hf_trainer_leave_out(s, d->files.run_dir, NULL,
                                          err)
               : GPT_OK;
}

static int open_dcp(struct gpt_source *s, const char *path,
                    const struct gpt_source_options *o, struct gpt_err *err)
{
    struct dcp_source *d;

    /* from here on close_dcp() frees it, also after a failure */
    GPT_TRY(gpt_new(&d, 1, sizeof(*d), "a checkpoint", err));
    s->data = d;
    if (!gpt_dcp_model_find(&d->files, path))
        return gpt_fail(err, GPT_EDATA,
                        "%s: no checkpoint of torch.distributed.checkpoint",
                        path);
    s->dir = d->files.root;
    s->at = d->files.dir;
    GPT_TRY(gpt_hf_import_config(&s->config, &d->extra, NULL, s->dir,
                                 o->divisible_by, o->tp_size, &s->arena, err));
    gpt_hf_import_extra(s, &d->extra);
    GPT_TRY(gpt_dcp_model_open(&d->files, o->optimizer, err));
    GPT_TRY(import_tensors(s, o->optimizer, err));
    s->tensors = d->model.tensors;
    s->n_tensors = d->model.n;
    GPT_TRY(make_state(s, err));
    return list_files(s, err);
}

/* Tensors under their names there, whole: those of the run, and of an optimizer
 * that is not read, too. */
static int list_dcp(const struct gpt_source *s, gpt_stored_visit *visit,
                    void *context, struct gpt_err *err)
{
    const struct dcp_source *d = s->data;
    const struct gpt_dcp *parts[] = {d->files.weights, d->files.state};

    for (int k = 0; k < 2 && parts[k]; k++)
        for (int64_t i = 0; i < parts[k]->n; i++) {
            const struct gpt_stored stored =
                gpt_stored_tensor(&parts[k]->tensors[i]);

            GPT_TRY(visit(context, &stored, err));
        }
    return GPT_OK;
}

const struct gpt_format gpt_format_dcp = {
    .name = "dcp",
    .title = "torch.distributed.checkpoint",
    .recognises = recognise_dcp,
    .open = open_dcp,
    .close = close_dcp,
    .list = list_dcp,
    .explain = explain_dcp,
};
