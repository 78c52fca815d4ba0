/* Finding a row by name, and the nearest name when there is none; the same of
 * commands. */
#include "base/options_internal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NAME_BYTES = 80 }; /* no table has longer names */

const struct gpt_opt gpt_builtin_options[2] = {
    {.kind = GPT_OPT_FLAG, .letter = 'h', .name = "help",
     .help = "show this text"},
    {.kind = GPT_OPT_FLAG, .letter = 'V', .name = "version",
     .help = "show version, features and processor"},
};

/* False when it does not fit. One spelling for comparisons: names in the table
 * have hyphens, Megatron-LM writes both. */
static bool normalise(char out[NAME_BYTES], const char *name, size_t len)
{
    if (len >= NAME_BYTES)
        return false;
    for (size_t i = 0; i < len; i++)
        out[i] = name[i] == '_' ? '-' : name[i];
    out[len] = '\0';
    return true;
}

/* True when `name` (normalised) is one of the space-separated spellings.
 * Aliases are normalised as well, because the table lists them as other
 * programs spell them. */
static bool is_alias(const char *aliases, const char *name)
{
    char one[NAME_BYTES];

    while (aliases && *aliases) {
        size_t len = strcspn(aliases, " ");

        if (normalise(one, aliases, len) && strcmp(one, name) == 0)
            return true;
        aliases += len;
        aliases += strspn(aliases, " ");
    }
    return false;
}

/* A group is a heading of --help and has no name. */
static bool is_called(const struct gpt_opt *o, const char *name)
{
    return o->kind != GPT_OPT_GROUP &&
           (strcmp(o->name, name) == 0 || is_alias(o->alias, name));
}

bool gpt_opt_same_name(const char *row_name, const char *name, size_t len)
{
    char exact[NAME_BYTES];

    return normalise(exact, name, len) && strcasecmp(exact, row_name) == 0;
}

static const struct gpt_opt *find(const struct gpt_program *program,
                                  const char *name)
{
    for (size_t i = 0; i < program->n_options; i++)
        if (is_called(&program->options[i], name))
            return &program->options[i];
    return NULL;
}

const struct gpt_opt *gpt_opt_find(const struct gpt_program *program,
                                   const char *name, size_t len,
                                   bool *negated)
{
    char exact[NAME_BYTES], other[NAME_BYTES + 3];

    if (!normalise(exact, name, len))
        return NULL;
    const struct gpt_opt *o = find(program, exact);
    if (!negated || o) {
        if (negated)
            *negated = false;
        return o;
    }
    /* A negation is looked for last: a row whose own name begins with "no-"
     * is found above as what it is. "--x" for a row "no-x" means that it is
     * off. */
    *negated = true;
    if (strncmp(exact, "no-", 3) == 0)
        o = find(program, exact + 3);
    if (!o) {
        snprintf(other, sizeof(other), "no-%s", exact);
        o = find(program, other);
    }
    return o && o->kind == GPT_OPT_FLAG ? o : NULL;
}

const struct gpt_opt *gpt_opt_find_letter(const struct gpt_program *program,
                                          char letter)
{
    for (size_t i = 0; letter && i < program->n_options; i++)
        if (program->options[i].kind != GPT_OPT_GROUP &&
            program->options[i].letter == letter)
            return &program->options[i];
    return NULL;
}

int gpt_opt_unknown(const struct gpt_program *program, const char *label,
                    const char *name, size_t len, struct gpt_err *err)
{
    const struct gpt_foreign_option *f =
        gpt_opt_find_foreign(program, name, len);
    /* Hidden rows are not proposed: they are accepted for old scripts, not for
     * new ones. A table with more rows than there is room for loses suggestions
     * alone. */
    const char *names[512];
    char word[NAME_BYTES];
    const char *near = NULL;
    size_t n = 0;

    if (f)
        return gpt_opt_refuse_foreign(f, label, err);
    for (size_t i = 0; i < program->n_options && n < GPT_COUNT(names); i++)
        if (program->options[i].kind != GPT_OPT_GROUP &&
            !(program->options[i].flags & GPT_OPT_HIDDEN))
            names[n++] = program->options[i].name;
    if (normalise(word, name, len))
        near = gpt_did_you_mean(word, names, n);
    gpt_fail(err, GPT_EUSAGE, "unknown option '%.100s'", label);
    if (near)
        gpt_hint(err, "did you mean %s%s?",
                 strncmp(label, "--", 2) == 0 ? "--" : "", near);
    else
        gpt_hint(err, "try '%s --help'", program->name);
    return GPT_EUSAGE;
}

/* ---- near misses ---- */

/* One step of the edit distance chooses between three neighbours. */
static int min3(int a, int b, int c)
{
    int ab = a < b ? a : b;

    return ab < c ? ab : c;
}

/* Edits (insert, delete, replace, swap neighbours) from a to b; the restricted
 * form of Damerau's distance, three rows at a time. */
static int edit_distance(const char *a, const char *b)
{
    int rows[3][NAME_BYTES + 1];
    int n = (int)strlen(a), m = (int)strlen(b);

    if (n > NAME_BYTES || m > NAME_BYTES)
        return NAME_BYTES;
    for (int j = 0; j <= m; j++)
        rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = rows[i % 3], *last = rows[(i + 2) % 3];
        const int *older = rows[(i + 1) % 3];

        now[0] = i;
        for (int j = 1; j <= m; j++) {
            now[j] = min3(last[j] + 1, now[j - 1] + 1,
                          last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
                a[i - 2] == b[j - 1] && older[j - 2] + 1 < now[j])
                now[j] = older[j - 2] + 1;
        }
    }
    return rows[n % 3][m];
}

const char *gpt_did_you_mean(const char *word, const char *const *candidates,
                             size_t n)
{
    const char *nearest = NULL, *prefixed = NULL;
    size_t len = strlen(word);
    int prefixes = 0;
    int best = len < 5 ? 2 : 3; /* short words are near to too many others */

    for (size_t i = 0; i < n && len > 1; i++) {
        int d = edit_distance(word, candidates[i]);

        if (d < best) {
            best = d;
            nearest = candidates[i];
        }
        if (strncmp(word, candidates[i], len) == 0) {
            prefixes++;
            prefixed = candidates[i];
        }
    }
    /* The beginning of one name is a better guess than two typing errors. */
    return prefixes == 1 && !(nearest && best < 2) ? prefixed : nearest;
}

size_t gpt_opt_list_names(char *buf, size_t cap, const char *const *names)
{
    size_t n = 0, at = 0;

    buf[0] = '\0';
    for (; names[n]; n++)
        if (at < cap)
            at += (size_t)snprintf(buf + at, cap - at, "%s%s",
                                   n > 0 ? ", " : "", names[n]);
    return n;
}

int gpt_fail_command(const char *word, const char *const *commands,
                     const char *hint, struct gpt_err *err)
{
    char all[256];
    const size_t n = gpt_opt_list_names(all, sizeof(all), commands);
    const char *near = gpt_did_you_mean(word, commands, n);

    gpt_fail(err, GPT_EUSAGE, "unknown command '%.100s': it is none of %s",
             word, all);
    return near ? gpt_hint(err, "did you mean '%s'?", near)
                : gpt_hint(err, "%s", hint);
}
