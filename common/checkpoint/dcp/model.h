/* A training's state in checkpoints of torch.distributed.checkpoint (dcp.h):
 * what FSDP, accelerate, Trainer of transformers and torchtitan save. Names of
 * weights are those of the model's state dict behind the keys of the dicts
 * around it, "app.model."; names of moments are those of weights behind
 * "state.". format.c makes a source of it. Start at gpt_dcp_model_find().
 * Source: torch/distributed/checkpoint/state_dict.py, accelerate,
 * utils/fsdp_utils.py. */
#ifndef GPT_CHECKPOINT_DCP_MODEL_H
#define GPT_CHECKPOINT_DCP_MODEL_H

#include "checkpoint/dcp/dcp.h"
#include "checkpoint/names.h"

/* A kind beside those of Adam: its count of steps, of each parameter. */
enum { GPT_DCP_STEP = GPT_N_ADAM_KINDS, GPT_DCP_KINDS };

struct gpt_dcp_entry {
    int kind;         /* an enum gpt_kind of Adam, or GPT_DCP_STEP */
    const char *name; /* without words of wrappers; of optimizer state, what is
                       * between "state." and the kind */
    const struct gpt_tensor *tensor;
    bool used; /* false at first: for a reader's own marks */
};

struct gpt_dcp_model {
    char root[GPT_PATH_BYTES]; /* with config.json */
    char dir[GPT_PATH_BYTES];  /* with .metadata */
    char state_dir[GPT_PATH_BYTES]; /* of the optimizer, or "" */
    char run_dir[GPT_PATH_BYTES];   /* with what Trainer has beside them */
    struct gpt_dcp *weights, *state; /* state: NULL where it is in weights */
    struct gpt_dcp_entry *entries; /* by kind and name */
    int64_t n;
    const char *others; /* what the optimizer has beside Adam's state:
                         * "max_exp_avg_sq", or NULL */
    struct gpt_arena arena;
};

/* The directory of weights that accelerate has put into `dir`, or NULL. */
const char *gpt_dcp_fsdp_model(const char *dir);

/* Finds a checkpoint with a config.json at `path`: the directory of .metadata,
 * or one that has such a directory of accelerate's; config.json
 * is there or up to two directories above .metadata. False when there is none,
 * or when it is Megatron-LM's. Of *m only paths are filled. */
bool gpt_dcp_model_find(struct gpt_dcp_model *m, const char *path);

/* Headers only; optimizer: also its state, where accelerate has it apart.
 * GPT_EDATA names the file and what is wrong. Close also what failed. */
int gpt_dcp_model_open(struct gpt_dcp_model *m, bool optimizer,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_dcp_model_close(struct gpt_dcp_model *m);

/* NULL when there is none. O(log n). */
struct gpt_dcp_entry *gpt_dcp_model_entry(const struct gpt_dcp_model *m,
                                          int kind, const char *name);
/* The keys before the one tensor of the kind whose name ends in `name`, with
 * the dot behind them: "app.model.". *keys is NULL when there is no such
 * tensor; GPT_EDATA names both of two. */
int gpt_dcp_model_keys(struct gpt_dcp_model *m, int kind, const char *name,
                       const char **keys, struct gpt_err *err) GPT_MUST_USE;

/* The rules of torchtitan's names for models of that type of transformers,
 * where the weights have such names; else NULL. */
struct gpt_hf_family;
const struct gpt_hf_family *gpt_dcp_titan(const struct gpt_dcp_model *m,
                                          const char *model_type);

/* Adam's count of steps, which all parameters have in common. *why is NULL, or
 * says why there is no state of Adam that could go on. */
int gpt_dcp_model_step(const struct gpt_dcp_model *m, int64_t *step,
                       const char **why, struct gpt_err *err) GPT_MUST_USE;

/* The first word, of *n bytes, of a name behind the keys that are around those
 * of the model: "lr_scheduler" of "app.lr_scheduler.0" for "app.model.". */
const char *gpt_dcp_word(const char *keys, const char *name, int *n);
/* True for what stands beside a model whose names have no keys, by the words
 * that programs use: "train_state.step". */
bool gpt_dcp_is_of_run(const char *name);

#endif
