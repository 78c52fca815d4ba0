/* The part of a plan about data: which data sets there are, how they are cut
 * into splits, and how many samples of each split a run takes. Nothing is
 * opened yet. Start at gpt_train_plan_data(). */
#include "cmd/train/plan.h"

#include "base/num.h"
#include "data/blend.h"

/* True when split `i` of --split has a share. The text is read as the corpus
 * reads it, which takes any separator and refuses what is no split. */
static bool has_share(const char *split, int i)
{
    double edge[4];

    return gpt_split_parse(edge, split, NULL) == GPT_OK &&
           edge[i + 1] > edge[i];
}

/* Tokens that are put around documents have a row in the word table, and a
 * place only where documents do not follow each other. Padding may also be in
 * the data, which some programs pad themselves. */
static int check_ends(const struct gpt_train_plan *p,
                      const struct gpt_train_options *o, struct gpt_err *err)
{
    const struct {
        const char *name;
        int64_t id;
        bool needs_documents;
    } ends[] = {{"bos-token-id", o->bos_token, true},
                {"eos-token-id", o->eos_token, true},
                {"pad-token-id", o->pad_token, false}};
    const int64_t words = p->replica.config.vocab_size;

    for (size_t i = 0; i < GPT_COUNT(ends); i++) {
        if (ends[i].id >= words)
            return gpt_fail(err, GPT_EUSAGE,
                            "--%s %lld is not below the vocabulary size %lld",
                            ends[i].name, (long long)ends[i].id,
                            (long long)words);
        if (ends[i].id < 0 || !ends[i].needs_documents || o->document_samples)
            continue;
        gpt_fail(err, GPT_EUSAGE, "--%s needs --document-samples",
                 ends[i].name);
        return gpt_hint(err, "samples of several documents have the ends that "
                             "gpt-preprocess --append-eod put there");
    }
    return GPT_OK;
}

/* Validation sets with names: their corpora are opened beside the run's. With
 * Megatron-LM's option a name is the set's place in the list. */
static int plan_valid_sets(struct gpt_train_plan *p,
                           const struct gpt_train_options *o,
                           struct gpt_err *err)
{
    double number;

    if (o->multiple_valid && o->valid_path.n == 0)
        return gpt_fail(err, GPT_EUSAGE, "--multiple-validation-sets needs "
                                         "--valid-data-path");
    for (int64_t i = 0; o->multiple_valid && i < o->valid_path.n; i++)
        if (gpt_parse_real(o->valid_path.items[i], &number))
            return gpt_fail(err, GPT_EUSAGE,
                            "--multiple-validation-sets: '%s' is a weight, and "
                            "sets of their own have none",
                            o->valid_path.items[i]);
    p->valid_sets = o->multiple_valid || o->valid_set.n > 0;
    if (o->multiple_valid) {
        p->corpus.split_path[GPT_VALID] = NULL;
        p->corpus.n_split_path[GPT_VALID] = 0;
        p->corpus.n_samples[GPT_VALID] = 0;
    }
    return GPT_OK;
}

/* Samples of all validations, at intervals and after the last step, and of the
 * one of the test split. */
static int count_evaluations(const struct gpt_train_plan *p,
                             const struct gpt_train_options *o, int64_t *valid,
                             int64_t *test, struct gpt_err *err)
{
    const int64_t times = p->train_iters / o->eval_interval + 1;

    if (gpt_mul(o->eval_iters, p->rampup.global_batch, test) &&
        gpt_mul(*test, times, valid))
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE,
                    "--eval-iters %lld x --global-batch-size %lld, %lld times "
                    "(--eval-interval), is too large",
                    (long long)o->eval_iters,
                    (long long)p->rampup.global_batch, (long long)times);
}

/* Tokens that are made up are shared by the splits as those of --data-path
 * are. */
static int plan_mock(struct gpt_train_plan *p,
                     const struct gpt_train_options *o, struct gpt_err *err)
{
    static const char *const name[] = {"mock data"};
    struct gpt_corpus_options *c = &p->corpus;

    if (!o->mock_data)
        return GPT_OK;
    if (o->data_path.n + o->train_path.n + o->valid_path.n + o->test_path.n >
            0 || o->data_stages)
        return gpt_fail(err, GPT_EUSAGE,
                        "--mock-data excludes --data-path and all that names "
                        "data sets");
    c->mock = true;
    c->mock_end = p->masks.eod;
    c->data_path = name;
    c->n_data_path = 1;
    return GPT_OK;
}

bool gpt_train_names_data(const struct gpt_train_options *o)
{
    return o->mock_data || o->data_stages ||
           o->data_path.n + o->train_path.n > 0;
}

/* Which files, and how many samples of each split the run will take: indices
 * are built for these numbers. */
int gpt_train_plan_data(struct gpt_train_plan *p,
                        const struct gpt_train_options *o,
                        const struct gpt_args *args, struct gpt_err *err)
{
    const struct gpt_list *lists[] = {&o->train_path, &o->valid_path,
                                      &o->test_path};
    struct gpt_corpus_options *c = &p->corpus;
    int64_t tested = 0;
    bool whole = o->data_path.n > 0 || o->mock_data;
    /* the default split's last share is too small for most small sets, so a
     * test set is made only on request */
    bool test =
        gpt_option_given(args, "split") && has_share(o->split, GPT_TEST);
    bool valid = has_share(o->split, GPT_VALID);

    GPT_TRY(check_ends(p, o, err));
    GPT_TRY(count_evaluations(p, o, &p->valid_samples, &tested, err));
    c->data_path = o->data_path.items;
    c->n_data_path = o->data_path.n;
    GPT_TRY(plan_mock(p, o, err));
    for (int i = 0; i < GPT_N_SPLITS; i++) {
        if (whole && lists[i]->n > 0)
            return gpt_fail(err, GPT_EUSAGE,
                            "--data-path excludes "
                            "--train-data-path, --valid-data-path and "
                            "--test-data-path");
        c->split_path[i] = lists[i]->items;
        c->n_split_path[i] = lists[i]->n;
    }
    p->replica.texts = o->score_set.n > 0 || o->sample_prompts;
    if (o->data_stages && (whole || o->train_path.n > 0))
        return gpt_fail(err, GPT_EUSAGE,
                        "--data-stages excludes --%s: its file names the "
                        "training data",
                        whole ? "data-path" : "train-data-path");
    if (o->data_stages && o->epochs > 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--data-stages excludes --epochs: stages count "
                        "samples, whatever an epoch of their data is");
    if (!gpt_train_names_data(o) && !gpt_train_is_dry(o) && !p->evaluates)
        return gpt_fail(err, GPT_EUSAGE,
                        "no training data: give --data-path, "
                        "--train-data-path, --data-stages or --mock-data");
    c->split = whole || gpt_option_given(args, "split") ? o->split : NULL;
    c->impl = o->data_impl;
    c->seq_length = o->seq_length;
    c->seed = (uint64_t)o->seed;
    /* the seed has no say then, nor the split of an epoch that is not whole */
    c->in_order = !o->shuffle;
    c->documents = o->document_samples;
    c->begin = (int32_t)o->bos_token;
    c->end = (int32_t)o->eos_token;
    c->vocab_size = p->replica.config.vocab_size;
    /* those that are left over at the end count for the epochs, too, and so for
     * the order, which is then the same for every batch */
    c->n_samples[GPT_TRAIN] = gpt_max_i64(p->length_samples, p->train_samples);
    if (whole ? valid : o->valid_path.n > 0)
        c->n_samples[GPT_VALID] = p->valid_samples;
    if (whole ? test : o->test_path.n > 0)
        c->n_samples[GPT_TEST] = tested;
    return plan_valid_sets(p, o, err);
}
