/* Open addressing over the tokens' bytes, with the ids as entries: the bytes
 * themselves stay with the owner of the tokens. Start at find_slot(). */
#include "tokenizer/token_map.h"

#include "base/hash.h"
#include "tokenizer/ids.h"

#include <assert.h>
#include <string.h>

/* The bits of an entry that hold an id + 1; the others are the tag. */
#define ID_MASK ((uint32_t)GPT_VOCAB_MAX * 2 - 1)

int gpt_token_map_open(struct gpt_token_map *map,
                       const struct gpt_str *tokens, size_t n,
                       struct gpt_err *err)
{
    size_t n_slots = 512;

    while (n_slots < n * 2)
        n_slots *= 2;
    *map = (struct gpt_token_map){.tokens = tokens, .mask = n_slots - 1};
    return gpt_new(&map->slots, n_slots, sizeof(*map->slots), "a vocabulary",
                   err);
}

void gpt_token_map_close(struct gpt_token_map *map)
{
    gpt_free(map->slots);
    *map = (struct gpt_token_map){0};
}

/* The slot of some bytes, or the free one where they belong. An entry has bits
 * of the hash beside the id, the tag, which tell most other tokens apart
 * without a read of their bytes. The place comes from the hash's low bits and
 * the tag from its high ones, so that neighbours in the table differ in it. */
static uint32_t *find_slot(const struct gpt_token_map *map, const char *bytes,
                           size_t len, uint32_t *tag)
{
    uint64_t hash = gpt_hash64(bytes, len, 0);

    *tag = (uint32_t)(hash >> 32) & ~ID_MASK;
    for (size_t i = (size_t)hash & map->mask;; i = (i + 1) & map->mask) {
        uint32_t slot = map->slots[i];

        if (!slot)
            return &map->slots[i];
        const struct gpt_str *token = &map->tokens[(slot & ID_MASK) - 1];
        if ((slot & ~ID_MASK) == *tag && token->len == len &&
            memcmp(token->data, bytes, len) == 0)
            return &map->slots[i];
    }
}

static int32_t id_of(uint32_t slot)
{
    return (int32_t)(slot & ID_MASK) - 1;
}

int32_t gpt_token_map_add(struct gpt_token_map *map, int32_t id)
{
    const struct gpt_str *token = &map->tokens[id];

    assert(id >= 0 && (uint32_t)id + 1 <= ID_MASK);
    uint32_t tag, *slot = find_slot(map, token->data, token->len, &tag);
    int32_t before = id_of(*slot);

    if (before < 0)
        *slot = tag | ((uint32_t)id + 1);
    return before;
}

int32_t gpt_token_map_find(const struct gpt_token_map *map, const char *bytes,
                           size_t len)
{
    uint32_t tag;

    return id_of(*find_slot(map, bytes, len, &tag));
}
