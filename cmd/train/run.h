/* One rank's run, from its setup to its last step: run.c opens it, loop.c makes
 * its steps. */
#ifndef GPT_CMD_TRAIN_RUN_H
#define GPT_CMD_TRAIN_RUN_H

#include "base/io.h"
#include "base/memory.h"
#include "checkpoint/source.h"
#include "train/feed.h"
#include "cmd/train/evaluate.h"
#include "cmd/train/hardware.h"
#include "cmd/train/plan.h"
#include "cmd/train/report.h"
#include "cmd/train/saver.h"

struct gpt_run {
    const struct gpt_train_options *o; /* own_options */
    struct gpt_train_options own_options; /* as settled, see settle.h */
    struct gpt_args args;
    struct gpt_source peeked; /* the checkpoint in --load, before planning */
    struct gpt_arena arena;   /* of texts of options */
    struct gpt_world *world;
    bool planned; /* the ranks are only planned: this process is none of them */
    struct gpt_train_plan plan;
    struct gpt_train_state state;
    struct gpt_backend *be;
    struct gpt_backend absent; /* what be is in a dry run with --hardware */
    struct gpt_hardware absent_has; /* the row that be then is */
    struct gpt_replica *replica;
    struct gpt_corpus *corpus;
    struct gpt_data_stages stages; /* of the training data; n 0: one */
    struct gpt_arena data_names; /* of the corpus */
    struct gpt_loss_rule *loss; /* or NULL */
    struct gpt_feed *feed;
    struct gpt_evaluator *evaluator;
    struct gpt_report *report;
    struct gpt_stragglers *stragglers; /* of rank 0, or NULL */
    char peak_is[96]; /* what utilization is compared with */
    double predicted; /* bytes of this rank's device memory */
    struct gpt_saver *saver; /* with --save */
    struct gpt_state_context context;
    struct gpt_buf option_text;
    char metrics[GPT_PATH_BYTES], samples[GPT_PATH_BYTES];
    char carrier[320]; /* what carries bytes between ranks, in words */
    int lock; /* of --save (checkpoint/lock.h) */
    bool replaces; /* --save holds another run's checkpoints; known to rank 0 */
    double started; /* gpt_now() */
    int64_t bad_steps; /* in a row whose loss was not finite */
    int64_t steps;     /* made by this process */
    int64_t saving;    /* iteration of the newest save that was begun */
    int64_t saved;     /* ... of the newest checkpoint on disk */
};

/* Everything before the first step; with --dry-run only what that shows. It
 * returns on all ranks when all of them are ready. */
int gpt_run_open(struct gpt_run *r, const struct gpt_train_options *options,
                 const struct gpt_args *args,
                 struct gpt_err *err) GPT_MUST_USE;
/* Ends the run with `status`, on all ranks; returns the status to end with. The
 * other ranks learn of it before gpt_run_close() frees what a collective may
 * still use. */
int gpt_run_end(struct gpt_run *r, int status, struct gpt_err *err);
void gpt_run_close(struct gpt_run *r);

/* Samples that all ranks together take with one microbatch each. */
int64_t gpt_run_samples(const struct gpt_run *r);

#endif
