/* Plays the plans of all stages against each other under the hardest rule: a
 * send waits for its receive, and a group for all of its transfers. Shared by
 * the checker and the simulator. Inside parallel/ only. */
#ifndef GPT_PARALLEL_SCHEDULE_PLAY_H
#define GPT_PARALLEL_SCHEDULE_PLAY_H

#include "parallel/schedule.h"

struct gpt_play {
    const struct gpt_pipeline_plan *plans;
    int64_t stages;
    int64_t *at;   /* a stage: the next action, or where its group begins */
    int64_t *end;  /* a stage: end of the posted group, 0 when none is */
    uint8_t **met; /* a stage, an action: this transfer is done */
    int64_t *ready, n_ready; /* stages that may have something to do */
    bool *is_ready;
};

/* Something happened, in an order of cause and effect. */
struct gpt_play_event {
    int64_t stage, action; /* an action of computing, or the sender's */
    int64_t to, receive;   /* the receiver and its action; to -1: computing */
};

/* The beginning of a step of so many stages, each with its plan (borrowed). */
int gpt_play_open(struct gpt_play *y, const struct gpt_pipeline_plan *plans,
                  int64_t stages, struct gpt_err *err) GPT_MUST_USE;
void gpt_play_close(struct gpt_play *y);

/* False when nothing can happen any more: all is done, or some stages wait for
 * ever. Peers must be numbers of stages. */
bool gpt_play_next(struct gpt_play *y, struct gpt_play_event *e);

/* A stage that did not reach its end, or -1. */
int64_t gpt_play_stuck(const struct gpt_play *y);

#endif
