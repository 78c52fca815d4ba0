/* The words of a configuration's choices, in the order of their enums; see
 * config.h. */
#include "model/config.h"

#include "backend.h"

const char *const gpt_position_embeddings[] = {
    [GPT_POSITION_LEARNED] = "learned_absolute",
    [GPT_POSITION_ROPE] = "rope",
    [GPT_POSITION_ALIBI] = "alibi",
    [GPT_POSITION_ALIBI_BF16] = "alibi_bf16",
    [GPT_POSITION_NONE] = "none",
    NULL,
};

/* Names are transformers', where it has the kind. */
const char *const gpt_rotary_scalings[] = {
    [GPT_SCALING_NONE] = "none",
    [GPT_SCALING_LINEAR] = "linear",
    [GPT_SCALING_DYNAMIC] = "dynamic",
    [GPT_SCALING_LLAMA3] = "llama3",
    [GPT_SCALING_YARN] = "yarn",
    [GPT_SCALING_NTK_ALPHA] = "ntk_alpha",
    [GPT_SCALING_LONGROPE] = "longrope",
    NULL,
};

const char *const gpt_normalizations[] = {
    [GPT_LAYERNORM] = "LayerNorm",
    [GPT_RMSNORM] = "RMSNorm",
    NULL,
};

const char *const gpt_activations[] = {
    [GPT_GELU] = "gelu",
    [GPT_GELU_EXACT] = "gelu_exact",
    [GPT_SILU] = "silu",
    [GPT_RELU] = "relu",
    [GPT_SQUARED_RELU] = "squared_relu",
    [GPT_XIELU] = "xielu",
    NULL,
};

const char *const gpt_router_scores[] = {
    [GPT_SCORE_SOFTMAX] = "softmax",
    [GPT_SCORE_SIGMOID] = "sigmoid",
    NULL,
};
