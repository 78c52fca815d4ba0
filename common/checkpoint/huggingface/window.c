/* Windows of attention in config.json; see window.h. Start at
 * gpt_hf_settle_window(). */
#include "checkpoint/huggingface/window.h"

#include "base/memory.h"
#include "model/layer_list.h"

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

/* Newer versions of the library rename the kind when they read a file, and
 * write the new name: both are read. */
int gpt_hf_check_attention(const cJSON *list, const char *key,
                           const char *what, struct gpt_err *err)
{
    const cJSON *item;

    if (!cJSON_IsArray(list))
        return gpt_fail(err, GPT_EDATA, "%s: '%s' is not a list", what, key);
    cJSON_ArrayForEach(item, list)
        if (!cJSON_IsString(item) ||
            (strcmp(item->valuestring, "attention") != 0 &&
             strcmp(item->valuestring, full) != 0))
            return gpt_fail(err, GPT_EDATA,
                            "%s: %s is %.200s: only attention is supported",
                            what, key, cJSON_IsString(item)
                                           ? item->valuestring
                                           : "what is no name");
    return GPT_OK;
}

/* One entry of a pattern. A model has 65536 layers at most, and as long a list
 * is none of any model. n counts them: cJSON would walk the list for each. */
static int expand_entry(cJSON *list, int64_t *n, const cJSON *entry,
                        const char *key, const char *what, struct gpt_err *err)
{
    const cJSON *names = cJSON_GetArrayItem(entry, 0), *item;
    const cJSON *times = cJSON_GetArrayItem(entry, 1);

    if (!cJSON_IsArray(names) || !cJSON_IsNumber(times) ||
        !(times->valuedouble >= 0 && times->valuedouble <= 65536))
        return gpt_fail(err, GPT_EDATA,
                        "%s: '%s' is not a list of names and their number",
                        what, key);
    for (int i = 0; i < times->valueint; i++)
        cJSON_ArrayForEach(item, names) {
            const bool local = cJSON_IsString(item) &&
                               strcmp(item->valuestring, "local") == 0;

            if (!local && (!cJSON_IsString(item) ||
                           strcmp(item->valuestring, "global") != 0))
                return gpt_fail(err, GPT_EDATA,
                                "%s: %s has a name that is neither global nor "
                                "local", what, key);
            if (++*n > 65536)
                return gpt_fail(err, GPT_EDATA, "%s: %s has too many layers",
                                what, key);
            gpt_json_add(list, NULL, cJSON_CreateString(local ? sliding
                                                              : full));
        }
    return GPT_OK;
}

/* How many layers there must be is compared where the list is used, as with one
 * that was in the file. */
int gpt_hf_expand_pattern(cJSON **list, const cJSON *pattern, const char *key,
                          const char *what, struct gpt_err *err)
{
    const cJSON *entry;
    int64_t n = 0;

    if (!cJSON_IsArray(pattern))
        return gpt_fail(err, GPT_EDATA, "%s: '%s' is not a list", what, key);
    *list = cJSON_CreateArray();
    cJSON_ArrayForEach(entry, pattern)
        GPT_TRY(expand_entry(*list, &n, entry, key, what, err));
    return GPT_OK;
}

/* True for a layer with a window, by the list. Its entries have been checked to
 * be texts. */
static bool slides(const cJSON *item)
{
    return strcmp(item->valuestring, sliding) == 0;
}

/* So many entries: one a layer. */
static int check_size(const struct gpt_config *c, const cJSON *list,
                      const char *key, const char *what, struct gpt_err *err)
{
    if (cJSON_GetArraySize(list) == c->num_layers)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA, "%s: %s has %d entries for %lld layers",
                    what, key, cJSON_GetArraySize(list),
                    (long long)c->num_layers);
}

/* The list counts, whatever other keys say: newer versions write it and do not
 * read those. Full layers at the beginning alone are Qwen's. */
static int fit_layer_types(struct gpt_config *c, const cJSON *list,
                           const char *what, struct gpt_err *err)
{
    const cJSON *item;
    int64_t layer = 0, first = 0, windows = 0;
    bool *entry;

    GPT_TRY(check_size(c, list, "layer_types", what, err));
    GPT_TRY(gpt_new(&entry, (size_t)c->num_layers, sizeof(*entry), "layers",
                    err));
    cJSON_ArrayForEach(item, list) {
        windows += slides(item);
        first += !slides(item) && first == layer;
        entry[layer++] = slides(item);
    }
    c->window_full_layers = first;
    c->window_attn_skip_freq = 0;
    int status = GPT_OK;
    if (first + windows != layer) {
        c->window_full_layers = 0;
        status = gpt_layers_make(&c->window_attn_skip_freq, entry, layer, false,
                                 what, "layer_types", err);
    }
    gpt_free(entry);
    return status;
}

/* Layers that see the whole text know no positions where others have a window:
 * so texts may become longer than in pretraining. Without one of those others
 * the class still turns none, if the number is there. */
static int leave_full_unturned(struct gpt_config *c, const char *what,
                               struct gpt_err *err)
{
    bool *entry;

    if (c->window_size == 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s: no layer has the sliding_window, without which a "
                        "layer does not turn: a model without positions is not "
                        "supported", what);
    GPT_TRY(gpt_new(&entry, (size_t)c->num_layers, sizeof(*entry), "layers",
                    err));
    for (int64_t l = 0; l < c->num_layers; l++)
        entry[l] = gpt_config_window(c, l, INT64_MAX) == 0;
    int status = gpt_layers_make(&c->no_rope_freq, entry, c->num_layers, true,
                                 what, "layer_types", err);
    gpt_free(entry);
    return status;
}

/* What a window decides beside attention. A base that is the same in all layers
 * is 0 in the field, so that a model has one description. */
static int settle_angles(struct gpt_config *c,
                         const struct gpt_hf_family *family, int64_t window,
                         const char *what, struct gpt_err *err)
{
    const bool plain = c->rotary_scaling == GPT_SCALING_NONE;

    /* by the number: it counts also where the list gives it to no layer */
    if (family->unturned_full && window > 0)
        GPT_TRY(leave_full_unturned(c, what, err));
    if (family->local_angles && !(c->rotary_local_base > 0))
        c->rotary_local_base = c->rotary_base;
    if (c->window_size == 0 ||
        (plain && c->rotary_local_base == c->rotary_base))
        c->rotary_local_base = 0;
    return GPT_OK;
}

/* Keys of windows to fields: positions before its own that a token attends to.
 * Where no layer has one, or no text is longer than it and it decides nothing
 * else, all are 0. */
int gpt_hf_settle_window(struct gpt_config *c,
                         const struct gpt_hf_family *family, int64_t window,
                         const cJSON *layer_types, const char *what,
                         struct gpt_err *err)
{
    const cJSON *item;

    if (window == 1)
        return gpt_fail(err, GPT_EDATA,
                        "%s: sliding_window is 1: a token that attends to "
                        "itself alone is not supported", what);
    if (window == 0 && family->needs_window)
        return gpt_fail(err, GPT_EDATA,
                        "%s: sliding_window is null: only a number is "
                        "supported", what);
    c->window_size = window > 0 ? window - 1 : 0;
    /* the class would fail there, too: a mask of no width */
    cJSON_ArrayForEach(item, layer_types)
        if (window == 0 && slides(item))
            return gpt_fail(err, GPT_EDATA,
                            "%s: layer_types has %s, and there is no "
                            "sliding_window", what, sliding);
    if (layer_types && window > 0)
        GPT_TRY(fit_layer_types(c, layer_types, what, err));
    /* no layer has one: all are among the first */
    if (c->window_full_layers >= c->num_layers || c->window_attn_skip_freq == 1)
        c->window_size = 0;
    GPT_TRY(settle_angles(c, family, window, what, err));
    if (c->window_size == 0 ||
        (window >= c->max_positions && !family->unturned_full &&
         !(c->rotary_local_base > 0)))
        c->window_size = c->window_full_layers = c->window_attn_skip_freq = 0;
    return GPT_OK;
}

/* 0 is none: EXAONE 4 has it where there is no window. */
int gpt_hf_read_every(int64_t *layers, const cJSON *item, const char *key,
                      const char *what, struct gpt_err *err)
{
    const double v = item->valuedouble;

    /* "LLLG" stands beside a list of layers, which counts */
    if (!cJSON_IsNumber(item))
        return GPT_OK;
    if (!(v >= 0 && v <= INT32_MAX) || v != (double)(int64_t)v)
        return gpt_fail(err, GPT_EDATA, "%s: '%s' is %g, out of range: 0 to %d",
                        what, key, v, INT32_MAX);
    /* more than there can be layers: in none of them */
    *layers = v > GPT_LAYERS_EVERY ? 0 : (int64_t)v;
    return GPT_OK;
}

/* Numbers or flags, as Python takes either for a truth value. The list says the
 * opposite of the field, which is of layers that do not turn. */
int gpt_hf_read_turns(struct gpt_config *c, const cJSON *list, const char *key,
                      const char *what, struct gpt_err *err)
{
    const cJSON *item;
    int64_t layer = 0;
    bool *entry;

    if (!cJSON_IsArray(list))
        return gpt_fail(err, GPT_EDATA, "%s: '%s' is not a list", what, key);
    GPT_TRY(check_size(c, list, key, what, err));
    GPT_TRY(gpt_new(&entry, (size_t)c->num_layers, sizeof(*entry), "layers",
                    err));
    cJSON_ArrayForEach(item, list)
        entry[layer++] = !(cJSON_IsTrue(item) ||
                           (cJSON_IsNumber(item) && item->valueint != 0));
    int status =
        gpt_layers_make(&c->no_rope_freq, entry, layer, true, what, key, err);
    gpt_free(entry);
    return status;
}

/* ---- writing ---- */

/* Tokens that a token attends to, itself included. A class that alternates asks
 * for a number: without a window it is one that no text is longer than. */
cJSON *gpt_hf_window_value(const struct gpt_config *c,
                           const struct gpt_hf_family *family)
{
    if (c->window_size > 0)
        return cJSON_CreateNumber((double)(c->window_size + 1));
    return family->base.window_attn_skip_freq > 0 || family->counts_window
               ? cJSON_CreateNumber((double)c->max_positions)
               : cJSON_CreateNull();
}

/* Older versions compute the list, and ignore it; so does a model without a
 * window, unless layers with one would have other angles, or the class wants a
 * window: then the list says that no layer has it. */
cJSON *gpt_hf_layer_types_value(const struct gpt_config *c,
                                const struct gpt_hf_family *family)
{
    cJSON *list;

    /* EXAONE 4 without a window cannot compute the list: it divides by 0 */
    if (c->window_size == 0 && !family->unturned_full &&
        !family->local_angles && !family->counts_window)
        return NULL;
    list = cJSON_CreateArray();
    for (int64_t l = 0; l < c->num_layers; l++)
        gpt_json_add(list, NULL,
                     cJSON_CreateString(gpt_config_window(c, l, INT64_MAX) > 0
                                            ? sliding
                                            : full));
    return list;
}

/* All layers are named once: what repeats need not be found, and the class
 * makes a list of it in any case. */
cJSON *gpt_hf_pattern_value(const struct gpt_config *c)
{
    cJSON *pattern = cJSON_CreateArray(), *entry = cJSON_CreateArray();
    cJSON *names = cJSON_CreateArray();

    for (int64_t l = 0; l < c->num_layers; l++)
        gpt_json_add(names, NULL,
                     cJSON_CreateString(gpt_config_window(c, l, INT64_MAX) > 0
                                            ? "local"
                                            : "global"));
    gpt_json_add(entry, NULL, names);
    gpt_json_add(entry, NULL, cJSON_CreateNumber(1));
    gpt_json_add(pattern, NULL, entry);
    return pattern;
}

/* A model without such layers leaves the number out too: its class has a
 * default, and the list that is written counts. */
cJSON *gpt_hf_every_value(int64_t layers)
{
    return layers > 0 && layers <= GPT_LAYERS_EVERY
               ? cJSON_CreateNumber((double)layers)
               : NULL;
}

/* Always written: absence means every fourth layer. */
cJSON *gpt_hf_turns_value(const struct gpt_config *c)
{
    cJSON *list = cJSON_CreateArray();

    for (int64_t l = 0; l < c->num_layers; l++)
        gpt_json_add(list, NULL, cJSON_CreateNumber(gpt_config_turns(c, l)));
    return list;
}
