/* The ring of chunks between the reader, the workers and who writes: internal
 * to data/preprocess*.c. Chunks come out in the order of the input, whatever
 * the number of workers; the ring's size bounds the memory and makes a fast
 * stage wait for a slow one. Start at gpt_ring_open(). */
#ifndef GPT_CMD_PREPROCESS_RING_H
#define GPT_CMD_PREPROCESS_RING_H

#include "cmd/preprocess/lines.h"
#include "cmd/preprocess/journal.h"

struct gpt_ring;

/* Starts the reader, which begins at a point. Options are borrowed; the
 * tokenizer is not asked for before the workers are. */
int gpt_ring_open(struct gpt_ring **ring,
                  const struct gpt_preprocess_options *options,
                  const struct gpt_point *from, struct gpt_err *err)
    GPT_MUST_USE;
/* Starts the workers. */
int gpt_ring_start(struct gpt_ring *ring, enum gpt_dtype dtype,
                   struct gpt_err *err) GPT_MUST_USE;
/* Stops the threads, wherever they are; NULL is fine. */
void gpt_ring_close(struct gpt_ring *ring);

/* The next chunk, encoded, or NULL after a fifth of a second without one, so
 * that the caller can look at other things; *end is true when there are no
 * more. A failure of reader or worker travels in its chunk, so that the first
 * one in the order of the input is seen, whatever the timing. */
const struct gpt_line_chunk *gpt_ring_next(struct gpt_ring *ring, bool *end);
/* Gives back the chunk that gpt_ring_next() gave last. */
void gpt_ring_release(struct gpt_ring *ring);

/* Of each input that was read from its beginning or from the point on: that of
 * an input is there when a chunk of a later one is, or the end. */
const struct gpt_input_sum *gpt_ring_sums(const struct gpt_ring *ring);

/* Bytes of all input files read so far. */
int64_t gpt_ring_consumed(struct gpt_ring *ring);

#endif
