/* Tokens that begin and end texts, from and to the keys of a GGUF file. Start
 * at gpt_gguf_read_ends(). */
#include "checkpoint/gguf/internal.h"

#include "base/log.h"

#define BOS "tokenizer.ggml.bos_token_id"
#define EOS "tokenizer.ggml.eos_token_id"

/* What ends a text beside the end of documents: the end of an answer, and that
 * of a message which calls a tool. llama.cpp stops at each of them. */
static const char *const more_ends[] = {"tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id"};

static int read_more_ends(struct gpt_source *s, struct gpt_gguf *g,
                          struct gpt_err *err)
{
    for (size_t i = 0; i < GPT_COUNT(more_ends); i++) {
        int64_t id = -1;

        GPT_TRY(gpt_gguf_int(g, more_ends[i], 0, UINT32_MAX, &id, err));
        if (id < 0 || id >= s->config.vocab_size || id == s->eos_token_id ||
            gpt_is_end(&s->ends, id))
            continue;
        if (s->ends.n == 0 && s->eos_token_id >= 0)
            s->ends.ids[s->ends.n++] = (int32_t)s->eos_token_id;
        s->ends.ids[s->ends.n++] = (int32_t)id;
    }
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
    } rows[] = {{BOS, &s->bos_token_id}, {EOS, &s->eos_token_id}};

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        int64_t id = GPT_TOKEN_NONE;

        GPT_TRY(gpt_gguf_int(g, rows[i].key, 0, UINT32_MAX, &id, err));
        *rows[i].id = id < s->config.vocab_size ? id : GPT_TOKEN_NONE;
    }
    return read_more_ends(s, g, err);
}

void gpt_gguf_put_ends(struct gpt_gguf_keys *k, int64_t bos, int64_t eos,
                       const struct gpt_end_ids *ends)
{
    size_t more = 0;

    if (bos >= 0)
        gpt_gguf_put_int(k, BOS, GPT_GGUF_U32, bos);
    if (eos >= 0)
        gpt_gguf_put_int(k, EOS, GPT_GGUF_U32, eos);
    for (int i = 0; i < ends->n; i++) {
        if (ends->ids[i] == eos)
            continue;
        if (more == GPT_COUNT(more_ends))
            gpt_warn("token %d ends a text of this model, and GGUF files have "
                     "no key for it: other programs go on past it",
                     (int)ends->ids[i]);
        else
            gpt_gguf_put_int(k, more_ends[more++], GPT_GGUF_U32, ends->ids[i]);
    }
}
