/* Families of Hugging Face's models as tables: what a key of config.json is in
 * struct gpt_config, and which tensor is which parameter. Reading, writing and
 * the choice of a family for a model walk these tables; a new family is a row
 * of family.c with two tables of its own. Sources: transformers,
 * configuration_*.py and modeling_*.py of each. */
#ifndef GPT_CHECKPOINT_HF_FAMILY_H
#define GPT_CHECKPOINT_HF_FAMILY_H

#include "base/json.h"
#include "model/params.h"

#include <stddef.h>

/* How the rows of a parameter are ordered in a tensor there. */
enum gpt_hf_order {
    GPT_HF_SAME,
    GPT_HF_TRANSPOSED, /* Conv1D: (in, out) */
    GPT_HF_CONV_QKV,   /* transposed, and all queries, all keys, all values */
    GPT_HF_QKV,        /* all queries, all keys, all values */
    GPT_HF_QUARTERS,   /* queries, values and keys of each quarter of heads */
    GPT_HF_Q,          /* the queries alone: three tensors are linear_qkv */
    GPT_HF_K,
    GPT_HF_V,
    GPT_HF_Q_PAIRS, /* as Q and K, but elements that turn together are */
    GPT_HF_K_PAIRS, /* neighbours: the order of GGUF files of Llama */
    GPT_HF_Q_TURNED, /* ... that turn the other way: halves of a head have */
    GPT_HF_K_TURNED, /* changed places */
    GPT_HF_ROWS,   /* a tensor a row: the number is the name's second '%' */
    GPT_HF_FIRST,  /* the first half of the rows of a tensor, */
    GPT_HF_SECOND, /* or the second */
    GPT_HF_EXPERT, /* a tensor an expert: the number is the second '%', too */
    GPT_HF_EXPERT_GATE, /* the same of the first half of an expert's rows, */
    GPT_HF_EXPERT_UP,   /* or the second */
    GPT_HF_STACKED, /* all experts in a tensor of three dimensions, */
    GPT_HF_GATES,   /* ... or the first half of each one's rows, */
    GPT_HF_UPS,     /* ... or the second */
    GPT_HF_STACKED_TRANSPOSED, /* all of them, each the other way round */
    GPT_HF_ONE_ROW, /* a vector, in a tensor of two */
    GPT_HF_KV_ROWS, /* of latent attention: the first rows of a tensor, which */
    GPT_HF_TURNED_ROWS, /* make keys and values; or its last, which turn */
    GPT_HF_KEY_HEADS,   /* keys of all heads in a tensor of three dimensions, */
    GPT_HF_VALUE_HEADS, /* or values (map_heads.h) */
};

/* A tensor, or one for each row or expert. name: after the family's prefix, '%'
 * is the layer's number; with a leading '/' it stands beside the base model,
 * without the prefix.
 *
 * Those of a family are in the order of named_parameters() of transformers'
 * class, with all of a layer together: an optimizer there counts its parameters
 * in it, and nothing else says which one is which (trainer_order.c). The word
 * table is the first. */
struct gpt_hf_rule {
    enum gpt_param_role role;
    enum gpt_hf_order order;
    const char *name;
};

/* A number that the class keeps as a tensor without dimensions, in each layer,
 * though it is no parameter: it fails, or computes noise, where a file lacks
 * it. It is written beside the parameter of a role, and not read. */
struct gpt_hf_constant {
    enum gpt_param_role beside;
    const char *name; /* as in struct gpt_hf_rule */
    float value;
};

enum gpt_hf_kind {
    GPT_HF_SIZE, /* a field of gpt_config: int64_t, */
    GPT_HF_RATE, /* double, */
    GPT_HF_FLAG, /* bool, */
    GPT_HF_NOT,  /* the opposite of a bool */
    GPT_HF_SIZE_OR_NONE, /* null for 0 */
    GPT_HF_HEAD_SIZE, /* head_size, written where it is not the width over the
                       * heads: classes look for it, and hardly a file has it */
    GPT_HF_ACTIVATION,
    GPT_HF_INNER,  /* ffn_hidden_size, null where it is 4 hidden_size */
    GPT_HF_OTHER_DROPOUT, /* one that is trained as hidden_dropout */
    GPT_HF_THETA,      /* rotary_base */
    GPT_HF_SCALING,    /* an object: rotary scaling */
    GPT_HF_PARAMETERS, /* the same with base and share, of newer files */
    GPT_HF_BEFORE, /* rotary_positions of LongRoPE, whatever its object says */
    GPT_HF_TWO_PARAMETERS, /* two: of layers without a window and with one */
    GPT_HF_LOCAL_THETA, /* rotary_local_base */
    GPT_HF_ROTARY_SIZE, /* elements of a head that turn, and not their share */
    GPT_HF_TANH_ACTIVATION, /* the same, where "gelu" is the tanh form */
    GPT_HF_CAP,        /* a number, or null for 0 */
    GPT_HF_SCALAR,     /* query_pre_attn_scalar */
    GPT_HF_SCORE_SCALE, /* what scores are multiplied by: 1 over its root */
    GPT_HF_MULTIPLIER, /* a double; 0 here is 1 there */
    GPT_HF_DIVISOR,    /* the same, upside down */
    GPT_HF_ATTENTION_BIAS, /* of all of attention */
    GPT_HF_QKV_BIAS,       /* of queries, keys and values */
    GPT_HF_PROJ_BIAS,      /* of attention's output */
    GPT_HF_MLP_BIAS,       /* of the feed-forward */
    GPT_HF_EACH_NORM,  /* qk_norm_each, and qk_norm with it */
    GPT_HF_MULTIQUERY, /* true: one group; false: as many as heads */
    GPT_HF_WINDOW,     /* attention to so many tokens, or null */
    GPT_HF_USE_WINDOW,
    GPT_HF_WINDOW_LAYERS, /* window_full_layers, where there is a window */
    GPT_HF_WINDOW_EVERY, /* window_attn_skip_freq; a text counts for nothing */
    GPT_HF_TURNS,       /* a list: 1 for a layer that turns */
    GPT_HF_TURNS_EVERY, /* no_rope_freq, where there is no list */
    GPT_HF_LAYER_TYPES, /* "full_attention" or "sliding_attention" of each */
    GPT_HF_PATTERN,     /* the same as names that repeat: GPT-Neo's */
    GPT_HF_WIDTH,       /* hidden_size, again; absent or null: the same */
    GPT_HF_MUST,        /* nothing but the value of `def` */
    GPT_HF_ONLY,        /* the same, and never written */
    GPT_HF_SAID,        /* the same as MUST, and it must be said: the class
                         * has another default */
    GPT_HF_ATTENTION,   /* a list: "attention" for each layer; must be said */
    GPT_HF_UNUSED,      /* the class does not read it; never written */
    GPT_HF_EXPERTS, /* of experts.h: `offset` is an enum gpt_hf_expert_key */
    GPT_HF_DERIVED, /* of derived.h: `offset` is an enum gpt_hf_formula */
    GPT_HF_EACH, /* a field as GPT_HF_SIZE, or a list that repeats it */
    GPT_HF_ARCHITECTURES,
    GPT_HF_BOS,
    GPT_HF_EOS,
    GPT_HF_MODEL_TYPE,
    GPT_HF_DTYPE,
    GPT_HF_NOTE, /* not read; written as `def` */
};

struct gpt_hf_key {
    /* "a.b": b in an object a. alias: another name when read, or NULL. */
    const char *name, *alias;
    enum gpt_hf_kind kind;
    const char *def; /* what absence means, as JSON; NULL: it must be there */
    size_t offset;   /* in struct gpt_config */
};

struct gpt_hf_family {
    const char *model_type, *architecture;
    const char *when; /* of several families of a type the one with this key
                       * true, or */
    int when_is;      /* ... this number; NULL: none of the others */
    const char *prefix; /* of tensors of the base model, "model." */
    bool unturned_full; /* beside layers with a window others do not turn */
    bool local_angles;  /* layers with a window have angles without scaling */
    bool counts_window; /* the class wants a number where no layer has one */
    bool needs_window;  /* the class computes something else without one */
    bool turns_again;   /* the class computes a cache again where LongRoPE turns
                         * its keys otherwise */
    bool in_quarters;   /* the class cuts the heads into four parts */
    bool shares_width;  /* the class refuses a width that is no multiple of the
                         * heads, though a head's size is its own */
    bool has_alpha;     /* the class has ntk_alpha, which its files call
                         * "dynamic" with a number "alpha" */
    bool predicts;      /* files may have layers after the last one that predict
                         * further words, which the class leaves out, too */
    bool sharpens_scores; /* the class multiplies scores by YaRN's number
                           * mscale_all_dim: query_pre_attn_scalar */
    bool grows_queries; /* the class computes rotary_query_growth; without that
                         * number it fails */
    struct gpt_config base; /* what no key says */
    const struct gpt_hf_rule *rules;
    size_t n_rules;
    /* As many, in the order of the class before a version of transformers,
     * "4.41"; NULL: it had no other. */
    const struct gpt_hf_rule *before;
    const char *reordered;
    /* Tensors that a state of the class in memory has in the place of those
     * that it saves; read where the others are not there. */
    const struct gpt_hf_rule *memory;
    size_t n_memory;
    const struct gpt_hf_constant *constants;
    size_t n_constants;
    const struct gpt_hf_key *keys; /* written in the order of their names */
    size_t n_keys;
};

/* In the order in which a model to be written tries them. */
extern const struct gpt_hf_family *const gpt_hf_families[];
extern const size_t gpt_hf_n_families;

/* A value of "hidden_act" and what it is here. */
struct gpt_hf_activation {
    const char *name;
    int64_t activation; /* enum gpt_activation */
};
extern const struct gpt_hf_activation gpt_hf_activations[];
extern const size_t gpt_hf_n_activations;

/* A number of rotary scaling: the name there, and a double of struct
 * gpt_config; offset 0: rotary_positions, which is an int64_t. */
struct gpt_hf_scaling_number {
    const char *name;
    size_t offset;
};
extern const struct gpt_hf_scaling_number gpt_hf_scaling_numbers[];
extern const size_t gpt_hf_n_scaling_numbers;

/* A list of it: GPT_ROTARY_PAIRS doubles of struct gpt_config. */
extern const struct gpt_hf_scaling_number gpt_hf_scaling_lists[];
extern const size_t gpt_hf_n_scaling_lists;

/* True for a key that says nothing about what a model computes. */
bool gpt_hf_is_note(const char *key);

/* The family of that "model_type" which config.json means, NULL when there is
 * none; config NULL: the first. */
const struct gpt_hf_family *gpt_hf_family_find(const char *model_type,
                                               const cJSON *config);
/* Its "model_type" where there is such a family; else NULL, as for NULL. */
const char *gpt_hf_family_type(const char *model_type);
/* Appends the types of all families: "gpt2, llama, ...". */
void gpt_hf_family_list(char *text, size_t cap);

#endif
