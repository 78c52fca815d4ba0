/* What comm.c needs from a library that carries bytes between the ranks of a
 * group. transport_gloo.cc is it; C++ stays behind this header. Inside
 * parallel/ only. */
#ifndef GPT_PARALLEL_TRANSPORT_H
#define GPT_PARALLEL_TRANSPORT_H

#include "parallel/store.h"

struct gpt_transport;

struct gpt_move {
    bool send;
    int64_t peer;
    void *buf;
    size_t bytes;
    bool done; /* written by the exchange, atomically: others may look */
    bool lost; /* by the exchange: the connection to this peer */
};

/* Connects all ranks of a group, `timeout` seconds at most. */
int gpt_transport_open(struct gpt_transport **t, struct gpt_store *store,
                       const char *name, int64_t rank, int64_t size,
                       double timeout, struct gpt_err *err) GPT_MUST_USE;
void gpt_transport_close(struct gpt_transport *t);

/* Posts all moves and waits for them. GPT_EIO when a connection is lost,
 * GPT_EFAIL after gpt_transport_abort(); it is useless from then on. */
int gpt_transport_exchange(struct gpt_transport *t, struct gpt_move *list,
                           int64_t n, struct gpt_err *err) GPT_MUST_USE;
/* Ends an exchange that another thread waits in. */
void gpt_transport_abort(struct gpt_transport *t);

#endif
