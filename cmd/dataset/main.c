/* gpt-dataset: looks at data sets, checks them, and makes new ones of them. The
 * commands are in cmd/dataset/commands.h; here are the options, and which
 * command takes which. Read `modes` first. */
#include "base/io.h"
#include "base/memory.h"
#include "base/options.h"
#include "cmd/dataset/commands.h"
#include "tokenizer/tokenizer_options.h"

#include <stdio.h>
#include <string.h>

struct options {
    struct gpt_common_options common;
    struct gpt_command_options d;
};

#define AT(field) .offset = offsetof(struct options, d.field)
static const struct gpt_opt table[] = {
    {.kind = GPT_OPT_GROUP, .help = "New data sets"},
    {.kind = GPT_OPT_STRING, .name = "output-prefix", .arg = "PREFIX",
     AT(output_prefix), .flags = GPT_OPT_FILE,
     .help = "merge, slice, head, repair, convert: write PREFIX.bin, "
             "PREFIX.idx"},
    {.kind = GPT_OPT_STRING, .name = "input", .arg = "DIR", AT(input),
     .flags = GPT_OPT_DIR,
     .help = "merge: take all sets of a directory, in the order of names"},
    {.kind = GPT_OPT_CHOICE, .name = "to", .arg = "FORMAT", AT(to),
     .def = "mmididx", .choices = gpt_command_formats,
     .help = "convert: format to write, mmididx, tntidx, ds or llmc"},
    {.kind = GPT_OPT_FLAG, .name = "index-only", AT(index_only),
     .help = "repair: write PREFIX.idx alone"},
    {.kind = GPT_OPT_GROUP, .help = "Caches of Megatron-LM (index)"},
    {.kind = GPT_OPT_STRING, .name = "data-cache-path", .arg = "DIR",
     AT(cache_path), .flags = GPT_OPT_DIR,
     .help = "directory to write; default: PREFIX/cache/GPTDataset_indices"},
    {.kind = GPT_OPT_STRING, .name = "tokenizer-like", .arg = "FILE",
     AT(tokenizer_like), .flags = GPT_OPT_FILE,
     .help = "a description.txt of Megatron-LM with the same tokenizer"},
    {.kind = GPT_OPT_LIST, .name = "num-samples", .arg = "N", AT(num_samples),
     .help = "of train, valid and test split; 0: one epoch of it"},
    {.kind = GPT_OPT_INT, .name = "seq-length", .arg = "N", AT(seq_length),
     .def = "1024", .min = 1, .max = INT32_MAX, .help = "tokens of a sample"},
    {.kind = GPT_OPT_INT, .name = "seed", .arg = "N", AT(seed), .def = "1234",
     .min = 0, .max = UINT32_MAX, .help = "of the order of samples"},
    {.kind = GPT_OPT_STRING, .name = "split", .arg = "A,B,C", AT(split),
     .def = "969,30,1", .help = "shares of train, valid and test"},
    {.kind = GPT_OPT_GROUP, .help = "Which documents"},
    {.kind = GPT_OPT_STRING, .name = "documents", .arg = "A:B", AT(documents),
     .help = "documents A to B - 1, counted from 0; either may be left out"},
    {.kind = GPT_OPT_INT, .letter = 'n', .name = "count", .arg = "N",
     AT(count), .def = "10", .min = 0, .max = 1e18,
     .help = "head: how many documents"},
    {.kind = GPT_OPT_INT, .name = "tail", .arg = "N", AT(tail), .def = "0",
     .min = 0, .max = 1e18, .help = "cat: the last N documents"},
    {.kind = GPT_OPT_GROUP, .help = "Output"},
    {.kind = GPT_OPT_FLAG, .name = "json", AT(json),
     .help = "info, stat, verify: a JSON object a set"},
    {.kind = GPT_OPT_FLAG, .name = "jsonl", AT(jsonl),
     .help = "cat: a JSON object a document"},
    {.kind = GPT_OPT_FLAG, .name = "strip-eod", AT(strip_eod),
     .help = "cat: leave out the end-of-document token of the vocabulary"},
    {.kind = GPT_OPT_FLAG, .name = "sources", AT(sources),
     .help = "cat: file and line of each document, from PREFIX.sources"},
    {.kind = GPT_OPT_GROUP, .help = "Vocabulary"},
    GPT_TOKENIZER_FILE_OPTIONS(struct options, d.tokenizer, NULL, 0),
    {.kind = GPT_OPT_GROUP, .help = "What to look for"},
    {.kind = GPT_OPT_INT, .name = "top", .arg = "N", AT(top), .def = "0",
     .min = 0, .max = 1 << 20,
     .help = "stat: read the tokens and list the N most frequent"},
    {.kind = GPT_OPT_INT, .name = "vocab-size", .arg = "N", AT(vocab_size),
     .def = "0", .min = 0, .max = INT32_MAX,
     .help = "verify: ids must be below N; 0: below what the vocabulary has; "
             "and the size of NullTokenizer and of a TikTokenizer"},
    {.kind = GPT_OPT_INT, .name = "eod", .arg = "ID", AT(eod), .def = "-1",
     .min = -1, .max = INT32_MAX,
     .help = "verify: each document must end with this token; convert: one of "
             "an llm.c file does; -1: none"},
    {.kind = GPT_OPT_INT, .name = "max-findings", .arg = "N", AT(max_findings),
     .def = "5", .min = 1, .max = 1e6,
     .help = "verify: of a kind to be listed; more are counted"},
    GPT_COMMON_OPTIONS(struct options, common),
};

/* ---- the modes ---- */

struct mode {
    const char *name;
    int (*run)(const struct gpt_command_options *o, const char *const *sets,
               int n, struct gpt_err *err);
    int min_sets, max_sets;
    const char *options; /* that it takes, besides the common ones */
};

#define VOCABULARY                                                             \
    " tokenizer-type vocab-file merge-file tokenizer-model tiktoken-pattern "  \
    "tiktoken-num-special-tokens tokenizer-special-tokens vocab-size "
static const struct mode modes[] = {
    {"info", gpt_command_info, 1, INT32_MAX, " json "},
    {"stat", gpt_command_stat, 1, INT32_MAX, " json top" VOCABULARY},
    {"cat", gpt_command_cat, 1, INT32_MAX,
     " documents tail jsonl strip-eod sources" VOCABULARY},
    {"verify", gpt_command_verify, 1, INT32_MAX,
     " json eod max-findings" VOCABULARY},
    {"merge", gpt_command_merge, 0, INT32_MAX, " output-prefix input "},
    {"slice", gpt_command_slice, 1, 1, " output-prefix documents "},
    {"head", gpt_command_head, 1, 1, " output-prefix count "},
    {"repair", gpt_command_repair, 1, 1, " output-prefix index-only "},
    {"convert", gpt_command_convert, 1, 1, " output-prefix to eod "},
    {"index", gpt_command_index, 1, 1,
     " data-cache-path tokenizer-like num-samples seq-length seed split "},
};

static int find_mode(const struct mode **mode, const char *name,
                     struct gpt_err *err)
{
    const char *names[GPT_COUNT(modes)], *near;

    for (size_t i = 0; i < GPT_COUNT(modes); i++) {
        names[i] = modes[i].name;
        *mode = &modes[i];
        if (strcmp(name, names[i]) == 0)
            return GPT_OK;
    }
    gpt_fail(err, GPT_EUSAGE, "unknown command '%.100s'", name);
    near = gpt_did_you_mean(name, names, GPT_COUNT(names));
    return near ? gpt_hint(err, "did you mean '%s'?", near)
                : gpt_hint(err, "try 'gpt-dataset --help'");
}

/* No option is taken and then ignored. */
static int check_options(const struct mode *mode, const struct gpt_args *args,
                         struct gpt_err *err)
{
    for (size_t i = 0; strcmp(table[i].name ? table[i].name : "", "config");
         i++) {
        char word[64];

        snprintf(word, sizeof(word), " %s ",
                 table[i].name ? table[i].name : "");
        if (table[i].name && gpt_option_given(args, table[i].name) &&
            !strstr(mode->options, word))
            return gpt_fail(err, GPT_EUSAGE, "%s takes no --%s", mode->name,
                            table[i].name);
    }
    return GPT_OK;
}

/* A set may be named by its index, as patterns of a shell do. */
static int take_names(struct gpt_arena *arena, const char **names, int n,
                      struct gpt_err *err)
{
    for (int i = 0; i < n; i++) {
        size_t len = strlen(names[i]);

        if (len <= 4 || strcmp(names[i] + len - 4, ".idx") != 0)
            continue;
        names[i] = gpt_arena_printf(arena, "%.*s", (int)(len - 4), names[i]);
        if (!names[i])
            return gpt_fail(err, GPT_EFAIL, "out of memory for names");
    }
    return GPT_OK;
}

static int run_mode(const struct mode *mode, const struct options *o,
                    const char **sets, int n, struct gpt_err *err)
{
    struct gpt_command_options d = o->d;
    struct gpt_arena arena = {0};
    struct gpt_err late;

    d.out_flags = o->common.force ? GPT_OUT_FORCE : 0;
    d.progress = o->common.quiet ? "never" : o->common.progress;
    GPT_TRY(gpt_out_open(&d.out, "-", 0, 0, err));
    int status = take_names(&arena, sets, n, err);
    if (status == GPT_OK)
        status = mode->run(&d, sets, n, err);
    int ended = gpt_out_commit(d.out, &late); /* what was printed, too */
    if (status == GPT_OK && ended != GPT_OK) {
        *err = late;
        status = ended;
    }
    gpt_arena_free(&arena);
    return status;
}

static int run(const void *options, const struct gpt_args *args,
               struct gpt_err *err)
{
    const struct mode *mode;
    int n = args->n_positional - 1;

    if (n < 0) {
        gpt_fail(err, GPT_EUSAGE, "what to do is missing");
        return gpt_hint(err, "try 'gpt-dataset --help'");
    }
    GPT_TRY(find_mode(&mode, args->positional[0], err));
    GPT_TRY(check_options(mode, args, err));
    if (n < mode->min_sets || n > mode->max_sets)
        return gpt_fail(err, GPT_EUSAGE, "%s needs %s PREFIX", mode->name,
                        mode->max_sets == 1 ? "one" : "at least one");
    return run_mode(mode, options, args->positional + 1, n, err);
}

static const char *const usage[] = {
    "info PREFIX... [--json]",
    "stat PREFIX... [--top N] [--vocab-file FILE --merge-file FILE] [--json]",
    "cat PREFIX... [--documents A:B] [--tail N] [--jsonl]",
    "verify PREFIX... [--vocab-size N] [--eod ID] [--json]",
    "merge PREFIX... | --input DIR --output-prefix PREFIX",
    "slice PREFIX --documents A:B --output-prefix PREFIX",
    "head PREFIX [-n N] --output-prefix PREFIX",
    "repair PREFIX [--index-only] --output-prefix PREFIX",
    "convert PREFIX [--to FORMAT] --output-prefix PREFIX",
    "index PREFIX --tokenizer-like FILE --num-samples N... [--seq-length N]",
    NULL,
};
static const char *const examples[] = {
    "gpt-dataset info my_text_document",
    "gpt-dataset cat my_text_document --tail 3 --vocab-file my-vocab.json "
    "--merge-file my-merges.txt",
    "gpt-dataset verify my_text_document --vocab-size 50257 --eod 50256",
    "gpt-dataset merge --input parts --output-prefix all",
    NULL,
};

int main(int argc, char **argv)
{
    static const struct gpt_program program = {
        .name = "gpt-dataset",
        .purpose = "Look at, check and rearrange data sets of tokens.",
        .usage = usage,
        .examples = examples,
        .options = table,
        .n_options = GPT_COUNT(table),
        .options_bytes = sizeof(struct options),
        .max_positional = -1,
        .positional = "COMMAND PREFIX...",
        .version = gpt_tokenizer_version,
        .run = run,
    };

    return gpt_main(&program, argc, argv);
}
