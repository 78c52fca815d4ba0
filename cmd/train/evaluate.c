/* Evaluations of a run; see evaluate.h. Start at gpt_evaluator_run(): the order
 * is validation, test, tasks, samples, each at its own interval.
 *
 * Everything here is collective and follows from the iteration alone. What is
 * read of the model is read by the forward of training, without dropout, so
 * that no weight, random number or sample of the training data is touched. */
#include "cmd/train/evaluate.h"

#include "base/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "cmd/train/named_words.h"
#include "cmd/train/prompt_samples.h"
#include "cmd/train/score_sets.h"
#include "cmd/train/valid_sets.h"
#include "tokenizer/tokenizer_options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 160, NO_FIGURE = -1 };

/* A row of the table at the end: NO_FIGURE where it cannot have one. NaN, as of
 * a model that diverged, is one. */
struct row {
    char name[NAME];
    double loss, ppl, bits, accuracy, normalized;
};

struct gpt_evaluator {
    const struct gpt_train_plan *plan;
    const struct gpt_train_options *o;
    bool first;
    struct gpt_evaluator_run run;
    struct gpt_tokenizer *tokenizer; /* NULL: not named, or not needed */
    struct gpt_token_text *text;
    struct gpt_valid_sets sets;
    struct gpt_score_set *tasks; /* (n_tasks) */
    int64_t n_tasks;
    struct gpt_prompt_samples *samples;
    struct gpt_texts *texts;
    struct gpt_arena arena;
    struct row *rows; /* (n_rows) */
    size_t n_rows, cap_rows;
};

/* ---- what there is ---- */

/* The plan has the number of samples, which is 0 for a split without data. */
static bool validates_split(const struct gpt_evaluator *e, enum gpt_split split)
{
    return e->o->eval_iters > 0 && e->plan->corpus.n_samples[split] > 0;
}

/* What --eval-iters 0 leaves out is not opened either. */
static bool validates(const struct gpt_evaluator *e)
{
    return validates_split(e, GPT_VALID) || e->sets.n > 0;
}

/* ---- reading ---- */

/* Tasks and samples both read the model by texts. */
static bool has_texts(const struct gpt_evaluator *e)
{
    return e->plan->replica.texts;
}

/* A vocabulary of numbers has no text whose bytes could be counted. */
static bool counts_bytes(const struct gpt_evaluator *e)
{
    return e->o->eval_iters > 0 &&
           strcmp(e->o->tokenizer.type, "NullTokenizer") != 0;
}

/* A run that is given a size alone trains, but has no text: bits a byte are
 * then left out, and tasks and prompts refused. */
static int open_tokenizer(struct gpt_evaluator *e, struct gpt_err *err)
{
    struct gpt_tokenizer_options options = e->o->tokenizer;
    const int64_t others[] = {e->o->bos_token, e->o->eos_token,
                              e->o->pad_token};

    options.vocab_size = e->o->vocab_size;
    if (!gpt_tokenizer_named(&options)) {
        if (!has_texts(e))
            return GPT_OK;
        gpt_fail(err, GPT_EUSAGE, "--%s needs a tokenizer",
                 e->o->sample_prompts ? "sample-prompts" : "score-set");
        return gpt_hint(err, "--vocab-file and --merge-file, or "
                             "--tokenizer-model, name one");
    }
    if (!has_texts(e) && !counts_bytes(e))
        return GPT_OK;
    GPT_TRY(gpt_tokenizer_open_given(&e->tokenizer, &options, err));
    return counts_bytes(e) ? gpt_token_text_open(&e->text, e->tokenizer, others,
                                                 GPT_COUNT(others), err)
                           : GPT_OK;
}

/* Each task is counted before it is read, so that a failure frees what it has
 * so far. */
static int read_tasks(struct gpt_evaluator *e, struct gpt_err *err)
{
    const struct gpt_score_options options = {
        .tokenizer = e->tokenizer,
        .eod = gpt_tokenizer_eod(e->tokenizer),
        .vocab_size = e->plan->replica.config.vocab_size,
        .seq_length = e->o->seq_length,
    };
    struct gpt_named *named;
    int64_t n;

    GPT_TRY(gpt_named_parse(&named, &n, "--score-set", &e->o->score_set, true,
                            &e->arena, err));
    GPT_TRY(gpt_new(&e->tasks, (size_t)n, sizeof(*e->tasks), "tasks", err));
    for (int64_t i = 0; i < n; i++) {
        struct gpt_score_set *task = &e->tasks[e->n_tasks++];

        if (strcmp(named[i].words.items[0], "-") == 0)
            GPT_TRY(gpt_claim_stdin("--score-set", err));
        GPT_TRY(gpt_score_set_read(task, named[i].name,
                                   named[i].words.items[0], &options, err));
        if (task->cut > 0 && e->first)
            gpt_warn("--score-set %s: %lld of %lld contexts lose their "
                     "beginning, to fit into --seq-length %lld",
                     task->name, (long long)task->cut,
                     (long long)task->n_lines, (long long)e->o->seq_length);
    }
    return GPT_OK;
}

/* The seed of the run is a good one, too: nothing of a training draws from the
 * same stream. */
static int read_prompts(struct gpt_evaluator *e, struct gpt_err *err)
{
    const struct gpt_train_options *o = e->o;
    const struct gpt_prompt_options options = {
        .tokenizer = e->tokenizer,
        .sampling = {.temperature = o->sample_temperature,
                     .top_k = o->sample_top_k,
                     .top_p = o->sample_top_p},
        .seed = (uint64_t)(o->sample_seed >= 0 ? o->sample_seed : o->seed),
        .tokens = o->sample_tokens,
        .eod = gpt_tokenizer_eod(e->tokenizer),
        .vocab_size = e->plan->replica.config.vocab_size,
        .seq_length = o->seq_length,
    };

    return gpt_prompt_samples_read(&e->samples, o->sample_prompts, &options,
                                   err);
}

/* Fails when there is nothing to compare losses or evaluate a model by: a share
 * of a split may hold no data. A plan may name none that its run names. */
static int check_work(const struct gpt_evaluator *e, struct gpt_err *err)
{
    const struct gpt_train_options *o = e->o;

    if (validates(e) || (o->dry_run && !gpt_train_names_data(o)))
        return GPT_OK;
    if (e->plan->evaluates && !has_texts(e)) {
        gpt_fail(err, GPT_EUSAGE, "there is nothing to train and nothing to "
                                  "evaluate");
        return gpt_hint(err, "--eval-iters above 0 and a share of --split, "
                             "--valid-data-path, --score-set or "
                             "--sample-prompts say what is evaluated");
    }
    if ((!o->save_best && o->patience == 0) || e->plan->evaluates)
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE, "--%s needs a validation loss",
             o->save_best ? "save-best" : "early-stopping-patience");
    return gpt_hint(err, "--eval-iters above 0 and a share of --split, "
                         "--valid-data-path or --valid-set give one");
}

/* The vocabulary first, as the others need it; then from cheap to dear, so that
 * a wrong name is found before a large file is read. */
static int read_all(struct gpt_evaluator *e, struct gpt_err *err)
{
    GPT_TRY(open_tokenizer(e, err));
    GPT_TRY(gpt_valid_sets_open(&e->sets, e->plan, e->first, err));
    GPT_TRY(check_work(e, err));
    if (e->o->score_set.n > 0)
        GPT_TRY(read_tasks(e, err));
    return e->o->sample_prompts ? read_prompts(e, err) : GPT_OK;
}

/* The plan stays the caller's, and may still be fitted to a run that resumes:
 * what is read of it here does not change. */
int gpt_evaluator_read(struct gpt_evaluator **evaluator,
                       const struct gpt_train_plan *plan, bool first,
                       struct gpt_err *err)
{
    struct gpt_evaluator *e;

    *evaluator = NULL;
    GPT_TRY(gpt_new(&e, 1, sizeof(*e), "evaluation", err));
    e->plan = plan;
    e->o = plan->options;
    e->first = first;
    int status = read_all(e, err);
    if (status != GPT_OK)
        gpt_evaluator_close(e);
    else
        *evaluator = e;
    return status;
}

const struct gpt_token_text *gpt_evaluator_text(const struct gpt_evaluator *e)
{
    return e->text;
}

/* Tokens tell all that matters of a file: text and vocabulary. */
static uint64_t hash_ids(const struct gpt_ids *ids)
{
    return gpt_hash64(ids->data, ids->len * sizeof(*ids->data), ids->len);
}

/* Ranks with other texts would wait in other passes, for ever. */
int gpt_evaluator_digest(const struct gpt_evaluator *e, struct gpt_buf *b)
{
    for (int64_t i = 0; i < e->sets.n; i++)
        GPT_TRY(gpt_buf_printf(b, "validation set %s = %016" PRIx64 "\n",
                               e->sets.items[i].name,
                               gpt_corpus_digest(e->sets.items[i].corpus)));
    for (int64_t i = 0; i < e->n_tasks; i++)
        GPT_TRY(gpt_buf_printf(b, "tokens of %s = %016" PRIx64 "\n",
                               e->tasks[i].name,
                               hash_ids(&e->tasks[i].tokens)));
    if (!e->samples)
        return GPT_OK;
    return gpt_buf_printf(b, "tokens of prompts = %016" PRIx64 "\n",
                          hash_ids(gpt_prompt_samples_ids(e->samples)));
}

/* Memory of the device comes here, after its need was compared with what there
 * is. */
int gpt_evaluator_open(struct gpt_evaluator *e,
                       const struct gpt_evaluator_run *run, struct gpt_err *err)
{
    e->run = *run;
    if (!has_texts(e))
        return GPT_OK;
    return gpt_texts_open(&e->texts, run->replica, run->feed,
                          e->plan->topology.size[GPT_DP],
                          e->plan->topology.at[GPT_DP], err);
}

/* The feed is closed before: it may read a corpus of a set. */
void gpt_evaluator_close(struct gpt_evaluator *e)
{
    if (!e)
        return;
    gpt_texts_close(e->texts);
    gpt_prompt_samples_close(e->samples);
    for (int64_t i = 0; i < e->n_tasks; i++)
        gpt_score_set_free(&e->tasks[i]);
    gpt_free(e->tasks);
    gpt_valid_sets_close(&e->sets);
    gpt_token_text_close(e->text);
    gpt_tokenizer_close(e->tokenizer);
    gpt_arena_free(&e->arena);
    gpt_free(e->rows);
    gpt_free(e);
}

/* Each set is a corpus of its own, with the index of all its validations. */
int64_t gpt_evaluator_sets_memory(const struct gpt_evaluator *e)
{
    int64_t bytes = 0;

    for (int64_t i = 0; e && i < e->sets.n; i++)
        bytes += gpt_corpus_memory(e->sets.items[i].corpus);
    return bytes;
}

/* ---- validation ---- */

/* Rows are those of one evaluation, in its order. */
static int add_row(struct gpt_evaluator *e, const struct row *row,
                   struct gpt_err *err)
{
    GPT_TRY(gpt_grow(&e->rows, &e->cap_rows, e->n_rows + 1, sizeof(*e->rows),
                     "results", err));
    e->rows[e->n_rows++] = *row;
    return GPT_OK;
}

/* Sums over eval_iters full batches of a split from sample `first` on. Batches
 * have the full size also while the batch of training grows, so that losses of
 * the whole run compare. The mean is over unmasked tokens of all ranks, not
 * over the means of batches. */
static int sum_losses(struct gpt_evaluator *e, enum gpt_split split,
                      int64_t first, struct gpt_evaluation *sum,
                      struct gpt_err *err)
{
    const int64_t batch = e->plan->rampup.global_batch;
    const int64_t n = batch / e->plan->micro_samples;
    struct gpt_feed *feed = e->run.feed;

    *sum = (struct gpt_evaluation){.loss = 0};
    for (int64_t i = 0; i < e->o->eval_iters; i++) {
        GPT_TRY(gpt_feed_read(feed, split, first + i * batch, n, err));
        if (i + 1 < e->o->eval_iters)
            gpt_feed_ahead(feed, split, first + (i + 1) * batch, n);
        GPT_TRY(gpt_step_eval(e->run.replica, feed, n, sum, err));
    }
    return GPT_OK;
}

/* One split or set: its line of the log, its metrics, its row. Bits a byte are
 * the losses of tokens that are text, in bits, over the bytes of these tokens:
 * both sums are over all ranks, so that no rank's text weighs more. The loss of
 * no token is no number, and so not the lowest one. */
static int evaluate_split(struct gpt_evaluator *e, const char *set,
                          enum gpt_split split, int64_t first,
                          const struct gpt_report_eval *head, double *loss,
                          struct gpt_err *err)
{
    struct gpt_report_eval line = *head;
    struct gpt_evaluation sum;
    struct row row = {.accuracy = NO_FIGURE, .normalized = NO_FIGURE};

    GPT_TRY(sum_losses(e, split, first, &sum, err));
    snprintf(row.name, sizeof(row.name), "%s%s%s",
             split == GPT_TEST ? "test" : "validation", set ? "-" : "",
             set ? set : "");
    line.what = row.name;
    *loss = row.loss = line.loss = sum.loss / (double)sum.rows;
    line.bits_per_byte = sum.text_loss / (double)sum.bytes / log(2);
    if (sum.rows == 0 && e->first)
        gpt_warn("%s: no token of its batches counts a loss", row.name);
    row.bits = sum.bytes > 0 ? line.bits_per_byte : NO_FIGURE;
    row.ppl = gpt_report_perplexity(row.loss);
    GPT_TRY(gpt_report_eval(e->run.report, &line, err));
    return add_row(e, &row, err);
}

/* The loss of a run is that of its first set: of --split or --valid-data-path,
 * else of the first one with a name. Validation continues where the last one
 * ended, as in Megatron-LM; the feed begins anew at the end of a set. The test
 * split is read from its beginning, once, at the end of training. */
static int validate(struct gpt_evaluator *e, struct gpt_train_state *state,
                    const struct gpt_report_eval *head, bool test,
                    struct gpt_err *err)
{
    const int64_t first = state->consumed_valid;
    bool any = false;
    double loss = 0, other;

    if (validates_split(e, GPT_VALID)) {
        GPT_TRY(evaluate_split(e, NULL, GPT_VALID, first, head, &loss, err));
        any = true;
    }
    for (int64_t i = 0; i < e->sets.n; i++) {
        gpt_feed_use(e->run.feed, e->sets.items[i].corpus);
        GPT_TRY(evaluate_split(e, e->sets.items[i].name, GPT_VALID, first, head,
                               any ? &other : &loss, err));
        any = true;
    }
    if (e->sets.n > 0)
        gpt_feed_use(e->run.feed, e->run.corpus);
    state->consumed_valid +=
        e->o->eval_iters * e->plan->rampup.global_batch;
    if (!e->plan->evaluates && (e->o->save_best || e->o->patience > 0))
        gpt_best_take(&state->best, state->iteration, loss, e->o->min_delta);
    return test && validates_split(e, GPT_TEST)
               ? evaluate_split(e, NULL, GPT_TEST, 0, head, &other, err)
               : GPT_OK;
}

/* ---- tasks and samples ---- */

/* A task has a row, a line and fields, as a validation set has. */
static int score_tasks(struct gpt_evaluator *e,
                       const struct gpt_report_eval *head, struct gpt_err *err)
{
    for (int64_t i = 0; i < e->n_tasks; i++) {
        struct gpt_score_figures f;
        struct row row = {.loss = NO_FIGURE, .bits = NO_FIGURE};

        GPT_TRY(gpt_score_set_run(&e->tasks[i], e->texts, &f, err));
        row.ppl = f.perplexity;
        row.accuracy = f.accuracy;
        row.normalized = e->tasks[i].choices ? f.normalized : NO_FIGURE;
        snprintf(row.name, sizeof(row.name), "score-%s", e->tasks[i].name);
        const struct gpt_report_score line = {
            .what = row.name,
            .iteration = head->iteration,
            .end = head->end,
            .accuracy = f.accuracy,
            .normalized = f.normalized,
            .perplexity = f.perplexity,
        };
        GPT_TRY(gpt_report_score(e->run.report, &line, err));
        GPT_TRY(add_row(e, &row, err));
    }
    return GPT_OK;
}

/* All texts are made before the first is written: they share their passes. */
static int write_samples(struct gpt_evaluator *e, int64_t iteration,
                         struct gpt_err *err)
{
    GPT_TRY(gpt_prompt_samples_run(e->samples, e->texts, err));
    for (int64_t i = 0; i < gpt_prompt_samples_n(e->samples); i++) {
        struct gpt_prompt_sample s;

        GPT_TRY(gpt_prompt_samples_get(e->samples, i, &s, err));
        const struct gpt_report_sample line = {
            .iteration = iteration,
            .number = i + 1,
            .prompt = s.prompt,
            .text = s.text,
            .tokens = s.tokens,
            .finish = s.finish,
        };
        GPT_TRY(gpt_report_sample(e->run.report, &line, err));
    }
    return GPT_OK;
}

/* ---- all ---- */

/* True at multiples of an interval; one of 0 is that of validations. The clock
 * has no say: ranks whose clocks differ evaluate at the same steps. */
static bool due(const struct gpt_evaluator *e, int64_t iteration,
                int64_t interval)
{
    return iteration % (interval > 0 ? interval : e->o->eval_interval) == 0;
}

/* The clock of training stops meanwhile: no evaluation is in the throughput. */
int gpt_evaluator_run(struct gpt_evaluator *e, struct gpt_train_state *state,
                      bool end, bool *validated, struct gpt_err *err)
{
    const int64_t i = state->iteration;
    const struct gpt_report_eval head = {
        .iteration = i,
        /* A model that is only evaluated is at no end. */
        .end = end && !e->plan->evaluates,
    };
    const bool validation = validates(e) && (end || due(e, i, 0));
    const bool tasks =
        e->n_tasks > 0 && (end || due(e, i, e->o->score_interval));
    const bool samples =
        e->samples && (end || due(e, i, e->o->sample_interval));

    *validated = validation;
    if (!validation && !tasks && !samples)
        return GPT_OK;
    gpt_report_pause(e->run.report);
    e->n_rows = 0;
    if (validation)
        GPT_TRY(validate(e, state, &head, end, err));
    if (tasks)
        GPT_TRY(score_tasks(e, &head, err));
    if (samples)
        GPT_TRY(write_samples(e, i, err));
    gpt_report_resume(e->run.report);
    return GPT_OK;
}

/* ---- the table ---- */

/* Six digits fit into a column whatever the size of the number. */
static int add_figure(struct gpt_buf *b, double x)
{
    return x < 0 ? gpt_buf_printf(b, " %11s", "-")
                 : gpt_buf_printf(b, " %11.6g", gpt_report_number(x));
}

/* One table for all: what a row cannot have is a dash, so that every column is
 * at one place and a script can take the n-th word. */
int gpt_evaluator_table(const struct gpt_evaluator *e, struct gpt_buf *b)
{
    int width = 4;

    for (size_t i = 0; i < e->n_rows; i++)
        if ((int)strlen(e->rows[i].name) > width)
            width = (int)strlen(e->rows[i].name);
    GPT_TRY(gpt_buf_printf(b, "%-*s %11s %11s %11s %11s %11s\n", width, "name",
                           "loss", "perplexity", "bits/byte", "accuracy",
                           "normalized"));
    for (size_t i = 0; i < e->n_rows; i++) {
        const struct row *r = &e->rows[i];
        const double figures[] = {r->loss, r->ppl, r->bits, r->accuracy,
                                  r->normalized};

        GPT_TRY(gpt_buf_printf(b, "%-*s", width, r->name));
        for (size_t k = 0; k < GPT_COUNT(figures); k++)
            GPT_TRY(add_figure(b, figures[k]));
        GPT_TRY(gpt_buf_add(b, "\n", 1));
    }
    return GPT_OK;
}
