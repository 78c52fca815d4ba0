/* Merges out of ranks: a vocabulary that is only a list of tokens merges the
 * two neighbours whose bytes together are the first token in the list. That is
 * the same as a merge for each way to cut a token into two others, where all
 * merges of a token share a rank. Start at gpt_vocab_rank_tokens(). */
#include "base/memory.h"
#include "tokenizer/bpe/cache.h"
#include "tokenizer/ids.h"
#include "tokenizer/token_map.h"
#include "tokenizer/vocab.h"

#include <assert.h>
#include <string.h>

/* ---- short tokens by their bytes ---- */

/* Both sides of every cut of every token are looked up, 2 million of them for
 * 200,000 tokens, and most are short. Those are their own keys here, so that a
 * look reads one cache line, where the map of tokens would read three. Before
 * that a bit is asked for, which stays in a nearer cache: of most cuts one side
 * is no token. */
enum {
    SHORT = 12,
    SEEN_LOG = 3,
    COPIED = 48, /* bytes of a token that is copied to where more may be read */
};

/* A key, which leaves three bytes free between its bytes and its length: there
 * is the id + 1. A free slot is 0. */
struct short_tokens {
    char *memory; /* of both tables */
    struct gpt_cache_key *slots;
    uint64_t *seen; /* eight bits for each slot */
    unsigned shift; /* a hash's high bits are a place */
    size_t mask;
};
#define ID_SHIFT 32
#define ID_MASK ((uint64_t)0xFFFFFF << ID_SHIFT)
_Static_assert(GPT_VOCAB_MAX < 0xFFFFFF, "an id fits");

/* A part of a token, ready to be looked up. */
struct part {
    struct gpt_cache_key key; /* unless it is longer than SHORT */
    uint64_t hash;
    const char *bytes;
    size_t len;
};

/* The bytes are read at `at`, where 16 may be read if they are `copied`. */
static struct part part_of(const char *bytes, const char *at, size_t len,
                           bool copied)
{
    struct part p = {.bytes = bytes, .len = len};

    if (len > SHORT)
        return p;
    p.key = copied ? gpt_cache_key(at, len) : gpt_cache_key_at_end(at, len);
    p.hash = p.key.word[0] * 0x9E3779B97F4A7C15u +
             p.key.word[1] * 0xC2B2AE3D27D4EB4Fu;
    return p;
}

static uint64_t *seen_word(const struct short_tokens *t, const struct part *p,
                           uint64_t *bit)
{
    uint64_t i = p->hash >> (t->shift - SEEN_LOG);

    *bit = (uint64_t)1 << i % 64;
    return &t->seen[i / 64];
}

/* 0 or 1, for a caller that takes two together without a branch. */
static unsigned may_be(const struct short_tokens *t, const struct part *p)
{
    uint64_t bit;

    return p->len > SHORT || *seen_word(t, p, &bit) & bit;
}

/* The slot of a short part, or the free one where it belongs. */
static struct gpt_cache_key *find_short(const struct short_tokens *t,
                                        const struct part *p)
{
    size_t i = (size_t)(p->hash >> t->shift);

    for (;; i = (i + 1) & t->mask) {
        struct gpt_cache_key key = t->slots[i];

        key.word[1] &= ~ID_MASK;
        if (key.word[1] == 0 || gpt_cache_same(key, p->key))
            return &t->slots[i];
    }
}

static void add_short(struct short_tokens *t, const struct gpt_str *token,
                      int64_t id)
{
    struct part p = part_of(token->data, token->data, token->len, false);
    struct gpt_cache_key *slot = find_short(t, &p);
    uint64_t bit, *word = seen_word(t, &p, &bit);

    assert(slot->word[1] == 0); /* no two tokens have the same bytes */
    *word |= bit;
    *slot = p.key;
    slot->word[1] |= (uint64_t)(id + 1) << ID_SHIFT;
}

static int open_short(struct short_tokens *t, const struct gpt_vocab *v,
                      struct gpt_err *err)
{
    size_t n_slots = 512;
    char *p;

    while (n_slots < (size_t)v->n * 2)
        n_slots *= 2;
    t->mask = n_slots - 1;
    t->shift = 64 - (unsigned)__builtin_ctzll(n_slots);
    const size_t bytes = n_slots * sizeof(*t->slots);
    GPT_TRY(gpt_new_large_pages(&t->memory, &p,
                                bytes + (n_slots >> (3 - SEEN_LOG)),
                                "a vocabulary", err));
    t->slots = (struct gpt_cache_key *)(void *)p;
    t->seen = (uint64_t *)(void *)(p + bytes);
    for (int64_t id = 0; id < v->n; id++)
        if (v->tokens[id].len && v->tokens[id].len <= SHORT)
            add_short(t, &v->tokens[id], id);
    return GPT_OK;
}

/* ---- merges ---- */

static int32_t find_part(const struct short_tokens *t,
                         const struct gpt_token_map *map, const struct part *p)
{
    if (p->len > SHORT)
        return gpt_token_map_find(map, p->bytes, p->len);
    return (int32_t)((find_short(t, p)->word[1] & ID_MASK) >> ID_SHIFT) - 1;
}

/* Cuts on their way: the slots of their parts are fetched while others are
 * found. */
enum { CUTS = 64 };
struct cuts {
    struct cut {
        struct part left, right;
        int32_t id;
    } cut[CUTS];
    size_t n, cap; /* room for merges */
};

/* Adds the merges of the cuts that make two tokens. */
static int add_merges(struct gpt_vocab *v, const struct gpt_token_map *map,
                      const struct short_tokens *t, struct cuts *c,
                      struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&v->merges, &c->cap, v->n_merges + c->n,
                     sizeof(*v->merges), "merges", err));
    for (size_t i = 0; i < c->n; i++) {
        const struct gpt_merge m = {find_part(t, map, &c->cut[i].left),
                                    find_part(t, map, &c->cut[i].right),
                                    c->cut[i].id};

        if (m.left >= 0 && m.right >= 0)
            v->merges[v->n_merges++] = m;
    }
    c->n = 0;
    return GPT_OK;
}

/* Adds the merges that make a token: one for each cut into two tokens. Tokens
 * that no cut makes are reached only as whole pieces. */
static int rank_token(struct gpt_vocab *v, const struct gpt_token_map *map,
                      const struct short_tokens *t, int32_t id,
                      struct cuts *c, struct gpt_err *err)
{
    const char *bytes = v->tokens[id].data;
    const size_t len = v->tokens[id].len;
    const bool copied = len <= COPIED;
    char copy[COPIED + sizeof(struct gpt_cache_key)] = {0};
    const char *at = copied && len ? memcpy(copy, bytes, len) : bytes;

    for (size_t i = 1; i < len; i++) {
        const struct cut cut = {part_of(bytes, at, i, copied),
                                part_of(bytes + i, at + i, len - i, copied),
                                id};

        if (!(may_be(t, &cut.left) & may_be(t, &cut.right)))
            continue;
        if (c->n == CUTS)
            GPT_TRY(add_merges(v, map, t, c, err));
        __builtin_prefetch(&t->slots[cut.left.hash >> t->shift]);
        __builtin_prefetch(&t->slots[cut.right.hash >> t->shift]);
        c->cut[c->n++] = cut;
    }
    return GPT_OK;
}

/* tiktoken begins with single bytes, so each must be a token. */
static int find_bytes(struct gpt_vocab *v, const struct gpt_token_map *map,
                      const char *what, struct gpt_err *err)
{
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;

        v->byte_id[byte] = gpt_token_map_find(map, &c, 1);
        if (v->byte_id[byte] < 0)
            return gpt_fail(err, GPT_EDATA, "%s: no token for byte 0x%02x",
                            what, (unsigned)byte);
    }
    return GPT_OK;
}

int gpt_vocab_rank_tokens(struct gpt_vocab *v, const struct gpt_token_map *map,
                          const char *what, struct gpt_err *err)
{
    struct short_tokens t;
    struct cuts cuts = {.n = 0};
    int status;

    assert(v->n_merges == 0);
    v->shared_ranks = true;
    GPT_TRY(find_bytes(v, map, what, err));
    GPT_TRY(open_short(&t, v, err));
    for (int64_t id = 0; id < v->n; id++)
        GPT_TRY_GOTO(status, rank_token(v, map, &t, (int32_t)id, &cuts, err),
                     out);
    status = add_merges(v, map, &t, &cuts, err);
out:
    gpt_free(t.memory);
    return status;
}
