/* Reading a Hugging Face directory: shards are opened, their tensors matched
 * with the parameter table, and each parameter becomes a view of its tensor.
 * Start at gpt_hf_open().
 *
 * The match is exact in both directions. A parameter without a tensor would
 * stay untrained, and a tensor without a parameter means that the model
 * computes something that this one does not; neither would
 * show before the texts do. */
#include "checkpoint/huggingface/huggingface.h"

#include "base/io.h"
#include "base/log.h"
#include "checkpoint/names.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/torch/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_LIMIT = 1 << 20, INDEX_LIMIT = 64 << 20 };

struct gpt_hf {
    char dir[GPT_PATH_BYTES];
    const char *index; /* that names the shards */
    struct gpt_config config;
    struct gpt_hf_extra extra;
    const struct gpt_hf_outer *outer; /* whose text part this is, or NULL */
    struct gpt_param_table table;
    const char **names; /* of the shards' files, in the arena */
    struct gpt_safetensors *shards;
    size_t n_shards, cap_names, cap_shards;
    struct gpt_tensor *tensors; /* one a parameter */
    int64_t n;
    struct gpt_arena arena;
};

void gpt_hf_close(struct gpt_hf *hf)
{
    if (!hf)
        return;
    for (int64_t i = 0; i < hf->n; i++)
        gpt_tensor_free(&hf->tensors[i]);
    for (size_t i = 0; i < hf->n_shards; i++)
        gpt_safetensors_close(&hf->shards[i]);
    gpt_free(hf->tensors);
    gpt_free(hf->shards);
    gpt_free(hf->names);
    gpt_params_free(&hf->table);
    gpt_arena_free(&hf->arena);
    gpt_free(hf);
}

/* ---- files ---- */

/* The name of a file says whether it is of torch.save(), as in transformers. */
static int open_weights(struct gpt_safetensors *st, const char *path,
                        struct gpt_err *err)
{
    return gpt_path_ends_in(path, ".bin")
               ? gpt_torch_open_tensors(st, path, err)
               : gpt_safetensors_open(st, path, err);
}

/* Names of shards come out of the index, so they are checked before a path is
 * made of them. */
static int open_shard(struct gpt_hf *hf, const char *name, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];

    if (!gpt_name_is_safe(name))
        return gpt_fail(err, GPT_EDATA, "%s/%s: bad file name '%.200s'",
                        hf->dir, hf->index, name);
    GPT_TRY(gpt_path_join(path, sizeof(path), hf->dir, name, err));
    if (!gpt_path_exists(path)) {
        gpt_fail(err, GPT_EDATA, "%s: missing, though %s names it", path,
                 hf->index);
        return gpt_hint(err, "copy or download the whole directory again");
    }
    GPT_TRY(gpt_grow(&hf->names, &hf->cap_names, hf->n_shards + 1,
                     sizeof(*hf->names), "shards", err));
    GPT_TRY(gpt_grow(&hf->shards, &hf->cap_shards, hf->n_shards + 1,
                     sizeof(*hf->shards), "shards", err));
    hf->names[hf->n_shards] = gpt_arena_strdup(&hf->arena, name);
    if (!hf->names[hf->n_shards])
        return gpt_no_memory(err, "names of weight files");
    GPT_TRY(open_weights(&hf->shards[hf->n_shards], path, err));
    return gpt_hf_unwrap_names(&hf->shards[hf->n_shards++], path, err);
}

/* Opens a shard at its first mention. Mentions are in the order of files,
 * mostly, so the search begins at the newest shard. */
static int shard_of(struct gpt_hf *hf, const char *name, size_t *shard,
                    struct gpt_err *err)
{
    for (size_t i = hf->n_shards; i-- > 0;)
        if (strcmp(hf->names[i], name) == 0) {
            *shard = i;
            return GPT_OK;
        }
    *shard = hf->n_shards;
    return open_shard(hf, name, err);
}

/* weight_map and the shards' headers must name the same tensors: every entry is
 * looked up, and the counts agree. total_size is not looked at, since writers
 * in use get it wrong. */
static int open_indexed(struct gpt_hf *hf, const cJSON *index,
                        struct gpt_err *err)
{
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(index, "weight_map");
    const cJSON *item;
    int64_t mapped = 0, held = 0;

    if (!cJSON_IsObject(map))
        return gpt_fail(err, GPT_EDATA, "%s/%s: no object 'weight_map'",
                        hf->dir, hf->index);
    cJSON_ArrayForEach(item, map)
    {
        const char *name = item->string;
        size_t shard;

        if (!cJSON_IsString(item))
            return gpt_fail(err, GPT_EDATA,
                            "%s/%s: no file name for '%.200s'", hf->dir,
                            hf->index, item->string);
        GPT_TRY(shard_of(hf, item->valuestring, &shard, err));
        GPT_TRY(gpt_hf_unwrap(&name, &hf->arena, err));
        if (!gpt_safetensors_find(&hf->shards[shard], name))
            return gpt_fail(err, GPT_EDATA,
                            "%s/%s: no tensor '%.200s', though %s says so",
                            hf->dir, hf->names[shard], item->string,
                            hf->index);
        mapped++;
    }
    for (size_t i = 0; i < hf->n_shards; i++)
        held += hf->shards[i].n;
    if (mapped == held)
        return GPT_OK;
    gpt_fail(err, GPT_EDATA, "%s/%s: maps %lld tensors, its files hold %lld",
             hf->dir, hf->index, (long long)mapped, (long long)held);
    return gpt_hint(err, "the files are not of one model: copy or download the "
                         "directory again");
}

/* What transformers looks for, in its order: a single file before an index, and
 * safetensors before files of torch.save(). */
static int open_files(struct gpt_hf *hf, struct gpt_err *err)
{
    static const struct {
        const char *weights, *index;
    } layouts[] = {
        {GPT_HF_WEIGHTS, GPT_HF_INDEX},
        {GPT_HF_OLD_WEIGHTS, GPT_HF_OLD_INDEX},
    };
    char path[GPT_PATH_BYTES];
    cJSON *index;

    for (size_t i = 0; i < GPT_COUNT(layouts); i++) {
        hf->index = layouts[i].index;
        GPT_TRY(gpt_path_join(path, sizeof(path), hf->dir, layouts[i].weights,
                              err));
        if (gpt_path_exists(path))
            return open_shard(hf, layouts[i].weights, err);
        GPT_TRY(gpt_path_join(path, sizeof(path), hf->dir, hf->index, err));
        if (!gpt_path_exists(path))
            continue;
        GPT_TRY(gpt_json_read(&index, path, INDEX_LIMIT, err));
        int status = open_indexed(hf, index, err);
        cJSON_Delete(index);
        return status;
    }
    return gpt_fail(err, GPT_EDATA, "%s: neither %s nor %s, nor %s", hf->dir,
                    GPT_HF_WEIGHTS, GPT_HF_INDEX, GPT_HF_OLD_WEIGHTS);
}

/* Only now: the index has the names of all. */
static int take_text(struct gpt_hf *hf, struct gpt_err *err)
{
    int64_t left = 0;

    for (size_t i = 0; hf->outer && i < hf->n_shards; i++)
        GPT_TRY(gpt_hf_text_tensors(&hf->shards[i], hf->outer, hf->names[i],
                                    &left, err));
    if (left)
        gpt_warn("%s: model_type %s reads pictures, too: the %lld tensors for "
                 "that are left out, and its text part is read as a model of "
                 "model_type %s", hf->dir, gpt_hf_outer_type(hf->outer),
                 (long long)left, hf->extra.family->model_type);
    return GPT_OK;
}

/* ---- tensors ---- */

/* Looks in every shard, whatever the index says. Shards are few. */
static const struct gpt_safetensor *find_entry(const struct gpt_hf *hf,
                                               const char *name, size_t *shard)
{
    const struct gpt_safetensor *t = NULL;

    for (*shard = 0; *shard < hf->n_shards; ++*shard)
        if ((t = gpt_safetensors_find(&hf->shards[*shard], name)))
            break;
    return t;
}

/* A tensor's header against what config.json implies: an error is a file of
 * another model, or a config.json that was changed by hand. */
static int check_entry(const struct gpt_hf *hf, const struct gpt_safetensor *st,
                       size_t shard, int ndim, const int64_t *shape,
                       struct gpt_err *err)
{
    if (st->ndim != ndim || st->shape[0] != shape[0] ||
        (st->ndim == 2 && st->shape[1] != shape[1]))
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: tensor '%s' has %d dimensions, %lld x %lld; "
                        "config.json says %lld x %lld",
                        hf->dir, hf->names[shard], st->name, st->ndim,
                        (long long)st->shape[0], (long long)st->shape[1],
                        (long long)shape[0], (long long)shape[1]);
    if (!gpt_dtype_is_float(st->dtype))
        return gpt_fail(err, GPT_EDATA, "%s/%s: tensor '%s' is of type %s",
                        hf->dir, hf->names[shard], st->name,
                        gpt_dtype_name(st->dtype));
    return GPT_OK;
}

/* What a tensor holds of a parameter. The shape is compared before a view is
 * made. The views point into the shard's file; `there` is needed while they are
 * made and no longer. */
static int open_part(struct gpt_hf *hf, const struct gpt_param *p,
                     const struct gpt_hf_rule *rule, const char *prefix,
                     struct gpt_tensor *here, struct gpt_err *err)
{
    char name[GPT_PARAM_NAME + 32];
    int64_t shape[2];
    size_t shard;

    gpt_hf_name(name, sizeof(name), rule, p, prefix);
    gpt_hf_shape(&hf->config, rule, p, shape);
    const struct gpt_safetensor *st = find_entry(hf, name, &shard);
    if (!st) {
        gpt_fail(err, GPT_EDATA, "%s: no tensor '%s'", hf->dir, name);
        return gpt_hint(err, "config.json describes another model than the "
                             "files hold, or one of them is missing");
    }
    GPT_TRY(check_entry(hf, st, shard, p->ndim, shape, err));
    struct gpt_tensor there = gpt_tensor_make(name, st->dtype, p->ndim, shape);
    gpt_tensor_widen(here, st->dtype);
    int status;
    GPT_TRY_GOTO(status,
                 gpt_stored_add(&there, hf->shards[shard].in, st, err),
                 out);
    status = gpt_hf_import(here, &there, &hf->config, rule, p, err);
out:
    gpt_tensor_free(&there);
    return status;
}

/* The whole of a parameter, from one tensor or from several: pieces of a view
 * may lie in different files. */
static int open_param(struct gpt_hf *hf, const struct gpt_param *p,
                      const char *prefix, struct gpt_tensor *here,
                      struct gpt_err *err)
{
    const struct gpt_hf_family *family = hf->extra.family;
    const struct gpt_hf_rule *rule;
    size_t at = 0;

    *here = gpt_tensor_make(p->name, GPT_F32, p->ndim, p->shape);
    while ((rule = gpt_hf_next_rule(family, p, &at)))
        GPT_TRY(open_part(hf, p, rule, prefix, here, err));
    if (here->n == 0)
        return gpt_fail(err, GPT_EDATA, "%s: model_type %s has no tensor for "
                        "'%s'", hf->dir, family->model_type, p->name);
    return GPT_OK;
}

static int compare_names(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;

    return strcmp(*x, *y);
}

/* Names of all tensors that parameters are read from, sorted: large
 * directories are checked in O(n log n). A parameter is in three tensors at
 * most. */
enum { NAME = GPT_PARAM_NAME + 32, MOST_PARTS = 3 };

static size_t list_known(const struct gpt_hf *hf, const char *prefix,
                         char (*text)[NAME], const char **known)
{
    const struct gpt_hf_rule *rule;
    size_t n = 0;

    for (int64_t i = 0; i < hf->table.n; i++) {
        size_t at = 0;

        while ((rule = gpt_hf_next_rule(hf->extra.family, &hf->table.rows[i],
                                        &at))) {
            gpt_hf_name(text[n], NAME, rule, &hf->table.rows[i], prefix);
            known[n] = text[n];
            n++;
        }
    }
    qsort(known, n, sizeof(*known), compare_names);
    return n;
}

/* Checks that everything in the files is a parameter or is known to be none. */
static int check_unknown(const struct gpt_hf *hf, const char *prefix,
                         struct gpt_err *err)
{
    const size_t most = (size_t)hf->table.n * MOST_PARTS;
    char (*text)[NAME];
    const char **known;
    int status;

    GPT_TRY(gpt_new(&text, most, NAME, "names", err));
    GPT_TRY_GOTO(status, gpt_new(&known, most, sizeof(*known), "names", err),
                 out);
    const size_t n = list_known(hf, prefix, text, known);
    for (size_t s = 0; s < hf->n_shards; s++)
        for (int64_t i = 0; status == GPT_OK && i < hf->shards[s].n; i++) {
            const char *name = hf->shards[s].tensors[i].name;

            if (!gpt_hf_ignores(hf->extra.family, &hf->config, name) &&
                !bsearch(&name, known, n, sizeof(*known), compare_names))
                status = gpt_fail(err, GPT_EDATA,
                                  "%s/%s: tensor '%.200s' is not one of a "
                                  "model of model_type %s",
                                  hf->dir, hf->names[s], name,
                                  hf->extra.family->model_type);
        }
    gpt_free(known);
out:
    gpt_free(text);
    return status;
}

/* What a pickled object of torch.nn.Module has its parts in. */
#define MODULES "_modules."

/* The files have no word table of this name. What wraps a model puts its own
 * words before all names, and a dict around the tensors does, too. */
static int fail_of_words(const struct gpt_hf *hf, const char *name,
                         struct gpt_err *err)
{
    const char *any = NULL, *last = hf->extra.family->rules[0].name;

    for (size_t s = 0; s < hf->n_shards; s++)
        for (int64_t i = 0; i < hf->shards[s].n; i++) {
            const char *held = hf->shards[s].tensors[i].name;
            const size_t n = strlen(held), tail = strlen(last);

            any = any ? any : held;
            if (n <= tail || strcmp(held + n - tail, last) != 0)
                continue;
            gpt_fail(err, GPT_EDATA, "%s: no tensor '%s', but '%.200s'",
                     hf->dir, name, held);
            return gpt_hint(err, "save the state_dict() of the model itself, "
                                 "not that of what wraps it, nor a dict "
                                 "around it");
        }
    if (!any)
        return gpt_fail(err, GPT_EDATA, "%s: no tensor '%s', nor any other",
                        hf->dir, name);
    gpt_fail(err, GPT_EDATA, "%s: no tensor '%s'; the first is '%.200s'",
             hf->dir, name, any);
    if (strncmp(any, MODULES, strlen(MODULES)) == 0)
        return gpt_hint(err, "torch.save() was given the model: save its "
                             "state_dict()");
    return gpt_hint(err, "config.json describes another model than the files "
                         "hold, or one of them is missing");
}

/* Files of the base model lack the family's prefix; the word table, which is
 * the first rule, tells which kind it is. The number of layers is compared with
 * the number of tensors first, because the parameter table has rows for as many
 * layers as config.json claims. */
static int open_tensors(struct gpt_hf *hf, struct gpt_err *err)
{
    size_t shard;
    int64_t held = 0;
    const struct gpt_hf_family *family = hf->extra.family;
    const struct gpt_param words = {.role = GPT_WORD_EMBEDDING};
    char name[NAME];

    gpt_hf_name(name, sizeof(name), &family->rules[0], &words, family->prefix);
    const char *prefix = find_entry(hf, name, &shard) ? family->prefix : "";

    if (!prefix[0] && !find_entry(hf, family->rules[0].name, &shard))
        return fail_of_words(hf, name, err);
    for (size_t i = 0; i < hf->n_shards; i++)
        held += hf->shards[i].n;
    if (hf->config.num_layers > held)
        return gpt_fail(err, GPT_EDATA,
                        "%s: config.json says %lld layers, the files hold "
                        "%lld tensors",
                        hf->dir, (long long)hf->config.num_layers,
                        (long long)held);
    GPT_TRY(gpt_params_build(&hf->table, &hf->config, err));
    GPT_TRY(gpt_new(&hf->tensors, (size_t)hf->table.n, sizeof(*hf->tensors),
                    "tensors", err));
    for (int64_t i = 0; i < hf->table.n; i++)
        GPT_TRY(open_param(hf, &hf->table.rows[i], prefix,
                           &hf->tensors[hf->n++], err));
    return check_unknown(hf, prefix, err);
}

/* ---- the output layer ---- */

/* A file may have an output layer although config.json says that the embedding
 * serves as one. A copy of the embedding is left out. Another one is what the
 * model was trained with, and is loaded, as transformers 5 does. */
static int settle_head(struct gpt_hf *hf, struct gpt_err *err)
{
    const struct gpt_hf_family *family = hf->extra.family;
    const struct gpt_param in = {.role = GPT_WORD_EMBEDDING};
    const char *output = gpt_hf_output_name(family);
    size_t at_head = 0, at_words = 0;
    char name[NAME];
    bool equal;
    const struct gpt_safetensor *head =
        output ? find_entry(hf, output, &at_head) : NULL;

    gpt_hf_name(name, sizeof(name), &family->rules[0], &in, family->prefix);
    const struct gpt_safetensor *words = find_entry(hf, name, &at_words);
    if (!words) { /* files of the base model lack the prefix */
        gpt_hf_name(name, sizeof(name), &family->rules[0], &in, "");
        words = find_entry(hf, name, &at_words);
    }
    if (!hf->config.tied_embeddings || !head || !words)
        return GPT_OK;
    GPT_TRY(gpt_stored_equal(&equal, hf->shards[at_head].in, head,
                             hf->shards[at_words].in, words, err));
    hf->config.tied_embeddings = equal;
    if (!equal)
        gpt_warn("%s: %s says tie_word_embeddings, but %s is not the "
                 "embedding: it is loaded as an output layer of its own",
                 hf->dir, GPT_HF_CONFIG, head->name);
    return GPT_OK;
}

/* config.json first: it is small, and says what the files must hold. */
int gpt_hf_open(struct gpt_hf **out, const char *dir, int64_t divisible_by,
                int64_t tp, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];
    struct gpt_hf *hf;
    cJSON *json = NULL;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&hf, 1, sizeof(*hf), "model", err));
    snprintf(hf->dir, sizeof(hf->dir), "%s", dir);
    GPT_TRY_GOTO(status,
                 gpt_path_join(path, sizeof(path), dir, GPT_HF_CONFIG, err),
                 fail);
    GPT_TRY_GOTO(status, gpt_json_read(&json, path, CONFIG_LIMIT, err), fail);
    GPT_TRY_GOTO(status, gpt_hf_text_config(&json, &hf->outer, path, err),
                 fail);
    GPT_TRY_GOTO(status, gpt_hf_config_parse(&hf->config, &hf->extra, json,
                                             path, err),
                 fail);
    GPT_TRY_GOTO(status, gpt_config_complete(&hf->config, divisible_by, tp,
                                             err),
                 fail);
    GPT_TRY_GOTO(status,
                 gpt_hf_read_generation(&hf->extra, dir, json,
                                        hf->config.vocab_size, &hf->arena, err),
                 fail);
    GPT_TRY_GOTO(status, open_files(hf, err), fail);
    GPT_TRY_GOTO(status, take_text(hf, err), fail);
    GPT_TRY_GOTO(status, settle_head(hf, err), fail);
    GPT_TRY_GOTO(status, open_tensors(hf, err), fail);
    if (gpt_path_holds(dir, GPT_HF_ADAPTER))
        gpt_warn("%s: %s is there, an adapter of PEFT, which is not applied: "
                 "the weights are those of %s alone; gpt-reshape(1) says how "
                 "it is merged", dir, GPT_HF_ADAPTER, hf->names[0]);
    cJSON_Delete(json);
    *out = hf;
    return GPT_OK;
fail:
    cJSON_Delete(json);
    gpt_hf_close(hf);
    return status;
}

const struct gpt_config *gpt_hf_config(const struct gpt_hf *hf)
{
    return &hf->config;
}

struct gpt_hf_extra gpt_hf_extra(const struct gpt_hf *hf)
{
    return hf->extra;
}

const struct gpt_tensor *gpt_hf_tensors(const struct gpt_hf *hf, int64_t *n)
{
    *n = hf->n;
    return hf->tensors;
}

const struct gpt_safetensors *gpt_hf_shard(const struct gpt_hf *hf, size_t i,
                                           const char **name)
{
    if (i >= hf->n_shards)
        return NULL;
    *name = hf->names[i];
    return &hf->shards[i];
}
