/* gpt-vocab: trains a GPT-2 vocabulary on a corpus. Here are the options;
 * train_vocab.c does the work. A vocabulary always has the 256 bytes, so that
 * any text can be written with it, and <|endoftext|>: the smallest size is of
 * these. */
#include "base/options.h"
#include "cmd/vocab/foreign.h"
#include "cmd/vocab/train_vocab.h"

/* What "auto" looks at is in text_blocks.h. */
static const char *const input_formats[] = {"auto", "jsonl", "text", NULL};

#define AT(field) .offset = offsetof(struct gpt_vocab_command, field)
static const struct gpt_opt table[] = {
    {.kind = GPT_OPT_GROUP, .help = "Input and output"},
    {.kind = GPT_OPT_LIST, .name = "input", .arg = "FILE", AT(input),
     .flags = GPT_OPT_REQUIRED | GPT_OPT_FILE | GPT_OPT_INPUT,
     .help = "JSON lines or text, also .xz, .gz, .zst: files, directories, "
             "patterns; '-' is standard input"},
    {.kind = GPT_OPT_CHOICE, .name = "input-format", .arg = "FORMAT",
     AT(input_format), .def = "auto", .choices = input_formats,
     .help = "of the input: jsonl, text, or auto, by name and first "
             "character"},
    {.kind = GPT_OPT_LIST, .name = "json-keys", .arg = "KEY", AT(json_keys),
     .def = "text", .help = "fields of JSON lines that hold the text"},
    {.kind = GPT_OPT_STRING, .name = "output-prefix", .arg = "PREFIX",
     AT(output_prefix), .flags = GPT_OPT_REQUIRED | GPT_OPT_FILE,
     .help = "write PREFIX-vocab.json and PREFIX-merges.txt"},
    {.kind = GPT_OPT_GROUP, .help = "Vocabulary"},
    {.kind = GPT_OPT_INT, .name = "vocab-size", .arg = "N", AT(vocab_size),
     .def = "50257", .min = GPT_TRAINED_MIN, .max = GPT_TRAINED_MAX,
     .help = "tokens, with the 256 bytes and <|endoftext|>"},
    {.kind = GPT_OPT_INT, .name = "min-frequency", .arg = "N",
     AT(min_frequency), .def = "2", .min = 0, .max = 1e15,
     .help = "merge no pair that is seen less often"},
    GPT_COMMON_OPTIONS(struct gpt_vocab_command, common),
};

static int run_program(const void *options, const struct gpt_args *args,
                       struct gpt_err *err)
{
    (void)args;
    return gpt_train_vocab(options, err);
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
    const struct gpt_program program = {
        .name = "gpt-vocab",
        .purpose = "Train a GPT-2 vocabulary on a corpus.",
        .usage = usage,
        .examples = examples,
        .options = table,
        .n_options = GPT_COUNT(table),
        .instead = "name the input with --input",
        .foreign = gpt_vocab_foreign,
        .n_foreign = gpt_vocab_n_foreign,
        .options_bytes = sizeof(struct gpt_vocab_command),
        .run = run_program,
    };

    return gpt_main(&program, argc, argv);
}
