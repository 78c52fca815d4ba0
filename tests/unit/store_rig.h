/* Servers of the store in this process, and clients of them. */
#ifndef GPT_TESTS_STORE_RIG_H
#define GPT_TESTS_STORE_RIG_H

#include "parallel/store.h"
#include "tests/lib/must.h"
#include "tests/lib/port.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>

static struct gpt_launch_env launch(int64_t world, int64_t rank, int64_t port,
                                    bool agent)
{
    return (struct gpt_launch_env){.launcher = "test",
                               .world_size = world,
                               .rank = rank,
                               .host = "127.0.0.1",
                               .port = port,
                               .agent_store = agent,
                               .run_id = "test.0.0"};
}

static struct gpt_store_server *serve(void)
{
    struct gpt_store_server *v;
    struct gpt_err err = {0};

    must(gpt_store_server_open(&v, "127.0.0.1", 0, &err), &err);
    return v;
}

static struct gpt_store *join(const struct gpt_store_server *v, int64_t world,
                              int64_t rank)
{
    struct gpt_launch_env l =
        launch(world, rank, gpt_store_server_port(v), true);
    struct gpt_store *s;
    struct gpt_err err = {0};

    must(gpt_store_open(&s, &l, 60, &err), &err);
    return s;
}

/* A connection that has sent nothing yet. */
static int raw_connect(int64_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {60, 0};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
        exit(1);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    return fd;
}

/* What a client sends first. */
#define VALID "\0\xCE\xF7\x85\x3C"

#endif
