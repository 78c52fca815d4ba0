/* Merges out of ranks: a vocabulary that is only a list of tokens merges the
 * two neighbours whose bytes together are the first token in the list. That is
 * the same as a merge for each way to cut a token into two others, where all
 * merges of a token share a rank. Start at gpt_vocab_rank_tokens(). */
#include "tokenizer/token_map.h"
#include "tokenizer/vocab.h"

#include <assert.h>

/* Adds the merges that make a token: one for each cut into two tokens. Tokens
 * that no cut makes are reached only as whole pieces. */
static int rank_token(struct gpt_vocab *v, const struct gpt_token_map *map,
                      int32_t id, size_t *cap, struct gpt_err *err)
{
    const struct gpt_str *token = &v->tokens[id];

    for (size_t cut = 1; cut < token->len; cut++) {
        int32_t left = gpt_token_map_find(map, token->data, cut);

        if (left < 0)
            continue;
        int32_t right = gpt_token_map_find(map, token->data + cut,
                                           token->len - cut);
        if (right < 0)
            continue;
        GPT_TRY(gpt_grow(&v->merges, cap, v->n_merges + 1, sizeof(*v->merges),
                         "merges", err));
        v->merges[v->n_merges++] = (struct gpt_merge){left, right, id};
    }
    return GPT_OK;
}

/* tiktoken begins with single bytes, so each must be a token. */
static int find_bytes(struct gpt_vocab *v, const struct gpt_token_map *map,
                      const char *what, struct gpt_err *err)
{
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;

        v->byte_id[byte] = gpt_token_map_find(map, &c, 1);
        if (v->byte_id[byte] < 0)
            return gpt_fail(err, GPT_EDATA, "%s: no token for byte 0x%02x",
                            what, (unsigned)byte);
    }
    return GPT_OK;
}

int gpt_vocab_rank_tokens(struct gpt_vocab *v, const struct gpt_token_map *map,
                          const char *what, struct gpt_err *err)
{
    size_t cap = 0;

    assert(v->n_merges == 0);
    v->shared_ranks = true;
    GPT_TRY(find_bytes(v, map, what, err));
    for (int64_t id = 0; id < v->n; id++)
        GPT_TRY(rank_token(v, map, (int32_t)id, &cap, err));
    return GPT_OK;
}
