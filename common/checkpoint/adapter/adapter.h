/* Adapters of PEFT, LoRA: adapter_config.json and adapter_model.safetensors, or
 * adapter_model.bin, beside no model. What an adapter adds becomes part of a
 * source that is open, whatever its format is: names are those of transformers'
 * class for the model's family, and the family's table (huggingface/family.h)
 * says which parameters they are. Start at gpt_source_open_merged(). Source:
 * peft 0.21, tuners/lora/ and utils/save_and_load.py. */
#ifndef GPT_CHECKPOINT_ADAPTER_H
#define GPT_CHECKPOINT_ADAPTER_H

#include "base/json.h"
#include "base/list.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/source.h"

#define GPT_ADAPTER_WEIGHTS "adapter_model.safetensors"
#define GPT_ADAPTER_OLD_WEIGHTS "adapter_model.bin"

/* ---- patterns (pattern.c) ---- */

/* A regular expression of Python's re, without what can take more than linear
 * time: no references and no looking around. */
struct gpt_pattern;

/* GPT_EDATA names the pattern, and what of it is not supported. */
int gpt_pattern_open(struct gpt_pattern **p, const char *text, const char *what,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_pattern_close(struct gpt_pattern *p); /* NULL is fine */
/* True in *matches when all of `path`, or all of it after one of its dots, is
 * of the pattern. *budget, which counts steps down, is GPT_EDATA at 0. */
int gpt_pattern_ends(bool *matches, const struct gpt_pattern *p,
                     const char *path, int64_t *budget,
                     struct gpt_err *err) GPT_MUST_USE;

/* ---- adapter_config.json (config.c) ---- */

/* A pattern and its number: of a rank, or alpha. */
struct gpt_adapter_rule {
    struct gpt_pattern *pattern;
    double value;
};

struct gpt_adapter_config {
    cJSON *json;
    int64_t rank;
    double alpha;
    bool root_scale; /* alpha over the root of the rank */
    bool dora;       /* every product has lengths of its outputs */
    bool keeps_ties; /* tied layers stay tied, whatever is stored of them */
    struct gpt_adapter_rule *ranks, *alphas;
    size_t n_ranks, n_alphas;
    int64_t budget; /* steps of patterns */
};

/* GPT_EDATA names a key, and what is supported. */
int gpt_adapter_config_read(struct gpt_adapter_config *c, const char *path,
                            struct gpt_err *err) GPT_MUST_USE;
void gpt_adapter_config_free(struct gpt_adapter_config *c);
/* Rank and scale of a module by its path in the model. */
int gpt_adapter_scale(struct gpt_adapter_config *c, const char *module,
                      int64_t *rank, double *scale,
                      struct gpt_err *err) GPT_MUST_USE;
/* True when a list or object of the configuration names the module, whole or by
 * its last words; of an object *item is its member, else the list's. */
bool gpt_adapter_names(const struct gpt_adapter_config *c, const char *key,
                       const char *module, const cJSON **item);

/* ---- files (adapter.c) ---- */

enum gpt_adapter_kind {
    GPT_ADAPTER_WHOLE,       /* in the place of the model's tensor */
    GPT_ADAPTER_A,           /* (rank, inputs) */
    GPT_ADAPTER_B,           /* (outputs, rank) */
    GPT_ADAPTER_EMBEDDING_A, /* (rank, ids) */
    GPT_ADAPTER_EMBEDDING_B, /* (hidden, rank) */
    GPT_ADAPTER_BIAS,        /* (outputs), added to the bias */
    GPT_ADAPTER_LENGTHS,     /* DoRA: of each output */
    GPT_ADAPTER_TOKENS,      /* rows in the place of some of the model's */
    GPT_ADAPTER_KINDS
};

/* A tensor: what it is to which module of the model. */
struct gpt_adapter_entry {
    const char *module; /* "model.layers.0.self_attn.q_proj" */
    const char *leaf;   /* of a whole one: "weight" or "bias" */
    enum gpt_adapter_kind kind;
    const struct gpt_safetensor *tensor;
};

struct gpt_adapter {
    const char *dir, *file; /* file: without the directory */
    struct gpt_adapter_config config;
    struct gpt_safetensors weights;
    struct gpt_adapter_entry *entries; /* by module */
    int64_t n;
    struct gpt_arena arena;
};

/* True when adapter_config.json is there and no model is beside it. */
bool gpt_adapter_recognises(const char *dir);
/* Headers alone; the numbers are read when they are merged. GPT_EDATA when it
 * is no adapter, not LoRA, or of a variant that is not merged. Closed after a
 * failure, too. */
int gpt_adapter_open(struct gpt_adapter *a, const char *dir,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_adapter_close(struct gpt_adapter *a); /* zero is fine */

/* ---- merging (merge_adapter.c) ---- */

/* gpt_source_open(), but weights alone: its tensors show what they are with the
 * adapters in the directories, one after the other. A merged model is no step
 * of a run: state of one is left out. Without adapters, or NULL, it is just
 * gpt_source_open(). GPT_EDATA names file, tensor and both shapes. */
int gpt_source_open_merged(struct gpt_source *s, const char *path,
                           const struct gpt_source_options *options,
                           const struct gpt_list *adapters,
                           struct gpt_err *err) GPT_MUST_USE;

#endif
