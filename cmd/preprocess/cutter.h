/* Cuts an input into chunks of whole lines: the reader's half of the work on a
 * chunk. */
#ifndef GPT_CMD_PREPROCESS_CUTTER_H
#define GPT_CMD_PREPROCESS_CUTTER_H

#include "cmd/preprocess/line_chunk.h"
#include "text/input.h"

struct gpt_cutter {
    struct gpt_input *in;
    int64_t chunk_bytes;
    int64_t max_line, long_line; /* as in gpt_preprocess_limits */
    void (*wait_alone)(void *user); /* until no other chunk is in memory */
    void *user;
    int64_t offset; /* of the next chunk in the input, decompressed */
    char *rest; /* the beginning of a line, for the next chunk */
    size_t rest_len, rest_cap;
    int status; /* a failure, reported after the lines before it */
    struct gpt_err err;
    bool at_end;
    bool whole_lines; /* even of what cannot be JSON: it will be skipped */
};

/* Fills c with lines, at least one. len = 0 at the end, and on failure, which
 * then is c->status. */
void gpt_cutter_next(struct gpt_cutter *cut, struct gpt_line_chunk *c);

#endif
