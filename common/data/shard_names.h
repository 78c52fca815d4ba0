/* Names of what shards write: "my-gpt2-00002-of-00008" is shard 2 of 8. Sorted
 * by their bytes they are in the order of the shards. */
#ifndef GPT_DATA_SHARD_NAMES_H
#define GPT_DATA_SHARD_NAMES_H

#include "base/memory.h"

enum { GPT_MAX_SHARDS = 99999 };

/* `name` with the shard after it; NULL when out of memory. */
const char *gpt_shard_name(struct gpt_arena *arena, const char *name,
                           int64_t shard, int64_t n_shards);

/* When all names are of shards of one division: the first shard that is not
 * among them, or that comes after one with a higher number; *what says which
 * of the two ("missing", "out of order"). 0 when there is none. */
int64_t gpt_shards_gap(const char *const *names, int64_t n, int64_t *n_shards,
                       const char **what);

#endif
