/* Collectives beside the computing: begun on a lane, a queue of its own, they
 * go on while the queue that asked for them computes, until it joins them.
 *
 *     job = gpt_lane_begin(lane, q, &sum, NULL);    after what is on q so far
 *     ... operations on q that do not touch sum.out or sum.in ...
 *     gpt_lane_join(lane, q, job);                  q goes on after the sum
 *
 * Where the communicator's calls wait for the bytes (gpt_comm_waits), the lane
 * has a thread that does so in the host's stead; else calls are put on its
 * queue and the host waits for nothing. A lane works in the order in which jobs
 * are begun, which is the same on all ranks. Nobody else uses its communicator
 * while a job is under way. */
#ifndef GPT_PARALLEL_LANE_H
#define GPT_PARALLEL_LANE_H

#include "parallel/comm.h"

struct gpt_lane;

/* At most `jobs` are under way at a time; one more waits for the first of them.
 * be and comm outlive the lane. */
int gpt_lane_open(struct gpt_lane **lane, struct gpt_backend *be,
                  struct gpt_comm *comm, int64_t jobs,
                  struct gpt_err *err) GPT_MUST_USE;
/* Waits for what was begun. NULL is fine. */
void gpt_lane_close(struct gpt_lane *lane);

/* Begins a call, as gpt_comm_call() makes it; it is copied, a list is not.
 * add_to: (n) float, to which the result, out (n) of GPT_F32, is added then;
 * NULL: it is not. Returns the job's number, from 1 on. */
int64_t gpt_lane_begin(struct gpt_lane *lane, struct gpt_queue *q,
                       const struct gpt_collective *call, float *add_to);
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
