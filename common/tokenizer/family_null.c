/* NullTokenizer: a text is numbers with one space between, each an id. For
 * measurements without a vocabulary. Start at null_encode(). */
#include "tokenizer/family.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_SIZE = 1 << 24,
    CELL = 12, /* bytes of a token's text: a space, eight digits, a NUL */
};

/* The texts are made once, as token_bytes() hands out borrowed ones. */
struct null_tokenizer {
    struct gpt_tokenizer base;
    char (*texts)[CELL]; /* (vocab_size) " 17" */
};

/* Closes a tokenizer, even one whose texts could not be allocated. */
static void null_close(struct gpt_tokenizer *tok)
{
    gpt_free(((struct null_tokenizer *)tok)->texts);
    gpt_free(tok);
}

static int null_open(struct gpt_tokenizer **tok,
                     const struct gpt_tokenizer_options *o,
                     struct gpt_err *err)
{
    struct null_tokenizer *t;

    if (o->vocab_size < 1 || o->vocab_size >= MAX_SIZE)
        return gpt_fail(err, GPT_EUSAGE,
                        "NullTokenizer needs a vocabulary size of 1 to %d",
                        MAX_SIZE - 1);
    /* the last id is that of the end of a document */
    size_t n = (size_t)o->vocab_size + 1;
    GPT_TRY(gpt_new(&t, 1, sizeof(*t), "a tokenizer", err));
    t->base = (struct gpt_tokenizer){.family = &gpt_family_null,
                                     .vocab_size = (int64_t)n,
                                     .eod = (int32_t)o->vocab_size,
                                     .first_space = true,
                                     .unk = -1};
    int status = gpt_new(&t->texts, n, CELL, "a vocabulary", err);
    if (status != GPT_OK) {
        null_close(&t->base);
        return status;
    }
    for (size_t i = 0; i < n; i++)
        snprintf(t->texts[i], CELL, " %d", (int)i);
    *tok = &t->base;
    return GPT_OK;
}

/* The id that text[*at..] begins with; -1 when there is none in range. Digits
 * are read only while the number is in range, so that it cannot overflow. */
static int64_t read_id(const char *text, size_t len, size_t *at, int64_t limit)
{
    int64_t id = 0;
    size_t start = *at;

    while (*at < len && text[*at] >= '0' && text[*at] <= '9' && id < limit)
        id = id * 10 + (text[(*at)++] - '0');
    return *at > start && id < limit ? id : -1;
}

static int null_encode(struct gpt_encoder *enc, const char *text, size_t len,
                       struct gpt_ids *ids, struct gpt_err *err)
{
    for (size_t at = 0; at < len; at++) {
        size_t start = at;
        int64_t id = read_id(text, len, &at, enc->tok->vocab_size);

        /* one blank after a number, and a number after each blank */
        if (id < 0 || (at < len && text[at] != ' ') || at + 1 == len)
            return gpt_fail(err, GPT_EDATA,
                            "offset %zu of a text: here must be an id below "
                            "%lld; ids have one space between them", start,
                            (long long)enc->tok->vocab_size);
        const int32_t found = (int32_t)id;

        GPT_TRY(gpt_ids_add(ids, &found, 1, err));
    }
    return GPT_OK;
}

static const char *null_token(const struct gpt_tokenizer *tok, int32_t id,
                              size_t *len)
{
    const char *text = ((const struct null_tokenizer *)tok)->texts[id];

    *len = strlen(text);
    return text;
}

const struct gpt_tokenizer_family gpt_family_null = {
    .type = "NullTokenizer",
    .open = null_open,
    .close = null_close,
    .encoder_open = gpt_plain_encoder_open,
    .encoder_close = gpt_plain_encoder_close,
    .encode = null_encode,
    .token_bytes = null_token,
};
