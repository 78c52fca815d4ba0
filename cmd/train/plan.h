/* The plan of a run: what follows from the options before anything large is
 * allocated or read. Every rule between options is checked here, and every
 * number that several options decide is computed here, once. Start at
 * gpt_train_plan(). */
#ifndef GPT_CMD_TRAIN_PLAN_H
#define GPT_CMD_TRAIN_PLAN_H

#include "data/batch.h"
#include "data/corpus.h"
#include "parallel/world.h"
#include "tokenizer/tokenizer.h"
#include "cmd/train/options.h"
#include "train/reduce.h"
#include "train/replica.h"
#include "train/batch_schedule.h"
#include "train/lr_schedule.h"

struct gpt_train_plan {
    const struct gpt_train_options *options; /* that it was made from */
    struct gpt_topology topology;
    struct gpt_replica_options replica;
    int64_t micro_samples; /* samples that all data parallel ranks together take
                            * as one microbatch each */
    struct gpt_corpus_options corpus;
    struct gpt_mask_options masks;
    struct gpt_lr_schedule schedule;
    struct gpt_rampup rampup; /* .global_batch is the largest size */
    int64_t train_iters;      /* of the whole run */
    int64_t train_samples;    /* consumed when it is over */
    int64_t length_samples;   /* the length where samples give it: those of
                               * --train-samples or of --epochs; 0: steps do */
    int64_t vocab_dummies;    /* rows added by padding */
    bool evaluates;           /* no step is made: losses of a loaded model */
    bool valid_sets;          /* there are validation sets with names */
    int64_t valid_samples;    /* of a validation set, in the whole run */
};

/* True when nothing will be trained: data, length and rate may be missing. */
static inline bool gpt_train_is_dry(const struct gpt_train_options *o)
{
    return o->dry_run || o->simulate;
}

/* Fills the options of the world: sizes and timeouts. GPT_EUSAGE names option,
 * value and rule. */
int gpt_train_world_options(struct gpt_world_options *world,
                            const struct gpt_train_options *o,
                            struct gpt_err *err) GPT_MUST_USE;

/* The plan of rank t->rank. Checks every option against the others: GPT_EUSAGE
 * names option, value and rule; GPT_EDATA for a vocabulary that does not load.
 * *o must outlive the plan. */
int gpt_train_plan(struct gpt_train_plan *plan,
                   const struct gpt_train_options *o,
                   const struct gpt_args *args, const struct gpt_topology *t,
                   struct gpt_err *err) GPT_MUST_USE;

/* The same of rank 0 of so many, whatever there are now: for trials of options,
 * whose failure is no message. */
int gpt_train_plan_of(struct gpt_train_plan *plan,
                      const struct gpt_train_options *o,
                      const struct gpt_args *args,
                      int64_t ranks) GPT_MUST_USE;

/* Fits length, samples and schedule of the plan to a run that resumes after
 * `iteration` steps and `consumed` samples. */
int gpt_train_plan_rest(struct gpt_train_plan *plan, int64_t iteration,
                        int64_t consumed, struct gpt_err *err) GPT_MUST_USE;

/* Samples of so many steps of this plan, for a run at `what` of a program that
 * counts steps alone: its place in the data, and in the schedule. */
int64_t gpt_train_plan_samples(const struct gpt_train_plan *plan,
                               int64_t iteration, const char *what);

/* Steps of `batch` samples, where no schedule of batches says it. */
void gpt_train_set_batch(struct gpt_train_options *o, int64_t batch);

/* The part of the model that tensor parallel rank tp_rank of stage pp_rank
 * has. */
int gpt_train_layout(const struct gpt_train_plan *plan, int64_t tp_rank,
                     int64_t pp_rank, struct gpt_layout *layout,
                     struct gpt_err *err) GPT_MUST_USE;

/* True where options name training data, or --mock-data makes them. */
bool gpt_train_names_data(const struct gpt_train_options *o);

/* For plan.c: the part of gpt_train_plan() that is the model. */
int gpt_train_plan_model(struct gpt_train_plan *plan,
                         const struct gpt_train_options *o,
                         const struct gpt_args *args,
                         struct gpt_err *err) GPT_MUST_USE;
/* For plan.c: the part of gpt_train_plan() about ranks, after the model and the
 * batches. */
int gpt_train_plan_ranks(struct gpt_train_plan *plan,
                         const struct gpt_train_options *o,
                         const struct gpt_args *args,
                         struct gpt_err *err) GPT_MUST_USE;

/* For plan.c: the data, after the length of the run. */
int gpt_train_plan_data(struct gpt_train_plan *plan,
                        const struct gpt_train_options *o,
                        const struct gpt_args *args,
                        struct gpt_err *err) GPT_MUST_USE;

/* For plan.c: learning rate and weight decay, after the length of the run. */
int gpt_train_plan_schedule(struct gpt_train_plan *plan,
                            const struct gpt_train_options *o,
                            const struct gpt_args *args,
                            struct gpt_err *err) GPT_MUST_USE;

/* For plan.c: the schedule again, after the length has changed. */
int gpt_train_plan_refit(struct gpt_train_plan *plan,
                         struct gpt_err *err) GPT_MUST_USE;

/* Returns the schedule that the plan's options would give to a run as long as
 * that of `there`, the schedule of a checkpoint. Where it equals `there`, the
 * plan and the checkpoint differ only in the lengths of their runs. */
struct gpt_lr_schedule
gpt_train_schedule_for(const struct gpt_train_plan *plan,
                       const struct gpt_lr_schedule *there);

#endif
