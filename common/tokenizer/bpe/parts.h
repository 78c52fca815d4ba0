/* Pieces of a text on their way through the cache, some at a time, because
 * memory is what they wait for: a cache of 16 MiB is in no near cache of the
 * processor. A piece that is added has its line fetched, and only when a batch
 * is full are the lines asked for ids: by then they have come. Start at
 * gpt_parts_ways_of(). */
#ifndef GPT_TOKENIZER_BPE_PARTS_H
#define GPT_TOKENIZER_BPE_PARTS_H

#include "tokenizer/bpe/cache.h"
#include "tokenizer/pretok.h"

enum {
    GPT_PARTS = 256, /* parts: pieces, and what long ones are cut into */
    GPT_PARTS_SLACK = 16,
    GPT_PARTS_IDS = GPT_PARTS * GPT_CACHE_ROOM,
};

/* Parts in a row, the first from `begin` on. A long part has its hash in the
 * key's first word, and a second word that no short key has; its line is
 * GPT_CACHE_NOWHERE, so that a loop over a batch needs no branch on the length:
 * the line does not know the key. The arrays' last places may be written to,
 * but hold nothing. */
struct gpt_parts {
    const char *text;
    size_t len, begin, n;
    _Alignas(64) struct gpt_cache_key keys[GPT_PARTS + GPT_PARTS_SLACK];
    uint32_t places[GPT_PARTS + GPT_PARTS_SLACK]; /* of lines */
    uint32_t ends[GPT_PARTS + GPT_PARTS_SLACK];   /* counted from `begin` */
};

/* Adds the short pieces that ends[] begins with, n of them counted from `base`,
 * the first from `begin` on, while there is room and 16 bytes of each may be
 * read; returns how many. */
size_t gpt_parts_add_short(struct gpt_parts *b, const struct gpt_cache *cache,
                           size_t base, size_t begin, const size_t *ends,
                           size_t n);

/* The forms of some loops for an instruction set. */
struct gpt_parts_ways {
    /* gpt_stretch_ends() */
    size_t (*ends)(const struct gpt_stretch *stretches, size_t n,
                   size_t *ends);
    /* Adds stretches that begin at text[base], while there is room for all
     * pieces of one and all are short; returns how many. NULL: the caller has
     * to add piece by piece. */
    size_t (*add)(struct gpt_parts *b, const struct gpt_cache *c, size_t base,
                  const struct gpt_stretch *stretches, size_t n);
    /* Writes ids from part i on; returns the number of the first part that its
     * line does not know, b->n for none. *out has room for GPT_PARTS_IDS. */
    size_t (*write)(const struct gpt_parts *b, const struct gpt_cache *c,
                    size_t i, int32_t **out);
};
const struct gpt_parts_ways *gpt_parts_ways_of(const char *isa);

#endif
