/* The pairs of a text that may be merged, the best first: a binary heap of
 * words rank << 32 | place. The lowest word is on top, so that of equal ranks
 * the leftmost place wins. Entries are never changed or taken from the middle:
 * the caller drops an entry that comes up with a rank that its place no longer
 * has. */
#ifndef GPT_TOKENIZER_BPE_PAIR_HEAP_H
#define GPT_TOKENIZER_BPE_PAIR_HEAP_H

#include "base/memory.h"

struct gpt_pair_heap {
    uint64_t *words;
    size_t n, cap;
};

static inline int gpt_pair_heap_push(struct gpt_pair_heap *h, uint32_t rank,
                                     uint32_t place, struct gpt_err *err)
{
    const uint64_t word = (uint64_t)rank << 32 | place;

    GPT_TRY(gpt_grow(&h->words, &h->cap, h->n + 1, sizeof(*h->words),
                     "pairs of a text", err));
    size_t i = h->n++;
    for (; i && h->words[(i - 1) / 2] > word; i = (i - 1) / 2)
        h->words[i] = h->words[(i - 1) / 2];
    h->words[i] = word;
    return GPT_OK;
}

/* Takes the top off; false when the heap is empty. */
static inline bool gpt_pair_heap_pop(struct gpt_pair_heap *h, uint32_t *rank,
                                     uint32_t *place)
{
    if (h->n == 0)
        return false;
    uint64_t *words = h->words;
    const uint64_t top = words[0], last = words[--h->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && words[child + 1] < words[child])
            child++;
        if (words[child] >= last)
            break;
        words[i] = words[child];
    }
    words[i] = last;
    *rank = (uint32_t)(top >> 32);
    *place = (uint32_t)top;
    return true;
}

static inline void gpt_pair_heap_free(struct gpt_pair_heap *h)
{
    gpt_free(h->words);
    *h = (struct gpt_pair_heap){0};
}

#endif
