/* How this process was started: alone, or as one of several ranks by torchrun,
 * gpt-launch, Slurm, Open MPI or MPICH. Only the environment is read, no MPI
 * library is needed. */
#ifndef GPT_PARALLEL_LAUNCH_ENV_H
#define GPT_PARALLEL_LAUNCH_ENV_H

#include "base/status.h"

struct gpt_launch_env {
    const char *launcher; /* "torchrun" (gpt-launch, too), "environment",
                           * "slurm", "openmpi", "pmi", "none" */
    int64_t world_size, rank;
    int64_t local_size, local_rank; /* on this node; size 0: not known */
    int64_t node;
    char host[256]; /* of the store, with its port */
    int64_t port;
    bool agent_store; /* the launcher serves the store there */
    char run_id[128]; /* of this job and restart: prefix of all keys */
};

/* In this order: RANK and WORLD_SIZE (torchrun, or by hand), Open MPI, Hydra
 * (MPICH, Intel MPI), Slurm, none. MASTER_ADDR and MASTER_PORT go before what a
 * launcher says. GPT_EUSAGE names the variable that is missing or wrong. */
int gpt_launch_env_detect(struct gpt_launch_env *l,
                          struct gpt_err *err) GPT_MUST_USE;

/* The rank on this node, and the number of all ranks: 0 and 1 where the
 * environment says none, or what is refused. Where the store is need not be
 * known. */
int64_t gpt_launch_env_local_rank(void);
int64_t gpt_launch_env_size(void);

/* Reports to torchrun why this process fails; torchrun shows the reason of the
 * process that ended first. Does nothing under other launchers. */
void gpt_launch_env_report(const char *reason);

/* The first host of a list as Slurm writes it, "gpu[007-009,12],login" is
 * gpu007, into host. False when it is malformed or does not fit. */
bool gpt_first_host(const char *list, char *host, size_t cap);

#endif
