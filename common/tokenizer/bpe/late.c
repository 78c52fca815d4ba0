/* See late.h. Start at gpt_late_add(). */
#include "tokenizer/bpe/late.h"

#include <string.h>

_Static_assert((int)GPT_CACHE_SHORT == (int)GPT_BPE_MANY_BYTES,
               "a short piece fits");

void gpt_late_clear(struct gpt_late *late)
{
    late->n_gaps = late->n_pieces = 0;
    late->marks = 0;
}

/* Finds the number of a piece that waits already; n_pieces where it does not.
 * Most pieces do not, and nearly always a clear mark says so. */
static size_t find_waiting(const struct gpt_late *late,
                           struct gpt_cache_key key, uint64_t mark)
{
    size_t i = late->marks & mark ? 0 : late->n_pieces;

    while (i < late->n_pieces && !gpt_cache_same(late->keys[i], key))
        i++;
    return i;
}

int gpt_late_add(struct gpt_late *late, struct gpt_cache *cache,
                 const char *piece, struct gpt_cache_key key,
                 struct gpt_ids *ids, struct gpt_err *err)
{
    const size_t len = gpt_cache_key_len(key);
    const uint64_t hash = (key.word[0] ^ key.word[1]) * 0x9E3779B97F4A7C15u;
    const uint64_t mark = (uint64_t)1 << (hash >> 58);

    if (late->n_gaps == GPT_GAPS || late->n_pieces == GPT_BPE_MANY)
        gpt_late_settle(late, cache, ids);
    GPT_TRY(gpt_ids_reserve(ids, len, err));
    size_t i = find_waiting(late, key, mark);
    if (i == late->n_pieces) {
        gpt_bpe_piece_begin(&late->pieces[i], late->pairs, piece, len);
        late->keys[late->n_pieces++] = key;
        late->marks |= mark;
    }
    late->gaps[late->n_gaps++] = (struct gpt_gap){ids->len, i};
    ids->len += len;
    return GPT_OK;
}

void gpt_late_settle(struct gpt_late *late, struct gpt_cache *cache,
                     struct gpt_ids *ids)
{
    size_t to = late->n_gaps ? late->gaps[0].at : ids->len, put = 0;

    late->merge(late->pieces, late->n_pieces, late->pairs);
    for (size_t i = 0; i < late->n_gaps; i++) {
        const struct gpt_gap *gap = &late->gaps[i];
        const struct gpt_cache_key key = late->keys[gap->piece];
        const size_t from = gap->at + gpt_cache_key_len(key);
        const size_t end = i + 1 < late->n_gaps ? gap[1].at : ids->len;
        const size_t n =
            gpt_bpe_piece_ids(&late->pieces[gap->piece], ids->data + to);

        if (gap->piece == put) { /* its first gap */
            gpt_cache_put(cache, key, ids->data + to, n);
            put++;
        }
        to += n;
        memmove(ids->data + to, ids->data + from,
                (end - from) * sizeof(*ids->data));
        to += end - from;
    }
    ids->len = to;
    gpt_late_clear(late);
}
