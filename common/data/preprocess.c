/* From JSON lines to data sets: see preprocess.h. Chunks come from the ring of
 * preprocess_ring.h and go to the files of preprocess_output.h; here is what
 * happens between the two, in the order of the input. Start at
 * gpt_preprocess(). */
#include "data/preprocess.h"

#include "base/num.h"
#include "base/signals.h"
#include "data/preprocess_output.h"
#include "data/preprocess_ring.h"

#include <string.h>
#include <sys/stat.h>

struct run {
    const struct gpt_preprocess_options *o;
    struct gpt_preprocess_stats *stats;
    struct gpt_outputs *out;
    struct gpt_ring *ring;
    int64_t input; /* number of the input that the last chunk was of */
    int64_t lines; /* of it, so far */
};

const char *gpt_bad_word(int kind)
{
    static const char *const words[GPT_BAD_KINDS] = {
#define X(name, word) [name] = word,
        GPT_JSONL_BAD_LIST(X)
#undef X
        [GPT_BAD_LONG] = "too long",
    };
    return words[kind];
}

int64_t gpt_preprocess_total(const struct gpt_preprocess_options *o)
{
    int64_t total = 0;
    for (int64_t i = 0; i < o->n_inputs; i++) {
        struct stat st;
        if (stat(o->inputs[i], &st) != 0 || !S_ISREG(st.st_mode) ||
            !gpt_add(total, st.st_size, &total))
            return -1;
    }
    return total;
}

/* The bad lines of a chunk. */
static int count_bad(struct run *run, const struct gpt_chunk *c,
                     struct gpt_err *err)
{
    struct gpt_bad_report *bad = &run->stats->bad;
    int64_t limit = run->o->max_bad;
    for (size_t i = 0; i < c->n_bad; i++) {
        long long line = (long long)(run->lines + c->bad[i].line);
        bad->of_kind[c->bad[i].kind]++;
        if (bad->n++ < GPT_BAD_NAMED) {
            bad->named[bad->n_named] = c->named[i];
            gpt_context(&bad->named[bad->n_named++], "%s:%lld", c->name, line);
        }
        if (limit >= 0 && bad->n > limit)
            return gpt_fail(err, GPT_EDATA, "%s:%lld: bad line number %lld, "
                            "limit %lld", c->name, line, (long long)bad->n,
                            (long long)limit);
        GPT_TRY(gpt_outputs_add_bad(run->out, c, c->bad[i].at, err));
    }
    return GPT_OK;
}

static int take_chunk(struct run *run, const struct gpt_chunk *c,
                      struct gpt_err *err)
{
    if (c->input != run->input)
        run->lines = 0;
    run->input = c->input;
    if (c->status != GPT_OK) {
        if (err)
            *err = c->err;
        return c->in_line ? gpt_context(err, "%s:%lld", c->name,
                                        (long long)(run->lines + c->lines))
                          : c->status;
    }
    GPT_TRY(count_bad(run, c, err));
    run->lines += c->lines;
    return gpt_outputs_add(run->out, c, run->stats, err);
}

static int take_all(struct run *run, struct gpt_err *err)
{
    for (bool end = false; !end;) {
        const struct gpt_chunk *c = gpt_ring_next(run->ring, &end);
        if (gpt_signals_stop())
            return gpt_fail(err, GPT_EFAIL, "stopped by %s",
                            gpt_signal_name(gpt_signals_stop()));
        if (c) {
            GPT_TRY(take_chunk(run, c, err));
            gpt_ring_release(run->ring);
        }
        run->stats->input_bytes = gpt_ring_consumed(run->ring);
        if (run->o->report)
            run->o->report(run->o->user, run->stats);
    }
    return GPT_OK;
}

int gpt_preprocess(const struct gpt_preprocess_options *options,
                   struct gpt_preprocess_stats *stats, struct gpt_err *err)
{
    struct run run = {.o = options, .stats = stats, .input = -1};
    enum gpt_dtype dtype = gpt_indexed_best_dtype(
        gpt_tokenizer_vocab_size(options->tokenizer));
    memset(stats, 0, sizeof(*stats));
    if (options->append_eod && gpt_tokenizer_eod(options->tokenizer) < 0)
        return gpt_fail(err, GPT_EDATA, "the vocabulary has no "
                        "<|endoftext|> to append to documents");
    GPT_TRY(gpt_outputs_open(&run.out, options, dtype, err));
    int status = gpt_ring_open(&run.ring, options, dtype, err);
    if (status == GPT_OK)
        status = take_all(&run, err);
    gpt_ring_close(run.ring);
    if (status == GPT_OK)
        return gpt_outputs_commit(run.out, err);
    gpt_outputs_abort(run.out);
    return status;
}
