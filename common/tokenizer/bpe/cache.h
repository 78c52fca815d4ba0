/* A thread's memory of pieces and their ids. Language repeats itself: in
 * English text some 98 % of the pieces have been seen before. Bounded: 16 MiB
 * for short pieces with few ids, 18 MiB for the others.
 *
 * Nearly all pieces are short, and what is done for them is here, inline: a
 * key of two words, a multiplication, one cache line of two entries that was
 * prefetched some pieces earlier. Nothing in it branches on the text.
 *
 * The caller's protocol for a short piece: make its key, find its line and
 * prefetch that, later ask gpt_cache_get(); when that gives 0, ask
 * gpt_cache_get_many(); when that gives nothing either, encode the piece and
 * put its ids. */
#ifndef GPT_TOKENIZER_BPE_CACHE_H
#define GPT_TOKENIZER_BPE_CACHE_H

#include "tokenizer/ids.h"

#include <string.h>

enum {
    GPT_CACHE_SHORT = 15,  /* bytes of a piece that is its own key */
    GPT_CACHE_IDS = 4,     /* ids of a short entry */
    GPT_CACHE_LONG = 1024, /* longer pieces are not kept */
    GPT_CACHE_LINES_LOG = 18,
    GPT_CACHE_COUNT_SHIFT = 28,
};

/* The bytes of a short piece, zeros, and its length in the last byte. An empty
 * entry has length 0. */
struct gpt_cache_key {
    uint64_t word[2];
};

/* Half a cache line. The last id has the number of ids in its high bits. That
 * number is 0 when there are more than fit; then the entry says where in the
 * block they are. */
typedef uint32_t gpt_cache_ids __attribute__((vector_size(16)));
struct gpt_cache_entry {
    struct gpt_cache_key key;
    gpt_cache_ids ids;
};

struct gpt_cache_line {
    struct gpt_cache_entry entry[2]; /* the newer one first */
};

/* Where a longer piece is kept, if it is. The hash spares most comparisons of
 * bytes. */
struct gpt_cache_slot {
    uint32_t hash;
    uint32_t record; /* word in the block, 0 = free */
};

struct gpt_cache {
    char *memory; /* of all of them */
    struct gpt_cache_line *lines;
    struct gpt_cache_slot *slots;
    uint32_t *block; /* of records: length, n, the ids, the bytes; or ids */
    size_t used, n_records;
    uint32_t generation; /* how often the block was emptied */
};

int gpt_cache_open(struct gpt_cache *c, struct gpt_err *err) GPT_MUST_USE;
void gpt_cache_close(struct gpt_cache *c);

/* ---- short pieces ---- */

/* Masks that keep the first len of 16 bytes. */
extern const struct gpt_cache_key gpt_cache_mask[GPT_CACHE_SHORT + 1];

/* The key of a piece of at most GPT_CACHE_SHORT bytes, of which 16 may be
 * read. */
static inline struct gpt_cache_key gpt_cache_key(const char *piece, size_t len)
{
    struct gpt_cache_key key;

    memcpy(&key, piece, sizeof(key));
    key.word[0] &= gpt_cache_mask[len].word[0];
    key.word[1] &= gpt_cache_mask[len].word[1];
    key.word[1] |= (uint64_t)len << 56;
    return key;
}

/* The same where only len bytes may be read: at the end of a text. */
static inline struct gpt_cache_key gpt_cache_key_at_end(const char *piece,
                                                        size_t len)
{
    char copy[sizeof(struct gpt_cache_key)] = {0};

    memcpy(copy, piece, len);
    return gpt_cache_key(copy, len);
}

static inline size_t gpt_cache_key_len(struct gpt_cache_key key)
{
    return (size_t)(key.word[1] >> 56);
}

static inline struct gpt_cache_line *
gpt_cache_find(const struct gpt_cache *c, struct gpt_cache_key key)
{
    uint64_t h = key.word[0] * 0x9E3779B97F4A7C15u +
                 key.word[1] * 0xC2B2AE3D27D4EB4Fu;

    return &c->lines[h >> (64 - GPT_CACHE_LINES_LOG)];
}

static inline bool gpt_cache_is_ascii(struct gpt_cache_key key)
{
    return ((key.word[0] | key.word[1]) & 0x8080808080808080u) == 0;
}

static inline bool gpt_cache_same(struct gpt_cache_key a,
                                  struct gpt_cache_key b)
{
    return ((a.word[0] ^ b.word[0]) | (a.word[1] ^ b.word[1])) == 0;
}

/* Writes GPT_CACHE_IDS ids, of which the number returned count; 0: unknown, or
 * more than these. */
static inline size_t gpt_cache_get(const struct gpt_cache_line *line,
                                   struct gpt_cache_key key, int32_t *ids)
{
    const struct gpt_cache_entry *e =
        line->entry + !gpt_cache_same(line->entry[0].key, key);

    if (__builtin_expect(!gpt_cache_same(e->key, key), 0))
        return 0;
    const uint32_t all = UINT32_MAX;
    const gpt_cache_ids mask = {all, all, all, all >> 4};
    gpt_cache_ids some = e->ids & mask;
    memcpy(ids, &some, sizeof(some));
    return e->ids[GPT_CACHE_IDS - 1] >> GPT_CACHE_COUNT_SHIFT;
}

/* The ids of a piece that has more than GPT_CACHE_IDS, borrowed until the next
 * put; *n = 0: unknown. */
const int32_t *gpt_cache_get_many(const struct gpt_cache *c,
                                  const struct gpt_cache_line *line,
                                  struct gpt_cache_key key, size_t *n);
/* Keeps n ids of a piece; the older entry of its line goes. */
void gpt_cache_put(struct gpt_cache *c, struct gpt_cache_key key,
                   const int32_t *ids, size_t n);

/* ---- other pieces, of at most GPT_CACHE_LONG bytes ---- */

/* The piece's hash; prefetches its slot. */
uint32_t gpt_cache_hash_long(const struct gpt_cache *c, const char *piece,
                             size_t len);
/* The ids, borrowed until the next put; *n = 0: unknown. */
const int32_t *gpt_cache_get_long(const struct gpt_cache *c, uint32_t hash,
                                  const char *piece, size_t len, size_t *n);
/* Keeps n ids; when there is no room for them everything is forgotten. */
void gpt_cache_put_long(struct gpt_cache *c, uint32_t hash, const char *piece,
                        size_t len, const int32_t *ids, size_t n);

#endif
