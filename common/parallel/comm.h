/* Collective communication over a group of ranks, through one of two carriers;
 * a group of one needs none.
 *
 * Gloo carries bytes between CPUs; device memory is staged through the host, so
 * that several ranks may share a GPU. Calls wait for the queue, then run to
 * their end. Sums are made in the order of ranks: the same bits whatever the
 * timing.
 *
 * NCCL carries them between GPUs, one a rank. Calls are put on the queue, as
 * operations are: results are there after sync(). Sums are made in an order of
 * NCCL's own, which depends on sizes and machines, and are rounded to their
 * type on the way, also in BF16 and F16; a maximum may lose a NaN.
 *
 * The first failure sticks: later calls return at once, and gpt_comm_check()
 * names collective, group, number and the ranks that have not arrived. A call
 * on a queue that fails, or waits for longer than the timeout, is ended, too;
 * what it wrote is undefined then. */
#ifndef GPT_PARALLEL_COMM_H
#define GPT_PARALLEL_COMM_H

#include "collectives.h"
#include "parallel/store.h"

enum gpt_carrier { GPT_GLOO, GPT_NCCL };

struct gpt_comm;

struct gpt_comm_options {
    struct gpt_store *store; /* outlives it; may be NULL when n is 1 */
    struct gpt_backend *be;  /* outlives it */
    enum gpt_carrier carrier; /* GPT_NCCL needs be->collectives */
    const char *name; /* unique ("tp.0-1"), appears in messages; is copied */
    const int64_t *ranks; /* n world ranks; are copied */
    int64_t n, index;     /* index: this rank's place in them */
    double timeout; /* seconds that a call waits for members at most */
};

/* A group. All members call it, and everything below, in the same order. */
int gpt_comm_open(struct gpt_comm **c, const struct gpt_comm_options *options,
                  struct gpt_err *err) GPT_MUST_USE;
void gpt_comm_close(struct gpt_comm *c); /* NULL is fine */
int64_t gpt_comm_size(const struct gpt_comm *c);
int64_t gpt_comm_rank(const struct gpt_comm *c); /* index in the group */
/* True when a call returns when it is over, instead of when it is on the
 * queue. */
bool gpt_comm_waits(const struct gpt_comm *c);
/* Sets the timeout of later calls, in seconds; INFINITY: none. */
void gpt_comm_set_timeout(struct gpt_comm *c, double timeout);
double gpt_comm_timeout(const struct gpt_comm *c);

/* buf (n) in place. Types: F32, F64, BF16 and F16 (Gloo: summed in float), I64.
 */
void gpt_comm_all_reduce(struct gpt_comm *c, struct gpt_queue *q, void *buf,
                         int64_t n, enum gpt_dtype type, enum gpt_reduce op);
/* in (n), out (size * n); in may be out + rank * n elements. */
void gpt_comm_all_gather(struct gpt_comm *c, struct gpt_queue *q, void *out,
                         const void *in, int64_t n, enum gpt_dtype type);

/* Sends and receives that are posted together, so that neighbours cannot
 * deadlock whatever their order. Between two ranks messages arrive in order.
 * A rank does not send to itself. */
void gpt_comm_exchange(struct gpt_comm *c, struct gpt_queue *q,
                       const struct gpt_transfer *list, int64_t n);

/* Any call by its description, of which those above are short forms:
 * GPT_REDUCE_SCATTER: in (size * n), out (n), this rank's part of the sum,
 * which may be in + rank * n elements; GPT_BROADCAST: from `root`, out (n),
 * which is `in`; GPT_BARRIER: no data. */
void gpt_comm_call(struct gpt_comm *c, struct gpt_queue *q,
                   const struct gpt_collective *call);

/* Host memory that a member holds for calls through Gloo, in bytes: copies of
 * what the device sends and receives, where its memory is not the host's
 * (`staged`), and parts of sums. It is kept from the largest call on; room_add
 * widens it by a call in a group of `size`. Nothing is held for NCCL. */
struct gpt_comm_room {
    int64_t in, out, parts;
};
void gpt_comm_room_add(struct gpt_comm_room *room, int64_t size, bool staged,
                       const struct gpt_collective *call);
int64_t gpt_comm_room_bytes(const struct gpt_comm_room *room); /* all of it */

/* The first failure of this communicator, if any; where another rank's failure
 * was the cause, that one's reason. */
int gpt_comm_check(struct gpt_comm *c, struct gpt_err *err) GPT_MUST_USE;

/* Fails the communicator, and the call that waits, because a rank is gone; from
 * any thread. The first failure stays. */
void gpt_comm_give_up(struct gpt_comm *c, int64_t rank, const char *text);

/* Bytes sent by this rank so far (NCCL: those that a ring sends), and seconds
 * spent in calls. */
void gpt_comm_counters(const struct gpt_comm *c, int64_t *bytes,
                       double *waited);

#endif
