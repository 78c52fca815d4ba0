/* Runs of characters of three bytes, of which most of Chinese, Japanese and
 * Korean are made, where GPT-2's pattern cuts the text and the vocabulary knows
 * few of their words. The ids of a character stand in a table, and neighbours
 * that no token joins need neither a search for pieces nor a cache of them. */
#ifndef GPT_TOKENIZER_BPE_WIDE_H
#define GPT_TOKENIZER_BPE_WIDE_H

#include "tokenizer/bpe/bpe.h"

struct gpt_wide_char {
    int32_t id[3];
    uint8_t n;    /* ids; 0: not known yet */
    uint8_t kind; /* enum gpt_piece_kind; SPACE: a run ends before it */
    bool left, right; /* a token may join it to the next one, to the last */
};

/* A thread's table. */
struct gpt_wide {
    const struct gpt_bpe *bpe;     /* borrowed */
    struct gpt_wide_char *chars;   /* (65536) by code point; NULL: not in use */
    struct gpt_bpe_scratch scratch;
};

/* In use when the vocabulary is of the kind described. */
int gpt_wide_open(struct gpt_wide *w, const struct gpt_bpe *bpe,
                  struct gpt_err *err) GPT_MUST_USE;
void gpt_wide_close(struct gpt_wide *w);

/* The ids of the text before `end` are written; what comes then, up to `group`,
 * has to be merged as one. Nothing when both are the same. */
struct gpt_wide_run {
    size_t end, group;
};

/* Appends the ids of characters from text[at] on, at < len, where a piece
 * begins or may be cut, and so it is where the run ends. It may be empty. The
 * first one may have a blank before it. */
int gpt_wide_encode(struct gpt_wide *w, const char *text, size_t len,
                    size_t at, struct gpt_wide_run *run, struct gpt_ids *ids,
                    struct gpt_err *err) GPT_MUST_USE;

#endif
