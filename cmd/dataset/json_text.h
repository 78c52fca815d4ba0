/* The inside of a JSON string, written in pieces: a token may end in the middle
 * of a character. Bytes that are not UTF-8 become U+FFFD. */
#ifndef GPT_CMD_DATASET_JSON_TEXT_H
#define GPT_CMD_DATASET_JSON_TEXT_H

#include "base/io.h"

/* Begin with a zeroed one, end with gpt_json_text_end(). */
struct gpt_json_text {
    char carry[4]; /* the beginning of a character */
    size_t n;
};

int gpt_json_text_add(struct gpt_json_text *t, struct gpt_out *out,
                      const char *bytes, size_t n, struct gpt_err *err)
    GPT_MUST_USE;
int gpt_json_text_end(struct gpt_json_text *t, struct gpt_out *out,
                      struct gpt_err *err) GPT_MUST_USE;

#endif
