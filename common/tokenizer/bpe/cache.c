/* The part of cache.h that is not inline. Start at gpt_cache_put().
 *
 * Eviction. A line of short pieces holds two. A new one is the second, and
 * takes the place of the second; when it is of use it becomes the first, so
 * that the first is nearly always the one that is asked for. Longer pieces, and
 * ids that are more than a line's entry holds, are records in one block, found
 * by open addressing. When the block or the slots are full everything in them
 * is forgotten, which happens once in millions of words and needs no list of
 * what is old.
 *
 * Why 16 MiB of lines. Half a million entries hold the words of a language and
 * its names. On 50 MB of English documentation the encoder takes a third longer
 * with 1 MiB of lines, as long with 4 MiB, and no less with 64 MiB. 16 MiB
 * leave room for texts with more words. */
#include "tokenizer/bpe/cache.h"

#include "base/hash.h"
#include "base/memory.h"

#include <assert.h>

enum {
    SLOTS = 1 << 18,
    SLOTS_FULL = SLOTS / 4 * 3,
    BLOCK = 4 << 20, /* words */
};

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "keys are masked as little-endian words"
#endif
/* Masks of the first n bytes, up to 8 and beyond. */
#define KEEP(n) (~(uint64_t)0 >> (64 - 8 * (n)))
#define LOW(n) {{KEEP(n), 0}}
#define HIGH(n) {{~(uint64_t)0, KEEP((n) - 8)}}
const struct gpt_cache_key gpt_cache_mask[GPT_CACHE_SHORT + 1] = {
    {{0, 0}}, LOW(1),   LOW(2),   LOW(3),   LOW(4),   LOW(5),
    LOW(6),   LOW(7),   LOW(8),   HIGH(9),  HIGH(10), HIGH(11),
    HIGH(12), HIGH(13), HIGH(14), HIGH(15),
};

/* Allocates the three tables in one block, at an address where large pages
 * begin, so that a look at a random line does not miss the TLB as well as the
 * cache. */
int gpt_cache_open(struct gpt_cache *c, int64_t vocab_size,
                   struct gpt_err *err)
{
    const size_t lines = GPT_CACHE_NOWHERE + sizeof(*c->lines);
    const size_t slots = SLOTS * sizeof(*c->slots);
    const size_t bytes = lines + slots + BLOCK * sizeof(*c->block);

    _Static_assert(sizeof(*c->lines) == 64, "a line of the cache is one");
    char *p;
    GPT_TRY(gpt_new_large_pages(&c->memory, &p, bytes, "a cache of words",
                                err));
    c->lines = (struct gpt_cache_line *)(void *)p;
    c->slots = (struct gpt_cache_slot *)(void *)(p + lines);
    c->block = (uint32_t *)(void *)(p + lines + slots);
    c->small = vocab_size <= UINT16_MAX + 1;
    c->used = 1; /* place 0 is none */
    c->n_records = 0;
    c->generation = 0;
    return GPT_OK;
}

void gpt_cache_close(struct gpt_cache *c)
{
    gpt_free(c->memory);
    memset(c, 0, sizeof(*c));
}

/* Takes room for some words in the block. When there is none the block begins
 * anew: slots are cleared, and the generation makes entries of short pieces
 * that point into the block invalid without a visit to their lines. */
static uint32_t *take_block(struct gpt_cache *c, size_t words)
{
    assert(words < BLOCK);
    if (c->used + words > BLOCK || c->n_records == SLOTS_FULL) {
        memset(c->slots, 0, SLOTS * sizeof(*c->slots));
        c->used = 1;
        c->n_records = 0;
        c->generation++;
    }
    c->used += words;
    return c->block + c->used - words;
}

/* ---- short pieces ---- */

/* What an entry holds instead of ids when they are too many for it: their place
 * in the block, valid in one generation. */
enum { PLACE, COUNT, GENERATION };

static void keep_many(struct gpt_cache *c, struct gpt_cache_entry *e,
                      const int32_t *ids, size_t n)
{
    uint32_t *words = take_block(c, n);

    memcpy(words, ids, n * sizeof(*ids));
    e->key.word[1] |= GPT_CACHE_MANY;
    e->wide[PLACE] = (uint32_t)(words - c->block);
    e->wide[COUNT] = (uint32_t)n;
    e->wide[GENERATION] = c->generation;
}

static void keep_ids(const struct gpt_cache *c, struct gpt_cache_entry *e,
                     const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert(ids[i] >= 0 && (!c->small || ids[i] <= UINT16_MAX));
        if (c->small)
            e->small[i] = (uint16_t)ids[i];
        else
            e->wide[i] = (uint32_t)ids[i];
    }
    if (c->small)
        e->small[GPT_CACHE_SMALL] = (uint16_t)n;
    else
        e->wide[GPT_CACHE_WIDE - 1] |= (uint32_t)n << GPT_CACHE_COUNT_SHIFT;
}

/* A new piece may never come again, so it does not take the place of one that
 * was of use. */
void gpt_cache_put(struct gpt_cache *c, struct gpt_cache_key key,
                   const int32_t *ids, size_t n)
{
    struct gpt_cache_line *line = gpt_cache_at(c, gpt_cache_place(key));
    struct gpt_cache_entry e = {.key = key};

    assert(n > 0);
    if (n > (c->small ? GPT_CACHE_SMALL : GPT_CACHE_WIDE))
        keep_many(c, &e, ids, n);
    else
        keep_ids(c, &e, ids, n);
    line->entry[gpt_cache_key_len(line->entry[0].key) > 0] = e;
}

static void put_first(struct gpt_cache_line *line, int i)
{
    const struct gpt_cache_entry e = line->entry[i];

    line->entry[i] = line->entry[0];
    line->entry[0] = e;
}

int gpt_cache_add(struct gpt_cache *c, struct gpt_cache_line *line,
                  struct gpt_cache_key key, struct gpt_ids *ids, bool *known,
                  struct gpt_err *err)
{
    *known = true;
    for (int i = 0; i < 2; i++)
        if (gpt_cache_same(line->entry[i].key, key)) {
            put_first(line, i);
            GPT_TRY(gpt_ids_reserve(ids, GPT_CACHE_ROOM, err));
            ids->len += gpt_cache_copy(&line->entry[0], c->small,
                                       ids->data + ids->len);
            return GPT_OK;
        }
    key.word[1] |= GPT_CACHE_MANY;
    for (int i = 0; i < 2; i++) {
        const uint32_t *many = line->entry[i].wide;

        if (gpt_cache_same(line->entry[i].key, key) &&
            many[GENERATION] == c->generation) {
            put_first(line, i);
            many = line->entry[0].wide;
            return gpt_ids_add(ids, (const int32_t *)c->block + many[PLACE],
                               many[COUNT], err);
        }
    }
    *known = false;
    return GPT_OK;
}

/* ---- other pieces ---- */

uint32_t gpt_cache_hash_long(const struct gpt_cache *c, const char *piece,
                             size_t len)
{
    uint32_t hash = (uint32_t)gpt_hash64(piece, len, 0);

    __builtin_prefetch(&c->slots[hash & (SLOTS - 1)]);
    return hash;
}

/* Finds the slot of a piece, or the free one where it belongs. SLOTS_FULL sees
 * to it that there is always a free one. */
static struct gpt_cache_slot *find_slot(const struct gpt_cache *c,
                                        uint32_t hash, const char *piece,
                                        size_t len)
{
    for (size_t i = hash & (SLOTS - 1);; i = (i + 1) & (SLOTS - 1)) {
        struct gpt_cache_slot *s = &c->slots[i];

        if (!s->record)
            return s;
        const uint32_t *record = c->block + s->record;
        if (s->hash == hash && record[0] == len &&
            memcmp(record + 2 + record[1], piece, len) == 0)
            return s;
    }
}

const int32_t *gpt_cache_get_long(const struct gpt_cache *c, uint32_t hash,
                                  const char *piece, size_t len, size_t *n)
{
    const struct gpt_cache_slot *s = find_slot(c, hash, piece, len);
    const uint32_t *record = c->block + s->record;

    *n = s->record ? record[1] : 0;
    return (const int32_t *)record + 2;
}

void gpt_cache_put_long(struct gpt_cache *c, uint32_t hash, const char *piece,
                        size_t len, const int32_t *ids, size_t n)
{
    /* first, as it may empty the slots */
    uint32_t *record = take_block(c, 2 + n + (len + 3) / 4);
    struct gpt_cache_slot *s = find_slot(c, hash, piece, len);

    *s = (struct gpt_cache_slot){hash, (uint32_t)(record - c->block)};
    record[0] = (uint32_t)len;
    record[1] = (uint32_t)n;
    memcpy(record + 2, ids, n * sizeof(*ids));
    memcpy(record + 2 + n, piece, len);
    c->n_records++;
}
