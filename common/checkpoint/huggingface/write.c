/* Writing a Hugging Face directory. gpt_hf_plan() makes the tensors as views of
 * the source's and assigns them to shards; gpt_hf_write() writes them. The
 * bytes of a shard are moved once, from the source's files into the shard,
 * whatever the permutation. */
#include "checkpoint/huggingface/huggingface.h"

#include "base/io.h"
#include "base/num.h"
#include "checkpoint/fill.h"
#include "checkpoint/small_file.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { NAME = GPT_PARAM_NAME + 32 };

/* One file has no number: that is the name which readers try first. */
void gpt_hf_shard_name(char *buf, size_t cap, int64_t shard, int64_t n_shards)
{
    if (n_shards <= 1)
        snprintf(buf, cap, "%s", GPT_HF_WEIGHTS);
    else
        snprintf(buf, cap, "model-%05lld-of-%05lld.safetensors",
                 (long long)shard + 1, (long long)n_shards);
}

/* A plan's tensor has at most GPT_TENSOR_DIMS dimensions, fewer than a header
 * can have. */
static struct gpt_safetensor header_of(const struct gpt_tensor *t)
{
    struct gpt_safetensor s = {
        .name = t->name, .dtype = t->dtype, .ndim = t->ndim};

    memcpy(s.shape, t->shape, sizeof(t->shape));
    return s;
}

int64_t gpt_hf_tensor_bytes(const struct gpt_tensor *t)
{
    const struct gpt_safetensor header = header_of(t);
    int64_t bytes = 0;
    bool fits = gpt_safetensor_bytes(&header, &bytes);

    assert(fits); /* assign_shards() has checked each */
    return fits ? bytes : 0;
}

/* Ends the shard that is open: its tensors, which have no number yet, get the
 * next one. */
static void end_shard(struct gpt_hf_plan *p, int64_t first, int64_t end,
                      int64_t size)
{
    bool any = false;

    for (int64_t i = first; i < end; i++)
        if (p->shard[i] < 0) {
            p->shard[i] = p->n_shards;
            any = true;
        }
    p->n_shards += any;
    p->largest_shard = gpt_max_i64(p->largest_shard, size);
}

/* Greedy, by huggingface_hub's split_state_dict_into_shards_factory(): a shard
 * gets its number when it ends, one of a large tensor at once. The same rule
 * gives the same files as save_pretrained() does, so a directory can be
 * compared with one of transformers. */
static int assign_shards(struct gpt_hf_plan *p, int64_t limit,
                         struct gpt_err *err)
{
    int64_t first = 0, size = 0, bytes;

    for (int64_t i = 0; i < p->n; i++) {
        struct gpt_safetensor h = header_of(&p->tensors[i]);

        if (!gpt_safetensor_bytes(&h, &bytes))
            return gpt_fail(err, GPT_EDATA, "tensor '%s': size overflows",
                            h.name);
        p->total_size += bytes;
        p->shard[i] = -1;
        if (bytes > limit) {
            p->shard[i] = p->n_shards++;
            p->largest_shard = gpt_max_i64(p->largest_shard, bytes);
            continue;
        }
        if (size + bytes > limit) {
            end_shard(p, first, i, size);
            first = i;
            size = 0;
        }
        size += bytes;
    }
    end_shard(p, first, p->n, size);
    return GPT_OK;
}

/* Shapes are compared with the model's here too: the source may be of a format
 * that does not compare its tensors with its configuration. */
static int find_here(const struct gpt_source *source,
                     const struct gpt_param *row,
                     const struct gpt_tensor **here, struct gpt_err *err)
{
    const struct gpt_tensor *t = gpt_source_find(source, row->name);

    *here = t;
    if (!t)
        return gpt_fail(err, GPT_EDATA, "no tensor '%s'", row->name);
    if (t->ndim == row->ndim && t->shape[0] == row->shape[0] &&
        (row->ndim != 2 || t->shape[1] == row->shape[1]))
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "tensor '%s' is %lld x %lld, its model says %lld x %lld",
                    row->name, (long long)t->shape[0], (long long)t->shape[1],
                    (long long)row->shape[0], (long long)row->shape[1]);
}

/* The tensor that a rule names: the last one when it has that name, as tensors
 * that hold two parameters follow from neighbouring rows; else a new one. Names
 * are copied to the plan's arena, because the buffer here is used again. */
static int plan_tensor(struct gpt_hf_plan *p, const struct gpt_param *row,
                       const struct gpt_hf_rule *rule, int64_t part,
                       enum gpt_dtype dtype, struct gpt_tensor **out,
                       struct gpt_err *err)
{
    char name[NAME];
    int64_t shape[GPT_HF_DIMS];

    gpt_hf_name(name, sizeof(name), rule, row, part, p->extra.family->prefix);
    /* two parameters of one tensor are neighbours in the table */
    *out = p->n > 0 ? &p->tensors[p->n - 1] : NULL;
    if (*out && strcmp((*out)->name, name) == 0)
        return GPT_OK;
    gpt_hf_shape(&p->config, rule, row, shape);
    char *kept = gpt_arena_strdup(&p->arena, name);
    if (!kept)
        return gpt_no_memory(err, "tensors to write");
    *out = &p->tensors[p->n++];
    **out = gpt_tensor_make(kept, dtype, gpt_hf_ndim(rule, row), shape);
    return GPT_OK;
}

/* Numbers of the class that belong beside the parameter `row`, in the type of
 * its last tensor. */
static int plan_constants(struct gpt_hf_plan *p, const struct gpt_param *row,
                          struct gpt_err *err)
{
    const struct gpt_hf_family *family = p->extra.family;
    const enum gpt_dtype dtype = p->tensors[p->n - 1].dtype;

    for (size_t i = 0; i < family->n_constants; i++) {
        const struct gpt_hf_constant *c = &family->constants[i];
        const struct gpt_hf_rule rule = {.name = c->name};
        char name[NAME];

        if (c->beside != row->role)
            continue;
        gpt_hf_name(name, sizeof(name), &rule, row, 0, family->prefix);
        char *kept = gpt_arena_strdup(&p->arena, name);
        void *bytes = gpt_arena_alloc(&p->arena, 1, sizeof(double));
        if (!kept || !bytes)
            return gpt_no_memory(err, "tensors to write");
        gpt_convert(bytes, dtype, &c->value, GPT_F32, 1);
        p->constants[p->n] = bytes;
        p->tensors[p->n++] = gpt_tensor_make(kept, dtype, 0, NULL);
    }
    return GPT_OK;
}

/* What one tensor takes of the parameter. */
static int plan_part(struct gpt_hf_plan *p, const struct gpt_param *row,
                     const struct gpt_hf_rule *rule, int64_t part,
                     const struct gpt_tensor *here, enum gpt_dtype dtype,
                     struct gpt_err *err)
{
    struct gpt_tensor *there;

    GPT_TRY(plan_tensor(p, row, rule, part, dtype, &there, err));
    /* a neighbour may have begun the tensor, with another type */
    if (dtype == GPT_N_DTYPES)
        gpt_tensor_widen(there, here->dtype);
    return gpt_hf_export(there, here, &p->config, rule, row, part, err);
}

/* A parameter without a rule is a mistake in a family's table: it would be
 * lost. */
static int plan_param(struct gpt_hf_plan *p, const struct gpt_param *row,
                      const struct gpt_source *source, enum gpt_dtype dtype,
                      struct gpt_err *err)
{
    const struct gpt_hf_rule *rule;
    const struct gpt_tensor *here;
    bool ruled = false;
    size_t at = 0;

    GPT_TRY(find_here(source, row, &here, err));
    while ((rule = gpt_hf_next_rule(p->extra.family, row, &at))) {
        for (int64_t part = 0; part < gpt_hf_parts(rule, row); part++)
            GPT_TRY(plan_part(p, row, rule, part, here, dtype, err));
        ruled = true;
    }
    if (!ruled)
        return gpt_fail(err, GPT_EFAIL, "model_type %s has no tensor for '%s'",
                        p->extra.family->model_type, row->name);
    return plan_constants(p, row, err);
}

/* The most tensors that parameters and constants can become. */
static size_t count_tensors(const struct gpt_hf_plan *p,
                            const struct gpt_param_table *table)
{
    size_t most = (size_t)table->n * p->extra.family->n_constants;

    for (int64_t i = 0; i < table->n; i++) {
        const struct gpt_hf_rule *rule;
        size_t at = 0;

        while ((rule = gpt_hf_next_rule(p->extra.family, &table->rows[i], &at)))
            most += (size_t)gpt_hf_parts(rule, &table->rows[i]);
    }
    return most;
}

static int plan_tensors(struct gpt_hf_plan *p,
                        const struct gpt_param_table *table,
                        const struct gpt_source *source, enum gpt_dtype dtype,
                        struct gpt_err *err)
{
    const size_t most = count_tensors(p, table);

    GPT_TRY(gpt_new(&p->tensors, most, sizeof(*p->tensors), "tensors", err));
    GPT_TRY(gpt_new(&p->shard, most, sizeof(*p->shard), "tensors", err));
    GPT_TRY(gpt_new(&p->constants, most, sizeof(*p->constants), "tensors",
                    err));
    p->n_params = table->n;
    for (int64_t i = 0; i < table->n; i++)
        GPT_TRY(plan_param(p, &table->rows[i], source, dtype, err));
    return GPT_OK;
}

/* The table of parameters is needed while planning only: tensors have names of
 * their own, in the plan's arena. */
int gpt_hf_plan(struct gpt_hf_plan *plan, const struct gpt_config *c,
                const struct gpt_hf_extra *extra,
                const struct gpt_source *source, enum gpt_dtype dtype,
                int64_t max_shard_size, struct gpt_err *err)
{
    struct gpt_param_table table = {0};
    int status;

    *plan = (struct gpt_hf_plan){.config = *c, .extra = *extra};
    /* What no family can say is refused before anything is written: a reader
     * would take the file for a different model. */
    GPT_TRY(gpt_hf_choose_family(c, &plan->extra.family, err));
    GPT_TRY(gpt_params_build(&table, c, err));
    GPT_TRY_GOTO(status, plan_tensors(plan, &table, source, dtype, err), out);
    status = assign_shards(plan, max_shard_size, err);
out:
    gpt_params_free(&table);
    if (status != GPT_OK)
        gpt_hf_plan_free(plan);
    return status;
}

/* Also for a plan that was not finished: p->n counts the tensors that were
 * made. */
void gpt_hf_plan_free(struct gpt_hf_plan *plan)
{
    for (int64_t i = 0; i < plan->n; i++)
        gpt_tensor_free(&plan->tensors[i]);
    gpt_free(plan->tensors);
    gpt_free(plan->shard);
    gpt_free(plan->constants);
    gpt_arena_free(&plan->arena);
    *plan = (struct gpt_hf_plan){0};
}

/* ---- writing ---- */

/* Where the shards go. */
struct place {
    const struct gpt_hf_plan *plan;
    const char *dir;
    unsigned flags;
};

/* Headers and data are in the order of the plan; the writer sorts them as
 * safetensors does. After the commit the abort does nothing. */
static int write_shard(void *context, int64_t shard, struct gpt_fill *fill,
                       struct gpt_err *err)
{
    const struct place *place = context;
    const struct gpt_hf_plan *plan = place->plan;
    struct gpt_safetensors_writer *file = NULL;
    struct gpt_safetensors list = {0};
    struct gpt_part *parts = NULL;
    char path[GPT_PATH_BYTES], name[64];
    int status;

    gpt_hf_shard_name(name, sizeof(name), shard, plan->n_shards);
    GPT_TRY(gpt_path_join(path, sizeof(path), place->dir, name, err));
    GPT_TRY_GOTO(status, gpt_new(&list.tensors, (size_t)plan->n,
                                 sizeof(*list.tensors), "headers", err),
                 out);
    GPT_TRY_GOTO(status, gpt_new(&parts, (size_t)plan->n, sizeof(*parts),
                                 "parts", err),
                 out);
    for (int64_t i = 0; i < plan->n; i++) {
        const struct gpt_tensor *t = &plan->tensors[i];

        if (plan->shard[i] != shard)
            continue;
        struct gpt_part *part = &parts[list.n];
        *part = (struct gpt_part){.tensor = plan->constants[i] ? NULL : t,
                                  .data = plan->constants[i],
                                  .dtype = t->dtype};
        memcpy(part->shape, t->shape, sizeof(t->shape));
        list.tensors[list.n++] = header_of(t);
    }
    GPT_TRY_GOTO(status, gpt_safetensors_create(&file, path, place->flags,
                                                &list, err),
                 out);
    GPT_TRY_GOTO(status, gpt_safetensors_fill(file, fill, name, parts, err),
                 out);
    status = gpt_safetensors_commit(file, NULL, NULL, err);
    file = NULL;
out:
    gpt_safetensors_abort(file);
    gpt_safetensors_close(&list);
    gpt_free(parts);
    return status;
}

/* Takes and frees the tree. Ends in a newline, as files of the hub do. */
static int write_json(cJSON *json, const char *dir, const char *name,
                      unsigned flags, struct gpt_err *err)
{
    char *text = gpt_json_print(json, true);
    struct gpt_buf b = {0};
    int status = text ? gpt_buf_printf(&b, "%s\n", text) : GPT_EFAIL;

    status = status == GPT_OK
                 ? gpt_small_file_write(dir, name, flags, b.data, b.len, err)
                 : gpt_no_memory(err, name);
    gpt_buf_free(&b);
    cJSON_free(text);
    cJSON_Delete(json);
    return status;
}

/* total_size counts the bytes of tensors and not of files, as transformers has
 * it. The names of shards are made again from their numbers, so the index
 * cannot differ from the files. */
static cJSON *make_index(const struct gpt_hf_plan *plan)
{
    cJSON *json = cJSON_CreateObject();
    cJSON *meta = cJSON_AddObjectToObject(json, "metadata");
    cJSON *map = cJSON_AddObjectToObject(json, "weight_map");

    cJSON_AddNumberToObject(meta, "total_size", (double)plan->total_size);
    for (int64_t i = 0; i < plan->n; i++) {
        char name[64];

        gpt_hf_shard_name(name, sizeof(name), plan->shard[i], plan->n_shards);
        cJSON_AddStringToObject(map, plan->tensors[i].name, name);
    }
    return json;
}

/* transformers takes the tokens for generation from this file when it is there,
 * and not from config.json. */
static cJSON *make_generation_config(const struct gpt_hf_plan *plan)
{
    const struct gpt_end_ids *ends = &plan->extra.ends;
    cJSON *json = cJSON_CreateObject();

    if (plan->extra.bos_token_id >= 0)
        cJSON_AddNumberToObject(json, "bos_token_id",
                                (double)plan->extra.bos_token_id);
    if (ends->n > 1)
        cJSON_AddItemToObject(json, "eos_token_id",
                              cJSON_CreateIntArray(ends->ids, ends->n));
    else if (ends->n == 1 || plan->extra.eos_token_id >= 0)
        cJSON_AddNumberToObject(json, "eos_token_id",
                                ends->n ? (double)ends->ids[0]
                                        : (double)plan->extra.eos_token_id);
    return json;
}

/* config.json is written after the weights. The order does not matter for a
 * crash, as the directory has no name yet, but a full disk is met by the large
 * files first. */
int gpt_hf_write(const struct gpt_hf_plan *plan, const char *dir,
                 unsigned flags, struct gpt_fill *fill, struct gpt_err *err)
{
    struct place place = {plan, dir, flags};

    GPT_TRY(gpt_fill_files(fill, NULL, plan->n_shards, write_shard, &place,
                           err));
    flags = gpt_small_flags(flags);
    if (plan->n_shards > 1)
        GPT_TRY(write_json(make_index(plan), dir, GPT_HF_INDEX, flags, err));
    GPT_TRY(write_json(
        gpt_hf_config_make(&plan->config, &plan->extra, plan->tensors[0].dtype),
        dir, GPT_HF_CONFIG, flags, err));
    return write_json(make_generation_config(plan), dir,
                      GPT_HF_GENERATION_CONFIG, flags, err);
}
