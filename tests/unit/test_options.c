/* base/options.h: the meaning of a command line, a configuration file and an
 * environment, and the messages of refusals. */
#include "base/io.h"
#include "base/memory.h"
#include "base/options.h"
#include "tests/lib/files.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"

#include <unistd.h>

struct options {
    struct gpt_common_options common;
    const char *input, *kind;
    int64_t layers, size;
    double rate;
    bool bias, no_query;
    struct gpt_list data;
};

static const char *const kinds[] = {"linear", "cosine", NULL};

static const struct gpt_opt table[] = {
    {.kind = GPT_OPT_GROUP, .help = "Main"},
    {.kind = GPT_OPT_STRING, .letter = 'i', .name = "input", .arg = "FILE",
     .offset = offsetof(struct options, input), .flags = GPT_OPT_FILE,
     .help = "text to read"},
    {.kind = GPT_OPT_CHOICE, .name = "kind", .def = "linear",
     .choices = kinds, .offset = offsetof(struct options, kind),
     .help = "shape of it all"},
    {.kind = GPT_OPT_INT, .letter = 'n', .name = "num-layers", .arg = "N",
     .def = "12", .min = 1, .max = 100, .alias = "n_layer layers",
     .offset = offsetof(struct options, layers), .help = "layers"},
    {.kind = GPT_OPT_BYTES, .name = "size", .arg = "SIZE", .def = "5GB",
     .min = 1, .max = 1e18, .offset = offsetof(struct options, size),
     .help = "bytes"},
    {.kind = GPT_OPT_REAL, .name = "rate", .arg = "R", .def = "1e-4",
     .min = 0, .max = 1, .offset = offsetof(struct options, rate),
     .help = "a rate"},
    {.kind = GPT_OPT_FLAG, .letter = 'b', .name = "bias", .def = "true",
     .offset = offsetof(struct options, bias), .help = "with bias"},
    {.kind = GPT_OPT_FLAG, .name = "no-query",
     .offset = offsetof(struct options, no_query), .help = "without query"},
    {.kind = GPT_OPT_LIST, .name = "data-path", .arg = "PATH",
     .offset = offsetof(struct options, data), .flags = GPT_OPT_LOCAL,
     .help = "data sets"},
    GPT_COMMON_OPTIONS(struct options, common),
};

static int run(const void *options, const struct gpt_args *args,
               struct gpt_err *err)
{
    (void)options;
    (void)args;
    (void)err;
    return GPT_OK;
}

static const struct gpt_program program = {
    .name = "gpt-test", .purpose = "Tests.", .options = table,
    .n_options = GPT_COUNT(table), .options_bytes = sizeof(struct options),
    .max_positional = 2, .run = run};

static struct gpt_arena arena;
static struct gpt_err err;
static struct gpt_args args;

/* Splits at '|': "--input|a b" is two words. */
static int parse(const char *line, struct options *o)
{
    char *copy = gpt_arena_strdup(&arena, line);
    char *argv[32] = {copy};
    int argc = 1;

    for (char *c = copy; *line && c && argc < 31;) {
        argv[argc++] = c;
        c = strchr(c, '|');
        if (c)
            *c++ = '\0';
    }
    err = (struct gpt_err){0};
    return gpt_options_parse(&program, argc, argv, o, &args, &arena, &err);
}

static void test_defaults(void)
{
    struct options o;

    is_int(parse("", &o), GPT_OK, "an empty command line");
    is_int(o.layers, 12, "default of an integer");
    is_int(o.size, 5000000000, "of a size");
    is_near(o.rate, 1e-4, 0, 0, "of a real");
    is_str(o.kind, "linear", "of a choice");
    ok(o.bias && !o.no_query, "of flags");
    ok(!o.input && o.data.n == 0, "of the rest");
    ok(!gpt_option_given(&args, "num-layers"), "nothing was given");
}

static void test_accepts(void)
{
    struct options o;

    is_int(parse("--num-layers=3|--rate|0.5|-i|f|--kind|cosine", &o), GPT_OK,
           "both forms of values");
    ok(o.layers == 3 && o.rate > 0.49, "are taken");
    is_str(o.input, "f", "a letter");
    is_str(o.kind, "cosine", "a choice");
    ok(gpt_option_given(&args, "num_layers"), "given, by any spelling");
    is_int(parse("--kind|Cosine", &o), GPT_OK, "in capitals");
    is_str(o.kind, "cosine", "the same choice");
    is_int(parse("--num_layers|4|--n-layer=5", &o), GPT_OK,
           "underscores and aliases");
    is_int(o.layers, 5, "the last one wins");
    is_int(parse("-n7|-bi|x", &o), GPT_OK, "letters together");
    ok(o.layers == 7 && o.bias, "are all taken");
    is_str(o.input, "x", "with the value of the last");
    is_int(parse("--no-bias|--query", &o), GPT_OK, "negated flags");
    ok(!o.bias && !o.no_query, "are off");
    is_int(parse("--no-query|--bias=false", &o), GPT_OK, "flags");
    ok(!o.bias && o.no_query, "by name and value");
    is_int(parse("--data-path|0.3|a|-1.5|b|--rate|1|--data-path=c", &o),
           GPT_OK, "lists");
    is_int(o.data.n, 5, "collect words, negative numbers too");
    is_str(o.data.items[2], "-1.5", "in order");
    is_str(o.data.items[4], "c", "and over repeats");
    is_int(parse("a|--|--input", &o), GPT_OK, "words");
    is_int(args.n_positional, 2, "two of them");
    is_str(args.positional[1], "--input", "after -- anything goes");
    is_int(parse("--input=--odd", &o), GPT_OK, "a value with dashes");
    is_str(o.input, "--odd", "after an equals sign");
    is_int(parse("--input=", &o), GPT_EUSAGE, "an empty name");
    is_str(err.text, "--input: the name is empty", "is refused");
    is_int(parse("a||b", &o), GPT_EUSAGE, "an empty word");
    is_str(err.text, "argument 2 is empty", "too");
    is_int(parse("-i|-", &o), GPT_OK, "a dash");
    is_str(o.input, "-", "is a value");
    is_int(parse("--num-layers|2K", &o), GPT_EUSAGE, "2K is 2000, too large");
}

static void test_refuses(void)
{
    static const struct {
        const char *line, *says, *hint;
    } rows[] = {
        {"--num-layer|3", "unknown option '--num-layer'", "--num-layers?"},
        {"--nmu-layers|3", "unknown option '--nmu-layers'", "--num-layers?"},
        {"--dat|3", "unknown option '--dat'", "--data-path?"},
        {"--nmu-layers|3|--frobnicate|--dat=3",
         "unknown options '--nmu-layers', '--frobnicate', '--dat'",
         "--nmu-layers: did you mean --num-layers?; --dat: did you mean "
         "--data-path?"},
        {"--frobnicate|--num-layers|x|--|--other",
         "unknown option '--frobnicate'", "gpt-test --help"},
        {"--frobnicate", "unknown option '--frobnicate'", "gpt-test --help"},
        {"-x", "unknown option '-x'", "--help"},
        {"--num-layers", "--num-layers needs a value", ""},
        {"--input|--bias", "--input needs a value", "--input=VALUE"},
        {"--data-path|--bias", "--data-path needs a value", "=VALUE"},
        {"--num-layers|x", "--num-layers: 'x' is not an integer", ""},
        {"--num-layers|0", "--num-layers: 0 is out of range (1 to 100)", ""},
        {"--n-layer|101", "--n-layer: 101 is out of range (1 to 100)", ""},
        {"--num-layers|1e30", "--num-layers: 1e30 is out of range (1 to 100)",
         ""},
        {"--num-layers|99999999999999999999",
         "--num-layers: 99999999999999999999 is out of range", ""},
        {"--rate|1.01", "--rate: 1.01 is out of range (0 to 1)", ""},
        {"--rate|nan", "--rate: 'nan' is not a number", ""},
        {"--size|0", "--size: 0 is out of range (at least 1)", ""},
        {"--size|5Gb", "--size: '5Gb' is not a size", ""},
        {"--kind|cosin", "'cosin' is not one of linear, cosine", "cosine?"},
        {"--bias=1", "--bias: '1' is neither true nor false", ""},
        {"--no-bias=true", "--no-bias takes no value", ""},
        {"--no-rate", "unknown option '--no-rate'", ""},
        {"a|b|c", "unexpected argument 'c'", "--help"},
        {"--config|/no/such", "cannot open '/no/such'", ""},
        {"--config|no-such", "cannot open 'no-such'", "presets: tiny"},
    };
    struct options o;

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        int want = strstr(rows[i].says, "cannot") ? GPT_EIO : GPT_EUSAGE;

        is_int(parse(rows[i].line, &o), want, "refuses %s", rows[i].line);
        if (!ok(strstr(err.text, rows[i].says) &&
                    strstr(err.hint, rows[i].hint),
                "saying %s", rows[i].says))
            printf("# got '%s' / '%s'\n", err.text, err.hint);
    }
    char longer[400] = "--";
    memset(longer + 2, 'x', 300);
    is_int(parse(longer, &o), GPT_EUSAGE, "a very long name");
}

static void test_config(void)
{
    struct options o;

    put_text("c", "# comment\n\n num_layers = 3 # three\r\nbias=false\n"
                  "input = \"a #\\\"b\\\\\\n\"  # quoted\n"
                  "data-path = x \"y z\" # w\nkind = cosine");
    is_int(parse("--config|c", &o), GPT_OK, "a configuration file");
    is_int(o.layers, 3, "its integer");
    ok(!o.bias, "its flag");
    is_str(o.input, "a #\"b\\\n", "its string");
    is_int(o.data.n, 2, "its list");
    is_str(o.data.items[1], "y z", "with a quoted word");
    is_str(o.kind, "cosine", "its last line");
    is_int(parse("-n|4|--config|c|--data-path|z", &o), GPT_OK,
           "the command line wins");
    ok(o.layers == 4 && o.data.n == 1, "wherever --config stands");
    put_text("m", "\xEF\xBB\xBFnum-layers = 7\nbias = Off\nno-query = YES\n");
    is_int(parse("--config|m", &o), GPT_OK, "a file with a mark of UTF-8");
    ok(o.layers == 7 && !o.bias && o.no_query, "and other words of a flag");
    is_int(parse("--bias=on|--no-query=False", &o), GPT_OK, "the same words");
    ok(o.bias && !o.no_query, "on the command line");
    put_text("d", "num-layers = 9\nno-query = true\n");
    is_int(parse("--config|c|--config|d", &o), GPT_OK, "two files");
    ok(o.layers == 9 && o.no_query && !o.bias, "the later one wins");
    is_int(parse("--config|d|--config|c", &o), GPT_OK, "the other way round");
    is_int(o.layers, 3, "the later one wins");

    setenv("GPT_CONFIG", "d", 1);
    is_int(parse("", &o), GPT_OK, "GPT_CONFIG");
    is_int(o.layers, 9, "is read");
    is_int(parse("--config=c", &o), GPT_OK, "GPT_CONFIG and --config");
    is_int(o.layers, 3, "--config wins");
    unsetenv("GPT_CONFIG");
    setenv("GPT_THREADS", "3", 1);
    is_int(parse("", &o), GPT_OK, "GPT_THREADS");
    is_int(o.common.threads, 3, "is read");
    is_int(parse("--threads|2", &o), GPT_OK, "GPT_THREADS and --threads");
    is_int(o.common.threads, 2, "--threads wins");
    setenv("GPT_THREADS", "x", 1);
    is_int(parse("", &o), GPT_EUSAGE, "a bad GPT_THREADS");
    ok(strstr(err.text, "GPT_THREADS: 'x'") != NULL, "is named");
    unsetenv("GPT_THREADS");
    is_int(parse("--config|tiny", &o), GPT_OK, "a preset");
    is_int(o.layers, 2, "is read");
    put_text("tiny", "num-layers = 5\n");
    is_int(parse("--config|tiny", &o), GPT_OK, "a file of that name");
    is_int(o.layers, 5, "goes first");
    unlink("tiny");
}

static void test_bad_config(void)
{
    static const struct {
        const char *text, *says, *hint;
    } rows[] = {
        {"\nnum-layer = 3\n", "bad:2: unknown option 'num-layer'",
         "did you mean num-layers?"},
        {"num-layers = 0", "bad:1: num-layers: 0 is out of range", ""},
        {"num-layers", "bad:1: not 'name = value'", ""},
        {"num-layers =", "bad:1: no value", ""},
        {"num-layers = # 3", "bad:1: no value", ""},
        {"data-path = ", "bad:1: no value", ""},
        {"input = \"x", "bad:1: a quote does not end", ""},
        {"input = \"x\\\"", "bad:1: a quote does not end", ""},
        {"input = \"x\" y", "bad:1: something follows the value", ""},
        {"data-path = \"x\"y", "bad:1: something follows a quoted", ""},
        {"bias = maybe", "bad:1: bias: 'maybe' is neither true nor false", ""},
        {"config = x", "is not allowed", ""},
        {"print-config = true", "is not allowed", ""},
    };
    struct options o;

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        put_text("bad", rows[i].text);
        is_int(parse("--config|bad", &o), GPT_EUSAGE, "refuses row %zu", i);
        if (!ok(strstr(err.text, rows[i].says) &&
                    strstr(err.hint, rows[i].hint),
                "saying %s", rows[i].says))
            printf("# got '%s' / '%s'\n", err.text, err.hint);
    }
    FILE *f = fopen("bad", "w");
    if (f) {
        fwrite("input = a\0b\n", 1, 12, f);
        fclose(f);
    }
    is_int(parse("--config|bad", &o), GPT_EUSAGE, "a NUL byte");
    if (truncate("bad", (1 << 20) + 1) != 0)
        ok(false, "truncate");
    is_int(parse("--config|bad", &o), GPT_EDATA, "more than 1 MiB");
}

static void test_round_trip(void)
{
    struct options o, p;
    struct gpt_buf first = {0}, second = {0};

    is_int(parse("-n|7|--rate|0.30000000000000004|--input|a \"#\\|"
                 "--data-path|x y|#z|--no-bias|--size|1KiB|--threads|2",
                 &o),
           GPT_OK, "a configuration");
    is_int(gpt_options_print(&program, &o, &args, &first), GPT_OK, "printed");
    ok(strstr(first.data, "num-layers = 7  # command line\n") &&
           strstr(first.data, "kind = linear  # default\n"),
       "says who set what");
    put_text("printed", first.data);
    is_int(parse("--config|printed", &p), GPT_OK, "read back");
    ok(p.layers == 7 && p.size == 1024 && !p.bias && p.common.threads == 2,
       "has the same numbers");
    ok(memcmp(&p.rate, &o.rate, sizeof(p.rate)) == 0, "to the last bit");
    is_str(p.input, o.input, "and strings");
    ok(p.data.n == 2, "and lists");
    is_int(gpt_options_print(&program, &p, &args, &second), GPT_OK, "printed");
    ok(strstr(second.data, "num-layers = 7  # config\n") != NULL,
       "names the configuration");
    gpt_buf_free(&first);
    gpt_buf_free(&second);
}

static void test_lines(void)
{
    struct options o, p;
    struct gpt_buf given = {0}, shared = {0}, both = {0};

    put_text("kept.conf", "rate = 0.5\n");
    is_int(parse("--config|kept.conf|--input|a  # b|-n|7|--data-path|x y|-q",
                 &o),
           GPT_OK, "options from two places");
    is_int(gpt_options_lines(&args, &o, GPT_LINES_GIVEN, &given), GPT_OK,
           "lines of what was given");
    is_str(given.data,
           "input = \"a  # b\"\nnum-layers = 7\nrate = 0.5\n"
           "data-path = \"x y\"\nquiet = true\n",
           "whole, though a value looks like an origin");
    is_int(gpt_options_lines(&args, &o, GPT_LINES_SHARED, &shared), GPT_OK,
           "lines of what is not local");
    is_str(shared.data,
           "input = \"a  # b\"\nkind = linear\nnum-layers = 7\n"
           "size = 5000000000\nrate = 0.5\nbias = true\nno-query = false\n",
           "with defaults");
    is_int(gpt_options_lines(&args, &o, GPT_LINES_GIVEN | GPT_LINES_SHARED,
                             &both),
           GPT_OK, "lines of both");
    is_str(both.data, "input = \"a  # b\"\nnum-layers = 7\nrate = 0.5\n",
           "fulfil both");
    put_text("kept.conf", given.data);
    is_int(parse("--config|kept.conf", &p), GPT_OK, "read back");
    is_str(p.input, o.input, "as they were");
    gpt_buf_free(&given);
    gpt_buf_free(&shared);
    gpt_buf_free(&both);
}

static void test_near(void)
{
    static const char *const words[] = {"seed", "save", "save-interval",
                                        "split"};
    static const struct {
        const char *word, *want;
    } rows[] = {
        {"sede", "seed"},      {"sed", "seed"},   {"save-i", "save-interval"},
        {"save_intervall", "save-interval"}, {"s", NULL},    {"sp", "split"},
        {"", NULL},            {"zzzzzz", NULL},  {"save-intervl",
                                                   "save-interval"},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        const char *got = gpt_did_you_mean(rows[i].word, words, 4);

        ok(got == rows[i].want || (got && rows[i].want &&
                                   strcmp(got, rows[i].want) == 0),
           "near '%s': %s", rows[i].word, got ? got : "nothing");
    }
}

int main(void)
{
    char dir[] = "/tmp/gpt-options-XXXXXX";

    unsetenv("GPT_CONFIG");
    unsetenv("GPT_THREADS");
    make_tree(dir);
    if (chdir(dir) != 0 || gpt_path_mkdirs("share/presets", &err) != GPT_OK)
        return 1;
    setenv("GPT_DATADIR", "share", 1);
    put_text("share/presets/tiny.conf", "num-layers = 2\n");
    test_defaults();
    test_accepts();
    test_refuses();
    test_config();
    test_bad_config();
    test_round_trip();
    test_lines();
    test_near();
    gpt_arena_free(&arena);
    remove_tree(dir);
    ok(access(dir, F_OK) != 0, "scratch directory removed");
    return tap_done();
}
