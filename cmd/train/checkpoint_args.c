/* The options of a model from its checkpoint; see checkpoint_args.h. The
 * configuration of a checkpoint is read as JSON, so that a field that gets an
 * option of its name is taken without a change here. Start at
 * gpt_train_take_args(). */
#include "cmd/train/checkpoint_args.h"

#include "base/json.h"
#include "checkpoint/run_state.h"
#include "tokenizer/tokenizer_options.h"
#include "model/factors.h"
#include "model/layer_list.h"
#include "cmd/train/settle.h"

#include <stdio.h>
#include <string.h>

/* Fields whose options have other names; NULL: no option says this alone. */
static const struct renamed {
    const char *field, *option;
} renamed[] = {
    {"max_positions", "max-position-embeddings"},
    {"position_embedding", "position-embedding-type"},
    {"init_std", "init-method-std"},
    {"tied_embeddings", "untie-embeddings-and-output-weights"},
    {"head_size", "kv-channels"},
    {"rotary_scaling", "rotary-scaling-type"},
    {"rotary_factor", "rotary-scaling-factor"},
    {"rotary_low_factor", "rotary-low-freq-factor"},
    {"rotary_high_factor", "rotary-high-freq-factor"},
    {"rotary_fast", "rotary-beta-fast"},
    {"rotary_slow", "rotary-beta-slow"},
    {"rotary_attention", "rotary-attention-factor"},
    {"rotary_positions", "rotary-original-positions"},
    {"norm_plus_one", "apply-layernorm-1p"},
    {"activation", "activation-function"},
    {"gated", "gated-linear-unit"},
    {"no_linear_bias", "disable-bias-linear"},
    {"qkv_bias", "add-qkv-bias"},
    {"qk_norm", "qk-layernorm"},
    {"parallel_blocks", "parallel-residual"},
    {"padded_vocab_size", NULL}, /* the layout decides it */
};

/* Fields that two checkpoints of one model may differ in: what was typed counts
 * then. */
static const char *const free_fields[] = {
    "init_std", "hidden_dropout", "attention_dropout", "seq_length",
    "moe_aux_loss_coeff", "moe_z_loss_coeff",
};

/* A value of any kind that a row may have. */
union value {
    bool flag;
    int64_t count;
    double real;
    const char *word;
};

struct taking {
    struct gpt_train_options *o;
    const struct gpt_args *args; /* as they were given */
    uint8_t *origin;             /* of the copy */
    const char *dir;
    const struct gpt_config *model; /* what it has there */
    struct gpt_arena *arena;
    struct gpt_buf *said;
    struct gpt_err *err;
};

/* ---- one option ---- */

/* The number of the row of a field; false where there is no such option. */
static bool find_row(const char *field, size_t *row)
{
    char name[64];
    const char *option = NULL;

    for (size_t i = 0; i < GPT_COUNT(renamed); i++)
        if (strcmp(renamed[i].field, field) == 0) {
            if (!renamed[i].option)
                return false;
            option = renamed[i].option;
        }
    snprintf(name, sizeof(name), "%s", option ? option : field);
    for (char *c = name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return gpt_train_find_row(name, row);
}

/* Dropout, for example, often differs between pretraining and tuning. */
static bool is_free(const char *field)
{
    for (size_t i = 0; i < GPT_COUNT(free_fields); i++)
        if (strcmp(free_fields[i], field) == 0)
            return true;
    return false;
}

/* The value of a row as it would be typed: two values are compared as texts, so
 * that a number that JSON rounded is the same as the one typed. */
static void print_field(const struct gpt_opt *opt, const void *field,
                        char *text, size_t cap)
{
    const char *word;

    switch (opt->kind) {
    case GPT_OPT_FLAG:
        snprintf(text, cap, "%s", *(const bool *)field ? "true" : "false");
        break;
    case GPT_OPT_INT:
        snprintf(text, cap, "%lld", (long long)*(const int64_t *)field);
        break;
    case GPT_OPT_REAL:
        snprintf(text, cap, "%.9g", *(const double *)field);
        break;
    default:
        word = *(const char *const *)field;
        snprintf(text, cap, "%s", word ? word : "");
        break;
    }
}

/* A list of factors, as it would be typed: the shortest text of each number, so
 * that the line of the log can be copied. The configuration was checked when
 * the checkpoint was opened; what does not fit into a list cannot be there. */
static bool read_factors(const cJSON *list, struct gpt_arena *arena,
                         const char **text)
{
    double factors[GPT_ROTARY_PAIRS + 1] = {0};
    struct gpt_buf b = {0};
    const cJSON *item;
    int64_t n = 0;

    cJSON_ArrayForEach(item, list)
        if (n < GPT_ROTARY_PAIRS && cJSON_IsNumber(item))
            factors[n++] = item->valuedouble;
    *text = gpt_factors_print(&b, factors) == GPT_OK && b.data
                ? gpt_arena_strdup(arena, b.data)
                : NULL;
    gpt_buf_free(&b);
    return *text != NULL;
}

/* Writes the JSON value into `field`, which has the row's type; false where it
 * has another type or is no choice of the row. A text that is a number in the
 * model, as a window, is kept in the arena. */
static bool read_value(const struct gpt_opt *opt, const cJSON *item,
                       bool negate, struct gpt_arena *arena, void *field)
{
    /* whole numbers of any size print as they would be typed */
    if (opt->kind == GPT_OPT_STRING && cJSON_IsNumber(item)) {
        *(const char **)field = gpt_arena_printf(arena, "%.17g",
                                                 item->valuedouble);
        return *(const char **)field != NULL;
    }
    if (opt->kind == GPT_OPT_STRING && cJSON_IsArray(item))
        return read_factors(item, arena, field);
    /* a list of layers */
    if (opt->kind == GPT_OPT_STRING && cJSON_IsString(item)) {
        *(const char **)field = gpt_arena_strdup(arena, item->valuestring);
        return *(const char **)field != NULL;
    }
    if (opt->kind == GPT_OPT_FLAG && cJSON_IsBool(item)) {
        *(bool *)field = (cJSON_IsTrue(item) != 0) != negate;
        return true;
    }
    if (opt->kind == GPT_OPT_INT && cJSON_IsNumber(item)) {
        *(int64_t *)field = (int64_t)item->valuedouble;
        return true;
    }
    if (opt->kind == GPT_OPT_REAL && cJSON_IsNumber(item)) {
        *(double *)field = item->valuedouble;
        return true;
    }
    for (int i = 0; opt->kind == GPT_OPT_CHOICE && cJSON_IsString(item) &&
                    opt->choices[i];
         i++)
        if (strcmp(opt->choices[i], item->valuestring) == 0) {
            *(const char **)field = opt->choices[i];
            return true;
        }
    return false;
}

/* The log has what could be typed instead: a flag that is off has no word. */
static int add_word(const struct taking *t, const struct gpt_opt *opt,
                    const char *value)
{
    if (opt->kind == GPT_OPT_FLAG && strcmp(value, "false") == 0)
        return GPT_OK;
    return gpt_buf_printf(t->said, " --%s%s%s", opt->name,
                          opt->kind == GPT_OPT_FLAG ? "" : " ",
                          opt->kind == GPT_OPT_FLAG ? "" : value) == GPT_OK
               ? GPT_OK
               : gpt_no_memory(t->err, "options");
}

/* A 0 that was typed means that the rest decides: it contradicts nothing. Nor
 * does a default, where the model has no such thing. */
static bool is_open(const struct gpt_opt *opt, const void *field,
                    const char *here, const char *there)
{
    if (opt->kind == GPT_OPT_INT && *(const int64_t *)field == 0)
        return true;
    return opt->min > 0 && opt->def && strcmp(here, opt->def) == 0 &&
           strcmp(there, "0") == 0;
}

/* Two ways of writing down the same layers of a model: the checkpoint has the
 * shortest, and scripts keep what was typed for Megatron-LM. */
static bool same_layers(const struct gpt_train_options *o, const char *option,
                        const char *a, const char *b)
{
    const bool odd = strcmp(option, "no-rope-freq") == 0;
    int64_t x, y;

    if (!odd && strcmp(option, "window-attn-skip-freq") != 0)
        return false;
    return gpt_layers_parse(&x, a, o->model.num_layers, odd, NULL) == GPT_OK &&
           gpt_layers_parse(&y, b, o->model.num_layers, odd, NULL) == GPT_OK &&
           x == y;
}

/* The same of two lists of factors: "1.0" is another "1". */
static bool same_factors(const char *option, const char *a, const char *b)
{
    double x[GPT_ROTARY_PAIRS], y[GPT_ROTARY_PAIRS];

    return (strcmp(option, "rotary-short-factors") == 0 ||
            strcmp(option, "rotary-long-factors") == 0) &&
           gpt_factors_parse(x, a, NULL) == GPT_OK &&
           gpt_factors_parse(y, b, NULL) == GPT_OK &&
           memcmp(x, y, sizeof(x)) == 0;
}

/* True for fields that say one model in several ways, so that what was typed is
 * kept: which layers have experts, and the width of those without, where there
 * are none. Models are compared when the weights are loaded. */
static bool is_said_otherwise(const struct taking *t, const char *field)
{
    return strcmp(field, "moe_layer_freq") == 0 ||
           strcmp(field, "moe_dense_layers") == 0 ||
           (strcmp(field, "ffn_hidden_size") == 0 &&
            !gpt_config_has_dense(t->model));
}

/* NullTokenizer adds a token to the number that was typed for it, and the model
 * has that token, too. */
static bool same_null_size(const struct taking *t, const char *option,
                           int64_t here, const union value *there)
{
    const char *type = t->o->tokenizer.type;

    return strcmp(option, "vocab-size") == 0 && type &&
           strcmp(type, "NullTokenizer") == 0 && here + 1 == there->count;
}

/* One field of the checkpoint. Fields without an option are skipped: the
 * comparison of models when weights are loaded finds what differs there. A
 * 0 that the option does not take says that the model has no such thing, as a
 * base of angles without rotary positions. */
static int take_field(const struct taking *t, const cJSON *item)
{
    size_t row;
    union value there;
    int64_t window;

    if (!find_row(item->string, &row))
        return GPT_OK;
    const struct gpt_opt *opt = &gpt_train_option_table[row];
    void *field = (char *)t->o + opt->offset;
    const bool negate = strcmp(item->string, "tied_embeddings") == 0;
    const bool typed = t->args->origin[row] == GPT_FROM_COMMAND;
    if (!read_value(opt, item, negate, t->arena, &there))
        return GPT_OK;
    /* lists of factors are long, and have up to 24 letters a number */
    char here_text[24 * GPT_ROTARY_PAIRS + 1];
    char there_text[sizeof(here_text)];
    print_field(opt, field, here_text, sizeof(here_text));
    print_field(opt, &there, there_text, sizeof(there_text));
    if (opt->choices == gpt_train_positions) /* "rotary" is another "rope" */
        snprintf(here_text, sizeof(here_text), "%s",
                 gpt_position_embeddings[gpt_train_position(here_text)]);
    if (strcmp(opt->name, "window-size") == 0 && here_text[0] &&
        gpt_train_window(here_text, &window)) /* "7,0" is another "7" */
        snprintf(here_text, sizeof(here_text), "%lld", (long long)window);
    if (typed && (is_free(item->string) || is_said_otherwise(t, item->string)))
        return GPT_OK;
    if (typed && same_null_size(t, opt->name, t->o->vocab_size, &there))
        return GPT_OK;
    if (typed && strcmp(here_text, there_text) != 0 &&
        !is_open(opt, field, here_text, there_text) &&
        !same_layers(t->o, opt->name, here_text, there_text) &&
        !same_factors(opt->name, here_text, there_text)) {
        gpt_fail(t->err, GPT_EUSAGE,
                 "--use-checkpoint-args: --%s is %s here and %s in %s",
                 opt->name, here_text, there_text, t->dir);
        return gpt_hint(t->err, "leave --%s out, or --use-checkpoint-args",
                        opt->name);
    }
    if (strcmp(there_text, "0") == 0 && opt->min > 0) {
        gpt_train_unset(t->o, row);
    } else {
        read_value(opt, item, negate, t->arena, field);
        GPT_TRY(add_word(t, opt, there_text));
    }
    t->origin[row] = GPT_FROM_DEFAULT;
    return GPT_OK;
}

/* ---- the tokenizer ---- */

/* A family that was typed and is another one would read the data's ids as other
 * tokens. A model of another program may lie there without its tokenizer: then
 * the options say what it is. */
static int check_family(const struct taking *t, const char *family)
{
    const char *typed = t->o->tokenizer.type;

    if (strcmp(typed, family) == 0)
        return GPT_OK;
    gpt_fail(t->err, GPT_EUSAGE,
             "--use-checkpoint-args: --tokenizer-type is %s here and %s in %s",
             typed, family, t->dir);
    return gpt_hint(t->err, "leave --tokenizer-type out, or "
                            "--use-checkpoint-args");
}

static int take_tokenizer(const struct taking *t,
                          const struct gpt_source *source)
{
    const cJSON *json =
        cJSON_GetObjectItemCaseSensitive(source->state, GPT_RUN_TOKENIZER);
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(json, "type");
    struct gpt_tokenizer_options *to = &t->o->tokenizer;
    const size_t row = gpt_train_row("tokenizer-type");
    const bool typed = t->args->origin[row] == GPT_FROM_COMMAND;
    const char *family = cJSON_GetStringValue(type);

    if (!family)
        GPT_TRY(gpt_tokenizer_type_in(&family, source->dir, t->err));
    if (typed && !type) {
        if (strcmp(to->type, "NullTokenizer") == 0 &&
            t->args->origin[gpt_train_row("vocab-size")] != GPT_FROM_COMMAND)
            t->o->vocab_size = source->config.vocab_size - 1;
        return GPT_OK;
    }
    if (typed)
        GPT_TRY(check_family(t, family));
    to->type = family;
    t->origin[row] = GPT_FROM_DEFAULT;
    GPT_TRY(gpt_tokenizer_from_json(to, json, source->dir, t->arena, t->err));
    /* NullTokenizer adds a token to the number that was given for it, so that
     * the model's size is not that number. */
    if (strcmp(family, "NullTokenizer") == 0 && to->vocab_size > 0)
        t->o->vocab_size = to->vocab_size;
    return gpt_buf_printf(t->said, " --tokenizer-type %s", family);
}

/* ---- the whole ---- */

/* A number of the model is the last of every so many layers, and one of the
 * option the first, as Megatron-LM has it: layers with experts are listed.
 * False without memory. */
static bool list_experts(cJSON *config, const struct gpt_config *c)
{
    static const char name[] = "moe_layer_freq";
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(config, name);
    struct gpt_buf b = {0};
    cJSON *list;

    if (!cJSON_IsNumber(number) || number->valuedouble < 1)
        return true;
    int status = gpt_buf_printf(&b, "[");
    for (int64_t l = 0; status == GPT_OK && l < c->num_layers; l++)
        status = gpt_buf_printf(
            &b, "%s%d", l > 0 ? "," : "",
            gpt_layers_entry(c->moe_layer_freq, l, true) ? 1 : 0);
    if (status == GPT_OK)
        status = gpt_buf_printf(&b, "]");
    list = status == GPT_OK ? cJSON_CreateString(b.data) : NULL;
    gpt_buf_free(&b);
    return list &&
           cJSON_ReplaceItemInObjectCaseSensitive(config, name, list) != 0;
}

/* A preset's short name for activation and gate would hide those of the
 * checkpoint, which has them one by one. */
static void unset_short_names(const struct taking *t)
{
    static const char *const names[] = {"swiglu", "geglu", "squared-relu"};

    for (size_t i = 0; i < GPT_COUNT(names); i++) {
        const size_t row = gpt_train_row(names[i]);

        if (t->args->origin[row] == GPT_FROM_COMMAND)
            continue;
        gpt_train_unset(t->o, row);
        t->origin[row] = GPT_FROM_DEFAULT;
    }
}

/* What says the number of query groups by a word, and is no field: one that was
 * typed is compared with the model's number, any other gives way to it. */
static int take_heads(const struct taking *t, const struct gpt_config *c)
{
    const size_t row = gpt_train_row("attention-head-type");
    const bool multiquery =
        gpt_train_choice(gpt_train_heads, t->o->head_type) ==
        GPT_HEADS_MULTIQUERY;

    if (t->args->origin[row] != GPT_FROM_COMMAND) {
        gpt_train_unset(t->o, row);
        t->origin[row] = GPT_FROM_DEFAULT;
        return GPT_OK;
    }
    if (c->num_query_groups == (multiquery ? 1 : c->num_attention_heads))
        return GPT_OK;
    gpt_fail(t->err, GPT_EUSAGE,
             "--use-checkpoint-args: --attention-head-type is %s here, and %s "
             "has %lld query groups for %lld heads",
             t->o->head_type, t->dir, (long long)c->num_query_groups,
             (long long)c->num_attention_heads);
    return gpt_hint(t->err, "leave --attention-head-type out, or "
                            "--use-checkpoint-args");
}

/* The tokenizer comes last: NullTokenizer corrects the size of the vocabulary
 * that the configuration gave. */
static int take_all(const struct taking *t, const struct gpt_source *source,
                    const cJSON *config)
{
    const cJSON *length =
        cJSON_GetObjectItemCaseSensitive(source->state, GPT_RUN_SEQ_LENGTH);

    for (const cJSON *i = config->child; i; i = i->next)
        GPT_TRY(take_field(t, i));
    unset_short_names(t);
    GPT_TRY(take_heads(t, &source->config));
    /* A model of another program does not say how long its samples were: then
     * they are as long as its texts may be. */
    if (length)
        GPT_TRY(take_field(t, length));
    else if (t->args->origin[gpt_train_row("seq-length")] == GPT_FROM_DEFAULT) {
        t->o->seq_length = source->config.max_positions;
        GPT_TRY(gpt_buf_printf(t->said, " --seq-length %lld",
                               (long long)t->o->seq_length));
    }
    return take_tokenizer(t, source);
}

int gpt_train_take_args(struct gpt_train_options *o, struct gpt_args *args,
                        const struct gpt_source *source,
                        struct gpt_arena *arena, struct gpt_buf *b,
                        struct gpt_err *err)
{
    const size_t rows = args->program->n_options;
    struct taking t = {
        .o = o,
        .args = args,
        .origin = gpt_arena_alloc(arena, rows, sizeof(*t.origin)),
        .dir = source->dir,
        .model = &source->config,
        .arena = arena,
        .said = b,
        .err = err,
    };
    cJSON *config = gpt_config_to_json(&source->config);
    int status;

    if (!t.origin || !config || !list_experts(config, &source->config)) {
        cJSON_Delete(config);
        return gpt_no_memory(err, "options");
    }
    memcpy(t.origin, args->origin, rows * sizeof(*t.origin));
    status = take_all(&t, source, config);
    cJSON_Delete(config);
    if (status == GPT_OK)
        args->origin = t.origin;
    return status;
}
