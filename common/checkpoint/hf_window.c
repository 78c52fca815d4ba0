/* Windows of attention in config.json; see hf_window.h. Start at
 * gpt_hf_settle_window(). */
#include "checkpoint/hf_window.h"

#include <string.h>

static const char full[] = "full_attention", sliding[] = "sliding_attention";

/* Some models alternate layers of full attention with others. */
int gpt_hf_check_layer_types(const cJSON *list, const char *what,
                             struct gpt_err *err)
{
    const cJSON *item;

    if (!cJSON_IsArray(list))
        return gpt_fail(err, GPT_EDATA, "%s: 'layer_types' is not a list",
                        what);
    cJSON_ArrayForEach(item, list)
        if (!cJSON_IsString(item) || (strcmp(item->valuestring, full) != 0 &&
                                      strcmp(item->valuestring, sliding) != 0))
            return gpt_fail(err, GPT_EDATA,
                            "%s: layer_types has %.200s: only %s and %s are "
                            "supported", what,
                            cJSON_IsString(item) ? item->valuestring
                                                 : "what is no name",
                            full, sliding);
    return GPT_OK;
}

/* True for a layer with a window, by the list. Its entries have been checked to
 * be texts. */
static bool slides(const cJSON *item)
{
    return strcmp(item->valuestring, sliding) == 0;
}

/* The list as the first layers without a window, or as every N-th one, which
 * is all that published models have; then compared with each layer. */
static int fit_layer_types(struct gpt_config *c, const cJSON *list,
                           const char *what, struct gpt_err *err)
{
    const cJSON *item;
    int64_t layer = 0, first = 0;

    if (cJSON_GetArraySize(list) != c->num_layers)
        return gpt_fail(err, GPT_EDATA,
                        "%s: layer_types has %d entries for %lld layers",
                        what, cJSON_GetArraySize(list),
                        (long long)c->num_layers);
    /* The list counts, whatever other keys say: newer versions write it and do
     * not read those. Full layers at the beginning are Qwen's; a full one after
     * others is the end of a period, as Gemma has it. */
    c->window_full_layers = c->window_attn_skip_freq = 0;
    cJSON_ArrayForEach(item, list) {
        if (!slides(item) && first == layer)
            first++;
        else if (!slides(item) && first == 0 && !c->window_attn_skip_freq)
            c->window_attn_skip_freq = layer + 1;
        layer++;
    }
    c->window_full_layers = first;
    layer = 0;
    cJSON_ArrayForEach(item, list) {
        /* a text that is longer than any window */
        if (slides(item) != (gpt_config_window(c, layer, INT64_MAX) > 0))
            return gpt_fail(err, GPT_EDATA,
                            "%s: layer_types has %s at layer %lld: only "
                            "layers that alternate regularly, or begin with "
                            "full_attention, are supported",
                            what, item->valuestring, (long long)layer);
        layer++;
    }
    return GPT_OK;
}

/* Keys of windows to fields: positions before its own that a token attends to.
 * Where no layer has one, or no text is longer than it, all are 0. */
int gpt_hf_settle_window(struct gpt_config *c, int64_t window,
                         const cJSON *layer_types, const char *what,
                         struct gpt_err *err)
{
    const cJSON *item;

    if (window == 1)
        return gpt_fail(err, GPT_EDATA,
                        "%s: sliding_window is 1: a token that attends to "
                        "itself alone is not supported", what);
    c->window_size = window > 0 ? window - 1 : 0;
    /* the class would fail there, too: a mask of no width */
    cJSON_ArrayForEach(item, layer_types)
        if (window == 0 && slides(item))
            return gpt_fail(err, GPT_EDATA,
                            "%s: layer_types has %s, and there is no "
                            "sliding_window", what, sliding);
    if (layer_types && window > 0)
        GPT_TRY(fit_layer_types(c, layer_types, what, err));
    if (window == 0 || window >= c->max_positions ||
        c->window_full_layers >= c->num_layers)
        c->window_size = c->window_full_layers = c->window_attn_skip_freq = 0;
    return GPT_OK;
}

/* ---- writing ---- */

/* Tokens that a token attends to, itself included. A class that alternates asks
 * for a number: without a window it is one that no text is longer than. */
cJSON *gpt_hf_window_value(const struct gpt_config *c,
                           const struct gpt_hf_family *family)
{
    if (c->window_size > 0)
        return cJSON_CreateNumber((double)(c->window_size + 1));
    return family->base.window_attn_skip_freq > 0
               ? cJSON_CreateNumber((double)c->max_positions)
               : cJSON_CreateNull();
}

/* Older versions compute the list, and ignore it; so does a model without a
 * window. */
cJSON *gpt_hf_layer_types_value(const struct gpt_config *c)
{
    cJSON *list;

    if (c->window_size == 0)
        return NULL;
    list = cJSON_CreateArray();
    for (int64_t l = 0; l < c->num_layers; l++)
        gpt_json_add(list, NULL,
                     cJSON_CreateString(gpt_config_window(c, l, INT64_MAX) > 0
                                            ? sliding
                                            : full));
    return list;
}
