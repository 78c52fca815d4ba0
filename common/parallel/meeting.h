/* The first part of a rank's way, for world.c: it finds the store, takes its
 * number, and meets its neighbours. */
#ifndef GPT_PARALLEL_MEETING_H
#define GPT_PARALLEL_MEETING_H

#include "parallel/world.h"

/* Fills in w->store and w->links (none in a world of one). GPT_EUSAGE names a
 * second process of this rank; w->store is NULL then if the job runs already,
 * as nothing is to be posted to it. So it is with GPT_EFAIL, where the job of
 * the first process has failed. */
int gpt_world_meet(struct gpt_world *w, const struct gpt_links_options *o,
                   struct gpt_err *err) GPT_MUST_USE;

#endif
