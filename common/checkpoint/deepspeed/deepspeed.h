/* Checkpoints of DeepSpeed: parameters and state of an optimizer as ZeRO cuts
 * them, flat vectors over the data parallel ranks (zero.c), or whole tensors,
 * of a universal checkpoint (universal.c), of a pipeline (pipeline.c), or of a
 * run without ZeRO, which is stage 0 (whole.c). Names are those of
 * transformers' models, whose config.json is beside; format.c makes a source of
 * them. Start at gpt_deepspeed_find(). Source: DeepSpeed,
 * utils/zero_to_fp32.py, runtime/engine.py, checkpoint/ds_to_universal.py. */
#ifndef GPT_CHECKPOINT_DEEPSPEED_H
#define GPT_CHECKPOINT_DEEPSPEED_H

#include "base/memory.h"
#include "checkpoint/names.h"
#include "checkpoint/plan.h"
#include "checkpoint/torch/torch.h"

enum { GPT_DEEPSPEED_RANKS = 4096 };

/* A parameter of the model by its name there, and what is kept of it. */
struct gpt_deepspeed_param {
    const char *name;
    struct gpt_tensor kinds[GPT_N_ADAM_KINDS];
    bool used; /* false at first: for a reader's own marks */
};

struct gpt_deepspeed {
    char root[GPT_PATH_BYTES]; /* with config.json */
    char dir[GPT_PATH_BYTES];  /* of the step */
    bool universal, pipeline;
    const char *model_file;
    struct gpt_torch model;  /* states of the first rank */
    struct gpt_torch *others; /* of other ranks, for parts of what is frozen */
    int64_t n_others;
    struct gpt_safetensors states; /* tensors of the model's states, when a
                                   * frozen one was looked for */
    struct gpt_torch *files; /* one a rank, or one a tensor */
    const char **file_names;
    int64_t n_files;
    size_t cap_files, cap_names;
    struct gpt_deepspeed_param *params;
    int64_t n;
    struct gpt_deepspeed_param **whole; /* that are in the model's states */
    size_t n_whole, cap_whole;
    int64_t n_frozen; /* parameters without moments */
    bool has_optimizer; /* moments of all parameters that were trained */
    bool steps_differ;  /* then it has not, as there is one count here */
    int64_t step;       /* of Adam, or -1 */
    const char *beside; /* what the optimizer has with Adam's, or NULL */
    struct gpt_arena arena;
};

/* Finds the newest step at `path`: a root with `latest` or `latest_universal`,
 * or the directory of a step. False when there is none. Of *d only paths are
 * filled. */
bool gpt_deepspeed_find(struct gpt_deepspeed *d, const char *path);

/* Headers and pickles only; optimizer: moments, too. GPT_EDATA names the file
 * and what is wrong. Close also what failed. */
int gpt_deepspeed_open(struct gpt_deepspeed *d, bool optimizer,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_deepspeed_close(struct gpt_deepspeed *d);

/* True for the directory of a step that has a file a layer. */
bool gpt_deepspeed_is_pipeline(const char *dir);
/* GPT_EDATA where the arguments of the run, in the states of the model, say
 * another number of heads, which no shape tells. */
int gpt_deepspeed_check_heads(const struct gpt_deepspeed *d, int64_t heads,
                              struct gpt_err *err) GPT_MUST_USE;

/* d->step becomes the count of steps of a parameter, or of a vector of them,
 * and d->steps_differ tells whether there was another. What is no count is not
 * taken. */
int gpt_deepspeed_take_step(struct gpt_deepspeed *d, const struct gpt_torch *t,
                            const struct gpt_pickle_value *count,
                            struct gpt_err *err) GPT_MUST_USE;

/* The kinds of directories: with files of ranks, with a file a tensor, with a
 * file a layer, and with everything in the states of the model. */
int gpt_deepspeed_open_zero(struct gpt_deepspeed *d, bool optimizer,
                            struct gpt_err *err) GPT_MUST_USE;
int gpt_deepspeed_open_universal(struct gpt_deepspeed *d, bool optimizer,
                                 struct gpt_err *err) GPT_MUST_USE;
int gpt_deepspeed_open_pipeline(struct gpt_deepspeed *d, bool optimizer,
                                struct gpt_err *err) GPT_MUST_USE;
int gpt_deepspeed_open_whole(struct gpt_deepspeed *d, bool optimizer,
                             struct gpt_err *err) GPT_MUST_USE;

/* Parameters that were not trained and of which each rank has a part: how many
 * there are; and appends them to those that were, for which there is room. */
int64_t gpt_deepspeed_count_frozen(const struct gpt_deepspeed *d);
int gpt_deepspeed_add_frozen(struct gpt_deepspeed *d,
                             struct gpt_err *err) GPT_MUST_USE;
/* One that is whole in the states of the model, by its name. *param is NULL
 * when there is none. */
int gpt_deepspeed_find_frozen(struct gpt_deepspeed *d, const char *name,
                              struct gpt_deepspeed_param **param,
                              struct gpt_err *err) GPT_MUST_USE;
/* A name and its torch.Size as a parameter without elements yet; *n: elements.
 * GPT_EDATA names the file of the model's states. */
int gpt_deepspeed_read_param(struct gpt_deepspeed *d,
                             const struct gpt_pickle_value *key,
                             const struct gpt_pickle_value *size,
                             struct gpt_deepspeed_param *p, int64_t *n,
                             struct gpt_err *err) GPT_MUST_USE;

/* Opens a file of the step, by its name there; it stays open. */
int gpt_deepspeed_add_file(struct gpt_deepspeed *d, const char *name,
                           struct gpt_torch **out,
                           struct gpt_err *err) GPT_MUST_USE;

#endif
