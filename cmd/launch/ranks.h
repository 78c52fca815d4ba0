/* Starting the ranks of a job on this node, and seeing them to their end: what
 * gpt-launch does. Start at gpt_launcher_run() in ranks.c; children.c starts
 * and ends processes, prefix_lines.c passes on what they write. */
#ifndef GPT_CMD_LAUNCH_RANKS_H
#define GPT_CMD_LAUNCH_RANKS_H

#include "base/memory.h"

#include <sys/types.h>

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
};

/* Processes of this node from "8", "gpu", "cpu" or "auto", into *n. */
int gpt_launcher_count(int64_t *n, const char *text, struct gpt_err *err)
    GPT_MUST_USE;

/* Starts the processes, and returns when all of them have ended. The status is
 * GPT_OK or that of the first one that failed, 128 + n for a signal; the error
 * names it. Signals that ask to stop or to save are passed on. */
int gpt_launcher_run(const struct gpt_launcher_options *o, struct gpt_err *err)
    GPT_MUST_USE;

/* ---- prefix_lines.c: a stream of a rank, line by line ---- */

struct gpt_append;

struct gpt_prefix_lines {
    int from, to; /* a pipe, -1 at its end; 1 or 2 */
    char prefix[32];
    struct gpt_buf part;    /* of a line */
    struct gpt_append *log; /* shared by both streams, or NULL */
};

/* Passes on what has come; all whole lines in one write(2). */
int gpt_prefix_lines_pass(struct gpt_prefix_lines *l,
                          struct gpt_err *err) GPT_MUST_USE;
/* The last line, whether it has an end or not. */
int gpt_prefix_lines_end(struct gpt_prefix_lines *l,
                         struct gpt_err *err) GPT_MUST_USE;

/* ---- children.c: processes ---- */

struct gpt_child {
    pid_t pid; /* 0: not started, or ended and seen */
    int64_t rank;
    int status; /* of waitpid, once ended */
    bool ended;
    struct gpt_prefix_lines lines[2]; /* stdout, stderr */
};

/* In a process group of its own, with /dev/null as input; it dies with its
 * parent. GPT_EIO when the program cannot be run. */
int gpt_child_start(struct gpt_child *c, char *const *command, char **env,
                    struct gpt_err *err) GPT_MUST_USE;
void gpt_child_signal(const struct gpt_child *c, int sig); /* whole group */
/* True once, when the process has ended since the last call. */
bool gpt_child_reap(struct gpt_child *c);

/* This process's environment with `n` variables "NAME=value" in place of those
 * of the same names; freed with gpt_free(), borrows all strings. NULL when out
 * of memory. */
char **gpt_child_environment(char *const *variables, size_t n);

#endif
