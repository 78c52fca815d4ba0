/* Starting the ranks of a job on this node, and seeing them to their end: what
 * gpt-launch does. Start at gpt_launcher_run() in ranks.c; children.h starts
 * and ends processes, prefix_lines.h passes on what they write, count.h says
 * how many there are. */
#ifndef GPT_CMD_LAUNCH_RANKS_H
#define GPT_CMD_LAUNCH_RANKS_H

#include "base/status.h"

struct gpt_launcher_options {
    char *const *command;  /* program and arguments, NULL-terminated */
    int64_t nproc, nnodes; /* processes a node, nodes */
    int64_t node_rank;
    const char *master_addr;
    int64_t master_port; /* 0: a free one, on one node only */
    int64_t threads;     /* of a rank; 0: what the cores allow */
    bool force_threads;  /* over what the environment says */
    double grace;        /* seconds from SIGTERM to SIGKILL */
    const char *log_dir; /* rank-N.log of what each rank writes, or NULL */
    bool force;          /* replace logs that exist */
    bool stdio; /* rank 0 has this process's standard input and output */
};

/* Starts the processes, and returns when all of them have ended. The status is
 * GPT_OK or that of the first one that failed, 128 + n for a signal; the error
 * names it. Signals that ask to stop or to save are passed on. */
int gpt_launcher_run(const struct gpt_launcher_options *o, struct gpt_err *err)
    GPT_MUST_USE;

#endif
