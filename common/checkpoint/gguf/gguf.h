/* GGUF files, which llama.cpp runs: one file with the configuration and the
 * vocabulary as keys, then the tensors. What an architecture there is, its keys
 * and its tensors, is a row of arch.c. Source: ggml, docs/gguf.md; llama.cpp,
 * gguf-py/gguf/constants.py and convert_hf_to_gguf.py. */
#ifndef GPT_CHECKPOINT_GGUF_H
#define GPT_CHECKPOINT_GGUF_H

#include "base/dtype.h"
#include "base/memory.h"
#include "checkpoint/huggingface/biases.h"
#include "checkpoint/target.h"
#include "tokenizer/gguf_file.h"

/* When a key is there. */
enum gpt_gguf_use {
    GPT_GGUF_ALL,
    GPT_GGUF_ROPE,      /* with rotary positions */
    GPT_GGUF_LAYERNORM, /* with norms of this kind */
    GPT_GGUF_RMS,
    GPT_GGUF_SCALED,  /* with linear or YaRN scaling of rotary positions */
    GPT_GGUF_HEADS,   /* with heads of one size, whose keys say it */
    /* in architectures that say so: */
    GPT_GGUF_FACTORS, /* of words, of scores, of what blocks give */
    GPT_GGUF_LOGITS,  /* of logits, */
    GPT_GGUF_DIVISOR, /* ... which are divided by it */
    GPT_GGUF_CAPS,    /* of scores and logits */
    GPT_GGUF_CAP,     /* of logits alone */
    GPT_GGUF_CLIP,    /* of queries, keys and values */
    GPT_GGUF_GROWTH,  /* of queries, and numbers of YaRN */
    GPT_GGUF_EXPERTS, /* how many, in each layer, and of a token */
    GPT_GGUF_EXPERT_FFN, /* their width; without it that of all layers */
    GPT_GGUF_SHARED,  /* the width of what all tokens share beside them */
    GPT_GGUF_COUNT,   /* the same over the width of an expert */
    GPT_GGUF_LEAD,    /* how many layers at the beginning have none */
    GPT_GGUF_STEP,    /* every so many-th of the others has them */
    GPT_GGUF_SCORES,  /* what makes scores of a router's numbers */
    GPT_GGUF_WEIGHTS, /* a factor of weights */
    GPT_GGUF_SUM,     /* whether they are made to add up to 1 */
    GPT_GGUF_LATENT,  /* rows that heads are made of */
    GPT_GGUF_GROUPS,  /* of experts, of which a token takes some */
};
#define GPT_GGUF_HAS(use) (1U << GPT_GGUF_##use)

struct gpt_gguf_arch {
    const char *name;   /* general.architecture */
    const char *family; /* model_type of Hugging Face's models of this kind */
    struct gpt_config base; /* what no key says */
    const struct gpt_hf_rule *rules; /* GPT_HF_*: without a prefix */
    size_t n_rules;
    /* Rows of queries and keys are in the order of neighbouring pairs: they are
     * stored as they are when rotary positions turn pairs, and permuted when
     * they turn halves. */
    bool pairs;
    bool whole_heads;   /* rotary positions turn all elements */
    bool says_parallel; /* a key tells parallel_blocks */
    bool has_lists;     /* llama.cpp has LongRoPE's lists of it */
    bool needs_head;    /* llama.cpp wants the output layer of tied ones, too */
    bool only_tied;     /* llama.cpp has no output layer of its own */
    bool fills_width;   /* llama.cpp takes all heads to be as wide as a word */
    bool has_freqs;     /* llama.cpp has Llama 3's factors of it */
    /* Biases that are there or not: llama.cpp adds those that a file has.
     * Others are as `base` says. */
    struct gpt_hf_biases free_bias;
    /* Norms of each head, if a file has them, in models of so many layers or
     * more; 0: in none. */
    int64_t each_norm_layers;
    bool must_norm_each; /* llama.cpp wants them there */
    bool free_norm;     /* norms of heads are there if a file has them */
    bool must_share;    /* llama.cpp wants a feed-forward that all share */
    bool all_groups;    /* llama.cpp takes every head to be a group */
    bool latent;        /* attention is latent */
    bool plus_one;      /* norms are stored with 1 added, as llama.cpp
                         * multiplies by what is stored */
    bool folds_alpha;   /* the base is stored as "alpha" has enlarged it */
    bool says_alibi;    /* a key has the exponent of the smallest slope, 8 */
    unsigned uses;      /* of keys: GPT_GGUF_HAS() */
    /* Every so many-th layer attends to all tokens where there is a window; 0:
     * there is none in any model. Those layers do not turn, and others have
     * this base. */
    int64_t window_every;
    bool must_window; /* the key has to be there */
    bool says_window; /* a key says that all layers have one, which llama.cpp
                       * passes over: it is read, and never written */
    bool unturned_full;
    double local_base; /* of layers with a window, without a scaling; 0: the
                        * same as of others, with it */
    bool plain_local;  /* the same base without a scaling */
    int64_t wide_layers; /* a model of so many divides scores by the root of
                          * the width over the heads */
};

/* Tensors that are no parameters of ours. */
#define GPT_GGUF_WORDS "token_embd.weight"
#define GPT_GGUF_HEAD "output.weight"
#define GPT_GGUF_FREQS "rope_freqs.weight"
#define GPT_GGUF_LONG "rope_factors_long.weight"
#define GPT_GGUF_SHORT "rope_factors_short.weight"

/* What a file has of these lists of rotary factors. */
struct gpt_gguf_list {
    float *x; /* NULL: there is none */
    int64_t n;
};
struct gpt_gguf_lists {
    struct gpt_gguf_list freqs, many, few; /* of long texts, of short ones */
};

/* The rules of p's role one after the other, from *at = 0 on. */
const struct gpt_hf_rule *gpt_gguf_next_rule(const struct gpt_gguf_arch *arch,
                                             const struct gpt_config *c,
                                             const struct gpt_param *p,
                                             size_t *at);

/* Makes of an architecture, whose files have queries, keys and values in one
 * tensor, what it is in files that have them apart. */
void gpt_gguf_take_apart(struct gpt_gguf_arch *arch);
/* Keys and values of latent attention are one tensor, as in older files. */
void gpt_gguf_take_together(struct gpt_gguf_arch *arch);

/* Floats that are stored with 1 added, where the architecture does so with the
 * parameter; else NULL. */
const struct gpt_packing *gpt_gguf_shifted(const struct gpt_gguf_arch *arch,
                                           const struct gpt_param *p);

/* "iq2_xs": the name of a type that is not read; "?" where it is not known. */
const char *gpt_gguf_other_type(uint32_t ggml_type);
/* ggml's numbers of plain types. */
bool gpt_gguf_dtype(uint32_t ggml_type, enum gpt_dtype *dtype);
uint32_t gpt_gguf_number(enum gpt_dtype dtype); /* F32, F16, BF16 */
/* general.file_type of a file of them */
uint32_t gpt_gguf_file_type(enum gpt_dtype dtype);

/* ---- configuration ---- */

/* How the number of a key is that of a field. */
enum gpt_gguf_form {
    GPT_GGUF_SAME,
    GPT_GGUF_FACTOR,  /* a field of 0 is 1 there */
    GPT_GGUF_INVERSE, /* the same, upside down */
    GPT_GGUF_ROOT,    /* query_pre_attn_scalar: 1 over its root */
    GPT_GGUF_EXPERTS_WIDE, /* a width over that of an expert */
    GPT_GGUF_NEXT,     /* an enumerator: 1 is the first there */
    GPT_GGUF_ALL_ONES, /* 1 there is 0 here, and nothing else is there */
    GPT_GGUF_OPPOSITE, /* of a flag */
};

/* A key that is a field of struct gpt_config. */
struct gpt_gguf_field {
    const char *name; /* after the architecture's: "llama." */
    bool whole;       /* an int64_t, else a double */
    enum gpt_gguf_use use;
    bool must; /* be in a file */
    size_t offset; /* in struct gpt_config */
    enum gpt_gguf_form form;
};
extern const struct gpt_gguf_field gpt_gguf_fields[];
extern const size_t gpt_gguf_n_fields;
bool gpt_gguf_is_used(const struct gpt_gguf_arch *arch,
                      enum gpt_gguf_use use, const struct gpt_config *c);

/* That of general.architecture; GPT_EDATA lists those that there are. */
int gpt_gguf_find_arch(const struct gpt_gguf_arch **arch, struct gpt_gguf *g,
                       struct gpt_err *err) GPT_MUST_USE;

/* What tensors say of the model. */
struct gpt_gguf_seen {
    int64_t words; /* rows of the word table */
    bool tied;
    bool router_bias; /* experts are chosen by a bias, too */
    bool norms;      /* queries are normed, */
    bool norms_each; /* ... head by head, by rows of weights */
    struct gpt_hf_biases biases;
    struct gpt_gguf_lists lists;
};
/* GPT_EDATA names the key. *c is complete but for padding. */
int gpt_gguf_read_config(struct gpt_config *c,
                         const struct gpt_gguf_arch **arch, struct gpt_gguf *g,
                         const struct gpt_gguf_seen *seen,
                         struct gpt_err *err) GPT_MUST_USE;
/* Those biases of the architecture that are there or not, as they are there. */
void gpt_gguf_free_biases(struct gpt_config *c,
                          const struct gpt_gguf_arch *arch,
                          const struct gpt_hf_biases *there);
/* The first architecture that can say what the model is, that of `family`
 * before others. GPT_EDATA names what each of them lacks. */
int gpt_gguf_choose(const struct gpt_config *c, const char *family,
                    const struct gpt_gguf_arch **arch,
                    struct gpt_err *err) GPT_MUST_USE;
/* Factors of the n rotary rates of a model with Llama 3's scaling. */
void gpt_gguf_ropes(const struct gpt_config *c, float *to, int64_t n);

/* ---- keys that are written ---- */

struct gpt_gguf_keys {
    struct gpt_buf b;
    int64_t n;
    bool failed; /* memory was out */
};
void gpt_gguf_put_int(struct gpt_gguf_keys *k, const char *name,
                      enum gpt_gguf_type type, int64_t value);
void gpt_gguf_put_real(struct gpt_gguf_keys *k, const char *name, double value);
void gpt_gguf_put_text(struct gpt_gguf_keys *k, const char *name,
                       const char *text);
/* Begins an array of n; elements follow. */
void gpt_gguf_put_array(struct gpt_gguf_keys *k, const char *name,
                        enum gpt_gguf_type element, int64_t n);
void gpt_gguf_add_u32(struct gpt_gguf_keys *k, uint32_t v);
void gpt_gguf_add_real(struct gpt_gguf_keys *k, float v);
void gpt_gguf_add_u64(struct gpt_gguf_keys *k, uint64_t v);
void gpt_gguf_add_string(struct gpt_gguf_keys *k, const void *p, size_t n);

void gpt_gguf_put_config(struct gpt_gguf_keys *k, const struct gpt_config *c,
                         const struct gpt_gguf_arch *arch);
/* Puts the attached vocabulary, for a model of t's vocabulary size; "none",
 * with a warning, where none is attached. GPT_EDATA for a vocabulary that a
 * GGUF file cannot hold. */
int gpt_gguf_put_vocabulary(struct gpt_gguf_keys *k,
                            const struct gpt_target *t,
                            struct gpt_err *err) GPT_MUST_USE;

#endif
