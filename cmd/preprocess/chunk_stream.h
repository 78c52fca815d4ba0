/* The inputs of a run as a stream of encoded chunks, in their order: a thread
 * that reads and cuts them, threads that tokenize, and the ring of ring.h
 * between them and the caller, which writes. Start at
 * gpt_chunk_stream_open(). */
#ifndef GPT_CMD_PREPROCESS_CHUNK_STREAM_H
#define GPT_CMD_PREPROCESS_CHUNK_STREAM_H

#include "cmd/preprocess/journal.h"
#include "cmd/preprocess/line_chunk.h"

struct gpt_chunk_stream;

/* Starts the reader, which begins at a point. Options are borrowed; their
 * tokenizer is not used before the workers start, so that inputs are read while
 * it is loaded. */
int gpt_chunk_stream_open(struct gpt_chunk_stream **stream,
                          const struct gpt_preprocess_options *options,
                          const struct gpt_point *from, struct gpt_err *err)
    GPT_MUST_USE;
/* Starts the workers. */
int gpt_chunk_stream_start(struct gpt_chunk_stream *stream,
                           enum gpt_dtype dtype, struct gpt_err *err)
    GPT_MUST_USE;
/* Stops the threads, wherever they are; NULL is fine. */
void gpt_chunk_stream_close(struct gpt_chunk_stream *stream);

/* gpt_ring_next() and gpt_ring_release() of ring.h. */
const struct gpt_line_chunk *
gpt_chunk_stream_next(struct gpt_chunk_stream *stream, bool *end);
void gpt_chunk_stream_release(struct gpt_chunk_stream *stream);

/* The sums of all inputs, by number. That of an input is set once a chunk of a
 * later input, or the end, was returned by gpt_chunk_stream_next(). The input
 * that the stream began in has the sum from its beginning on, as the point
 * holds the digest of what lies before it. */
const struct gpt_input_sum *
gpt_chunk_stream_sums(const struct gpt_chunk_stream *stream);

/* Bytes of all input files that have been read so far. */
int64_t gpt_chunk_stream_consumed(struct gpt_chunk_stream *stream);

#endif
