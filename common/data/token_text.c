/* Bytes of tokens; see token_text.h. A table is made once, as it is asked for
 * each token of a validation. */
#include "data/token_text.h"

#include "base/memory.h"

struct token {
    int32_t bytes; /* 0: no text */
    int32_t first; /* of a document's first token */
};

struct gpt_token_text {
    int64_t n;
    struct token *tokens; /* (n) */
};

/* Ids that the vocabulary lacks, as those of padding, are no text either. */
static void clear(struct gpt_token_text *t, int64_t id)
{
    if (id >= 0 && id < t->n)
        t->tokens[id] = (struct token){.bytes = 0};
}

int gpt_token_text_open(struct gpt_token_text **text,
                        const struct gpt_tokenizer *tokenizer,
                        const int64_t *others, size_t n, struct gpt_err *err)
{
    struct gpt_token_text *t;

    *text = NULL;
    GPT_TRY(gpt_new(&t, 1, sizeof(*t), "bytes of tokens", err));
    t->n = gpt_tokenizer_vocab_size(tokenizer);
    int status = gpt_new(&t->tokens, (size_t)t->n, sizeof(*t->tokens),
                         "bytes of tokens", err);
    if (status != GPT_OK) {
        gpt_token_text_close(t);
        return status;
    }
    for (int64_t i = 0; i < t->n; i++) {
        size_t len = 0;

        if (gpt_token_is_special(tokenizer, (int32_t)i))
            continue;
        (void)gpt_token_bytes(tokenizer, (int32_t)i, &len);
        t->tokens[i].bytes = (int32_t)len;
        (void)gpt_first_bytes(tokenizer, (int32_t)i, &len);
        t->tokens[i].first = (int32_t)len;
    }
    for (size_t i = 0; i < n; i++)
        clear(t, others[i]);
    *text = t;
    return GPT_OK;
}

void gpt_token_text_close(struct gpt_token_text *t)
{
    if (!t)
        return;
    gpt_free(t->tokens);
    gpt_free(t);
}

/* What is before the first token of a document is no text. A token that is but
 * the space is then no text of its own, and does not count. */
int64_t gpt_token_text_bytes(const struct gpt_token_text *t, int32_t before,
                             int32_t token)
{
    if (token < 0 || token >= t->n)
        return 0;
    const bool begins =
        before < 0 || before >= t->n || t->tokens[before].bytes == 0;

    return begins ? t->tokens[token].first : t->tokens[token].bytes;
}
