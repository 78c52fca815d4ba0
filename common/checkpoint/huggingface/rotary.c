/* Rotary positions in config.json: the object that says how angles are
 * stretched for longer texts, in the forms of several versions. Start at
 * gpt_hf_read_scaling(). */
#include "checkpoint/huggingface/reader.h"

#include "base/log.h"
#include "base/num.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Older files say "type", newer ones "rope_type", some both. */
static bool is_type(const char *key)
{
    return strcmp(key, "rope_type") == 0 || strcmp(key, "type") == 0;
}

/* Factors of LongRoPE; how many there must be, the model's rules know. Zeros
 * end a list there: one among the factors would cut it short silently. */
static int read_scaling_list(const struct gpt_hf_reader *r, const cJSON *list,
                             double *to, struct gpt_err *err)
{
    const cJSON *item;
    int64_t n = 0;

    memset(to, 0, GPT_ROTARY_PAIRS * sizeof(*to));
    if (cJSON_IsNull(list))
        return GPT_OK;
    if (!cJSON_IsArray(list))
        return gpt_hf_wrong_type(r, list->string, "a list", err);
    cJSON_ArrayForEach(item, list) {
        if (n == GPT_ROTARY_PAIRS)
            return gpt_fail(err, GPT_EDATA,
                            "%s: '%s' has more than %d numbers", r->what,
                            list->string, GPT_ROTARY_PAIRS);
        if (!cJSON_IsNumber(item) || !(item->valuedouble > 0))
            return gpt_hf_wrong_type(r, list->string,
                                     "a list of numbers above 0", err);
        to[n++] = item->valuedouble;
    }
    return GPT_OK;
}

/* Two numbers of YaRN, from which its factor of sines and cosines follows where
 * there are both: what DeepSeek's models have instead of the factor. */
static bool is_sharpness(const char *key)
{
    return strcmp(key, "mscale") == 0 || strcmp(key, "mscale_all_dim") == 0;
}

static double sharpness(double factor, double number)
{
    return factor > 1 ? 0.1 * number * log(factor) + 1 : 1;
}

/* To whole millionths where it is near: numbers of files are short. */
double gpt_hf_sharpness_number(double factor, double size)
{
    const double x = factor > 1 ? (size - 1) / (0.1 * log(factor)) : 0;
    const double near = round(x * 1e6) / 1e6;

    return fabs(x - near) < 1e-9 ? near : x;
}

/* Classes of latent attention multiply scores by the square of that size. */
void gpt_hf_settle_scores(const struct gpt_hf_reader *r)
{
    struct gpt_config *c = r->c;
    const cJSON *object = gpt_json_member(r->json, "rope_parameters");
    const cJSON *all;

    if (!cJSON_IsObject(object))
        object = gpt_json_member(r->json, "rope_scaling");
    all = cJSON_GetObjectItemCaseSensitive(object, "mscale_all_dim");
    if (!r->extra->family->sharpens_scores || !cJSON_IsNumber(all) ||
        c->rotary_scaling != GPT_SCALING_YARN || !(all->valuedouble > 0))
        return;
    c->query_pre_attn_scalar =
        (double)(c->qk_head_dim + c->qk_pos_emb_head_dim) /
        pow(sharpness(c->rotary_factor, all->valuedouble), 4);
}

/* Only YaRN reads them: with another kind they would say something else. */
static int read_sharpness(const struct gpt_hf_reader *r, const cJSON *object,
                          struct gpt_err *err)
{
    const cJSON *one = cJSON_GetObjectItemCaseSensitive(object, "mscale");
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(object,
                                                        "mscale_all_dim");
    struct gpt_config *c = r->c;

    if (c->rotary_scaling != GPT_SCALING_YARN && (one || all))
        return gpt_hf_refuse(r, one ? "mscale" : "mscale_all_dim",
                             one ? one : all, "its absence without yarn", err);
    if (c->rotary_attention > 0 || !cJSON_IsNumber(one) ||
        !cJSON_IsNumber(all) || !(one->valuedouble > 0) ||
        !(all->valuedouble > 0))
        return GPT_OK;
    c->rotary_attention = sharpness(c->rotary_factor, one->valuedouble) /
                          sharpness(c->rotary_factor, all->valuedouble);
    return GPT_OK;
}

/* A class without a key for the share of a head turns all of it, whatever the
 * object says. */
static bool reads_share(const struct gpt_hf_family *family)
{
    for (size_t i = 0; i < family->n_keys; i++)
        if (family->keys[i].kind == GPT_HF_RATE &&
            family->keys[i].offset ==
                offsetof(struct gpt_config, rotary_percent))
            return true;
    return false;
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
        /* other classes pass over it, or compute something of that kind */
        if (n->offset == offsetof(struct gpt_config, rotary_query_growth) &&
            !r->extra->family->grows_queries)
            break;
        if (cJSON_IsNull(item))
            return GPT_OK;
        if (n->offset == offsetof(struct gpt_config, rotary_percent) &&
            !reads_share(r->extra->family) &&
            !(item->valuedouble >= 1 && item->valuedouble <= 1))
            return gpt_hf_refuse(r, item->string, item, "1", err);
        if (n->offset == 0)
            return gpt_hf_read_size(r, item->string, item,
                                    &r->c->rotary_positions, err);
        return gpt_hf_read_number(r, item->string, item, (double *)(void *)to,
                                  err);
    }
    for (size_t i = 0; i < gpt_hf_n_scaling_lists; i++)
        if (strcmp(item->string, gpt_hf_scaling_lists[i].name) == 0)
            return read_scaling_list(
                r, item,
                (double *)(void *)((char *)r->c +
                                   gpt_hf_scaling_lists[i].offset),
                err);
    /* what its absence means */
    if (strcmp(item->string, "truncate") == 0 && cJSON_IsTrue(item))
        return GPT_OK;
    /* the model's own number again */
    if (strcmp(item->string, "max_position_embeddings") == 0 &&
        cJSON_IsNumber(item))
        return GPT_OK;
    /* gpt_hf_read_scaling() reads these */
    if ((is_sharpness(item->string) ||
         (r->extra->family->has_alpha && strcmp(item->string, "alpha") == 0)) &&
        cJSON_IsNumber(item))
        return GPT_OK;
    return gpt_hf_refuse(r, item->string, item,
                         "its absence from rotary scaling", err);
}

/* "default" is none, "su" was an early name of LongRoPE. "mrope" and what comes
 * after it are refused: ignoring a kind gives a model that is silently wrong on
 * long texts. */
static int read_scaling_type(const struct gpt_hf_reader *r, const cJSON *item,
                             struct gpt_err *err)
{
    const char *name = cJSON_IsString(item) ? item->valuestring : "";

    if (strcmp(name, "default") == 0)
        name = gpt_rotary_scalings[GPT_SCALING_NONE];
    if (strcmp(name, "su") == 0)
        name = gpt_rotary_scalings[GPT_SCALING_LONGROPE];
    for (int i = 0; gpt_rotary_scalings[i]; i++)
        if (i != GPT_SCALING_NTK_ALPHA &&
            strcmp(gpt_rotary_scalings[i], name) == 0) {
            r->c->rotary_scaling = i;
            return GPT_OK;
        }
    return gpt_hf_refuse(r, item->string, item,
                         "default, linear, dynamic, llama3, yarn or longrope",
                         err);
}

/* True where a number of its own replaces "dynamic": then the class reads that
 * and the base alone, whatever else is in the object. */
static bool read_alpha(struct gpt_config *c, const cJSON *object)
{
    const cJSON *alpha = cJSON_GetObjectItemCaseSensitive(object, "alpha");

    if (c->rotary_scaling != GPT_SCALING_DYNAMIC || !cJSON_IsNumber(alpha) ||
        !(alpha->valuedouble > 0 || alpha->valuedouble < 0))
        return false;
    c->rotary_scaling = GPT_SCALING_NTK_ALPHA;
    c->rotary_factor = alpha->valuedouble;
    c->rotary_attention = c->rotary_fast = c->rotary_slow = 0;
    c->rotary_positions = 0;
    return true;
}

/* Numbers that a kind does not read are 0 in the model, whatever the file says;
 * those that it leaves out have transformers' defaults. */
static void settle_scaling(struct gpt_config *c)
{
    const bool llama3 = c->rotary_scaling == GPT_SCALING_LLAMA3;
    const bool yarn = c->rotary_scaling == GPT_SCALING_YARN;
    const bool longrope = c->rotary_scaling == GPT_SCALING_LONGROPE;
    const size_t lists = longrope ? 0 : sizeof(c->rotary_short_factors);

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
    c->rotary_attention = yarn || longrope ? c->rotary_attention : 0;
    if (c->rotary_positions == 0)
        c->rotary_query_growth = 0;
    memset(c->rotary_short_factors, 0, lists);
    memset(c->rotary_long_factors, 0, lists);
}

/* The class takes the positions of pretraining from the object, whatever its
 * kind; here only some kinds have them, and for "dynamic" they are others. */
static int check_growth(const struct gpt_hf_reader *r, const cJSON *object,
                        const char *key, struct gpt_err *err)
{
    static const char name[] = "llama_4_scaling_beta";
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    const int64_t kind = r->c->rotary_scaling;

    if (!item)
        return gpt_fail(err, GPT_EDATA,
                        "%s: '%s' has no %s, without which %s computes nothing",
                        r->what, key, name, r->extra->family->architecture);
    if (r->c->rotary_query_growth > 0 && kind != GPT_SCALING_YARN &&
        kind != GPT_SCALING_LLAMA3 && kind != GPT_SCALING_LONGROPE)
        return gpt_hf_refuse(r, name, item,
                             "0 without yarn, llama3 or longrope", err);
    return GPT_OK;
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
    if (r->extra->family->has_alpha && read_alpha(r->c, object))
        return GPT_OK;
    GPT_TRY(read_sharpness(r, object, err));
    if (r->extra->family->grows_queries)
        GPT_TRY(check_growth(r, object, key, err));
    settle_scaling(r->c);
    return GPT_OK;
}

/* The base of a class where nothing says one; 0: it has to be said. */
static double default_base(const struct gpt_hf_family *family)
{
    for (size_t i = 0; i < family->n_keys; i++)
        if (family->keys[i].kind == GPT_HF_THETA && family->keys[i].def)
            return strtod(family->keys[i].def, NULL);
    return 0;
}

/* Both objects where there are two. The second has a base alone; its class
 * scales nothing there, and takes no base from the first. An object that is
 * neither is what no version of these classes reads. */
int gpt_hf_read_two_scalings(const struct gpt_hf_reader *r, const char *key,
                             const cJSON *object, struct gpt_err *err)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(object,
                                                        "full_attention");
    const cJSON *local = cJSON_GetObjectItemCaseSensitive(object,
                                                          "sliding_attention");
    const cJSON *item;

    if (!all && !local) {
        gpt_warn("%s: '%s' has neither full_attention nor sliding_attention: "
                 "it is taken for layers without a window, and transformers "
                 "passes over it", r->what, key);
        return gpt_hf_read_scaling(r, key, object, err);
    }
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
    if (!(r->c->rotary_local_base > 0))
        r->c->rotary_local_base = default_base(r->extra->family);
    return GPT_OK;
}

/* Phi-3's class has a default for them, which goes before what the object of
 * newer versions says; only LongRoPE asks for it there. */
int gpt_hf_read_before(const struct gpt_hf_reader *r,
                       const struct gpt_hf_key *key, const cJSON *item,
                       struct gpt_err *err)
{
    if (r->c->rotary_scaling != GPT_SCALING_LONGROPE)
        return GPT_OK;
    if (item)
        return gpt_hf_read_size(r, key->name, item, &r->c->rotary_positions,
                                err);
    return gpt_parse_int(key->def, &r->c->rotary_positions)
               ? GPT_OK
               : gpt_fail(err, GPT_EFAIL, "%s: a default that is no number",
                          key->name);
}

/* The share whose product with a head's size is this number, cut: rounding may
 * leave a hair less than a whole number, and an element would be lost. Heads
 * fill the width where no other key says their size. */
int gpt_hf_read_rotary_size(const struct gpt_hf_reader *r, const char *key,
                            const cJSON *item, struct gpt_err *err)
{
    struct gpt_config *c = r->c;
    int64_t size;

    GPT_TRY(gpt_hf_read_size(r, key, item, &size, err));
    if (c->head_size == 0 && c->num_attention_heads > 0)
        c->head_size = c->hidden_size / c->num_attention_heads;
    if (c->num_attention_heads < 1 || size > c->head_size)
        return gpt_hf_refuse(r, key, item, "at most the size of a head", err);
    c->rotary_percent = (double)size / (double)gpt_max_i64(c->head_size, 1);
    if (gpt_config_rotary(c) < size)
        c->rotary_percent = nextafter(c->rotary_percent, 2);
    return GPT_OK;
}
