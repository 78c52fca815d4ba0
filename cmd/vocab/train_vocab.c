/* Trains a vocabulary: corpus_count.h counts pieces, tokenizer/bpe/train.h
 * merges them, tokenizer/vocab_write.h makes the files. Start at
 * gpt_train_vocab(), at the end.
 *
 * The text itself is never in memory: only its distinct pieces with their
 * counts are, and merging needs nothing else, as a pair is never across two
 * pieces. Two things make the result the same for any number of threads: counts
 * are sums, and training does not depend on the order of the pieces. */
#include "cmd/vocab/train_vocab.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/progress.h"
#include "cmd/vocab/corpus_count.h"
#include "text/inputs.h"
#include "tokenizer/vocab_write.h"
#include "tokenizer/hf_files.h"

#include <unistd.h>

/* The two files are opened before the work, which may take hours: what cannot
 * be written is reported at once. */
struct outputs {
    struct gpt_arena names;
    struct gpt_out *vocab, *merges;
};

/* The names of both files are kept until the end, for messages. */
static int open_output(struct gpt_out **out, struct outputs *files,
                       const struct gpt_vocab_command *o, const char *suffix,
                       struct gpt_err *err)
{
    char *name = gpt_arena_printf(&files->names, "%s-%s", o->output_prefix,
                                  suffix);

    if (!name)
        return gpt_no_memory(err, "a file name");
    return gpt_out_open(out, name, o->common.force ? GPT_OUT_FORCE : 0, 0,
                        err);
}

/* A directory for a prefix would give files whose names begin with "-", which
 * every command takes for options. */
static int open_outputs(struct outputs *files,
                        const struct gpt_vocab_command *o, struct gpt_err *err)
{
    if (gpt_path_ends_in(o->output_prefix, "/")) {
        gpt_fail(err, GPT_EUSAGE, "--output-prefix %.200s is a directory, and "
                 "no beginning of a name", o->output_prefix);
        return gpt_hint(err, "%.200smy writes %.200smy-%s", o->output_prefix,
                        o->output_prefix, GPT_HF_VOCAB);
    }
    GPT_TRY(open_output(&files->vocab, files, o, GPT_HF_VOCAB, err));
    return open_output(&files->merges, files, o, GPT_HF_MERGES, err);
}

/* Files that were committed are NULL by now. What is left has only a temporary
 * name, and is removed. */
static void abort_outputs(struct outputs *files)
{
    gpt_out_abort(files->vocab);
    gpt_out_abort(files->merges);
    gpt_arena_free(&files->names);
}

/* Merges of another vocabulary would give other tokens, silently: both files
 * appear together. They are freed whatever happens. */
static int write_outputs(struct outputs *files,
                         const struct gpt_bpe_trained *model,
                         struct gpt_err *err)
{
    GPT_TRY(gpt_vocab_write_json(files->vocab, model, err));
    GPT_TRY(gpt_vocab_write_merges(files->merges, model, err));
    struct gpt_out *const both[] = {files->vocab, files->merges};
    files->vocab = files->merges = NULL;
    return gpt_out_commit_all(both, GPT_COUNT(both), err);
}

/* The progress line is a message: --quiet turns it off. */
static const char *progress_mode(const struct gpt_vocab_command *o)
{
    return o->common.quiet ? "never" : o->common.progress;
}

/* An empty corpus would give a vocabulary of single bytes, which is hardly
 * meant. */
static int count_corpus(struct gpt_piece_counter **counter,
                        const struct gpt_vocab_command *o,
                        const char *const *inputs, int64_t n_inputs,
                        struct gpt_err *err)
{
    struct gpt_count_totals totals;
    struct gpt_count_options co = {
        .blocks = {.inputs = inputs,
                   .n_inputs = n_inputs,
                   .format = o->input_format},
        .keys = o->json_keys.items,
        .n_keys = o->json_keys.n,
        .threads = o->common.threads
                       ? o->common.threads
                       : (int64_t)sysconf(_SC_NPROCESSORS_ONLN),
        .progress = progress_mode(o),
    };
    double start = gpt_now();

    GPT_TRY(gpt_count_corpus(counter, &totals, &co, err));
    if (totals.bytes == 0) {
        gpt_piece_counter_close(*counter);
        return gpt_fail(err, GPT_EDATA, "the input holds no text");
    }
    double seconds = gpt_now() - start;
    const size_t pieces = gpt_piece_counter_size(*counter);
    gpt_info("%lld document%s, %.2f MB of text, %zu distinct piece%s, "
             "counted in %.1f s", (long long)totals.documents,
             gpt_plural(totals.documents), (double)totals.bytes / 1e6, pieces,
             gpt_plural((int64_t)pieces), seconds);
    return GPT_OK;
}

/* The arena holds the expanded names until the counting is over. */
static int count_inputs(struct gpt_piece_counter **counter,
                        const struct gpt_vocab_command *o, struct gpt_err *err)
{
    struct gpt_arena arena = {0};
    const char *const *paths;
    int64_t n;
    int status;

    GPT_TRY_GOTO(status, gpt_inputs_expand(&arena, o->input.items, o->input.n,
                                           &paths, &n, err), out);
    status = count_corpus(counter, o, paths, n, err);
out:
    gpt_arena_free(&arena);
    return status;
}

/* Merges the most frequent pairs, one after the other: the order of the list of
 * pieces has no influence (tokenizer/bpe/train.h). */
static int merge_pieces(struct gpt_bpe_trained *model,
                        const struct gpt_piece_counter *counter,
                        const struct gpt_vocab_command *o,
                        struct gpt_err *err)
{
    struct gpt_word *pieces;
    /* The bytes and <|endoftext|> take up the rest of the vocabulary. */
    struct gpt_bpe_train_options to = {
        .max_merges = o->vocab_size - GPT_TRAINED_MIN,
        /* as with Hugging Face, where 0 asks for what 1 asks for: a pair that
         * does not occur is none */
        .min_frequency = gpt_max_i64(o->min_frequency, 1),
    };

    GPT_TRY(gpt_piece_counter_list(counter, &pieces, err));
    to.progress = gpt_progress_open(progress_mode(o), "merge", "merges",
                                    to.max_merges);
    int status = gpt_bpe_train(model, pieces, gpt_piece_counter_size(counter),
                               &to, err);
    gpt_progress_close(to.progress);
    gpt_free(pieces);
    return status;
}

static void print_summary(const struct gpt_bpe_trained *model,
                          const struct gpt_vocab_command *o, double start)
{
    char time[32];
    long long n = (long long)gpt_vocab_size(model);
    const int64_t enough = gpt_max_i64(o->min_frequency, 1);

    if (n < o->vocab_size)
        /* Fewer tokens than asked for is no failure: a small corpus has no more
         * pairs. */
        gpt_warn("the vocabulary has %lld tokens, not %lld: no other pair "
                 "occurs %lld time%s", n, (long long)o->vocab_size,
                 (long long)enough, gpt_plural(enough));
    gpt_info("%lld tokens, %lld of them merges; %.3f bytes a token on this "
             "text; %s in all", n, (long long)model->n_merges,
             (double)model->n_bytes / (double)model->n_tokens,
             gpt_text_duration(time, gpt_now() - start));
}

static int train_and_write(struct outputs *files,
                           const struct gpt_vocab_command *o,
                           struct gpt_err *err)
{
    struct gpt_piece_counter *counter;
    struct gpt_bpe_trained model;
    double start = gpt_now();

    GPT_TRY(count_inputs(&counter, o, err));
    int status = merge_pieces(&model, counter, o, err);
    /* The counter holds the corpus's distinct pieces: gone before the
     * writing. */
    gpt_piece_counter_close(counter);
    GPT_TRY(status);
    GPT_TRY_GOTO(status, write_outputs(files, &model, err), out);
    print_summary(&model, o, start);
out:
    gpt_bpe_trained_free(&model);
    return status;
}

/* Library messages name a rule or a file; which option helps is known here. */
static int hint_options(int status, struct gpt_err *err)
{
    if (status != GPT_EDATA || !err || err->hint[0])
        return status;
    return gpt_hint(err, "--json-keys names the fields that hold text, and "
                         "--input-format text takes a file for plain text");
}

int gpt_train_vocab(const struct gpt_vocab_command *o, struct gpt_err *err)
{
    struct outputs files = {0};
    int status;

    GPT_TRY_GOTO(status, open_outputs(&files, o, err), out);
    status = train_and_write(&files, o, err);
out:
    abort_outputs(&files);
    return hint_options(status, err);
}
