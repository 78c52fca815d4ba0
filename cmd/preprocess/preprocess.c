/* From JSON lines to data sets: see preprocess.h. Chunks come, encoded, from
 * chunk_stream.h and go to the files of output.h; here is what happens between
 * the two, in the order of the input and on one thread: counting bad lines,
 * writing, and saving the point from which a stopped run is resumed. Start at
 * gpt_preprocess(), at the end, and read upwards. */
#include "cmd/preprocess/preprocess.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/signals.h"
#include "cmd/preprocess/chunk_stream.h"
#include "cmd/preprocess/journal.h"
#include "cmd/preprocess/line_hint.h"
#include "cmd/preprocess/output.h"
#include "cmd/preprocess/output_names.h"
#include "data/indexed.h"

#include <assert.h>
#include <string.h>

struct run {
    const struct gpt_preprocess_options *o;
    struct gpt_preprocess_stats *stats;
    enum gpt_dtype dtype;
    struct gpt_outputs *out;
    struct gpt_chunk_stream *stream;
    struct gpt_journal *journal; /* NULL: the run cannot be resumed */
    struct gpt_point at;         /* after the chunk written last */
    double saved;                /* when `at` was put into the journal last */
    bool cannot_write; /* a write failed: another one would, too */
};

/* Puts the place of the line at byte `at` of a chunk before the error:
 * "file:line", or "file: offset N" where the lines before are not known.
 * Returns its status. */
static int add_place(struct gpt_err *err, const struct gpt_line_chunk *c,
                     int64_t line, size_t at)
{
    if (c->begin == 0)
        return gpt_context(err, "%s:%lld", c->name, (long long)line);
    int64_t offset = c->begin + c->end - (int64_t)(c->len - at);
    return gpt_context(err, "%s: offset %lld", c->name, (long long)offset);
}

/* With --verbose each bad line is named that report.c does not name at the end,
 * by its kind: what exactly is wrong is kept of the first ones only. */
static void name_bad_line(const struct gpt_line_chunk *c, int64_t line,
                          const struct gpt_bad_line *bad)
{
    struct gpt_err err;

    gpt_fail(&err, GPT_EDATA, "%s", gpt_bad_word(bad->kind));
    add_place(&err, c, line, bad->at);
    gpt_debug("%s", err.text);
}

/* Counts the bad lines of a chunk that follows `lines` lines of its input. It
 * is done here and not by the workers, so that the limit is passed at the same
 * line for any number of them. */
static int count_bad_lines(struct run *run, const struct gpt_line_chunk *c,
                           int64_t lines, struct gpt_err *err)
{
    struct gpt_bad_report *bad = &run->stats->bad;
    int64_t limit = run->o->max_bad;

    for (size_t i = 0; i < c->n_bad; i++) {
        int64_t line = lines + c->bad[i].line;

        bad->of_kind[c->bad[i].kind]++;
        if (bad->n++ < GPT_BAD_NAMED) {
            bad->named[bad->n_named] = c->named[i];
            add_place(&bad->named[bad->n_named++], c, line, c->bad[i].at);
        } else if (gpt_log_wants(GPT_LOG_DEBUG)) {
            name_bad_line(c, line, &c->bad[i]);
        }
        if (limit >= 0 && bad->n > limit) {
            gpt_fail(err, GPT_EDATA, "bad line number %lld: --max-errors "
                     "allows %lld", (long long)bad->n, (long long)limit);
            gpt_hint(err, "mend the lines, the first of which are named above, "
                     "or allow more; --max-errors -1 is any number");
            return add_place(err, c, line, c->bad[i].at);
        }
        GPT_TRY(gpt_outputs_add_bad(run->out, c, c->bad[i].at, err));
    }
    return GPT_OK;
}

/* Copies the sums of the inputs before number `end`, which are complete. */
static void take_sums(struct run *run, int64_t end)
{
    for (int64_t i = run->at.input; i < end; i++)
        run->at.sums[i] = gpt_chunk_stream_sums(run->stream)[i];
}

/* Writes a chunk, and moves the point to its end. */
static int write_chunk(struct run *run, const struct gpt_line_chunk *c,
                       struct gpt_err *err)
{
    int64_t lines = c->input == run->at.input ? run->at.lines : 0;

    assert(c->input >= run->at.input); /* chunks come in order */
    if (c->status != GPT_OK) {
        /* The failure of a thread travelled in the chunk. */
        if (err)
            *err = c->err;
        if (!c->in_line)
            return c->status;
        if (c->status == GPT_EDATA)
            gpt_hint_for_line(c, lines + c->lines == 1 && c->begin == 0, err);
        return add_place(err, c, lines + c->lines, c->line_at);
    }
    take_sums(run, c->input);
    GPT_TRY(count_bad_lines(run, c, lines, err));
    int status = gpt_outputs_add(run->out, c, lines, run->stats, err);
    run->cannot_write = status != GPT_OK;
    run->at.input = c->input;
    run->at.offset = c->end;
    run->at.digest = c->digest;
    run->at.lines = lines + c->lines;
    run->at.quarantine_bytes = gpt_outputs_quarantined(run->out);
    run->at.stats = *run->stats;
    return status;
}

/* ---- the point to resume from ---- */

/* The files are on disk before the journal says so. */
static int save_point(struct run *run, struct gpt_err *err)
{
    GPT_TRY(gpt_outputs_sync(run->out, &run->at, err));
    GPT_TRY(gpt_journal_add(run->journal, &run->at, err));
    run->saved = gpt_now();
    return GPT_OK;
}

static int save_when_due(struct run *run, struct gpt_err *err)
{
    if (!run->journal || gpt_now() - run->saved < run->o->resume_seconds)
        return GPT_OK;
    int status = save_point(run, err);
    run->cannot_write = status != GPT_OK;
    return status;
}

static int open_journal(struct run *run, bool *found, struct gpt_err *err)
{
    const struct gpt_preprocess_options *o = run->o;

    *found = false;
    if (!o->resume)
        return gpt_journal_discard(o, err);
    if (!gpt_journal_possible(o)) {
        gpt_debug("a pipe is read or written: a run that is stopped cannot be "
                  "resumed");
        return GPT_OK;
    }
    return gpt_journal_open(&run->journal, o, run->dtype, &run->at, found, err);
}

/* Leaves what a failed run can be resumed from: its last point, moved to the
 * last chunk if that can be written; or nothing, when there never was one. */
static void leave_files(struct run *run)
{
    if (run->journal && gpt_journal_has_point(run->journal)) {
        if (!run->cannot_write)
            (void)!save_point(run, NULL);
        run->stats->kept = true;
        gpt_outputs_suspend(run->out);
    } else {
        gpt_outputs_abort(run->out);
    }
}

/* ---- the run ---- */

static int write_chunks(struct run *run, struct gpt_err *err)
{
    for (bool end = false; !end;) {
        /* It returns five times a second without a chunk, so that a signal is
         * seen and progress shown while a pipe is silent. */
        const struct gpt_line_chunk *c = gpt_chunk_stream_next(run->stream,
                                                               &end);

        GPT_TRY(gpt_signals_check(err));
        if (c) {
            GPT_TRY(write_chunk(run, c, err));
            gpt_chunk_stream_release(run->stream);
            GPT_TRY(save_when_due(run, err));
        }
        run->stats->input_bytes = gpt_chunk_stream_consumed(run->stream);
        if (run->o->report)
            run->o->report(run->o->user, run->stats);
    }
    return GPT_OK;
}

/* Names can be missing even after a failure here; the same command then finds a
 * complete point, and publishes again. */
static int publish_files(struct run *run, struct gpt_err *err)
{
    int status = gpt_outputs_publish(run->o, err);

    if (status != GPT_OK) {
        run->stats->kept = true;
        return status;
    }
    gpt_journal_remove(run->journal);
    run->journal = NULL;
    return GPT_OK;
}

/* With a journal: all files are made complete on disk, then the journal says
 * so, then they get their names, then the journal is removed. A crash at any
 * place leaves what the same command can finish. */
static int finish_files(struct run *run, struct gpt_err *err)
{
    run->at.stats = *run->stats;
    if (!run->journal) {
        struct gpt_outputs *out = run->out;

        run->out = NULL;
        return gpt_outputs_commit(out, &run->at, err);
    }
    GPT_TRY(gpt_outputs_finish(run->out, &run->at, err));
    run->at.complete = true;
    GPT_TRY(gpt_journal_add(run->journal, &run->at, err));
    gpt_outputs_suspend(run->out);
    run->out = NULL;
    return publish_files(run, err);
}

/* Uses the stream that gpt_preprocess_begin() opened, unless the run is resumed
 * elsewhere: that stream reads from the beginning. */
static int start_stream(struct run *run, struct gpt_err *err)
{
    if (run->stream && (run->at.input > 0 || run->at.offset > 0)) {
        gpt_chunk_stream_close(run->stream);
        run->stream = NULL;
    }
    if (!run->stream)
        GPT_TRY(gpt_chunk_stream_open(&run->stream, run->o, &run->at, err));
    return gpt_chunk_stream_start(run->stream, run->dtype, err);
}

static int write_data_sets(struct run *run, struct gpt_err *err)
{
    int status = gpt_outputs_open(&run->out, run->o, run->dtype,
                                  run->journal ? &run->at : NULL, err);

    if (status != GPT_OK)
        return status == GPT_EDATA ? gpt_hint_no_resume(err) : status;
    GPT_TRY_GOTO(status, start_stream(run, err), out);
    GPT_TRY_GOTO(status, write_chunks(run, err), out);
    take_sums(run, run->o->n_inputs);
    run->cannot_write = true; /* whatever fails now is a write */
    status = finish_files(run, err);
out:
    if (run->out)
        leave_files(run);
    return status;
}

/* Goes back to the beginning: the files of a complete run are gone. The arrays
 * stay, and the counts in them are zeroed. */
static void reset_point(struct run *run)
{
    memset(run->at.keys, 0, (size_t)run->o->n_keys * sizeof(*run->at.keys));
    run->at = (struct gpt_point){.keys = run->at.keys, .sums = run->at.sums};
}

static int begin_or_resume(struct run *run, struct gpt_err *err)
{
    const struct gpt_preprocess_options *o = run->o;
    /* Arrays of the point live as long as the run: the journal fills them, and
     * each chunk changes them. */
    bool found;

    GPT_TRY(gpt_new(&run->at.keys, (size_t)o->n_keys, sizeof(*run->at.keys),
                    "counts", err));
    GPT_TRY(gpt_new(&run->at.sums, (size_t)o->n_inputs, sizeof(*run->at.sums),
                    "digests of inputs", err));
    GPT_TRY(open_journal(run, &found, err));
    if (found && run->at.complete && !gpt_outputs_are_there(run->o)) {
        reset_point(run);
        found = false;
    }
    if (!found)
        return write_data_sets(run, err);
    *run->stats = run->at.stats;
    gpt_info("resuming after document %lld, where an earlier run stopped",
             (long long)run->at.stats.documents);
    return run->at.complete ? publish_files(run, err)
                            : write_data_sets(run, err);
}

/* Checks what the options ask of the tokenizer, and sets the type of tokens. */
static int check_options(struct run *run, struct gpt_err *err)
{
    const struct gpt_preprocess_options *o = run->o;
    int64_t vocabulary = gpt_tokenizer_vocab_size(o->tokenizer);

    run->dtype = o->dtype ? *o->dtype : gpt_indexed_best_dtype(vocabulary);
    if (run->dtype != GPT_U16 && run->dtype != GPT_I32)
        return gpt_fail(err, GPT_EUSAGE, "tokens are written as uint16 or "
                        "int32, not as %s", gpt_dtype_name(run->dtype));
    if (run->dtype == GPT_U16 && vocabulary > UINT16_MAX + 1) {
        gpt_fail(err, GPT_EUSAGE, "the vocabulary has %lld tokens, but uint16 "
                 "holds %d", (long long)vocabulary, UINT16_MAX + 1);
        return gpt_hint(err, "--dtype int32 holds them");
    }
    if (o->empty == GPT_EMPTY_EOD && !o->append_eod)
        return gpt_fail(err, GPT_EUSAGE, "--empty eod needs --append-eod, "
                        "which says that documents have an end");
    if (o->append_eod && gpt_tokenizer_eod(o->tokenizer) < 0)
        return gpt_fail(err, GPT_EDATA, "--append-eod: the vocabulary has no "
                        "end-of-document token, such as <|endoftext|>");
    return GPT_OK;
}

int gpt_preprocess_begin(struct gpt_preprocess_options *options,
                         struct gpt_err *err)
{
    const struct gpt_point start = {0};

    return gpt_chunk_stream_open(&options->begun, options, &start, err);
}

void gpt_preprocess_give_up(struct gpt_preprocess_options *options)
{
    gpt_chunk_stream_close(options->begun);
    options->begun = NULL;
}

int gpt_preprocess(struct gpt_preprocess_options *options,
                   struct gpt_preprocess_stats *stats, struct gpt_err *err)
{
    struct run run = {.o = options, .stats = stats, .stream = options->begun,
                      .saved = gpt_now()};

    options->begun = NULL;
    memset(stats, 0, sizeof(*stats));
    int status;
    GPT_TRY_GOTO(status, check_options(&run, err), out);
    status = begin_or_resume(&run, err);
out:
    gpt_chunk_stream_close(run.stream);
    gpt_journal_close(run.journal);
    gpt_free(run.at.keys);
    gpt_free(run.at.sums);
    return status;
}
