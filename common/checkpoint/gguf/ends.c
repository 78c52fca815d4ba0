/* Tokens that begin and end texts, from the keys of a GGUF file. Start at
 * gpt_gguf_read_ends(). */
#include "checkpoint/gguf/internal.h"

/* What ends an answer of a chat ends a text, beside the end of documents. */
static int read_end_of_turn(struct gpt_source *s, struct gpt_gguf *g,
                            struct gpt_err *err)
{
    int64_t id = -1;

    GPT_TRY(gpt_gguf_int(g, "tokenizer.ggml.eot_token_id", 0, UINT32_MAX,
                         &id, err));
    if (id < 0 || id >= s->config.vocab_size || id == s->eos_token_id)
        return GPT_OK;
    if (s->eos_token_id >= 0)
        s->ends.ids[s->ends.n++] = (int32_t)s->eos_token_id;
    s->ends.ids[s->ends.n++] = (int32_t)id;
    return GPT_OK;
}

/* Ids beyond the table are a way of saying that there is none: some writers
 * fill in 2^32 - 1. */
int gpt_gguf_read_ends(struct gpt_source *s, struct gpt_gguf *g,
                       struct gpt_err *err)
{
    const struct {
        const char *key;
        int64_t *id;
    } rows[] = {{"tokenizer.ggml.bos_token_id", &s->bos_token_id},
                {"tokenizer.ggml.eos_token_id", &s->eos_token_id}};

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        int64_t id = GPT_TOKEN_NONE;

        GPT_TRY(gpt_gguf_int(g, rows[i].key, 0, UINT32_MAX, &id, err));
        *rows[i].id = id < s->config.vocab_size ? id : GPT_TOKEN_NONE;
    }
    return read_end_of_turn(s, g, err);
}
