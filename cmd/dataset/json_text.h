/* The inside of a JSON string, written in pieces: a token may end in the middle
 * of a character. Bytes that are not UTF-8 become U+FFFD, as in stream.h. */
#ifndef GPT_CMD_DATASET_JSON_TEXT_H
#define GPT_CMD_DATASET_JSON_TEXT_H

#include "base/io.h"
#include "generate/stream.h"

/* Begin with a zeroed stream, end with gpt_json_text_end(). */
int gpt_json_text_add(struct gpt_stream *t, struct gpt_out *out,
                      const char *bytes, size_t n, struct gpt_err *err)
    GPT_MUST_USE;
int gpt_json_text_end(struct gpt_stream *t, struct gpt_out *out,
                      struct gpt_err *err) GPT_MUST_USE;

#endif
