/* Runs the ranks of a job as processes; the store in which they meet is in the
 * test's own process and survives any of them. For jobs without failures see
 * ranks.h. */
#ifndef GPT_TESTS_JOB_H
#define GPT_TESTS_JOB_H

#include "parallel/store.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 8 };

struct rank {
    struct gpt_store *store;
    int64_t rank, size;
};

static void be_rank(int64_t rank, int64_t size, int port_fd,
                    int (*run)(struct rank *, const void *),
                    const void *context)
{
    struct rank me = {.rank = rank, .size = size};
    struct gpt_launch_env l = {.world_size =
                                   size + 1, /* always over the network */
                               .rank = rank,
                               .host = "127.0.0.1",
                               .agent_store = true,
                               .run_id = "test"};
    struct gpt_err err = {0};

    alarm(300);
    if (read(port_fd, &l.port, sizeof(l.port)) != sizeof(l.port) ||
        gpt_store_open(&me.store, &l, 60, &err) != GPT_OK)
        _exit(99);
    int result = run(&me, context);
    fflush(stdout);
    gpt_store_close(me.store);
    exit(result);
}

/* Runs `size` ranks; statuses[r] is the status of rank r from waitpid(). They
 * are forked before this process has threads, and read the port of the store
 * from a pipe. */
static void job_run(int64_t size, int (*run)(struct rank *, const void *),
                    const void *context, int *statuses)
{
    struct gpt_store_server *v = NULL;
    struct gpt_err err = {0};
    pid_t pids[MAX_RANKS];
    int64_t port = 0;
    int fds[2];

    fflush(stdout);
    if (pipe(fds) != 0)
        exit(1);
    for (int64_t r = 0; r < size; r++) {
        pids[r] = fork();
        if (pids[r] < 0)
            exit(1);
        if (pids[r] == 0)
            be_rank(r, size, fds[0], run, context);
    }
    if (gpt_store_server_open(&v, "127.0.0.1", 0, &err) == GPT_OK)
        port = gpt_store_server_port(v);
    for (int64_t r = 0; r < size; r++)
        if (write(fds[1], &port, sizeof(port)) != sizeof(port))
            exit(1);
    for (int64_t r = 0; r < size; r++)
        if (waitpid(pids[r], &statuses[r], 0) != pids[r])
            exit(1);
    gpt_store_server_close(v, 1);
    close(fds[0]);
    close(fds[1]);
}

#endif
