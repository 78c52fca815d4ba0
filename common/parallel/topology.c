/* The grid of ranks. A rank is a number whose digits are its coordinates, in a
 * base of its own a dimension and the first dimension as the lowest digit:
 * rank = tp + TP * (dp + DP * pp). A group is what is left when some of the
 * digits run and the others stay. Start at gpt_topology_group(). */
#include "parallel/topology.h"

#include "base/num.h"

#include <assert.h>
#include <stdio.h>

static const char *const dim_names[GPT_N_DIMS] = {
    [GPT_TP] = "tensor",
    [GPT_DP] = "data",
    [GPT_PP] = "pipeline",
};

/* Writes "tensor 2 x pipeline 4": all sizes that are given, not derived. */
static void describe_sizes(const int64_t *size, char *text, size_t cap)
{
    size_t n = 0;

    for (int d = 0; d < GPT_N_DIMS && n < cap; d++)
        if (d != GPT_DP)
            n += (size_t)snprintf(text + n, cap - n, "%s%s %lld",
                                  n ? " x " : "", dim_names[d],
                                  (long long)size[d]);
}

/* Ranks of one replica of the model, which data parallelism repeats. The
 * product is checked for overflow: the sizes are a user's, and a product that
 * wraps could divide the world by chance. */
static bool multiply_sizes(const int64_t *size, int64_t *replica)
{
    *replica = 1;
    for (int d = 0; d < GPT_N_DIMS; d++)
        if (d != GPT_DP &&
            (size[d] < 1 || !gpt_mul(*replica, size[d], replica)))
            return false;
    return true;
}

/* The coordinates of a rank. */
static void find_place(const struct gpt_topology *t, int64_t rank,
                       int64_t at[GPT_N_DIMS])
{
    assert(rank >= 0 && rank < t->world_size);
    for (int d = 0; d < GPT_N_DIMS; d++) {
        at[d] = rank % t->size[d];
        rank /= t->size[d];
    }
}

int gpt_topology_init(struct gpt_topology *t, int64_t world_size, int64_t rank,
                      const int64_t size[GPT_N_DIMS], int64_t chunks,
                      struct gpt_err *err)
{
    char text[160];
    int64_t replica;

    *t = (struct gpt_topology){0};
    if (world_size < 1 || rank < 0 || rank >= world_size)
        return gpt_fail(err, GPT_EUSAGE, "rank %lld is not one of %lld ranks, "
                        "which count from 0", (long long)rank,
                        (long long)world_size);
    describe_sizes(size, text, sizeof(text));
    if (chunks < 1 || !multiply_sizes(size, &replica))
        return gpt_fail(err, GPT_EUSAGE,
                        "parallel sizes %s and virtual stages %lld must all be "
                        "at least 1",
                        text, (long long)chunks);
    /* The data parallel size is not given: it is what the other sizes leave of
     * the world, and only this remainder can go wrong. */
    if (world_size % replica != 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld ranks are not a multiple of the parallel sizes "
                        "%s",
                        (long long)world_size, text);
    if (chunks > 1 && size[GPT_PP] == 1)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld virtual stages need a pipeline parallel size of "
                        "at least 2",
                        (long long)chunks);
    t->world_size = world_size;
    t->rank = rank;
    for (int d = 0; d < GPT_N_DIMS; d++)
        t->size[d] = d == GPT_DP ? world_size / replica : size[d];
    t->chunks = chunks;
    find_place(t, rank, t->at);
    return GPT_OK;
}

/* ---- groups ---- */

#define DIM(d) (1u << (d))
#define ALL_DIMS (DIM(GPT_N_DIMS) - 1)

/* The dimensions in which the members of a group differ. */
static const struct {
    const char *name;
    unsigned dims;
    bool ends; /* of the pipeline only the first and the last stage */
} groups[GPT_N_GROUPS] = {
    [GPT_GROUP_WORLD] = {"world", ALL_DIMS, false},
    [GPT_GROUP_TP] = {"tp", DIM(GPT_TP), false},
    [GPT_GROUP_DP] = {"dp", DIM(GPT_DP), false},
    [GPT_GROUP_PP] = {"pp", DIM(GPT_PP), false},
    [GPT_GROUP_EMBEDDING] = {"embedding", DIM(GPT_PP), true},
};

const char *gpt_group_name(enum gpt_group kind)
{
    return groups[kind].name;
}

/* A pipeline of one stage is both ends at once, so its embedding group has one
 * member and gets no communicator. */
static bool is_member(const struct gpt_topology *t, enum gpt_group kind,
                      const int64_t *at)
{
    for (int d = 0; d < GPT_N_DIMS; d++)
        if (!(groups[kind].dims & DIM(d)) && at[d] != t->at[d])
            return false;
    return !groups[kind].ends || at[GPT_PP] == 0 ||
           at[GPT_PP] == t->size[GPT_PP] - 1;
}

/* Every member must list the same ranks in the same order, since a place in the
 * list is a rank of the communicator: so all ranks are gone through in
 * ascending order, whichever dimensions the group runs along. A rank that is no
 * member still gets the list of the group at its own coordinates, with index
 * -1: a middle stage asks for the embedding group. */
int64_t gpt_topology_group(const struct gpt_topology *t, enum gpt_group kind,
                           int64_t *ranks, int64_t *index)
{
    int64_t at[GPT_N_DIMS], n = 0;

    *index = -1;
    for (int64_t r = 0; r < t->world_size; r++) {
        find_place(t, r, at);
        if (!is_member(t, kind, at))
            continue;
        if (r == t->rank)
            *index = n;
        ranks[n++] = r;
    }
    return n;
}

/* ---- layers ---- */

/* The layers of every stage that has no number of its own. Checks what must
 * divide. */
static int middle_layers(const struct gpt_topology *t,
                         const struct gpt_layer_cut *cut, int64_t *middle,
                         struct gpt_err *err)
{
    const int64_t num_layers = cut->layers;
    const int64_t first = cut->first, last = cut->last;
    int64_t stages = t->size[GPT_PP] - (first > 0) - (last > 0);
    int64_t rest = num_layers - first - last;

    if (num_layers < 1 || first < 0 || last < 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld layers, first stage %lld, last stage %lld: a "
                        "model has at least 1 layer, a stage at least 0",
                        (long long)num_layers, (long long)first,
                        (long long)last);
    if ((first > 0 || last > 0) && t->size[GPT_PP] < 2)
        return gpt_fail(err, GPT_EUSAGE,
                        "uneven stages need a pipeline parallel size of at "
                        "least 2");
    if (rest < 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld layers are too few: the first and last pipeline "
                        "stages take %lld",
                        (long long)num_layers, (long long)(first + last));
    /* With two stages that both have a number of their own there is no middle,
     * and the two numbers must be all layers. */
    if (stages == 0 ? rest != 0 : (rest < stages || rest % stages != 0))
        return gpt_fail(err, GPT_EUSAGE,
                        "%lld of %lld layers do not divide over %lld pipeline "
                        "stages",
                        (long long)rest, (long long)num_layers,
                        (long long)stages);
    *middle = stages ? rest / stages : 0;
    return GPT_OK;
}

int gpt_topology_layers(const struct gpt_topology *t,
                        const struct gpt_layer_cut *cut, int64_t pp_rank,
                        int64_t chunk, int64_t *begin, int64_t *count,
                        struct gpt_err *err)
{
    int64_t middle = 0, before = 0, here = 0;

    /* All stages are checked on every rank, not only those up to this one: then
     * all ranks refuse a bad division with one message, and none begins to wait
     * for a rank that has ended. */
    GPT_TRY(middle_layers(t, cut, &middle, err));
    for (int64_t p = 0; p < t->size[GPT_PP]; p++) {
        int64_t n = middle;

        if (p == 0 && cut->first > 0)
            n = cut->first;
        else if (p == t->size[GPT_PP] - 1 && cut->last > 0)
            n = cut->last;
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
    /* A microbatch passes all stages once a chunk, so each pass takes 1/chunks
     * of the layers. The division has no remainder, since the layers of every
     * stage divide. */
    *begin = chunk * (cut->layers / t->chunks) + before;
    *count = here;
    return GPT_OK;
}
