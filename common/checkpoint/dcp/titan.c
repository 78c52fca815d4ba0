/* Models of torchtitan, whose state dicts have the names of Meta's code: the
 * rules by which they are read, for the types of transformers that config.json
 * names. Start at gpt_dcp_titan(). Source: torchtitan, models/llama3 and
 * models/qwen3, state_dict_adapter.py, from version 0.1 to 0.3. */
#include "checkpoint/dcp/model.h"
#include "checkpoint/huggingface/huggingface.h"
#include "checkpoint/huggingface/rows.h"

#include <string.h>

/* Since version 0.3 queries, keys and values have a module of their own. The
 * output layer is called lm_head there, as the importer knows. In Llama
 * elements that turn together are neighbours, as in Meta's code. */
#define RULES(inside, turn)                                                \
    RULE(WORD_EMBEDDING, SAME, "tok_embeddings.weight"),                   \
    RULE(NORM1_WEIGHT, SAME, "layers.%.attention_norm.weight"),            \
    RULE(QKV_WEIGHT, Q##turn, "layers.%.attention." inside "wq.weight"),   \
    RULE(QKV_WEIGHT, K##turn, "layers.%.attention." inside "wk.weight"),   \
    RULE(QKV_WEIGHT, V, "layers.%.attention." inside "wv.weight"),         \
    RULE(Q_NORM_WEIGHT, SAME, "layers.%.attention.q_norm.weight"),         \
    RULE(K_NORM_WEIGHT, SAME, "layers.%.attention.k_norm.weight"),         \
    RULE(PROJ_WEIGHT, SAME, "layers.%.attention.wo.weight"),               \
    RULE(NORM2_WEIGHT, SAME, "layers.%.ffn_norm.weight"),                  \
    RULE(GATE_WEIGHT, SAME, "layers.%.feed_forward.w1.weight"),            \
    RULE(FC1_WEIGHT, SAME, "layers.%.feed_forward.w3.weight"),             \
    RULE(FC2_WEIGHT, SAME, "layers.%.feed_forward.w2.weight"),             \
    RULE(FINAL_NORM_WEIGHT, SAME, "norm.weight"),                          \
    RULE(OUTPUT_WEIGHT, SAME, "/output.weight")

static const struct gpt_hf_rule llama[] = {RULES("", _PAIRS)},
                                llama_new[] = {RULES("qkv_linear.", _PAIRS)},
                                qwen[] = {RULES("", )},
                                qwen_new[] = {RULES("qkv_linear.", )};

#define FAMILY(type, list) \
    {.model_type = type, .prefix = "", .rules = (list), \
     .n_rules = GPT_COUNT(list)}
static const struct gpt_hf_family families[] = {
    FAMILY("llama", llama),
    FAMILY("llama", llama_new),
    FAMILY("qwen3", qwen),
    FAMILY("qwen3", qwen_new),
};

/* The rule of queries tells the two kinds of names apart. */
static bool has_queries(const struct gpt_dcp_model *m,
                        const struct gpt_hf_family *family)
{
    char name[GPT_PARAM_NAME + 64];
    const struct gpt_param first = {.role = GPT_QKV_WEIGHT, .layer = 0};
    size_t at = 0;

    gpt_hf_name(name, sizeof(name), gpt_hf_next_rule(family, &first, &at),
                &first, 0, "");
    for (int64_t i = 0; i < m->n; i++)
        if (m->entries[i].kind == GPT_KIND_PARAMETERS &&
            gpt_path_ends_in(m->entries[i].name, name))
            return true;
    return false;
}

const struct gpt_hf_family *gpt_dcp_titan(const struct gpt_dcp_model *m,
                                          const char *model_type)
{
    for (size_t i = 0; i < GPT_COUNT(families); i++)
        if (strcmp(families[i].model_type, model_type) == 0 &&
            has_queries(m, &families[i]))
            return &families[i];
    return NULL;
}
