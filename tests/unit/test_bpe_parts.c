/* The forms of bpe/parts.h for the instruction sets of this processor, against
 * keys and ids as cache.h has them piece by piece, with random stretches, which
 * end where the memory that may be read ends. And the cache itself: whatever it
 * still knows is what was put. */
#include "base/cpu.h"
#include "base/memory.h"
#include "tests/lib/tap.h"
#include "tokenizer/bpe/parts.h"
#include "tokenizer/pretok_vector.h"

#include <sys/mman.h>

static uint32_t seed = 3;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

/* ---- texts cut into stretches ---- */

enum { STRETCHES = 40, TEXT = STRETCHES * GPT_STRETCH };

struct cut {
    char *text;
    size_t n, len, n_pieces;
    struct gpt_stretch s[STRETCHES + 1];
    size_t ends[STRETCHES * GPT_STRETCH + 3];
};

/* Its text ends before a page that may not be read. */
static char *open_page(size_t bytes)
{
    char *p = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED || mprotect(p + bytes, bytes, PROT_NONE) != 0
               ? NULL
               : p + bytes;
}

/* Pieces of 1 to `most` bytes, of few letters, so that many are the same. */
static void draw_cut(struct cut *c, char *end, uint32_t most)
{
    c->n = 1 + draw(STRETCHES);
    c->s[0].at = 0;
    for (size_t i = 0; i < c->n; i++) {
        size_t last = 0;

        c->s[i].begins = 0;
        do {
            c->s[i].begins |= (uint64_t)1 << last;
            last += 1 + draw(most);
        } while (last < GPT_STRETCH && draw(30) > 0);
        if (last > GPT_STRETCH) {
            last = gpt_last_bit(c->s[i].begins);
            if (last)
                c->s[i].begins ^= (uint64_t)1 << last;
            else
                last = GPT_STRETCH;
        }
        c->s[i + 1].at = c->s[i].at + last;
    }
    c->len = c->s[c->n].at;
    c->text = end - c->len;
    for (size_t i = 0; i < c->len; i++)
        c->text[i] = "abcde\0\xC3\xFF"[draw(8)];
    c->n_pieces = gpt_stretch_ends(c->s, c->n, c->ends);
}

static int count_pieces(const struct cut *c)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n; i++)
        n += (size_t)__builtin_popcountll(c->s[i].begins);
    return (int)n;
}

/* ---- keys ---- */

/* True when the parts of b are the pieces from number `first` on. */
static bool parts_right(const struct gpt_parts *b, const struct cut *c,
                        size_t first)
{
    for (size_t i = 0; i < b->n; i++) {
        const size_t k = first + i, begin = k ? c->ends[k - 1] : 0;
        const struct gpt_cache_key key =
            gpt_cache_key_at_end(c->text + begin, c->ends[k] - begin);

        if (!gpt_cache_same(b->keys[i], key) ||
            b->places[i] != gpt_cache_place(key) ||
            b->begin + b->ends[i] != c->ends[k])
            return false;
    }
    return true;
}

/* A stretch that add() leaves to the caller must be long, or hold a long
 * piece, or find no room. */
static bool may_leave(const struct gpt_parts *b, const struct cut *c, size_t i,
                      size_t piece)
{
    const size_t n = (size_t)__builtin_popcountll(c->s[i].begins);

    if (b->n + GPT_STRETCH > GPT_PARTS ||
        c->s[i + 1].at - c->s[i].at >= GPT_STRETCH)
        return true;
    for (size_t k = piece; k < piece + n; k++)
        if (c->ends[k] - (k ? c->ends[k - 1] : 0) > GPT_CACHE_SHORT)
            return true;
    return false;
}

/* Adds all that add() takes, one batch after the other; returns false for a
 * part that is wrong. */
static bool adds_right(const struct gpt_parts_ways *ways,
                       const struct gpt_cache *cache, const struct cut *c)
{
    static struct gpt_parts b;
    size_t piece = 0;

    b.text = c->text;
    b.len = c->len;
    for (size_t i = 0; i < c->n;) {
        b.n = 0;
        b.begin = c->s[i].at;
        const size_t done = ways->add(&b, cache, 0, c->s + i, c->n - i);

        if (i + done > c->n || !parts_right(&b, c, piece))
            return false;
        piece += b.n;
        i += done;
        if (i == c->n)
            break;
        if (!may_leave(&b, c, i, piece))
            return false;
        if (b.n + GPT_STRETCH <= GPT_PARTS)
            piece += (size_t)__builtin_popcountll(c->s[i++].begins);
    }
    return piece == c->n_pieces;
}

static void test_add(const char *isa, const struct gpt_cache *cache, char *end)
{
    static struct cut c;
    const struct gpt_parts_ways *ways = gpt_parts_ways_of(isa);
    long wrong = 0, miscounted = 0;

    for (int round = 0; round < 4000; round++) {
        draw_cut(&c, end, round % 4 ? 2 + draw(14) : 40);
        miscounted += count_pieces(&c) != (int)c.n_pieces;
        wrong += ways->add && !adds_right(ways, cache, &c);
    }
    is_int(miscounted, 0, "ends are as many as begins");
    if (ways->add)
        is_int(wrong, 0, "%s: keys of random stretches", isa);
    else
        skip("no keys by vectors of %s", isa);
}

/* ---- the cache ---- */

enum { PIECES = 3000, MOST = 12 };

/* What the test knows of a piece. */
struct known {
    char text[16];
    size_t len, n;
    int32_t ids[MOST];
};

static struct known pieces[PIECES];

static void draw_pieces(uint32_t vocabulary)
{
    for (int i = 0; i < PIECES; i++) {
        struct known *p = &pieces[i];

        p->len = (size_t)snprintf(p->text, sizeof(p->text), "%s%d",
                                  i % 3 ? "" : " words ", i);
        p->n = 1 + draw(MOST);
        for (size_t k = 0; k < p->n; k++)
            p->ids[k] = (int32_t)(draw(4) ? draw(vocabulary) : vocabulary - 1);
    }
}

static bool same_ids(const struct known *p, const int32_t *ids, size_t n)
{
    return n == p->n && memcmp(ids, p->ids, n * sizeof(*ids)) == 0;
}

/* Asks for random pieces, and puts those that are not known. */
static long count_wrong(struct gpt_cache *cache, struct gpt_ids *ids,
                        long *found)
{
    long wrong = 0;

    for (int round = 0; round < 40000; round++) {
        const struct known *p = &pieces[draw(draw(PIECES) + 1)];
        const struct gpt_cache_key key =
            gpt_cache_key_at_end(p->text, p->len);
        struct gpt_err err;
        bool known;

        ids->len = 0;
        if (gpt_cache_add(cache, gpt_cache_at(cache, gpt_cache_place(key)), key,
                          ids, &known, &err) != GPT_OK)
            return -1;
        if (known) {
            wrong += !same_ids(p, ids->data, ids->len);
            ++*found;
        } else {
            gpt_cache_put(cache, key, p->ids, p->n);
        }
    }
    return wrong;
}

/* Writes batches of random pieces; what a form leaves is asked of the cache. */
static long count_unlike(const struct gpt_parts_ways *ways,
                         struct gpt_cache *cache, struct gpt_ids *ids)
{
    static struct gpt_parts b;
    static int drawn[GPT_PARTS];
    long unlike = 0;

    for (int round = 0; round < 300; round++) {
        b.n = 1 + draw(GPT_PARTS);
        for (size_t i = 0; i < b.n; i++) {
            const struct known *p = &pieces[drawn[i] = (int)draw(PIECES)];

            b.keys[i] = gpt_cache_key_at_end(p->text, p->len);
            b.places[i] = draw(9) ? gpt_cache_place(b.keys[i])
                                  : GPT_CACHE_NOWHERE;
        }
        for (size_t i = 0; i < b.n; i++) {
            int32_t *out = ids->data;
            const size_t first = i;

            i = ways->write(&b, cache, i, &out);
            const int32_t *from = ids->data;
            for (size_t k = first; k < i; k++) {
                const struct known *p = &pieces[drawn[k]];

                unlike += memcmp(from, p->ids, p->n * sizeof(*from)) != 0;
                from += p->n;
            }
            unlike += from != out;
            if (i < b.n) {
                const struct gpt_cache_entry *e =
                    gpt_cache_at(cache, b.places[i])->entry;

                unlike += gpt_cache_same(e->key, b.keys[i]);
            }
        }
    }
    return unlike;
}

static void test_cache(uint32_t vocabulary)
{
    static const char *const isas[] = {"base", "avx2", "avx512"};
    struct gpt_ids ids = {.data = NULL};
    struct gpt_cache cache;
    struct gpt_err err;
    long found = 0;

    if (gpt_cache_open(&cache, vocabulary, &err) != GPT_OK ||
        gpt_ids_reserve(&ids, GPT_PARTS_IDS, &err) != GPT_OK) {
        ok(false, "%s", err.text);
        return;
    }
    draw_pieces(vocabulary);
    is_int(count_wrong(&cache, &ids, &found), 0, "%u tokens: what is known",
           vocabulary);
    ok(found > 20000, "and that is most of it");
    for (size_t i = 0; i < GPT_COUNT(isas); i++) {
        if (!gpt_cpu_has(isas[i])) {
            skip("no %s here", isas[i]);
            continue;
        }
        is_int(count_unlike(gpt_parts_ways_of(isas[i]), &cache, &ids), 0,
               "%u tokens, %s: ids of batches", vocabulary, isas[i]);
    }
    gpt_cache_close(&cache);
    gpt_free(ids.data);
}

int main(void)
{
    struct gpt_cache cache;
    struct gpt_err err;
    char *end = open_page(1 << 16);

    if (!end || gpt_cache_open(&cache, 1000, &err) != GPT_OK) {
        printf("Bail out! no memory\n");
        return 1;
    }
    test_add("base", &cache, end);
    test_add("avx512", &cache, end);
    gpt_cache_close(&cache);
    test_cache(50257);
    test_cache(65536);
    test_cache(65537);
    test_cache(1 << 21);
    return tap_done();
}
