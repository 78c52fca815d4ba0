/* The front end of LitGPT's checkpoints, model_config.yaml and lit_model.pth: a
 * row of checkpoint/format.h, read only. Source: LitGPT, config.py and
 * model.py. Every field of its class Config is in the file, whatever its value:
 * the table of fields has those that are read, and those that change nothing at
 * one value; any other must say no. Start at open_litgpt(). */
#include "checkpoint/format.h"
#include "checkpoint/huggingface/rows.h"
#include "checkpoint/pth/pth.h"

#include "base/num.h"

#include <string.h>
#include <strings.h>

#define ADJUSTMENTS "rope_adjustments"

enum { CONFIG_LIMIT = 1 << 20, FIELDS = 256 };

#define RULES(qkv, order)                                          \
    RULE(WORD_EMBEDDING, SAME, "wte.weight"),                      \
    RULE(NORM1_WEIGHT, SAME, "h.%.norm_1.weight"),                 \
    RULE(NORM1_BIAS, SAME, "h.%.norm_1.bias"),                     \
    RULE(QKV_WEIGHT, order, "h.%.attn." qkv ".weight"),            \
    RULE(QKV_BIAS, order, "h.%.attn." qkv ".bias"),                \
    RULE(Q_NORM_WEIGHT, SAME, "h.%.attn.norm_q.weight"),           \
    RULE(K_NORM_WEIGHT, SAME, "h.%.attn.norm_k.weight"),           \
    RULE(Q_NORM_BIAS, SAME, "h.%.attn.norm_q.bias"),               \
    RULE(K_NORM_BIAS, SAME, "h.%.attn.norm_k.bias"),               \
    RULE(PROJ_WEIGHT, SAME, "h.%.attn.proj.weight"),               \
    RULE(PROJ_BIAS, SAME, "h.%.attn.proj.bias"),                   \
    RULE(NORM2_WEIGHT, SAME, "h.%.norm_2.weight"),                 \
    RULE(NORM2_BIAS, SAME, "h.%.norm_2.bias"),                     \
    RULE(FC2_WEIGHT, SAME, "h.%.mlp.proj.weight"),                 \
    RULE(FC2_BIAS, SAME, "h.%.mlp.proj.bias"),                     \
    RULE(FINAL_NORM_WEIGHT, SAME, "ln_f.weight"),                  \
    RULE(FINAL_NORM_BIAS, SAME, "ln_f.bias"),                      \
    RULE(OUTPUT_WEIGHT, SAME, "/lm_head.weight"),                  \
    RULE(OUTPUT_BIAS, SAME, "/lm_head.bias")
#define PLAIN                                                      \
    RULE(FC1_WEIGHT, SAME, "h.%.mlp.fc.weight"),                   \
    RULE(FC1_BIAS, SAME, "h.%.mlp.fc.bias")
#define GATED                                                      \
    RULE(GATE_WEIGHT, SAME, "h.%.mlp.fc_1.weight"),                \
    RULE(GATE_BIAS, SAME, "h.%.mlp.fc_1.bias"),                    \
    RULE(FC1_WEIGHT, SAME, "h.%.mlp.fc_2.weight"),                 \
    RULE(FC1_BIAS, SAME, "h.%.mlp.fc_2.bias"),                     \
    RULE(ROUTER_WEIGHT, SAME, "h.%.mlp.gate.weight"),              \
    RULE(EXPERTS_FC1, EXPERT_GATE, "h.%.mlp.experts.%.fc_1.weight"), \
    RULE(EXPERTS_FC1, EXPERT_UP, "h.%.mlp.experts.%.fc_2.weight"), \
    RULE(EXPERTS_FC2, EXPERT, "h.%.mlp.experts.%.proj.weight"),    \
    RULE(SHARED_GATE, SAME, "h.%.mlp.shared_experts.fc_1.weight"), \
    RULE(SHARED_FC1, SAME, "h.%.mlp.shared_experts.fc_2.weight"),  \
    RULE(SHARED_FC2, SAME, "h.%.mlp.shared_experts.proj.weight")

/* Until version 0.5.4 the heads of a group were together, as they are here. */
static const struct gpt_hf_rule plain[] = {RULES("qkv", QKV), PLAIN},
                                gated[] = {RULES("qkv", QKV), GATED},
                                old_plain[] = {RULES("attn", SAME), PLAIN},
                                old_gated[] = {RULES("attn", SAME), GATED};
#define FAMILY(list)                                              \
    {.model_type = "LitGPT", .prefix = "transformer.",            \
     .rules = (list), .n_rules = GPT_COUNT(list)}
static const struct gpt_hf_family families[2][2] = {
    {FAMILY(plain), FAMILY(gated)},
    {FAMILY(old_plain), FAMILY(old_gated)},
};

/* Both: other programs have a model_config.yaml, too. */
static bool recognise_litgpt(const char *path)
{
    return gpt_path_holds(path, GPT_LITGPT_CONFIG) &&
           gpt_path_holds(path, GPT_LITGPT_WEIGHTS);
}

static bool explain_litgpt(const char *dir, struct gpt_err *err)
{
    if (gpt_path_holds(dir, GPT_LITGPT_CONFIG) ||
        !gpt_path_holds(dir, GPT_LITGPT_WEIGHTS))
        return false;
    gpt_hint(err, "it has weights of LitGPT; " GPT_LITGPT_CONFIG " is missing "
                  "beside them");
    return true;
}

/* ---- model_config.yaml ---- */

/* A line, or one that is indented below the line of `of`. */
struct field {
    const char *of, *name, *value; /* value "": null, or `holds` */
    bool holds;                    /* lines below it */
};

struct yaml {
    const char *path;
    struct field fields[FIELDS];
    int n;
};

/* A name or a value without quotes; null and ~ are empty. */
static char *trim(char *s)
{
    s += strspn(s, " ");

    size_t n = strlen(s);
    while (n && s[n - 1] == ' ')
        n--;
    if (n > 1 && (s[0] == '\'' || s[0] == '"') && s[n - 1] == s[0]) {
        s++;
        n -= 2;
    }
    s[n] = '\0';
    return strcmp(s, "null") == 0 || strcmp(s, "~") == 0 ? s + n : s;
}

/* Ends a line, perhaps of Windows. The next one, or NULL. */
static char *end_line(char *line)
{
    char *next = strchr(line, '\n');
    size_t n;

    if (next)
        *next++ = '\0';
    n = strlen(line);
    if (n && line[n - 1] == '\r')
        line[n - 1] = '\0';
    return next;
}

/* The dump of a dict: a line a field, and two levels at most. Items of a list
 * have no names. The text is cut into the fields' strings. */
static int read_yaml(struct yaml *y, char *text, struct gpt_err *err)
{
    struct field *outer = NULL;
    int number = 0;

    for (char *line = text, *next; line; line = next) {
        /* a list may begin in the column of its name */
        const bool inside = line[0] == ' ' || line[0] == '-';
        char *colon;

        number++;
        next = end_line(line);
        const char first = line[strspn(line, " ")];
        if (!first || first == '#' || strcmp(line, "---") == 0)
            continue;
        colon = strstr(line, ": ");
        if (!colon && line[strlen(line) - 1] == ':')
            colon = line + strlen(line) - 1;
        if (y->n == FIELDS || (!colon && !inside)) {
            gpt_fail(err, GPT_EDATA, "%s:%d: %s", y->path, number,
                     colon ? "too many fields" : "no 'name: value'");
            return gpt_hint(err, "write the file as LitGPT does: a field a "
                                 "line, and those of a dict below it");
        }
        struct field *f = &y->fields[y->n++];
        *f = (struct field){.of = inside && outer ? outer->name : "",
                            .name = "item"};
        f->value = trim(colon ? colon + 1 : line);
        if (colon) {
            *colon = '\0';
            f->name = trim(line);
        }
        if (!inside)
            outer = f;
        else if (outer)
            outer->holds = true;
    }
    return GPT_OK;
}

/* "" where it is null, NULL where there is none. The last of a name counts. */
static const char *find_field(const struct yaml *y, const char *name)
{
    for (int i = y->n; i-- > 0;)
        if (!y->fields[i].of[0] && strcmp(y->fields[i].name, name) == 0)
            return y->fields[i].value;
    return NULL;
}

/* ---- fields ---- */

/* Those that are read are numbers, switches or words; values of the others that
 * change nothing follow. NO_SWITCH says the opposite of its member. */
enum kind { SIZE, REAL, SWITCH, NO_SWITCH, WORD, SCALING, AT_REST, NAME_ONLY };
struct row {
    const char *name;
    enum kind kind;
    size_t offset;
    const char *rest, *rest_too;
};
static const struct row known[] = {
    {"n_layer", SIZE, AT(num_layers), NULL, NULL},
    {"n_head", SIZE, AT(num_attention_heads), NULL, NULL},
    {"n_embd", SIZE, AT(hidden_size), NULL, NULL},
    {"head_size", SIZE, AT(head_size), NULL, NULL},
    {"n_query_groups", SIZE, AT(num_query_groups), NULL, NULL},
    {"intermediate_size", SIZE, AT(ffn_hidden_size), NULL, NULL},
    {"block_size", SIZE, AT(max_positions), NULL, NULL},
    {"padded_vocab_size", SIZE, AT(vocab_size), NULL, NULL},
    {"norm_eps", REAL, AT(norm_epsilon), NULL, NULL},
    {"rope_base", REAL, AT(rotary_base), NULL, NULL},
    {"rotary_percentage", REAL, AT(rotary_percent), NULL, NULL},
    {"final_logit_softcapping", REAL, AT(final_logit_softcapping), NULL, NULL},
    {"attention_logit_softcapping", REAL, AT(attn_logit_softcapping), NULL,
     NULL},
    {"n_expert", SIZE, AT(num_experts), NULL, NULL},
    {"n_expert_per_token", SIZE, AT(moe_router_topk), NULL, NULL},
    {"moe_intermediate_size", SIZE, AT(moe_ffn_hidden_size), NULL, NULL},
    {"first_k_dense_replace", SIZE, AT(moe_dense_layers), NULL, NULL},
    /* counted in experts */
    {"n_shared_expert", SIZE, AT(moe_shared_expert_intermediate_size), NULL,
     NULL},
    {"parallel_residual", SWITCH, AT(parallel_blocks), NULL, NULL},
    {"shared_attention_norm", SWITCH, AT(shared_norm), NULL, NULL},
    {"lm_head_bias", SWITCH, AT(output_bias), NULL, NULL},
    {"attn_bias", SWITCH, AT(qkv_bias), NULL, NULL},
    {"norm_qk", SWITCH, AT(qk_norm), NULL, NULL},
    {"rope_interleave", SWITCH, AT(rotary_interleaved), NULL, NULL},
    {"bias", NO_SWITCH, AT(no_linear_bias), NULL, NULL},
    {"norm_class_name", WORD, 0, NULL, NULL},
    {"mlp_class_name", WORD, 0, NULL, NULL},
    {"gelu_approximate", WORD, 0, NULL, NULL},
    {ADJUSTMENTS, SCALING, 0, NULL, NULL},
    /* of routers that choose by groups, which must say no themselves */
    {"norm_topk_prob", NAME_ONLY, 0, NULL, NULL},
    {"name", NAME_ONLY, 0, NULL, NULL},
    {"hf_config", NAME_ONLY, 0, NULL, NULL},
    {"vocab_size", NAME_ONLY, 0, NULL, NULL},
    {"padding_multiple", NAME_ONLY, 0, NULL, NULL},
    {"norm_1", AT_REST, 0, "true", NULL},
    {"norm_2", AT_REST, 0, "true", NULL},
    {"norm_qk_type", AT_REST, 0, "default", NULL},
    {"rope_condense_ratio", AT_REST, 0, "1", "1.0"},
    {"routed_scaling_factor", AT_REST, 0, "1.0", "1"},
};

/* Fields of all versions, which a file that was cut short lacks: it would be
 * another model. A field of newer ones that is missing says no. */
static const char *const needed[] = {
    "bias", "block_size", "gelu_approximate", "head_size", "intermediate_size",
    "lm_head_bias", "mlp_class_name", "n_embd", "n_head", "n_layer",
    "n_query_groups", "norm_class_name", "norm_eps", "padded_vocab_size",
    "parallel_residual", "rope_base", "rotary_percentage",
    "shared_attention_norm", "vocab_size",
};

/* Numbers below ADJUSTMENTS. */
static const struct row scaling[] = {
    {"factor", REAL, AT(rotary_factor), NULL, NULL},
    {"low_freq_factor", REAL, AT(rotary_low_factor), NULL, NULL},
    {"high_freq_factor", REAL, AT(rotary_high_factor), NULL, NULL},
    {"original_max_seq_len", SIZE, AT(rotary_positions), NULL, NULL},
};

/* Lists of forty rows, searched fifty times. */
static const struct row *find_row(const struct row *rows, size_t n,
                                  const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

/* The value may be harmless, but nothing tells. */
static int bad_value(const struct yaml *y, const struct field *f,
                     struct gpt_err *err)
{
    return gpt_fail(err, GPT_EDATA,
                    "%s: %s '%.100s' is not known, and may change what the "
                    "model computes", y->path, f->name,
                    f->holds ? "..." : f->value);
}

/* Values of Python that say no. */
static bool says_no(const char *value)
{
    return !value[0] || strcasecmp(value, "false") == 0 ||
           strcmp(value, "0") == 0 || strcmp(value, "{}") == 0 ||
           strcmp(value, "[]") == 0;
}

/* A number that is null keeps what it has. False for a value that is none of
 * the row's kind. */
static bool read_value(struct gpt_config *c, const struct row *row,
                       const char *value)
{
    void *const base = c;
    void *const to = (char *)base + row->offset;
    const bool no = says_no(value);

    switch (row->kind) {
    case SIZE:
        return !value[0] || gpt_parse_int(value, to);
    case REAL:
        return !value[0] || gpt_parse_real(value, to);
    case SWITCH:
    case NO_SWITCH:
        *(bool *)to = no == (row->kind == NO_SWITCH);
        return no || strcasecmp(value, "true") == 0;
    case SCALING:
        return no;
    case AT_REST:
        return strcmp(value, row->rest) == 0 ||
               (row->rest_too && strcmp(value, row->rest_too) == 0);
    case WORD:
    case NAME_ONLY:
        break;
    }
    return true;
}

/* By its row of `known`; one that has none must say no. */
static int read_field(struct gpt_config *c, const struct yaml *y,
                      const struct field *f, struct gpt_err *err)
{
    const struct row *row = find_row(known, GPT_COUNT(known), f->name);
    const bool may_hold =
        row && (row->kind == SCALING || row->kind == NAME_ONLY);

    if ((f->holds && !may_hold) ||
        !(row ? read_value(c, row, f->value) : says_no(f->value)))
        return bad_value(y, f, err);
    return GPT_OK;
}

/* Positions are scaled as in Llama 3.1, or by a factor alone. Which numbers go
 * together is checked with the configuration. */
static int read_scaling(struct gpt_config *c, const struct yaml *y,
                        struct gpt_err *err)
{
    for (int i = 0; i < y->n; i++) {
        const struct field *f = &y->fields[i];
        const struct row *row =
            find_row(scaling, GPT_COUNT(scaling), f->name);

        if (strcmp(f->of, ADJUSTMENTS) != 0)
            continue;
        if (!row || !f->value[0] || !read_value(c, row, f->value))
            return gpt_fail(err, GPT_EDATA,
                            "%s: " ADJUSTMENTS ": %s '%.100s' is not that of "
                            "Llama 3's scaling, nor of one by a factor",
                            y->path, f->name, f->value);
    }
    if (c->rotary_low_factor != 0 || c->rotary_high_factor != 0)
        c->rotary_scaling = GPT_SCALING_LLAMA3;
    else if (c->rotary_factor != 0)
        c->rotary_scaling = GPT_SCALING_LINEAR;
    return GPT_OK;
}

static int check_needed(const struct yaml *y, struct gpt_err *err)
{
    for (size_t i = 0; i < GPT_COUNT(needed); i++)
        if (!find_field(y, needed[i])) {
            gpt_fail(err, GPT_EDATA, "%s: no field '%s'", y->path, needed[i]);
            return gpt_hint(err, "copy the file again: LitGPT writes all "
                                 "fields of its class Config");
        }
    return GPT_OK;
}

/* Classes of parts by their names. Norms of Gemma are by the model's name. */
static int read_words(struct gpt_config *c, const struct yaml *y,
                      struct gpt_err *err)
{
    const char *norm = find_field(y, "norm_class_name");
    const char *mlp = find_field(y, "mlp_class_name");
    const char *gelu = find_field(y, "gelu_approximate");
    const char *name = find_field(y, "name");
    const bool routed = strcmp(mlp, "LLaMAMoE") == 0;
    const struct {
        const char *field, *value;
        bool good;
    } words[] = {
        {"norm_class_name", norm, strcmp(norm, "RMSNorm") == 0 ||
                                      strcmp(norm, "LayerNorm") == 0},
        {"mlp_class_name", mlp, strcmp(mlp, "LLaMAMLP") == 0 ||
                                    strcmp(mlp, "GptNeoxMLP") == 0 || routed},
        {"gelu_approximate", gelu, strcmp(gelu, "none") == 0 ||
                                       strcmp(gelu, "tanh") == 0},
        {"name", name, !name || !strstr(name, "Gemma")},
    };

    for (size_t i = 0; i < GPT_COUNT(words); i++)
        if (!words[i].good)
            return bad_value(y,
                             &(struct field){.name = words[i].field,
                                             .value = words[i].value},
                             err);
    c->normalization = norm[0] == 'R' ? GPT_RMSNORM : GPT_LAYERNORM;
    c->gated = mlp[0] == 'L'; /* fc_1 is its gate */
    c->activation = c->gated           ? GPT_SILU
                    : gelu[0] == 't' ? GPT_GELU
                                     : GPT_GELU_EXACT;
    /* numbers of experts are of no use without them */
    if (!routed)
        c->num_experts = c->moe_router_topk = c->moe_ffn_hidden_size =
            c->moe_dense_layers = c->moe_shared_expert_intermediate_size = 0;
    /* the width is an expert's, times as many: 2^22 at most */
    c->moe_shared_expert_intermediate_size =
        gpt_min_i64(c->moe_shared_expert_intermediate_size, INT32_MAX) *
        gpt_min_i64(c->moe_ffn_hidden_size, INT32_MAX);
    gpt_config_settle_experts(c);
    /* where all layers have biases, those of queries are among them; norms
     * have biases by their class alone */
    c->qkv_bias = c->qkv_bias && c->no_linear_bias;
    return GPT_OK;
}

/* Words last: a bias of queries, keys and values counts where others are
 * absent. */
static int read_config(struct gpt_source *s, struct gpt_err *err)
{
    struct gpt_pth *p = s->data;
    char path[GPT_PATH_BYTES], *text = NULL;
    struct yaml y = {.path = path};
    size_t len;
    int status;

    s->config = (struct gpt_config){
        .position_embedding = GPT_POSITION_ROPE, .init_std = 0.02};
    GPT_TRY(gpt_path_join(path, sizeof(path), p->dir, GPT_LITGPT_CONFIG, err));
    GPT_TRY(gpt_read_held(path, CONFIG_LIMIT, &text, &len, err));
    GPT_TRY_GOTO(status, read_yaml(&y, text, err), out);
    GPT_TRY_GOTO(status, check_needed(&y, err), out);
    for (int i = 0; i < y.n; i++)
        if (!y.fields[i].of[0])
            GPT_TRY_GOTO(status,
                         read_field(&s->config, &y, &y.fields[i], err), out);
    GPT_TRY_GOTO(status, read_scaling(&s->config, &y, err), out);
    status = read_words(&s->config, &y, err);
out:
    gpt_free(text);
    return status;
}

/* ---- the source ---- */

/* Checkpoints of a run have the weights under a key, converted ones do not. */
static int open_litgpt(struct gpt_source *s, const char *path,
                       const struct gpt_source_options *o, struct gpt_err *err)
{
    static const char *const known_keys[] = {
        "model", "optimizer", "hparams", "iter_num", "step_count", NULL};
    struct gpt_pth *p;

    GPT_TRY(gpt_pth_begin(s, path, o, "a directory of LitGPT", err));
    s->at = s->dir;
    p = s->data;
    GPT_TRY(read_config(s, err));
    GPT_TRY(gpt_pth_add(p, GPT_LITGPT_WEIGHTS, "model", err));
    /* the name tells the order of rows */
    const bool old = gpt_safetensors_find(&p->files[0].weights,
                                          "transformer.h.0.attn.attn.weight");
    GPT_TRY(gpt_pth_import(s, &families[old][s->config.gated], gpt_pth_find,
                           GPT_LITGPT_CONFIG, o, err));
    return gpt_pth_import_run(s, "step_count", known_keys, o->optimizer, err);
}

const struct gpt_format gpt_format_litgpt = {
    .name = "litgpt",
    .title = "LitGPT",
    .recognises = recognise_litgpt,
    .open = open_litgpt,
    .close = gpt_pth_close,
    .list = gpt_pth_list,
    .explain = explain_litgpt,
};
