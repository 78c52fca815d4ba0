/* Given texts through the model while it is trained: what its logits say of
 * them, on all ranks. A text is a row of a microbatch, padded, and goes through
 * the pipeline's own forward, in any layout; nothing is kept from one pass to
 * the next, so that a token more costs a whole pass. Weights, random numbers
 * and the position in the data stay as they are.
 *
 * Every rank of the world makes the same calls with the same texts. */
#ifndef GPT_TRAIN_TEXTS_H
#define GPT_TRAIN_TEXTS_H

#include "train/feed.h"
#include "train/replica.h"

enum { GPT_TEXT_ANSWERS = 2 };

struct gpt_given {
    const int32_t *tokens; /* (n), n <= T + 1 */
    int64_t n;
    int64_t from, to; /* rows whose logits are looked at: those after the tokens
                       * of these places; 0 <= from <= to <= n, to <= T */
};

/* Called on one rank, for each row of a text in order: logits (V) float, those
 * of the token after tokens[row]. It adds to the text's answer, which begins
 * with zeros, and is the same on all ranks in the end. */
struct gpt_given_reader {
    void (*row)(void *user, int64_t text, int64_t row, const float *logits,
                double answer[GPT_TEXT_ANSWERS]);
    void *user;
};

struct gpt_texts;

/* Bytes in memory of the device, and of the host. */
void gpt_texts_memory(const struct gpt_replica *replica, int64_t dp_size,
                      int64_t *device, int64_t *host);
/* Numbers that the ranks add up at once, at most. */
int64_t gpt_texts_sums(const struct gpt_replica *replica, int64_t dp_size);
/* The feed is used by passes and keeps none of them; both outlive the texts. */
int gpt_texts_open(struct gpt_texts **t, struct gpt_replica *replica,
                   struct gpt_feed *feed, int64_t dp_size, int64_t dp_rank,
                   struct gpt_err *err) GPT_MUST_USE;
void gpt_texts_close(struct gpt_texts *t); /* NULL is fine */
int64_t gpt_texts_vocab(const struct gpt_texts *t); /* V */

/* Reads n texts, in as many passes as that takes. */
int gpt_texts_read(struct gpt_texts *t, const struct gpt_given *texts,
                   int64_t n, const struct gpt_given_reader *reader,
                   double (*answers)[GPT_TEXT_ANSWERS],
                   struct gpt_err *err) GPT_MUST_USE;

#endif
