/* The ranks that write or read one checkpoint together, and how they agree on
 * it: all hand something to rank 0, rank 0 tells all something. Through the
 * store and not through a communicator, so that a thread beside training can do
 * it. Small texts only. */
#ifndef GPT_CHECKPOINT_PEERS_H
#define GPT_CHECKPOINT_PEERS_H

#include "parallel/store.h"

/* One a thread. Where a pointer to it is NULL there is one rank, which agrees
 * with itself. */
struct gpt_peers {
    struct gpt_store *store;
    const char *name; /* of its keys in the store: "save" */
    int64_t rank, size;
    double timeout; /* seconds that ranks wait for each other */
    int64_t round;  /* begins as 0 on all; counts what was told */
};

/* Is this the rank that others hand to? */
bool gpt_peers_first(const struct gpt_peers *p);

/* All ranks call the following two in the same order, first gather, then tell,
 * or tell alone. A failure (status and *err) may be handed in instead of a
 * text, and comes out on the other side as "rank 3: its text" with its status;
 * a rank that does not come, or ended, is GPT_EFAIL with its number. */

/* On rank 0: parts[r] is what rank r handed in, for all `size` ranks (NULL for
 * its own); freed by gpt_peers_free_parts(). Returns the first failure, after
 * all ranks have come. On other ranks: returns GPT_OK when rank 0 can be
 * told. */
int gpt_peers_gather(struct gpt_peers *p, int status, const char *text,
                     char ***parts, struct gpt_err *err) GPT_MUST_USE;
void gpt_peers_free_parts(const struct gpt_peers *p, char **parts);

/* On rank 0: tells `text`, or the failure that *err is. On other ranks: *told
 * is rank 0's text, freed with gpt_free(). Returns on all ranks what rank 0
 * called it with. told: may be NULL. */
int gpt_peers_tell(struct gpt_peers *p, int status, const char *text,
                   char **told, struct gpt_err *err) GPT_MUST_USE;

/* The first failure of any rank, on all ranks. */
int gpt_peers_agree(struct gpt_peers *p, int status, struct gpt_err *err)
    GPT_MUST_USE;

#endif
