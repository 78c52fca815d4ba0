/* GPT-2's tensors there and here. `rules` names them; boxes() says which
 * elements correspond, once, for both directions: Conv1D weights are the
 * transpose of ours, and the columns Q | K | V of c_attn, each by head, are our
 * rows by query group (its query heads, its key, its value). */
#include "checkpoint/huggingface.h"

#include <stdio.h>

const char *const gpt_hf_vocab_files[GPT_HF_VOCAB_FILES + 1] = {
    GPT_HF_VOCAB,
    "merges.txt",
    "tokenizer.json",
    GPT_HF_TOKENIZER_CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
};

enum order { SAME, TRANSPOSED, QKV };

static const struct rule {
    enum gpt_param_role role;
    enum order order;
    const char *name; /* after "h.N." in a layer */
} rules[] = {
    {GPT_WORD_EMBEDDING, SAME, "wte.weight"},
    {GPT_POSITION_EMBEDDING, SAME, "wpe.weight"},
    {GPT_NORM1_WEIGHT, SAME, "ln_1.weight"},
    {GPT_NORM1_BIAS, SAME, "ln_1.bias"},
    {GPT_QKV_WEIGHT, QKV, "attn.c_attn.weight"},
    {GPT_QKV_BIAS, QKV, "attn.c_attn.bias"},
    {GPT_PROJ_WEIGHT, TRANSPOSED, "attn.c_proj.weight"},
    {GPT_PROJ_BIAS, SAME, "attn.c_proj.bias"},
    {GPT_NORM2_WEIGHT, SAME, "ln_2.weight"},
    {GPT_NORM2_BIAS, SAME, "ln_2.bias"},
    {GPT_FC1_WEIGHT, TRANSPOSED, "mlp.c_fc.weight"},
    {GPT_FC1_BIAS, SAME, "mlp.c_fc.bias"},
    {GPT_FC2_WEIGHT, TRANSPOSED, "mlp.c_proj.weight"},
    {GPT_FC2_BIAS, SAME, "mlp.c_proj.bias"},
    {GPT_FINAL_NORM_WEIGHT, SAME, "ln_f.weight"},
    {GPT_FINAL_NORM_BIAS, SAME, "ln_f.bias"},
    {GPT_OUTPUT_WEIGHT, SAME, "lm_head.weight"},
};

/* NULL for a role that this format has no tensor for: rows of a model with
 * another layer variant. */
static const struct rule *rule_of(const struct gpt_param *p)
{
    for (size_t i = 0; i < GPT_COUNT(rules); i++)
        if (rules[i].role == p->role)
            return &rules[i];
    return NULL;
}

int gpt_hf_name(char *buf, size_t cap, const struct gpt_param *p,
                const char *prefix, struct gpt_err *err)
{
    const struct rule *r = rule_of(p);

    if (!r)
        return gpt_fail(err, GPT_EDATA,
                        "Hugging Face's GPT-2 has no tensor for '%s'",
                        p->name);
    if (p->role == GPT_OUTPUT_WEIGHT) /* beside the transformer, not in it */
        prefix = "";
    if (p->layer < 0)
        snprintf(buf, cap, "%s%s", prefix, r->name);
    else
        snprintf(buf, cap, "%sh.%lld.%s", prefix, (long long)p->layer,
                 r->name);
    return GPT_OK;
}

/* True when dimension 0 here is dimension 1 there: Conv1D computes x W and we
 * compute x W^T. */
static bool is_transposed(const struct gpt_param *p)
{
    const struct rule *r = rule_of(p);

    return p->ndim == 2 && r && r->order != SAME;
}

void gpt_hf_shape(const struct gpt_config *c, const struct gpt_param *p,
                  int64_t *shape)
{
    bool swap = is_transposed(p);

    shape[0] = p->shape[swap];
    shape[1] = p->shape[!swap];
    if (p->vocab_rows)
        shape[0] = c->vocab_size;
}

/* Rows that correspond: row `here` + r of a parameter, in its own dimensions,
 * is index `there` + r of the dimension that rows are in there. */
struct rows {
    int64_t here, there, n;
};

/* Rows that correspond: one run, or three a query group. There, c_attn is all
 * queries, then all keys, then all values. Here, the heads of a query group are
 * together (its queries, its key, its value), so that a rank of tensor
 * parallelism holds consecutive rows. GPT-2 has one query a group; the formula
 * holds for more. */
static int make_rows(struct rows **out, int64_t *n, const struct gpt_config *c,
                     const struct gpt_param *p, struct gpt_err *err)
{
    const struct rule *r = rule_of(p);
    int64_t groups = c->num_query_groups, d = c->head_size;
    int64_t heads = c->num_attention_heads, q = heads / groups;
    bool qkv = r && r->order == QKV;

    *n = qkv ? 3 * groups : 1;
    GPT_TRY(gpt_new(out, (size_t)*n, sizeof(**out), "views", err));
    struct rows *to = *out;
    if (!qkv)
        to[0] = (struct rows){
            0, 0, p->vocab_rows ? c->vocab_size : p->shape[0]};
    for (int64_t g = 0; qkv && g < groups; g++) {
        int64_t row = g * (q + 2) * d;

        *to++ = (struct rows){row, g * q * d, q * d};
        *to++ = (struct rows){row + q * d, (heads + g) * d, d};
        *to++ = (struct rows){row + (q + 1) * d, (heads + groups + g) * d, d};
    }
    return GPT_OK;
}

/* One rule of a view for each run of rows. Import and export differ in the
 * direction only: the sides of the rule change places, and with them the
 * dimension that rows are in. */
static int view_rows(struct gpt_tensor *out, const struct gpt_tensor *in,
                     const struct gpt_config *c, const struct gpt_param *p,
                     bool import, struct gpt_err *err)
{
    struct rows *rows;
    int64_t n;
    int status = make_rows(&rows, &n, c, p, err);
    bool swap = is_transposed(p);

    for (int64_t i = 0; status == GPT_OK && i < n; i++) {
        struct gpt_map m = {.perm = {swap, !swap, 2, 3}};
        int row_to = swap && !import, row_from = swap && import;

        m.to[row_to] = import ? rows[i].here : rows[i].there;
        m.from[row_from] = import ? rows[i].there : rows[i].here;
        m.shape[row_to] = rows[i].n;
        m.shape[!row_to] = p->shape[1];
        status = gpt_tensor_view(out, in, &m, 1, err);
    }
    gpt_free(rows);
    return status;
}

/* The vocabulary there has no dummy rows. Those that padding adds repeat the
 * last row, as Megatron's converters have it; they take no probability either
 * way. */
int gpt_hf_import(struct gpt_tensor *out, const struct gpt_tensor *there,
                  const struct gpt_config *c, const struct gpt_param *p,
                  struct gpt_err *err)
{
    if (p->vocab_rows)
        return gpt_tensor_resize(out, there, true, err);
    return view_rows(out, there, c, p, true, err);
}

int gpt_hf_export(struct gpt_tensor *there, const struct gpt_tensor *here,
                  const struct gpt_config *c, const struct gpt_param *p,
                  struct gpt_err *err)
{
    return view_rows(there, here, c, p, false, err);
}
