/* See experts.h. Start at gpt_hf_settle_experts(). */
#include "checkpoint/huggingface/experts.h"

#include "base/memory.h"
#include "checkpoint/huggingface/reader.h"
#include "model/layer_list.h"

#include <string.h>

static const char dense[] = "dense", sparse[] = "sparse";
static const char by_groups[] = "group_limited_greedy";

/* ---- reading ---- */

/* A number, or a list in which every layer has the same one. */
static int read_each(const struct gpt_hf_reader *r, const char *key,
                     const cJSON *item, int64_t *out, struct gpt_err *err)
{
    const cJSON *first = cJSON_GetArrayItem(item, 0), *other;

    if (!cJSON_IsArray(item))
        return gpt_hf_read_size(r, key, item, out, err);
    cJSON_ArrayForEach(other, item)
        if (!cJSON_Compare(first, other, true))
            return gpt_hf_refuse(r, key, item, "the same for each layer", err);
    if (!first)
        return gpt_hf_wrong_type(r, key, "a number", err);
    return gpt_hf_read_size(r, key, first, out, err);
}

/* -1 is the last layer. */
static int read_end(const struct gpt_hf_reader *r, const char *key,
                    const cJSON *item, int64_t *upto, struct gpt_err *err)
{
    if (cJSON_IsNumber(item) && item->valuedouble == -1)
        return GPT_OK;
    GPT_TRY(gpt_hf_read_size(r, key, item, upto, err));
    ++*upto;
    return GPT_OK;
}

/* Entries are compared when the number of layers is known. */
static int read_list(const struct gpt_hf_reader *r, const char *key,
                     const cJSON *item, const cJSON **list, struct gpt_err *err)
{
    if (!cJSON_IsNull(item) && !cJSON_IsArray(item))
        return gpt_hf_wrong_type(r, key, "a list", err);
    *list = cJSON_IsNull(item) ? NULL : item;
    return GPT_OK;
}

/* A class that has such a feed-forward in any case computes one of no width,
 * whose tensors nothing here has. */
static int read_shared(const struct gpt_hf_reader *r,
                       const struct gpt_hf_key *key, const cJSON *item,
                       int64_t *shared, struct gpt_err *err)
{
    GPT_TRY(read_each(r, key->name, item, shared, err));
    if (*shared == 0 && key->offset == GPT_HF_SHARED)
        return gpt_hf_refuse(r, key->name, item, "1 or more", err);
    return GPT_OK;
}

static int read_groups(const struct gpt_hf_reader *r, const char *key,
                       const cJSON *item, int64_t *to, struct gpt_err *err)
{
    *to = 0;
    if (cJSON_IsNull(item))
        return GPT_OK;
    return gpt_hf_read_size(r, key, item, to, err);
}

static int read_method(const struct gpt_hf_reader *r, const char *key,
                       const cJSON *item, bool *greedy, struct gpt_err *err)
{
    const char *name = cJSON_IsString(item) ? item->valuestring : "";

    *greedy = strcmp(name, "greedy") == 0;
    if (!*greedy && strcmp(name, by_groups) != 0)
        return gpt_hf_refuse(r, key, item, "greedy or group_limited_greedy",
                             err);
    return GPT_OK;
}

int gpt_hf_read_experts(struct gpt_hf_reader *r, const struct gpt_hf_key *key,
                        const cJSON *item, struct gpt_err *err)
{
    struct gpt_hf_experts *e = &r->experts;

    if (key->kind == GPT_HF_EACH)
        return read_each(r, key->name, item,
                         (int64_t *)(void *)((char *)r->c + key->offset), err);
    switch ((enum gpt_hf_expert_key)key->offset) {
    case GPT_HF_EVERY:
        GPT_TRY(gpt_hf_read_size(r, key->name, item, &e->every, err));
        return e->every > 0 ? GPT_OK
                            : gpt_hf_refuse(r, key->name, item, "1 or more",
                                            err);
    case GPT_HF_FROM:
        return gpt_hf_read_size(r, key->name, item, &e->from, err);
    case GPT_HF_UPTO:
        return read_end(r, key->name, item, &e->upto, err);
    case GPT_HF_BUT:
        return read_list(r, key->name, item, &e->without, err);
    case GPT_HF_TYPES:
        return read_list(r, key->name, item, &e->types, err);
    case GPT_HF_SHARED:
    case GPT_HF_SHARED_OR_NONE:
        return read_shared(r, key, item, &e->shared, err);
    case GPT_HF_GROUPS:
        return read_groups(r, key->name, item, &r->c->moe_router_num_groups,
                           err);
    case GPT_HF_GROUP_TOP:
        return read_groups(r, key->name, item, &r->c->moe_router_group_topk,
                           err);
    case GPT_HF_METHOD:
        return read_method(r, key->name, item, &e->greedy, err);
    }
    return GPT_OK;
}

/* The list counts, where there is one, as newer versions write it and do not
 * read other keys beside it. */
static int take_types(bool *has, const struct gpt_hf_reader *r,
                      struct gpt_err *err)
{
    const cJSON *types = r->experts.types, *item;
    int64_t l = 0;

    if (cJSON_GetArraySize(types) != r->c->num_layers)
        return gpt_fail(err, GPT_EDATA,
                        "%s: mlp_layer_types has %d entries for %lld layers",
                        r->what, cJSON_GetArraySize(types),
                        (long long)r->c->num_layers);
    cJSON_ArrayForEach(item, types) {
        has[l] = cJSON_IsString(item) && strcmp(item->valuestring, sparse) == 0;
        if (!has[l] && !(cJSON_IsString(item) &&
                         strcmp(item->valuestring, dense) == 0))
            return gpt_fail(err, GPT_EDATA,
                            "%s: mlp_layer_types has %.200s: only %s and %s "
                            "are supported", r->what,
                            cJSON_IsString(item) ? item->valuestring
                                                 : "what is no name",
                            dense, sparse);
        l++;
    }
    return GPT_OK;
}

/* Numbers of layers outside the model mean nothing there, either. */
static int take_numbers(bool *has, const struct gpt_hf_reader *r,
                        struct gpt_err *err)
{
    const struct gpt_hf_experts *e = &r->experts;
    const int64_t n = r->c->num_layers, every = e->every > 0 ? e->every : 1;
    const cJSON *item;

    for (int64_t l = 0; l < n; l++)
        has[l] = (l + 1) % every == 0 && l >= e->from &&
                 (e->upto == 0 || l < e->upto);
    cJSON_ArrayForEach(item, e->without) {
        if (!cJSON_IsNumber(item))
            return gpt_fail(err, GPT_EDATA,
                            "%s: mlp_only_layers has what is no number",
                            r->what);
        if (item->valuedouble >= 0 && item->valuedouble < (double)n)
            has[(int64_t)item->valuedouble] = false;
    }
    return GPT_OK;
}

static int settle_layers(struct gpt_hf_reader *r, struct gpt_err *err)
{
    bool *has;

    GPT_TRY(gpt_new(&has, (size_t)r->c->num_layers, sizeof(*has), "layers",
                    err));
    int status = r->experts.types ? take_types(has, r, err)
                                  : take_numbers(has, r, err);
    if (status == GPT_OK && !gpt_config_choose_experts(r->c, has))
        status = gpt_fail(err, GPT_EDATA,
                          "%s: which layers have experts does not repeat "
                          "within %d layers, as it must here",
                          r->what, GPT_LAYERS_PERIOD);
    gpt_free(has);
    return status;
}

/* Ranges are checked with the model, later: a wrong number of layers is none to
 * make a list of. */
int gpt_hf_settle_experts(struct gpt_hf_reader *r, struct gpt_err *err)
{
    struct gpt_config *c = r->c;

    if (c->num_experts == 0 || c->num_layers > GPT_LAYERS_EVERY)
        return GPT_OK;
    if (r->experts.greedy)
        c->moe_router_num_groups = c->moe_router_group_topk = 0;
    if (r->experts.shared > 0)
        c->moe_shared_expert_intermediate_size =
            r->experts.shared * c->moe_ffn_hidden_size;
    return settle_layers(r, err);
}

/* ---- writing ---- */

static int64_t every(const struct gpt_config *c)
{
    return c->moe_layer_freq > 0 && c->moe_layer_freq <= GPT_LAYERS_EVERY
               ? c->moe_layer_freq
               : 1;
}

/* Layers without experts that the other number does not leave out. */
static cJSON *without_value(const struct gpt_config *c)
{
    cJSON *list = cJSON_CreateArray();

    for (int64_t l = 0; l < c->num_layers; l++)
        if (!gpt_config_has_experts(c, l) && (l + 1) % every(c) == 0)
            gpt_json_add(list, NULL, cJSON_CreateNumber((double)l));
    return list;
}

static cJSON *types_value(const struct gpt_config *c)
{
    cJSON *list = cJSON_CreateArray();

    for (int64_t l = 0; l < c->num_layers; l++)
        gpt_json_add(list, NULL,
                     cJSON_CreateString(gpt_config_has_experts(c, l) ? sparse
                                                                     : dense));
    return list;
}

/* Classes cut the experts into groups in any case. */
static cJSON *groups_value(int64_t groups)
{
    return cJSON_CreateNumber(groups > 0 ? (double)groups : 1);
}

/* Whole experts: another width makes another model of what is read again, and
 * so another family is looked for. */
static cJSON *shared_value(const struct gpt_config *c)
{
    return cJSON_CreateNumber(
        c->moe_ffn_hidden_size > 0
            ? (double)(c->moe_shared_expert_intermediate_size /
                       c->moe_ffn_hidden_size)
            : 0);
}

cJSON *gpt_hf_experts_value(const struct gpt_hf_key *key,
                            const struct gpt_config *c)
{
    switch ((enum gpt_hf_expert_key)key->offset) {
    case GPT_HF_EVERY:
        return cJSON_CreateNumber((double)every(c));
    case GPT_HF_FROM:
        return cJSON_CreateNumber((double)c->moe_dense_layers);
    case GPT_HF_UPTO:
        return cJSON_CreateNumber((double)(c->num_layers - 1));
    case GPT_HF_BUT:
        return without_value(c);
    case GPT_HF_TYPES:
        return types_value(c);
    case GPT_HF_SHARED:
    case GPT_HF_SHARED_OR_NONE:
        return shared_value(c);
    case GPT_HF_GROUPS:
        return groups_value(c->moe_router_num_groups);
    case GPT_HF_GROUP_TOP:
        return groups_value(c->moe_router_group_topk);
    case GPT_HF_METHOD:
        return cJSON_CreateString(c->moe_router_num_groups > 0 ? by_groups
                                                               : "greedy");
    }
    return NULL;
}
