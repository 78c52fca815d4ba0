/* Ranks that do a piece of work together (write or read one checkpoint) and
 * agree on how it ends: all hand a text or a failure to rank 0, and rank 0
 * answers all of them. They use the store and not a communicator, so that a
 * thread beside training can do it. Texts have at most GPT_STORE_VALUE bytes.
 * Start at gpt_agreement_settle(). */
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
    double timeout; /* seconds that ranks wait for one that has not come */
    /* private, 0 at first */
    int64_t session; /* counts gpt_agreement_begin() with this name */
    int64_t round;   /* counts answers; differs between sessions */
    struct gpt_pulse *pulse;
};

/* A piece of work that ranks do together, of any length. From begin to end a
 * thread posts every second or so that this rank lives. So a rank at work is
 * waited for however long it takes, and one that died or hangs is noticed. All
 * ranks call both; to end what did not begin, or NULL, does nothing. */
int gpt_agreement_begin(struct gpt_agreement *p,
                        struct gpt_err *err) GPT_MUST_USE;
void gpt_agreement_end(struct gpt_agreement *p);

/* True on the rank that the others hand to. */
bool gpt_agreement_first(const struct gpt_agreement *p);

/* Between the two, all ranks call gather and then answer, as often as they
 * need. A failure (status and *err) may be handed in instead of a text, and
 * comes out on the other side with its status, its text and its rank
 * (err->rank). A rank that does not come in time, falls silent, or posted a
 * failure is GPT_EFAIL with its number in the text. */

/* On rank 0: parts[r] is what rank r handed in, for all `size` ranks (NULL for
 * its own); freed by gpt_agreement_free_parts(). Returns the first failure,
 * after all ranks have come. On other ranks: returns GPT_OK when the message is
 * in the store. */
int gpt_agreement_gather(struct gpt_agreement *p, int status, const char *text,
                         char ***parts, struct gpt_err *err) GPT_MUST_USE;
void gpt_agreement_free_parts(const struct gpt_agreement *p, char **parts);

/* On rank 0: posts `text`, or the failure that *err is, as the answer. On other
 * ranks: waits for it; *told is its text, freed with gpt_free(), and may be
 * NULL. Returns on all ranks the status that rank 0 called it with. */
int gpt_agreement_answer(struct gpt_agreement *p, int status, const char *text,
                         char **told, struct gpt_err *err) GPT_MUST_USE;

/* Both, where only rank 0 has a text: on all ranks the first failure of any
 * rank, or rank 0's text. */
int gpt_agreement_settle(struct gpt_agreement *p, int status, const char *text,
                         char **told, struct gpt_err *err) GPT_MUST_USE;

#endif
