/* gpt-preprocess: JSON lines to the token files that training reads. Here are
 * the options. plan.c makes of them what is to be done, preprocess.c does it,
 * and report.c prints progress and summary. Start at run_program(). The names
 * of options are those of Megatron-LM's preprocess_data.py, whose command lines
 * run here with only the program's name replaced. */
#include "base/options.h"
#include "cmd/preprocess/command.h"
#include "cmd/preprocess/foreign.h"
#include "cmd/preprocess/plan.h"
#include "cmd/preprocess/report.h"
#include "tokenizer/tokenizer_options.h"

/* Names of Megatron-LM; cached and lazy are one format on disk. */
static const char *const dataset_impls[] = {"mmap", "cached", "lazy", NULL};
static const char *const dtypes[] = {"auto", "uint16", "int32", NULL};

#define AT(field) .offset = offsetof(struct gpt_preprocess_command, field)
/* GPT_OPT_LOCAL: what has no influence on the data set, and what could only be
 * repeated in the same place and at the same time. The other options are kept,
 * as the set's command. */
static const struct gpt_opt table[] = {
    {.kind = GPT_OPT_GROUP, .help = "Input and output"},
    {.kind = GPT_OPT_LIST, .name = "input", .arg = "FILE", AT(input),
     .flags = GPT_OPT_REQUIRED | GPT_OPT_FILE | GPT_OPT_INPUT,
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
     .help = "format of the index: MMIDIDX for mmap, TNTIDX for cached "
             "and lazy"},
    {.kind = GPT_OPT_CHOICE, .name = "dtype", .arg = "TYPE", AT(dtype),
     .def = "auto", .choices = dtypes,
     .help = "type of tokens: uint16, int32, or auto, by vocabulary and index"},
    {.kind = GPT_OPT_FLAG, .name = "provenance", AT(provenance), .def = "true",
     .help = "write PREFIX_KEY_document.json, which says what went into it"},
    {.kind = GPT_OPT_FLAG, .name = "sources", AT(sources),
     .help = "write PREFIX_KEY_document.sources: for each document, its line"},
    {.kind = GPT_OPT_GROUP, .help = "Tokenizer"},
    GPT_TOKENIZER_FILE_OPTIONS(struct gpt_preprocess_command, tokenizer,
                               "GPT2BPETokenizer", 0),
    GPT_TOKENIZER_TEXT_OPTIONS(struct gpt_preprocess_command, tokenizer),
    {.kind = GPT_OPT_INT, .name = "vocab-size", .arg = "N",
     AT(tokenizer.vocab_size), .def = "0", .min = 0, .max = INT32_MAX,
     .help = "NullTokenizer: ids are below N; TikTokenizer: of the model, 0 = "
             "all of a .tiktoken, 131072 of a .json"},
    {.kind = GPT_OPT_FLAG, .name = "append-eod", AT(append_eod),
     .help = "end each document with the end-of-document token"},
    {.kind = GPT_OPT_CHOICE, .name = "empty", .arg = "WHAT", AT(empty),
     .def = "keep", .choices = gpt_preprocess_empties,
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
     .help = "for scripts of Megatron-LM: documents always stay in order"},
    {.kind = GPT_OPT_FLAG, .name = "resume", AT(resume), .def = "true",
     .flags = GPT_OPT_LOCAL,
     .help = "resume a run that was stopped; --no-resume gives it up"},
    {.kind = GPT_OPT_REAL, .name = "resume-interval", .arg = "SECONDS",
     AT(resume_interval), .def = "10", .min = 0, .max = 1e6,
     .flags = GPT_OPT_LOCAL,
     .help = "how often the point to resume from is saved"},
    {.kind = GPT_OPT_GROUP, .help = "Bad lines"},
    {.kind = GPT_OPT_STRING, .name = "on-error", .arg = "ACTION", AT(on_error),
     .def = "stop",
     .help = "at a bad line: stop, skip it, or quarantine=FILE to skip it and "
             "write it to FILE"},
    {.kind = GPT_OPT_INT, .name = "max-errors", .arg = "N", AT(max_errors),
     .def = "-1", .min = -1, .max = 1e15, .flags = GPT_OPT_LOCAL,
     .help = "fail if more than N lines are skipped, -1 = any number"},
    GPT_COMMON_OPTIONS(struct gpt_preprocess_command, common),
};

/* Reading begins before the vocabulary is loaded: both take time, and neither
 * needs the other. */
static int run_program(const void *options, const struct gpt_args *args,
                       struct gpt_err *err)
{
    struct gpt_preprocess_command settled =
        *(const struct gpt_preprocess_command *)options;
    const struct gpt_preprocess_command *command = &settled;
    struct gpt_preprocess_plan plan;
    int status;

    GPT_TRY(gpt_tokenizer_settle(&settled.tokenizer,
                                 gpt_option_given(args, "tokenizer-type"),
                                 settled.tokenizer.type, err));
    GPT_TRY_GOTO(status, gpt_preprocess_plan_open(&plan, command, err), out);
    GPT_TRY_GOTO(status, gpt_preprocess_begin(&plan.options, err), out);
    GPT_TRY_GOTO(status, gpt_preprocess_plan_tokenizer(&plan, command, args,
                                                       err), out);
    status = gpt_preprocess_and_report(&plan, command, err);
out:
    gpt_preprocess_plan_close(&plan);
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
    const struct gpt_program program = {
        .name = "gpt-preprocess",
        .purpose = "Turn JSON lines into token files for training.",
        .usage = usage,
        .examples = examples,
        .options = table,
        .n_options = GPT_COUNT(table),
        .instead = "name the input with --input",
        .foreign = gpt_preprocess_foreign,
        .n_foreign = gpt_preprocess_n_foreign,
        .options_bytes = sizeof(struct gpt_preprocess_command),
        .version = gpt_tokenizer_version,
        .run = run_program,
    };

    return gpt_main(&program, argc, argv);
}
