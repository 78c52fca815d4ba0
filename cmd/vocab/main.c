/* gpt-vocab: trains a GPT-2 vocabulary on a corpus. Counting is
 * cmd/vocab/corpus_count.h, merging tokenizer/bpe/train.h, the files are made
 * by tokenizer/vocab_write.h; here are the options and what is said. */
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/options.h"
#include "base/progress.h"
#include "cmd/vocab/corpus_count.h"
#include "text/inputs.h"
#include "tokenizer/vocab_write.h"

#include <unistd.h>

enum { MIN_VOCAB = GPT_BPE_BYTES + 1, MAX_VOCAB = 1 << 27 };

struct options {
    struct gpt_common_options common;
    struct gpt_list input, json_keys;
    const char *input_format, *output_prefix;
    int64_t vocab_size, min_frequency;
};

static const char *const input_formats[] = {"auto", "jsonl", "text", NULL};

#define AT(field) .offset = offsetof(struct options, field)
static const struct gpt_opt table[] = {
    {.kind = GPT_OPT_GROUP, .help = "Input and output"},
    {.kind = GPT_OPT_LIST, .name = "input", .arg = "FILE", AT(input),
     .flags = GPT_OPT_REQUIRED | GPT_OPT_FILE,
     .help = "JSON lines or text, also .xz, .gz, .zst: files, directories, "
             "patterns; '-' is standard input"},
    {.kind = GPT_OPT_CHOICE, .name = "input-format", .arg = "FORMAT",
     AT(input_format), .def = "auto", .choices = input_formats,
     .help = "of the input; auto looks at name and first character"},
    {.kind = GPT_OPT_LIST, .name = "json-keys", .arg = "KEY", AT(json_keys),
     .def = "text", .help = "fields of JSON lines that hold the text"},
    {.kind = GPT_OPT_STRING, .name = "output-prefix", .arg = "PREFIX",
     AT(output_prefix), .flags = GPT_OPT_REQUIRED | GPT_OPT_FILE,
     .help = "write PREFIX-vocab.json and PREFIX-merges.txt"},
    {.kind = GPT_OPT_GROUP, .help = "Vocabulary"},
    {.kind = GPT_OPT_INT, .name = "vocab-size", .arg = "N", AT(vocab_size),
     .def = "50257", .min = MIN_VOCAB, .max = MAX_VOCAB,
     .help = "tokens, with the 256 bytes and <|endoftext|>"},
    {.kind = GPT_OPT_INT, .name = "min-frequency", .arg = "N",
     AT(min_frequency), .def = "2", .min = 1, .max = 1e15,
     .help = "merge no pair that is seen less often"},
    GPT_COMMON_OPTIONS(struct options, common),
};

/* The two files: opened before the work, so that what cannot be written is
 * known at once. */
struct outputs {
    struct gpt_arena names;
    struct gpt_out *vocab, *merges;
};

static int open_output(struct gpt_out **out, struct outputs *files,
                       const struct options *o, const char *suffix,
                       struct gpt_err *err)
{
    char *name = gpt_arena_printf(&files->names, "%s-%s", o->output_prefix,
                                  suffix);

    if (!name)
        return gpt_fail(err, GPT_EFAIL, "out of memory for a file name");
    return gpt_out_open(out, name, o->common.force ? GPT_OUT_FORCE : 0, 0,
                        err);
}

static int open_outputs(struct outputs *files, const struct options *o,
                        struct gpt_err *err)
{
    GPT_TRY(open_output(&files->vocab, files, o, "vocab.json", err));
    return open_output(&files->merges, files, o, "merges.txt", err);
}

static void abort_outputs(struct outputs *files)
{
    gpt_out_abort(files->vocab);
    gpt_out_abort(files->merges);
    gpt_arena_free(&files->names);
}

/* Both files are written before the first gets its name. */
static int write_outputs(struct outputs *files,
                         const struct gpt_bpe_trained *model,
                         struct gpt_err *err)
{
    GPT_TRY(gpt_vocab_write_json(files->vocab, model, err));
    GPT_TRY(gpt_vocab_write_merges(files->merges, model, err));
    int status = gpt_out_commit(files->vocab, err);
    files->vocab = NULL;
    GPT_TRY(status);
    status = gpt_out_commit(files->merges, err);
    files->merges = NULL;
    return status;
}

static const char *progress_mode(const struct options *o)
{
    return o->common.quiet ? "never" : o->common.progress;
}

static int count(struct gpt_piece_counter **counter, const struct options *o,
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
    gpt_info("%lld documents, %.2f MB of text, %zu distinct pieces, "
             "counted in %.1f s", (long long)totals.documents,
             (double)totals.bytes / 1e6, gpt_piece_counter_size(*counter),
             seconds);
    return GPT_OK;
}

static int count_inputs(struct gpt_piece_counter **counter,
                        const struct options *o, struct gpt_err *err)
{
    struct gpt_arena arena = {0};
    const char *const *paths;
    int64_t n;
    int status = gpt_inputs_expand(&arena, o->input.items, o->input.n, &paths,
                                   &n, err);

    if (status == GPT_OK)
        status = count(counter, o, paths, n, err);
    gpt_arena_free(&arena);
    return status;
}

static int merge(struct gpt_bpe_trained *model,
                 const struct gpt_piece_counter *counter,
                 const struct options *o, struct gpt_err *err)
{
    struct gpt_word *pieces;
    struct gpt_bpe_train_options to = {
        .max_merges = o->vocab_size - MIN_VOCAB,
        .min_frequency = o->min_frequency,
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

static void summarise(const struct gpt_bpe_trained *model,
                      const struct options *o, double start)
{
    char time[32];

    long long n = (long long)gpt_vocab_size(model);
    if (n < o->vocab_size)
        gpt_warn("the vocabulary has %lld tokens, not %lld: no other pair "
                 "occurs %lld times", n, (long long)o->vocab_size,
                 (long long)o->min_frequency);
    gpt_info("%lld tokens, %lld of them merges; %.3f bytes a token on this "
             "text; %s in all", n, (long long)model->n_merges,
             (double)model->n_bytes / (double)model->n_tokens,
             gpt_text_duration(time, gpt_now() - start));
}

static int train(struct outputs *files, const struct options *o,
                 struct gpt_err *err)
{
    struct gpt_piece_counter *counter;
    struct gpt_bpe_trained model;
    double start = gpt_now();

    GPT_TRY(count_inputs(&counter, o, err));
    int status = merge(&model, counter, o, err);
    gpt_piece_counter_close(counter);
    GPT_TRY(status);
    status = write_outputs(files, &model, err);
    if (status == GPT_OK)
        summarise(&model, o, start);
    gpt_bpe_trained_free(&model);
    return status;
}

static int run(const void *options, const struct gpt_args *args,
               struct gpt_err *err)
{
    const struct options *o = options;
    struct outputs files = {0};

    (void)args;
    int status = open_outputs(&files, o, err);
    if (status == GPT_OK)
        status = train(&files, o, err);
    abort_outputs(&files);
    return status;
}

int main(int argc, char **argv)
{
    static const char *const usage[] = {
        "--input FILE... --output-prefix PREFIX [--vocab-size N] [OPTION]...",
        NULL,
    };
    static const char *const examples[] = {
        "gpt-vocab --input oscar.jsonl.xz --output-prefix my",
        "gpt-vocab --input book.txt --vocab-size 4096 --output-prefix book",
        NULL,
    };
    static const struct gpt_program program = {
        .name = "gpt-vocab",
        .purpose = "Train a GPT-2 vocabulary on a corpus.",
        .usage = usage,
        .examples = examples,
        .options = table,
        .n_options = GPT_COUNT(table),
        .options_bytes = sizeof(struct options),
        .run = run,
    };

    return gpt_main(&program, argc, argv);
}
