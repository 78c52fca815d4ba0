/* The ranks of a job, their coordinates, and the groups that talk to each
 * other, in Megatron's order (tensor fastest, then data, then pipeline). Pure
 * arithmetic, no communication. A further dimension is a row of enum gpt_dim
 * and of the tables in topology.c, and the groups that it runs in. Start at
 * gpt_topology_init(). Source: Megatron-LM core/parallel_state.py, and for
 * layers core/transformer/transformer_block.py.
 *
 * This folder is what ranks do together: how they find each other
 * (launch_env.h, store.h) and notice each other's end (links.h), their groups
 * (here), the calls of a group (comm.h; lane.h: beside computing), the order of
 * a pipeline (schedule.h), the votes of a thread (agreement.h), and all of it
 * for one job (world.h). It knows nothing of a model's computation. Start here,
 * then read world.h. */
#ifndef GPT_PARALLEL_TOPOLOGY_H
#define GPT_PARALLEL_TOPOLOGY_H

#include "base/status.h"

enum { GPT_MAX_CHUNKS = 64 }; /* virtual pipeline chunks of a stage */

/* Dimensions of the grid of ranks. Their order is that of the ranks: those
 * that differ in the first one alone are neighbours. */
enum gpt_dim {
    GPT_TP, /* tensor parallel: parts of a matrix */
    GPT_DP, /* data parallel: other samples */
    GPT_PP, /* pipeline parallel: other layers */
    GPT_N_DIMS
};

struct gpt_topology {
    int64_t world_size, rank;
    int64_t size[GPT_N_DIMS]; /* of the grid; their product is world_size */
    int64_t at[GPT_N_DIMS];   /* coordinates of `rank` */
    int64_t chunks; /* virtual pipeline chunks a rank, 1 = not interleaved */
};

/* Ranks that exchange something: those whose coordinates differ in some
 * dimensions only (see groups[] in topology.c). */
enum gpt_group {
    GPT_GROUP_WORLD,
    GPT_GROUP_TP,
    GPT_GROUP_DP,
    GPT_GROUP_PP,
    GPT_GROUP_EMBEDDING, /* first and last stage of a pipeline */
    GPT_N_GROUPS
};

/* size: of every dimension but GPT_DP, which is what remains of world_size and
 * is not read. GPT_EUSAGE states the rule and the numbers. */
int gpt_topology_init(struct gpt_topology *t, int64_t world_size, int64_t rank,
                      const int64_t size[GPT_N_DIMS], int64_t chunks,
                      struct gpt_err *err) GPT_MUST_USE;

/* World ranks of this rank's group of a kind, ascending, into ranks
 * (world_size entries). Returns their number. *index is this rank's place
 * among them, or -1 where it is no member: a middle stage has an embedding
 * group, that of its pipeline, without being in it. */
int64_t gpt_topology_group(const struct gpt_topology *t, enum gpt_group kind,
                           int64_t *ranks, int64_t *index);
const char *gpt_group_name(enum gpt_group kind); /* "tp", "dp", ... */

/* How a model's layers are cut into stages. */
struct gpt_layer_cut {
    int64_t layers;      /* of the model */
    int64_t first, last; /* of an uneven first and last stage; 0: even */
};

/* Layers of a chunk of stage pp_rank: *count of them, from *begin on. Evenly,
 * chunk v of stage p begins at v * (L / chunks) + p * (L / (P * chunks)); the
 * stages between uneven ones share the rest equally. GPT_EUSAGE when something
 * does not divide. */
int gpt_topology_layers(const struct gpt_topology *t,
                        const struct gpt_layer_cut *cut, int64_t pp_rank,
                        int64_t chunk, int64_t *begin, int64_t *count,
                        struct gpt_err *err) GPT_MUST_USE;

#endif
