/* Converting a checkpoint: a plan is made from headers alone, shown or carried
 * out, and the result compared with the source. Start at
 * gpt_reshape_open(). */
#ifndef GPT_CMD_RESHAPE_RESHAPE_H
#define GPT_CMD_RESHAPE_RESHAPE_H

#include "base/list.h"
#include "checkpoint/format.h"
#include "parallel/stage_options.h"

struct gpt_reshape_options {
    const char *load, *save;
    const struct gpt_format *to;
    int64_t tp, pp;       /* 0: the input's */
    int64_t ep;           /* ranks that share experts */
    struct gpt_stage_layers stages;
    int64_t divisible_by; /* padding of the vocabulary, times tp */
    bool repad;           /* divisible_by was asked for */
    int64_t true_vocab;   /* 0: the input's */
    enum gpt_dtype dtype; /* of the parameters; GPT_N_DTYPES: the input's */
    const struct gpt_packing *packing; /* of matrices; NULL: none */
    int style; /* of names: an index of to->styles */
    int64_t max_shard_size;
    const char *vocab_file, *merge_file; /* NULL: the input's */
    bool shard_optimizer; /* see struct gpt_target_options */
    const struct gpt_list *adapters; /* merged into the input; NULL: none */
    bool verify_input, force;
};

struct gpt_reshape {
    const struct gpt_reshape_options *o; /* borrowed */
    struct gpt_source source;
    struct gpt_target target;
    struct gpt_attachment *attached; /* beside the output */
    int64_t n_attached;
    struct gpt_arena arena;
};

/* Opens the input and plans. GPT_EUSAGE when the model does not divide by the
 * layout, or the output would be the input or lie in it; GPT_EDATA when a
 * tensor is missing or unknown. */
int gpt_reshape_open(struct gpt_reshape *r,
                     const struct gpt_reshape_options *o, struct gpt_err *err)
    GPT_MUST_USE;
void gpt_reshape_close(struct gpt_reshape *r);

/* Most memory that carrying out takes, beyond headers. */
int64_t gpt_reshape_memory(const struct gpt_reshape *r);

/* Bytes of output that the input is read and converted at in a second, measured
 * on its first tensors, 32 MiB at most; 0 where that is too little to measure.
 */
int gpt_reshape_measure(struct gpt_reshape *r, double *rate,
                        struct gpt_err *err) GPT_MUST_USE;

/* Writes and publishes the output; `done` hears the bytes so far. */
int gpt_reshape_write(struct gpt_reshape *r, gpt_bytes_done *done,
                      void *context, struct gpt_err *err) GPT_MUST_USE;

/* Reads the output back through its front end, checksums included, and
 * compares every element with the source after the cast. *how: NULL, or in what
 * way numbers are stored otherwise than they are, "after adding 1". */
int gpt_reshape_verify(struct gpt_reshape *r, const char **how,
                       struct gpt_err *err) GPT_MUST_USE;

#endif
