/* What the ring of preprocess_ring.h is made of: its reader is in
 * preprocess_reader.c, the rest in preprocess_ring.c. */
#ifndef GPT_CMD_PREPROCESS_RING_INTERNAL_H
#define GPT_CMD_PREPROCESS_RING_INTERNAL_H

#include "cmd/preprocess/ring.h"

#include <pthread.h>

/* Chunks that may be in flight more where the input is decompressed: that goes
 * on while nobody takes them, as long as the longest vocabulary takes to load.
 * What lies plain on disk need not be read early. */
enum { GPT_RING_AHEAD = 32 };

struct gpt_ring_slot {
    struct gpt_line_chunk *chunk;
    bool done; /* encoded */
};

struct gpt_ring {
    const struct gpt_preprocess_options *o;
    struct gpt_preprocess_limits limits;
    struct gpt_line_chunk *chunks;
    struct gpt_ring_slot *slots;
    size_t n_slots; /* and chunks */
    pthread_t reader, *threads; /* the workers */
    bool reading;
    size_t n_threads;
    struct gpt_line_chunk_worker *workers;
    size_t n_workers;
    size_t n_started; /* workers that have taken their state */
    int64_t first_input, first_offset;
    struct gpt_xxh64 first_digest;
    struct gpt_input_sum *sums; /* of each input, when it is read */

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t can_fill, can_take, can_write;
    size_t head, take, tail; /* chunk numbers; slot = number % n_slots */
    struct gpt_line_chunk **unused;
    size_t n_unused;
    bool reader_done, stop;
    struct gpt_input *input; /* open now */
    int64_t input_bytes;     /* of the inputs closed */
};

/* The thread that reads. */
void *gpt_ring_reader(void *ring);

#endif
