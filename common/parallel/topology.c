/* The rank is a number in a mixed base, rank = tp + TP * (dp + DP * pp); a
 * group is what is left when some of its digits run. Start at
 * gpt_topology_group(). */
#include "parallel/topology.h"

#include "base/num.h"

int gpt_topology_init(struct gpt_topology *t, int64_t world_size, int64_t rank,
                      int64_t tp_size, int64_t pp_size, int64_t chunks,
                      struct gpt_err *err)
{
    int64_t model;

    *t = (struct gpt_topology){0};
    if (world_size < 1 || rank < 0 || rank >= world_size)
        return gpt_fail(err, GPT_EUSAGE, "rank %lld is not in a world of %lld",
                        (long long)rank, (long long)world_size);
    if (tp_size < 1 || pp_size < 1 || chunks < 1 ||
        !gpt_mul(tp_size, pp_size, &model))
        return gpt_fail(err, GPT_EUSAGE,
                        "--tensor-model-parallel-size %lld, "
                        "--pipeline-model-parallel-size %lld, chunks %lld: "
                        "not all at least 1",
                        (long long)tp_size, (long long)pp_size,
                        (long long)chunks);
    if (world_size % model != 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld ranks are not a multiple of "
                        "--tensor-model-parallel-size %lld x "
                        "--pipeline-model-parallel-size %lld",
                        (long long)world_size, (long long)tp_size,
                        (long long)pp_size);
    if (chunks > 1 && pp_size == 1)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld virtual stages need "
                        "--pipeline-model-parallel-size of at least 2",
                        (long long)chunks);
    t->world_size = world_size;
    t->rank = rank;
    t->tp_size = tp_size;
    t->pp_size = pp_size;
    t->dp_size = world_size / model;
    t->chunks = chunks;
    t->tp_rank = rank % tp_size;
    t->dp_rank = rank / tp_size % t->dp_size;
    t->pp_rank = rank / (tp_size * t->dp_size);
    return GPT_OK;
}

int64_t gpt_topology_rank(const struct gpt_topology *t, int64_t tp_rank,
                          int64_t dp_rank, int64_t pp_rank)
{
    return tp_rank + t->tp_size * (dp_rank + t->dp_size * pp_rank);
}

/* Which coordinates run within a group of each kind. */
static const struct {
    const char *name;
    bool tp, dp, pp;
    bool ends; /* of pp, the first and the last only */
} groups[GPT_N_GROUPS] = {
    [GPT_GROUP_WORLD] = {"world", true, true, true, false},
    [GPT_GROUP_TP] = {"tp", true, false, false, false},
    [GPT_GROUP_DP] = {"dp", false, true, false, false},
    [GPT_GROUP_PP] = {"pp", false, false, true, false},
    [GPT_GROUP_MODEL] = {"model", true, false, true, false},
    [GPT_GROUP_EMBEDDING] = {"embedding", false, false, true, true},
};

const char *gpt_group_name(enum gpt_group kind)
{
    return groups[kind].name;
}

int64_t gpt_topology_group(const struct gpt_topology *t, enum gpt_group kind,
                           int64_t *ranks, int64_t *index)
{
    const bool tp = groups[kind].tp, dp = groups[kind].dp;
    const bool pp = groups[kind].pp, ends = groups[kind].ends;
    int64_t n = 0;

    *index = -1;
    for (int64_t p = pp ? 0 : t->pp_rank;
         p < (pp ? t->pp_size : t->pp_rank + 1); p++) {
        if (ends && p != 0 && p != t->pp_size - 1)
            continue;
        for (int64_t d = dp ? 0 : t->dp_rank;
             d < (dp ? t->dp_size : t->dp_rank + 1); d++)
            for (int64_t k = tp ? 0 : t->tp_rank;
                 k < (tp ? t->tp_size : t->tp_rank + 1); k++) {
                ranks[n] = gpt_topology_rank(t, k, d, p);
                if (ranks[n] == t->rank)
                    *index = n;
                n++;
            }
    }
    return n;
}

/* ---- layers ---- */

/* Layers of stages that are not uneven; checks what must divide. */
static int middle_layers(const struct gpt_topology *t, int64_t num_layers,
                         int64_t first, int64_t last, int64_t *middle,
                         struct gpt_err *err)
{
    int64_t stages = t->pp_size - (first > 0) - (last > 0);
    int64_t rest = num_layers - first - last;

    if (num_layers < 1 || first < 0 || last < 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld layers, first stage %lld, last stage %lld: "
                        "negative or none",
                        (long long)num_layers, (long long)first,
                        (long long)last);
    if ((first > 0 || last > 0) && t->pp_size < 2)
        return gpt_fail(err, GPT_EUSAGE,
                        "uneven stages need --pipeline-model-parallel-size of "
                        "at least 2");
    if (stages == 0 ? rest != 0 : (rest < stages || rest % stages != 0))
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld of %lld layers do not divide over %lld pipeline "
                        "stages",
                        (long long)rest, (long long)num_layers,
                        (long long)stages);
    *middle = stages ? rest / stages : 0;
    return GPT_OK;
}

int gpt_topology_layers(const struct gpt_topology *t, int64_t num_layers,
                        int64_t first, int64_t last, int64_t pp_rank,
                        int64_t chunk, int64_t *begin, int64_t *count,
                        struct gpt_err *err)
{
    int64_t middle, before = 0, here = 0;

    GPT_TRY(middle_layers(t, num_layers, first, last, &middle, err));
    for (int64_t p = 0; p < t->pp_size; p++) {
        int64_t n = middle;

        if (p == 0 && first > 0)
            n = first;
        else if (p == t->pp_size - 1 && last > 0)
            n = last;
        if (n % t->chunks != 0)
            return gpt_fail(err, GPT_EUSAGE,
                            "%lld layers of pipeline stage %lld do not divide "
                            "into %lld virtual stages",
                            (long long)n, (long long)p, (long long)t->chunks);
        if (p < pp_rank)
            before += n / t->chunks;
        if (p == pp_rank)
            here = n / t->chunks;
    }
    *begin = chunk * (num_layers / t->chunks) + before;
    *count = here;
    return GPT_OK;
}
