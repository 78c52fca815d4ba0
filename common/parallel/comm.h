/* Collective communication over a group of ranks: the sixth door. Behind it
 * Gloo carries bytes between CPUs (device memory is staged through the host);
 * a group of one needs nothing. Calls wait for the queue, then run to their
 * end. The first failure sticks: later calls return at once, and
 * gpt_comm_check() names collective, group, number and the ranks that have not
 * arrived.
 *
 * Sums are made in the order of ranks: the same bits whatever the timing. */
#ifndef GPT_PARALLEL_COMM_H
#define GPT_PARALLEL_COMM_H

#include "backend.h"
#include "parallel/store.h"

enum gpt_reduce { GPT_SUM, GPT_MAX };

struct gpt_comm;

/* A group: `ranks` are n world ranks, `index` is this one's place in them;
 * `name` is unique ("tp.0-1") and appears in messages. All members call it, and
 * everything below, in the same order. Nobody is waited for longer than
 * `timeout` seconds. store and be outlive it; store may be NULL when n is 1. */
int gpt_comm_open(struct gpt_comm **c, struct gpt_store *store,
                  struct gpt_backend *be, const char *name,
                  const int64_t *ranks, int64_t n, int64_t index,
                  double timeout, struct gpt_err *err) GPT_MUST_USE;
void gpt_comm_close(struct gpt_comm *c); /* NULL is fine */
int64_t gpt_comm_size(const struct gpt_comm *c);
int64_t gpt_comm_rank(const struct gpt_comm *c); /* index in the group */
/* Does a call return when it is over, instead of when it is on the queue? */
bool gpt_comm_waits(const struct gpt_comm *c);
/* Shorter, once the first step has shown that all are well. */
void gpt_comm_set_timeout(struct gpt_comm *c, double timeout);

/* buf (n) in place. Types: F32, F64, BF16 (summed in float), I64. */
void gpt_comm_all_reduce(struct gpt_comm *c, struct gpt_queue *q, void *buf,
                         int64_t n, enum gpt_dtype type, enum gpt_reduce op);
/* in (size * n), out (n): this rank's part of the sum; out may be in + rank*n
 * elements. */
void gpt_comm_reduce_scatter(struct gpt_comm *c, struct gpt_queue *q,
                             void *out, const void *in, int64_t n,
                             enum gpt_dtype type);
/* in (n), out (size * n); in may be out + rank * n elements. */
void gpt_comm_all_gather(struct gpt_comm *c, struct gpt_queue *q, void *out,
                         const void *in, int64_t n, enum gpt_dtype type);
void gpt_comm_broadcast(struct gpt_comm *c, struct gpt_queue *q, void *buf,
                        int64_t n, enum gpt_dtype type, int64_t root);

/* Sends and receives that are posted together, so that neighbours cannot
 * deadlock whatever their order. Between two ranks messages arrive in order.
 * A rank does not send to itself. */
struct gpt_transfer {
    bool send;
    int64_t peer; /* index in the group */
    void *buf;
    int64_t bytes;
};
void gpt_comm_exchange(struct gpt_comm *c, struct gpt_queue *q,
                       const struct gpt_transfer *list, int64_t n);
void gpt_comm_barrier(struct gpt_comm *c, struct gpt_queue *q);

/* The first failure, if any: of this communicator, or why another rank failed
 * when that was the cause. */
int gpt_comm_check(struct gpt_comm *c, struct gpt_err *err) GPT_MUST_USE;

/* Bytes sent by this rank so far, and seconds spent in calls. */
void gpt_comm_counters(const struct gpt_comm *c, int64_t *bytes,
                       double *waited);

#endif
