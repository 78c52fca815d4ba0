/* The processes of ranks: starting, signalling and reaping them. */
#ifndef GPT_CMD_LAUNCH_CHILDREN_H
#define GPT_CMD_LAUNCH_CHILDREN_H

#include "cmd/launch/prefix_lines.h"

#include <sys/types.h>

struct gpt_child {
    pid_t pid; /* 0: not started, or ended and seen */
    int64_t rank;
    int status; /* of waitpid, once ended */
    bool stdio;      /* has this process's standard input and output */
    bool foreground; /* ... and its terminal */
    struct gpt_prefix_lines lines[2]; /* stdout, stderr */
};

/* In a process group of its own, with /dev/null as input unless c->stdio; it
 * dies with its parent. GPT_EIO when the program cannot be run. */
int gpt_child_start(struct gpt_child *c, char *const *command, char **env,
                    struct gpt_err *err) GPT_MUST_USE;
void gpt_child_signal(const struct gpt_child *c, int sig); /* whole group */
/* Takes the terminal back, if the child had it. */
void gpt_child_end_stdio(struct gpt_child *c);
/* True once, when the process has ended since the last call. */
bool gpt_child_reap(struct gpt_child *c);

/* This process's environment with `n` variables "NAME=value" in place of those
 * of the same names; freed with gpt_free(), borrows all strings. NULL when out
 * of memory. */
char **gpt_child_environment(char *const *variables, size_t n);

#endif
