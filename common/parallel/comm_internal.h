/* What the files of communicators share: comm.c (the calls), comm_watch.c
 * (failures and timeouts), comm_host.c (through Gloo), comm_device.c (through
 * the device's own library). Inside parallel/ only. */
#ifndef GPT_PARALLEL_COMM_INTERNAL_H
#define GPT_PARALLEL_COMM_INTERNAL_H

#include "parallel/comm.h"

#include <pthread.h>

struct gpt_comm_carrier;

struct gpt_comm {
    struct gpt_store *store;
    struct gpt_backend *be;
    const struct gpt_comm_carrier *carrier; /* NULL in a group of one */
    struct gpt_comm_host *host;             /* the carrier's own: one of them */
    struct gpt_comm_device *device;
    char name[64];
    int64_t *ranks; /* world ranks */
    int64_t size, index;
    int64_t calls, bytes;
    double waited;

    pthread_t watcher;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;
    bool started, closing, watching, waiting;
    const char *what; /* the call that is waited in, and its number */
    int64_t number;
    double since, timeout;
    bool posted, failed;
    struct gpt_err why;
};

/* How calls are made. */
struct gpt_comm_carrier {
    /* Connects all members, `timeout` seconds at most. */
    int (*open)(struct gpt_comm *c, double timeout, struct gpt_err *err);
    void (*close)(struct gpt_comm *c);
    void (*run)(struct gpt_comm *c, struct gpt_queue *q,
                const struct gpt_collective *call);
    /* Ends calls that wait, whoever waits in them. */
    void (*abort)(struct gpt_comm *c);
    /* Does the call that waits wait for this member? */
    bool (*waits_for)(struct gpt_comm *c, int64_t member);
    /* Where calls do not wait: looks at those on the queue, now and then. Or
     * NULL. */
    void (*poll)(struct gpt_comm *c);
    /* Host memory for calls; or NULL: none. */
    int64_t (*held)(const struct gpt_comm *c);
};

extern const struct gpt_comm_carrier gpt_comm_through_host,
    gpt_comm_through_device;

/* "all-reduce" */
const char *gpt_collective_name(enum gpt_collective_kind kind);

/* ---- comm_watch.c ---- */

/* The first failure stays; with `post` it is told to all ranks. */
void gpt_comm_fail(struct gpt_comm *c, bool post, const char *fmt, ...)
    GPT_PRINTF(3, 4);
bool gpt_comm_failed(struct gpt_comm *c);
/* Did another rank say why it ended? Waits at most `seconds` for it to do so;
 * call `number` fails with that. */
bool gpt_comm_other_failed(struct gpt_comm *c, const char *what, int64_t number,
                           double seconds);
/* How long the reason of a lost peer may take. */
extern const double gpt_comm_reason;

/* A thread that watches call `number`, begun now, until what is NULL. */
int gpt_comm_watch_start(struct gpt_comm *c, struct gpt_err *err);
void gpt_comm_watch_stop(struct gpt_comm *c);
void gpt_comm_watch(struct gpt_comm *c, const char *what, int64_t number);

#endif
