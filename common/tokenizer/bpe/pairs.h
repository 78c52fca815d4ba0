/* The pairs of tokens that are merged, and the rank of each: what bpe.c and
 * many.c look up. Start at gpt_pairs_rank(). */
#ifndef GPT_TOKENIZER_BPE_PAIRS_H
#define GPT_TOKENIZER_BPE_PAIRS_H

#include "tokenizer/vocab.h"

/* The table is open addressing, at most half full. A pair and its rank are one
 * word, left << 43 | right << 22 | rank. Eight words are a cache line: a search
 * goes round in the line where it begins, and on to the next line only when all
 * eight are others. So all of a line can be asked at once.
 *
 * Most pairs that are asked for are in no merge. For these there is a second
 * table of bits, `seen`, eight bits for each place of the first: a pair whose
 * bit is clear is not in the list. It is an eighth of the size and stays in a
 * nearer cache. */
enum {
    GPT_PAIR_ID_BITS = 21,
    GPT_RANK_BITS = 22,
    GPT_PAIR_SEEN_LOG = 3,
    GPT_PAIR_LINE = 8, /* words */
};
#define GPT_PAIR_FREE UINT64_MAX
#define GPT_NO_RANK UINT32_MAX

struct gpt_pairs {
    char *memory; /* of the four tables */
    uint64_t *table;
    unsigned shift; /* a hash's high bits are a place */
    size_t mask;
    uint64_t *seen;      /* a bit for each hash of a pair */
    int32_t *result;     /* what a merge makes, by rank */
    bool in_order;       /* each result is the one before it + 1 */
    uint32_t *byte_rank; /* rank of two bytes, left << 8 | right */
    int32_t byte_id[256];
};

/* GPT_EDATA when a pair is merged twice; `merge_file` names it. */
int gpt_pairs_open(struct gpt_pairs *t, const struct gpt_vocab *v,
                   const char *merge_file, struct gpt_err *err) GPT_MUST_USE;
void gpt_pairs_close(struct gpt_pairs *t);

/* A pair in a word. A neighbour that is not there may be given as -1: it makes
 * a name that no pair has. */
static inline uint64_t gpt_pair_name(int32_t left, int32_t right)
{
    return (uint64_t)(int64_t)left << GPT_PAIR_ID_BITS |
           (uint64_t)(int64_t)right;
}

static inline uint64_t gpt_pair_hash(uint64_t name)
{
    return name * 0x9E3779B97F4A7C15u;
}

/* Where the search for a pair begins. The high bits of the product are the
 * place: they depend on all bits of the name. */
static inline size_t gpt_pair_place(const struct gpt_pairs *t, uint64_t name)
{
    return (size_t)(gpt_pair_hash(name) >> t->shift);
}

/* The word of a pair, or the free one where it belongs. */
static inline uint64_t *gpt_pairs_find(const struct gpt_pairs *t, size_t place,
                                       uint64_t name)
{
    const size_t slot = GPT_PAIR_LINE - 1;

    for (size_t k = 0;; k++) {
        size_t i = (((place & ~slot) + (k & ~slot)) & t->mask) |
                   ((place + k) & slot);

        if (t->table[i] == GPT_PAIR_FREE ||
            t->table[i] >> GPT_RANK_BITS == name)
            return &t->table[i];
    }
}

/* The word of `seen` that has the bit of a pair; *bit is that bit. */
static inline uint64_t *gpt_pairs_seen(const struct gpt_pairs *t, uint64_t name,
                                       uint64_t *bit)
{
    uint64_t i = gpt_pair_hash(name) >> (t->shift - GPT_PAIR_SEEN_LOG);

    *bit = (uint64_t)1 << i % 64;
    return &t->seen[i / 64];
}

/* The rank in a word; GPT_NO_RANK for a free one. */
static inline uint32_t gpt_pair_rank_of(uint64_t pair)
{
    return (uint32_t)(pair & (((uint64_t)1 << GPT_RANK_BITS) - 1)) |
           -(uint32_t)(pair == GPT_PAIR_FREE);
}

/* GPT_NO_RANK for a pair that is not merged. */
static inline uint32_t gpt_pairs_rank(const struct gpt_pairs *t, int32_t left,
                                      int32_t right)
{
    uint64_t bit, name = gpt_pair_name(left, right);

    if (!(*gpt_pairs_seen(t, name, &bit) & bit))
        return GPT_NO_RANK;
    return gpt_pair_rank_of(*gpt_pairs_find(t, gpt_pair_place(t, name), name));
}

/* Most vocabularies number what merging makes in the order of the merges, which
 * saves the read of a table. */
static inline int32_t gpt_pairs_result(const struct gpt_pairs *t, uint32_t rank)
{
    return t->in_order ? t->result[0] + (int32_t)rank : t->result[rank];
}

#endif
