/* Tensors there and parameters here. Rules (family.c) name them; make_runs()
 * says which rows correspond, once, for both directions. A parameter may be in
 * several tensors (queries, keys and values), and a tensor may hold several
 * parameters (gate and up of Phi-3). */
#include "checkpoint/huggingface/huggingface.h"
#include "checkpoint/huggingface/map_dims.h"
#include "checkpoint/huggingface/map_heads.h"

#include "base/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const gpt_hf_vocab_files[GPT_HF_VOCAB_FILES + 1] = {
    GPT_HF_VOCAB,
    GPT_HF_MERGES,
    GPT_HF_TOKENIZER,
    GPT_HF_TOKENIZER_CONFIG,
    GPT_HF_SPECIAL_TOKENS,
    GPT_HF_ADDED_TOKENS,
    GPT_HF_PIECES,
    GPT_HF_CHAT_TEMPLATE,
};

/* A search: a model has some twenty rules, and is opened once. */
const struct gpt_hf_rule *gpt_hf_rule_of(const struct gpt_hf_rule *rules,
                                         size_t n, const struct gpt_param *p,
                                         size_t *at)
{
    while (*at < n) {
        const struct gpt_hf_rule *rule = &rules[(*at)++];

        if (rule->role == p->role)
            return rule;
    }
    return NULL;
}

const struct gpt_hf_rule *gpt_hf_next_rule(const struct gpt_hf_family *family,
                                           const struct gpt_param *p,
                                           size_t *at)
{
    return gpt_hf_rule_of(family->rules, family->n_rules, p, at);
}

/* Rows of an expert, and how many experts a parameter has; others are one. */
static int64_t expert_rows(const struct gpt_param *p)
{
    return p->split == GPT_SPLIT_BY_EXPERT ? p->split_unit : p->shape[0];
}

static int64_t count_experts(const struct gpt_param *p)
{
    return p->shape[0] / expert_rows(p);
}

int64_t gpt_hf_parts(const struct gpt_hf_rule *rule, const struct gpt_param *p)
{
    switch (rule->order) {
    case GPT_HF_ROWS:
        return p->shape[0];
    case GPT_HF_EXPERT:
    case GPT_HF_EXPERT_GATE:
    case GPT_HF_EXPERT_UP:
        return count_experts(p);
    default:
        return 1;
    }
}

int gpt_hf_ndim(const struct gpt_hf_rule *rule, const struct gpt_param *p)
{
    switch (rule->order) {
    case GPT_HF_ROWS:
        return 1;
    case GPT_HF_ONE_ROW:
        return 2;
    case GPT_HF_STACKED:
    case GPT_HF_STACKED_TRANSPOSED:
    case GPT_HF_GATES:
    case GPT_HF_UPS:
    case GPT_HF_KEY_HEADS:
    case GPT_HF_VALUE_HEADS:
        return 3;
    default:
        return p->ndim;
    }
}

/* Puts the numbers of layer and part in the places of '%'. A rule's name is
 * trusted: it is a constant of family.c. */
void gpt_hf_name(char *buf, size_t cap, const struct gpt_hf_rule *rule,
                 const struct gpt_param *p, int64_t part, const char *prefix)
{
    const long long numbers[] = {p->layer, part};
    const char *name = rule->name, *place;
    size_t used;

    if (name[0] == '/') {
        name++;
        prefix = "";
    }
    used = (size_t)snprintf(buf, cap, "%s", prefix);
    for (int i = 0; used < cap && (place = strchr(name, '%')); i++) {
        used += (size_t)snprintf(buf + used, cap - used, "%.*s%lld",
                                 (int)(place - name), name, numbers[i]);
        name = place + 1;
    }
    if (used < cap)
        snprintf(buf + used, cap - used, "%s", name);
}

/* Its rule is the one that stands beside the base model. */
const char *gpt_hf_output_name(const struct gpt_hf_family *family)
{
    const struct gpt_param output = {.role = GPT_OUTPUT_WEIGHT};
    size_t at = 0;
    const struct gpt_hf_rule *rule = gpt_hf_next_rule(family, &output, &at);

    return rule ? rule->name + 1 : NULL;
}

/* Old files also have the causal mask of each layer and the rates of rotary
 * positions, which are constants, and some have the tied output layer a second
 * time. */
bool gpt_hf_ignores(const struct gpt_hf_family *family,
                    const struct gpt_config *c, const char *name)
{
    static const char *const constants[] = {
        ".attn.bias", ".attn.masked_bias", ".attn.causal_mask",
        ".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq",
        ".rotary_pos_emb.inv_freq", ".act_fn.beta", ".act_fn.eps",
    };
    const char *output = gpt_hf_output_name(family);

    for (size_t i = 0; i < GPT_COUNT(constants); i++)
        if (gpt_path_ends_in(name, constants[i]))
            return true;
    return gpt_hf_predicts(family, c, name) ||
           (c->tied_embeddings && output &&
           (strcmp(name, output) == 0 || strcmp(name, GPT_HF_HEAD) == 0));
}

/* By the number of the layer, or by a word of their own. */
bool gpt_hf_predicts(const struct gpt_hf_family *family,
                     const struct gpt_config *c, const char *name)
{
    static const char layers[] = "layers.";
    const char *at = strstr(name, layers);

    if (!family->predicts)
        return false;
    return strncmp(name, "mtp", 3) == 0 || strstr(name, ".mtp") ||
           (at && strtoll(at + strlen(layers), NULL, 10) >= c->num_layers);
}

/* Conv1D computes x W and we compute x W^T. */
bool gpt_hf_is_transposed(const struct gpt_hf_rule *rule,
                          const struct gpt_param *p)
{
    return p->ndim == 2 && (rule->order == GPT_HF_TRANSPOSED ||
                            rule->order == GPT_HF_CONV_QKV);
}

/* The one place that knows how large a tensor is for its order: its outputs are
 * rows, unless it is transposed. */
static int64_t outputs(const struct gpt_config *c,
                       const struct gpt_hf_rule *rule,
                       const struct gpt_param *p)
{
    switch (rule->order) {
    case GPT_HF_Q:
    case GPT_HF_Q_PAIRS:
    case GPT_HF_Q_TURNED:
        return c->num_attention_heads * c->head_size;
    case GPT_HF_K:
    case GPT_HF_K_PAIRS:
    case GPT_HF_K_TURNED:
    case GPT_HF_V:
        return c->num_query_groups * c->head_size;
    case GPT_HF_FIRST:
    case GPT_HF_SECOND:
        return 2 * p->shape[0];
    case GPT_HF_ROWS:
        return p->shape[1];
    case GPT_HF_EXPERT:
    case GPT_HF_STACKED:
    case GPT_HF_STACKED_TRANSPOSED:
        return expert_rows(p);
    case GPT_HF_EXPERT_GATE:
    case GPT_HF_EXPERT_UP:
    case GPT_HF_GATES:
    case GPT_HF_UPS:
        return expert_rows(p) / 2;
    case GPT_HF_ONE_ROW:
        return 1;
    case GPT_HF_KV_ROWS:
    case GPT_HF_TURNED_ROWS:
        return c->kv_lora_rank + c->qk_pos_emb_head_dim;
    case GPT_HF_SAME:
    case GPT_HF_TRANSPOSED:
    case GPT_HF_CONV_QKV:
    case GPT_HF_QKV:
    case GPT_HF_QUARTERS:
    case GPT_HF_KEY_HEADS: /* gpt_hf_heads_shape() knows */
    case GPT_HF_VALUE_HEADS:
        break;
    }
    /* the vocabulary there has no dummy rows */
    return p->vocab_rows ? c->vocab_size : p->shape[0];
}

void gpt_hf_shape(const struct gpt_config *c, const struct gpt_hf_rule *rule,
                  const struct gpt_param *p, int64_t *shape)
{
    const bool swap = gpt_hf_is_transposed(rule, p);
    const int64_t rows = outputs(c, rule, p);

    switch (rule->order) {
    case GPT_HF_STACKED:
    case GPT_HF_GATES:
    case GPT_HF_UPS:
        shape[0] = count_experts(p);
        shape[1] = rows;
        shape[2] = p->shape[1];
        return;
    case GPT_HF_KEY_HEADS:
    case GPT_HF_VALUE_HEADS:
        gpt_hf_heads_shape(c, rule->order == GPT_HF_KEY_HEADS, shape);
        return;
    case GPT_HF_STACKED_TRANSPOSED:
        shape[0] = count_experts(p);
        shape[1] = p->shape[1];
        shape[2] = rows;
        return;
    case GPT_HF_ONE_ROW:
        shape[0] = rows;
        shape[1] = p->shape[0];
        return;
    default:
        shape[swap] = rows;
        shape[!swap] = rule->order == GPT_HF_ROWS ? 1 : p->shape[1];
    }
}

/* Rows that correspond: row `here` + r of a parameter, in its own dimensions,
 * is index `there` + r of the dimension that rows are in there. */
struct run {
    int64_t here, there, n;
};

/* Runs of group g of linear_qkv. There, all queries come first, or alone, then
 * all keys, then all values. Here, the heads of a query group are together (its
 * queries, its key, its value), so that a rank of tensor parallelism holds
 * consecutive rows. */
static int64_t group_runs(struct run *to, const struct gpt_config *c,
                          enum gpt_hf_order order, int64_t g)
{
    const int64_t d = c->head_size, groups = c->num_query_groups;
    const int64_t heads = c->num_attention_heads, q = heads / groups;
    const int64_t row = g * (q + 2) * d;
    const bool all = order == GPT_HF_QKV || order == GPT_HF_CONV_QKV;
    int64_t n = 0;

    if (all || order == GPT_HF_Q)
        to[n++] = (struct run){row, g * q * d, q * d};
    if (all || order == GPT_HF_K)
        to[n++] = (struct run){row + q * d, ((all ? heads : 0) + g) * d, d};
    if (all || order == GPT_HF_V)
        to[n++] = (struct run){row + (q + 1) * d,
                               ((all ? heads + groups : 0) + g) * d, d};
    return n;
}

/* Row i of the first half of a head and row i of its second half are rows 2 i
 * and 2 i + 1 there, in one of group g's heads after the other. Each row is a
 * run of its own. */
static int64_t pair_runs(struct run *to, const struct gpt_config *c,
                         enum gpt_hf_order order, int64_t g)
{
    const int64_t d = c->head_size, q = c->num_attention_heads /
                                        c->num_query_groups;
    const int64_t heads = order == GPT_HF_Q_PAIRS ? q : 1;
    const int64_t here = (g * (q + 2) + (order == GPT_HF_Q_PAIRS ? 0 : q)) * d;
    int64_t n = 0;

    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < d; i++)
            to[n++] = (struct run){here + h * d + i % 2 * (d / 2) + i / 2,
                                   (g * heads + h) * d + i, 1};
    return n;
}

/* The ranks that trained CodeGen were four, whatever the model. A head is a
 * group. */
static int64_t quarter_runs(struct run *to, const struct gpt_config *c,
                            int64_t g)
{
    const int64_t d = c->head_size, heads = c->num_attention_heads / 4;
    const int64_t there = (g / heads * 3 * heads + g % heads) * d;
    const int64_t here = g * 3 * d;

    to[0] = (struct run){here, there, d};
    to[1] = (struct run){here + d, there + 2 * heads * d, d};
    to[2] = (struct run){here + 2 * d, there + heads * d, d};
    return 3;
}

/* A rotation the other way is ours of the halves that have changed places, and
 * scores do not depend on the order of elements. */
static int64_t turned_runs(struct run *to, const struct gpt_config *c,
                           enum gpt_hf_order order, int64_t g)
{
    const int64_t d = c->head_size, q = c->num_attention_heads /
                                        c->num_query_groups;
    const bool query = order == GPT_HF_Q_TURNED;
    const int64_t heads = query ? q : 1;
    const int64_t here = (g * (q + 2) + (query ? 0 : q)) * d;
    int64_t n = 0;

    for (int64_t half = 0; half < 2 * heads; half++)
        to[n++] = (struct run){here + half * (d / 2),
                               (g * heads * 2 + (half ^ 1)) * (d / 2), d / 2};
    return n;
}

/* All rows of a tensor that is one expert's, or has ours in our order. */
static struct run whole_run(const struct gpt_config *c,
                            const struct gpt_hf_rule *rule,
                            const struct gpt_param *p, int64_t part)
{
    const int64_t rows = expert_rows(p);

    switch (rule->order) {
    case GPT_HF_EXPERT:
        return (struct run){part * rows, 0, rows};
    case GPT_HF_EXPERT_GATE:
        return (struct run){part * rows, 0, rows / 2};
    case GPT_HF_EXPERT_UP:
        return (struct run){part * rows + rows / 2, 0, rows / 2};
    case GPT_HF_TURNED_ROWS:
        return (struct run){0, c->kv_lora_rank, p->shape[0]};
    default:
        return (struct run){0, rule->order == GPT_HF_SECOND ? p->shape[0] : 0,
                            p->vocab_rows ? c->vocab_size : p->shape[0]};
    }
}

/* A tensor whose order is ours is one run, linear_qkv too, where a family keeps
 * a group's heads together. */
static int make_runs(struct run **out, int64_t *n, const struct gpt_config *c,
                     const struct gpt_hf_rule *rule, const struct gpt_param *p,
                     int64_t part, struct gpt_err *err)
{
    const bool qkv = p->split == GPT_SPLIT_BY_GROUP &&
                     rule->order != GPT_HF_SAME;
    const bool pairs =
        rule->order == GPT_HF_Q_PAIRS || rule->order == GPT_HF_K_PAIRS;
    const bool turned =
        rule->order == GPT_HF_Q_TURNED || rule->order == GPT_HF_K_TURNED;
    const int64_t groups = qkv ? c->num_query_groups : 1;
    const int64_t most = pairs || turned ? p->shape[0] : 3 * groups;

    *n = 0;
    GPT_TRY(gpt_new(out, (size_t)most, sizeof(**out), "views", err));
    /* at most three runs a group, or one a row: for these there is room */
    for (int64_t g = 0; qkv && g < groups; g++)
        *n += pairs    ? pair_runs(*out + *n, c, rule->order, g)
              : turned ? turned_runs(*out + *n, c, rule->order, g)
              : rule->order == GPT_HF_QUARTERS
                  ? quarter_runs(*out + *n, c, g)
                       : group_runs(*out + *n, c, rule->order, g);
    if (!qkv)
        (*out)[(*n)++] = whole_run(c, rule, p, part);
    return GPT_OK;
}

/* One rule of a view for each run of rows. Import and export differ in the
 * direction only: the sides of the rule change places, and with them the
 * dimension that rows are in. */
static int view_rows(struct gpt_tensor *out, const struct gpt_tensor *in,
                     const struct gpt_config *c, const struct gpt_hf_rule *rule,
                     const struct gpt_param *p, int64_t part, bool import,
                     struct gpt_err *err)
{
    struct run *runs;
    int64_t n;
    int status = make_runs(&runs, &n, c, rule, p, part, err);
    bool swap = gpt_hf_is_transposed(rule, p);

    for (int64_t i = 0; status == GPT_OK && i < n; i++) {
        struct gpt_map m = {.perm = {swap, !swap, 2, 3}};
        int row_to = swap && !import, row_from = swap && import;

        m.to[row_to] = import ? runs[i].here : runs[i].there;
        m.from[row_from] = import ? runs[i].there : runs[i].here;
        m.shape[row_to] = runs[i].n;
        m.shape[!row_to] = p->shape[1];
        status = gpt_tensor_view(out, in, &m, 1, err);
    }
    gpt_free(runs);
    return status;
}

/* Halves of all experts: by tensors of one expert each, which are shown one
 * above the other. */
static int view_halves(struct gpt_tensor *out, const struct gpt_tensor *in,
                       const struct gpt_hf_rule *rule,
                       const struct gpt_param *p, bool import,
                       struct gpt_err *err)
{
    const int64_t half = expert_rows(p) / 2;
    const int64_t shape[] = {p->shape[0] / 2, p->shape[1]};
    const int64_t first = rule->order == GPT_HF_UPS ? half : 0;
    struct gpt_tensor between = gpt_tensor_make(in->name, in->dtype, 2, shape);
    int status = import ? gpt_hf_flatten(&between, in, err) : GPT_OK;

    for (int64_t e = 0; status == GPT_OK && e < count_experts(p); e++) {
        struct gpt_map m = {.perm = {0, 1, 2, 3},
                            .shape = {half, p->shape[1]}};

        m.to[0] = import ? e * 2 * half + first : e * half;
        m.from[0] = import ? e * half : e * 2 * half + first;
        status = gpt_tensor_view(import ? out : &between,
                                 import ? &between : in, &m, 1, err);
    }
    if (status == GPT_OK && !import)
        status = gpt_hf_stack(out, &between, err);
    gpt_tensor_free(&between);
    return status;
}

static int view_transposed(struct gpt_tensor *out, const struct gpt_tensor *in,
                           const struct gpt_param *p, bool import,
                           struct gpt_err *err)
{
    const int64_t here[] = {expert_rows(p), p->shape[1]};

    return gpt_hf_turn_matrices(out, in, count_experts(p), here, import, err);
}

static bool is_of_heads(const struct gpt_hf_rule *rule)
{
    return rule->order == GPT_HF_KEY_HEADS ||
           rule->order == GPT_HF_VALUE_HEADS;
}

/* The vocabulary there has no dummy rows. Those that padding adds repeat the
 * last row, as Megatron's converters have it; they take no probability either
 * way. */
int gpt_hf_import(struct gpt_tensor *out, const struct gpt_tensor *there,
                  const struct gpt_config *c, const struct gpt_hf_rule *rule,
                  const struct gpt_param *p, int64_t part, struct gpt_err *err)
{
    if (rule->order == GPT_HF_ROWS)
        return gpt_hf_view_row(out, there, p, part, true, err);
    if (rule->order == GPT_HF_ONE_ROW)
        return gpt_hf_lower_row(out, there, err);
    if (rule->order == GPT_HF_STACKED)
        return gpt_hf_flatten(out, there, err);
    if (rule->order == GPT_HF_GATES || rule->order == GPT_HF_UPS)
        return view_halves(out, there, rule, p, true, err);
    if (is_of_heads(rule))
        return gpt_hf_view_heads(out, there, c,
                                 rule->order == GPT_HF_KEY_HEADS, true, err);
    if (rule->order == GPT_HF_STACKED_TRANSPOSED)
        return view_transposed(out, there, p, true, err);
    if (p->vocab_rows)
        return gpt_tensor_resize(out, there, true, err);
    return view_rows(out, there, c, rule, p, part, true, err);
}

int gpt_hf_export(struct gpt_tensor *there, const struct gpt_tensor *here,
                  const struct gpt_config *c, const struct gpt_hf_rule *rule,
                  const struct gpt_param *p, int64_t part, struct gpt_err *err)
{
    if (rule->order == GPT_HF_ROWS)
        return gpt_hf_view_row(there, here, p, part, false, err);
    if (rule->order == GPT_HF_ONE_ROW)
        return gpt_hf_lift_vector(there, here, err);
    if (rule->order == GPT_HF_STACKED)
        return gpt_hf_stack(there, here, err);
    if (rule->order == GPT_HF_GATES || rule->order == GPT_HF_UPS)
        return view_halves(there, here, rule, p, false, err);
    if (is_of_heads(rule))
        return gpt_hf_view_heads(there, here, c,
                                 rule->order == GPT_HF_KEY_HEADS, false, err);
    if (rule->order == GPT_HF_STACKED_TRANSPOSED)
        return view_transposed(there, here, p, false, err);
    return view_rows(there, here, c, rule, p, part, false, err);
}
