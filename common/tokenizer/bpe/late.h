/* Pieces of a text that the cache does not know, merged some at a time
 * (many.h). Until then each has a gap among the ids, with room for an id a
 * byte; once they are merged the ids move together. A piece that comes again
 * meanwhile, as new words do, has one more gap. */
#ifndef GPT_TOKENIZER_BPE_LATE_H
#define GPT_TOKENIZER_BPE_LATE_H

#include "tokenizer/bpe/cache.h"
#include "tokenizer/bpe/many.h"

enum { GPT_GAPS = 64 };

struct gpt_gap {
    size_t at;    /* among the ids */
    size_t piece; /* its number */
};

/* A thread's. */
struct gpt_late {
    const struct gpt_pairs *pairs; /* borrowed */
    gpt_bpe_many_fn *merge;
    size_t n_gaps, n_pieces;
    uint64_t marks; /* a bit for each hash of a piece */
    struct gpt_gap gaps[GPT_GAPS]; /* in the order of the text */
    struct gpt_cache_key keys[GPT_BPE_MANY];
    struct gpt_bpe_piece pieces[GPT_BPE_MANY];
};

/* Empties it, without a word about what was in it. */
void gpt_late_clear(struct gpt_late *late);

/* Adds a piece of at most GPT_BPE_MANY_BYTES bytes, which is copied, and its
 * gap at the end of ids. */
int gpt_late_add(struct gpt_late *late, struct gpt_cache *cache,
                 const char *piece, struct gpt_cache_key key,
                 struct gpt_ids *ids, struct gpt_err *err) GPT_MUST_USE;

/* Merges the pieces, puts them into the cache, and closes the gaps. */
void gpt_late_settle(struct gpt_late *late, struct gpt_cache *cache,
                     struct gpt_ids *ids);

#endif
