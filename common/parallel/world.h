/* This process as one rank of a job: who started it, the store that it meets
 * the others at, its place in the topology, and a communicator for every group
 * that it is in. Start at gpt_world_open(). */
#ifndef GPT_PARALLEL_WORLD_H
#define GPT_PARALLEL_WORLD_H

#include "parallel/comm.h"
#include "parallel/topology.h"

struct gpt_world {
    struct gpt_launch launch;
    struct gpt_store *store;
    struct gpt_topology topology;
    /* By kind; NULL where this rank is no member or alone in the group. */
    struct gpt_comm *comm[GPT_N_GROUPS];
    /* The data parallel group once more, for a thread of its own: gradients are
     * reduced there while backward goes on. */
    struct gpt_comm *reduce;
};

struct gpt_world_options {
    int64_t tp_size, pp_size, chunks;
    double timeout;       /* seconds: of the rendezvous and the first step */
    double timeout_later; /* see gpt_world_settled() */
};

/* Rendezvous: environment, store, topology. GPT_EUSAGE when the sizes do not
 * fit the number of ranks; GPT_EIO when the store cannot be reached. A world of
 * one needs no network. */
int gpt_world_open(struct gpt_world **w, const struct gpt_world_options *o,
                   struct gpt_err *err) GPT_MUST_USE;

/* Opens the communicators; all ranks call it. */
int gpt_world_connect(struct gpt_world *w, struct gpt_backend *be,
                      struct gpt_err *err) GPT_MUST_USE;

/* Compares a text (a digest of data and options) over all ranks: on those that
 * differ from rank 0, and on all others, GPT_EUSAGE names the ranks that differ
 * and the first line in which they do. */
int gpt_world_agree(struct gpt_world *w, const char *what, const char *text,
                    struct gpt_err *err) GPT_MUST_USE;

/* The first step is over: nobody needs the long timeout any more. */
void gpt_world_settled(struct gpt_world *w);

/* The first failure of any communicator, or of another rank. */
int gpt_world_check(struct gpt_world *w, struct gpt_err *err) GPT_MUST_USE;

/* Tells the others why this rank ends, if `status` is a failure of its own,
 * and leaves. NULL is fine. */
void gpt_world_close(struct gpt_world *w, int status,
                     const struct gpt_err *err);

#endif
