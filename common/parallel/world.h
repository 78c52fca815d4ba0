/* One process as a rank of a job, with its launcher, the store where the ranks
 * exchange small values, its place in the topology, the links by which it
 * notices the ends of others, and a communicator for every group that it is in.
 * Start at gpt_world_open(). */
#ifndef GPT_PARALLEL_WORLD_H
#define GPT_PARALLEL_WORLD_H

#include "parallel/comm.h"
#include "parallel/links.h"
#include "parallel/topology.h"

#include <stdatomic.h>

struct gpt_world {
    struct gpt_launch_env launch;
    struct gpt_store *store;
    struct gpt_links *links; /* NULL in a world of one */
    struct gpt_topology topology;
    /* By kind; NULL where this rank is no member or alone in the group. */
    struct gpt_comm *comm[GPT_N_GROUPS];
    enum gpt_carrier carrier; /* of all of them */
    /* A second communicator of the data parallel ranks, for the lane on which
     * gradients are summed while other calls use the first; NULL as above. */
    struct gpt_comm *reduce;
    atomic_bool connected; /* comm and reduce are complete */
    double timeout, timeout_later; /* seconds, see below */
};

struct gpt_world_options {
    int64_t size[GPT_N_DIMS]; /* but of GPT_DP: see gpt_topology_init() */
    int64_t chunks;
    int64_t imagined;     /* > 0: this process plans for rank 0 of that many
                           * ranks, of which none is started */
    double timeout;       /* seconds: of the rendezvous and the first step */
    double timeout_later; /* see gpt_world_shorten_timeout() */
};

/* Rendezvous: environment, topology, store, links. GPT_EUSAGE when the sizes do
 * not fit the number of ranks; GPT_EIO when the store or a neighbour cannot be
 * reached. A signal ends it. A world of one needs no network. */
int gpt_world_open(struct gpt_world **w, const struct gpt_world_options *o,
                   struct gpt_err *err) GPT_MUST_USE;

/* Chooses what carries bytes between the ranks: "gloo"; "nccl", refused by
 * GPT_EUSAGE on every rank where it cannot be; or NULL, NCCL where every rank
 * has a GPU of its own and the library, else Gloo. `text` says which it is
 * ("NCCL 2.28.9") and, with a GPU, why it is not NCCL. All ranks call it,
 * before they connect. */
int gpt_world_choose_carrier(struct gpt_world *w, struct gpt_backend *be,
                             const char *asked, char *text, size_t cap,
                             struct gpt_err *err) GPT_MUST_USE;

/* Opens the communicators; all ranks call it. `be` outlives the world. */
int gpt_world_connect(struct gpt_world *w, struct gpt_backend *be,
                      struct gpt_err *err) GPT_MUST_USE;

/* Compares a text (a digest of data and options, line by line) over all ranks,
 * which all call it: when some differ from rank 0, GPT_EUSAGE on every rank
 * names them and the first line in which the first of them differs. `what` is
 * what the text describes ("data set"). */
int gpt_world_agree(struct gpt_world *w, const char *what, const char *text,
                    struct gpt_err *err) GPT_MUST_USE;

/* Waits for all ranks; GPT_EFAIL names those that do not come, or have failed.
 */
int gpt_world_wait(struct gpt_world *w, const char *what,
                   struct gpt_err *err) GPT_MUST_USE;

/* Sets the later timeout: for the time after the first step, which is the one
 * that allocates, loads and may take long. From then on signals do not end
 * waits, as a step would be lost. */
void gpt_world_shorten_timeout(struct gpt_world *w);

/* The first failure of any communicator. */
int gpt_world_check(struct gpt_world *w, struct gpt_err *err) GPT_MUST_USE;

/* CPU cores for this rank: those that it may run on, divided by the ranks of
 * this machine that may run on the same ones. All ranks call it, once. */
int gpt_world_cores(struct gpt_world *w, int64_t *cores,
                    struct gpt_err *err) GPT_MUST_USE;

/* The name of the machine of a rank, "?" where it is not known: after
 * gpt_world_cores(). */
void gpt_world_host(struct gpt_world *w, int64_t rank, char *name, size_t cap);

/* All ranks say how they end. GPT_OK: waits until the others end well, too.
 * Otherwise tells them why; when another rank failed before, *err is replaced
 * by its reason ("rank 3: ..."). Returns the status to end with: that of the
 * first failure of the job, the same on all ranks. Collectives that still wait
 * end soon after. NULL is fine, and returns `status`. */
int gpt_world_end(struct gpt_world *w, int status, struct gpt_err *err);
/* After gpt_world_end(), when the communicators are no longer used. */
void gpt_world_close(struct gpt_world *w); /* NULL is fine */

#endif
