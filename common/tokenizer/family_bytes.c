/* ByteTokenizer: the id of a byte is the byte, and one id more ends a document.
 * It needs no vocabulary and gives any bytes back as they were. */
#include "tokenizer/family.h"

#include <string.h>

enum { BYTES_EOD = 256, BYTES_VOCAB };

/* A token's bytes must outlive the call that asks for them. */
struct byte_tokenizer {
    struct gpt_tokenizer base;
    char bytes[256]; /* what token_bytes() points into */
};

static int bytes_open(struct gpt_tokenizer **tok,
                      const struct gpt_tokenizer_options *options,
                      struct gpt_err *err)
{
    struct byte_tokenizer *t;

    (void)options;
    GPT_TRY(gpt_new(&t, 1, sizeof(*t), "a tokenizer", err));
    t->base = (struct gpt_tokenizer){.family = &gpt_family_bytes,
                                     .vocab_size = BYTES_VOCAB,
                                     .eod = BYTES_EOD};
    for (int i = 0; i < 256; i++)
        t->bytes[i] = (char)i;
    *tok = &t->base;
    return GPT_OK;
}

static void bytes_close(struct gpt_tokenizer *tok)
{
    gpt_free(tok);
}

/* Every string of bytes has ids, also one that is not UTF-8. So only memory can
 * fail here. */
static int bytes_encode(struct gpt_encoder *enc, const char *text, size_t len,
                        struct gpt_ids *ids, struct gpt_err *err)
{
    (void)enc;
    GPT_TRY(gpt_ids_reserve(ids, len, err));
    for (size_t i = 0; i < len; i++)
        ids->data[ids->len + i] = (uint8_t)text[i];
    ids->len += len;
    return GPT_OK;
}

/* The end of a document has no byte; it is printed under its usual name. */
static const char *bytes_token(const struct gpt_tokenizer *tok, int32_t id,
                               size_t *len)
{
    if (id == BYTES_EOD) {
        *len = strlen("<|endoftext|>");
        return "<|endoftext|>";
    }
    *len = 1;
    return &((const struct byte_tokenizer *)tok)->bytes[id];
}

const struct gpt_tokenizer_family gpt_family_bytes = {
    .type = "ByteTokenizer",
    .open = bytes_open,
    .close = bytes_close,
    .encoder_open = gpt_plain_encoder_open,
    .encoder_close = gpt_plain_encoder_close,
    .encode = bytes_encode,
    .token_bytes = bytes_token,
};
