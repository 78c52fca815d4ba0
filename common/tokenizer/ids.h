/* Token ids: a list of them that grows, and the limits that hold for every
 * vocabulary. */
#ifndef GPT_TOKENIZER_IDS_H
#define GPT_TOKENIZER_IDS_H

#include "base/memory.h"

enum {
    GPT_VOCAB_MAX = 1 << 21,      /* tokens of a vocabulary */
    GPT_VOCAB_FILE_MAX = 1 << 28, /* bytes of a file that holds one */
    GPT_TOKEN_MAX = 1 << 16,      /* bytes of a token */
};

struct gpt_ids {
    int32_t *data; /* freed with gpt_free() */
    size_t len, cap;
};

/* Makes room for n more ids; those written are counted by the caller. */
static inline int gpt_ids_reserve(struct gpt_ids *ids, size_t n,
                                  struct gpt_err *err)
{
    return gpt_grow(&ids->data, &ids->cap, ids->len + n, sizeof(*ids->data),
                    "token ids", err);
}

/* Appends n ids. */
static inline int gpt_ids_add(struct gpt_ids *ids, const int32_t *more,
                              size_t n, struct gpt_err *err)
{
    GPT_TRY(gpt_ids_reserve(ids, n, err));
    if (n)
        memcpy(ids->data + ids->len, more, n * sizeof(*more));
    ids->len += n;
    return GPT_OK;
}

#endif
