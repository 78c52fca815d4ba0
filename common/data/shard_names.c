/* The names of shard_names.h. */
#include "data/shard_names.h"

#include <stdio.h>
#include <string.h>

const char *gpt_shard_name(struct gpt_arena *arena, const char *name,
                           int64_t shard, int64_t n_shards)
{
    return gpt_arena_printf(arena, "%s-%05lld-of-%05lld", name,
                            (long long)shard, (long long)n_shards);
}

/* The last "-IIIII-of-NNNNN" in a name. */
static bool parse_shard_name(const char *name, int64_t *shard,
                             int64_t *n_shards)
{
    /* "-00002-of-00008": fixed width, so that the order of the bytes is the
     * order of the numbers. The last one in a name counts, as a prefix may
     * itself be of a shard. */
    enum { LENGTH = 15 };
    int i, of, end;
    for (size_t at = strlen(name); at-- > 0;) {
        end = 0;
        if (name[at] == '-' &&
            sscanf(name + at, "-%5d-of-%5d%n", &i, &of, &end) == 2 &&
            end == LENGTH && i > 0 && of > 0) {
            *shard = i;
            *n_shards = of;
            return true;
        }
    }
    return false;
}

/* Names are expected in rising order, which is that of the documents. What is
 * missing does not depend on their order: a list that is out of order may lack
 * a shard, too, and only that loses documents. */
struct gpt_shards gpt_shards_of(const char *const *names, int64_t n)
{
    bool there[GPT_MAX_SHARDS + 1] = {false};
    struct gpt_shards s = {0};
    int64_t last = 0;

    for (int64_t i = 0; i < n; i++) {
        int64_t shard, of;

        if (!parse_shard_name(names[i], &shard, &of) ||
            (i > 0 && of != s.n))
            return (struct gpt_shards){0};
        s.n = of;
        if (shard <= last && !s.misplaced)
            s.misplaced = shard;
        there[shard] = true;
        last = shard;
    }
    for (int64_t shard = s.n; shard > 0; shard--)
        if (!there[shard])
            s.missing = shard;
    return s;
}
