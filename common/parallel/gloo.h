/* What comm_host.c needs of Gloo: connections between all members of a group,
 * and messages over them. C++ stays in gloo.cc; gloo_none.c takes its place
 * where Gloo was not there. Inside parallel/ only. */
#ifndef GPT_PARALLEL_GLOO_H
#define GPT_PARALLEL_GLOO_H

#include "parallel/store.h"

struct gpt_gloo;

struct gpt_move {
    bool send;
    int64_t peer;
    void *buf;
    size_t bytes;
    bool done; /* atomic: written by the exchange, read by the watcher */
    bool lost; /* written by the exchange: the connection has failed */
};

struct gpt_gloo_options {
    const char *name; /* of the group */
    int64_t rank, size;
    double timeout; /* seconds, for all members to connect */
};

/* Connects all ranks of a group. GPT_EIO when a member does not come in time,
 * GPT_EFAIL as gpt_store_check_wait(). */
int gpt_gloo_open(struct gpt_gloo **t, struct gpt_store *store,
                  const struct gpt_gloo_options *o,
                  struct gpt_err *err) GPT_MUST_USE;
void gpt_gloo_close(struct gpt_gloo *t);

/* Posts all moves and waits for them. GPT_EIO when a connection is lost,
 * GPT_EFAIL after gpt_gloo_abort(). After either the group cannot be used. */
int gpt_gloo_exchange(struct gpt_gloo *t, struct gpt_move *list,
                      int64_t n, struct gpt_err *err) GPT_MUST_USE;
/* Ends an exchange that another thread waits in. */
void gpt_gloo_abort(struct gpt_gloo *t);

#endif
