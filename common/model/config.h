/* What a model is: sizes and variants, independent of how ranks share it. Every
 * checkpoint keeps it as JSON, with these names.
 *
 * This folder is the model: its configuration, its sizes (geometry.h), its
 * parameters (params.h), a transformer layer (layer.h), a pipeline stage of
 * layers for training (stage.h), and the forward pass of generation
 * (decode.h). Start at params_table.c, where a table is the architecture. */
#ifndef GPT_MODEL_CONFIG_H
#define GPT_MODEL_CONFIG_H

#include "base/json.h"
#include "base/status.h"
#include "model/factors.h"

/* How a model knows the position of a token: by a table that is added to the
 * words (GPT-2), by turning queries and keys (rotary positions, Su et al.
 * 2021), by scores that fall with distance (ALiBi, Press et al. 2022; Falcon's
 * form of it is rounded to bf16, and scaled as scores are), or not at all. */
enum gpt_position_embedding {
    GPT_POSITION_LEARNED,
    GPT_POSITION_ROPE,
    GPT_POSITION_ALIBI,
    GPT_POSITION_ALIBI_BF16,
    GPT_POSITION_NONE,
};
/* "learned_absolute", "rope", "alibi", "alibi_bf16", "none", NULL. */
extern const char *const gpt_position_embeddings[];

/* How rotary angles are stretched for texts that are longer than those of
 * pretraining; the formulas are those of rotary.c and gpt_rope_scaled()
 * (kernels/rope_scaling.h). */
enum gpt_rotary_scaling {
    GPT_SCALING_NONE,
    GPT_SCALING_LINEAR,
    GPT_SCALING_DYNAMIC, /* a larger base, once max_positions is above those
                          * of pretraining */
    GPT_SCALING_LLAMA3,
    GPT_SCALING_YARN,
    GPT_SCALING_NTK_ALPHA, /* a larger base, by a number: rotary_factor */
    GPT_SCALING_LONGROPE, /* a divisor for each pair, of two lists: texts that
                           * are longer than those of pretraining have others */
};
/* "none", "linear", "dynamic", "llama3", "yarn", "ntk_alpha", "longrope",
 * NULL. */
extern const char *const gpt_rotary_scalings[];

/* "LayerNorm", "RMSNorm", NULL: in the order of enum gpt_norm_kind. */
extern const char *const gpt_normalizations[];
/* "gelu", "gelu_exact", "silu", "relu", "squared_relu", "xielu", NULL: in the
 * order of enum gpt_activation. */
extern const char *const gpt_activations[];

/* How a router scores the experts of a token: shares of all of them, or each by
 * itself. */
enum gpt_router_score { GPT_SCORE_SOFTMAX, GPT_SCORE_SIGMOID };
/* "softmax", "sigmoid", NULL. */
extern const char *const gpt_router_scores[];

struct gpt_config {
    int64_t num_layers;          /* L */
    int64_t hidden_size;         /* C */
    int64_t num_attention_heads; /* H */
    int64_t num_query_groups;    /* G: key/value heads, divides H */
    int64_t head_size;           /* D, usually C / H */
    int64_t ffn_hidden_size;     /* F, usually 4 C */
    int64_t max_positions;       /* of a text; rows of the position table */
    int64_t position_embedding;  /* enum gpt_position_embedding */
    int64_t position_offset;     /* rows of the table in front of position 0 */
    double rotary_base;          /* 0 unless GPT_POSITION_ROPE, as the next */
    double rotary_percent;       /* share of a head's elements that turn */
    bool rotary_interleaved;     /* neighbours are a pair, not two halves */
    double rotary_local_base;    /* of layers with a window, which have no
                                  * scaling then; 0: they are as the others */
    int64_t no_rope_freq;        /* layers that do not turn (layer_list.h):
                                  * every so many-th, or a list with 1 */
    int64_t rotary_scaling;      /* enum gpt_rotary_scaling; what follows is 0
                                  * unless its formula has it */
    double rotary_factor;        /* how much longer texts are, >= 1; longrope:
                                  * 0 = max_positions over those of
                                  * pretraining */
    double rotary_low_factor, rotary_high_factor; /* llama3 */
    double rotary_fast, rotary_slow; /* yarn: turns over the positions of
                                      * pretraining */
    double rotary_attention; /* yarn, longrope: factor of sines and cosines,
                              * 0 = by its formula */
    int64_t rotary_positions;    /* of pretraining: all but linear, ntk_alpha */
    double rotary_query_growth;  /* queries are multiplied by 1 + this *
                                  * ln(1 + floor(position / those)) */
    double rotary_short_factors[GPT_ROTARY_PAIRS]; /* longrope: what the rate
                                  * of a pair is divided by, */
    double rotary_long_factors[GPT_ROTARY_PAIRS]; /* ... in texts of more than
                                  * rotary_positions; then zeros */
    int64_t vocab_size;          /* V: ids that exist */
    int64_t padded_vocab_size;   /* rows of the word table, >= V */
    int64_t normalization;       /* enum gpt_norm_kind */
    bool norm_plus_one;          /* norms multiply by 1 + weight */
    bool no_norm_bias;           /* LayerNorm adds nothing after the weight */
    bool no_norm_weight;         /* norms multiply and add nothing */
    double norm_epsilon;
    int64_t activation;          /* enum gpt_activation */
    bool gated;                  /* activation(gate) * up, two products */
    bool no_linear_bias;         /* linear layers add no bias, */
    bool no_attention_bias;      /* ... those of attention do not */
    bool no_mlp_bias;            /* ... those of the feed-forward do not */
    bool qkv_bias;               /* ... but that of Q, K and V does */
    bool no_qkv_bias;            /* that of Q, K and V adds none, others do */
    bool output_bias;            /* the output layer adds one */
    bool qk_norm;                /* norms of each head's query and key */
    bool qk_norm_whole;          /* ... of all queries and of all keys */
    bool qk_norm_each;           /* ... with weights of each head's own */
    bool qk_norm_turned;         /* ... after positions turned them */
    int64_t window_size;         /* positions before its own to which a token
                                  * attends; 0: all, as the next two */
    int64_t window_attn_skip_freq; /* layers that attend to all
                                  * (layer_list.h): every so many-th, or a list
                                  * with 0 */
    int64_t window_full_layers;  /* so do the first so many */
    int64_t kv_lora_rank;        /* latent attention (DeepSeek-AI 2024): keys
                                  * and values of all heads are made of a row of
                                  * so many numbers; 0: they are not, and what
                                  * follows is 0 */
    int64_t q_lora_rank;         /* and queries of so many; 0: of the stream */
    int64_t qk_head_dim;         /* elements of a head's query and key that do
                                  * not turn; */
    int64_t qk_pos_emb_head_dim; /* ... that do, of a key the same in all heads;
                                  * head_size is both */
    int64_t v_head_dim;          /* of a head's value */
    double latent_norm_epsilon;  /* of those rows' norms; 0: norm_epsilon */
    double clip_qkv;             /* queries, keys and values stay between this
                                  * and its negative; 0: as they are */
    double attn_logit_softcapping;  /* scores are c tanh(score / c); 0: as they
                                     * are */
    double final_logit_softcapping; /* so are logits */
    double query_pre_attn_scalar;   /* scores are divided by its root, 0: by
                                     * that of head_size */
    bool scale_embedding;        /* words times the root of hidden_size */
    double embedding_multiplier; /* ... or times this number; 0: 1, as the next
                                  * two */
    double residual_multiplier;  /* of what attention and feed-forward give */
    double logit_multiplier;
    bool embedding_norm;         /* a norm after the embedding */
    bool parallel_blocks;        /* attention and feed-forward read the same
                                  * stream, and their outputs are added */
    bool shared_norm;            /* ... after the same norm */
    bool post_norm;              /* norms of what attention and feed-forward
                                  * give, before it is added */
    bool no_pre_norm;            /* ... and none of what they read */
    int64_t num_experts;         /* E of a layer whose feed-forward is experts,
                                  * of which a router gives a token some; 0:
                                  * there are none, and what follows is 0 */
    int64_t moe_router_topk;     /* K, experts of a token */
    int64_t moe_ffn_hidden_size; /* of an expert */
    int64_t moe_layer_freq;      /* layers with experts (layer_list.h): every
                                  * so many-th, or a list with 1; 0: all */
    int64_t moe_dense_layers;    /* the first so many have none */
    int64_t moe_shared_expert_intermediate_size; /* of a feed-forward of all
                                  * tokens beside the experts; 0: none */
    bool moe_shared_expert_gate; /* ... which a gate of each token weighs */
    int64_t moe_router_score_function; /* enum gpt_router_score */
    int64_t moe_router_num_groups; /* experts are in so many groups of
                                  * neighbours, and those of a token are of */
    int64_t moe_router_group_topk; /* ... so many of these; 0: of all */
    bool moe_router_pre_softmax; /* experts' weights are their scores, not
                                  * divided by those of the token's experts */
    bool moe_router_expert_bias; /* what is added to scores to choose by, and
                                  * not to weights: a number for each expert */
    double moe_router_topk_scaling_factor; /* of weights; 0: 1 */
    double moe_aux_loss_coeff;   /* of the losses of training that spread tokens
                                  * evenly, */
    double moe_z_loss_coeff;     /* ... and keep the router's numbers small */
    double init_std;             /* of weights; output layers / sqrt(2 L) */
    double hidden_dropout, attention_dropout;
    bool tied_embeddings;        /* output layer shares the word table */
};

/* GPT-2 124M with a vocabulary of 50257; padded_vocab_size 0. */
struct gpt_config gpt_config_default(void);

/* Fills what is 0 and follows from the rest (D, F, G, padded vocabulary for
 * tensor parallel size `tp` by `divisible_by` x tp) and checks every range and
 * rule between fields. GPT_EUSAGE names field, value and rule. */
int gpt_config_complete(struct gpt_config *c, int64_t divisible_by, int64_t tp,
                        struct gpt_err *err) GPT_MUST_USE;

/* ceil(vocab / (divisible_by * tp)) * divisible_by * tp. */
int64_t gpt_config_padded_vocab(int64_t vocab, int64_t divisible_by,
                                int64_t tp);

/* True where keys and values are made of a row of few numbers. */
static inline bool gpt_config_is_latent(const struct gpt_config *c)
{
    return c->kv_lora_rank > 0;
}

/* Elements of a head's value: those of its key, but in latent attention. */
static inline int64_t gpt_config_value_size(const struct gpt_config *c)
{
    return gpt_config_is_latent(c) ? c->v_head_dim : c->head_size;
}

/* How many elements of a head rotary positions turn; an even number. */
int64_t gpt_config_rotary(const struct gpt_config *c);

/* How many factors each list of LongRoPE has: half of that, or 0 for another
 * model. Above GPT_ROTARY_PAIRS in a model that gpt_config_complete()
 * refuses. */
int64_t gpt_config_factors(const struct gpt_config *c);

/* What LongRoPE multiplies sines and cosines by where a model has no number of
 * its own for it: transformers' formula, by how much longer the longest text is
 * than those of pretraining. */
double gpt_config_sharpness(const struct gpt_config *c);

/* True where a text of `length` tokens has the second list, which is of texts
 * that are longer than those of pretraining. */
bool gpt_config_is_long(const struct gpt_config *c, int64_t length);

/* True for a layer (its global number, from 0) whose queries and keys turn. */
bool gpt_config_turns(const struct gpt_config *c, int64_t layer);

/* True for a layer (its global number, from 0) whose feed-forward is experts.
 */
bool gpt_config_has_experts(const struct gpt_config *c, int64_t layer);
/* How many layers have experts. */
int64_t gpt_config_expert_layers(const struct gpt_config *c);
/* True when a layer has none: ffn_hidden_size then means something. */
bool gpt_config_has_dense(const struct gpt_config *c);
/* Makes moe_dense_layers and moe_layer_freq of a list with true for each layer
 * that has experts. False, and *c is as it was, where the list does not repeat
 * (layer_list.h). */
bool gpt_config_choose_experts(struct gpt_config *c, const bool *experts);
/* Which layers have experts is said in the first way that can say it: so many
 * without them at the beginning; every so many-th; both; a list. */
void gpt_config_settle_experts(struct gpt_config *c);

/* What words are multiplied by before positions are added; 0: by nothing. */
float gpt_config_word_scale(const struct gpt_config *c);

/* The window of a layer (its global number, from 0) in texts of `length`
 * tokens: positions before its own to which a token attends; 0: all. */
int64_t gpt_config_window(const struct gpt_config *c, int64_t layer,
                          int64_t length);

/* JSON with the field names above. Reading checks every range (hostile input):
 * GPT_EDATA names `what`, field, value and limit. */
cJSON *gpt_config_to_json(const struct gpt_config *c);
int gpt_config_from_json(struct gpt_config *c, const cJSON *json,
                         const char *what, struct gpt_err *err) GPT_MUST_USE;

/* How many fields two models differ in, other than dropout and padding; the
 * first `cap` of them in names, as "hidden_size". */
size_t gpt_config_differences(const struct gpt_config *a,
                              const struct gpt_config *b, const char **names,
                              size_t cap);
/* The first of them, or NULL. */
static inline const char *gpt_config_difference(const struct gpt_config *a,
                                                const struct gpt_config *b)
{
    const char *name = NULL;

    gpt_config_differences(a, b, &name, 1);
    return name;
}

#endif
