/* Quantized models of Hugging Face: what quantization_config of config.json
 * says, and how a matrix is made of what the files hold in its place. A method
 * is a row of the table in quantized.c; gpt_hf_quantized_find() is asked for
 * each parameter. What comes of it is a stretch of floats, of
 * checkpoint/scaled.h, as a piece of a tensor like any other. */
#ifndef GPT_CHECKPOINT_HF_QUANTIZED_H
#define GPT_CHECKPOINT_HF_QUANTIZED_H

#include "base/json.h"
#include "base/memory.h"
#include "checkpoint/safetensors/safetensors.h"

struct gpt_hf_found;
struct gpt_hf_method;

/* method NULL: the model is not quantized. */
struct gpt_hf_quantized {
    const struct gpt_hf_method *method;
    int64_t bits;
    /* Rows and columns of the matrix (out, in) that share a scale; 0: all. */
    int64_t block[2];
    bool any_block;  /* block is a default: one scale is that of all */
    bool plus_one;   /* zero points are stored less 1 */
    bool zeros;      /* there are zero points */
    char text[96];   /* for people: "gptq, 4 bits, groups of 128" */
};

/* A tensor of the files. */
struct gpt_hf_part {
    const struct gpt_safetensor *entry;
    struct gpt_in *in;
    const char *file;
    bool *used;
};
/* False when there is none of that name. */
typedef bool gpt_hf_part_find(void *context, const char *name,
                              struct gpt_hf_part *part);
struct gpt_hf_finder {
    gpt_hf_part_find *find;
    void *context;
    const char *where; /* the directory, for messages */
    struct gpt_arena *arena;
};

/* True for the keys of config.json that are read here. */
bool gpt_hf_is_quantization(const char *key);
/* config: config.json's tree. GPT_EDATA names the method that is not read, or
 * what of it is not. */
int gpt_hf_quantized_parse(struct gpt_hf_quantized *q, const cJSON *config,
                           const char *what, struct gpt_err *err) GPT_MUST_USE;
/* Fills *found, which is zero, where a quantized matrix stands for the tensor
 * of this name; else *found stays zero. GPT_EDATA: a part of it is missing, or
 * of another shape or type than the numbers ask for. */
int gpt_hf_quantized_find(const struct gpt_hf_quantized *q,
                          const struct gpt_hf_finder *parts, const char *name,
                          struct gpt_hf_found *found,
                          struct gpt_err *err) GPT_MUST_USE;
/* True for a tensor that says how activations were rounded, which they are not
 * here. */
bool gpt_hf_quantized_ignores(const char *name);

/* ---- between the files ---- */

/* [128, 64]. False for what is no list of two whole numbers from 1 on. */
bool gpt_hf_two_sizes(const cJSON *list, int64_t sizes[2]);

struct gpt_hf_quantizing;
struct gpt_hf_method {
    const char *name;   /* quant_method */
    const char *format; /* of compressed-tensors, or NULL */
    int (*parse)(struct gpt_hf_quantized *q, const cJSON *config,
                 const char *what, struct gpt_err *err);
    /* Leaves b->shape zero where the tensor is not quantized. */
    int (*make)(struct gpt_hf_quantizing *b, struct gpt_err *err);
};
int gpt_hf_make_bytes(struct gpt_hf_quantizing *b, struct gpt_err *err);
int gpt_hf_make_words(struct gpt_hf_quantizing *b, struct gpt_err *err);
int gpt_hf_make_gptq(struct gpt_hf_quantizing *b, struct gpt_err *err);
int gpt_hf_make_awq(struct gpt_hf_quantizing *b, struct gpt_err *err);
int gpt_hf_make_bnb(struct gpt_hf_quantizing *b, struct gpt_err *err);

#endif
