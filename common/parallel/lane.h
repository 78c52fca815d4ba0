/* Collectives beside the computing: begun on a lane, a queue of its own, they
 * go on while the queue that asked for them computes, until it joins them.
 *
 *     ticket = gpt_lane_begin(lane, q, &sum);    after what is on q so far
 *     ... operations on q that do not touch sum.out or sum.in ...
 *     gpt_lane_join(lane, q, ticket);            q goes on after the sum
 *
 * Where the communicator's calls wait for the bytes (gpt_comm_waits), the lane
 * has a thread that does so in the host's stead; else calls are put on its
 * queue and the host waits for nothing. A lane works in the order in which jobs
 * are begun, which is the same on all ranks. Nobody else uses its communicator
 * while a job is under way. */
#ifndef GPT_PARALLEL_LANE_H
#define GPT_PARALLEL_LANE_H

#include "parallel/comm.h"

enum gpt_lane_kind {
    GPT_LANE_ALL_REDUCE,     /* out (n) in place, summed */
    GPT_LANE_REDUCE_SCATTER, /* in (size * n), out (n) */
    GPT_LANE_ALL_GATHER,     /* in (n), out (size * n) */
};

/* As the calls of comm.h of that name take it. */
struct gpt_lane_job {
    enum gpt_lane_kind kind;
    void *out;
    const void *in;
    int64_t n;
    enum gpt_dtype type;
    float *add_to; /* (n) float, or NULL: out (n), of GPT_F32, is then added to
                    * it */
};

/* The job without a lane, on q: add_to is not for it. */
void gpt_lane_call(struct gpt_comm *comm, struct gpt_queue *q,
                   const struct gpt_lane_job *job);

struct gpt_lane;

/* At most `jobs` are under way at a time; one more waits for the first of them.
 * be and comm outlive the lane. */
int gpt_lane_open(struct gpt_lane **lane, struct gpt_backend *be,
                  struct gpt_comm *comm, int64_t jobs,
                  struct gpt_err *err) GPT_MUST_USE;
/* Waits for what was begun. NULL is fine. */
void gpt_lane_close(struct gpt_lane *lane);

/* The job is copied. Returns its number, from 1 on. */
int64_t gpt_lane_begin(struct gpt_lane *lane, struct gpt_queue *q,
                       const struct gpt_lane_job *job);
/* What is put on q from now on comes after that job and all before it; 0 and
 * jobs that were joined before: nothing is done. One queue joins a lane. */
void gpt_lane_join(struct gpt_lane *lane, struct gpt_queue *q, int64_t job);

/* The first failure of the lane's own queue; failures of the communicator are
 * its own to tell. Waits for nothing when all is joined and the queue that did
 * so was waited for. NULL is fine. */
int gpt_lane_check(struct gpt_lane *lane, struct gpt_err *err) GPT_MUST_USE;

/* Seconds since gpt_lane_open() that jobs took, and that the host waited in
 * gpt_lane_join() and gpt_lane_begin(): the rest was hidden behind computing.
 * When all is joined. Without a thread nobody knows: 0. NULL: 0. */
struct gpt_lane_times {
    double total, waited;
};
struct gpt_lane_times gpt_lane_times(const struct gpt_lane *lane);

#endif
