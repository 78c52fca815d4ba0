/* What reduce.c and reduce_memory.c share. */
#ifndef GPT_TRAIN_REDUCE_INTERNAL_H
#define GPT_TRAIN_REDUCE_INTERNAL_H

#include "train/reduce.h"

enum { GPT_REDUCER_TURNS = 2 };

/* Of a gradient that tensor parallel ranks hold in parts. */
struct gpt_reducer_piece {
    float *at;
    int64_t n;
};

struct gpt_reducer {
    struct gpt_reducer_options o;
    struct gpt_backend *be;
    void *memory;
    float **buckets, **shards; /* by bucket */
    struct gpt_reducer_piece *pieces;
    int64_t n_pieces, n_packed;
    float *packed;                /* all pieces, for one sum */
    const struct gpt_slice *tied; /* the word table, if another stage has it */

    struct gpt_lane *lane; /* data parallel only */
    bool last;
    bool *gone;     /* by bucket: begun in this step */
    int64_t pushed; /* the last job */
    int64_t user[GPT_REDUCER_TURNS]; /* the job that last used each buffer */
    struct gpt_lane_times before;    /* the lane's, at the step's begin */
};

/* Do the layers take turns in this bucket's memory? */
bool gpt_reducer_in_turns(const struct gpt_reducer_options *o, int64_t bucket);

/* Lists and memory. What was allocated when it fails is the caller's to
 * free. */
int gpt_reducer_allocate(struct gpt_reducer *r,
                         struct gpt_err *err) GPT_MUST_USE;

#endif
