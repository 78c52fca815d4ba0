/* The command line. It is read twice: for the form of messages and the files
 * that it names, which come before it; and for the rest. options_sources.c says
 * when. */
#include "base/log.h"
#include "base/num.h"
#include "base/options_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct words { /* what is left of argv */
    const char *const *argv;
    int at, argc;
};

/* The label is the option as the user wrote it, so that the message quotes the
 * command line and not the table. */
static int needs_value(struct gpt_parse *p, const char *label)
{
    return gpt_fail(p->err, GPT_EUSAGE, "%s needs a value", label);
}

/* "-" and negative numbers are values. */
static bool looks_like_option(const char *word)
{
    return word[0] == '-' && word[1] != '\0' &&
           !isdigit((unsigned char)word[1]) && word[1] != '.';
}

/* Configuration files are collected by the first pass and read after it, in
 * their order on the command line: a later file wins over an earlier one. */
static int add_config(struct gpt_parse *p, const char *name)
{
    GPT_TRY(gpt_grow(&p->configs, &p->configs_cap, p->n_configs + 1,
                     sizeof(*p->configs), "configuration files", p->err));
    p->configs[p->n_configs++] = name;
    return GPT_OK;
}

/* In the first pass only these two count; everything else is skipped there, and
 * judged in the second. */
static int take_value(struct gpt_parse *p, const struct gpt_opt *o,
                      const char *text, const char *label)
{
    if (!p->looking)
        return gpt_opt_set(p, o, text, label);
    if (strcmp(o->name, "log-format") == 0)
        p->log_format = text;
    return strcmp(o->name, "config") == 0 ? add_config(p, text) : GPT_OK;
}

/* A flag is neither of them: the first pass has no use for it. */
static int take_flag(struct gpt_parse *p, const struct gpt_opt *o, bool value)
{
    return p->looking ? GPT_OK : gpt_opt_set_flag(p, o, value);
}

/* The value (for lists: the values) of an option, from the words after it. */
static int take_next(struct gpt_parse *p, struct words *w,
                     const struct gpt_opt *o, const char *label)
{
    /* A word that begins with "--" is most likely the next option, after a
     * forgotten value. "-x" is taken as a value by options that want exactly
     * one, because file names may begin so; a list ends at it. */
    if (w->at == w->argc ||
        (looks_like_option(w->argv[w->at]) &&
         (o->kind == GPT_OPT_LIST || w->argv[w->at][1] == '-'))) {
        needs_value(p, label);
        if (w->at < w->argc)
            gpt_hint(p->err, "for a value that begins with '-', write "
                             "%s=VALUE", label);
        return GPT_EUSAGE;
    }
    GPT_TRY(take_value(p, o, w->argv[w->at++], label));
    while (o->kind == GPT_OPT_LIST && w->at < w->argc &&
           !looks_like_option(w->argv[w->at]))
        GPT_TRY(take_value(p, o, w->argv[w->at++], label));
    return GPT_OK;
}

/* --help and its like, which need no row. */
static bool is_builtin(struct gpt_parse *p, const char *name, size_t len,
                       const char *value)
{
    if (len == 4 && memcmp(name, "help", 4) == 0)
        p->answer = GPT_ANSWER_HELP;
    else if (len == 7 && memcmp(name, "version", 7) == 0)
        p->answer = GPT_ANSWER_VERSION;
    else if (len == 8 && memcmp(name, "complete", 8) == 0 && value) {
        p->answer = GPT_ANSWER_COMPLETE;
        p->shell = value;
    }
    return p->answer != GPT_ANSWER_NONE;
}

/* ---- unknown options ---- */

enum {
    MOST_UNKNOWN = 16, /* that one message names */
    LABEL = 140,       /* bytes of what it calls one */
};

struct unknown {
    const char *name; /* len bytes */
    size_t len;
    char label[LABEL];
};

/* "unknown option" of the first becomes "unknown options" of all. */
static void begin_list_of_unknown(struct gpt_err *err, const char *first)
{
    struct gpt_err all = *err;

    snprintf(all.text, sizeof(all.text), "unknown options '%s'", first);
    if (strncmp(err->hint, "try ", 4) != 0)
        gpt_hint(&all, "%s: %s", first, err->hint);
    *err = all;
}

/* Joins what is said of a further option to what is said of those before. Where
 * several have hints, each says of which option it is; a hint that is there
 * already, and one for which there is no room, is left out. */
static void join_unknown(struct gpt_err *all, const struct gpt_err *one,
                         const char *label)
{
    size_t n = strlen(all->text);
    char more[sizeof(one->hint) + 128];

    snprintf(all->text + n, sizeof(all->text) - n, ", '%s'", label);
    if (strncmp(one->hint, "try ", 4) == 0 || strstr(all->hint, one->hint))
        return;
    snprintf(more, sizeof(more), "; %.100s: %s", label, one->hint);
    n = strlen(all->hint);
    if (n + strlen(more) < sizeof(all->hint))
        memcpy(all->hint + n, more, strlen(more) + 1);
}

/* What messages call an option of another program: its name, and its value
 * where that is what is refused. */
static void label_foreign(char label[LABEL], const char *name, size_t len,
                          const struct gpt_foreign_option *f,
                          const char *value)
{
    const int n = (int)(len < 96 ? len : 96);

    if (f && f->only && value)
        snprintf(label, LABEL, "--%.*s %.40s", n, name, value);
    else
        snprintf(label, LABEL, "--%.*s", n, name);
}

/* A real number may be written in several ways. */
static bool is_only(const struct gpt_foreign_option *f, const char *value)
{
    double only, number;

    return strcmp(value, f->only) == 0 ||
           (strchr(f->only, '.') && gpt_parse_real(f->only, &only) &&
            gpt_parse_real(value, &number) && number == only);
}

/* The word among those after a name that is not its one value, of a list up to
 * the next option; NULL: none. `value` is what '=' gives, or NULL. */
static const char *find_refused(const struct gpt_foreign_option *f,
                                const char *value, const struct words *w)
{
    int at = w->at;

    if (value)
        return is_only(f, value) ? NULL : value;
    do {
        if (at == w->argc)
            return NULL;
        if (!is_only(f, w->argv[at]))
            return w->argv[at];
        at++;
    } while (f->list && at < w->argc && !looks_like_option(w->argv[at]));
    return NULL;
}

/* True when a word "--name" or "--name=value" is no option of the program, nor
 * one that it translates or skips; its name and its label are filled in. *w is
 * what follows the word. */
static bool is_unknown_long(const struct gpt_program *program,
                            const char *word, const struct words *w,
                            struct unknown *u)
{
    const char *refused = NULL;
    bool negated;

    if (strncmp(word, "--", 2) != 0)
        return false;
    u->name = word + 2;
    u->len = strcspn(u->name, "=");
    const char *value = u->name[u->len] ? u->name + u->len + 1 : NULL;
    const struct gpt_foreign_option *f =
        gpt_opt_find_foreign(program, u->name, u->len);
    if (f && f->only)
        refused = find_refused(f, value, w);
    label_foreign(u->label, u->name, u->len, f, refused);
    if (f && f->only)
        return refused != NULL;
    return u->len > 0 && !gpt_opt_find(program, u->name, u->len, &negated) &&
           strcmp(u->label, "--help") != 0 &&
           strcmp(u->label, "--version") != 0 &&
           strcmp(u->label, "--complete") != 0 && !(f && (f->means || f->skip));
}

/* The same of a word that begins with one '-', as mpirun's -np: the name of
 * another program, whose first letter is no option here. */
static bool is_unknown_letters(const struct gpt_program *program,
                               const char *word, struct unknown *u)
{
    if (word[0] != '-' || !word[1] || word[1] == '-' ||
        gpt_opt_find_letter(program, word[1]))
        return false;
    u->name = word + 1;
    u->len = strcspn(u->name, "=");
    snprintf(u->label, LABEL, "-%.*s", (int)(u->len < 96 ? u->len : 96),
             u->name);
    return gpt_opt_find_foreign(program, u->name, u->len) != NULL;
}

/* After an unknown option the words are only looked through for others, and
 * none of them is taken: whether the next one is its value is not known. What
 * follows the first word of a launcher's program is not the launcher's. */
static int add_unknown(struct gpt_parse *p, const struct words *w,
                       const char *first)
{
    int found = 1;

    if (p->program->stop_at_positional || !p->err)
        return GPT_EUSAGE;
    struct words rest = *w;
    while (rest.at < rest.argc && strcmp(rest.argv[rest.at], "--") != 0) {
        const char *word = rest.argv[rest.at++];
        struct gpt_err one = {0};
        struct unknown u;

        if ((!is_unknown_long(p->program, word, &rest, &u) &&
             !is_unknown_letters(p->program, word, &u)) ||
            strcmp(u.label, first) == 0 || ++found > MOST_UNKNOWN)
            continue;
        gpt_opt_unknown(p->program, u.label, u.name, u.len, &one);
        if (found == 2)
            begin_list_of_unknown(p->err, first);
        join_unknown(p->err, &one, u.label);
    }
    if (found > MOST_UNKNOWN) {
        const size_t n = strlen(p->err->text);

        snprintf(p->err->text + n, sizeof(p->err->text) - n, " and %d more",
                 found - MOST_UNKNOWN);
    }
    return GPT_EUSAGE;
}

static int take_long(struct gpt_parse *p, struct words *w, const char *word);

/* The name is said with the value, where another one would do. */
static int refuse_foreign(struct gpt_parse *p, const struct words *w,
                          const struct gpt_foreign_option *f,
                          const char *label, const char *value)
{
    char full[LABEL];

    label_foreign(full, label + 2, strlen(label) - 2, f, value);
    gpt_opt_refuse_foreign(f, full, p->err);
    return add_unknown(p, w, full);
}

/* Takes the value of a name that has no effect, and of a list the words up to
 * the next option. */
static int skip_foreign(struct gpt_parse *p, struct words *w,
                        const struct gpt_foreign_option *f, const char *label,
                        const char *value, bool follows)
{
    while (value) {
        if (f->only && !is_only(f, value))
            return refuse_foreign(p, w, f, label, value);
        const bool more = follows && f->list && w->at < w->argc &&
                          !looks_like_option(w->argv[w->at]);
        value = more ? w->argv[w->at++] : NULL;
    }
    return p->looking ? GPT_OK : gpt_opt_keep_foreign(p, f, label);
}

/* An option by another program's name. Its value is the next word even where
 * that begins with '-': the row says that one follows. */
static int take_foreign(struct gpt_parse *p, struct words *w,
                        const struct gpt_foreign_option *f, const char *value,
                        const char *label)
{
    const bool follows = !f->flag && !value;
    const char *words[GPT_FOREIGN_WORDS];
    struct words meant = {words, 0, 0};

    if (!f->means && !f->skip)
        return refuse_foreign(p, w, f, label, value);
    if (follows) {
        if (w->at == w->argc)
            return needs_value(p, label);
        value = w->argv[w->at++];
    }
    if (f->skip)
        return skip_foreign(p, w, f, label, value, follows);
    const char *kept = p->looking ? NULL : gpt_opt_find_kept(p, f);
    if (kept) {
        gpt_warn("%s (a name of %s) has no effect here: %.*s is %s already",
                 label, f->source, (int)strcspn(f->means, "="), f->means, kept);
        return GPT_OK;
    }
    if (f->over && !p->looking)
        GPT_TRY(gpt_opt_keep_foreign(p, f, label));
    GPT_TRY(gpt_opt_expand_foreign(p, f, value, words, GPT_FOREIGN_WORDS,
                                   &meant.argc));
    while (meant.at < meant.argc)
        GPT_TRY(take_long(p, &meant, words[meant.at++]));
    return GPT_OK;
}

/* Both "--name value" and "--name=value", as getopt_long(3) has them, but no
 * abbreviations: a new option would change what an old script means. */
static int take_long(struct gpt_parse *p, struct words *w, const char *word)
{
    const char *name = word + 2, *equals = strchr(name, '=');
    const char *value = equals ? equals + 1 : NULL;
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    bool negated;
    char label[100];

    /* The table comes first, so that a program may have a row with the name of
     * a built-in answer. */
    const struct gpt_opt *o = gpt_opt_find(p->program, name, len, &negated);
    snprintf(label, sizeof(label), "--%.*s", (int)(len < 96 ? len : 96), name);
    if (!o && is_builtin(p, name, len, value))
        return GPT_OK;
    const struct gpt_foreign_option *f =
        o ? NULL : gpt_opt_find_foreign(p->program, name, len);
    if (f)
        return take_foreign(p, w, f, value, label);
    if (!o) {
        gpt_opt_unknown(p->program, label, name, len, p->err);
        return add_unknown(p, w, label);
    }
    if (o->kind == GPT_OPT_LIST && !p->looking)
        gpt_opt_begin_list(p, o);
    if (gpt_opt_takes_value(o))
        return value ? take_value(p, o, value, label)
                     : take_next(p, w, o, label);
    /* "--no-x=false" would be a double negation that is rarely read right. */
    if (value && negated)
        return gpt_fail(p->err, GPT_EUSAGE, "%s takes no value", label);
    if (value)
        return take_value(p, o, value, label);
    return take_flag(p, o, !negated);
}

/* -x, -xVALUE, and flags written together. */
static int take_letters(struct gpt_parse *p, struct words *w, const char *word)
{
    struct unknown u;

    if (is_unknown_letters(p->program, word, &u)) {
        gpt_opt_unknown(p->program, u.label, u.name, u.len, p->err);
        return add_unknown(p, w, u.label);
    }
    for (const char *c = word + 1; *c; c++) {
        char label[3] = {'-', *c, '\0'};
        const struct gpt_opt *o = gpt_opt_find_letter(p->program, *c);

        if (!o && (*c == 'h' || *c == 'V')) {
            p->answer = *c == 'h' ? GPT_ANSWER_HELP : GPT_ANSWER_VERSION;
            return GPT_OK;
        }
        if (!o)
            return gpt_opt_unknown(p->program, label, label, 2, p->err);
        if (gpt_opt_takes_value(o))
            return c[1] ? take_value(p, o, c + 1, label)
                        : take_next(p, w, o, label);
        GPT_TRY(take_flag(p, o, true));
    }
    return GPT_OK;
}

/* A program that says what to write instead of words takes its commands
 * alone. */
static bool is_unknown(const struct gpt_program *p, const char *word)
{
    if (!p->instead || !p->commands)
        return false;
    for (size_t i = 0; p->commands[i]; i++)
        if (strcmp(p->commands[i], word) == 0)
            return false;
    return true;
}

/* The command that a word may be meant to be; or NULL. */
static const char *nearest_command(const struct gpt_program *p,
                                   const char *word)
{
    const char *const *commands = p->commands;
    size_t n = 0;

    while (commands && commands[n])
        n++;
    return n ? gpt_did_you_mean(word, commands, n) : NULL;
}

/* Only the second pass keeps words, or they would be there twice. */
static int take_positional(struct gpt_parse *p, const char *word)
{
    int max = p->program->max_positional;

    if (p->looking)
        return GPT_OK;
    /* as check_name() of options; a launcher hands words on as they are */
    if (!*word && !p->program->stop_at_positional) {
        gpt_fail(p->err, GPT_EUSAGE, "argument %zu is empty",
                 (size_t)p->n_positional + 1);
        return gpt_hint(p->err, "a variable of a script may not be set");
    }
    if ((max >= 0 && p->n_positional >= max) ||
        is_unknown(p->program, word)) {
        const char *near = nearest_command(p->program, word);
        const char *dot = strrchr(word, '.');
        const char *instead = p->program->instead;

        gpt_fail(p->err, GPT_EUSAGE, "unexpected argument '%.200s'", word);
        if (dot && strcmp(dot, ".py") == 0)
            return gpt_hint(p->err, "%s takes the place of a script: leave it "
                            "out, and keep its options%s%s", p->program->name,
                            instead ? "; " : "", instead ? instead : "");
        return near ? gpt_hint(p->err, "did you mean '%s'?", near)
               : instead
                   ? gpt_hint(p->err, "%s", instead)
                   : gpt_hint(p->err, "try '%s --help'", p->program->name);
    }
    p->positional[p->n_positional++] = word;
    return GPT_OK;
}

/* The next word, with those that are its values. */
static int take_word(struct gpt_parse *p, struct words *w, bool *only_words)
{
    const char *word = w->argv[w->at++];

    if (!*only_words && strcmp(word, "--") == 0) {
        *only_words = true;
        return GPT_OK;
    }
    if (!*only_words && strncmp(word, "--", 2) == 0)
        return take_long(p, w, word);
    if (!*only_words && looks_like_option(word))
        return take_letters(p, w, word);
    *only_words |= p->program->stop_at_positional;
    return take_positional(p, word);
}

int gpt_opt_read_command(struct gpt_parse *p, int argc, char *const *argv)
{
    struct words w = {(const char *const *)argv, 1, argc};
    bool only_words = false;

    p->from = GPT_FROM_COMMAND;
    p->current++;
    /* --help ends the reading at once: what follows may be wrong, which is why
     * help is asked for. */
    while (w.at < w.argc && p->answer == GPT_ANSWER_NONE)
        GPT_TRY(take_word(p, &w, &only_words));
    return GPT_OK;
}

int gpt_opt_look(struct gpt_parse *p, int argc, char *const *argv)
{
    struct words w = {(const char *const *)argv, 1, argc};
    struct gpt_err *err = p->err;
    bool only_words = false;
    int first = GPT_OK;

    p->looking = true;
    while (w.at < w.argc && p->answer == GPT_ANSWER_NONE) {
        const int status = take_word(p, &w, &only_words);

        if (first == GPT_OK && status != GPT_OK) {
            first = status;
            p->err = NULL; /* the first mistake is the one to report */
        }
    }
    if (first != GPT_OK)
        p->answer = GPT_ANSWER_NONE;
    p->looking = false;
    p->err = err;
    return first;
}
