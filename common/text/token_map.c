/* See token_map.h. */
#include "text/token_map.h"

#include "base/hash.h"
#include "base/memory.h"

#include <string.h>

int gpt_token_map_open(struct gpt_token_map *map,
                       const struct gpt_slice *tokens, size_t n,
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

static int32_t *find_slot(const struct gpt_token_map *map, const char *bytes,
                          size_t len)
{
    size_t i = (size_t)gpt_hash64(bytes, len, 0) & map->mask;
    for (;; i = (i + 1) & map->mask) {
        int32_t id = map->slots[i] - 1;
        if (id < 0 || (map->tokens[id].len == len &&
                       memcmp(map->tokens[id].data, bytes, len) == 0))
            return &map->slots[i];
    }
}

int32_t gpt_token_map_add(struct gpt_token_map *map, int32_t id)
{
    const struct gpt_slice *token = &map->tokens[id];
    int32_t *slot = find_slot(map, token->data, token->len);
    int32_t before = *slot - 1;
    if (before < 0)
        *slot = id + 1;
    return before;
}

int32_t gpt_token_map_find(const struct gpt_token_map *map, const char *bytes,
                           size_t len)
{
    return *find_slot(map, bytes, len) - 1;
}
