/* Runs of characters of three bytes, of which most of Chinese, Japanese and
 * Korean are made, where GPT-2's pattern cuts the text and the vocabulary knows
 * few of their words. The ids of each character are in a table, and neighbours
 * that no token joins need neither a search for pieces nor a cache of them.
 * Start at gpt_wide_encode(). */
#ifndef GPT_TOKENIZER_BPE_WIDE_H
#define GPT_TOKENIZER_BPE_WIDE_H

#include "tokenizer/bpe/bpe.h"

struct gpt_wide_char {
    int32_t id[3];
    uint8_t n;    /* ids; 0: not known yet */
    uint8_t kind; /* enum gpt_piece_kind; a run ends before GPT_PIECE_SPACE */
    bool left;    /* a token may hold its end and the next one's beginning */
    bool right;   /* a token may hold its beginning and the end before it */
};

/* A thread's table. */
struct gpt_wide {
    const struct gpt_bpe *bpe;     /* borrowed */
    struct gpt_wide_char *chars;   /* (65536) by code point; NULL: not in use */
    struct gpt_bpe_scratch scratch;
};

/* Opens the table if the vocabulary has few words of such characters; otherwise
 * w->chars stays NULL and gpt_wide_encode() must not be called. */
int gpt_wide_open(struct gpt_wide *w, const struct gpt_bpe *bpe,
                  struct gpt_err *err) GPT_MUST_USE;
void gpt_wide_close(struct gpt_wide *w);

/* Where a run ended: the ids of the text before `end` are written; the bytes
 * from `end` to `group` have to be merged as one by the caller, and are none
 * when both are the same. */
struct gpt_wide_run {
    size_t end, group;
};

/* Appends the ids of the characters from text[at] on, at < len. A piece must
 * begin at `at`, or may be cut there; the same is true of the place where the
 * run ends. The run may be empty. Its first character may have a blank before
 * it. */
int gpt_wide_encode(struct gpt_wide *w, const char *text, size_t len,
                    size_t at, struct gpt_wide_run *run, struct gpt_ids *ids,
                    struct gpt_err *err) GPT_MUST_USE;

#endif
