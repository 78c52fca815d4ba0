/* A thread's memory of pieces and their ids. Language repeats itself: of
 * English text some 99 % of the pieces have been seen before. Bounded: 4 MiB
 * for short pieces with few ids, 6 MiB for the others. */
#ifndef GPT_TEXT_BPE_CACHE_H
#define GPT_TEXT_BPE_CACHE_H

#include "text/tokenizer.h"

#include <string.h>

enum {
    GPT_CACHE_SHORT = 15,  /* bytes of a piece that is its own key */
    GPT_CACHE_IDS = 4,     /* ids of a short entry */
    GPT_CACHE_LONG = 1024, /* longer pieces are not kept */
};

/* The bytes of a short piece, zeros, and its length in the last byte. */
struct gpt_cache_key {
    uint64_t word[2];
};

struct gpt_cache;
struct gpt_cache_line;

/* A piece on its way through the cache. */
struct gpt_cache_probe {
    const char *piece;
    size_t len;
    struct gpt_cache_key key; /* of a short piece, as the next */
    struct gpt_cache_line *line;
};

int gpt_cache_open(struct gpt_cache **c, struct gpt_err *err) GPT_MUST_USE;
void gpt_cache_close(struct gpt_cache *c); /* NULL is fine */

/* Makes the probe of a piece, behind which bytes up to `readable`, counted from
 * its start, may be read, and asks the processor to fetch its entry: worth
 * doing some pieces before gpt_cache_get() needs it. */
void gpt_cache_aim(struct gpt_cache *c, const char *piece, size_t len,
                   size_t readable, struct gpt_cache_probe *probe);
/* Appends the ids of a piece that is known; ids has room for len of them, at
 * least GPT_CACHE_IDS. */
bool gpt_cache_get(struct gpt_cache *c, const struct gpt_cache_probe *probe,
                   struct gpt_ids *ids);
/* Keeps the n ids of a piece; may forget others. */
void gpt_cache_put(struct gpt_cache *c, const struct gpt_cache_probe *probe,
                   const int32_t *ids, size_t n);

#endif
