/* Reading a Hugging Face directory: shards are opened, and importer.c makes
 * parameters of their tensors. Start at gpt_hf_open(). */
#include "checkpoint/huggingface/trainer.h"

#include "base/io.h"
#include "base/log.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/torch/torch.h"

#include <stdio.h>
#include <string.h>

enum { INDEX_LIMIT = 64 << 20 };

struct gpt_hf {
    char dir[GPT_PATH_BYTES];
    const char *index; /* that names the shards */
    struct gpt_config config;
    struct gpt_hf_extra extra;
    struct gpt_hf_whole whole; /* whose text part this is */
    const char **names; /* of the shards' files, in the arena */
    struct gpt_safetensors *shards;
    size_t n_shards, cap_names, cap_shards;
    bool **used; /* (shards, tensors): by a parameter */
    struct gpt_hf_importer model;
    struct gpt_hf_trainer trainer; /* zero until its run is read */
    struct gpt_arena arena;
};

void gpt_hf_close(struct gpt_hf *hf)
{
    if (!hf)
        return;
    gpt_hf_importer_free(&hf->model);
    gpt_hf_trainer_close(&hf->trainer);
    for (size_t i = 0; i < hf->n_shards; i++) {
        gpt_safetensors_close(&hf->shards[i]);
        if (hf->used)
            gpt_free(hf->used[i]);
    }
    gpt_free(hf->used);
    gpt_free(hf->shards);
    gpt_free(hf->names);
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
 * safetensors before files of torch.save(); then what only accelerate reads. */
static int open_files(struct gpt_hf *hf, struct gpt_err *err)
{
    static const struct {
        const char *weights, *index;
    } layouts[] = {
        {GPT_HF_WEIGHTS, GPT_HF_INDEX},
        {GPT_HF_OLD_WEIGHTS, GPT_HF_OLD_INDEX},
        {GPT_HF_FSDP_WEIGHTS, NULL},
    };
    char path[GPT_PATH_BYTES];
    cJSON *index;

    for (size_t i = 0; i < GPT_COUNT(layouts); i++) {
        hf->index = layouts[i].index;
        GPT_TRY(gpt_path_join(path, sizeof(path), hf->dir, layouts[i].weights,
                              err));
        if (gpt_path_exists(path))
            return open_shard(hf, layouts[i].weights, err);
        if (!hf->index)
            break;
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

    for (size_t i = 0; hf->whole.outer && i < hf->n_shards; i++)
        GPT_TRY(gpt_hf_text_tensors(&hf->shards[i], &hf->whole, hf->names[i],
                                    &left, err));
    if (left)
        gpt_warn("%s: model_type %s reads %s, too: the %lld tensors for that "
                 "are left out, and its text part is read as a model of "
                 "model_type %s", hf->dir, gpt_hf_outer_type(hf->whole.outer),
                 gpt_hf_outer_reads(hf->whole.outer), (long long)left,
                 hf->extra.family->model_type);
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

/* A gpt_hf_part_find. */
static bool find_part(void *context, const char *name, struct gpt_hf_part *part)
{
    const struct gpt_hf *hf = context;
    size_t shard;

    part->entry = find_entry(hf, name, &shard);
    if (!part->entry)
        return false;
    part->in = hf->shards[shard].in;
    part->file = hf->names[shard];
    part->used = &hf->used[shard][part->entry - hf->shards[shard].tensors];
    return true;
}

/* For the importer: a view of the whole entry, or of what stands in its place
 * in a quantized model. */
static int find_tensor(void *context, enum gpt_kind kind, const char *name,
                       struct gpt_hf_found *found, struct gpt_err *err)
{
    struct gpt_hf *hf = context;
    size_t shard;

    if (kind != GPT_KIND_PARAMETERS)
        return gpt_hf_trainer_find(&hf->trainer, kind, name, found, err);
    const struct gpt_safetensor *entry = find_entry(hf, name, &shard);
    if (hf->extra.quantized.method) {
        const struct gpt_hf_finder parts = {find_part, hf, hf->dir, &hf->arena};

        GPT_TRY(gpt_hf_quantized_find(&hf->extra.quantized, &parts, name, found,
                                      err));
        if (found->tensor.name)
            return GPT_OK;
    }
    if (!entry)
        return GPT_OK;
    return gpt_hf_take_entry(
        found, hf->shards[shard].in, entry, hf->names[shard],
        &hf->used[shard][entry - hf->shards[shard].tensors], err);
}

/* Everything in the files is a parameter or is known to be none. */
static int check_unknown(const struct gpt_hf *hf, struct gpt_err *err)
{
    int64_t further = 0;

    for (size_t s = 0; s < hf->n_shards; s++)
        for (int64_t i = 0; i < hf->shards[s].n; i++) {
            const char *name = hf->shards[s].tensors[i].name;

            if (!hf->used[s][i] && !(hf->extra.quantized.method &&
                                     gpt_hf_quantized_ignores(name)))
                GPT_TRY(gpt_hf_import_check(&hf->model, name, name,
                                            hf->names[s], err));
            further += gpt_hf_predicts(hf->extra.family, &hf->config, name);
        }
    if (further)
        gpt_warn("%s: the %lld tensors that predict further words than the "
                 "next one are left out", hf->dir, (long long)further);
    return GPT_OK;
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

/* What the importer needs to know of the files: their sizes, and marks of which
 * tensors were used. */
static int count_tensors(struct gpt_hf *hf, struct gpt_err *err)
{
    GPT_TRY(gpt_new(&hf->used, hf->n_shards, sizeof(*hf->used), "tensors",
                    err));
    for (size_t i = 0; i < hf->n_shards; i++) {
        hf->model.n_held += hf->shards[i].n;
        hf->model.bytes += gpt_in_size(hf->shards[i].in);
        GPT_TRY(gpt_new(&hf->used[i], (size_t)hf->shards[i].n,
                        sizeof(**hf->used), "tensors", err));
    }
    return GPT_OK;
}

/* The layers of GPT-2's class have matrices (in, out), which programs that
 * quantize turn, or do not. */
static int check_quantized(const struct gpt_hf *hf, struct gpt_err *err)
{
    const struct gpt_hf_family *family = hf->extra.family;

    if (!hf->extra.quantized.method)
        return GPT_OK;
    for (size_t i = 0; i < family->n_rules; i++)
        if (family->rules[i].order == GPT_HF_TRANSPOSED)
            return gpt_fail(err, GPT_EDATA,
                            "%s: its weights are quantized (%s), which is not "
                            "read of models of model_type %s",
                            hf->dir, hf->extra.quantized.text,
                            family->model_type);
    gpt_info("%s: its weights are quantized (%s), and read as fp32", hf->dir,
             hf->extra.quantized.text);
    return GPT_OK;
}

/* A few classes have another name for the word table, too, in memory. */
static bool holds_memory(const struct gpt_hf *hf)
{
    const struct gpt_hf_family *family = hf->extra.family;
    const struct gpt_param words = {.role = GPT_WORD_EMBEDDING};
    char name[GPT_PARAM_NAME + 32];
    size_t shard;

    if (family->n_memory == 0 || family->memory[0].role != GPT_WORD_EMBEDDING)
        return false;
    gpt_hf_name(name, sizeof(name), &family->memory[0], &words, 0,
                family->prefix);
    return find_entry(hf, name, &shard) != NULL;
}

/* Files of the base model lack the family's prefix; the word table, which is
 * the first rule, tells which kind it is. */
static int open_tensors(struct gpt_hf *hf, struct gpt_err *err)
{
    const struct gpt_hf_family *family = hf->extra.family;
    char name[GPT_PARAM_NAME + 32];
    size_t shard;

    gpt_hf_word_name(name, sizeof(name), family, family->prefix);
    hf->model.prefix = find_entry(hf, name, &shard) || holds_memory(hf)
                           ? family->prefix
                           : "";
    if (!hf->model.prefix[0] && !find_entry(hf, family->rules[0].name, &shard))
        return fail_of_words(hf, name, err);
    GPT_TRY(check_quantized(hf, err));
    hf->model.where = hf->dir;
    hf->model.config = &hf->config;
    hf->model.family = family;
    hf->model.find = find_tensor;
    hf->model.context = hf;
    GPT_TRY(count_tensors(hf, err));
    GPT_TRY(gpt_hf_import_model(&hf->model, err));
    return check_unknown(hf, err);
}

/* config.json first: it is small, and says what the files must hold. */
int gpt_hf_open(struct gpt_hf **out, const char *dir, int64_t divisible_by,
                int64_t tp, struct gpt_err *err)
{
    struct gpt_hf *hf;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&hf, 1, sizeof(*hf), "model", err));
    snprintf(hf->dir, sizeof(hf->dir), "%s", dir);
    GPT_TRY_GOTO(status,
                 gpt_hf_import_config(&hf->config, &hf->extra, &hf->whole, dir,
                                      divisible_by, tp, &hf->arena, err),
                 fail);
    GPT_TRY_GOTO(status, open_files(hf, err), fail);
    GPT_TRY_GOTO(status, take_text(hf, err), fail);
    GPT_TRY_GOTO(status, open_tensors(hf, err), fail);
    if (gpt_path_holds(dir, GPT_HF_ADAPTER))
        gpt_warn("%s: %s is there, an adapter of PEFT, which is not applied: "
                 "the weights are those of %s alone; gpt-reshape(1) says how "
                 "it is merged", dir, GPT_HF_ADAPTER, hf->names[0]);
    *out = hf;
    return GPT_OK;
fail:
    gpt_hf_close(hf);
    return status;
}

int gpt_hf_read_run(struct gpt_hf *hf, const struct gpt_hf_trainer **run,
                    const char **why, struct gpt_err *err)
{
    *run = NULL;
    *why = hf->extra.quantized.method ? "the weights are quantized" : NULL;
    if (*why)
        return GPT_OK;
    GPT_TRY(gpt_hf_trainer_open(&hf->trainer, &hf->model, hf->dir, &hf->arena,
                                why, err));
    for (int k = 1; !*why && k < GPT_N_ADAM_KINDS; k++)
        GPT_TRY(gpt_hf_import_kind(&hf->model, (enum gpt_kind)k, err));
    *run = *why ? NULL : &hf->trainer;
    return GPT_OK;
}

const struct gpt_config *gpt_hf_config(const struct gpt_hf *hf)
{
    return &hf->config;
}

struct gpt_hf_extra gpt_hf_extra(const struct gpt_hf *hf)
{
    return hf->extra;
}

bool gpt_hf_counts_anew(const struct gpt_hf *hf)
{
    bool anew = false;

    for (size_t l = 0; l < GPT_COUNT(hf->whole.crossed); l++)
        anew = anew || hf->whole.crossed[l];
    return anew;
}

const struct gpt_tensor *gpt_hf_tensors(const struct gpt_hf *hf, int64_t *n)
{
    *n = hf->model.n;
    return hf->model.tensors;
}

const struct gpt_safetensors *gpt_hf_shard(const struct gpt_hf *hf, size_t i,
                                           const char **name)
{
    if (i >= hf->n_shards)
        return NULL;
    *name = hf->names[i];
    return &hf->shards[i];
}
