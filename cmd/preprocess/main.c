/* gpt-preprocess: JSON lines to the token files that training reads. The work
 * is gpt_preprocess() of cmd/preprocess/preprocess.h; here are the options, the
 * progress line and the summary. */
#include "base/io.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/options.h"
#include "base/progress.h"
#include "cmd/preprocess/preprocess.h"
#include "data/provenance.h"
#include "data/shard_names.h"
#include "text/inputs.h"
#include "tokenizer/tokenizer_options.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct options {
    struct gpt_common_options common;
    struct gpt_list input, json_keys;
    const char *output_prefix, *dataset_impl, *shard;
    struct gpt_tokenizer_options tokenizer;
    bool append_eod;
    int64_t workers, log_interval, max_errors;
    const char *on_error;
    bool resume, keep_sequential, provenance, sources;
    double resume_interval;
    int64_t partitions;
    const char *dtype, *empty;
};

static const char *const dataset_impls[] = {"mmap", "cached", "lazy", NULL};
static const char *const dtypes[] = {"auto", "uint16", "int32", NULL};
static const char *const empties[] = {
    [GPT_EMPTY_KEEP] = "keep",
    [GPT_EMPTY_DROP] = "drop",
    [GPT_EMPTY_EOD] = "eod",
    NULL,
};

#define AT(field) .offset = offsetof(struct options, field)
/* GPT_OPT_LOCAL: what has no influence on the data set, and what could only be
 * repeated in the same place and at the same time. The others are kept as its
 * command. */
static const struct gpt_opt table[] = {
    {.kind = GPT_OPT_GROUP, .help = "Input and output"},
    {.kind = GPT_OPT_LIST, .name = "input", .arg = "FILE", AT(input),
     .flags = GPT_OPT_REQUIRED | GPT_OPT_FILE,
     .help = "JSON lines, plain, .xz, .gz or .zst: files, directories, "
             "patterns; '-' is standard input"},
    {.kind = GPT_OPT_STRING, .name = "shard", .arg = "I/N", AT(shard),
     .help = "take part I of 1 to N of the input, write PREFIX-I-of-N"},
    {.kind = GPT_OPT_LIST, .name = "json-keys", .arg = "KEY", AT(json_keys),
     .def = "text", .help = "fields with the text, a data set for each"},
    {.kind = GPT_OPT_STRING, .name = "output-prefix", .arg = "PREFIX",
     AT(output_prefix), .flags = GPT_OPT_REQUIRED | GPT_OPT_FILE,
     .help = "write PREFIX_KEY_document.bin and .idx"},
    {.kind = GPT_OPT_CHOICE, .name = "dataset-impl", .arg = "IMPL",
     AT(dataset_impl), .def = "mmap", .choices = dataset_impls,
     .help = "format of the index: MMIDIDX for mmap, TNTIDX for the others"},
    {.kind = GPT_OPT_CHOICE, .name = "dtype", .arg = "TYPE", AT(dtype),
     .def = "auto", .choices = dtypes,
     .help = "type of tokens: uint16, int32, or auto, by vocabulary and index"},
    {.kind = GPT_OPT_FLAG, .name = "provenance", AT(provenance), .def = "true",
     .help = "write PREFIX_KEY_document.json, which says what went into it"},
    {.kind = GPT_OPT_FLAG, .name = "sources", AT(sources),
     .help = "write PREFIX_KEY_document.sources: for each document, its line"},
    {.kind = GPT_OPT_GROUP, .help = "Tokenizer"},
    GPT_TOKENIZER_FILE_OPTIONS(struct options, tokenizer, "GPT2BPETokenizer",
                               0),
    GPT_TOKENIZER_TEXT_OPTIONS(struct options, tokenizer),
    {.kind = GPT_OPT_INT, .name = "vocab-size", .arg = "N",
     AT(tokenizer.vocab_size), .def = "0", .min = 0, .max = INT32_MAX,
     .help = "NullTokenizer: ids are below N; TikTokenizer: of the model, 0 = "
             "all of a .tiktoken, 131072 of a .json"},
    {.kind = GPT_OPT_FLAG, .name = "append-eod", AT(append_eod),
     .help = "end each document with the end-of-document token"},
    {.kind = GPT_OPT_CHOICE, .name = "empty", .arg = "WHAT", AT(empty),
     .def = "keep", .choices = empties,
     .help = "documents without text: keep them in the index, drop them, or "
             "let them be an end of document (eod)"},
    {.kind = GPT_OPT_GROUP, .help = "Work"},
    {.kind = GPT_OPT_INT, .name = "workers", .arg = "N", AT(workers),
     .def = "0", .min = 0, .max = 1024, .flags = GPT_OPT_LOCAL,
     .help = "threads that tokenize, 0 = as --threads"},
    {.kind = GPT_OPT_INT, .name = "log-interval", .arg = "N",
     AT(log_interval), .def = "0", .min = 0, .max = 1e15,
     .flags = GPT_OPT_LOCAL,
     .help = "print a line every N documents, 0 = never"},
    {.kind = GPT_OPT_INT, .name = "partitions", .arg = "N", AT(partitions),
     .def = "1", .min = 1, .max = 1e6, .flags = GPT_OPT_LOCAL,
     .help = "of Megatron-LM; more than 1 only with --keep-sequential-samples"},
    {.kind = GPT_OPT_FLAG, .name = "keep-sequential-samples",
     AT(keep_sequential), .flags = GPT_OPT_LOCAL,
     .help = "documents stay in order, as they always do"},
    {.kind = GPT_OPT_FLAG, .name = "resume", AT(resume), .def = "true",
     .flags = GPT_OPT_LOCAL,
     .help = "go on where a run that was stopped stood, or give it up"},
    {.kind = GPT_OPT_REAL, .name = "resume-interval", .arg = "SECONDS",
     AT(resume_interval), .def = "10", .min = 0, .max = 1e6,
     .flags = GPT_OPT_LOCAL,
     .help = "how often the place to go on from is moved on"},
    {.kind = GPT_OPT_GROUP, .help = "Bad lines"},
    {.kind = GPT_OPT_STRING, .name = "on-error", .arg = "ACTION", AT(on_error),
     .def = "stop",
     .help = "at a bad line: stop, skip it, or quarantine=FILE to skip it and "
             "write it to FILE"},
    {.kind = GPT_OPT_INT, .name = "max-errors", .arg = "N", AT(max_errors),
     .def = "-1", .min = -1, .max = 1e15, .flags = GPT_OPT_LOCAL,
     .help = "fail if more than N lines are skipped, -1 = any number"},
    GPT_COMMON_OPTIONS(struct options, common),
};

/* ---- what is said while it runs, and at the end ---- */

struct reporter {
    struct gpt_progress *progress;
    int64_t log_interval, next_log; /* in documents */
    double start;
};

static double rate(double amount, const struct reporter *r)
{
    double seconds = gpt_now() - r->start;

    return seconds > 0 ? amount / seconds : 0;
}

static void report(void *user, const struct gpt_preprocess_stats *s)
{
    struct reporter *r = user;
    char note[48];

    snprintf(note, sizeof(note), "%lld documents", (long long)s->documents);
    gpt_progress_set(r->progress, s->input_bytes, note);
    if (r->log_interval == 0 || s->documents < r->next_log)
        return;
    gpt_log_line("Processed %lld documents (%.1f docs/s, %.2f MB/s).",
                 (long long)s->documents, rate((double)s->documents, r),
                 rate((double)s->line_bytes, r) / 1e6);
    r->next_log = (s->documents / r->log_interval + 1) * r->log_interval;
}

static void summarise(const struct gpt_preprocess_stats *s,
                      const struct reporter *r)
{
    char time[32];

    if (s->documents == 0)
        gpt_warn("the input holds no documents");
    gpt_info("%lld documents, %lld tokens, %.2f bytes of text a token",
             (long long)s->documents, (long long)s->tokens,
             s->tokens ? (double)s->text_bytes / (double)s->tokens : 0.0);
    gpt_info("%.1f MB of text in %s, %.1f MB/s of JSON lines",
             (double)s->text_bytes / 1e6,
             gpt_text_duration(time, gpt_now() - r->start),
             rate((double)s->line_bytes, r) / 1e6);
}

/* "blank line 3, not JSON 1" */
static void add_kinds(struct gpt_buf *b, const struct gpt_bad_report *bad)
{
    const char *comma = "";

    for (int k = 0; k < GPT_BAD_KINDS; k++) {
        if (!bad->of_kind[k])
            continue;
        gpt_buf_printf(b, "%s%s %lld", comma, gpt_bad_word(k),
                       (long long)bad->of_kind[k]);
        comma = ", ";
    }
}

static void report_bad(const struct gpt_bad_report *bad, bool done,
                       const struct gpt_preprocess_options *po)
{
    struct gpt_buf b = {0};

    if (bad->n == 0)
        return;
    for (int64_t i = 0; i < bad->n_named; i++)
        gpt_warn("%s", bad->named[i].text);
    if (bad->n > bad->n_named)
        gpt_warn("... and %lld more", (long long)(bad->n - bad->n_named));
    gpt_buf_printf(&b, "%lld bad lines ", (long long)bad->n);
    if (!done)
        gpt_buf_printf(&b, "until the failure");
    else if (po->max_bad >= 0)
        gpt_buf_printf(&b, "left out, limit %lld", (long long)po->max_bad);
    else
        gpt_buf_printf(&b, "left out, no limit");
    if (done && po->quarantine)
        gpt_buf_printf(&b, ", kept in '%s'", po->quarantine);
    gpt_buf_printf(&b, ": ");
    add_kinds(&b, bad);
    if (b.data)
        gpt_warn("%s", b.data);
    gpt_buf_free(&b);
}

/* ---- what is read, and where it goes ---- */

struct work {
    double start;
    struct gpt_arena arena; /* of all below */
    int64_t shard, n_shards;
    const struct gpt_input_range *inputs;
    int64_t n_inputs;
    const char *output_prefix;
    struct gpt_tokenizer_id tokenizer;
    struct gpt_tokenizer_file files[GPT_TOKENIZER_FILES]; /* their paths */
    struct gpt_buf command; /* as lines of a configuration file */
    struct gpt_tokenizer *loaded;
    enum gpt_dtype dtype; /* the one asked for */
};

/* "I/N" */
static int parse_shard(struct work *w, const char *text, struct gpt_err *err)
{
    char first[24];

    w->shard = w->n_shards = 1;
    if (!text)
        return GPT_OK;
    size_t len = strcspn(text, "/");
    bool good = len < sizeof(first) && text[len];
    if (good) {
        memcpy(first, text, len);
        first[len] = '\0';
        good = gpt_parse_int(first, &w->shard) &&
               gpt_parse_int(text + len + 1, &w->n_shards);
    }
    if (good && w->shard >= 1 && w->shard <= w->n_shards &&
        w->n_shards <= GPT_MAX_SHARDS)
        return GPT_OK;
    return gpt_fail(err, GPT_EUSAGE, "--shard is '%.50s', must be I/N with "
                    "1 <= I <= N <= %d", text, GPT_MAX_SHARDS);
}

/* A shard's own name of a file; NULL when out of memory. */
static const char *of_shard(struct work *w, const struct options *o,
                            const char *name)
{
    return o->shard ? gpt_shard_name(&w->arena, name, w->shard, w->n_shards)
                    : name;
}

static int plan_work(struct work *w, const struct options *o,
                     struct gpt_err *err)
{
    const char *const *paths;
    int64_t n;

    GPT_TRY(parse_shard(w, o->shard, err));
    GPT_TRY(gpt_inputs_expand(&w->arena, o->input.items, o->input.n, &paths,
                              &n, err));
    GPT_TRY(gpt_inputs_shard(&w->arena, paths, n, w->shard, w->n_shards,
                             &w->inputs, &w->n_inputs, err));
    w->output_prefix = of_shard(w, o, o->output_prefix);
    return w->output_prefix ? GPT_OK
                            : gpt_fail(err, GPT_EFAIL, "out of memory");
}

/* ---- the run ---- */

static int64_t n_workers(const struct options *o)
{
    if (o->workers)
        return o->workers;
    return o->common.threads ? o->common.threads
                             : (int64_t)sysconf(_SC_NPROCESSORS_ONLN);
}

static int set_on_error(const struct options *o, struct work *w,
                        struct gpt_preprocess_options *po, struct gpt_err *err)
{
    static const char prefix[] = "quarantine=";
    const size_t n = sizeof(prefix) - 1;

    po->max_bad = o->max_errors;
    po->skip_bad = strcmp(o->on_error, "stop") != 0;
    if (!po->skip_bad && o->max_errors >= 0)
        return gpt_fail(err, GPT_EUSAGE, "--max-errors %lld goes with "
                        "--on-error skip or quarantine=FILE, not with stop",
                        (long long)o->max_errors);
    if (!po->skip_bad || strcmp(o->on_error, "skip") == 0)
        return GPT_OK;
    if (strncmp(o->on_error, prefix, n) != 0 || !o->on_error[n])
        return gpt_fail(err, GPT_EUSAGE, "--on-error '%s' is none of stop, "
                        "skip and quarantine=FILE", o->on_error);
    po->quarantine = of_shard(w, o, o->on_error + n);
    return po->quarantine ? GPT_OK
                          : gpt_fail(err, GPT_EFAIL, "out of memory");
}

/* Megatron-LM deals lines out to partitions in turn, and puts these one behind
 * the other: an order that nobody wants, and that would need as many copies of
 * the corpus. */
static int check_partitions(const struct options *o, struct gpt_err *err)
{
    if (o->partitions == 1 || o->keep_sequential)
        return GPT_OK;
    gpt_fail(err, GPT_EUSAGE, "--partitions %lld would change the order of the "
             "documents, which this program keeps", (long long)o->partitions);
    return gpt_hint(err, "give --keep-sequential-samples too, or leave "
                    "--partitions out: --workers are enough");
}

static enum gpt_empty find_empty(const char *name)
{
    enum gpt_empty e = 0;

    while (strcmp(empties[e], name) != 0)
        e++;
    return e;
}

/* All but the tokenizer, which is loaded while reading has begun. */
static int set_options(const struct options *o, struct work *w,
                       struct gpt_preprocess_options *po, struct gpt_err *err)
{
    bool tntidx = strcmp(o->dataset_impl, "mmap") != 0;
    bool any_type = strcmp(o->dtype, "auto") == 0;

    w->dtype = strcmp(o->dtype, "uint16") == 0 ? GPT_U16 : GPT_I32;
    *po = (struct gpt_preprocess_options){
        .inputs = w->inputs,
        .n_inputs = w->n_inputs,
        .keys = o->json_keys.items,
        .n_keys = o->json_keys.n,
        .output_prefix = w->output_prefix,
        .append_eod = o->append_eod,
        .empty = find_empty(o->empty),
        .dtype = any_type && !tntidx ? NULL : &w->dtype,
        .tntidx = tntidx,
        .out_flags = o->common.force ? GPT_OUT_FORCE : 0,
        .workers = n_workers(o),
        .provenance = o->provenance,
        .sources = o->sources,
        .shard = w->shard,
        .n_shards = o->shard ? w->n_shards : 0,
        .resume = o->resume,
        .resume_seconds = o->resume_interval,
    };
    GPT_TRY(check_partitions(o, err));
    return set_on_error(o, w, po, err);
}

static int preprocess(const struct options *o, const struct work *w,
                      struct gpt_preprocess_options *po, struct gpt_err *err)
{
    struct reporter r = {.log_interval = o->log_interval,
                         .next_log = o->log_interval,
                         .start = w->start};
    struct gpt_preprocess_stats stats;

    r.progress = gpt_progress_open(o->common.quiet ? "never"
                                                   : o->common.progress,
                                   "preprocess", "B",
                                   gpt_inputs_bytes(po->inputs, po->n_inputs));
    po->report = report;
    po->user = &r; /* cppcheck-suppress autoVariables ; until it returns */
    int status = gpt_preprocess(po, &stats, err);
    gpt_progress_close(r.progress);
    if (status == GPT_OK)
        summarise(&stats, &r);
    report_bad(&stats.bad, status == GPT_OK, po);
    if (status != GPT_OK && stats.kept)
        gpt_warn("what was done is kept: the same command goes on behind "
                 "document %lld, --no-resume starts over",
                 (long long)stats.documents);
    return status;
}

static int describe(struct work *w, const struct options *o,
                    const struct gpt_args *args, struct gpt_err *err)
{
    size_t n;

    w->tokenizer.options = &o->tokenizer;
    GPT_TRY(gpt_tokenizer_files(&o->tokenizer, w->files, &n, err));
    for (size_t i = 0; i < n; i++)
        GPT_TRY(gpt_tokenizer_id_add(&w->tokenizer, w->files[i].option,
                                     w->files[i].path, err));
    if (gpt_options_lines(args, o, GPT_LINES_GIVEN | GPT_LINES_SHARED,
                          &w->command) == GPT_OK)
        return GPT_OK;
    return gpt_fail(err, GPT_EFAIL, "out of memory for the command");
}

static int load_tokenizer(struct work *w, const struct options *o,
                          const struct gpt_args *args,
                          struct gpt_preprocess_options *po,
                          struct gpt_err *err)
{
    GPT_TRY(gpt_tokenizer_open(&w->loaded, &o->tokenizer, err));
    GPT_TRY(describe(w, o, args, err));
    po->tokenizer = w->loaded;
    po->tokenizer_id = &w->tokenizer;
    po->command = w->command.data;
    return GPT_OK;
}

static int run(const void *options, const struct gpt_args *args,
               struct gpt_err *err)
{
    const struct options *o = options;
    struct work w = {.start = gpt_now()};
    struct gpt_preprocess_options po = {0};
    int status = plan_work(&w, o, err);

    if (status == GPT_OK)
        status = set_options(o, &w, &po, err);
    if (status == GPT_OK)
        status = gpt_preprocess_begin(&po, err);
    if (status == GPT_OK)
        status = load_tokenizer(&w, o, args, &po, err);
    if (status == GPT_OK)
        status = preprocess(o, &w, &po, err);
    gpt_preprocess_give_up(&po);
    gpt_arena_free(&w.arena);
    gpt_buf_free(&w.command);
    gpt_tokenizer_close(w.loaded);
    return status;
}

static const char *const usage[] = {
    "--input FILE... --output-prefix PREFIX --vocab-file FILE "
    "--merge-file FILE [--append-eod]",
    "--input FILE... --output-prefix PREFIX --tokenizer-type ByteTokenizer",
    "--input DIR --shard I/N --output-prefix PREFIX ...",
    NULL,
};
static const char *const examples[] = {
    "gpt-preprocess --input oscar.jsonl.xz --output-prefix my-gpt2 "
    "--vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --append-eod",
    NULL,
};

int main(int argc, char **argv)
{
    static const struct gpt_program program = {
        .name = "gpt-preprocess",
        .purpose = "Turn JSON lines into token files for training.",
        .usage = usage,
        .examples = examples,
        .options = table,
        .n_options = GPT_COUNT(table),
        .options_bytes = sizeof(struct options),
        .version = gpt_tokenizer_version,
        .run = run,
    };

    return gpt_main(&program, argc, argv);
}
