/* Collectives that overlap computing. They are begun on a lane, which has a
 * queue of its own, and run while the queue that they were begun from computes,
 * until that queue joins them.
 *
 *     job = gpt_lane_begin(lane, q, &sum, NULL);    after what is on q so far
 *     ... operations on q that do not touch sum.out or sum.in ...
 *     gpt_lane_join(lane, q, job);                  q resumes after the sum
 *
 * Where the communicator's calls wait for the bytes (gpt_comm_waits), the lane
 * has a thread that waits in the host's stead; else calls are put on its queue
 * and the host waits for nothing. A lane makes jobs in the order in which they
 * are begun, which is the same on all ranks. No other code uses its
 * communicator while a job is under way. */
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
/* What is put on q from now on comes after that job and all before it. Does
 * nothing for job 0 and for jobs that were joined before. Only one queue may
 * join a lane. */
void gpt_lane_join(struct gpt_lane *lane, struct gpt_queue *q, int64_t job);

/* The first failure of the lane's own queue; failures of the communicator are
 * reported by gpt_comm_check(). Does not wait when all jobs are joined and the
 * queue that joined them was waited for. NULL is fine. */
int gpt_lane_check(struct gpt_lane *lane, struct gpt_err *err) GPT_MUST_USE;

/* Seconds since gpt_lane_open() that jobs took, and that the host waited in
 * gpt_lane_join() and gpt_lane_begin(); the difference was hidden by computing.
 * Valid when all jobs are joined. 0 for NULL, and without a thread, where the
 * times are not known. */
struct gpt_lane_times {
    double total, waited;
};
struct gpt_lane_times gpt_lane_times(const struct gpt_lane *lane);
/* The second of the two, which only the host's thread changes: valid at any
 * time. */
double gpt_lane_waited(const struct gpt_lane *lane);

#endif
