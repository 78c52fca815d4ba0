/* Text from tokens, piece by piece. A token of a byte-level vocabulary may end
 * in the middle of a character: what is not yet complete is held back, so that
 * everything given out is valid UTF-8 at every moment. Bytes that cannot be
 * part of a character become U+FFFD, one for each maximal part of a character
 * (Unicode 16.0, section 3.9, table 3-11), as soon as that is certain. */
#ifndef GPT_GENERATE_STREAM_H
#define GPT_GENERATE_STREAM_H

#include "base/memory.h"

struct gpt_stream { /* start with all zero */
    unsigned char held[3];
    int n_held;
};

/* Appends to *out what bytes[0..n) complete. GPT_EFAIL: out of memory. */
int gpt_stream_add(struct gpt_stream *s, const char *bytes, size_t n,
                   struct gpt_buf *out) GPT_MUST_USE;

/* The text is over: what is held becomes U+FFFD; *s starts anew. */
int gpt_stream_end(struct gpt_stream *s, struct gpt_buf *out) GPT_MUST_USE;

#endif
