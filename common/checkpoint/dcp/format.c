/* The front end of checkpoints that torch.distributed.checkpoint wrote of
 * models of transformers: a row of checkpoint/format.h, read only. The rules of
 * huggingface/family.c make our parameters of them, of moments as of weights.
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
#include "checkpoint/huggingface/huggingface.h"
#include "checkpoint/run_state.h"

#include "base/log.h"
#include "base/num.h"

#include <stdio.h>
#include <string.h>

enum { NAME = GPT_PARAM_NAME + 320, CONFIG_LIMIT = 1 << 20 };

struct dcp_source {
    struct gpt_dcp_model files;
    struct gpt_hf_extra extra;
    const char *keys[GPT_DCP_KINDS]; /* before names, of each kind */
    const char *prefix;              /* of the base model, or "" */
    struct gpt_param_table table;
    struct gpt_tensor *tensors;
    int64_t n;
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

/* What was not made is zero. */
static void close_dcp(struct gpt_source *s)
{
    struct dcp_source *d = s->data;

    if (!d)
        return;
    for (int64_t i = 0; i < d->n; i++)
        gpt_tensor_free(&d->tensors[i]);
    gpt_dcp_model_close(&d->files);
    gpt_free(d->tensors);
    gpt_params_free(&d->table);
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

/* What one tensor there holds of a parameter. Dummy rows that padding adds
 * repeat the last row of weights; of moments they are zero, as no step has
 * touched them. */
static int import_part(struct gpt_source *s, const struct gpt_param *p,
                       const struct gpt_hf_rule *rule, enum gpt_kind kind,
                       struct gpt_tensor *here, struct gpt_err *err)
{
    struct dcp_source *d = s->data;
    int64_t shape[2];
    char name[NAME];

    gpt_hf_name(name, sizeof(name), rule, p, d->prefix);
    gpt_hf_shape(&s->config, rule, p, shape);
    struct gpt_dcp_entry *e = find_entry(d, (int)kind, name);
    if (!e) {
        gpt_fail(err, GPT_EDATA, "%s: no tensor '%s%s'", s->at, d->keys[kind],
                 name);
        return gpt_hint(err, "config.json describes another model than the "
                             "files hold");
    }
    /* moments have the shape of their weight, and are compared as it is: their
     * files may be of another run */
    e->used = true;
    const struct gpt_tensor *there = e->tensor;
    if (there->ndim != p->ndim || there->shape[0] != shape[0] ||
        (p->ndim == 2 && there->shape[1] != shape[1]))
        return gpt_fail(err, GPT_EDATA,
                        "%s: tensor '%.200s' has %d dimensions, %lld x %lld; "
                        "config.json says %lld x %lld",
                        s->at, there->name, there->ndim,
                        (long long)there->shape[0], (long long)there->shape[1],
                        (long long)shape[0], (long long)shape[1]);
    if (!gpt_dtype_is_float(there->dtype))
        return gpt_fail(err, GPT_EDATA, "%s: tensor '%.200s' is of type %s",
                        s->at, there->name, gpt_dtype_name(there->dtype));
    gpt_tensor_widen(here, there->dtype);
    return p->vocab_rows
               ? gpt_tensor_resize(here, there, kind == GPT_KIND_PARAMETERS,
                                   err)
               : gpt_hf_import(here, there, &s->config, rule, p, err);
}

/* One tensor of a kind for each parameter, under the names of native ones. */
static int import_kind(struct gpt_source *s, enum gpt_kind kind,
                       struct gpt_err *err)
{
    struct dcp_source *d = s->data;

    for (int64_t i = 0; i < d->table.n; i++) {
        const struct gpt_param *p = &d->table.rows[i];
        const struct gpt_hf_rule *rule;
        const char *name = gpt_arena_printf(&s->arena, "%s%s",
                                            gpt_kind_prefix(kind), p->name);
        struct gpt_tensor *here = &d->tensors[d->n];
        size_t at = 0;

        /* names outlive the table, which belongs to this source, too */
        if (!name)
            return gpt_no_memory(err, "names of tensors");
        *here = gpt_tensor_make(name, GPT_F32, p->ndim, p->shape);
        d->n++;
        while ((rule = gpt_hf_next_rule(d->extra.family, p, &at)))
            GPT_TRY(import_part(s, p, rule, kind, here, err));
        if (here->n == 0)
            return gpt_fail(err, GPT_EDATA,
                            "%s: model_type %s has no tensor for '%s'", s->at,
                            d->extra.family->model_type, p->name);
    }
    return GPT_OK;
}

/* The word table, the first rule of its family, is in every model: it tells
 * which keys are before its names, and whether the base model was saved. */
static int find_model(struct gpt_source *s, struct gpt_err *err)
{
    struct dcp_source *d = s->data;
    const struct gpt_hf_family *family = d->extra.family;
    const struct gpt_dcp *w = d->files.weights;
    const struct gpt_param words = {.role = GPT_WORD_EMBEDDING};
    const char **keys = &d->keys[GPT_KIND_PARAMETERS];
    char name[NAME];

    d->prefix = family->prefix;
    gpt_hf_name(name, sizeof(name), &family->rules[0], &words, d->prefix);
    GPT_TRY(gpt_dcp_model_keys(&d->files, GPT_KIND_PARAMETERS, name, keys,
                               err));
    /* AutoModel is the base model: its names lack the prefix */
    if (!*keys) {
        d->prefix = "";
        GPT_TRY(gpt_dcp_model_keys(&d->files, GPT_KIND_PARAMETERS,
                                   family->rules[0].name, keys, err));
    }
    if (*keys)
        return GPT_OK;
    gpt_fail(err, GPT_EDATA,
             "%s: no tensor '%s'; the first of %lld is '%.200s'", s->at, name,
             (long long)w->n, w->n ? w->tensors[0].name : "");
    return gpt_hint(err, "names must be those of a model of transformers, of "
                         "the type that config.json says");
}

/* A file may have an output layer although config.json says that the embedding
 * serves as one: a copy is left out, another one is loaded, as
 * huggingface/read.c does. What is larger than its files is no copy, and is not
 * read. */
static int settle_head(struct gpt_source *s, struct gpt_err *err)
{
    struct dcp_source *d = s->data;
    const struct gpt_param words = {.role = GPT_WORD_EMBEDDING};
    const char *output = gpt_hf_output_name(d->extra.family);
    char name[NAME];
    bool equal;

    gpt_hf_name(name, sizeof(name), &d->extra.family->rules[0], &words,
                d->prefix);
    const struct gpt_dcp_entry *in = find_entry(d, GPT_KIND_PARAMETERS, name);
    const struct gpt_dcp_entry *out =
        output ? find_entry(d, GPT_KIND_PARAMETERS, output) : NULL;
    int64_t held = 0, bytes;
    for (int64_t i = 0; i < d->files.weights->n_files; i++)
        held += gpt_in_size(d->files.weights->files[i].in);
    if (!s->config.tied_embeddings || !in || !out || in->tensor->ndim != 2 ||
        !gpt_mul(in->tensor->shape[0], in->tensor->shape[1], &bytes) ||
        bytes > held)
        return GPT_OK;
    GPT_TRY(gpt_tensor_equal(&equal, in->tensor, out->tensor, err));
    s->config.tied_embeddings = equal;
    if (!equal)
        gpt_warn("%s: %s says tie_word_embeddings, but %s is not the "
                 "embedding: it is loaded as an output layer of its own",
                 s->at, GPT_HF_CONFIG, out->tensor->name);
    return GPT_OK;
}

/* ---- the optimizer ---- */

/* True when a moment of each tensor that a parameter was made of is there. The
 * optimizer has keys of its own before names, and those of the model behind
 * them where the model was a part of what was trained. */
static int has_moments(struct gpt_source *s, int kind, bool *all,
                       struct gpt_err *err)
{
    struct dcp_source *d = s->data;
    const struct gpt_param words = {.role = GPT_WORD_EMBEDDING};
    const size_t skip = strlen(d->keys[GPT_KIND_PARAMETERS]);
    char name[NAME];

    gpt_hf_name(name, sizeof(name), &d->extra.family->rules[0], &words,
                d->prefix);
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
    if (why) {
        gpt_warn("%s: weights alone are read: %s", s->at, why);
        return GPT_OK;
    }
    d->has_optimizer = true;
    for (int k = 1; k < GPT_N_ADAM_KINDS; k++)
        GPT_TRY(import_kind(s, (enum gpt_kind)k, err));
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
    s->left_out = gpt_arena_printf(&s->arena, "%s%s%.*s",
                                   s->left_out ? s->left_out : "",
                                   s->left_out ? ", " : "", n, word);
    return s->left_out ? GPT_OK : gpt_no_memory(err, "names of tensors");
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

        if (e->kind != GPT_KIND_PARAMETERS || e->used ||
            (inside && gpt_hf_ignores(d->extra.family, &s->config,
                                      e->name + skip)))
            continue;
        if (inside)
            return gpt_fail(err, GPT_EDATA,
                            "%s: tensor '%.200s' is not one of a model of "
                            "model_type %s",
                            s->at, e->tensor->name,
                            d->extra.family->model_type);
        GPT_TRY(leave_out(s, e->name, err));
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

    /* whether there is an output layer decides what the table has */
    GPT_TRY(find_model(s, err));
    GPT_TRY(settle_head(s, err));
    /* a table is no larger than the files justify */
    if (s->config.num_layers > d->files.n)
        return gpt_fail(err, GPT_EDATA,
                        "%s: config.json says %lld layers, the files hold "
                        "%lld tensors",
                        s->at, (long long)s->config.num_layers,
                        (long long)d->files.n);
    GPT_TRY(gpt_params_build(&d->table, &s->config, err));
    GPT_TRY(gpt_new(&d->tensors, (size_t)(d->table.n * GPT_N_ADAM_KINDS),
                    sizeof(*d->tensors), "tensors", err));
    GPT_TRY(import_kind(s, GPT_KIND_PARAMETERS, err));
    if (optimizer)
        GPT_TRY(import_state(s, err));
    return check_rest(s, err);
}

/* The run's place is Adam's count, which is all that tensors say of it. */
static int make_state(struct gpt_source *s, struct gpt_err *err)
{
    struct dcp_source *d = s->data;

    /* a step that was skipped for its gradients is not counted there either */
    if (d->has_optimizer)
        s->iteration = d->step;
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

/* Those of the weights, and of the optimizer where it has a directory. */
static int list_files(struct gpt_source *s, struct gpt_err *err)
{
    const struct dcp_source *d = s->data;
    const struct gpt_dcp *parts[] = {d->files.weights, d->files.state};
    const int64_t n =
        parts[0]->n_files + (parts[1] ? parts[1]->n_files : 0);
    struct gpt_source_file *files =
        gpt_arena_alloc(&s->arena, (size_t)n, sizeof(*files));
    const char **attached =
        gpt_arena_alloc(&s->arena, GPT_HF_VOCAB_FILES, sizeof(*attached));

    if (!files || !attached)
        return gpt_no_memory(err, "names of files");
    for (int k = 0; k < 2 && parts[k]; k++)
        for (int64_t i = 0; i < parts[k]->n_files; i++) {
            struct gpt_source_file *f = &files[s->n_files++];

            *f = (struct gpt_source_file){
                .name = parts[k]->files[i].name,
                .bytes = gpt_in_size(parts[k]->files[i].in),
                .tensors = parts[k]->files[i].parts,
            };
            s->weight_bytes += f->bytes;
        }
    s->files = files;
    for (const char *const *f = gpt_hf_vocab_files; *f; f++)
        if (gpt_path_holds(s->dir, *f))
            attached[s->n_attached++] = *f;
    s->attached = attached;
    return GPT_OK;
}

/* config.json first: it is small, and says what the files must hold. */
static int read_config(struct gpt_source *s, const struct gpt_source_options *o,
                       struct gpt_err *err)
{
    struct dcp_source *d = s->data;
    char path[GPT_PATH_BYTES];
    cJSON *json;
    int status;

    GPT_TRY(gpt_path_join(path, sizeof(path), s->dir, GPT_HF_CONFIG, err));
    GPT_TRY(gpt_json_read(&json, path, CONFIG_LIMIT, err));
    GPT_TRY_GOTO(status, gpt_hf_config_parse(&s->config, &d->extra, json, path,
                                             err),
                 out);
    status = gpt_hf_read_generation(&d->extra, s->dir, json,
                                    s->config.vocab_size, &s->arena, err);
out:
    cJSON_Delete(json);
    GPT_TRY(status);
    s->bos_token_id = d->extra.bos_token_id;
    s->eos_token_id = d->extra.eos_token_id;
    s->family = d->extra.family->model_type;
    s->ends = d->extra.ends;
    s->unused_settings = d->extra.unused_settings;
    return gpt_config_complete(&s->config, gpt_max_i64(o->divisible_by, 1),
                               gpt_max_i64(o->tp_size, 1), err);
}

static int open_alone(struct gpt_source *s, const char *path,
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
    s->tp_size = s->pp_size = 1;
    GPT_TRY(read_config(s, o, err));
    GPT_TRY(gpt_dcp_model_open(&d->files, o->optimizer, err));
    GPT_TRY(import_tensors(s, o->optimizer, err));
    s->tensors = d->tensors;
    s->n_tensors = d->n;
    GPT_TRY(make_state(s, err));
    return list_files(s, err);
}

/* Every rank opens all the files, of which it reads headers alone, and of a
 * tied output layer and Adam's counts the elements. */
static int open_dcp(struct gpt_source *s, const char *path,
                    const struct gpt_source_options *o, struct gpt_err *err)
{
    return gpt_agreement_settle(o->peers, open_alone(s, path, o, err), "", NULL,
                                err);
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
};
