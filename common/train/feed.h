/* From a corpus to microbatches: this rank's samples of one global batch, with
 * targets, positions, masks and the weights of their losses. A thread reads the
 * next batch while one is computed with and, where the device has memory of its
 * own, puts it there, on a queue of the feed's own.
 *
 * A global batch of D * n microbatches, D data parallel ranks, begins at sample
 * `first`: microbatch i of rank d is global microbatch i * D + d, of samples
 * first + B * (i * D + d) and following (Megatron's sampler). So which samples
 * a step sees depends on how many were consumed before, and on nothing else. */
#ifndef GPT_TRAIN_FEED_H
#define GPT_TRAIN_FEED_H

#include "data/batch.h"
#include "data/corpus.h"
#include "data/token_text.h"
#include "train/loss.h"

struct gpt_feed_options {
    const struct gpt_corpus *corpus;
    struct gpt_mask_options masks;
    bool per_token; /* see gpt_feed_read() */
    const struct gpt_loss_rule *loss; /* weights of its own in training; NULL:
                                       * none. Outlives the feed */
    const struct gpt_token_text *text; /* bytes of tokens, NULL: not known.
                                        * Outlives the feed */
    int64_t micro_batch, seq_length; /* B, T */
    int64_t max_micro_batches;       /* of a global batch, on this rank */
    int64_t dp_size, dp_rank;        /* D, d; 0, 0: alone */
    struct gpt_backend *be;
    struct gpt_queue *q; /* that computes with the batches */
};

struct gpt_feed;

int gpt_feed_open(struct gpt_feed **feed,
                  const struct gpt_feed_options *options,
                  struct gpt_err *err) GPT_MUST_USE;
void gpt_feed_close(struct gpt_feed *feed);

/* Bytes of two batches, one of them being read ahead: in host memory, and in
 * memory of the device. */
int64_t gpt_feed_memory(const struct gpt_feed_options *options);
int64_t gpt_feed_device_memory(const struct gpt_feed_options *options);

/* Reads this rank's n microbatches of the global batch that begins at sample
 * `first` of a split; samples past the end of the split begin again at 0. A
 * row's weight is its mask / (unmasked rows of the microbatch * n * D): the
 * mean over all microbatches of their means, so that gradients are plain sums.
 * per_token: its mask / (rows of the global batch, masked or not), as how many
 * are unmasked is known only when all ranks have counted theirs; the step
 * corrects gradients by that ratio, and they are those of one mean. */
int gpt_feed_read(struct gpt_feed *feed, enum gpt_split split, int64_t first,
                  int64_t n, struct gpt_err *err) GPT_MUST_USE;

/* Starts to read what will be asked for next in the background. Where no thread
 * could be started for that it does nothing, and the next read reads it. */
void gpt_feed_ahead(struct gpt_feed *feed, enum gpt_split split, int64_t first,
                    int64_t n);

/* Reads from another corpus from here on; what was read ahead is forgotten. */
void gpt_feed_use(struct gpt_feed *feed, const struct gpt_corpus *corpus);

/* A batch of given tokens instead of samples: (n, B, T + 1) of this rank, -1
 * after the end of a row. No token has a meaning of its own there, as the end
 * of a document has in a corpus. */
int gpt_feed_give(struct gpt_feed *feed, const int32_t *tokens, int64_t n,
                  struct gpt_err *err) GPT_MUST_USE;

/* Microbatch i of the batch read last; valid until the next read. */
const struct gpt_microbatch *gpt_feed_microbatch(const struct gpt_feed *feed,
                                                 int64_t i);
/* Where the stage puts its losses, (B, T). */
float *gpt_feed_losses(struct gpt_feed *feed, int64_t i);

/* Sum of the unmasked losses of this rank's part of the batch, and their
 * number. With weights of its own: its part of the objective, and 0. */
double gpt_feed_loss(const struct gpt_feed *feed, int64_t *rows);

/* The part of the same sum whose tokens are text, and the bytes of that text;
 * both 0 where the feed does not know the bytes of tokens. */
double gpt_feed_text_loss(const struct gpt_feed *feed, int64_t *bytes);

#endif
