/* The front end of DeepSpeed's checkpoints: a row of checkpoint/format.h, read
 * only. Parameters have the names of transformers' models, so the rules of
 * huggingface/family.c make ours of them, of moments as of weights. Start at
 * open_deepspeed(). */
#include "checkpoint/deepspeed/deepspeed.h"
#include "checkpoint/format.h"
#include "checkpoint/huggingface/huggingface.h"
#include "checkpoint/run_state.h"

#include "base/log.h"
#include "base/num.h"

#include <stdlib.h>
#include <string.h>

enum { NAME = GPT_PARAM_NAME + 64, CONFIG_LIMIT = 1 << 20 };

struct deepspeed_source {
    struct gpt_deepspeed files;
    struct gpt_hf_extra extra;
    struct gpt_param_table table;
    struct gpt_tensor *tensors;
    int64_t n;
    cJSON *state;
};

/* By names of files; a directory without config.json is none of a model that is
 * known here. */
static bool recognise_deepspeed(const char *path)
{
    struct gpt_deepspeed d = {0};

    return gpt_deepspeed_find(&d, path);
}

/* What was not made is zero. */
static void close_deepspeed(struct gpt_source *s)
{
    struct deepspeed_source *d = s->data;

    if (!d)
        return;
    for (int64_t i = 0; i < d->n; i++)
        gpt_tensor_free(&d->tensors[i]);
    gpt_deepspeed_close(&d->files);
    gpt_free(d->tensors);
    gpt_params_free(&d->table);
    cJSON_Delete(d->state);
    gpt_free(d);
}

/* ---- tensors ---- */

/* For lookups by bisection, once for each rule of each parameter. */
static int compare_params(const void *a, const void *b)
{
    const struct gpt_deepspeed_param *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static struct gpt_deepspeed_param *find_param(const struct gpt_deepspeed *d,
                                              const char *name)
{
    const struct gpt_deepspeed_param key = {.name = name};

    return d->n ? bsearch(&key, d->params, (size_t)d->n, sizeof(*d->params),
                          compare_params)
                : NULL;
}

/* What one tensor there holds of a parameter. Dummy rows that padding adds
 * repeat the last row of weights; of moments they are zero, as no step has
 * touched them. */
static int import_part(struct gpt_source *s, const struct gpt_param *p,
                       const struct gpt_hf_rule *rule, const char *prefix,
                       enum gpt_kind kind, struct gpt_tensor *here,
                       struct gpt_err *err)
{
    struct deepspeed_source *d = s->data;
    struct gpt_deepspeed_param *param;
    const struct gpt_tensor *there;
    int64_t shape[2];
    char name[NAME];

    gpt_hf_name(name, sizeof(name), rule, p, prefix);
    gpt_hf_shape(&s->config, rule, p, shape);
    param = find_param(&d->files, name);
    if (!param)
        GPT_TRY(gpt_deepspeed_find_frozen(&d->files, name, &param, err));
    if (!param)
        return gpt_fail(err, GPT_EDATA, "%s: no parameter '%s'", s->dir, name);
    /* as a weight or as a moment: the kinds have the same parameters */
    param->used = true;
    there = &param->kinds[kind];
    if (!there->name)
        return gpt_fail(err, GPT_EDATA, "%s: parameter '%s' has no moments",
                        s->dir, name);
    if (there->ndim != p->ndim || there->shape[0] != shape[0] ||
        (p->ndim == 2 && there->shape[1] != shape[1]))
        return gpt_fail(err, GPT_EDATA,
                        "%s: parameter '%s' has %d dimensions, %lld x %lld; "
                        "config.json says %lld x %lld",
                        s->dir, name, there->ndim, (long long)there->shape[0],
                        (long long)there->shape[1], (long long)shape[0],
                        (long long)shape[1]);
    gpt_tensor_widen(here, there->dtype);
    return p->vocab_rows
               ? gpt_tensor_resize(here, there, kind == GPT_KIND_PARAMETERS,
                                   err)
               : gpt_hf_import(here, there, &s->config, rule, p, err);
}

/* One tensor of a kind for each parameter, under the names of native ones. */
static int import_kind(struct gpt_source *s, enum gpt_kind kind,
                       const char *prefix, struct gpt_err *err)
{
    struct deepspeed_source *d = s->data;

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
            GPT_TRY(import_part(s, p, rule, prefix, kind, here, err));
        if (here->n == 0)
            return gpt_fail(err, GPT_EDATA,
                            "%s: model_type %s has no tensor for '%s'", s->dir,
                            d->extra.family->model_type, p->name);
    }
    return GPT_OK;
}

/* The output layer that is the word table has a name of its own in universal
 * checkpoints. */
static bool is_tied_output(const struct gpt_source *s, const char *name)
{
    const struct deepspeed_source *d = s->data;
    const char *output = gpt_hf_output_name(d->extra.family);

    return s->config.tied_embeddings && output && strcmp(name, output) == 0;
}

/* A run whose optimizer has state of some parameters alone is none that could
 * go on here, where all of them are trained. */
static void leave_state(struct gpt_source *s)
{
    struct deepspeed_source *d = s->data;

    if (d->files.n_frozen == 0)
        return;
    gpt_warn("%s: %lld of its parameters %s frozen and %s no optimizer state: "
             "weights alone are converted",
             s->at, (long long)d->files.n_frozen,
             d->files.n_frozen == 1 ? "was" : "were",
             d->files.n_frozen == 1 ? "has" : "have");
    d->files.has_optimizer = false;
}

/* Weights first: they tell whether there are moments of all parameters.
 * All parameters there are parameters here; the word table tells whether they
 * have the family's prefix. */
static int import_tensors(struct gpt_source *s, struct gpt_err *err)
{
    struct deepspeed_source *d = s->data;
    const struct gpt_hf_family *family = d->extra.family;
    const struct gpt_param words = {.role = GPT_WORD_EMBEDDING};
    char name[NAME];

    if (d->files.n)
        qsort(d->files.params, (size_t)d->files.n, sizeof(*d->files.params),
              compare_params);
    gpt_hf_name(name, sizeof(name), &family->rules[0], &words, family->prefix);
    /* what was not trained is looked for by whole names */
    const char *prefix = find_param(&d->files, name) ||
                                 !find_param(&d->files, family->rules[0].name)
                             ? family->prefix
                             : "";
    /* a table is no larger than the files justify */
    if (s->config.num_layers > d->files.n)
        return gpt_fail(err, GPT_EDATA,
                        "%s: config.json says %lld layers, the files hold "
                        "%lld parameters",
                        s->dir, (long long)s->config.num_layers,
                        (long long)d->files.n);
    GPT_TRY(gpt_params_build(&d->table, &s->config, err));
    GPT_TRY(gpt_new(&d->tensors, (size_t)(d->table.n * GPT_N_ADAM_KINDS),
                    sizeof(*d->tensors), "tensors", err));
    GPT_TRY(import_kind(s, GPT_KIND_PARAMETERS, prefix, err));
    leave_state(s);
    for (int k = 1; d->files.has_optimizer && k < GPT_N_ADAM_KINDS; k++)
        GPT_TRY(import_kind(s, (enum gpt_kind)k, prefix, err));
    for (int64_t i = 0; i < d->files.n; i++)
        if (!d->files.params[i].used &&
            !is_tied_output(s, d->files.params[i].name))
            return gpt_fail(err, GPT_EDATA,
                            "%s: parameter '%.200s' is not one of a model of "
                            "model_type %s",
                            s->dir, d->files.params[i].name,
                            family->model_type);
    return GPT_OK;
}

/* ---- the run ---- */

/* What is read, and what says nothing that tensors and files do not say. What a
 * program added of its own, and states of random numbers, are named. */
static const char *const known_keys[] = {
    "module", "buffer_names", "optimizer", "param_shapes",
    "frozen_param_shapes", "frozen_param_fragments", "shared_params",
    "global_steps", "global_samples", "skipped_steps", "dp_world_size",
    "mp_world_size", "ds_config", "ds_version", "zero_to_fp32",
    "universal_checkpoint_info", "checkpoint_parallel_dimensions",
    "sparse_tensor_module_names", NULL};

/* What is kept of a run: its place. DeepSpeed's schedulers are objects of a
 * program, and say only how often they were called; so the schedule of a run
 * that goes on is that of its options. */
static int make_state(struct gpt_source *s, struct gpt_err *err)
{
    struct deepspeed_source *d = s->data;
    const struct gpt_pickle_value *root = d->files.model.root;
    int64_t steps = 0, samples = 0;

    /* a universal checkpoint may have been copied without the states of its
     * run; then Adam's count is all that is known */
    if (root) {
        (void)gpt_pickle_int(gpt_pickle_find(root, "global_steps"), &steps);
        (void)gpt_pickle_int(gpt_pickle_find(root, "global_samples"),
                             &samples);
    } else {
        steps = gpt_max_i64(d->files.step, 0);
    }
    if (steps < 0 || steps >= GPT_JSON_EXACT || samples < 0 ||
        samples >= GPT_JSON_EXACT)
        return gpt_fail(err, GPT_EDATA,
                        "%s: global_steps or global_samples are out of range",
                        s->dir);
    s->iteration = steps;
    d->state = gpt_run_state_make(steps, samples, 0);
    if (d->files.has_optimizer)
        gpt_run_state_put_run(d->state,
                              d->files.step < 0 ? steps : d->files.step,
                              GPT_RUN_SEED_UNKNOWN, "DeepSpeed");
    else
        cJSON_AddStringToObject(d->state, GPT_RUN_CONVERTED, "deepspeed");
    gpt_run_state_put_tokens(d->state, s->bos_token_id, s->eos_token_id,
                             &s->ends);
    gpt_run_state_put_family(d->state, s->family);
    s->state = d->state;
    s->left_out = gpt_pickle_others(root, known_keys, &s->arena);
    return GPT_OK;
}

/* ---- the source ---- */

/* The ranks' files, in their order, or one file a tensor. */
static int list_files(struct gpt_source *s, struct gpt_err *err)
{
    const struct deepspeed_source *d = s->data;
    struct gpt_source_file *files =
        gpt_arena_alloc(&s->arena, (size_t)d->files.n_files, sizeof(*files));
    const char **attached =
        gpt_arena_alloc(&s->arena, GPT_HF_VOCAB_FILES, sizeof(*attached));

    if (!files || !attached)
        return gpt_no_memory(err, "names of files");
    for (int64_t i = 0; i < d->files.n_files; i++) {
        files[i] = (struct gpt_source_file){
            .name = d->files.file_names[i],
            .bytes = gpt_in_size(d->files.files[i].in),
            .tensors = d->files.files[i].n_storages,
        };
        s->weight_bytes += files[i].bytes;
    }
    s->files = files;
    s->n_files = d->files.n_files;
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
    struct deepspeed_source *d = s->data;
    char path[GPT_PATH_BYTES];
    cJSON *json;

    GPT_TRY(gpt_path_join(path, sizeof(path), s->dir, GPT_HF_CONFIG, err));
    GPT_TRY(gpt_json_read(&json, path, CONFIG_LIMIT, err));
    int status = gpt_hf_config_parse(&s->config, &d->extra, json, path, err);
    cJSON_Delete(json);
    GPT_TRY(status);
    return gpt_config_complete(&s->config, gpt_max_i64(o->divisible_by, 1),
                               gpt_max_i64(o->tp_size, 1), err);
}

static int open_alone(struct gpt_source *s, const char *path,
                      const struct gpt_source_options *o, struct gpt_err *err)
{
    struct deepspeed_source *d;

    /* from here on close_deepspeed() frees it, also after a failure */
    GPT_TRY(gpt_new(&d, 1, sizeof(*d), "a checkpoint", err));
    s->data = d;
    if (!gpt_deepspeed_find(&d->files, path))
        return gpt_fail(err, GPT_EDATA, "%s: no checkpoint of DeepSpeed", path);
    s->dir = d->files.root;
    s->at = d->files.dir;
    s->tp_size = s->pp_size = 1;
    GPT_TRY(read_config(s, o, err));
    /* what a text begins and ends with goes along into other formats */
    s->bos_token_id = d->extra.bos_token_id;
    s->eos_token_id = d->extra.eos_token_id;
    s->family = d->extra.family->model_type;
    s->ends = d->extra.ends;
    GPT_TRY(gpt_deepspeed_open(&d->files, o->optimizer, err));
    GPT_TRY(import_tensors(s, err));
    s->tensors = d->tensors;
    s->n_tensors = d->n;
    GPT_TRY(make_state(s, err));
    return list_files(s, err);
}

/* Every rank opens all the files, of which it reads headers and pickles. */
static int open_deepspeed(struct gpt_source *s, const char *path,
                          const struct gpt_source_options *o,
                          struct gpt_err *err)
{
    return gpt_agreement_settle(o->peers, open_alone(s, path, o, err), "", NULL,
                                err);
}

/* Parameters under their names there, whole. */
static int list_deepspeed(const struct gpt_source *s, gpt_stored_visit *visit,
                          void *context, struct gpt_err *err)
{
    const struct deepspeed_source *d = s->data;

    for (int64_t i = 0; i < d->files.n; i++) {
        const struct gpt_stored stored =
            gpt_stored_tensor(&d->files.params[i].kinds[0]);

        GPT_TRY(visit(context, &stored, err));
    }
    return GPT_OK;
}

const struct gpt_format gpt_format_deepspeed = {
    .name = "deepspeed",
    .title = "deepspeed",
    .recognises = recognise_deepspeed,
    .open = open_deepspeed,
    .close = close_deepspeed,
    .list = list_deepspeed,
};
