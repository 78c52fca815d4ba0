/* The plan of a run: what follows from the options before anything large is
 * allocated or read. Start at gpt_train_plan(). */
#ifndef GPT_TRAIN_PLAN_H
#define GPT_TRAIN_PLAN_H

#include "data/corpus.h"
#include "text/tokenizer.h"
#include "train/options.h"
#include "train/replica.h"
#include "train/schedule.h"

struct gpt_train_plan {
    struct gpt_replica_options replica;
    struct gpt_corpus_options corpus;
    struct gpt_mask_options masks;
    struct gpt_schedule schedule;
    struct gpt_rampup rampup; /* .global_batch is the full size */
    int64_t train_iters;      /* of the whole run */
    int64_t train_samples;    /* consumed when it is over */
    int64_t vocab_dummies;    /* rows added by padding */
};

/* Checks every option against the others: GPT_EUSAGE names option, value and
 * rule; GPT_EDATA for a vocabulary that does not load. Lists and strings of
 * *o must outlive the plan. */
int gpt_train_plan(struct gpt_train_plan *plan,
                   const struct gpt_train_options *o,
                   const struct gpt_args *args,
                   struct gpt_err *err) GPT_MUST_USE;

#endif
