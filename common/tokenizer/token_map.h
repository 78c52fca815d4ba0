/* Tokens found by their bytes: a hash table over a vocabulary of at most
 * GPT_VOCAB_MAX. Shared by threads, never written after it was filled. */
#ifndef GPT_TOKENIZER_TOKEN_MAP_H
#define GPT_TOKENIZER_TOKEN_MAP_H

#include "base/status.h"
#include "text/str.h"

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

/* Enters tokens[id], unless its bytes are there: then returns the id that has
 * them, which stays. -1 otherwise. At most the n of gpt_token_map_open(). */
int32_t gpt_token_map_add(struct gpt_token_map *map, int32_t id);
/* The id of some bytes, -1 when no token has them. */
int32_t gpt_token_map_find(const struct gpt_token_map *map, const char *bytes,
                           size_t len);

#endif
