/* Rotary positions in config.json: the object that says how angles are
 * stretched for longer texts, in the forms of several versions. Start at
 * gpt_hf_read_scaling(). */
#include "checkpoint/hf_reader.h"

#include "base/num.h"

#include <math.h>
#include <string.h>

/* Older files say "type", newer ones "rope_type", some both. */
static bool is_type(const char *key)
{
    return strcmp(key, "rope_type") == 0 || strcmp(key, "type") == 0;
}

/* A number that is not known belongs to a formula that is not, or changes one
 * that is ("truncate", "mscale"). A null is a default of its class. */
static int read_scaling_number(const struct gpt_hf_reader *r, const cJSON *item,
                               struct gpt_err *err)
{
    for (size_t i = 0; i < gpt_hf_n_scaling_numbers; i++) {
        const struct gpt_hf_scaling_number *n = &gpt_hf_scaling_numbers[i];
        char *to = (char *)r->c + n->offset;

        if (strcmp(item->string, n->name) != 0)
            continue;
        if (cJSON_IsNull(item))
            return GPT_OK;
        if (n->offset == 0)
            return gpt_hf_read_size(r, item->string, item,
                                    &r->c->rotary_positions, err);
        return gpt_hf_read_number(r, item->string, item, (double *)(void *)to,
                                  err);
    }
    /* what its absence means */
    if (strcmp(item->string, "truncate") == 0 && cJSON_IsTrue(item))
        return GPT_OK;
    return gpt_hf_refuse(r, item->string, item,
                         "its absence from rotary scaling", err);
}

/* "default" is none. "longrope", "mrope" and what comes after them are refused:
 * ignoring a kind gives a model that is silently wrong on long texts. */
static int read_scaling_type(const struct gpt_hf_reader *r, const cJSON *item,
                             struct gpt_err *err)
{
    const char *name = cJSON_IsString(item) ? item->valuestring : "";

    if (strcmp(name, "default") == 0)
        name = gpt_rotary_scalings[GPT_SCALING_NONE];
    for (int i = 0; gpt_rotary_scalings[i]; i++)
        if (strcmp(gpt_rotary_scalings[i], name) == 0) {
            r->c->rotary_scaling = i;
            return GPT_OK;
        }
    return gpt_hf_refuse(r, item->string, item,
                         "default, linear, dynamic, llama3 or yarn", err);
}

/* Numbers that a kind does not read are 0 in the model, whatever the file says;
 * those that it leaves out have transformers' defaults. */
static void settle_scaling(struct gpt_config *c)
{
    const bool llama3 = c->rotary_scaling == GPT_SCALING_LLAMA3;
    const bool yarn = c->rotary_scaling == GPT_SCALING_YARN;

    /* "default" may come with numbers of the kind that it replaced */
    if (c->rotary_scaling == GPT_SCALING_NONE)
        c->rotary_factor = 0;
    if (c->rotary_scaling == GPT_SCALING_NONE ||
        c->rotary_scaling == GPT_SCALING_LINEAR)
        c->rotary_positions = 0;
    else if (c->rotary_positions == 0 ||
             c->rotary_scaling == GPT_SCALING_DYNAMIC)
        c->rotary_positions = c->max_positions;
    c->rotary_low_factor = llama3 ? c->rotary_low_factor : 0;
    c->rotary_high_factor = llama3 ? c->rotary_high_factor : 0;
    c->rotary_fast = !yarn ? 0 : c->rotary_fast > 0 ? c->rotary_fast : 32;
    c->rotary_slow = !yarn ? 0 : c->rotary_slow > 0 ? c->rotary_slow : 1;
    c->rotary_attention = yarn ? c->rotary_attention : 0;
}

/* Both forms of the object: "rope_scaling" of older files, and
 * "rope_parameters", which has the base and the share of a head, too. */
int gpt_hf_read_scaling(const struct gpt_hf_reader *r, const char *key,
                        const cJSON *object, struct gpt_err *err)
{
    const cJSON *item;

    if (!cJSON_IsObject(object))
        return gpt_hf_wrong_type(r, key, "an object", err);
    cJSON_ArrayForEach(item, object)
        GPT_TRY(is_type(item->string) ? read_scaling_type(r, item, err)
                                      : read_scaling_number(r, item, err));
    settle_scaling(r->c);
    return GPT_OK;
}

/* Both objects where there are two. The second has a base alone; its class
 * scales nothing there. */
int gpt_hf_read_two_scalings(const struct gpt_hf_reader *r, const char *key,
                             const cJSON *object, struct gpt_err *err)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(object,
                                                        "full_attention");
    const cJSON *local = cJSON_GetObjectItemCaseSensitive(object,
                                                          "sliding_attention");
    const cJSON *item;

    if (!all && !local)
        return gpt_hf_read_scaling(r, key, object, err);
    if (all)
        GPT_TRY(gpt_hf_read_scaling(r, key, all, err));
    if (local && !cJSON_IsObject(local))
        return gpt_hf_wrong_type(r, key, "two objects", err);
    cJSON_ArrayForEach(item, local) {
        if (strcmp(item->string, "rope_theta") == 0)
            GPT_TRY(gpt_hf_read_number(r, item->string, item,
                                       &r->c->rotary_local_base, err));
        else if (!is_type(item->string) || !cJSON_IsString(item) ||
                 strcmp(item->valuestring, "default") != 0)
            return gpt_hf_refuse(r, item->string, item,
                                 "rope_theta in sliding_attention", err);
    }
    return GPT_OK;
}

/* The share whose product with a head's size is this number, cut: rounding may
 * leave a hair less than a whole number, and an element would be lost. Heads
 * fill the width where files say it so. */
int gpt_hf_read_rotary_size(const struct gpt_hf_reader *r, const char *key,
                            const cJSON *item, struct gpt_err *err)
{
    struct gpt_config *c = r->c;
    int64_t size;

    GPT_TRY(gpt_hf_read_size(r, key, item, &size, err));
    if (c->num_attention_heads < 1 ||
        size > c->hidden_size / c->num_attention_heads)
        return gpt_hf_refuse(r, key, item, "at most the size of a head", err);
    c->head_size = c->hidden_size / c->num_attention_heads;
    c->rotary_percent = (double)size / (double)gpt_max_i64(c->head_size, 1);
    if (gpt_config_rotary(c) < size)
        c->rotary_percent = nextafter(c->rotary_percent, 2);
    return GPT_OK;
}
