/* Tokens found by their bytes: a hash table over a vocabulary of at most
 * GPT_VOCAB_MAX. Shared by threads, never written after it was filled. */
#ifndef GPT_TOKENIZER_TOKEN_MAP_H
#define GPT_TOKENIZER_TOKEN_MAP_H

#include "text/jsonl.h"

struct gpt_token_map {
    const struct gpt_str *tokens; /* borrowed, by id */
    uint32_t *slots; /* bits of a hash, id + 1; 0 = free; at most half full */
    size_t mask;
};

/* Empty, with room for n of `tokens`. */
int gpt_token_map_open(struct gpt_token_map *map,
                       const struct gpt_str *tokens, size_t n,
                       struct gpt_err *err) GPT_MUST_USE;
void gpt_token_map_close(struct gpt_token_map *map); /* also an empty one */

/* Puts tokens[id] in. Returns the id that has the same bytes already, which
 * stays, or -1. */
int32_t gpt_token_map_add(struct gpt_token_map *map, int32_t id);
/* -1 when there is none. */
int32_t gpt_token_map_find(const struct gpt_token_map *map, const char *bytes,
                           size_t len);

#endif
