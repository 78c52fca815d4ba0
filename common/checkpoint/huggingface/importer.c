/* See importer.h. The match of parameters and tensors is exact in both
 * directions. A parameter without a tensor would stay untrained, and a tensor
 * without a parameter means that the model computes something that this one
 * does not; neither would show before the texts do. */
#include "checkpoint/huggingface/importer.h"

#include "base/log.h"
#include "base/num.h"
#include "checkpoint/huggingface/trainer.h"
#include "checkpoint/safetensors/entry.h"

#include <string.h>

enum { NAME = GPT_PARAM_NAME + 64, CONFIG_LIMIT = 1 << 20 };

/* ---- config.json ---- */

int gpt_hf_import_config(struct gpt_config *c, struct gpt_hf_extra *extra,
                         struct gpt_hf_whole *whole, const char *dir,
                         int64_t divisible_by, int64_t tp,
                         struct gpt_arena *arena, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];
    cJSON *json;
    int status;

    GPT_TRY(gpt_path_join(path, sizeof(path), dir, GPT_HF_CONFIG, err));
    GPT_TRY(gpt_json_read(&json, path, CONFIG_LIMIT, err));
    if (whole)
        GPT_TRY_GOTO(status, gpt_hf_text_config(&json, whole, path, err), out);
    GPT_TRY_GOTO(status, gpt_hf_config_parse(c, extra, json, path, err), out);
    GPT_TRY_GOTO(status,
                 gpt_config_complete(c, gpt_max_i64(divisible_by, 1),
                                     gpt_max_i64(tp, 1), err),
                 out);
    if (!whole && extra->quantized.method) {
        status = gpt_fail(err, GPT_EDATA,
                          "%s: weights are quantized (%s), which is read of "
                          "Hugging Face's own files alone",
                          path, extra->quantized.text);
        goto out;
    }
    status = gpt_hf_read_generation(extra, dir, json, c->vocab_size, arena,
                                    err);
out:
    cJSON_Delete(json);
    return status;
}

void gpt_hf_import_extra(struct gpt_source *s, const struct gpt_hf_extra *extra)
{
    s->bos_token_id = extra->bos_token_id;
    s->eos_token_id = extra->eos_token_id;
    s->family = extra->family->model_type;
    s->ends = extra->ends;
    s->unused_settings = extra->unused_settings;
    if (extra->quantized.method)
        s->quantized = gpt_arena_strdup(&s->arena, extra->quantized.text);
}

/* ---- tensors ---- */

void gpt_hf_word_name(char *buf, size_t cap, const struct gpt_hf_family *family,
                      const char *prefix)
{
    const struct gpt_param words = {.role = GPT_WORD_EMBEDDING};

    gpt_hf_name(buf, cap, &family->rules[0], &words, 0, prefix);
}

static int find(const struct gpt_hf_importer *im, enum gpt_kind kind,
                const char *name, struct gpt_hf_found *found,
                struct gpt_err *err)
{
    const char *output = gpt_hf_output_name(im->family);

    *found = (struct gpt_hf_found){0};
    GPT_TRY(im->find(im->context, kind, name, found, err));
    if (found->tensor.name || !output || strcmp(name, output) != 0)
        return GPT_OK;
    return im->find(im->context, kind, GPT_HF_HEAD, found, err);
}

int gpt_hf_take_entry(struct gpt_hf_found *found, struct gpt_in *in,
                      const struct gpt_safetensor *entry, const char *file,
                      bool *used, struct gpt_err *err)
{
    const bool fits = entry->ndim <= GPT_HF_DIMS;

    found->tensor = gpt_tensor_make(entry->name, entry->dtype,
                                    fits ? entry->ndim : 0, entry->shape);
    found->file = file;
    found->used = used;
    found->owned = true;
    if (fits)
        return gpt_stored_add(&found->tensor, in, entry, err);
    found->tensor.ndim = entry->ndim;
    memcpy(found->tensor.shape, entry->shape, sizeof(found->tensor.shape));
    return GPT_OK;
}

static const char *said_in(const struct gpt_hf_importer *im)
{
    return im->said_in ? im->said_in : GPT_HF_CONFIG;
}

static void let_go(struct gpt_hf_found *found)
{
    if (found->owned)
        gpt_tensor_free(&found->tensor);
}

static int fail_missing(const struct gpt_hf_importer *im, enum gpt_kind kind,
                        const char *name, struct gpt_err *err)
{
    const char *keys = im->keys[kind] ? im->keys[kind] : "";

    if (kind != GPT_KIND_PARAMETERS)
        return gpt_fail(err, GPT_EDATA, "%s: no moments of tensor '%s%s'",
                        im->where, keys, name);
    gpt_fail(err, GPT_EDATA, "%s: no tensor '%s%s'", im->where, keys, name);
    return gpt_hint(err, "%s describes another model than the files hold, or "
                         "one of them is missing", said_in(im));
}

/* A tensor against what config.json implies: an error is a file of another
 * model, or a config.json that was changed by hand. Moments are compared as
 * weights are: their files may be of another run. */
static int check_tensor(const struct gpt_hf_importer *im,
                        const struct gpt_hf_found *found, int ndim,
                        const int64_t *shape, struct gpt_err *err)
{
    const struct gpt_tensor *t = &found->tensor;
    const char *slash = found->file ? "/" : "";
    const char *file = found->file ? found->file : "";

    if (t->ndim != ndim || t->shape[0] != shape[0] ||
        (ndim >= 2 && t->shape[1] != shape[1]))
        return gpt_fail(err, GPT_EDATA,
                        "%s%s%s: tensor '%.200s' has %d dimensions, %lld x "
                        "%lld; %s says %lld x %lld",
                        im->where, slash, file, t->name, t->ndim,
                        (long long)t->shape[0], (long long)t->shape[1],
                        said_in(im), (long long)shape[0], (long long)shape[1]);
    if (ndim == 3 && t->shape[2] != shape[2])
        return gpt_fail(err, GPT_EDATA,
                        "%s%s%s: tensor '%.200s' has matrices of %lld columns; "
                        "%s says %lld", im->where, slash, file, t->name,
                        (long long)t->shape[2], said_in(im),
                        (long long)shape[2]);
    if (!gpt_dtype_is_float(t->dtype))
        return gpt_fail(err, GPT_EDATA, "%s%s%s: tensor '%.200s' is of type %s",
                        im->where, slash, file, t->name,
                        gpt_dtype_name(t->dtype));
    return GPT_OK;
}

/* What one tensor there holds of a parameter. Dummy rows that padding adds
 * repeat the last row of weights; of moments they are zero, as no step has
 * touched them. */
static int import_part(struct gpt_hf_importer *im, enum gpt_kind kind,
                       const struct gpt_param *p,
                       const struct gpt_hf_rule *rule, int64_t part,
                       struct gpt_tensor *here, struct gpt_err *err)
{
    struct gpt_hf_found found;
    int64_t shape[GPT_HF_DIMS];
    char name[NAME];
    int status;

    gpt_hf_name(name, sizeof(name), rule, p, part, im->prefix);
    gpt_hf_shape(im->config, rule, p, shape);
    GPT_TRY(find(im, kind, name, &found, err));
    if (!found.tensor.name)
        return fail_missing(im, kind, name, err);
    GPT_TRY_GOTO(status,
                 check_tensor(im, &found, gpt_hf_ndim(rule, p), shape, err),
                 out);
    if (found.used)
        *found.used = true;
    gpt_tensor_widen(here, found.tensor.dtype);
    status = p->vocab_rows && kind != GPT_KIND_PARAMETERS
                 ? gpt_tensor_resize(here, &found.tensor, false, err)
                 : gpt_hf_import(here, &found.tensor, im->config, rule, p, part,
                                 err);
out:
    let_go(&found);
    return status;
}

/* *there: whether the files have the first tensor that such rules name. */
static int has_first(const struct gpt_hf_importer *im, enum gpt_kind kind,
                     const struct gpt_hf_rule *rules, size_t n,
                     const struct gpt_param *p, bool *there,
                     struct gpt_err *err)
{
    size_t at = 0;
    const struct gpt_hf_rule *rule = gpt_hf_rule_of(rules, n, p, &at);
    struct gpt_hf_found found;
    char name[NAME];

    *there = false;
    if (!rule)
        return GPT_OK;
    gpt_hf_name(name, sizeof(name), rule, p, 0, im->prefix);
    GPT_TRY(find(im, kind, name, &found, err));
    *there = found.tensor.name != NULL;
    let_go(&found);
    return GPT_OK;
}

/* A state of the class has the tensors of memory; files that it saves have the
 * others, which a message names where neither are there. */
static int choose_rules(const struct gpt_hf_importer *im, enum gpt_kind kind,
                        const struct gpt_param *p,
                        const struct gpt_hf_rule **rules, size_t *n,
                        struct gpt_err *err)
{
    const struct gpt_hf_family *f = im->family;
    bool saved = true, held = false;

    if (f->n_memory > 0)
        GPT_TRY(has_first(im, kind, f->rules, f->n_rules, p, &saved, err));
    if (!saved)
        GPT_TRY(has_first(im, kind, f->memory, f->n_memory, p, &held, err));
    *rules = held ? f->memory : f->rules;
    *n = held ? f->n_memory : f->n_rules;
    return GPT_OK;
}

/* A parameter is made of one tensor or of several: pieces of a view may lie in
 * different files. It has the name of a native one. */
int gpt_hf_import_kind(struct gpt_hf_importer *im, enum gpt_kind kind,
                       struct gpt_err *err)
{
    for (int64_t i = 0; i < im->table.n; i++) {
        const struct gpt_param *p = &im->table.rows[i];
        const struct gpt_hf_rule *rules, *rule;
        const char *name = p->name;
        size_t at = 0, n_rules;

        if (p->counts && kind != GPT_KIND_PARAMETERS)
            continue;
        if (kind != GPT_KIND_PARAMETERS)
            name = gpt_arena_printf(&im->arena, "%s%s", gpt_kind_prefix(kind),
                                    p->name);
        if (!name)
            return gpt_no_memory(err, "names of tensors");
        struct gpt_tensor *here = &im->tensors[im->n++];
        *here = gpt_tensor_make(name, GPT_F32, p->ndim, p->shape);
        GPT_TRY(choose_rules(im, kind, p, &rules, &n_rules, err));
        while ((rule = gpt_hf_rule_of(rules, n_rules, p, &at)))
            for (int64_t part = 0; part < gpt_hf_parts(rule, p); part++)
                GPT_TRY(import_part(im, kind, p, rule, part, here, err));
        if (here->n == 0)
            return gpt_fail(err, GPT_EDATA,
                            "%s: model_type %s has no tensor for '%s'",
                            im->where, im->family->model_type, p->name);
    }
    return GPT_OK;
}

/* ---- the model ---- */

/* Views may repeat elements, and would make a small file a long read: what is
 * larger than its files is equal to nothing. */
static int compare_head(bool *equal, const struct gpt_hf_importer *im,
                        const struct gpt_tensor *head,
                        const struct gpt_tensor *words, struct gpt_err *err)
{
    int64_t elements;

    *equal = head->ndim == 2 &&
             gpt_mul(head->shape[0], head->shape[1], &elements) &&
             elements <= im->bytes;
    return *equal ? gpt_tensor_equal(equal, head, words, err) : GPT_OK;
}

/* A file may have an output layer although config.json says that the embedding
 * serves as one. A copy of the embedding is left out. Another one is what the
 * model was trained with, and is loaded, as transformers 5 does. */
static int settle_head(struct gpt_hf_importer *im, struct gpt_err *err)
{
    const char *output = gpt_hf_output_name(im->family);
    struct gpt_hf_found head = {0}, words = {0};
    char name[NAME];
    bool equal;
    int status;

    if (!im->config->tied_embeddings || !output)
        return GPT_OK;
    gpt_hf_word_name(name, sizeof(name), im->family, im->prefix);
    GPT_TRY_GOTO(status, find(im, GPT_KIND_PARAMETERS, output, &head, err),
                 out);
    GPT_TRY_GOTO(status, find(im, GPT_KIND_PARAMETERS, name, &words, err), out);
    if (!head.tensor.name || !words.tensor.name)
        goto out;
    GPT_TRY_GOTO(status,
                 compare_head(&equal, im, &head.tensor, &words.tensor, err),
                 out);
    im->config->tied_embeddings = equal;
    if (!equal)
        gpt_warn("%s: %s says tie_word_embeddings, but %s is not the "
                 "embedding: it is loaded as an output layer of its own",
                 im->where, GPT_HF_CONFIG, head.tensor.name);
out:
    let_go(&head);
    let_go(&words);
    return status;
}

/* Whether there is an output layer decides what the table has. The number of
 * layers is compared with the number of tensors first, because the table has
 * rows for as many layers as config.json claims. */
int gpt_hf_import_model(struct gpt_hf_importer *im, struct gpt_err *err)
{
    GPT_TRY(settle_head(im, err));
    if (im->config->num_layers > im->n_held)
        return gpt_fail(err, GPT_EDATA,
                        "%s: %s says %lld layers, the files hold %lld tensors",
                        im->where, said_in(im),
                        (long long)im->config->num_layers,
                        (long long)im->n_held);
    GPT_TRY(gpt_params_build(&im->table, im->config, err));
    GPT_TRY(gpt_new(&im->tensors, (size_t)(im->table.n * GPT_N_ADAM_KINDS),
                    sizeof(*im->tensors), "tensors", err));
    return gpt_hf_import_kind(im, GPT_KIND_PARAMETERS, err);
}

int gpt_hf_import_check(const struct gpt_hf_importer *im, const char *name,
                        const char *in_file, const char *file,
                        struct gpt_err *err)
{
    if (gpt_hf_ignores(im->family, im->config, name))
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s%s%s: tensor '%.200s' is not one of a model of "
                    "model_type %s",
                    im->where, file ? "/" : "", file ? file : "", in_file,
                    im->family->model_type);
}

void gpt_hf_importer_free(struct gpt_hf_importer *im)
{
    for (int64_t i = 0; i < im->n; i++)
        gpt_tensor_free(&im->tensors[i]);
    gpt_free(im->tensors);
    gpt_params_free(&im->table);
    gpt_arena_free(&im->arena);
}

/* ---- other files ---- */

int gpt_hf_import_attached(struct gpt_source *s, const char *read,
                           struct gpt_err *err)
{
    const char **attached =
        gpt_arena_alloc(&s->arena, GPT_HF_VOCAB_FILES, sizeof(*attached));

    if (!attached)
        return gpt_no_memory(err, "names of a vocabulary's files");
    for (const char *const *f = gpt_hf_vocab_files; *f; f++)
        if (gpt_path_holds(s->dir, *f))
            attached[s->n_attached++] = *f;
    s->attached = attached;
    /* a directory of more templates, of which the tokenizer has names; the one
     * that is used by default is a file that is attached */
    if (gpt_path_holds(s->dir, GPT_HF_TEMPLATES))
        GPT_TRY(gpt_source_leave_out(s, GPT_HF_TEMPLATES,
                                     sizeof(GPT_HF_TEMPLATES) - 1, err));
    return gpt_hf_trainer_leave_out(s, s->dir, read, err);
}
