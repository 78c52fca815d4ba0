/* The front end of DeepSpeed's checkpoints: a row of checkpoint/format.h, read
 * only. Parameters have the names of transformers' models, so the rules of
 * huggingface/family.c make ours of them, of moments as of weights. Start at
 * open_deepspeed(). */
#include "checkpoint/deepspeed/deepspeed.h"
#include "checkpoint/format.h"
#include "checkpoint/huggingface/importer.h"
#include "checkpoint/run_state.h"

#include "base/log.h"
#include "base/num.h"

#include <stdlib.h>
#include <string.h>

enum { NAME = GPT_PARAM_NAME + 64 };

struct deepspeed_source {
    struct gpt_deepspeed files;
    struct gpt_hf_extra extra;
    struct gpt_hf_importer model;
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
    gpt_hf_importer_free(&d->model);
    gpt_deepspeed_close(&d->files);
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

/* For the importer. What was not trained is looked for by whole names, once
 * there is a table: the states of the model have the tied output layer, too, in
 * the type that was computed in, which is no other than the word table. */
static int find_tensor(void *context, enum gpt_kind kind, const char *name,
                       struct gpt_hf_found *found, struct gpt_err *err)
{
    struct deepspeed_source *d = context;
    struct gpt_deepspeed_param *param = find_param(&d->files, name);

    if (!param && d->model.table.n > 0)
        GPT_TRY(gpt_deepspeed_find_frozen(&d->files, name, &param, err));
    if (param) {
        found->tensor = param->kinds[kind];
        found->used = &param->used;
    }
    return GPT_OK;
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

/* Universal checkpoints have a file a tensor, the others large ones. */
static int64_t count_bytes(const struct gpt_deepspeed *d)
{
    int64_t bytes = d->model_file ? gpt_in_size(d->model.in) : 0;

    for (int64_t i = 0; i < d->n_files; i++)
        bytes += gpt_in_size(d->files[i].in);
    return bytes;
}

/* Weights first: they tell whether there are moments of all parameters.
 * All parameters there are parameters here; the word table tells whether they
 * have the family's prefix. */
static int import_tensors(struct gpt_source *s, struct gpt_err *err)
{
    struct deepspeed_source *d = s->data;
    const struct gpt_hf_family *family = d->extra.family;
    char name[NAME];

    /* of torch.compile() and of layers that are computed again */
    for (int64_t i = 0; i < d->files.n; i++)
        GPT_TRY(gpt_hf_unwrap(&d->files.params[i].name, &d->files.arena, err));
    if (d->files.n)
        qsort(d->files.params, (size_t)d->files.n, sizeof(*d->files.params),
              compare_params);
    gpt_hf_word_name(name, sizeof(name), family, family->prefix);
    const bool whole = find_param(&d->files, name) ||
                       !find_param(&d->files, family->rules[0].name);
    d->model = (struct gpt_hf_importer){
        .where = s->at,
        .config = &s->config,
        .family = family,
        .find = find_tensor,
        .context = d,
        .n_held = d->files.n,
        .bytes = count_bytes(&d->files),
        .prefix = whole ? family->prefix : "",
    };
    GPT_TRY(gpt_hf_import_model(&d->model, err));
    leave_state(s);
    for (int k = 1; d->files.has_optimizer && k < GPT_N_ADAM_KINDS; k++)
        GPT_TRY(gpt_hf_import_kind(&d->model, (enum gpt_kind)k, err));
    for (int64_t i = 0; i < d->files.n; i++)
        if (!d->files.params[i].used)
            GPT_TRY(gpt_hf_import_check(&d->model, d->files.params[i].name,
                                        d->files.params[i].name, NULL, err));
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
    return d->files.has_optimizer && d->files.beside
               ? gpt_source_leave_out(s, d->files.beside,
                                      (int)strlen(d->files.beside), err)
               : GPT_OK;
}

/* ---- the source ---- */

static void list_file(struct gpt_source *s, struct gpt_source_file *to,
                      const char *name, const struct gpt_torch *t)
{
    *to = (struct gpt_source_file){name, gpt_in_size(t->in), t->n_storages};
    s->weight_bytes += to->bytes;
    s->n_files++;
}

/* The ranks' files, in their order, one file a tensor, or the model's alone. */
static int list_files(struct gpt_source *s, struct gpt_err *err)
{
    const struct deepspeed_source *source = s->data;
    const struct gpt_deepspeed *d = &source->files;
    struct gpt_source_file *files = gpt_arena_alloc(
        &s->arena, (size_t)gpt_max_i64(d->n_files, 1), sizeof(*files));

    if (!files)
        return gpt_no_memory(err, "names of files");
    s->files = files;
    for (int64_t i = 0; i < d->n_files; i++)
        list_file(s, &files[i], d->file_names[i], &d->files[i]);
    if (d->n_files == 0)
        list_file(s, files, d->model_file, &d->model);
    return gpt_hf_import_attached(s, NULL, err);
}

static int open_deepspeed(struct gpt_source *s, const char *path,
                          const struct gpt_source_options *o,
                          struct gpt_err *err)
{
    struct deepspeed_source *d;

    /* from here on close_deepspeed() frees it, also after a failure */
    GPT_TRY(gpt_new(&d, 1, sizeof(*d), "a checkpoint", err));
    s->data = d;
    if (!gpt_deepspeed_find(&d->files, path))
        return gpt_fail(err, GPT_EDATA, "%s: no checkpoint of DeepSpeed", path);
    s->dir = d->files.root;
    s->at = d->files.dir;
    GPT_TRY(gpt_hf_import_config(&s->config, &d->extra, NULL, s->dir,
                                 o->divisible_by, o->tp_size, &s->arena, err));
    /* what a text begins and ends with goes along into other formats */
    gpt_hf_import_extra(s, &d->extra);
    GPT_TRY(gpt_deepspeed_open(&d->files, o->optimizer, err));
    GPT_TRY(gpt_deepspeed_check_heads(&d->files, s->config.num_attention_heads,
                                      err));
    GPT_TRY(import_tensors(s, err));
    s->tensors = d->model.tensors;
    s->n_tensors = d->model.n;
    GPT_TRY(make_state(s, err));
    return list_files(s, err);
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
