/* What reduce.c and reduce_memory.c share. */
#ifndef GPT_TRAIN_REDUCE_INTERNAL_H
#define GPT_TRAIN_REDUCE_INTERNAL_H

#include "train/reduce.h"

#include <pthread.h>

enum { GPT_REDUCER_TURNS = 2 };

/* Of a gradient that tensor parallel ranks hold in parts. */
struct gpt_reducer_piece {
    float *at;
    int64_t n;
};

/* A bucket to be summed; first: of the step. */
struct gpt_reducer_job {
    int64_t bucket;
    bool first;
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

    /* Data parallel only. */
    struct gpt_comm *comm;
    pthread_t thread;
    bool started;
    struct gpt_queue *q; /* the thread's own */
    bool last;
    bool *gone; /* by bucket: pushed in this step */
    double exposed;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool closing;
    struct gpt_reducer_job *jobs; /* a ring, with room for every bucket */
    int64_t pushed, done;
    int64_t user[GPT_REDUCER_TURNS]; /* the job that last used each buffer */
    double total;
    int status;
    struct gpt_err why;
};

/* Do the layers take turns in this bucket's memory? */
bool gpt_reducer_in_turns(const struct gpt_reducer_options *o, int64_t bucket);
int64_t gpt_bucket_elements(const struct gpt_flat *flat, int64_t bucket);

/* Lists and memory. What was allocated when it fails is the caller's to
 * free. */
int gpt_reducer_allocate(struct gpt_reducer *r,
                         struct gpt_err *err) GPT_MUST_USE;

#endif
