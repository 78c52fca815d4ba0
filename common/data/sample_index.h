/* The samples of one split of one data set: a document index (sequences in the
 * order in which they are visited, over as many epochs as needed), a sample
 * index (where in it each sample starts) and a shuffle index, equal to those of
 * Megatron's GPTDataset. Start at gpt_samples_build(). */
#ifndef GPT_DATA_SAMPLE_INDEX_H
#define GPT_DATA_SAMPLE_INDEX_H

#include "base/status.h"

/* What follows from counts alone. */
struct gpt_samples_plan {
    int64_t epochs;   /* times that every sequence is visited */
    int64_t n;        /* samples in all of them */
    bool separate;    /* the last epoch, little of which is used, is shuffled
                       * by itself */
    int64_t n_before; /* samples that start before the last epoch */
};

/* tokens >= 1 of one epoch; wanted samples, or 0 for one epoch. False when the
 * numbers overflow. */
bool gpt_samples_plan(struct gpt_samples_plan *plan, int64_t tokens,
                      int64_t seq_length, int64_t wanted);

/* Sequences [begin, end) of a data set, their lengths (int32, any alignment,
 * indexed from 0), and what is wanted of them. */
struct gpt_samples_source {
    const uint8_t *lengths;
    int64_t begin, end;
    int64_t seq_length; /* a sample has one token more; >= 1 */
    int64_t wanted;     /* samples; 0 = one epoch */
    uint32_t seed;
    bool documents; /* a sample is a sequence, whatever its length */
    bool in_order;  /* nothing is shuffled */
    bool repeat; /* fewer tokens than one sample takes are repeated in it, as in
                  * Megatron-LM, when samples are wanted */
};

struct gpt_samples {
    struct gpt_samples_plan plan;
    int64_t n_tokens;   /* of one epoch */
    int64_t n_visits;   /* epochs * (end - begin) */
    uint32_t *document; /* (n_visits) sequence numbers */
    uint32_t *visit;    /* (n + 1) index into `document` ... */
    int32_t *offset;    /* (n + 1) ... and token where sample k starts */
    uint32_t *shuffle;  /* (n) sample number -> k */
};

/* With `documents` sample k is sequence document[k], each epoch shuffled by
 * itself; visit[k] is k and offset[k] 0.
 * GPT_EDATA when there are fewer tokens than one sample takes, or more visits
 * or samples than 32 bits number, GPT_EFAIL when a signal has asked to stop. */
int gpt_samples_build(struct gpt_samples *s,
                      const struct gpt_samples_source *source,
                      struct gpt_err *err) GPT_MUST_USE;
void gpt_samples_free(struct gpt_samples *s);

/* Bytes of the index of n samples with these visits; 0 of none. */
int64_t gpt_samples_bytes(int64_t n, int64_t visits);

#endif
