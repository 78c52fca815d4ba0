/* The data of a run: the corpus, what is said of its splits and stages, and the
 * feed. */
#include "cmd/train/run_parts.h"

#include "base/log.h"
#include "base/num.h"
#include "cmd/train/data_names.h"
#include "cmd/train/split_paths.h"
#include "cmd/train/vocabulary.h"

/* The share of a split may round to no sequence of a small data set: nothing is
 * measured on it then. Each rank decides by the same corpus. */
static void drop_empty_splits(struct gpt_run *r)
{
    for (int k = 0; k < GPT_N_SPLITS; k++) {
        if (r->plan.corpus.n_samples[k] == 0 ||
            gpt_corpus_size(r->corpus, (enum gpt_split)k) > 0)
            continue;
        r->plan.corpus.n_samples[k] = 0;
        if (gpt_run_is_first(r))
            gpt_warn("no loss is measured on the %s split: its share of "
                     "--split %s holds no sequence of the data",
                     gpt_split_names[k], r->o->split);
    }
}

/* A validation that is not what it seems is reported before the training, not
 * found after it. */
static void report_splits(const struct gpt_run *r)
{
    struct gpt_repeat s;

    for (int k = 0; k < GPT_N_SPLITS; k++)
        if (gpt_corpus_repeats(r->corpus, (enum gpt_split)k, &s))
            gpt_warn("%s: its %s split, sequences %lld to %lld, has %lld "
                     "tokens: these are repeated to fill samples of %lld",
                     s.prefix, gpt_split_names[k], (long long)s.begin,
                     (long long)s.end - 1, (long long)s.tokens,
                     (long long)r->plan.corpus.seq_length + 1);
    if (r->o->eval_iters == 0 || r->plan.valid_sets ||
        r->plan.corpus.n_samples[GPT_VALID] > 0)
        return;
    /* The default of --eval-iters asks for nothing in particular; where it was
     * given, it is in the list of what has no effect. */
    if (!gpt_option_given(&r->args, "eval-iters"))
        gpt_info("nothing is validated: --split and --valid-data-path give no "
                 "data for it");
}

/* How long an epoch is, which --train-iters does not tell; and how often the
 * run reads the data, which shows a wrong length at a glance. */
static void report_epoch(const struct gpt_run *r)
{
    const int64_t samples = gpt_corpus_epoch(r->corpus, GPT_TRAIN);
    const double batch = (double)r->plan.rampup.global_batch;

    if (samples <= 0 || !gpt_run_is_first(r))
        return;
    gpt_log_line(" > an epoch: %lld sample%s, %.2f steps; the run: %.2f "
                 "epochs",
                 (long long)samples, gpt_plural(samples),
                 (double)samples / batch,
                 (double)r->plan.train_samples / (double)samples);
}

/* Stages that the run does not reach are a slip, or wait for a longer run. */
int gpt_run_read_stages(struct gpt_run *r, struct gpt_err *err)
{
    struct gpt_data_stages *s = &r->stages;

    if (!r->o->data_stages)
        return GPT_OK;
    GPT_TRY(gpt_data_stages_read(s, r->o->data_stages, err));
    r->plan.corpus.stages = s;
    if (!gpt_run_is_first(r) || r->plan.train_samples <= 0)
        return GPT_OK;
    for (int64_t i = 0; i < s->n; i++)
        if (s->stage[i].first >= r->plan.train_samples)
            gpt_warn("%s: stage %lld begins at sample %lld; the run ends after "
                     "%lld samples",
                     r->o->data_stages, (long long)i + 1,
                     (long long)s->stage[i].first,
                     (long long)r->plan.train_samples);
    return GPT_OK;
}

/* The digest of the corpus goes into the run's context: checkpoints carry it,
 * and ranks compare it. */
int gpt_run_open_corpus(struct gpt_run *r, struct gpt_err *err)
{
    const struct gpt_corpus_options *c = &r->plan.corpus;

    /* Only a run that is not going to train may have no data. */
    if (c->n_data_path == 0 && !c->stages && c->n_split_path[GPT_TRAIN] == 0 &&
        !(r->plan.evaluates && (c->n_split_path[GPT_VALID] > 0 ||
                                c->n_split_path[GPT_TEST] > 0)))
        return GPT_OK;
    GPT_TRY(gpt_train_find_data(&r->plan.corpus, gpt_train_data_file(r->o),
                                &r->data_names, gpt_run_is_first(r), err));
    GPT_TRY(gpt_train_check_data_vocabulary(&r->plan, r->o, err));
    int status = gpt_corpus_open(&r->corpus, &r->plan.corpus, err);
    if (status == GPT_EUSAGE && err && !err->hint[0])
        gpt_hint(err, "--data-path and --split, or --train-data-path and its "
                 "like, say which data are read");
    GPT_TRY(status);
    if (c->mock && gpt_run_is_first(r))
        gpt_log_line(" > the data are made up (--mock-data): tokens that count "
                     "up, in documents of 1 to 4095");
    if (gpt_run_is_first(r))
        report_splits(r);
    drop_empty_splits(r);
    r->context.corpus_digest = gpt_corpus_digest(r->corpus);
    r->context.corpus_sets_digest = gpt_corpus_sets_digest(r->corpus);
    report_epoch(r);
    return GPT_OK;
}

int gpt_run_open_feed(struct gpt_run *r, struct gpt_err *err)
{
    const struct gpt_feed_options options = {
        .corpus = r->corpus,
        .masks = r->plan.masks,
        .per_token = r->plan.replica.per_token_loss,
        .loss = r->loss,
        .text = gpt_evaluator_text(r->evaluator),
        .micro_batch = r->plan.replica.exec.micro_batch,
        .seq_length = r->plan.replica.exec.seq_length,
        .max_micro_batches = r->plan.replica.micro_batches,
        .dp_size = r->plan.topology.size[GPT_DP],
        .dp_rank = r->plan.topology.at[GPT_DP],
        .be = r->be,
        .q = r->replica->q,
    };

    return gpt_feed_open(&r->feed, &options, err);
}
