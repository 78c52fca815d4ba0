/* Biases of linear layers in config.json: which of three kinds a model has, as
 * switches of classes turn them on and off one by one. Start at switches[]. */
#include "checkpoint/huggingface/biases.h"

/* What a switch is of. */
static const struct {
    enum gpt_hf_kind kind;
    struct gpt_hf_biases of;
} switches[] = {
    {GPT_HF_ATTENTION_BIAS, {.qkv = true, .proj = true}},
    {GPT_HF_QKV_BIAS, {.qkv = true}},
    {GPT_HF_PROJ_BIAS, {.proj = true}},
    {GPT_HF_MLP_BIAS, {.mlp = true}},
};

static struct gpt_hf_biases of_kind(enum gpt_hf_kind kind)
{
    for (size_t i = 0; i < GPT_COUNT(switches); i++)
        if (switches[i].kind == kind)
            return switches[i].of;
    return (struct gpt_hf_biases){.mlp = false};
}

/* What rows of the parameter table have (model/params_table.c). */
struct gpt_hf_biases gpt_hf_biases_of(const struct gpt_config *c)
{
    const bool attention = !c->no_linear_bias && !c->no_attention_bias;

    return (struct gpt_hf_biases){
        .qkv = (attention && !c->no_qkv_bias) || c->qkv_bias,
        .proj = attention,
        .mlp = !c->no_linear_bias && !c->no_mlp_bias,
    };
}

/* The reverse. One model has one description: that of which the rules of a
 * model allow all (model/config_rules.c). */
void gpt_hf_set_biases(struct gpt_config *c, const struct gpt_hf_biases *b)
{
    c->no_linear_bias = !b->proj && !b->mlp;
    c->no_attention_bias = !b->proj && b->mlp;
    c->no_mlp_bias = b->proj && !b->mlp;
    c->no_qkv_bias = b->proj && !b->qkv;
    c->qkv_bias = !b->proj && b->qkv;
}

/* A switch leaves what it is not of as it is. */
void gpt_hf_switch_biases(struct gpt_config *c, enum gpt_hf_kind kind, bool on)
{
    const struct gpt_hf_biases of = of_kind(kind);
    struct gpt_hf_biases b = gpt_hf_biases_of(c);

    b.qkv = of.qkv ? on : b.qkv;
    b.proj = of.proj ? on : b.proj;
    b.mlp = of.mlp ? on : b.mlp;
    gpt_hf_set_biases(c, &b);
}

/* A switch is on where all it is of is there: what it cannot say makes another
 * model of the file, and so another family is looked for. */
bool gpt_hf_has_biases(const struct gpt_config *c, enum gpt_hf_kind kind)
{
    const struct gpt_hf_biases of = of_kind(kind);
    const struct gpt_hf_biases b = gpt_hf_biases_of(c);

    return (b.qkv || !of.qkv) && (b.proj || !of.proj) && (b.mlp || !of.mlp);
}
