/* The ring of chunks between the threads of a run. It knows order and memory,
 * and nothing of inputs or tokens; chunk_stream.c has the threads.
 *
 * Chunks are numbered in the order of the input. Chunk n is in slot n % n_slots
 * from the moment the reader has filled it until the writer releases it:
 *
 *     tail <= take <= head <= tail + n_slots
 *
 *     reader   gpt_ring_take_empty(), fills it, gpt_ring_put_filled(): head + 1
 *     worker   gpt_ring_take_filled(): take + 1, encodes it,
 *              gpt_ring_put_encoded()
 *     writer   gpt_ring_next() once chunk `tail` is encoded, writes it,
 *              gpt_ring_release(): tail + 1
 *
 * So chunks come out in the order of the input, whatever the number of workers
 * and their speed; a fast stage waits for a slow one, and the number of slots
 * bounds the memory. A failure travels inside its chunk: the first one in the
 * order of the input is the one that is seen, whatever the timing.
 *
 * A line of megabytes is read alone: the reader waits, in
 * gpt_ring_wait_empty(), until no other chunk is in flight, so that only one is
 * ever that large. */
#ifndef GPT_CMD_PREPROCESS_RING_H
#define GPT_CMD_PREPROCESS_RING_H

#include "cmd/preprocess/line_chunk.h"

struct gpt_ring;

/* n_slots chunks of n_keys keys. On release a chunk frees blocks of more than
 * `keep` bytes, which only long lines need. */
int gpt_ring_open(struct gpt_ring **ring, size_t n_slots, size_t n_keys,
                  size_t keep, struct gpt_err *err) GPT_MUST_USE;
/* After the threads have ended. NULL is fine. */
void gpt_ring_close(struct gpt_ring *ring);
/* Makes every wait return: the threads are to end. */
void gpt_ring_stop(struct gpt_ring *ring);

/* ---- the reader ---- */

/* Waits until fewer than `limit` chunks are in flight. NULL after a stop. */
struct gpt_line_chunk *gpt_ring_take_empty(struct gpt_ring *ring,
                                           size_t limit);
/* Gives back a chunk that was not filled. */
void gpt_ring_put_empty(struct gpt_ring *ring, struct gpt_line_chunk *chunk);
void gpt_ring_put_filled(struct gpt_ring *ring, struct gpt_line_chunk *chunk);
/* Waits until no chunk is in flight, or a stop. */
void gpt_ring_wait_empty(struct gpt_ring *ring);
/* No further chunk will be filled. */
void gpt_ring_end(struct gpt_ring *ring);

/* ---- the workers ---- */

/* Waits for a chunk to encode. NULL when there will be none. *number is for
 * gpt_ring_put_encoded(). */
struct gpt_line_chunk *gpt_ring_take_filled(struct gpt_ring *ring,
                                            size_t *number);
void gpt_ring_put_encoded(struct gpt_ring *ring, size_t number);

/* ---- the writer ---- */

/* The next chunk, encoded, or NULL after a fifth of a second without one, so
 * that the caller can look at other things; *end is true when there are no
 * more. */
const struct gpt_line_chunk *gpt_ring_next(struct gpt_ring *ring, bool *end);
/* Gives back the chunk that gpt_ring_next() gave last. */
void gpt_ring_release(struct gpt_ring *ring);

#endif
