/* What the options_*.c files share. Inside base/ only. */
#ifndef GPT_BASE_OPTIONS_INTERNAL_H
#define GPT_BASE_OPTIONS_INTERNAL_H

#include "base/memory.h"
#include "base/options.h"

/* What the command line asks for instead of a run. */
enum gpt_answer {
    GPT_ANSWER_NONE,
    GPT_ANSWER_HELP,
    GPT_ANSWER_VERSION,
    GPT_ANSWER_COMPLETE,
};

/* The state of parsing: where values go, and which source set them. */
struct gpt_parse {
    const struct gpt_program *program;
    void *options;
    const void *defaults; /* a copy of options before any source was read */
    struct gpt_arena *arena;
    struct gpt_err *err;
    uint8_t *origin;  /* per row: enum gpt_origin */
    uint32_t *source; /* per row: the last source that set it; a list begins
                       * anew when the source changes */
    uint32_t current; /* source being read: 0 defaults, then counting up */
    enum gpt_origin from;
    const char **positional;
    int n_positional;
    const char **configs; /* every --config of the command line */
    size_t n_configs, configs_cap;
    bool looking; /* first pass over the command line: for `configs` and */
    const char *log_format; /* this, NULL when it is not there */
    enum gpt_answer answer;
    const char *shell; /* of --complete */
    struct gpt_kept_name *kept; /* names of other programs, to be looked at
                                 * when all options are known */
    size_t n_kept, kept_cap;
};

/* A name of another program as it was given. */
struct gpt_kept_name {
    const char *label; /* "--name" */
    const struct gpt_foreign_option *f;
};

/* ---- options_value.c: one value into one field ---- */

bool gpt_opt_takes_value(const struct gpt_opt *o);
/* Sets row `o` to `text`; errors name `label` ("--lr" or "lr"). */
int gpt_opt_set(struct gpt_parse *p, const struct gpt_opt *o, const char *text,
                const char *label);
int gpt_opt_set_flag(struct gpt_parse *p, const struct gpt_opt *o, bool value);
/* Before the words of an option that is a list. */
void gpt_opt_begin_list(struct gpt_parse *p, const struct gpt_opt *o);
int gpt_opt_set_defaults(struct gpt_parse *p);
void *gpt_opt_field(void *options, const struct gpt_opt *o);

/* ---- options_find.c: rows by name, and near misses ---- */

/* The row called `name` (len bytes; '_' is '-'; aliases count), or NULL. With
 * `negated`, also rows whose negation is called so; *negated tells. */
const struct gpt_opt *gpt_opt_find(const struct gpt_program *program,
                                   const char *name, size_t len,
                                   bool *negated);
const struct gpt_opt *gpt_opt_find_letter(const struct gpt_program *program,
                                          char letter);
/* A usage error for an unknown name, with the nearest one as its hint. */
int gpt_opt_unknown(const struct gpt_program *program, const char *label,
                    const char *name, size_t len, struct gpt_err *err);

/* True when `name` (len bytes, '_' is '-') is `row_name`, in either case. */
bool gpt_opt_same_name(const char *row_name, const char *name, size_t len);

/* ---- options_foreign.c: names of other programs ---- */

enum { GPT_FOREIGN_WORDS = 8 }; /* of one row's `means`, at most */

/* The row called `name` (len bytes), or NULL. */
const struct gpt_foreign_option *
gpt_opt_find_foreign(const struct gpt_program *program, const char *name,
                     size_t len);
/* The words that f stands for, with `value` (NULL: none) in its place; they
 * live in p->arena. */
int gpt_opt_expand_foreign(struct gpt_parse *p,
                           const struct gpt_foreign_option *f,
                           const char *value, const char **words, int cap,
                           int *n);
/* The value of the option that f stands for, where f leaves it as it is; else
 * NULL. */
const char *gpt_opt_find_kept(const struct gpt_parse *p,
                              const struct gpt_foreign_option *f);
/* Keeps a name for gpt_opt_judge_kept(). */
int gpt_opt_keep_foreign(struct gpt_parse *p,
                         const struct gpt_foreign_option *f,
                         const char *label);
/* When all sources are read. Of names without effect it warns: of each by
 * itself with its reason, or, when there are more than a few, in one line for
 * each program that they come from. GPT_EUSAGE where an option has a value that
 * a name (`over`) took away. */
int gpt_opt_judge_kept(const struct gpt_parse *p);
/* A usage error that says what to write instead. */
int gpt_opt_refuse_foreign(const struct gpt_foreign_option *f,
                           const char *label, struct gpt_err *err);

/* ---- options.c ---- */

/* True when row number `row` was set on the command line or in a file. */
bool gpt_opt_is_given(const struct gpt_args *args, size_t row);

/* ---- options_command.c, options_config.c, options_sources.c: sources ---- */

/* Looks for --config and --log-format alone, to the end whatever is wrong; then
 * the first mistake is the error. */
int gpt_opt_look(struct gpt_parse *p, int argc, char *const *argv);
int gpt_opt_read_command(struct gpt_parse *p, int argc, char *const *argv);
/* `reader` is what names the file: an option, or a variable. */
int gpt_opt_read_config(struct gpt_parse *p, const char *name,
                        const char *reader);
/* All sources in their order; then required options are looked for. */
int gpt_opt_read_all(struct gpt_parse *p, int argc, char *const *argv);

/* ---- options_preset.c: configuration files that are known by name ---- */

enum { GPT_CONFIG_LIMIT = 1 << 20 }; /* bytes of a configuration file */

/* The file that a name means, into path[GPT_PATH_BYTES]: a preset, or the name
 * itself. */
void gpt_opt_find_preset(const char *name, char *path);
/* A hint that lists all presets. */
void gpt_opt_hint_presets(const struct gpt_program *program,
                          struct gpt_err *err);
/* Writes the names of the presets that this program can read, a line each. */
int gpt_opt_list_presets(const struct gpt_program *program, struct gpt_buf *b);

/* ---- options_help.c, options_complete.c: answers, into b ---- */

int gpt_opt_help(const struct gpt_program *program, struct gpt_buf *b);
int gpt_opt_version(const struct gpt_program *program, struct gpt_buf *b);
/* GPT_EUSAGE for an unknown shell. */
int gpt_opt_complete(const struct gpt_program *program, const char *shell,
                     struct gpt_buf *b, struct gpt_err *err);

/* options_complete_*.c: the script of one shell. */
int gpt_opt_complete_bash(const struct gpt_program *program, struct gpt_buf *b);
int gpt_opt_complete_zsh(const struct gpt_program *program, struct gpt_buf *b);
int gpt_opt_complete_fish(const struct gpt_program *program, struct gpt_buf *b);

/* What a shell offers for a value, or for a word that is no option. */
enum gpt_offer {
    GPT_OFFER_NOTHING,
    GPT_OFFER_CHOICES, /* of the row */
    GPT_OFFER_CONFIG,  /* presets, and files */
    GPT_OFFER_SETS,
    GPT_OFFER_DIRS,
    GPT_OFFER_FILES,
};
enum gpt_offer gpt_opt_offer(const struct gpt_opt *o);
enum gpt_offer gpt_opt_offer_words(const struct gpt_program *program);

/* Calls add for every row that users see, the builtin ones last. */
typedef int gpt_opt_add_row_fn(struct gpt_buf *b,
                               const struct gpt_program *program,
                               const struct gpt_opt *o);
int gpt_opt_each_row(const struct gpt_program *program, struct gpt_buf *b,
                     gpt_opt_add_row_fn *add);
/* Writes words with blanks between them. */
int gpt_opt_add_words(struct gpt_buf *b, const char *const *words);
/* Writes a text (NULL: none) as one line, less the characters of `left_out`. */
int gpt_opt_add_text(struct gpt_buf *b, const char *text, const char *left_out);
/* The name that turns a flag the other way, into buf; "" where there is none:
 * of values, and of the answers that every program has. */
const char *gpt_opt_negation(const struct gpt_opt *o, char *buf, size_t cap);
/* Writes `text` with every FN replaced by a name for a function, "_gpt_train"
 * for gpt-train, and every PROG by the program's name. */
int gpt_opt_add_script(struct gpt_buf *b, const struct gpt_program *program,
                       const char *text);

/* Writes names, which end with NULL, into buf as "a, b, c"; returns how many
 * they are. What does not fit is cut off. */
size_t gpt_opt_list_names(char *buf, size_t cap, const char *const *names);

/* What --help and completions call the value of a row; text into buf. */
const char *gpt_opt_arg(const struct gpt_opt *o, char *buf, size_t cap);

/* Rows of every program that need no field: --help and --version. */
extern const struct gpt_opt gpt_builtin_options[2];

#endif
