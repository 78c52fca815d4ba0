/* GPT2BPETokenizer: GPT-2's pieces, each looked up among those seen before and
 * merged if it is new. Start at gpt2_encode(). */
#include "base/memory.h"
#include "text/bpe.h"
#include "text/bpe_cache.h"
#include "text/pretok.h"
#include "text/tokenizer_family.h"
#include "text/vocab.h"

enum { BATCH = 32 }; /* pieces */

struct gpt2_tokenizer {
    struct gpt_tokenizer base;
    struct gpt_vocab vocab;
    struct gpt_bpe *bpe;
};

struct gpt2_encoder {
    struct gpt_encoder base;
    const struct gpt_bpe *bpe;
    struct gpt_cache *cache;
    struct gpt_bpe_scratch scratch;
};

static void gpt2_close(struct gpt_tokenizer *tok)
{
    struct gpt2_tokenizer *t = (struct gpt2_tokenizer *)tok;
    gpt_bpe_close(t->bpe);
    gpt_vocab_free(&t->vocab);
    gpt_free(t);
}

static int gpt2_open(struct gpt_tokenizer **tok,
                     const struct gpt_tokenizer_options *options,
                     struct gpt_err *err)
{
    if (!options->vocab_file || !options->merge_file)
        return gpt_fail(err, GPT_EUSAGE, "GPT2BPETokenizer needs %s",
                        options->vocab_file ? "--merge-file" : "--vocab-file");
    struct gpt2_tokenizer *t;
    GPT_TRY(gpt_new(&t, 1, sizeof(*t), "a tokenizer", err));
    int status = gpt_vocab_load(&t->vocab, options->vocab_file,
                                options->merge_file, err);
    if (status == GPT_OK)
        status = gpt_bpe_open(&t->bpe, &t->vocab, options->merge_file, err);
    if (status != GPT_OK) {
        gpt2_close(&t->base);
        return status;
    }
    t->base = (struct gpt_tokenizer){&gpt_family_gpt2, t->vocab.n,
                                     t->vocab.eod};
    *tok = &t->base;
    return GPT_OK;
}

static int gpt2_encoder_open(struct gpt_encoder **enc,
                             const struct gpt_tokenizer *tok,
                             struct gpt_err *err)
{
    struct gpt2_encoder *e;
    GPT_TRY(gpt_new(&e, 1, sizeof(*e), "an encoder", err));
    int status = gpt_cache_open(&e->cache, err);
    if (status != GPT_OK) {
        gpt_free(e);
        return status;
    }
    e->base.tok = tok;
    e->bpe = ((const struct gpt2_tokenizer *)tok)->bpe;
    *enc = &e->base;
    return GPT_OK;
}

static void gpt2_encoder_close(struct gpt_encoder *enc)
{
    struct gpt2_encoder *e = (struct gpt2_encoder *)enc;
    gpt_cache_close(e->cache);
    gpt_bpe_scratch_free(&e->scratch);
    gpt_free(e);
}

static int encode_new(struct gpt2_encoder *e,
                      const struct gpt_cache_probe *piece,
                      struct gpt_ids *ids, struct gpt_err *err)
{
    size_t before = ids->len;
    GPT_TRY(gpt_bpe_merge(e->bpe, &e->scratch, piece->piece, piece->len, ids,
                          err));
    gpt_cache_put(e->cache, piece, ids->data + before, ids->len - before);
    return GPT_OK;
}

static int encode_piece(struct gpt2_encoder *e,
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
static int gpt2_encode(struct gpt_encoder *enc, const char *text, size_t len,
                       struct gpt_ids *ids, struct gpt_err *err)
{
    struct gpt2_encoder *e = (struct gpt2_encoder *)enc;
    struct gpt_cache_probe batch[BATCH];
    while (len) {
        size_t n = 0;
        while (len && n < BATCH) {
            size_t piece = gpt_pretok_gpt2(text, len);
            gpt_cache_aim(e->cache, text, piece, len, &batch[n++]);
            text += piece;
            len -= piece;
        }
        for (size_t i = 0; i < n; i++)
            GPT_TRY(encode_piece(e, &batch[i], ids, err));
    }
    return GPT_OK;
}

static const char *gpt2_token(const struct gpt_tokenizer *tok, int32_t id,
                              size_t *len)
{
    const struct gpt_slice *token =
        &((const struct gpt2_tokenizer *)tok)->vocab.tokens[id];
    *len = token->len;
    return token->data;
}

const struct gpt_tokenizer_family gpt_family_gpt2 = {
    .type = "GPT2BPETokenizer",
    .open = gpt2_open,
    .close = gpt2_close,
    .encoder_open = gpt2_encoder_open,
    .encoder_close = gpt2_encoder_close,
    .encode = gpt2_encode,
    .token_bytes = gpt2_token,
};
