/* A thread's memory of pieces and their ids. Language repeats itself: in
 * English text some 98 % of the pieces have been seen before. Bounded: 16 MiB
 * for short pieces with few ids, 18 MiB for the others.
 *
 * Nearly all pieces are short, and what is done for them is here, inline: a
 * key of two words, a multiplication, one cache line of two entries that was
 * prefetched some pieces earlier. Nothing in it branches on the text.
 *
 * The caller's protocol for a short piece: make its key, find its line and
 * prefetch that, later compare the key with that of the line's first entry and
 * copy its ids; when it is another, ask gpt_cache_add(); when that knows
 * nothing either, encode the piece and put its ids. */
#ifndef GPT_TOKENIZER_BPE_CACHE_H
#define GPT_TOKENIZER_BPE_CACHE_H

#include "tokenizer/ids.h"

#include <string.h>

enum {
    GPT_CACHE_SHORT = 15,  /* bytes of a piece that is its own key */
    GPT_CACHE_ROOM = 8,    /* ids that a copy of an entry overwrites */
    GPT_CACHE_LONG = 1024, /* longer pieces are not kept */
    GPT_CACHE_LINES_LOG = 18,
    GPT_CACHE_NOWHERE = 64 << GPT_CACHE_LINES_LOG, /* place of an empty line */
    GPT_CACHE_WIDE = 4, /* ids of an entry; the last has their number, too */
    GPT_CACHE_COUNT_SHIFT = 28,
    GPT_CACHE_SMALL = 7, /* ids below 2^16 of an entry, and their number */
};

/* The bytes of a short piece, zeros, and its length in the last byte. An empty
 * entry has length 0. */
struct gpt_cache_key {
    uint64_t word[2];
};

/* Half a cache line. A vocabulary of at most 2^16 tokens has ids of 16 bits in
 * it, and their number after them; others have ids of 32 bits, the last with
 * their number in its high bits. Where there are more than fit the entry says
 * where in the block they are, and its key has a bit that no piece's has:
 * GPT_CACHE_MANY of the second word. */
struct gpt_cache_entry {
    struct gpt_cache_key key;
    union {
        uint32_t wide[GPT_CACHE_WIDE];
        uint16_t small[GPT_CACHE_SMALL + 1];
    };
};

struct gpt_cache_line {
    struct gpt_cache_entry entry[2]; /* the one that was of use last first */
};
#define GPT_CACHE_MANY ((uint64_t)1 << 63)

/* Where a longer piece is kept, if it is. The hash spares most comparisons of
 * bytes. */
struct gpt_cache_slot {
    uint32_t hash;
    uint32_t record; /* word in the block, 0 = free */
};

struct gpt_cache {
    char *memory; /* of all of them */
    bool small;   /* ids have 16 bits */
    struct gpt_cache_line *lines;
    struct gpt_cache_slot *slots;
    uint32_t *block; /* of records: length, n, the ids, the bytes; or ids */
    size_t used, n_records;
    uint32_t generation; /* how often the block was emptied */
};

/* For ids below vocab_size. */
int gpt_cache_open(struct gpt_cache *c, int64_t vocab_size,
                   struct gpt_err *err) GPT_MUST_USE;
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

/* The same for a piece of which `readable` bytes may be read. */
static inline struct gpt_cache_key gpt_cache_key_of(const char *piece,
                                                    size_t len, size_t readable)
{
    return readable >= sizeof(struct gpt_cache_key)
               ? gpt_cache_key(piece, len)
               : gpt_cache_key_at_end(piece, len);
}

static inline size_t gpt_cache_key_len(struct gpt_cache_key key)
{
    return (size_t)(key.word[1] >> 56);
}

/* Where the line of a piece is, in bytes from the first. The high bits of the
 * sum depend on all bits of the key. */
#define GPT_CACHE_HASH_LOW 0x9E3779B97F4A7C15u
#define GPT_CACHE_HASH_HIGH 0xC2B2AE3D27D4EB4Fu
static inline uint32_t gpt_cache_place(struct gpt_cache_key key)
{
    const uint64_t h = key.word[0] * GPT_CACHE_HASH_LOW +
                       key.word[1] * GPT_CACHE_HASH_HIGH;

    return (uint32_t)(h >> (64 - GPT_CACHE_LINES_LOG)) *
           (uint32_t)sizeof(struct gpt_cache_line);
}

static inline struct gpt_cache_line *
gpt_cache_at(const struct gpt_cache *c, uint32_t place)
{
    return (struct gpt_cache_line *)(void *)((char *)c->lines + place);
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

/* Writes GPT_CACHE_ROOM ids of an entry; returns how many count. */
static inline size_t gpt_cache_copy(const struct gpt_cache_entry *e, bool small,
                                    int32_t *ids)
{
    const uint32_t last = e->wide[GPT_CACHE_WIDE - 1];

    if (small) {
        typedef uint16_t slim __attribute__((vector_size(16)));
        typedef int32_t full __attribute__((vector_size(32)));
        slim some;

        memcpy(&some, e->small, sizeof(some));
        const full all = __builtin_convertvector(some, full);
        memcpy(ids, &all, sizeof(all));
        return e->small[GPT_CACHE_SMALL];
    }
    memcpy(ids, e->wide, sizeof(e->wide));
    ids[GPT_CACHE_WIDE - 1] =
        (int32_t)(last & (((uint32_t)1 << GPT_CACHE_COUNT_SHIFT) - 1));
    return last >> GPT_CACHE_COUNT_SHIFT;
}

/* Appends the ids of a piece, whichever entry of its line knows them; that
 * becomes the first one. *known says whether there was one. */
int gpt_cache_add(struct gpt_cache *c, struct gpt_cache_line *line,
                  struct gpt_cache_key key, struct gpt_ids *ids, bool *known,
                  struct gpt_err *err) GPT_MUST_USE;
/* Keeps n ids of a piece; the second entry of its line goes. */
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
