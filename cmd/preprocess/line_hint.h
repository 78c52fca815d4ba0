/* What to do about a line that is no JSON object with the wanted fields. */
#ifndef GPT_CMD_PREPROCESS_LINE_HINT_H
#define GPT_CMD_PREPROCESS_LINE_HINT_H

#include "cmd/preprocess/line_chunk.h"

/* Adds a hint to the error of the line that ended a chunk, the first one of its
 * input or a later one. */
void gpt_hint_for_line(const struct gpt_line_chunk *c, bool first,
                       struct gpt_err *err);

#endif
