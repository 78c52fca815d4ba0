/* A stream of a rank, passed on line by line, each line after its rank. */
#ifndef GPT_CMD_LAUNCH_PREFIX_LINES_H
#define GPT_CMD_LAUNCH_PREFIX_LINES_H

#include "base/memory.h"

struct gpt_append;

struct gpt_prefix_lines {
    int from, to; /* a pipe, -1 at its end; 1 or 2 */
    bool lost;    /* lines could not be written to standard error */
    char prefix[32];
    struct gpt_buf part;    /* of a line */
    struct gpt_append *log; /* shared by both streams, or NULL */
};

/* Passes on what has come; all whole lines in one write(2). GPT_EIO when
 * standard output or the log cannot be written; lines for standard error are
 * lost where that cannot be. */
int gpt_prefix_lines_pass(struct gpt_prefix_lines *l,
                          struct gpt_err *err) GPT_MUST_USE;
/* The last line, whether it has an end or not. */
int gpt_prefix_lines_end(struct gpt_prefix_lines *l,
                         struct gpt_err *err) GPT_MUST_USE;

#endif
