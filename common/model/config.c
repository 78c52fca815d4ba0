/* Model configuration: defaults, what follows from what, JSON. The table
 * `fields` names every field once; reading, writing and comparing walk it, so
 * that a new field, a named choice included, is a row. */
#include "model/config.h"

#include "base/num.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* How a field is stored, and how JSON writes it: a SIZE as a whole number, a
 * RATE as any, a FLAG as true or false, a CHOICE by name. In memory a SIZE and
 * a CHOICE are int64_t, a RATE is double, a FLAG bool. */
enum kind { SIZE, RATE, FLAG, CHOICE };

struct field {
    const char *name;
    enum kind kind;
    size_t offset;
    double min, max; /* of a CHOICE: its first and last number */
    bool identity;   /* two models that differ here are not the same */
    bool optional;   /* may be missing in JSON: 0 then */
    const char *const *names; /* of a CHOICE: in JSON, by number */
};

const char *const gpt_position_embeddings[] = {
    [GPT_POSITION_LEARNED] = "learned_absolute",
    [GPT_POSITION_ROPE] = "rope",
    [GPT_POSITION_ALIBI] = "alibi",
    [GPT_POSITION_NONE] = "none",
    NULL,
};

/* In the order of a checkpoint's JSON. `identity` is false for what a run may
 * change between two checkpoints of one model: dropout, how weights were
 * initialised, and padding, which reshaping changes. `optional` is true for
 * fields that the first checkpoints did not have; their 0 is what was then. */
#define AT(name) offsetof(struct gpt_config, name)

/* The limits are far above what exists, near enough that products of three of
 * them stay inside int64. */
static const struct field fields[] = {
    {"num_layers", SIZE, AT(num_layers), 1, 65536, .identity = true},
    {"hidden_size", SIZE, AT(hidden_size), 1, 1 << 20, .identity = true},
    {"num_attention_heads", SIZE, AT(num_attention_heads), 1, 65536,
     .identity = true},
    {"num_query_groups", SIZE, AT(num_query_groups), 1, 65536,
     .identity = true},
    {"head_size", SIZE, AT(head_size), 1, 65536, .identity = true},
    {"ffn_hidden_size", SIZE, AT(ffn_hidden_size), 1, 1 << 22,
     .identity = true},
    {"max_positions", SIZE, AT(max_positions), 1, 1 << 24, .identity = true},
    {"position_embedding", CHOICE, AT(position_embedding), 0,
     GPT_POSITION_NONE, .identity = true, .optional = true,
     .names = gpt_position_embeddings},
    {"rotary_base", RATE, AT(rotary_base), 0, 1e12, .identity = true,
     .optional = true},
    {"rotary_percent", RATE, AT(rotary_percent), 0, 1, .identity = true,
     .optional = true},
    {"vocab_size", SIZE, AT(vocab_size), 1, 1 << 24, .identity = true},
    {"padded_vocab_size", SIZE, AT(padded_vocab_size), 1, 1 << 25,
     .identity = false},
    {"norm_epsilon", RATE, AT(norm_epsilon), 0, 1, .identity = true},
    {"init_std", RATE, AT(init_std), 0, 1e3, .identity = false},
    {"hidden_dropout", RATE, AT(hidden_dropout), 0, 0.999, .identity = false},
    {"attention_dropout", RATE, AT(attention_dropout), 0, 0.999,
     .identity = false},
    {"tied_embeddings", FLAG, AT(tied_embeddings), 0, 1, .identity = true},
};

static const void *field_at(const struct gpt_config *c, const struct field *f)
{
    return (const char *)c + f->offset;
}

/* Every kind as a double, which holds all sizes exactly: the limits are far
 * below 2^53. So ranges, comparison and JSON need no case for each kind. */
static double field_value(const struct gpt_config *c, const struct field *f)
{
    switch (f->kind) {
    case SIZE:
    case CHOICE:
        return (double)*(const int64_t *)field_at(c, f);
    case RATE:
        return *(const double *)field_at(c, f);
    case FLAG:
        return *(const bool *)field_at(c, f);
    }
    return 0;
}

/* What is left 0 here is filled by gpt_config_complete(). */
struct gpt_config gpt_config_default(void)
{
    return (struct gpt_config){
        .num_layers = 12,
        .hidden_size = 768,
        .num_attention_heads = 12,
        .max_positions = 1024,
        .vocab_size = 50257,
        .norm_epsilon = 1e-5,
        .init_std = 0.02,
        .hidden_dropout = 0.1,
        .attention_dropout = 0.1,
        .tied_embeddings = true,
    };
}

/* A vocabulary that is a multiple of 128 on every rank makes large products
 * fast; Megatron does the same. */
int64_t gpt_config_padded_vocab(int64_t vocab, int64_t divisible_by, int64_t tp)
{
    return gpt_round_up(vocab, divisible_by * tp);
}

int64_t gpt_config_rotary(const struct gpt_config *c)
{
    return (int64_t)((double)c->head_size * c->rotary_percent);
}

static int check_ranges(const struct gpt_config *c, int status,
                        const char *what, struct gpt_err *err)
{
    for (size_t i = 0; i < GPT_COUNT(fields); i++) {
        const struct field *f = &fields[i];
        double v = field_value(c, f);

        /* written so that NaN is outside, too */
        if (!(v >= f->min && v <= f->max))
            return gpt_fail(err, status, "%s: %s is %g, must be %g to %g",
                            what, f->name, v, f->min, f->max);
    }
    return GPT_OK;
}

/* Rules between fields. Ranges hold already, so that no product overflows. */
static int check_rules(const struct gpt_config *c, int status,
                       const char *what, struct gpt_err *err)
{
    if (c->num_attention_heads % c->num_query_groups != 0)
        return gpt_fail(err, status,
                        "%s: num_attention_heads (%lld) is not a multiple of "
                        "num_query_groups (%lld)",
                        what, (long long)c->num_attention_heads,
                        (long long)c->num_query_groups);
    /* the rotation takes pairs of elements */
    if (c->position_embedding == GPT_POSITION_ROPE &&
        (!(c->rotary_base > 1) || gpt_config_rotary(c) < 2 ||
         gpt_config_rotary(c) % 2 != 0))
        return gpt_fail(err, status,
                        "%s: rotary positions of base %g turn %lld of a head's "
                        "%lld elements: base must be above 1, elements even",
                        what, c->rotary_base, (long long)gpt_config_rotary(c),
                        (long long)c->head_size);
    if (c->padded_vocab_size < c->vocab_size)
        return gpt_fail(err, status,
                        "%s: padded_vocab_size (%lld) is below vocab_size "
                        "(%lld)",
                        what, (long long)c->padded_vocab_size,
                        (long long)c->vocab_size);
    return GPT_OK;
}

int gpt_config_complete(struct gpt_config *c, int64_t divisible_by, int64_t tp,
                        struct gpt_err *err)
{
    if (divisible_by < 1 || tp < 1 || divisible_by > 1 << 20 || tp > 1 << 20)
        return gpt_fail(err, GPT_EUSAGE,
                        "vocabulary padding to %lld x %lld is out of range",
                        (long long)divisible_by, (long long)tp);
    if (c->head_size == 0 && c->num_attention_heads > 0) {
        if (c->hidden_size % c->num_attention_heads != 0)
            return gpt_fail(err, GPT_EUSAGE,
                            "hidden_size (%lld) is not a multiple of "
                            "num_attention_heads (%lld)",
                            (long long)c->hidden_size,
                            (long long)c->num_attention_heads);
        c->head_size = c->hidden_size / c->num_attention_heads;
    }
    /* defaults of GPT-2, in an order in which each has what it needs */
    if (c->num_query_groups == 0)
        c->num_query_groups = c->num_attention_heads;
    if (c->ffn_hidden_size == 0)
        c->ffn_hidden_size = 4 * c->hidden_size;
    if (c->padded_vocab_size == 0)
        c->padded_vocab_size =
            gpt_config_padded_vocab(c->vocab_size, divisible_by, tp);
    /* ranges first: the rules divide by fields that may be 0 before it */
    GPT_TRY(check_ranges(c, GPT_EUSAGE, "model", err));
    return check_rules(c, GPT_EUSAGE, "model", err);
}

static cJSON *to_json(const struct gpt_config *c, const struct field *f)
{
    double v = field_value(c, f);

    if (f->kind == FLAG)
        return cJSON_CreateBool(v != 0.0);
    if (f->kind == CHOICE)
        return cJSON_CreateString(f->names[(int)v]);
    return cJSON_CreateNumber(v);
}

cJSON *gpt_config_to_json(const struct gpt_config *c)
{
    cJSON *json = cJSON_CreateObject();

    for (size_t i = 0; i < GPT_COUNT(fields); i++)
        gpt_json_add(json, fields[i].name, to_json(c, &fields[i]));
    return json;
}

/* A field as a number: a flag is 0 or 1, a choice its place among the names.
 * NaN means that JSON holds the wrong type, or no such name. */
static double from_json(const struct field *f, const cJSON *item)
{
    if (f->kind == FLAG)
        return cJSON_IsBool(item) ? cJSON_IsTrue(item) : (double)NAN;
    if (f->kind != CHOICE)
        return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
    for (int i = 0; cJSON_IsString(item) && f->names[i]; i++)
        if (strcmp(item->valuestring, f->names[i]) == 0)
            return i;
    return (double)NAN;
}

/* A file is input from anywhere: nothing is written before type, range and
 * wholeness hold, and messages name file, field, value and limit. */
static int read_field(struct gpt_config *c, const struct field *f,
                      const cJSON *item, const char *what, struct gpt_err *err)
{
    char *to = (char *)c + f->offset;
    double v = item ? from_json(f, item) : 0;

    if (!item && !f->optional)
        return gpt_fail(err, GPT_EDATA, "%s: no field '%s'", what, f->name);
    if (isnan(v))
        return gpt_fail(err, GPT_EDATA, "%s: wrong type of field '%s'", what,
                        f->name);
    /* a size such as 2.5 would be cut to 2 without a word */
    bool whole = f->kind == RATE || v == floor(v);
    if (!(v >= f->min && v <= f->max) || !whole)
        return gpt_fail(err, GPT_EDATA, "%s: %s is %g, must be %g to %g", what,
                        f->name, v, f->min, f->max);
    if (f->kind == RATE)
        *(double *)to = v;
    else if (f->kind == FLAG)
        *(bool *)to = v != 0.0;
    else
        *(int64_t *)to = (int64_t)v;
    return GPT_OK;
}

int gpt_config_from_json(struct gpt_config *c, const cJSON *json,
                         const char *what, struct gpt_err *err)
{
    for (size_t i = 0; i < GPT_COUNT(fields); i++)
        GPT_TRY(read_field(
            c, &fields[i],
            cJSON_GetObjectItemCaseSensitive(json, fields[i].name), what, err));
    return check_rules(c, GPT_EDATA, what, err);
}

const char *gpt_config_difference(const struct gpt_config *a,
                                  const struct gpt_config *b)
{
    /* exact comparison: both sides come from options or JSON, which keep every
     * double */
    for (size_t i = 0; i < GPT_COUNT(fields); i++)
        if (fields[i].identity &&
            field_value(a, &fields[i]) != field_value(b, &fields[i]))
            return fields[i].name;
    return NULL;
}
