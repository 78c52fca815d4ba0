/* See late.h. */
#include "tokenizer/bpe/late.h"

#include <string.h>

_Static_assert((int)GPT_CACHE_SHORT == (int)GPT_BPE_MANY_BYTES,
               "a short piece fits");

int gpt_late_add(struct gpt_late *late, struct gpt_cache *cache,
                 const char *piece, struct gpt_cache_key key,
                 struct gpt_ids *ids, struct gpt_err *err)
{
    const size_t len = gpt_cache_key_len(key);

    if (late->n == GPT_BPE_MANY)
        gpt_late_settle(late, cache, ids);
    GPT_TRY(gpt_ids_reserve(ids, len, err));
    gpt_bpe_piece_begin(&late->pieces[late->n], late->pairs, piece, len);
    late->gaps[late->n++] = (struct gpt_gap){ids->len, key};
    ids->len += len;
    return GPT_OK;
}

void gpt_late_settle(struct gpt_late *late, struct gpt_cache *cache,
                     struct gpt_ids *ids)
{
    size_t to = late->n ? late->gaps[0].at : ids->len;

    late->merge(late->pieces, late->n, late->pairs);
    for (size_t i = 0; i < late->n; i++) {
        const struct gpt_gap *gap = &late->gaps[i];
        const size_t from = gap->at + gpt_cache_key_len(gap->key);
        const size_t end = i + 1 < late->n ? gap[1].at : ids->len;
        const size_t n = gpt_bpe_piece_ids(&late->pieces[i], ids->data + to);

        gpt_cache_put(cache, gap->key, ids->data + to, n);
        to += n;
        memmove(ids->data + to, ids->data + from,
                (end - from) * sizeof(*ids->data));
        to += end - from;
    }
    ids->len = to;
    late->n = 0;
}
