/* Pieces of a text that the cache does not know, merged some at a time
 * (many.h). Until then each has a gap among the ids, with room for an id a
 * byte; once they are merged the ids move together. */
#ifndef GPT_TOKENIZER_BPE_LATE_H
#define GPT_TOKENIZER_BPE_LATE_H

#include "tokenizer/bpe/cache.h"
#include "tokenizer/bpe/many.h"

struct gpt_gap {
    size_t at; /* among the ids */
    struct gpt_cache_key key;
};

/* A thread's. */
struct gpt_late {
    const struct gpt_pairs *pairs; /* borrowed */
    gpt_bpe_many_fn *merge;
    size_t n;
    struct gpt_gap gaps[GPT_BPE_MANY]; /* in the order of the text */
    struct gpt_bpe_piece pieces[GPT_BPE_MANY];
};

/* Adds a piece of at most GPT_BPE_MANY_BYTES bytes, which is copied, and its
 * gap at the end of ids. */
int gpt_late_add(struct gpt_late *late, struct gpt_cache *cache,
                 const char *piece, struct gpt_cache_key key,
                 struct gpt_ids *ids, struct gpt_err *err) GPT_MUST_USE;

/* Merges the pieces, puts them into the cache, and closes their gaps. */
void gpt_late_settle(struct gpt_late *late, struct gpt_cache *cache,
                     struct gpt_ids *ids);

#endif
