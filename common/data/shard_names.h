/* Names of what shards write: "my-gpt2-00002-of-00008" is shard 2 of 8. Sorted
 * by their bytes they are in the order of the shards. */
#ifndef GPT_DATA_SHARD_NAMES_H
#define GPT_DATA_SHARD_NAMES_H

#include "base/memory.h"

enum { GPT_MAX_SHARDS = 99999 };

/* `name` with the shard after it; NULL when out of memory. */
const char *gpt_shard_name(struct gpt_arena *arena, const char *name,
                           int64_t shard, int64_t n_shards);

/* What names of shards of one division say. */
struct gpt_shards {
    int64_t n;         /* in how many parts; 0: not shards, or of several
                        * divisions */
    int64_t missing;   /* the first shard that is not among them, or 0 */
    int64_t misplaced; /* the first that comes after one with a higher number,
                        * or comes twice, or 0 */
};
struct gpt_shards gpt_shards_of(const char *const *names, int64_t n);

#endif
