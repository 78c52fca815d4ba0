/* The option table: one const table a program. From it come parsing, ranges,
 * --help, --print-config, --config files, completions and did-you-mean.
 *
 * Read gpt_main() first: a program is a table, a struct and a run function. */
#ifndef GPT_BASE_OPTIONS_H
#define GPT_BASE_OPTIONS_H

#include "base/list.h"
#include "base/status.h"

enum gpt_opt_kind {
    GPT_OPT_GROUP,  /* a heading in --help: only .help is used */
    GPT_OPT_FLAG,   /* bool; --name and --no-name (--x when name is no-x) */
    GPT_OPT_INT,    /* int64_t, gpt_parse_int() */
    GPT_OPT_REAL,   /* double */
    GPT_OPT_BYTES,  /* int64_t, gpt_parse_bytes */
    GPT_OPT_STRING, /* const char * */
    GPT_OPT_CHOICE, /* const char *, one of .choices */
    GPT_OPT_LIST,   /* struct gpt_list: one or more words, repeats append */
};

enum {
    GPT_OPT_HIDDEN = 1,   /* not in --help, man or completions */
    GPT_OPT_REQUIRED = 2, /* GPT_EUSAGE when not given */
    GPT_OPT_FILE = 4,     /* completions offer file names */
    GPT_OPT_DIR = 8,
    GPT_OPT_LOCAL = 16, /* concerns this process alone: how it runs and what it
                         * shows; or a name that differs between machines */
    GPT_OPT_SET = 32,   /* completions offer data sets, without .bin and .idx */
    GPT_OPT_INPUT = 64, /* names files that are read: no output of the program
                         * may be one of them (gpt_in_protect()) */
    GPT_OPT_ONCE = 128, /* of a list: given again, it replaces what was given
                         * before instead of adding to it */
};

/* One row. Option names are written with '-'; '_' is accepted for it. */
struct gpt_opt {
    enum gpt_opt_kind kind;
    char letter;      /* short option, 0 = none */
    const char *name; /* long option without "--" */
    const char *arg;  /* what --help calls the value: "N", "FILE"; NULL of a
                       * choice: the choices themselves, "a|b|c" */
    size_t offset;    /* offsetof() in the program's options struct */
    const char *def;  /* default, as it would be typed; NULL = 0 / NULL / off */
    double min, max;  /* of numbers, inclusive; both 0 = any */
    const char *const *choices; /* NULL-terminated; of a string: some of its
                                 * values, for completions */
    unsigned flags;
    const char *help;  /* one line or two; no full stop */
    const char *alias; /* further spellings, space-separated, or NULL */
    const char *one_of; /* rows with the same word say one thing in several
                         * ways: one of them, from the command line, replaces
                         * those of a file or a preset. NULL: alone */
};

/* Threads on the CPU: libgomp keeps a list of them on the stack of the one that
 * starts them. */
enum { GPT_MOST_THREADS = 4096 };

/* Options that every program has; the first member of its options struct. */
struct gpt_common_options {
    bool force, quiet, verbose, print_config;
    const char *config, *log_format, *progress, *color;
    int64_t threads; /* 0 = all cores */
};

/* The rows of struct gpt_common_options, to be put last in a table. */
#define GPT_COMMON_OPTIONS(type, member) /* in options.c's terms */            \
    GPT_COMMON_OPTION_ROWS(offsetof(type, member))
#define GPT_COMMON_AT(base, field)                                             \
    ((base) + offsetof(struct gpt_common_options, field))
#define GPT_COMMON_OPTION_ROWS(base)                                           \
    {.kind = GPT_OPT_GROUP, .help = "Common"},                                 \
    {.kind = GPT_OPT_STRING, .name = "config", .arg = "FILE",                  \
     .offset = GPT_COMMON_AT(base, config),                                    \
     .flags = GPT_OPT_FILE | GPT_OPT_INPUT,                                    \
     .help = "read options from FILE: lines 'name = value'"},                  \
    {.kind = GPT_OPT_FLAG, .name = "print-config",                             \
     .offset = GPT_COMMON_AT(base, print_config),                              \
     .help = "print all options as such a file, and stop"},                    \
    {.kind = GPT_OPT_INT, .name = "threads", .arg = "N", .def = "0",           \
     .offset = GPT_COMMON_AT(base, threads), .min = 0, .max = GPT_MOST_THREADS,\
     .flags = GPT_OPT_LOCAL,                                                   \
     .help = "CPU threads, 0 = all cores"},                                    \
    {.kind = GPT_OPT_FLAG, .letter = 'f', .name = "force",                     \
     .offset = GPT_COMMON_AT(base, force), .flags = GPT_OPT_LOCAL,             \
     .help = "replace output that exists"},                                    \
    {.kind = GPT_OPT_CHOICE, .name = "progress", .arg = "WHEN",                \
     .def = "auto", .choices = gpt_when_choices,                               \
     .offset = GPT_COMMON_AT(base, progress), .flags = GPT_OPT_LOCAL,          \
     .help = "progress line: auto (on a terminal), always, never"},            \
    {.kind = GPT_OPT_CHOICE, .name = "color", .arg = "WHEN", .def = "auto",    \
     .choices = gpt_when_choices, .offset = GPT_COMMON_AT(base, color),        \
     .flags = GPT_OPT_LOCAL,                                                   \
     .help = "colour in messages; NO_COLOR is honoured"},                      \
    {.kind = GPT_OPT_CHOICE, .name = "log-format", .arg = "FORMAT",            \
     .def = "text", .choices = gpt_log_format_choices,                         \
     .offset = GPT_COMMON_AT(base, log_format), .flags = GPT_OPT_LOCAL,        \
     .help = "messages as text, or as lines of json"},                         \
    {.kind = GPT_OPT_FLAG, .letter = 'q', .name = "quiet",                     \
     .offset = GPT_COMMON_AT(base, quiet), .flags = GPT_OPT_LOCAL,             \
     .one_of = "loudness", .help = "errors and warnings only"},                \
    {.kind = GPT_OPT_FLAG, .letter = 'v', .name = "verbose",                   \
     .offset = GPT_COMMON_AT(base, verbose), .flags = GPT_OPT_LOCAL,           \
     .one_of = "loudness", .help = "say more"}

extern const char *const gpt_when_choices[];       /* auto always never */
/* What --color means for text that goes to a descriptor. */
bool gpt_wants_color(const char *when, int fd);
extern const char *const gpt_log_format_choices[]; /* text json */

/* What is left of the command line, and the source of each value. */
struct gpt_args {
    const char **positional;
    int n_positional;
    const struct gpt_program *program;
    const uint8_t *origin; /* per row of the table: enum gpt_origin */
    const uint32_t *source; /* per row: the number of the source that set it;
                             * a later source has a higher number */
};

enum gpt_origin {
    GPT_FROM_DEFAULT,
    GPT_FROM_CONFIG,
    GPT_FROM_ENVIRONMENT,
    GPT_FROM_COMMAND
};

/* An option by the name that another program gives it, so that the command
 * lines of users run as they are, or say what to change. */
struct gpt_foreign_option {
    const char *name;   /* with '-' for '_', without "--"; among hints "moe-*"
                         * is of all names that begin with "moe-" */
    const char *source; /* whose name it is: "accelerate" */
    const char *means;  /* options of this program that it stands for, with '%'
                         * in place of its value; NULL: there are none */
    const char *over;   /* ... in place of these values alone, with blanks
                         * between: another value that the option already has
                         * stays, with a warning; and one of these values
                         * that comes after the name is refused. NULL: in
                         * place of any */
    const char *answer; /* without `means`: what to do instead; of a name that
                         * is skipped, why it has no effect here */
    bool flag;          /* takes no value */
    bool skip;          /* has no effect here: a warning says so */
    const char *only;   /* ... with this value alone; another is refused */
    bool list;          /* ... and several words may follow */
};

struct gpt_arena;
struct gpt_buf;
struct gpt_program {
    const char *name;           /* "gpt-train" */
    const char *purpose;        /* one sentence */
    const char *const *usage;   /* lines after the name, NULL-terminated */
    const char *const *examples; /* whole command lines, NULL-terminated */
    const struct gpt_opt *options; /* the table */
    size_t n_options;
    const struct gpt_foreign_option *foreign; /* may be NULL */
    size_t n_foreign;
    const struct gpt_foreign_option *hints; /* more of them, that are answered
                                             * alone; may be NULL */
    size_t n_hints;
    size_t options_bytes;   /* sizeof() the options struct */
    int max_positional;     /* -1 = any number; 0 = none */
    bool stop_at_positional; /* what follows the first one are words, too:
                              * for programs that start another */
    bool computes; /* with threads of OpenMP, from reading a checkpoint on */
    const char *positional; /* how --help calls them, or NULL */
    const char *instead; /* of words: what to write where none but `commands`
                          * is taken, or NULL */
    /* For completions: what the first word may be, NULL-terminated, or NULL;
     * and GPT_OPT_FILE, _DIR or _SET for other words. */
    const char *const *commands;
    unsigned words;
    bool quiet; /* errors alone are printed: of several processes, another one
                 * says the rest */
    /* Adds lines to --version (devices), or NULL. */
    int (*version)(struct gpt_buf *b);
    /* Changes options where a later source contradicts an earlier one, before
     * --print-config shows them, or NULL. *args may be replaced by a copy; both
     * live in `arena`. What changed goes into `changes`, as one line without
     * its newline. */
    int (*settle)(void *options, struct gpt_args *args,
                  struct gpt_arena *arena, struct gpt_buf *changes,
                  struct gpt_err *err);
    /* Runs the program. Messages go through base/log.h, the product to stdout
     * or files. The status becomes the exit code. */
    int (*run)(const void *options, const struct gpt_args *args,
               struct gpt_err *err);
};

/* Everything of main(): parses argv over --config over defaults, answers
 * --help (-h), --version (-V), --print-config and --complete=bash|zsh|fish
 * itself, starts log and signal handling, calls run, prints the error with its
 * hint, checks that stdout reached its end, and returns the exit status. A
 * missing or wrong option ends with 2 and the nearest name. */
int gpt_main(const struct gpt_program *program, int argc, char **argv);

/* The parser alone, for tests. *options is options_bytes long; strings and
 * lists live in `arena`. GPT_EUSAGE names option, value and range. */
int gpt_options_parse(const struct gpt_program *program, int argc,
                      char *const *argv, void *options, struct gpt_args *args,
                      struct gpt_arena *arena, struct gpt_err *err)
    GPT_MUST_USE;

/* True when the option was named on the command line or in a config file. */
bool gpt_option_given(const struct gpt_args *args, const char *name);

/* The configuration as "name = value" lines into b (for --print-config, and to
 * be kept in checkpoints). */
int gpt_options_print(const struct gpt_program *program, const void *options,
                      const struct gpt_args *args, struct gpt_buf *b);

/* Appends options to b as "name = value" lines that --config reads: to be kept
 * beside what a run made, or compared between ranks. Options that hold nothing
 * have no line. */
enum {
    GPT_LINES_GIVEN = 1,  /* only those of the command line or a file */
    GPT_LINES_SHARED = 2, /* none with GPT_OPT_LOCAL */
};
int gpt_options_lines(const struct gpt_args *args, const void *options,
                      unsigned which, struct gpt_buf *b) GPT_MUST_USE;

/* The candidate nearest to `word` (Damerau-Levenshtein <= 2 or a unique
 * prefix), or NULL. */
const char *gpt_did_you_mean(const char *word, const char *const *candidates,
                             size_t n);
/* GPT_EUSAGE of a word that is none of a program's commands (names, then NULL):
 * the message lists them. The hint is the nearest, or `hint` where none is. */
int gpt_fail_command(const char *word, const char *const *commands,
                     const char *hint, struct gpt_err *err);

#endif
