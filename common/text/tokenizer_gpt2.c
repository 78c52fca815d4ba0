/* GPT2BPETokenizer: vocab.json and merges.txt, GPT-2's pieces. */
#include "base/memory.h"
#include "text/bpe_encoder.h"
#include "text/tokenizer_family.h"
#include "text/vocab.h"

struct gpt2_tokenizer {
    struct gpt_tokenizer base;
    struct gpt_vocab vocab;
    struct gpt_bpe *bpe;
    struct gpt_bpe_model model;
};

struct gpt2_encoder {
    struct gpt_encoder base;
    struct gpt_bpe_encoder bpe;
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
    t->model = (struct gpt_bpe_model){.pretok = gpt_pretok_gpt2,
                                      .bpe = t->bpe};
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
    e->base.tok = tok;
    const struct gpt2_tokenizer *t = (const struct gpt2_tokenizer *)tok;
    int status = gpt_bpe_encoder_open(&e->bpe, &t->model, err);
    if (status != GPT_OK) {
        gpt_free(e);
        return status;
    }
    *enc = &e->base;
    return GPT_OK;
}

static void gpt2_encoder_close(struct gpt_encoder *enc)
{
    struct gpt2_encoder *e = (struct gpt2_encoder *)enc;
    gpt_bpe_encoder_close(&e->bpe);
    gpt_free(e);
}

static int gpt2_encode(struct gpt_encoder *enc, const char *text, size_t len,
                       struct gpt_ids *ids, struct gpt_err *err)
{
    struct gpt2_encoder *e = (struct gpt2_encoder *)enc;
    return gpt_bpe_encode(&e->bpe, text, len, ids, err);
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
