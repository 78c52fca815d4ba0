/* adapter_config.json: what is merged how, and what of PEFT is not merged
 * here. Start at gpt_adapter_config_read(). */
#include "checkpoint/adapter/adapter.h"

#include <math.h>
#include <string.h>

enum { CONFIG_LIMIT = 1 << 20, BUDGET = 400000000 };

/* Variants whose merged weights are not W + scale B A. Each is off where its
 * key is absent, null, false or empty. */
static const struct {
    const char *key, *why;
} variants[] = {
    {"target_parameters", "parameters that are no layers' weights"},
    {"use_qalora", "QA-LoRA"},
    {"use_bdlora", "BD-LoRA"},
    {"alora_invocation_tokens", "activated LoRA, which only some tokens see"},
    {"arrow_config", "Arrow, which chooses among adapters"},
    {"kasa_config", "KaSA"},
    {"monteclora_config", "MonteCLoRA"},
    {"layer_replication", "layers that are copied"},
    {"megatron_config", "layers of Megatron-LM"},
};

/* Beginnings of init_lora_weights at which peft changes the model's own
 * weights when it loads an adapter. */
static const char *const changing[] = {"pissa", "corda", "olora",
                                       "mica",  "loftq", "lora_ga"};

/* What a switch or a list is when it is not used. */
static bool is_off(const cJSON *item)
{
    return !item || cJSON_IsFalse(item) ||
           ((cJSON_IsArray(item) || cJSON_IsObject(item)) && !item->child);
}

/* One type of many, and of that one variants: each of them is refused by name,
 * as merging it like plain LoRA would give a model that is almost right. */
static int check_kind(const struct gpt_adapter_config *c, const char *path,
                      struct gpt_err *err)
{
    const char *type;

    GPT_TRY(gpt_json_string(c->json, "peft_type", &type, path, err));
    if (strcmp(type, "LORA") != 0) {
        gpt_fail(err, GPT_EDATA, "%s: peft_type is '%.100s'; LORA is merged",
                 path, type);
        return gpt_hint(err, "merge_and_unload() of peft puts an adapter of "
                             "another type into its model, where that can be "
                             "done");
    }
    for (size_t i = 0; i < GPT_COUNT(variants); i++)
        if (!is_off(gpt_json_member(c->json, variants[i].key)))
            return gpt_fail(err, GPT_EDATA,
                            "%s: '%s' is given: %s; such adapters are not "
                            "merged",
                            path, variants[i].key, variants[i].why);
    return GPT_OK;
}

/* How an adapter began is nothing that its weights tell, and for most kinds
 * nothing that matters once it is trained. */
static int check_init(const struct gpt_adapter_config *c, const char *path,
                      struct gpt_err *err)
{
    const cJSON *init = gpt_json_member(c->json, "init_lora_weights");

    for (size_t i = 0; cJSON_IsString(init) && i < GPT_COUNT(changing); i++)
        if (strncmp(init->valuestring, changing[i], strlen(changing[i])) == 0) {
            gpt_fail(err, GPT_EDATA,
                     "%s: init_lora_weights is '%.100s', for which peft takes "
                     "a part out of the model's weights when it loads the "
                     "adapter",
                     path, init->valuestring);
            return gpt_hint(err, "save it by save_pretrained() with "
                                 "path_initial_model_for_weight_conversion: it "
                                 "is plain LoRA then");
        }
    return GPT_OK;
}

/* Ranks are whole; alpha may be anything. JSON has no NaN, but 1e999. */
static int check_number(double value, bool whole, const char *key,
                        const char *path, struct gpt_err *err)
{
    if (isfinite(value) &&
        (!whole || (value >= 1 && value <= 1e9 && floor(value) >= value)))
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA, "%s: '%.100s' is %g%s", path, key, value,
                    whole ? ", a rank is a whole number from 1 to 1e9" : "");
}

/* rank_pattern or alpha_pattern: an object of numbers, in its order. */
static int read_rules(const struct gpt_adapter_config *c, const char *key,
                      struct gpt_adapter_rule **rules, size_t *n, bool whole,
                      const char *path, struct gpt_err *err)
{
    const cJSON *object = gpt_json_member(c->json, key), *item;
    size_t cap = 0;

    if (object && !cJSON_IsObject(object))
        return gpt_fail(err, GPT_EDATA, "%s: '%s' is no object", path, key);
    cJSON_ArrayForEach(item, object)
    {
        if (!cJSON_IsNumber(item))
            return gpt_fail(err, GPT_EDATA, "%s: %s: '%.100s' is no number",
                            path, key, item->string);
        GPT_TRY(
            check_number(item->valuedouble, whole, item->string, path, err));
        GPT_TRY(gpt_grow(rules, &cap, *n + 1, sizeof(**rules), key, err));
        (*rules)[*n].value = item->valuedouble;
        GPT_TRY(
            gpt_pattern_open(&(*rules)[*n].pattern, item->string, path, err));
        ++*n;
    }
    return GPT_OK;
}

/* What says which modules are targets is not read: the tensors that are there
 * say it. Absent numbers are those of peft's class. */
int gpt_adapter_config_read(struct gpt_adapter_config *c, const char *path,
                            struct gpt_err *err)
{
    double rank;

    *c = (struct gpt_adapter_config){.budget = BUDGET};
    GPT_TRY(gpt_json_read(&c->json, path, CONFIG_LIMIT, err));
    if (!cJSON_IsObject(c->json))
        return gpt_fail(err, GPT_EDATA, "%s: it is no object", path);
    GPT_TRY(check_kind(c, path, err));
    GPT_TRY(check_init(c, path, err));
    GPT_TRY(gpt_json_real_or(c->json, "r", 8, &rank, path, err));
    GPT_TRY(check_number(rank, true, "r", path, err));
    c->rank = (int64_t)rank;
    GPT_TRY(gpt_json_real_or(c->json, "lora_alpha", 8, &c->alpha, path, err));
    GPT_TRY(check_number(c->alpha, false, "lora_alpha", path, err));
    GPT_TRY(gpt_json_bool_or(c->json, "use_rslora", false, &c->root_scale, path,
                             err));
    GPT_TRY(gpt_json_bool_or(c->json, "use_dora", false, &c->dora, path, err));
    GPT_TRY(gpt_json_bool_or(c->json, "ensure_weight_tying", false,
                             &c->keeps_ties, path, err));
    GPT_TRY(
        read_rules(c, "rank_pattern", &c->ranks, &c->n_ranks, true, path, err));
    return read_rules(c, "alpha_pattern", &c->alphas, &c->n_alphas, false, path,
                      err);
}

/* The patterns of a list that may have been read in part. */
static void free_rules(struct gpt_adapter_rule *rules, size_t n)
{
    for (size_t i = 0; i < n; i++)
        gpt_pattern_close(rules[i].pattern);
    gpt_free(rules);
}

void gpt_adapter_config_free(struct gpt_adapter_config *c)
{
    free_rules(c->ranks, c->n_ranks);
    free_rules(c->alphas, c->n_alphas);
    cJSON_Delete(c->json);
}

/* The first rule that fits counts, in the order of the file. */
static int find_rule(struct gpt_adapter_config *c,
                     const struct gpt_adapter_rule *rules, size_t n,
                     const char *module, double *value, struct gpt_err *err)
{
    bool fits = false;

    for (size_t i = 0; i < n && !fits; i++) {
        GPT_TRY(
            gpt_pattern_ends(&fits, rules[i].pattern, module, &c->budget, err));
        if (fits)
            *value = rules[i].value;
    }
    return GPT_OK;
}

/* In double, as Python has it; the product is scaled by its float. */
int gpt_adapter_scale(struct gpt_adapter_config *c, const char *module,
                      int64_t *rank, double *scale, struct gpt_err *err)
{
    double r = (double)c->rank, alpha = c->alpha;

    GPT_TRY(find_rule(c, c->ranks, c->n_ranks, module, &r, err));
    GPT_TRY(find_rule(c, c->alphas, c->n_alphas, module, &alpha, err));
    *rank = (int64_t)r;
    *scale = alpha / (c->root_scale ? sqrt(r) : r);
    return GPT_OK;
}

/* "q_proj" names all modules whose last word it is, "mlp.up_proj" those whose
 * last words these are: a part of a word is none. */
static bool ends_in_words(const char *module, const char *words)
{
    const size_t n = strlen(module), k = strlen(words);

    return k > 0 && k <= n && strcmp(module + n - k, words) == 0 &&
           (k == n || module[n - k - 1] == '.');
}

/* The first that fits counts, as in peft. */
bool gpt_adapter_names(const struct gpt_adapter_config *c, const char *key,
                       const char *module, const cJSON **item)
{
    const cJSON *list = gpt_json_member(c->json, key), *i;

    *item = NULL;
    cJSON_ArrayForEach(i, list)
    {
        const char *words = cJSON_IsObject(list) ? i->string
                            : cJSON_IsString(i)  ? i->valuestring
                                                 : "";

        if (!*item && ends_in_words(module, words))
            *item = i;
    }
    return *item != NULL;
}
