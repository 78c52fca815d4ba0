/* The size of the global batch by consumed samples: Megatron-LM's ramp-up, and
 * its schedule of steps. Both are functions of the samples alone, so that a run
 * that resumes has the same sizes. */
#ifndef GPT_TRAIN_BATCH_SCHEDULE_H
#define GPT_TRAIN_BATCH_SCHEDULE_H

#include "base/status.h"

#include <stdint.h>

enum {
    GPT_BATCH_STEPS = 64,       /* of a schedule, at most */
    GPT_BATCH_LARGEST = 1 << 24 /* samples; their tokens fit into an int64_t */
};

struct gpt_batch_step {
    int64_t first_sample; /* from which on a batch has... */
    int64_t batch;        /* ... so many samples */
};

/* The global batch grows from `start` by `increment` at equal distances until
 * `samples` were consumed; from then on it is `global_batch`. start == 0: no
 * ramp-up. With n_steps > 0 the steps say it, in the order of their samples and
 * from sample 0 on; `global_batch` is then the largest of them. */
struct gpt_rampup {
    int64_t start, increment, samples;
    int64_t global_batch;
    int n_steps;
    struct gpt_batch_step steps[GPT_BATCH_STEPS];
};

struct gpt_rampup_names {
    const char *global_batch, *rampup, *steps;
};

/* Adds the steps of `text` in Megatron-LM's form: "THRESHOLD:BATCH", with
 * blanks or commas between several. A number may have a fraction and end in K,
 * M, B or T: 1e3, 1e6, 1e9, 1e12; what is left of a fraction is cut off.
 * Thresholds are tokens, `seq_length` a sample. GPT_EUSAGE names the word and
 * begins with `name`. */
int gpt_batch_steps_add(struct gpt_rampup *r, const char *text,
                        int64_t seq_length, const char *name,
                        struct gpt_err *err) GPT_MUST_USE;
/* When all are added: sorts them, and sets global_batch. GPT_EUSAGE when none
 * begins at sample 0, or two at the same. */
int gpt_batch_steps_sort(struct gpt_rampup *r, const char *name,
                         struct gpt_err *err) GPT_MUST_USE;

/* `multiple` = micro batch * data parallel size: every batch size on the way
 * must be a multiple of it. GPT_EUSAGE with the numbers otherwise; names may be
 * NULL. */
int gpt_rampup_check(const struct gpt_rampup *r, int64_t multiple,
                     const struct gpt_rampup_names *names,
                     struct gpt_err *err) GPT_MUST_USE;
int64_t gpt_rampup_global_batch(const struct gpt_rampup *r,
                                int64_t consumed_samples);
/* Whole batches from *consumed_samples on, until `samples` are consumed;
 * *consumed_samples becomes the sample after the last of them. */
int64_t gpt_rampup_count(const struct gpt_rampup *r, int64_t samples,
                         int64_t *consumed_samples);

#endif
