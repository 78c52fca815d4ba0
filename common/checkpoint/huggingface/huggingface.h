/* Hugging Face directories: config.json, model.safetensors or shards with
 * model.safetensors.index.json, vocabulary files. What a family of models is,
 * its keys and its tensors, is a row of family.h; reading gives tensors under
 * this project's names as views of the files, writing the reverse. Source:
 * huggingface_hub, serialization. */
#ifndef GPT_CHECKPOINT_HUGGINGFACE_H
#define GPT_CHECKPOINT_HUGGINGFACE_H

#include "base/json.h"
#include "base/memory.h"
#include "checkpoint/huggingface/family.h"
#include "checkpoint/huggingface/quantized.h"
#include "checkpoint/source.h"
#include "model/params.h"
#include "tokenizer/hf_files.h"

#define GPT_HF_CONFIG "config.json"
#define GPT_HF_GENERATION_CONFIG "generation_config.json"
#define GPT_HF_WEIGHTS "model.safetensors"
#define GPT_HF_INDEX "model.safetensors.index.json"
#define GPT_HF_OLD_WEIGHTS "pytorch_model.bin"
#define GPT_HF_OLD_INDEX "pytorch_model.bin.index.json"
/* What accelerate's save_state() gathers under FSDP. */
#define GPT_HF_FSDP_WEIGHTS "pytorch_model_fsdp.bin"
#define GPT_HF_ADAPTER "adapter_config.json"
/* What newer classes call their output layer in memory, whatever files that
 * transformers saves call it: states of a run have this name. */
#define GPT_HF_HEAD "lm_head.weight"

/* What config.json says beyond struct gpt_config; GPT_TOKEN_NONE where it
 * says null. */
struct gpt_hf_extra {
    int64_t bos_token_id, eos_token_id;
    const struct gpt_hf_family *family;
    struct gpt_end_ids ends;     /* generation_config.json's, else its own */
    /* generation_config.json's, or its own where there is no such file. */
    const char *unused_settings;
    struct gpt_hf_quantized quantized; /* of the weights */
};

/* Vocabulary files that travel with a model, NULL-terminated. */
enum { GPT_HF_VOCAB_FILES = 8 };
extern const char *const gpt_hf_vocab_files[GPT_HF_VOCAB_FILES + 1];

/* ---- the table ---- */

/* The rules of p's role one after the other, from *at = 0 on; NULL after the
 * last. */
const struct gpt_hf_rule *gpt_hf_next_rule(const struct gpt_hf_family *family,
                                           const struct gpt_param *p,
                                           size_t *at);
/* The same of other rules than the family's, of which there are n. */
const struct gpt_hf_rule *gpt_hf_rule_of(const struct gpt_hf_rule *rules,
                                         size_t n, const struct gpt_param *p,
                                         size_t *at);
/* How many tensors a rule names: one, or one for each row or expert. They are
 * its parts, from 0 on. */
int64_t gpt_hf_parts(const struct gpt_hf_rule *rule, const struct gpt_param *p);
/* "transformer.h.3.attn.c_attn.weight", cut to cap; prefix: the family's, or
 * "". It is left out where the rule's name begins with '/'. */
void gpt_hf_name(char *buf, size_t cap, const struct gpt_hf_rule *rule,
                 const struct gpt_param *p, int64_t part, const char *prefix);
/* The dimensions of that tensor there, GPT_HF_DIMS at most: those of the
 * parameter, or of a row. */
enum { GPT_HF_DIMS = 3 };
int gpt_hf_ndim(const struct gpt_hf_rule *rule, const struct gpt_param *p);
/* Shape of that tensor there: Conv1D matrices are (in, out), the vocabulary
 * has no dummy rows. Two numbers, or as many as it has dimensions. */
void gpt_hf_shape(const struct gpt_config *c, const struct gpt_hf_rule *rule,
                  const struct gpt_param *p, int64_t *shape);
/* True when dimension 0 here is dimension 1 there. */
bool gpt_hf_is_transposed(const struct gpt_hf_rule *rule,
                          const struct gpt_param *p);
/* The name of the output layer, which has no prefix; NULL: there is none. */
const char *gpt_hf_output_name(const struct gpt_hf_family *family);
/* True for a tensor that is no parameter and need not be one: a constant, or
 * the output layer that config.json says is the word table. */
bool gpt_hf_ignores(const struct gpt_hf_family *family,
                    const struct gpt_config *c, const char *name);
/* True for a tensor of a layer that predicts further words than the next, which
 * is left out. */
bool gpt_hf_predicts(const struct gpt_hf_family *family,
                     const struct gpt_config *c, const char *name);
/* Appends to `out` what the tensor there holds of the parameter (rows padded by
 * the last one), and the reverse. */
int gpt_hf_import(struct gpt_tensor *out, const struct gpt_tensor *there,
                  const struct gpt_config *c, const struct gpt_hf_rule *rule,
                  const struct gpt_param *p, int64_t part,
                  struct gpt_err *err) GPT_MUST_USE;
int gpt_hf_export(struct gpt_tensor *there, const struct gpt_tensor *here,
                  const struct gpt_config *c, const struct gpt_hf_rule *rule,
                  const struct gpt_param *p, int64_t part,
                  struct gpt_err *err) GPT_MUST_USE;

/* ---- config.json ---- */

/* GPT_EDATA names what is missing, out of range, or a key or value that changes
 * what the model computes and is not known. padded_vocab_size is left 0. */
int gpt_hf_config_parse(struct gpt_config *c, struct gpt_hf_extra *extra,
                        const cJSON *json, const char *what,
                        struct gpt_err *err) GPT_MUST_USE;
/* The number of YaRN (mscale, mscale_all_dim) by which queries and keys have
 * this size in texts that are longer by `factor`. */
double gpt_hf_sharpness_number(double factor, double size);

/* NULL when out of memory. */
cJSON *gpt_hf_config_make(const struct gpt_config *c,
                          const struct gpt_hf_extra *extra,
                          enum gpt_dtype dtype);

/* Keeps *family, or takes another row of its type, if it is not NULL and can
 * say what the model is; else finds the first that can. GPT_EDATA names the
 * three nearest and the fields in which they differ. */
int gpt_hf_choose_family(const struct gpt_config *c,
                         const struct gpt_hf_family **family,
                         struct gpt_err *err) GPT_MUST_USE;

/* ---- generation ---- */

/* Ends of a text, and settings of generation: those of generation_config.json
 * in `dir`, and of `config`, config.json's tree, where that file has none.
 * Strings are in the arena. Values that are no ids get a warning. */
int gpt_hf_read_generation(struct gpt_hf_extra *extra, const char *dir,
                           const cJSON *config, int64_t vocab_size,
                           struct gpt_arena *arena,
                           struct gpt_err *err) GPT_MUST_USE;

/* ---- names (wrappers.c) ---- */

/* Replaces *name by a copy in the arena without the words of what wrapped the
 * model when it was saved: "module.", "_orig_mod." and others. */
int gpt_hf_unwrap(const char **name, struct gpt_arena *arena,
                  struct gpt_err *err) GPT_MUST_USE;
/* The same for all tensors of a file; GPT_EDATA when two get one name. */
int gpt_hf_unwrap_names(struct gpt_safetensors *st, const char *path,
                        struct gpt_err *err) GPT_MUST_USE;

/* ---- models that read pictures or sound, too (pictures.c) ---- */
struct gpt_hf_outer;
enum { GPT_HF_CROSSED = 1024 };

/* A model whose text part is read. */
struct gpt_hf_whole {
    const struct gpt_hf_outer *outer; /* its type; NULL: there is no whole */
    int64_t width, words; /* of the part; 0: its file does not say */
    bool crossed[GPT_HF_CROSSED]; /* layers that are left out */
};

/* Replaces config.json's tree by that of the part that reads text, completed
 * by what the whole says, and fills *whole in, where it is of such a type; else
 * its type is NULL and nothing changes. GPT_EDATA: no such part, or a key that
 * is not known. */
int gpt_hf_text_config(cJSON **json, struct gpt_hf_whole *whole,
                       const char *what, struct gpt_err *err) GPT_MUST_USE;
/* Drops the tensors of what sees, adds their number to *left, and names the
 * others as a model of the part's own family has them; GPT_EDATA when two get
 * one name. */
int gpt_hf_text_tensors(struct gpt_safetensors *st,
                        const struct gpt_hf_whole *whole, const char *path,
                        int64_t *left, struct gpt_err *err) GPT_MUST_USE;
/* Replaces *name by one in the arena when it is that of a tensor of such a text
 * part: as a model of the part's own family has it. */
int gpt_hf_text_name(const char **name, struct gpt_arena *arena,
                     struct gpt_err *err) GPT_MUST_USE;
const char *gpt_hf_outer_type(const struct gpt_hf_outer *outer);
/* "pictures", "sound" or both. */
const char *gpt_hf_outer_reads(const struct gpt_hf_outer *outer);

/* ---- reading ---- */
struct gpt_hf;

/* Pads the vocabulary to a multiple of divisible_by x tp. Headers only. */
int gpt_hf_open(struct gpt_hf **hf, const char *dir, int64_t divisible_by,
                int64_t tp, struct gpt_err *err) GPT_MUST_USE;
void gpt_hf_close(struct gpt_hf *hf);
/* Also the state of Adam that Trainer or accelerate has left beside the weights
 * (trainer.h): *run belongs to the model, and is NULL where there is none that
 * could go on; then *why says so. */
struct gpt_hf_trainer;
int gpt_hf_read_run(struct gpt_hf *hf, const struct gpt_hf_trainer **run,
                    const char **why, struct gpt_err *err) GPT_MUST_USE;
const struct gpt_config *gpt_hf_config(const struct gpt_hf *hf);
struct gpt_hf_extra gpt_hf_extra(const struct gpt_hf *hf);
/* True where layers have other numbers than in the files. */
bool gpt_hf_counts_anew(const struct gpt_hf *hf);
/* One tensor a parameter, in the order of the parameter table; with a run, as
 * many behind them of each kind of its optimizer's state. */
const struct gpt_tensor *gpt_hf_tensors(const struct gpt_hf *hf, int64_t *n);

/* Shard i and the name of its file; NULL after the last. */
const struct gpt_safetensors *gpt_hf_shard(const struct gpt_hf *hf, size_t i,
                                           const char **name);

/* True when a file of weights, or the index of several, has its name there. */
bool gpt_hf_has_weights(const char *dir);
/* A row of format.h: config.json without weights, weights without it, or an
 * adapter alone. */
bool gpt_hf_explain(const char *dir, struct gpt_err *err);

/* ---- writing ---- */

/* What would be written; made by gpt_hf_plan(). */
struct gpt_hf_plan {
    struct gpt_config config;
    struct gpt_hf_extra extra;
    struct gpt_tensor *tensors; /* names and order of transformers */
    int64_t *shard;             /* of each tensor */
    const void **constants;     /* of each tensor: its bytes, where it is no
                                 * parameter; else NULL */
    int64_t n, n_shards;
    int64_t n_params;   /* that the tensors hold: what a reader will see */
    int64_t total_size; /* bytes of tensors */
    int64_t largest_shard;
    struct gpt_arena arena;
};

/* The parameters of a model whose configuration is *c, from a source's tensors.
 * dtype: of all tensors, or GPT_N_DTYPES to keep each one's. Shards by the
 * greedy rule of huggingface_hub: a tensor larger than the limit alone, else
 * the next shard when this one would pass it. */
int gpt_hf_plan(struct gpt_hf_plan *plan, const struct gpt_config *c,
                const struct gpt_hf_extra *extra,
                const struct gpt_source *source, enum gpt_dtype dtype,
                int64_t max_shard_size, struct gpt_err *err) GPT_MUST_USE;
void gpt_hf_plan_free(struct gpt_hf_plan *plan);
/* Bytes of a planned tensor's elements. */
int64_t gpt_hf_tensor_bytes(const struct gpt_tensor *t);
/* "model.safetensors" or "model-00001-of-00003.safetensors". */
void gpt_hf_shard_name(char *buf, size_t cap, int64_t shard, int64_t n_shards);

/* Writes the weights, the index, config.json and generation_config.json into
 * the directory that is open at `dir`. `done` hears the bytes of all tensors
 * written so far. */
int gpt_hf_write(const struct gpt_hf_plan *plan, const char *dir,
                 unsigned flags, struct gpt_fill *fill,
                 struct gpt_err *err) GPT_MUST_USE;

#endif
