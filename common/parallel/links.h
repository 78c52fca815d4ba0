/* A ring of connections over all ranks of a job, on which nothing is sent: the
 * end of a connection is the end of the rank at its other end. So a rank that
 * dies is noticed at once, by two others, whatever the ranks are doing, however
 * they were launched, and wherever the store is served. Start at
 * gpt_links_open(). */
#ifndef GPT_PARALLEL_LINKS_H
#define GPT_PARALLEL_LINKS_H

#include "parallel/store.h"

struct gpt_links;

struct gpt_links_options {
    int64_t rank, size;
    double timeout; /* seconds, for all ranks to come */
    /* Called in a thread of its own, once a neighbour: `rank` is gone, and has
     * not reported why. The text says what was seen. */
    void (*lost)(void *context, int64_t rank, const char *text);
    void *context;
};

/* Connects to the next rank and accepts the one before; all ranks call it.
 * GPT_EFAIL after the timeout, and as gpt_store_check_wait(). */
int gpt_links_open(struct gpt_links **l, struct gpt_store *store,
                   const struct gpt_links_options *o,
                   struct gpt_err *err) GPT_MUST_USE;
/* Tells the neighbours that this rank ends, so that they do not take it for
 * lost. NULL is fine. */
void gpt_links_close(struct gpt_links *l);

#endif
