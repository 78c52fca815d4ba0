/* The pairs that a vocabulary's training may still merge: by name (a hash
 * table), by rank (a heap), and with the places where each occurs. Private to
 * train.c.
 *
 * The heap is lazy. A count only ever falls after its pair was added, because
 * every merge makes a token that no earlier pair knows. So an entry's count is
 * an upper bound: taken from the top, it is either true or put back lower. */
#ifndef GPT_TOKENIZER_BPE_TRAIN_PAIRS_H
#define GPT_TOKENIZER_BPE_TRAIN_PAIRS_H

#include "base/status.h"

/* Where a pair was seen: byte `offset` of piece `piece`. The pair may have gone
 * from there since, which the user of a place must check. */
struct gpt_bpe_place {
    uint32_t piece, offset;
};

struct gpt_bpe_pair {
    int32_t left, right;
    int64_t count;               /* exact, weighted by the pieces' counts */
    struct gpt_bpe_place *place; /* (n_places), ascending in each piece */
    size_t n_places;
};

struct gpt_bpe_pairs {
    struct gpt_bpe_pair *pair; /* in order of addition; merged ones stay */
    size_t n, cap;
    uint32_t *slot; /* open addressing: index of a pair + 1, 0 = free */
    size_t n_slots; /* a power of two */
    struct gpt_bpe_rank *heap;
    size_t n_heap, cap_heap;
};

/* Adds a pair that is not there yet; borrows its places. */
int gpt_bpe_pairs_add(struct gpt_bpe_pairs *pairs,
                      const struct gpt_bpe_pair *pair, struct gpt_err *err)
    GPT_MUST_USE;

/* Lowers the count of (left, right), if that pair was ever added. */
void gpt_bpe_pairs_lower(struct gpt_bpe_pairs *pairs, int32_t left,
                         int32_t right, int64_t by);

/* Takes out the pair of the highest count, of equals that of the lowest ids;
 * NULL when none is left. Valid until the next addition. */
struct gpt_bpe_pair *gpt_bpe_pairs_take(struct gpt_bpe_pairs *pairs);

void gpt_bpe_pairs_free(struct gpt_bpe_pairs *pairs);

#endif
