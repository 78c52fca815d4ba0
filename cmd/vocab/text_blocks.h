/* A corpus as blocks of about a megabyte that can be pre-tokenized apart from
 * each other and in any order: whole lines of JSON Lines, or plain text cut
 * only where a piece certainly ends. Each plain text file is one document.
 * Start at gpt_blocks_next(). */
#ifndef GPT_CMD_VOCAB_TEXT_BLOCKS_H
#define GPT_CMD_VOCAB_TEXT_BLOCKS_H

#include "base/status.h"

struct gpt_block {
    char *data;
    size_t len, cap;
    bool jsonl;         /* whole lines, the last perhaps without newline */
    bool guessed;       /* jsonl only because of the first character */
    bool begins_file;   /* its first bytes are the file's */
    const char *name;   /* of the file, for messages; valid until close */
    int64_t first_line; /* the block's first line, counted from 1 */
};

struct gpt_blocks_options {
    const char *const *inputs; /* "-" is standard input */
    int64_t n_inputs;
    const char *format; /* "jsonl", "text", or "auto": by name, then content */
    int64_t threads;    /* for decompression */
};

struct gpt_blocks;

/* Options and file names are borrowed. GPT_EIO at once when an input is not
 * there. */
int gpt_blocks_open(struct gpt_blocks **blocks,
                    const struct gpt_blocks_options *options,
                    struct gpt_err *err) GPT_MUST_USE;
void gpt_blocks_close(struct gpt_blocks *blocks); /* NULL is fine */

/* Fills *b, whose data may be kept and given again; *end is true when nothing
 * was left. A line, or a stretch of text without white space, that is longer
 * than a block makes the block larger. */
int gpt_blocks_next(struct gpt_blocks *blocks, struct gpt_block *b, bool *end,
                    struct gpt_err *err) GPT_MUST_USE;

/* Bytes of all files, compressed as they may be, or -1 when one is no regular
 * file; and how many of them have been read. */
int64_t gpt_blocks_total(const struct gpt_blocks *blocks);
int64_t gpt_blocks_consumed(const struct gpt_blocks *blocks);

#endif
