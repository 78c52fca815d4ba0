/* Who is who: the ranks of a job and the groups that talk to each other, in
 * Megatron's order (tensor fastest, then data, then pipeline). Pure arithmetic,
 * no communication. Source: Megatron-LM core/parallel_state.py, and for layers
 * core/transformer/transformer_block.py. */
#ifndef GPT_PARALLEL_TOPOLOGY_H
#define GPT_PARALLEL_TOPOLOGY_H

#include "base/status.h"

enum { GPT_MAX_CHUNKS = 64 }; /* virtual pipeline chunks of a stage */

struct gpt_topology {
    int64_t world_size, rank;
    int64_t tp_size, tp_rank, dp_size, dp_rank, pp_size, pp_rank;
    int64_t chunks; /* virtual pipeline chunks a rank, 1 = not interleaved */
};

enum gpt_group {
    GPT_GROUP_WORLD,
    GPT_GROUP_TP,
    GPT_GROUP_DP,
    GPT_GROUP_PP,
    GPT_GROUP_MODEL,     /* tensor x pipeline: the ranks of one replica */
    GPT_GROUP_EMBEDDING, /* first and last stage of a pipeline */
    GPT_N_GROUPS
};

/* dp_size follows from world_size. GPT_EUSAGE names the rule and numbers. */
int gpt_topology_init(struct gpt_topology *t, int64_t world_size, int64_t rank,
                      int64_t tp_size, int64_t pp_size, int64_t chunks,
                      struct gpt_err *err) GPT_MUST_USE;

/* World ranks of this rank's group of a kind, ascending, into ranks
 * (world_size entries); returns their number and this rank's place in
 * *index (-1: not a member, for the embedding group of middle stages). */
int64_t gpt_topology_group(const struct gpt_topology *t, enum gpt_group kind,
                           int64_t *ranks, int64_t *index);
const char *gpt_group_name(enum gpt_group kind); /* "tp", "dp", ... */

/* The world rank with other coordinates. */
int64_t gpt_topology_rank(const struct gpt_topology *t, int64_t tp_rank,
                          int64_t dp_rank, int64_t pp_rank);

/* Layers of a chunk of stage pp_rank. Evenly, chunk v of stage p begins at
 * v * (L / chunks) + p * (L / (P * chunks)). first and last give the layers of
 * an uneven first and last stage (0 = even); the stages between share the rest
 * equally. GPT_EUSAGE when something does not divide. */
int gpt_topology_layers(const struct gpt_topology *t, int64_t num_layers,
                        int64_t first, int64_t last, int64_t pp_rank,
                        int64_t chunk, int64_t *begin, int64_t *count,
                        struct gpt_err *err) GPT_MUST_USE;

#endif
