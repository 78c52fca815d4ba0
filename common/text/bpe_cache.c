/* Two tables. Short pieces: pairs of entries that share a cache line, the newer
 * one first; a new entry pushes the older one out. Other pieces: records in one
 * block, found by open addressing; when the block or the slots are full
 * everything is forgotten, which happens once in millions of words. */
#include "text/bpe_cache.h"

#include "base/hash.h"
#include "base/memory.h"

enum {
    LINES = 1 << 16,
    SLOTS = 1 << 17,
    SLOTS_FULL = SLOTS / 4 * 3,
    BLOCK = 1 << 20, /* words */
    COUNT_SHIFT = 28,
};

/* Half a cache line. meta = count << 28 | last of the four ids. */
struct entry {
    struct gpt_cache_key key;
    int32_t ids[GPT_CACHE_IDS - 1];
    uint32_t meta;
};

struct gpt_cache_line {
    struct entry entry[2];
};

/* A record: length, n, the ids, the bytes in whole words. */
struct slot {
    uint32_t hash;
    uint32_t record; /* word in the block, 0 = free */
};

struct gpt_cache {
    struct gpt_cache_line *lines;
    struct slot *slots;
    uint32_t *block;
    size_t used, n_records;
};

int gpt_cache_open(struct gpt_cache **out, struct gpt_err *err)
{
    struct gpt_cache *c;
    GPT_TRY(gpt_new(&c, 1, sizeof(*c), "a cache of words", err));
    c->lines = gpt_alloc(LINES, sizeof(*c->lines));
    c->slots = gpt_alloc(SLOTS, sizeof(*c->slots));
    c->block = gpt_alloc(BLOCK, sizeof(*c->block));
    c->used = 1;
    if (!c->lines || !c->slots || !c->block) {
        gpt_cache_close(c);
        return gpt_fail(err, GPT_EFAIL, "cannot allocate a cache of words");
    }
    *out = c;
    return GPT_OK;
}

void gpt_cache_close(struct gpt_cache *c)
{
    if (!c)
        return;
    gpt_free(c->lines);
    gpt_free(c->slots);
    gpt_free(c->block);
    gpt_free(c);
}

/* ---- short pieces ---- */

/* Two plain loads and a mask where 16 bytes may be read: copying a few bytes
 * and loading them as words again would make the loads wait. */
static struct gpt_cache_key make_key(const char *piece, size_t len,
                                     size_t readable)
{
    struct gpt_cache_key key = {{0, 0}};
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (readable >= sizeof(key)) {
        memcpy(&key, piece, sizeof(key));
        if (len < 8)
            key.word[0] &= ((uint64_t)1 << 8 * len) - 1;
        key.word[1] &= len > 8 ? ((uint64_t)1 << 8 * (len - 8)) - 1 : 0;
        key.word[1] |= (uint64_t)len << 56;
        return key;
    }
#endif
    (void)readable;
    memcpy(&key, piece, len);
    ((uint8_t *)&key)[GPT_CACHE_SHORT] = (uint8_t)len;
    return key;
}

static struct gpt_cache_line *find_line(struct gpt_cache *c,
                                        struct gpt_cache_key key)
{
    uint64_t h = (key.word[0] ^ (key.word[1] << 31 | key.word[1] >> 33)) *
                 0x9E3779B97F4A7C15u;
    return &c->lines[(h ^ h >> 29) >> 20 & (LINES - 1)];
}

static bool same_key(struct gpt_cache_key a, struct gpt_cache_key b)
{
    return ((a.word[0] ^ b.word[0]) | (a.word[1] ^ b.word[1])) == 0;
}

static bool get_short(const struct gpt_cache_probe *probe, struct gpt_ids *ids)
{
    const struct entry *e = &probe->line->entry[0];
    if (!same_key(e->key, probe->key) && !same_key((++e)->key, probe->key))
        return false;
    int32_t *out = ids->data + ids->len;
    memcpy(out, e->ids, sizeof(e->ids));
    out[GPT_CACHE_IDS - 1] = (int32_t)(e->meta & ((1u << COUNT_SHIFT) - 1));
    ids->len += e->meta >> COUNT_SHIFT;
    return true;
}

static void put_short(const struct gpt_cache_probe *probe, const int32_t *ids,
                      size_t n)
{
    struct entry e = {.key = probe->key};
    for (size_t i = 0; i < n && i < GPT_CACHE_IDS - 1; i++)
        e.ids[i] = ids[i];
    e.meta = (uint32_t)n << COUNT_SHIFT;
    if (n == GPT_CACHE_IDS)
        e.meta |= (uint32_t)ids[n - 1];
    probe->line->entry[1] = probe->line->entry[0];
    probe->line->entry[0] = e;
}

/* ---- other pieces ---- */

static struct slot *find_slot(struct gpt_cache *c, const char *piece,
                              size_t len, uint32_t *hash)
{
    *hash = (uint32_t)gpt_hash64(piece, len, 0);
    for (size_t i = *hash & (SLOTS - 1);; i = (i + 1) & (SLOTS - 1)) {
        struct slot *s = &c->slots[i];
        if (!s->record)
            return s;
        const uint32_t *record = c->block + s->record;
        if (s->hash == *hash && record[0] == len &&
            memcmp(record + 2 + record[1], piece, len) == 0)
            return s;
    }
}

static bool get_long(struct gpt_cache *c, const char *piece, size_t len,
                     struct gpt_ids *ids)
{
    uint32_t hash;
    const struct slot *s = find_slot(c, piece, len, &hash);
    if (!s->record)
        return false;
    const uint32_t *record = c->block + s->record;
    memcpy(ids->data + ids->len, record + 2, record[1] * sizeof(*record));
    ids->len += record[1];
    return true;
}

static void put_long(struct gpt_cache *c, const char *piece, size_t len,
                     const int32_t *ids, size_t n)
{
    size_t words = 2 + n + (len + 3) / 4;
    if (c->used + words > BLOCK || c->n_records == SLOTS_FULL) {
        memset(c->slots, 0, SLOTS * sizeof(*c->slots));
        c->used = 1;
        c->n_records = 0;
    }
    uint32_t hash;
    struct slot *s = find_slot(c, piece, len, &hash);
    uint32_t *record = c->block + c->used;
    *s = (struct slot){hash, (uint32_t)c->used};
    record[0] = (uint32_t)len;
    record[1] = (uint32_t)n;
    memcpy(record + 2, ids, n * sizeof(*ids));
    memcpy(record + 2 + n, piece, len);
    c->used += words;
    c->n_records++;
}

/* ---- the interface ---- */

void gpt_cache_aim(struct gpt_cache *c, const char *piece, size_t len,
                   size_t readable, struct gpt_cache_probe *probe)
{
    probe->piece = piece;
    probe->len = len;
    if (len > GPT_CACHE_SHORT)
        return;
    probe->key = make_key(piece, len, readable);
    probe->line = find_line(c, probe->key);
    __builtin_prefetch(probe->line);
}

bool gpt_cache_get(struct gpt_cache *c, const struct gpt_cache_probe *probe,
                   struct gpt_ids *ids)
{
    if (probe->len <= GPT_CACHE_SHORT && get_short(probe, ids))
        return true;
    /* a short piece of many ids lies with the long ones */
    return probe->len > GPT_CACHE_IDS && probe->len <= GPT_CACHE_LONG &&
           get_long(c, probe->piece, probe->len, ids);
}

void gpt_cache_put(struct gpt_cache *c, const struct gpt_cache_probe *probe,
                   const int32_t *ids, size_t n)
{
    if (probe->len <= GPT_CACHE_SHORT && n <= GPT_CACHE_IDS)
        put_short(probe, ids, n);
    else if (probe->len <= GPT_CACHE_LONG)
        put_long(c, probe->piece, probe->len, ids, n);
}
