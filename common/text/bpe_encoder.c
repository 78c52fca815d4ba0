/* Encoding of bpe_encoder.h. Start at gpt_bpe_encode(). */
#include "text/bpe_encoder.h"

#include "base/memory.h"
#include "text/token_map.h"

enum { BATCH = 32 }; /* pieces */

int gpt_bpe_encoder_open(struct gpt_bpe_encoder *e,
                         const struct gpt_bpe_model *model,
                         struct gpt_err *err)
{
    *e = (struct gpt_bpe_encoder){.model = model};
    return gpt_cache_open(&e->cache, err);
}

void gpt_bpe_encoder_close(struct gpt_bpe_encoder *e)
{
    gpt_cache_close(e->cache);
    gpt_bpe_scratch_free(&e->scratch);
}

static int32_t whole_token(const struct gpt_bpe_model *model,
                           const struct gpt_cache_probe *piece)
{
    return model->whole
               ? gpt_token_map_find(model->whole, piece->piece, piece->len)
               : -1;
}

static int encode_new(struct gpt_bpe_encoder *e,
                      const struct gpt_cache_probe *piece,
                      struct gpt_ids *ids, struct gpt_err *err)
{
    size_t before = ids->len;
    int32_t whole = whole_token(e->model, piece);
    if (whole >= 0)
        ids->data[ids->len++] = whole;
    else
        GPT_TRY(gpt_bpe_merge(e->model->bpe, &e->scratch, piece->piece,
                              piece->len, ids, err));
    gpt_cache_put(e->cache, piece, ids->data + before, ids->len - before);
    return GPT_OK;
}

static int encode_piece(struct gpt_bpe_encoder *e,
                        const struct gpt_cache_probe *piece,
                        struct gpt_ids *ids, struct gpt_err *err)
{
    /* what a piece in the cache can need */
    size_t room = (piece->len < GPT_CACHE_LONG ? piece->len : GPT_CACHE_LONG) +
                  GPT_CACHE_IDS;
    if (ids->cap - ids->len < room)
        GPT_TRY(gpt_grow(&ids->data, &ids->cap, ids->len + room,
                         sizeof(*ids->data), "token ids", err));
    if (gpt_cache_get(e->cache, piece, ids))
        return GPT_OK;
    return encode_new(e, piece, ids, err);
}

/* In batches: the text is cut some pieces ahead, so that their entries in the
 * cache are there when they are looked at. */
int gpt_bpe_encode(struct gpt_bpe_encoder *e, const char *text, size_t len,
                   struct gpt_ids *ids, struct gpt_err *err)
{
    struct gpt_cache_probe batch[BATCH];
    while (len) {
        size_t n = 0;
        while (len && n < BATCH) {
            size_t piece = e->model->pretok(text, len);
            gpt_cache_aim(e->cache, text, piece, len, &batch[n++]);
            text += piece;
            len -= piece;
        }
        for (size_t i = 0; i < n; i++)
            GPT_TRY(encode_piece(e, &batch[i], ids, err));
    }
    return GPT_OK;
}
