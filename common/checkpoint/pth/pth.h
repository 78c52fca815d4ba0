/* Checkpoints that a program saves with torch.save() under names of its own:
 * nanoGPT's (nanogpt.c), LitGPT's (litgpt.c), and those of Meta's and Mistral's
 * own code (meta.c). Each of these files is a front end, a row of
 * checkpoint/format.h, read only: it says which files there are, what the model
 * is, and by the rules of a family (huggingface/family.h) which tensor is which
 * parameter. What they share is here. Start at a front end's open(). */
#ifndef GPT_CHECKPOINT_PTH_H
#define GPT_CHECKPOINT_PTH_H

#include "checkpoint/huggingface/importer.h"
#include "checkpoint/torch/adam.h"

/* Files by which a directory is recognised, and explained where one of them is
 * missing. */
#define GPT_META_PARAMS "params.json"
#define GPT_META_FIRST_FILE "consolidated.00.pth"
#define GPT_META_ONE_FILE "consolidated.safetensors"
#define GPT_LITGPT_CONFIG "model_config.yaml"
#define GPT_LITGPT_WEIGHTS "lit_model.pth"

struct gpt_pth_file {
    const char *name;       /* in the directory */
    struct gpt_torch torch; /* open, unless it is a file of safetensors */
    struct gpt_safetensors weights;
    struct gpt_in *in; /* their elements: of one of the two above */
    const struct gpt_pickle_value *run; /* around the weights, or NULL */
    bool *used;        /* (weights.n): by a parameter */
};

/* The data of a source; zero before the first file. */
struct gpt_pth {
    char dir[GPT_PATH_BYTES];
    struct gpt_pth_file *files;
    int64_t n_files;
    size_t cap_files;
    struct gpt_hf_importer model;
    struct gpt_torch_adam adam; /* of the first file's run, or zero */
    int64_t *numbers; /* (files[0].weights.n): in the optimizer, where used */
    bool checks_copies; /* by gpt_source_check(): those of ranks of Meta's */
    cJSON *state;
};

/* Sets s->dir and p->dir: to `path`, or to its directory where it is a file.
 * GPT_EUSAGE when an iteration is asked for: `what` holds one model. */
int gpt_pth_begin(struct gpt_source *s, const char *path,
                  const struct gpt_source_options *options, const char *what,
                  struct gpt_err *err) GPT_MUST_USE;
/* Opens a file of p->dir, of torch.save() or of safetensors. key: that of the
 * dict in which its weights are, if the file has one; else, and with NULL, it
 * is that dict. `name` outlives the source. */
int gpt_pth_add(struct gpt_pth *p, const char *name, const char *key,
                struct gpt_err *err) GPT_MUST_USE;
/* A gpt_hf_find of weights in the first file, and of moments by the numbers of
 * parameters; context: the struct gpt_pth. */
int gpt_pth_find(void *context, enum gpt_kind kind, const char *name,
                 struct gpt_hf_found *found, struct gpt_err *err) GPT_MUST_USE;
/* Makes s->tensors by the rules of a family, completes s->config, and lists the
 * files. find: gpt_pth_find(), or a front end's own; said_in: the file that
 * says what the model is. */
int gpt_pth_import(struct gpt_source *s, const struct gpt_hf_family *family,
                   gpt_hf_find *find, const char *said_in,
                   const struct gpt_source_options *options,
                   struct gpt_err *err) GPT_MUST_USE;
/* After gpt_pth_import(): the run that the first file is of. count: its key for
 * the steps so far; known: all keys that are read or say nothing, the others
 * are named as left out. optimizer: also moments of all parameters, out of what
 * PyTorch's Adam has under "optimizer"; a warning says why they are not
 * read. */
int gpt_pth_import_run(struct gpt_source *s, const char *count,
                       const char *const *known, bool optimizer,
                       struct gpt_err *err) GPT_MUST_USE;

void gpt_pth_close(struct gpt_source *s);
int gpt_pth_list(const struct gpt_source *s, gpt_stored_visit *visit,
                 void *context, struct gpt_err *err) GPT_MUST_USE;

#endif
