/* Pairs as tokens; see pair.h. Start at gpt_pair_encode(). */
#include "generate/pair.h"

#include "base/utf8.h"
#include "text/unicode.h"

#include <string.h>

/* Spaces at a context's end belong to the continuation, since a token begins
 * with its space. */
int gpt_pair_of_text(struct gpt_pair *pair, const char *text, size_t len,
                     struct gpt_err *err)
{
    size_t at = len;

    while (at > 0 && text[at - 1] != ' ')
        at--;
    if (at == 0)
        return gpt_fail(err, GPT_EDATA,
                        "no continuation, and the text has no last word");
    *pair = (struct gpt_pair){text, text + at - 1, at - 1, len - at + 1};
    return GPT_OK;
}

/* The encoder is the caller's. */
void gpt_pair_encoder_free(struct gpt_pair_encoder *e)
{
    gpt_free(e->ids.data);
    gpt_free(e->context.data);
    gpt_buf_free(&e->text);
}

/* The token is one of the context, as nothing predicts it. */
static int add_begin(struct gpt_pair_encoder *e, struct gpt_err *err)
{
    if (e->begin < 0)
        return gpt_fail(err, GPT_EDATA,
                        "the vocabulary has no end-of-document token to begin "
                        "with");
    GPT_TRY(gpt_ids_add(&e->ids, &e->begin, 1, err));
    return gpt_ids_add(&e->context, &e->begin, 1, err);
}

/* Bytes of a context before the white space at its end, of any script: the
 * harness strips it as Python does. */
static size_t stripped(const char *p, size_t len)
{
    while (len > 0) {
        size_t at = len - 1;
        uint32_t cp = 0;

        while (at > 0 && ((unsigned char)p[at] & 0xC0) == 0x80)
            at--;
        const int n = gpt_utf8_decode((const uint8_t *)p + at, len - at, &cp);
        if (n != (int)(len - at) || !gpt_unicode_is_blank(cp))
            break;
        len = at;
    }
    return len;
}

/* The pair is encoded together, and its tokens past as many as the context
 * alone has are the continuation. Where a token reaches over the seam, the
 * context is not what is before them, but has its own tokens, as in the
 * harness: that is what the model has seen of it. A context without tokens,
 * which need not be an empty one, is the beginning of a text: what the
 * tokenizer puts there, or else the token of the caller. What a tokenizer puts
 * after a text is no part of either. */
int gpt_pair_encode(struct gpt_pair_encoder *e, const struct gpt_pair *pair,
                    int64_t *first, struct gpt_err *err)
{
    const size_t len = stripped(pair->context, pair->context_len);

    if (pair->continuation_len == 0)
        return gpt_fail(err, GPT_EDATA, "the continuation is empty");
    e->text.len = e->ids.len = e->context.len = 0;
    if (gpt_buf_add(&e->text, pair->context, pair->context_len) != GPT_OK ||
        gpt_buf_add(&e->text, pair->continuation, pair->continuation_len) !=
            GPT_OK)
        return gpt_no_memory(err, "a pair");
    if (e->begins)
        GPT_TRY(add_begin(e, err));
    GPT_TRY(gpt_encode_as(e->encoder, GPT_AROUND_BEFORE, pair->context, len,
                          &e->context, err));
    if (e->context.len == 0)
        GPT_TRY(add_begin(e, err));
    GPT_TRY(gpt_encode_as(e->encoder, GPT_AROUND_BEFORE, e->text.data,
                          e->text.len, &e->ids, err));
    *first = (int64_t)e->context.len;
    if (*first >= (int64_t)e->ids.len)
        return gpt_fail(err, GPT_EDATA,
                        "the continuation adds no token to its context");
    memcpy(e->ids.data, e->context.data, e->context.len * sizeof(int32_t));
    return GPT_OK;
}
