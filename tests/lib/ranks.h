/* Processes as the ranks of a job on this machine, for tests and benchmarks.
 * They are forked before the calling process has threads. */
#ifndef GPT_TESTS_RANKS_H
#define GPT_TESTS_RANKS_H

#include "tests/lib/port.h"
#include "tests/lib/possible.h"

#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 16 };

static void ranks_set(const char *name, int64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%lld", (long long)value);
    setenv(name, text, 1);
}

static void ranks_environment(int64_t rank, int64_t size, int64_t port)
{
    ranks_set("RANK", rank);
    ranks_set("WORLD_SIZE", size);
    ranks_set("MASTER_PORT", port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
}

/* Runs run(rank, arg) in `size` processes, each with `threads` threads and an
 * environment for gpt_world_open(). Returns the number of those that did not
 * return 0 within `seconds`. */
static int ranks_run(int64_t size, int threads, unsigned seconds,
                     int (*run)(int64_t rank, void *arg), void *arg)
{
    const int64_t port = free_port();
    pid_t pids[RANKS_MAX];
    int status, failed = 0;

    fflush(stdout);
    for (int64_t r = 0; r < size; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            alarm(seconds);
            ranks_environment(r, size, port);
            omp_set_num_threads(threads);
            status = run(r, arg);
            fflush(stdout);
            _exit(status);
        }
    }
    for (int64_t r = 0; r < size; r++)
        failed += pids[r] < 0 || waitpid(pids[r], &status, 0) != pids[r] ||
                  !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return failed;
}

#endif
