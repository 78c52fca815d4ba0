/* Pieces of work that are put on a queue again and again, recorded where the
 * device can (backend.h): the first time a piece runs as it is, so that work
 * space is there and algorithms are chosen; the second time it is recorded;
 * from then on one call puts it on the queue. */
#ifndef GPT_MODEL_RECORDER_H
#define GPT_MODEL_RECORDER_H

#include "backend.h"

struct gpt_recorder;

/* n pieces, numbered from 0. */
int gpt_recorder_open(struct gpt_recorder **pieces, struct gpt_backend *be,
                      int64_t n, struct gpt_err *err) GPT_MUST_USE;
void gpt_recorder_close(struct gpt_recorder *pieces); /* NULL is fine */

/* Puts piece i on the queue: work(context), which depends on i alone but for
 * what it reads from device memory. */
void gpt_recorder_run(struct gpt_recorder *pieces, struct gpt_queue *q,
                      int64_t i, void (*work)(void *context), void *context);

#endif
