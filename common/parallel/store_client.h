/* A client of the store, for the files that make one: store.c its requests,
 * store_failure.c and store_barrier.c what ranks tell each other by them. */
#ifndef GPT_PARALLEL_STORE_CLIENT_H
#define GPT_PARALLEL_STORE_CLIENT_H

#include "base/memory.h"
#include "parallel/store.h"

#include <pthread.h>
#include <stdatomic.h>

struct gpt_store {
    pthread_mutex_t lock;
    int fd;                        /* -1 in a world of one: */
    struct gpt_store_table *table; /* requests are executed here */
    struct gpt_store_server *server;
    int64_t world_size, rank;
    bool agent_store;
    atomic_bool keeps_waiting; /* signals do not end waits */
    atomic_bool posted;        /* a failure of this rank, by this process */
    char where[300];           /* "host:port" */
    char prefix[136];
    struct gpt_buf request, reply;
    size_t replied; /* bytes of reply that were read, world of one */
    bool has_will;  /* the server keeps one of this rank */
    bool lost;      /* the connection; why: */
    struct gpt_err why;
};

/* Reads a value where there is one: *exists says whether. The rest is as in
 * gpt_store_get(). */
int gpt_store_get_if_set(struct gpt_store *s, const char *key, bool *exists,
                         void **value, size_t *len,
                         struct gpt_err *err) GPT_MUST_USE;
/* Deletes a key. The reply is read before this returns, so that the server has
 * done it before it sees the end of the connection. */
int gpt_store_delete(struct gpt_store *s, const char *key,
                     struct gpt_err *err) GPT_MUST_USE;
/* GPT_EFAIL when a signal asks this process to stop and signals end waits. */
int gpt_store_check_signal(const struct gpt_store *s,
                           struct gpt_err *err) GPT_MUST_USE;

/* Takes back what gpt_store_leave_will() left, if it left anything: what
 * listens on the port may be no store, and answer nothing. */
void gpt_store_withdraw_will(struct gpt_store *s);

#endif
