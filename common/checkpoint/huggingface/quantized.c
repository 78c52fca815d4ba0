/* Methods of quantization, and what config.json says of each. Keys that say how
 * the numbers were found, or how activations are rounded, are passed over.
 * Start at gpt_hf_quantized_parse(). */
#include "checkpoint/huggingface/quantized.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define KEY "quantization_config"

/* ---- values ---- */

static bool is_empty(const cJSON *item)
{
    return !item || cJSON_IsFalse(item) ||
           ((cJSON_IsObject(item) || cJSON_IsArray(item)) && !item->child);
}

/* need: what is read. */
static int refuse(const char *what, const char *key, const cJSON *item,
                  const char *need, struct gpt_err *err)
{
    char *text = gpt_json_print(item, false);
    int status =
        gpt_fail(err, GPT_EDATA, "%s: " KEY ": %s is %.200s: only %s is read",
                 what, key, text ? text : "absent", need);

    cJSON_free(text);
    return status;
}

/* Absent, or a text that is the one that is read, in letters of any case. */
static int must_be(const cJSON *config, const char *key, const char *need,
                   const char *what, struct gpt_err *err)
{
    const cJSON *item = gpt_json_member(config, key);

    if (!item ||
        (cJSON_IsString(item) && strcasecmp(item->valuestring, need) == 0))
        return GPT_OK;
    return refuse(what, key, item, need, err);
}

static int must_be_empty(const cJSON *config, const char *key, const char *what,
                         struct gpt_err *err)
{
    const cJSON *item = gpt_json_member(config, key);

    return is_empty(item) ? GPT_OK : refuse(what, key, item, "none", err);
}

/* A number under one of two names; `def` where neither is there. */
static int read_number(const cJSON *config, const char *key, const char *alias,
                       int64_t def, int64_t *out, const char *what,
                       struct gpt_err *err)
{
    if (!gpt_json_member(config, key))
        key = alias;
    if (!gpt_json_member(config, key)) {
        *out = def;
        return GPT_OK;
    }
    return gpt_json_int(config, key, -1, INT32_MAX, out, what, err);
}

bool gpt_hf_two_sizes(const cJSON *list, int64_t sizes[2])
{
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != 2)
        return false;
    for (int i = 0; i < 2; i++) {
        const cJSON *item = cJSON_GetArrayItem(list, i);

        if (!cJSON_IsNumber(item) || !(item->valuedouble >= 1) ||
            item->valuedouble > INT32_MAX ||
            item->valuedouble != (double)(int64_t)item->valuedouble)
            return false;
        sizes[i] = (int64_t)item->valuedouble;
    }
    return true;
}

static int read_block(const cJSON *list, const char *key, int64_t *block,
                      const char *what, struct gpt_err *err)
{
    return gpt_hf_two_sizes(list, block)
               ? GPT_OK
               : refuse(what, key, list, "a list of two sizes", err);
}

/* Elements of a row that share a scale; -1 is all of them. */
static int read_group(struct gpt_hf_quantized *q, const cJSON *config,
                      const char *key, const char *alias, const char *what,
                      struct gpt_err *err)
{
    int64_t group;

    GPT_TRY(read_number(config, key, alias, 128, &group, what, err));
    if (group == 0)
        return gpt_fail(err, GPT_EDATA, "%s: " KEY ": %s is 0", what, key);
    q->block[0] = 1;
    q->block[1] = group < 0 ? 0 : group;
    return GPT_OK;
}

static int check_bits(const struct gpt_hf_quantized *q, const char *key,
                      bool few, const char *what, struct gpt_err *err)
{
    if (q->bits == 4 || q->bits == 8 ||
        (few && (q->bits == 2 || q->bits == 3)))
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: " KEY ": %s is %lld: only %s4 and 8 are read", what,
                    key, (long long)q->bits, few ? "2, 3, " : "");
}

/* ---- methods ---- */

/* Without the key the block is the class's, unless the files have one scale. */
static int parse_fp8(struct gpt_hf_quantized *q, const cJSON *config,
                     const char *what, struct gpt_err *err)
{
    const cJSON *block = gpt_json_member(config, "weight_block_size");

    GPT_TRY(must_be(config, "fmt", "e4m3", what, err));
    q->bits = 8;
    q->block[0] = q->block[1] = 128;
    q->any_block = !block;
    return q->any_block
               ? GPT_OK
               : read_block(block, "weight_block_size", q->block, what, err);
}

static int parse_bits_and_group(struct gpt_hf_quantized *q, const cJSON *config,
                                const char *what, struct gpt_err *err)
{
    GPT_TRY(read_number(config, "bits", "w_bit", 4, &q->bits, what, err));
    return read_group(q, config, "group_size", "q_group_size", what, err);
}

/* The layout of the files, whose key has an older name that counts before it:
 * the one that is there. */
static const char *layout_key(const cJSON *config, const char *older)
{
    const cJSON *item = gpt_json_member(config, older);

    return item ? older : "format";
}

/* "gptq" stores zero points less 1, "gptq_v2" as they are. */
static int parse_gptq(struct gpt_hf_quantized *q, const cJSON *config,
                      const char *what, struct gpt_err *err)
{
    const char *key = layout_key(config, "checkpoint_format");
    const cJSON *format = gpt_json_member(config, key);
    const bool second = cJSON_IsString(format) &&
                        strcasecmp(format->valuestring, "gptq_v2") == 0;

    GPT_TRY(parse_bits_and_group(q, config, what, err));
    GPT_TRY(check_bits(q, "bits", true, what, err));
    if (!second)
        GPT_TRY(must_be(config, key, "gptq", what, err));
    GPT_TRY(must_be(config, "pack_dtype", "int32", what, err));
    GPT_TRY(must_be_empty(config, "is_marlin_format", what, err));
    GPT_TRY(must_be_empty(config, "dynamic", what, err));
    q->plus_one = !second;
    q->zeros = true;
    return GPT_OK;
}

/* "backend" names the kernels that multiply, and one other layout. */
static int parse_awq(struct gpt_hf_quantized *q, const cJSON *config,
                     const char *what, struct gpt_err *err)
{
    const cJSON *zero = gpt_json_member(config, "zero_point");
    const cJSON *backend = gpt_json_member(config, "backend");

    GPT_TRY(parse_bits_and_group(q, config, what, err));
    if (q->bits != 4)
        return gpt_fail(err, GPT_EDATA,
                        "%s: " KEY ": bits is %lld: only 4 is read", what,
                        (long long)q->bits);
    GPT_TRY(must_be(config, layout_key(config, "version"), "gemm", what, err));
    if (cJSON_IsString(backend) &&
        strcasecmp(backend->valuestring, "llm-awq") == 0)
        return refuse(what, "backend", backend, "the layout of AutoAWQ", err);
    if (zero && !cJSON_IsTrue(zero))
        return refuse(what, "zero_point", zero, "true", err);
    q->zeros = true;
    return GPT_OK;
}

/* What there is beside a matrix says the rest. */
static int parse_bnb(struct gpt_hf_quantized *q, const cJSON *config,
                     const char *what, struct gpt_err *err)
{
    bool eight;

    GPT_TRY(gpt_json_bool_or(config, "load_in_8bit", false, &eight, what, err));
    q->bits = eight ? 8 : 4;
    return GPT_OK;
}

/* ---- compressed-tensors ---- */

static int read_strategy(struct gpt_hf_quantized *q, const cJSON *weights,
                         const char *what, struct gpt_err *err)
{
    const cJSON *block = gpt_json_member(weights, "block_structure");
    const cJSON *item = gpt_json_member(weights, "strategy");
    const char *strategy = cJSON_IsString(item) ? item->valuestring
                           : item               ? ""
                                                : "tensor";

    q->block[0] = q->block[1] = 0;
    if (strcmp(strategy, "tensor") == 0)
        return GPT_OK;
    q->block[0] = 1;
    if (strcmp(strategy, "channel") == 0)
        return GPT_OK;
    if (strcmp(strategy, "group") == 0)
        return read_group(q, weights, "group_size", "group_size", what, err);
    if (strcmp(strategy, "block") == 0)
        return read_block(block, "block_structure", q->block, what, err);
    return refuse(what, "strategy", item, "tensor, channel, group or block",
                  err);
}

/* Numbers that go with scales, of one of the groups of layers. type: "int" or
 * "float". */
static int read_weights(struct gpt_hf_quantized *q, const cJSON *group,
                        const char *format, const char *type, const char *what,
                        struct gpt_err *err)
{
    const cJSON *weights = gpt_json_member(group, "weights");
    bool symmetric;

    if (!cJSON_IsObject(weights))
        return refuse(what, "weights", weights, "an object", err);
    GPT_TRY(must_be(group, "format", format, what, err));
    GPT_TRY(must_be(weights, "type", type, what, err));
    GPT_TRY(
        read_number(weights, "num_bits", "num_bits", 8, &q->bits, what, err));
    GPT_TRY(check_bits(q, "num_bits", false, what, err));
    if (cJSON_IsString(gpt_json_member(weights, "actorder")))
        GPT_TRY(must_be(weights, "actorder", "weight", what, err));
    GPT_TRY(
        gpt_json_bool_or(weights, "symmetric", true, &symmetric, what, err));
    q->zeros = !symmetric;
    return read_strategy(q, weights, what, err);
}

static bool same_numbers(const struct gpt_hf_quantized *a,
                         const struct gpt_hf_quantized *b)
{
    return a->bits == b->bits && a->zeros == b->zeros &&
           a->block[0] == b->block[0] && a->block[1] == b->block[1];
}

/* Layers of several kinds of numbers would need to be told by their names. */
static int read_groups(struct gpt_hf_quantized *q, const cJSON *config,
                       const char *type, const char *what, struct gpt_err *err)
{
    const cJSON *groups = gpt_json_member(config, "config_groups");
    const cJSON *group, *sparse, *format;
    struct gpt_hf_quantized first = *q;

    if (!cJSON_IsObject(groups) || !groups->child)
        return refuse(what, "config_groups", groups, "an object", err);
    cJSON_ArrayForEach(group, groups)
    {
        GPT_TRY(read_weights(q, group, q->method->format, type, what, err));
        if (group == groups->child)
            first = *q;
        else if (!same_numbers(&first, q))
            return gpt_fail(err, GPT_EDATA,
                            "%s: " KEY ": config_groups have numbers of "
                            "different kinds: only one kind is read",
                            what);
    }
    GPT_TRY(must_be_empty(config, "transform_config", what, err));
    sparse = gpt_json_member(config, "sparsity_config");
    format = gpt_json_member(sparse, "format");
    if (!is_empty(sparse) && format)
        return must_be(sparse, "format", "dense", what, err);
    return GPT_OK;
}

static int parse_floats(struct gpt_hf_quantized *q, const cJSON *config,
                        const char *what, struct gpt_err *err)
{
    GPT_TRY(read_groups(q, config, "float", what, err));
    return q->bits == 8 && !q->zeros
               ? GPT_OK
               : gpt_fail(err, GPT_EDATA,
                          "%s: " KEY ": only symmetric numbers of 8 bits are "
                          "read of %s",
                          what, q->method->format);
}

static int parse_bytes(struct gpt_hf_quantized *q, const cJSON *config,
                       const char *what, struct gpt_err *err)
{
    GPT_TRY(read_groups(q, config, "int", what, err));
    return q->bits == 8
               ? GPT_OK
               : gpt_fail(err, GPT_EDATA,
                          "%s: " KEY ": num_bits is %lld: only 8 is read of %s",
                          what, (long long)q->bits, q->method->format);
}

static int parse_words(struct gpt_hf_quantized *q, const cJSON *config,
                       const char *what, struct gpt_err *err)
{
    return read_groups(q, config, "int", what, err);
}

/* ---- the table ---- */

static const struct gpt_hf_method methods[] = {
    {"fp8", NULL, parse_fp8, gpt_hf_make_bytes},
    {"compressed-tensors", "float-quantized", parse_floats, gpt_hf_make_bytes},
    {"compressed-tensors", "int-quantized", parse_bytes, gpt_hf_make_bytes},
    {"compressed-tensors", "pack-quantized", parse_words, gpt_hf_make_words},
    {"gptq", NULL, parse_gptq, gpt_hf_make_gptq},
    {"awq", NULL, parse_awq, gpt_hf_make_awq},
    {"bitsandbytes", NULL, parse_bnb, gpt_hf_make_bnb},
};

/* Its older files have a name of their own for the same object. */
static const char *const keys[] = {KEY, "compression_config"};

bool gpt_hf_is_quantization(const char *key)
{
    for (size_t i = 0; i < GPT_COUNT(keys); i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

/* Older files of bitsandbytes have no name of it. */
static const char *name_of(const cJSON *config)
{
    const cJSON *name = gpt_json_member(config, "quant_method");

    if (cJSON_IsString(name))
        return name->valuestring;
    return is_empty(gpt_json_member(config, "load_in_4bit")) &&
                   is_empty(gpt_json_member(config, "load_in_8bit"))
               ? "?"
               : "bitsandbytes";
}

/* "fp8, compressed-tensors (float-quantized), ..." */
static void list_methods(char *text, size_t cap)
{
    size_t n = 0;

    text[0] = '\0';
    for (size_t i = 0; i < GPT_COUNT(methods) && n < cap; i++) {
        const char *format = methods[i].format;
        const int added = snprintf(
            text + n, cap - n, "%s%s%s%s%s", i ? ", " : "", methods[i].name,
            format ? " (" : "", format ? format : "", format ? ")" : "");

        n += added > 0 ? (size_t)added : 0;
    }
}

static int fail_of_method(const char *what, const char *name,
                          const char *format, struct gpt_err *err)
{
    char list[256];

    list_methods(list, sizeof(list));
    gpt_fail(err, GPT_EDATA,
             "%s: '" KEY "': its weights are quantized, by %.60s%s%.60s: only "
             "%s are read",
             what, name, *format ? ", " : "", format, list);
    return gpt_hint(err, "name the model that was quantized, or save it after "
                         "dequantize() of transformers");
}

static void describe(struct gpt_hf_quantized *q)
{
    const char *format = q->method->format;
    const int64_t *b = q->block;
    char groups[64] = "";

    if (b[0] > 1)
        snprintf(groups, sizeof(groups), ", blocks of %lld x %lld",
                 (long long)b[0], (long long)b[1]);
    else if (b[0] && b[1])
        snprintf(groups, sizeof(groups), ", groups of %lld", (long long)b[1]);
    snprintf(q->text, sizeof(q->text), "%s%s%s, %lld bits%s", q->method->name,
             format ? ", " : "", format ? format : "", (long long)q->bits,
             q->any_block ? "" : groups);
}

int gpt_hf_quantized_parse(struct gpt_hf_quantized *q, const cJSON *config,
                           const char *what, struct gpt_err *err)
{
    const cJSON *item = NULL, *format;

    *q = (struct gpt_hf_quantized){.method = NULL};
    for (size_t i = 0; !item && i < GPT_COUNT(keys); i++)
        item = gpt_json_member(config, keys[i]);
    if (!item || cJSON_IsFalse(item))
        return GPT_OK;
    const char *name = name_of(item);
    format = gpt_json_member(item, "format");
    const char *said = cJSON_IsString(format) ? format->valuestring : "";
    for (size_t i = 0; i < GPT_COUNT(methods); i++)
        if (strcmp(methods[i].name, name) == 0 &&
            (!methods[i].format || strcmp(methods[i].format, said) == 0)) {
            q->method = &methods[i];
            GPT_TRY(q->method->parse(q, item, what, err));
            describe(q);
            return GPT_OK;
        }
    return fail_of_method(what, name, said, err);
}
