/* Megatron's three indices of a split. The order of the random draws is part of
 * the format: documents of the early epochs, documents of the last one, then
 * samples of the early epochs, samples of the last one. Start at
 * gpt_samples_build(). */
#include "data/sample_index.h"

#include "base/memory.h"
#include "base/num.h"
#include "base/signals.h"
#include "data/idx.h"
#include "data/mt19937.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* A sample needs seq_length tokens and one more, which the next sample shares:
 * n samples need n * seq_length + 1. */
bool gpt_samples_plan(struct gpt_samples_plan *plan, int64_t tokens,
                      int64_t seq_length, int64_t wanted)
{
    int64_t needed, all;

    *plan = (struct gpt_samples_plan){.epochs = 1};
    if (!gpt_mul(wanted, seq_length, &needed) || !gpt_add(needed, 1, &needed))
        return false;
    if (wanted > 0)
        plan->epochs = gpt_ceil_div(needed, tokens);
    if (!gpt_mul(plan->epochs, tokens, &all))
        return false;
    plan->n = plan->n_before = (all - 1) / seq_length;
    if (plan->epochs > 1) {
        /* Samples that begin in the epochs before the last one. */
        int64_t before = (all - tokens - 1) / seq_length;
        int64_t an_epoch = (tokens - 1) / seq_length;

        /* Megatron shuffles the last epoch by itself when less than 80 % of it
         * is used: else the samples that are left out would be spread over all
         * epochs, and early ones would miss documents. The expression is its
         * own, with its rounding. */
        plan->separate = wanted - before < (int64_t)(0.80 * (double)an_epoch);
        if (plan->separate)
            plan->n_before = before;
    }
    return true;
}

static int64_t count_tokens(const struct gpt_samples_source *source)
{
    int64_t n = 0;

    for (int64_t i = source->begin; i < source->end; i++)
        n += gpt_idx_i32(source->lengths, i);
    return n;
}

/* `epochs` times all sequences of the source, shuffled as a whole. */
static void fill_documents(uint32_t *document,
                           const struct gpt_samples_source *source,
                           int64_t epochs, struct gpt_mt19937 *mt)
{
    int64_t n = source->end - source->begin;

    for (int64_t e = 0; e < epochs; e++)
        for (int64_t i = 0; i < n; i++)
            document[e * n + i] = (uint32_t)(source->begin + i);
    if (!source->in_order)
        gpt_mt19937_shuffle(mt, document, epochs * n);
}

/* Row k + 1 lies seq_length tokens after row k. A sample takes one token more
 * than the distance, so a row never points past the end of a document: where
 * sample k took a document to its end, row k + 1 is its last token. */
static void fill_starts(struct gpt_samples *s,
                        const struct gpt_samples_source *source)
{
    enum { AHEAD = 32 }; /* visits are in random order */
    /* Documents are taken in the order of `document`; a sample may begin in the
     * middle of one and end several later. */
    int64_t visit = 0, offset = 0;
    int64_t length = gpt_idx_i32(source->lengths, s->document[0]);
    int64_t last = s->n_visits - 1;

    s->visit[0] = 0;
    s->offset[0] = 0;
    for (int64_t k = 1; k <= s->plan.n; k++) {
        int64_t left = source->seq_length + 1;

        while (length - offset < left) {
            left -= length - offset;
            offset = 0;
            length = gpt_idx_i32(source->lengths, s->document[++visit]);
            int64_t ahead = gpt_min_i64(visit + AHEAD, last);
            __builtin_prefetch(source->lengths +
                               4 * (size_t)s->document[ahead]);
        }
        offset += left - 1;
        assert(visit <= last && offset >= 0 && offset < INT32_MAX);
        s->visit[k] = (uint32_t)visit;
        s->offset[k] = (int32_t)offset;
    }
}

/* The early samples and those of the last epoch are shuffled apart, as the
 * documents were: a run that ends early has then seen whole epochs. */
static void fill_shuffle(struct gpt_samples *s, struct gpt_mt19937 *mt,
                         bool in_order)
{
    int64_t n = s->plan.n, before = s->plan.n_before;

    assert(before >= 0 && before <= n);
    for (int64_t k = 0; k < n; k++)
        s->shuffle[k] = (uint32_t)k;
    if (in_order)
        return;
    gpt_mt19937_shuffle(mt, s->shuffle, before);
    gpt_mt19937_shuffle(mt, s->shuffle + before, n - before);
}

/* A sample a sequence. An epoch is shuffled by itself, so that every document
 * is seen once before any is seen again; samples need no order of their own:
 * numbers of samples, visits and places of documents are the same. */
static int fill_rows(struct gpt_samples *s,
                     const struct gpt_samples_source *source,
                     struct gpt_mt19937 *mt, struct gpt_err *err)
{
    const int64_t n = source->end - source->begin;

    for (int64_t e = 0; e < s->plan.epochs; e++) {
        GPT_TRY(gpt_signals_check(err));
        fill_documents(s->document + e * n, source, 1, mt);
    }
    for (int64_t k = 0; k <= s->plan.n; k++) {
        s->visit[k] = (uint32_t)k;
        s->offset[k] = 0;
    }
    fill_shuffle(s, mt, true);
    return GPT_OK;
}

/* One generator for all four draws, in this order: another order, or a draw
 * more, is another data set order for every user. Between two of them a signal
 * ends the work, which takes long where a small data set is repeated often. */
static int fill_samples(struct gpt_samples *s,
                        const struct gpt_samples_source *source,
                        struct gpt_err *err)
{
    const int64_t last = s->plan.separate, early = s->plan.epochs - last;
    const int64_t n = source->end - source->begin;
    struct gpt_mt19937 mt;

    gpt_mt19937_seed(&mt, source->seed);
    if (source->documents)
        return fill_rows(s, source, &mt, err);
    fill_documents(s->document, source, early, &mt);
    GPT_TRY(gpt_signals_check(err));
    fill_documents(s->document + early * n, source, last, &mt);
    GPT_TRY(gpt_signals_check(err));
    fill_starts(s, source);
    GPT_TRY(gpt_signals_check(err));
    fill_shuffle(s, &mt, source->in_order);
    return GPT_OK;
}

/* Whole epochs of sequences. False when the numbers overflow. */
static bool plan_rows(struct gpt_samples_plan *plan, int64_t sequences,
                      int64_t wanted)
{
    *plan = (struct gpt_samples_plan){
        .epochs = wanted > 0 ? gpt_ceil_div(wanted, sequences) : 1};
    if (!gpt_mul(plan->epochs, sequences, &plan->n))
        return false;
    plan->n_before = plan->n;
    return true;
}

static bool plan_samples(struct gpt_samples *s,
                         const struct gpt_samples_source *source)
{
    if (source->documents)
        return plan_rows(&s->plan, source->end - source->begin, source->wanted);
    return gpt_samples_plan(&s->plan, s->n_tokens, source->seq_length,
                            source->wanted);
}

/* The indices hold 32-bit numbers, as Megatron's do: more is refused, where a
 * number would wrap silently. */
static int check_sizes(struct gpt_samples *s,
                       const struct gpt_samples_source *source,
                       struct gpt_err *err)
{
    int64_t n = source->end - source->begin;

    s->n_tokens = count_tokens(source);
    bool enough = (source->documents ? n > 0
                                     : s->n_tokens > source->seq_length) ||
                  (source->repeat && source->wanted > 0 && s->n_tokens > 0);
    if (!enough)
        return gpt_fail(err, GPT_EDATA,
                        "%" PRId64 " sequences with %" PRId64
                        " tokens are too few: one sample of sequence length %"
                        PRId64 " takes %" PRId64, n, s->n_tokens,
                        source->seq_length, source->seq_length + 1);
    if (!plan_samples(s, source) || s->plan.n >= UINT32_MAX ||
        !gpt_mul(s->plan.epochs, n, &s->n_visits) ||
        s->n_visits > UINT32_MAX || source->end > UINT32_MAX)
        return gpt_fail(err, GPT_EDATA,
                        "%" PRId64 " samples from %" PRId64 " sequences with %"
                        PRId64 " tokens are more than the index numbers"
                        " (4294967295 samples and visits)", source->wanted, n,
                        s->n_tokens);
    return GPT_OK;
}

int gpt_samples_build(struct gpt_samples *s,
                      const struct gpt_samples_source *source,
                      struct gpt_err *err)
{
    static const char what[] = "the sample index";
    int status;

    memset(s, 0, sizeof(*s));
    GPT_TRY(check_sizes(s, source, err));
    size_t rows = (size_t)s->plan.n + 1;
    GPT_TRY_GOTO(status, gpt_new(&s->document, (size_t)s->n_visits,
                                 sizeof(*s->document), what, err), fail);
    GPT_TRY_GOTO(status, gpt_new(&s->visit, rows, sizeof(*s->visit), what,
                                 err), fail);
    GPT_TRY_GOTO(status, gpt_new(&s->offset, rows, sizeof(*s->offset), what,
                                 err), fail);
    GPT_TRY_GOTO(status, gpt_new(&s->shuffle, rows, sizeof(*s->shuffle), what,
                                 err), fail);
    GPT_TRY_GOTO(status, fill_samples(s, source, err), fail);
    return GPT_OK;
fail:
    gpt_samples_free(s);
    return status;
}

void gpt_samples_free(struct gpt_samples *s)
{
    gpt_free(s->document);
    gpt_free(s->visit);
    gpt_free(s->offset);
    gpt_free(s->shuffle);
    memset(s, 0, sizeof(*s));
}

/* The four arrays of gpt_samples_build(): two of them have an end beyond the
 * last sample. */
int64_t gpt_samples_bytes(int64_t n, int64_t visits)
{
    const struct gpt_samples *s = NULL;

    if (n == 0)
        return 0;
    return visits * (int64_t)sizeof(*s->document) +
           (n + 1) * (int64_t)(sizeof(*s->visit) + sizeof(*s->offset)) +
           n * (int64_t)sizeof(*s->shuffle);
}
