/* What optimizer.c and optimizer_pieces.c share: the optimizer, and the pieces
 * that are updated by one rule each. */
#ifndef GPT_TRAIN_OPTIMIZER_INTERNAL_H
#define GPT_TRAIN_OPTIMIZER_INTERNAL_H

#include "train/optimizer.h"

/* What is done to a parameter. */
enum update_rule {
    ADAM_RULE,
    MOMENTUM_RULE,
    DESCENT_RULE,
    MUON_RULE,
    BALANCE_RULE, /* biases of routers */
};

/* Elements that one rule updates in a call, in one piece also in gradients and
 * states: all of a shard, or a stretch of it where rules or rates differ. */
struct update_piece {
    enum update_rule rule;
    bool decoupled; /* may have a rate of its own */
    const struct gpt_slice *slice; /* of a rule that takes one at a time */
    int64_t begin, end;            /* in the flat buffer */
    int64_t bucket;                /* whose gradients it is in */
    int64_t gradient;              /* ... and where in them it begins */
    int64_t compact;               /* where its first state begins */
    int64_t second;                /* where its second one does */
    int64_t segment, n_segments;
};

struct gpt_optimizer {
    struct gpt_optimizer_options o;
    const struct gpt_flat *flat;
    int64_t step; /* updates made so far */
    struct gpt_backend *be;
    /* Device. `first` is compact: gpt_flat_compact() elements, laid out as said
     * there. `second` holds what has a second state, one piece after the
     * other. NULL where no rule has such a state. */
    float *first, *second;
    struct update_piece *pieces; /* updated by one rule each */
    int64_t n_pieces;
    struct gpt_decay_segment *segments; /* of all pieces */
    struct norm_run *runs;              /* what counts in the norm */
    int64_t n_segments, n_runs;
    double *run_sums;                      /* host */
    void *memory, *sums, *device_segments; /* device */
    struct gpt_muon *muon;                 /* NULL: nothing is updated by it */
};

/* A list of pieces, for which there is room, or which is only counted. */
struct update_pieces {
    struct update_piece *items; /* NULL: they are only counted */
    int64_t n;
    int64_t second; /* elements of second states */
};

/* In order; the caller frees items. */
int update_pieces_new(struct update_pieces *list,
                      const struct gpt_optimizer_options *options,
                      const struct gpt_flat *flat,
                      struct gpt_err *err) GPT_MUST_USE;

/* The elements of a bucket that this rank updates; without shards, of all
 * buckets at once. */
struct update_stretch {
    int64_t bucket, begin, end, compact;
};

/* How many there are, and number `bucket` of them. */
int64_t update_stretches(const struct gpt_flat *flat);
struct update_stretch update_stretch_of(const struct gpt_flat *flat,
                                        int64_t bucket);

/* Bytes of the buffers of first and second states. */
int64_t update_first_bytes(const struct gpt_optimizer_options *options,
                           const struct gpt_flat *flat);
int64_t update_second_bytes(const struct gpt_optimizer_options *options,
                            const struct gpt_flat *flat);

#endif
