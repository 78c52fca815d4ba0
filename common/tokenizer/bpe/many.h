/* Short pieces merged some at a time. A merge waits for memory: which pair is
 * next is known only when the ranks of the pairs that the last merge made have
 * come from a table larger than the near caches. So each piece takes one step
 * in turn, and what it needs for the next is on its way while the others take
 * theirs. Start at gpt_bpe_many_of(). */
#ifndef GPT_TOKENIZER_BPE_MANY_H
#define GPT_TOKENIZER_BPE_MANY_H

#include "tokenizer/bpe/pairs.h"

enum { GPT_BPE_MANY = 32, GPT_BPE_MANY_BYTES = 15 };

/* A piece on its way. Its byte i is at place i + 1: places 0 and len + 1 are
 * its ends, whose id -1 is in no pair. A token is at the place of its first
 * byte. */
struct gpt_bpe_piece {
    uint32_t low[GPT_BPE_MANY_BYTES + 1]; /* rank << 4 | place of the pair that
                                           * begins there; UINT32_MAX: none */
    int32_t id[GPT_BPE_MANY_BYTES + 2];
    uint32_t left;    /* a bit for each place that is a token or an end */
    uint32_t at[2];   /* where the pairs begin whose ranks are asked for */
    size_t place[2];  /* where the search for them begins */
    uint64_t name[2];
};

/* Makes *p a piece of 1 to GPT_BPE_MANY_BYTES bytes. */
void gpt_bpe_piece_begin(struct gpt_bpe_piece *p, const struct gpt_pairs *t,
                         const char *text, size_t len);

/* Merges n pieces, at most GPT_BPE_MANY. */
typedef void gpt_bpe_many_fn(struct gpt_bpe_piece *pieces, size_t n,
                             const struct gpt_pairs *t);
/* The form for an instruction set; all have the same results. */
gpt_bpe_many_fn *gpt_bpe_many_of(const char *isa);

/* Writes the ids of a piece that is merged, at most as many as it has bytes;
 * returns how many. */
size_t gpt_bpe_piece_ids(const struct gpt_bpe_piece *p, int32_t *ids);

#endif
