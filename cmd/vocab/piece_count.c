/* Distinct pieces and their counts: see piece_count.h. A hash table with open
 * addressing over one block of text: 24 bytes an entry, and no allocation a
 * piece, of which a corpus has tens of millions. Start at
 * gpt_piece_counter_add(). */
#include "cmd/vocab/piece_count.h"

#include "base/hash.h"
#include "base/memory.h"

#include <assert.h>
#include <string.h>

struct entry {
    uint64_t begin; /* in text */
    int64_t count;  /* 0 = free */
    uint32_t len;
    uint32_t hash; /* the place in the table, too: at most 2^32 entries */
};

struct gpt_piece_counter {
    struct entry *entry;
    size_t n, n_entries; /* used; all, a power of two */
    struct gpt_buf text;
};

/* A power of two, as places are taken by a mask. */
enum { FIRST_ENTRIES = 1 << 12 };
static const size_t max_pieces = (size_t)1 << 31;

int gpt_piece_counter_open(struct gpt_piece_counter **counter,
                           struct gpt_err *err)
{
    struct gpt_piece_counter *c;

    GPT_TRY(gpt_new(&c, 1, sizeof(*c), "piece counter", err));
    c->n_entries = FIRST_ENTRIES;
    int status = gpt_new(&c->entry, c->n_entries, sizeof(*c->entry),
                         "piece counter", err);
    if (status != GPT_OK)
        gpt_free(c);
    else
        *counter = c;
    return status;
}

void gpt_piece_counter_close(struct gpt_piece_counter *c)
{
    if (!c)
        return;
    gpt_free(c->entry);
    gpt_buf_free(&c->text);
    gpt_free(c);
}

/* Doubles the table. Entries keep their hashes: no text is read again. */
static int grow_table(struct gpt_piece_counter *c, struct gpt_err *err)
{
    struct entry *bigger;
    size_t n = c->n_entries * 2;

    /* Half of what 32 bits can place: the table is never full. */
    if (c->n >= max_pieces)
        return gpt_fail(err, GPT_EDATA, "more than %zu distinct pieces",
                        max_pieces);
    GPT_TRY(gpt_new(&bigger, n, sizeof(*bigger), "distinct pieces", err));
    for (size_t i = 0; i < c->n_entries; i++) {
        const struct entry *e = &c->entry[i];

        if (e->count == 0)
            continue;
        size_t at = e->hash & (n - 1);
        /* Linear probing: the next entry is in the same cache line more often
         * than not. */
        while (bigger[at].count)
            at = (at + 1) & (n - 1);
        bigger[at] = *e;
    }
    gpt_free(c->entry);
    c->entry = bigger;
    c->n_entries = n;
    return GPT_OK;
}

/* Fills the free entry that the search ended at. The table is at most two
 * thirds full, so that a search always ends. */
static int insert_piece(struct gpt_piece_counter *c, struct entry *e,
                        const char *piece, size_t len, uint32_t hash,
                        int64_t count, struct gpt_err *err)
{
    if (len > UINT32_MAX)
        return gpt_fail(err, GPT_EDATA,
                        "a piece of %zu bytes without a break is longer than "
                        "2^32 - 1", len);
    assert(e->count == 0 && count > 0);
    uint64_t begin = c->text.len;
    if (gpt_buf_add(&c->text, piece, len) != GPT_OK)
        return gpt_fail(err, GPT_EFAIL,
                        "cannot allocate %zu bytes for distinct pieces",
                        c->text.len + len);
    *e = (struct entry){begin, count, (uint32_t)len, hash};
    c->n++;
    return c->n * 3 > c->n_entries * 2 ? grow_table(c, err) : GPT_OK;
}

/* The hash has no secret key: an input that collides on purpose only makes its
 * own run slow. */
int gpt_piece_counter_add(struct gpt_piece_counter *c, const char *piece,
                          size_t len, int64_t count, struct gpt_err *err)
{
    uint32_t hash = (uint32_t)gpt_hash64(piece, len, 0);

    for (size_t i = hash;; i++) {
        struct entry *e = &c->entry[i & (c->n_entries - 1)];

        if (e->count == 0)
            return insert_piece(c, e, piece, len, hash, count, err);
        /* The hash is compared first: the text is another cache miss. */
        if (e->hash == hash && e->len == len &&
            memcmp(c->text.data + e->begin, piece, len) == 0) {
            e->count += count;
            return GPT_OK;
        }
    }
}

/* `pretok` is the rule that also cuts text when it is encoded: a merge that is
 * learnt here can be used there. */
int gpt_piece_counter_text(struct gpt_piece_counter *c, gpt_pretok_fn *pretok,
                           const char *text, size_t len, struct gpt_err *err)
{
    while (len) {
        size_t n = pretok(text, len);

        assert(n >= 1 && n <= len);
        GPT_TRY(gpt_piece_counter_add(c, text, n, 1, err));
        text += n;
        len -= n;
    }
    return GPT_OK;
}

/* Which counter a piece was in does not show in the sums. Only the order of the
 * list may differ. */
int gpt_piece_counter_merge(struct gpt_piece_counter *to,
                            const struct gpt_piece_counter *from,
                            struct gpt_err *err)
{
    for (size_t i = 0; i < from->n_entries; i++) {
        const struct entry *e = &from->entry[i];

        if (e->count)
            GPT_TRY(gpt_piece_counter_add(to, from->text.data + e->begin,
                                          e->len, e->count, err));
    }
    return GPT_OK;
}

size_t gpt_piece_counter_size(const struct gpt_piece_counter *c)
{
    return c->n;
}

int gpt_piece_counter_list(const struct gpt_piece_counter *c,
                           struct gpt_word **list, struct gpt_err *err)
{
    struct gpt_word *p;

    /* The list points into the counter's text: the counter must outlive it, and
     * count nothing more. */
    GPT_TRY(gpt_new(&p, c->n, sizeof(*p), "list of pieces", err));
    *list = p;
    for (size_t i = 0; i < c->n_entries; i++) {
        const struct entry *e = &c->entry[i];

        if (e->count)
            *p++ = (struct gpt_word){c->text.data + e->begin, e->len,
                                      e->count};
    }
    return GPT_OK;
}
