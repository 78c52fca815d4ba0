/* A checkpoint of any format, opened for reading: what every program sees.
 * Weights are tensors under this project's names, whatever the files call
 * them. Start at gpt_source_open(); a format's front end is a row of
 * checkpoint/format.h. */
#ifndef GPT_CHECKPOINT_SOURCE_H
#define GPT_CHECKPOINT_SOURCE_H

#include "base/json.h"
#include "base/memory.h"
#include "checkpoint/plan.h"
#include "model/config.h"
#include "parallel/agreement.h"

struct gpt_format;

/* An id of a special token, or: */
enum {
    GPT_TOKEN_NONE = -1,    /* the checkpoint says that there is none */
    GPT_TOKEN_UNKNOWN = -2, /* the checkpoint does not say */
};

enum { GPT_ENDS = 16 }; /* as many as are kept at most */
/* Tokens of which each ends a text; n = 0: the checkpoint names none. */
struct gpt_end_ids {
    int32_t ids[GPT_ENDS];
    int n;
};
static inline bool gpt_is_end(const struct gpt_end_ids *ends, int64_t id)
{
    for (int i = 0; i < ends->n; i++)
        if (ends->ids[i] == id)
            return true;
    return false;
}

struct gpt_source_file {
    const char *name; /* without the directory */
    int64_t bytes, tensors;
};

/* Read-only; everything belongs to the source until gpt_source_close(). */
struct gpt_source {
    const struct gpt_format *format;
    const char *dir; /* that the files are in, or the one file itself */
    const char *at; /* what opens this very one again: of several iterations or
                     * steps of a directory it is this one's */
    struct gpt_config config;
    int64_t iteration;        /* 0 where the format counts none */
    int64_t tp_size, pp_size; /* layout of the writer */
    const cJSON *state;       /* of the run, or NULL: weights alone */
    int64_t bos_token_id, eos_token_id;
    const char *family; /* Hugging Face's type of such models, or NULL */
    struct gpt_end_ids ends; /* of generation; often eos_token_id alone */
    /* How the files want tokens to be chosen, which programs do not obey:
     * "generation_config.json: top_p 0.9", or NULL. */
    const char *unused_settings;
    /* How the files have weights that are read as floats, or NULL: "gptq, 4
     * bits, groups of 128". */
    const char *quantized;
    /* Layers have other numbers than in the files, of which some are left
     * out. */
    bool counted_anew;
    /* What the files keep of a run beside tensors and cannot be read, as they
     * call it: "rng_state", or NULL. */
    const char *left_out;
    /* Directories of adapters that its tensors show merged, in their order. */
    const char *const *adapters;
    int64_t n_adapters;
    /* One a parameter, and those of the optimizer. */
    const struct gpt_tensor *tensors;
    int64_t n_tensors;
    const struct gpt_source_file *files;
    int64_t n_files;
    int64_t weight_bytes; /* of the files that hold tensors */
    /* Vocabulary and other small files in `dir`. */
    const char *const *attached;
    int64_t n_attached;

    /* private */
    void *data; /* of the front end */
    struct gpt_merged *merged; /* what the adapters need, or NULL */
    void (*free_merged)(struct gpt_merged *merged);
    const struct gpt_tensor **by_name;
    struct gpt_arena arena;
};

struct gpt_source_options {
    int64_t iteration; /* which one of several; < 0: the newest */
    bool verify;       /* check the checksums that the format has */
    /* With verify: those of files of tensors by gpt_source_check(), and not
     * now. What gpt_fill() has read of them by then is not read again. */
    bool verify_later;
    /* Where a format keeps optimizer state apart from weights that can be used
     * alone: also that state, and the weights that go with it. */
    bool optimizer;
    /* Only weights are used: where a format has files for the optimizer's state
     * alone, they may be missing, and are neither listed nor checked. */
    bool weights_only;
    /* A format that stores the vocabulary without dummy rows gets rows up to a
     * multiple of divisible_by * tp_size; 0 counts as 1. */
    int64_t divisible_by, tp_size;
    /* The ranks that open it together, or NULL: one rank. All open it, with
     * the front end that rank 0 chooses, or none. */
    struct gpt_agreement *peers;
};

/* GPT_EDATA names the file and what is wrong with it. options NULL: the newest
 * iteration, no checksums, one rank. *s is zero after a failure. */
int gpt_source_open(struct gpt_source *s, const char *path,
                    const struct gpt_source_options *options,
                    struct gpt_err *err) GPT_MUST_USE;
void gpt_source_close(struct gpt_source *s); /* zero is fine */
/* For what gives an open source other tensors. */
int gpt_source_index(struct gpt_source *s, struct gpt_err *err) GPT_MUST_USE;
/* Appends the first n bytes of a name to what is left out, at most 60; the list
 * ends with "and others" when it is long. */
int gpt_source_leave_out(struct gpt_source *s, const char *name, int n,
                         struct gpt_err *err) GPT_MUST_USE;
/* What verify_later has left. GPT_EDATA names the file that was altered. */
int gpt_source_check(const struct gpt_source *s,
                     struct gpt_err *err) GPT_MUST_USE;

/* *exists is true when a front end recognises what is at `path`. GPT_EIO when
 * the file system does not let it look. */
int gpt_source_exists(bool *exists, const char *path,
                      struct gpt_err *err) GPT_MUST_USE;

/* NULL when there is none of that name. O(log n). */
const struct gpt_tensor *gpt_source_find(const struct gpt_source *s,
                                         const char *name);

enum { GPT_STORED_DIMS = 8 };
/* A tensor as the files have it: their name, shape and order. */
struct gpt_stored {
    const char *name;
    const char *file; /* NULL: in several */
    enum gpt_dtype dtype;
    int ndim;
    int64_t shape[GPT_STORED_DIMS];
    int64_t slices;
    const char *packing; /* NULL, or how the elements are packed */
    int64_t bytes;       /* then: in the file */
};
/* That of a tensor which lies in several files, or in no named one. */
struct gpt_stored gpt_stored_tensor(const struct gpt_tensor *t);
/* True in *equal when two vectors or matrices, which their pieces cover, have
 * one type, one shape and the same elements, which are read. */
int gpt_tensor_equal(bool *equal, const struct gpt_tensor *a,
                     const struct gpt_tensor *b,
                     struct gpt_err *err) GPT_MUST_USE;
typedef int gpt_stored_visit(void *context, const struct gpt_stored *tensor,
                             struct gpt_err *err);
/* Calls visit() for each; ends at its first failure and returns that. */
int gpt_source_list(const struct gpt_source *s, gpt_stored_visit *visit,
                    void *context, struct gpt_err *err) GPT_MUST_USE;

#endif
