/* Files of torch.save(): a pickle, and storages that its tensors are views of.
 * The pickle becomes an inert tree (pickle.h), in which a tensor is a call by a
 * name that is known here; its elements stay in the file and are read by range.
 * Start at gpt_torch_open(). Source of the formats: torch/serialization.py and
 * serialize/inline_container in PyTorch.
 *
 * Three containers: a zip archive (torch 1.6 and later), the stream of pickles
 * and storages of older versions, and a pickle alone. */
#ifndef GPT_CHECKPOINT_TORCH_H
#define GPT_CHECKPOINT_TORCH_H

#include "checkpoint/names.h"
#include "checkpoint/torch/pickle.h"
#include "checkpoint/safetensors/safetensors.h"
#include "checkpoint/torch/zip.h"

enum {
    GPT_TORCH_DIMS = GPT_SAFETENSORS_DIMS,
    GPT_TORCH_DEPTH = 64, /* most containers inside each other */
    GPT_TORCH_PATH = 1024 /* longest path of keys, bytes */
};

/* Elements that tensors share. */
struct gpt_torch_storage {
    const char *key;
    const char *type;     /* "torch.FloatStorage" */
    enum gpt_dtype dtype; /* GPT_N_DTYPES: one that is not read here */
    int64_t element;      /* bytes */
    int64_t count;        /* elements */
    int64_t begin, bytes; /* in the file */
};

struct gpt_torch {
    struct gpt_in *in;
    int64_t start, size; /* of its bytes there: a window of a file, or all */
    const char *container; /* "zip", "legacy" or "pickle" */
    struct gpt_pickle pickle;
    const struct gpt_pickle_value *root;
    struct gpt_torch_storage *storages; /* by key */
    int64_t n_storages;

    /* private */
    bool borrowed; /* `in` is another's */
    char *data; /* of the pickle */
    struct gpt_zip zip;
    struct gpt_arena arena;
};

/* A view of a storage. */
struct gpt_torch_tensor {
    enum gpt_dtype dtype; /* GPT_N_DTYPES: one that is not read here */
    const char *type;     /* of its storage, for messages */
    int ndim;
    int64_t shape[GPT_TORCH_DIMS];
    int64_t stride[GPT_TORCH_DIMS]; /* bytes; 0 repeats */
    int64_t begin, end; /* bytes in the file: of the first element, after the
                         * last one */
    bool tight;         /* row-major without gaps */
};

/* Reads headers and the pickle alone. GPT_EDATA names file and offset. */
int gpt_torch_open(struct gpt_torch *t, const char *path,
                   struct gpt_err *err) GPT_MUST_USE;
/* The same in bytes [start, start + size) of an open file, which outlives it
 * and stays open; an archive alone. */
int gpt_torch_open_at(struct gpt_torch *t, struct gpt_in *in, int64_t start,
                      int64_t size, struct gpt_err *err) GPT_MUST_USE;
void gpt_torch_close(struct gpt_torch *t); /* zero is fine */

/* True for the name of a file that torch.save() may have written, by its first
 * bytes: an archive or a pickle. */
bool gpt_torch_recognises(const char *path);

/* True when the value is a tensor, a Parameter included. */
bool gpt_torch_is_tensor(const struct gpt_pickle_value *v);
/* Its shape and place, which lie inside its storage, or GPT_EDATA. `name` is
 * for messages. */
int gpt_torch_tensor(const struct gpt_torch *t, const char *name,
                     const struct gpt_pickle_value *v,
                     struct gpt_torch_tensor *out,
                     struct gpt_err *err) GPT_MUST_USE;

/* What PyTorch's Adam calls its moments, "exp_avg"; NULL for parameters. */
extern const char *const gpt_torch_adam_keys[GPT_N_ADAM_KINDS];
/* True where the state of a parameter has both moments of Adam, as plain
 * tensors. *others: what it has beside them and the step, "max_exp_avg_sq", or,
 * where it is not Adam's, all but the step; in the arena, or NULL. */
bool gpt_torch_is_adam(const struct gpt_pickle_value *state,
                       struct gpt_arena *arena, const char **others);
/* Why a state that is none is not read, in the arena: what there is in its
 * place. */
const char *gpt_torch_not_adam(const char *others, struct gpt_arena *arena);
/* A count, a number or a tensor of one; -1 when it is neither. */
int gpt_torch_count(const struct gpt_torch *t, const struct gpt_pickle_value *v,
                    int64_t *count, struct gpt_err *err) GPT_MUST_USE;
/* Why moments are not taken: Adam corrects those of all parameters by one count
 * of steps here. Runs that began to train some of them later have several. */
#define GPT_TORCH_STEPS_DIFFER "its parameters have different counts of steps"
/* *step becomes the count of steps in the state of a parameter, or -1. *why is
 * set where that of the parameter before, which *step was, is another one. */
int gpt_torch_step(const struct gpt_torch *t,
                   const struct gpt_pickle_value *state, bool first,
                   int64_t *step, const char **why,
                   struct gpt_err *err) GPT_MUST_USE;

/* Calls visit() for each value that holds no others, with its path of keys
 * ("model.language_model.encoder"); `tensor` is NULL for what is none. A list
 * of numbers is one value. GPT_EDATA when containers are nested too deep, or
 * inside themselves. */
typedef int gpt_torch_visit(void *context, const char *path,
                            const struct gpt_pickle_value *v,
                            const struct gpt_torch_tensor *tensor,
                            struct gpt_err *err);
int gpt_torch_walk(const struct gpt_torch *t,
                   const struct gpt_pickle_value *from, gpt_torch_visit *visit,
                   void *context, struct gpt_err *err) GPT_MUST_USE;

/* The tensors below a value of an open file, as a list of safetensors without a
 * file (in NULL): names are their paths from there, strides are given where
 * they are not tight. Free with gpt_safetensors_close(). */
int gpt_torch_list(struct gpt_safetensors *st, const struct gpt_torch *t,
                   const struct gpt_pickle_value *from,
                   struct gpt_err *err) GPT_MUST_USE;
/* Opens such a file as if it were one of safetensors: its tensors by their
 * paths, with strides where they are not tight. */
int gpt_torch_open_tensors(struct gpt_safetensors *st, const char *path,
                           struct gpt_err *err) GPT_MUST_USE;

#endif
