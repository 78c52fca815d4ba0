/* How long a run is: --epochs becomes a number of steps, and a run that resumes
 * with another batch has other steps left. */
#include "cmd/train/run_parts.h"

#include "base/log.h"
#include "base/num.h"
#include "cmd/train/data_names.h"
#include "cmd/train/split_paths.h"

/* Samples of an epoch of the data that `options` name. The plan's own corpus is
 * opened for the length of the run, which is not known yet. */
static int count_epoch(struct gpt_run *r, int64_t *samples, struct gpt_err *err)
{
    struct gpt_corpus_options options = r->plan.corpus;
    struct gpt_arena names = {.chunks = NULL};
    struct gpt_corpus *corpus = NULL;
    int status;

    *samples = 0;
    if (options.n_data_path == 0 && options.n_split_path[GPT_TRAIN] == 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--epochs needs --data-path or --train-data-path");
    /* indices of one epoch are the least that can be built */
    options.n_samples[GPT_TRAIN] = 1;
    options.n_samples[GPT_VALID] = options.n_samples[GPT_TEST] = 0;
    GPT_TRY_GOTO(status,
                 gpt_train_find_data(&options, gpt_train_data_file(r->o),
                                     &names, false, err),
                 out);
    GPT_TRY_GOTO(status, gpt_corpus_open(&corpus, &options, err), out);
    *samples = gpt_corpus_epoch(corpus, GPT_TRAIN);
    if (*samples == 0)
        status = gpt_fail(err, GPT_EUSAGE,
                          "--epochs: an epoch of the training data is less "
                          "than one sample of --seq-length %lld",
                          (long long)r->o->seq_length);
    /* weights decide how often each is read: there is no number of passes */
    if (*samples < 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "--epochs: a blend by weights reads its data sets unequally "
                 "often");
        status = gpt_hint(err, "--train-iters or --train-samples give the "
                               "length of a run on a blend");
    }
    if (*samples > 0 && r->o->epochs > 1 &&
        gpt_corpus_ends(corpus, GPT_TRAIN)) {
        gpt_fail(err, GPT_EUSAGE,
                 "--epochs %lld: several data sets without weights are read "
                 "once", (long long)r->o->epochs);
        status = gpt_hint(err, "gpt-dataset merge makes one data set of them");
    }
out:
    gpt_corpus_close(corpus);
    gpt_arena_free(&names);
    return status;
}

/* Epochs become steps, whose rules would name an option that was not given. */
static int check_epochs(const struct gpt_train_options *o, struct gpt_err *err)
{
    const struct {
        const char *name;
        bool given, counts_samples;
    } others[] = {
        {"train-iters", o->train_iters > 0, false},
        {"train-samples", o->train_samples > 0, false},
        {"rampup-batch-size", o->rampup.n > 0, true},
        {"step-batch-size-schedule", o->batch_steps.n > 0, true},
        {"lr-decay-samples", o->lr_decay_samples > 0, true},
        {"lr-warmup-samples", o->lr_warmup_samples > 0, true},
        {"lr-wsd-decay-samples", o->lr_wsd_decay_samples > 0, true},
    };

    for (size_t i = 0; i < GPT_COUNT(others); i++) {
        if (!others[i].given)
            continue;
        gpt_fail(err, GPT_EUSAGE, "--epochs and --%s exclude each other",
                 others[i].name);
        return others[i].counts_samples
                   ? gpt_hint(err, "it goes with --train-samples; epochs are "
                                   "counted in steps")
                   : GPT_EUSAGE;
    }
    return GPT_OK;
}

/* With --epochs the plan is made twice: the data tell how many steps an epoch
 * is, and the first plan which data they are. A last part of a batch is not
 * trained on, so that no document is seen more than N times. */
int gpt_run_plan(struct gpt_run *r, struct gpt_err *err)
{
    const struct gpt_args *args = &r->args;
    struct gpt_train_options *o = &r->own_options;
    int64_t samples, wanted;

    /* a run that resumes counts its epochs from the start, too */
    if (o->epochs == 0)
        return gpt_train_plan(&r->plan, o, args, &r->world->topology, err);
    GPT_TRY(check_epochs(o, err));
    o->train_iters = 1000000; /* any length: the data do not depend on it */
    GPT_TRY(gpt_train_plan(&r->plan, o, args, &r->world->topology, err));
    GPT_TRY(count_epoch(r, &samples, err));
    if (!gpt_mul(samples, o->epochs, &wanted))
        return gpt_fail(err, GPT_EUSAGE, "--epochs %lld x %lld samples is too "
                        "large", (long long)o->epochs, (long long)samples);
    /* the data are opened again for this length: indices are cheap to build */
    o->train_iters = wanted / r->plan.rampup.global_batch;
    if (o->train_iters == 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--epochs %lld: %lld samples are less than one batch "
                        "of %lld", (long long)o->epochs, (long long)wanted,
                        (long long)r->plan.rampup.global_batch);
    GPT_TRY(gpt_train_plan(&r->plan, o, args, &r->world->topology, err));
    /* whatever the batch is, so that a run that resumes with another one reads
     * the same samples in the same order */
    r->plan.length_samples = r->plan.corpus.n_samples[GPT_TRAIN] = wanted;
    return GPT_OK;
}

/* The position of a run that resumes has decided how many samples are left. The
 * index of samples was made for the plan of a new run; where the batch became
 * smaller than it was, the rest needs more of them. The data are those of the
 * checkpoint, or not, as they are read from here on. */
static int fit_corpus(struct gpt_run *r, struct gpt_err *err)
{
    if (r->corpus &&
        r->plan.train_samples > gpt_corpus_size(r->corpus, GPT_TRAIN)) {
        gpt_corpus_close(r->corpus);
        r->corpus = NULL;
        r->plan.corpus.n_samples[GPT_TRAIN] = r->plan.train_samples;
        GPT_TRY(gpt_corpus_open(&r->corpus, &r->plan.corpus, err));
        r->context.corpus_digest = gpt_corpus_digest(r->corpus);
        r->context.corpus_sets_digest = gpt_corpus_sets_digest(r->corpus);
    }
    gpt_state_compare_data(&r->state, &r->context);
    return GPT_OK;
}

int gpt_run_fit_rest(struct gpt_run *r, int64_t planned, struct gpt_err *err)
{
    const bool epochs = r->o->epochs > 0;

    if (r->plan.evaluates || r->state.iteration == 0)
        return GPT_OK;
    if (r->plan.train_iters != planned &&
        r->plan.train_iters > r->state.iteration)
        gpt_log_line(" the batch is another one than before: --%s %lld are "
                     "reached at iteration %lld",
                     epochs ? "epochs" : "train-samples",
                     (long long)(epochs ? r->o->epochs : r->o->train_samples),
                     (long long)r->plan.train_iters);
    return fit_corpus(r, err);
}
