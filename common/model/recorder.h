/* Records operations on a queue and replays them, where the device can
 * (backend.h: CUDA graphs). Work that repeats has a number. Its first call runs
 * directly, so that work space is there and algorithms are chosen; its second
 * call is recorded; from then on one replay puts it on the queue. */
#ifndef GPT_MODEL_RECORDER_H
#define GPT_MODEL_RECORDER_H

#include "backend.h"

struct gpt_recorder;

/* For work numbered from 0 to n - 1. */
int gpt_recorder_open(struct gpt_recorder **recorder, struct gpt_backend *be,
                      int64_t n, struct gpt_err *err) GPT_MUST_USE;
void gpt_recorder_close(struct gpt_recorder *recorder); /* NULL is fine */

/* Puts the operations of work `number` on the queue: replays them, or calls
 * work(context). They may depend on the number alone, and on what they read
 * from device memory. A failure to record is logged once, and every later call
 * runs directly. */
void gpt_recorder_run(struct gpt_recorder *recorder, struct gpt_queue *q,
                      int64_t number, void (*work)(void *context),
                      void *context);

#endif
