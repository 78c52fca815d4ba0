/* The ranks that write or read one checkpoint together, and how they agree on
 * it: all hand something to rank 0, rank 0 tells all something. Through the
 * store and not through a communicator, so that a thread beside training can do
 * it. Texts of at most GPT_STORE_VALUE bytes. */
#ifndef GPT_PARALLEL_AGREEMENT_H
#define GPT_PARALLEL_AGREEMENT_H

#include "parallel/store.h"

enum { GPT_AGREEMENT_SILENCE = 10 }; /* seconds; the dead are silent, too */

/* One a thread. Where a pointer to it is NULL there is one rank, which agrees
 * with itself. */
struct gpt_agreement {
    struct gpt_store *store;
    const char *name; /* of its keys in the store: "save" */
    int64_t rank, size;
    double timeout; /* seconds that ranks wait for one to come */
    /* private, 0 at first */
    int64_t session; /* counts gpt_agreement_begin() with this name */
    int64_t round;   /* counts what was told; differs between sessions */
    struct gpt_pulse *pulse;
};

/* A piece of work that ranks do together, of any length. From begin to end a
 * thread says every second or so that this rank lives; so a rank at work is
 * waited for however long it takes, and one that died or hangs is noticed. All
 * ranks call both. */
int gpt_agreement_begin(struct gpt_agreement *p,
                        struct gpt_err *err) GPT_MUST_USE;
void gpt_agreement_end(struct gpt_agreement *p);

/* Is this the rank that others hand to? */
bool gpt_agreement_first(const struct gpt_agreement *p);

/* Within that, all ranks call gather and then tell, as often as they need. A
 * failure (status and *err) may be handed in instead of a text, and comes out
 * on the other side with its status, its text and its rank (err->rank). A rank
 * that does not come in time, falls silent, or posted a failure is GPT_EFAIL
 * with its number in the text. */

/* On rank 0: parts[r] is what rank r handed in, for all `size` ranks (NULL for
 * its own); freed by gpt_agreement_free_parts(). Returns the first failure,
 * after all ranks have come. On other ranks: returns GPT_OK when rank 0 can be
 * told. */
int gpt_agreement_gather(struct gpt_agreement *p, int status, const char *text,
                         char ***parts, struct gpt_err *err) GPT_MUST_USE;
void gpt_agreement_free_parts(const struct gpt_agreement *p, char **parts);

/* On rank 0: tells `text`, or the failure that *err is. On other ranks: *told
 * is rank 0's text, freed with gpt_free(). Returns on all ranks what rank 0
 * called it with. told: may be NULL. */
int gpt_agreement_answer(struct gpt_agreement *p, int status, const char *text,
                       char **told, struct gpt_err *err) GPT_MUST_USE;

/* Both, where only rank 0 has something to say: the first failure of any rank,
 * on all ranks, or rank 0's text. */
int gpt_agreement_settle(struct gpt_agreement *p, int status, const char *text,
                       char **told, struct gpt_err *err) GPT_MUST_USE;

#endif
