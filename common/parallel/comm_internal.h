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
    int64_t calls, bytes; /* made, and sent, so far */
    double waited;        /* seconds in calls, so far */

    pthread_t watcher;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;
    bool started, closing; /* the watcher is there; it is to end */
    bool watching;         /* it works on a call (comm_watch.c) */
    bool waiting;          /* a call is under way: */
    const char *what; /* ... its name, and number */
    int64_t number;
    double since, timeout; /* ... when it began, and seconds that it has */
    bool posted;           /* ... that this rank has come to it */
    bool failed;
    bool aborted; /* the watcher has ended the call that waited, after it was
                   * found to have failed by another thread */
    struct gpt_err why;
};

/* How calls are made: through Gloo by the host, or by the device. */
struct gpt_comm_carrier {
    /* Connects all members, `timeout` seconds at most. */
    int (*open)(struct gpt_comm *c, double timeout, struct gpt_err *err);
    void (*close)(struct gpt_comm *c);
    void (*run)(struct gpt_comm *c, struct gpt_queue *q,
                const struct gpt_collective *call);
    /* Ends calls that wait. Called by the watching thread, too. */
    void (*abort)(struct gpt_comm *c);
    /* True when the call that waits is waiting for this member. */
    bool (*waits_for)(struct gpt_comm *c, int64_t member);
    /* Where calls do not wait: finds out, every tick of the watcher, which of
     * those on the queue runs. Or NULL. */
    void (*poll)(struct gpt_comm *c);
    /* Host memory for calls; or NULL: none. */
    int64_t (*held)(const struct gpt_comm *c);
};

extern const struct gpt_comm_carrier gpt_comm_through_host,
    gpt_comm_through_device;

/* "all-reduce" */
const char *gpt_collective_name(enum gpt_collective_kind kind);

/* ---- comm_watch.c ---- */

/* The first failure stays. post: it is posted to the store, for all ranks. */
void gpt_comm_fail(struct gpt_comm *c, bool post, const char *fmt, ...)
    GPT_PRINTF(3, 4);
bool gpt_comm_failed(struct gpt_comm *c);
/* Waits at most `seconds` for another rank's report of its failure. True when
 * one came: call `number` has failed with it. */
bool gpt_comm_other_failed(struct gpt_comm *c, const char *what, int64_t number,
                           double seconds);
/* While members connect: puts before GPT_EIO the members that do not wait
 * themselves. One that has not come, or hangs, holds up all others. */
void gpt_comm_name_idle(struct gpt_comm *c, struct gpt_err *err);
/* Seconds that the report of a lost peer may take to come. */
extern const double gpt_comm_reason;

/* A thread that watches call `number`, which begins now, until gpt_comm_watch()
 * is called with what NULL. */
int gpt_comm_watch_start(struct gpt_comm *c, struct gpt_err *err);
void gpt_comm_watch_stop(struct gpt_comm *c);
void gpt_comm_watch(struct gpt_comm *c, const char *what, int64_t number);

#endif
