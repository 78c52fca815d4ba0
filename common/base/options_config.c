/* Configuration files: lines "name = value", read and printed. Presets are such
 * files, which options_preset.c finds by their names.
 *
 *     # a comment
 *     num-layers = 12          # names are those of the long options
 *     split = "949,50,1"       # quotes keep spaces and '#'; \" \\ \n \t
 *     data-path = a_text_document b_text_document
 *     fp16 = false
 */
#include "base/options_internal.h"

#include "base/io.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_MARK "  # default" /* as print_row() ends a line */

struct line {
    struct gpt_parse *p;
    const char *path;
    int number;
};

/* ---- reading ---- */

/* Errors say FILE:LINE, which editors jump to. */
static int line_error(const struct line *l, const char *why)
{
    return gpt_fail(l->p->err, GPT_EUSAGE, "%s:%d: %s", l->path, l->number,
                    why);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static char *skip_blanks(char *s)
{
    while (is_blank(*s))
        s++;
    return s;
}

/* Unescapes "..." at *s in place; *s moves behind it. NULL when it does not
 * end. */
static char *quoted(char **s)
{
    char *word = *s + 1, *to = word, *from = word;

    for (; *from != '"'; from++) {
        if (*from == '\\' && from[1]) {
            from++;
            *to++ = *from == 'n' ? '\n' : *from == 't' ? '\t' : *from;
        } else if (*from) {
            *to++ = *from;
        } else {
            return NULL;
        }
    }
    *to = '\0';
    *s = from + 1;
    return word;
}

/* A comment begins with '#' at the start or after a blank. */
static void cut_comment(char *s)
{
    for (char *c = s; *c; c++)
        if (*c == '#' && (c == s || is_blank(c[-1]))) {
            *c = '\0';
            return;
        }
}

static void trim_end(char *s)
{
    size_t n = strlen(s);

    while (n > 0 && is_blank(s[n - 1]))
        s[--n] = '\0';
}

/* The value of everything but lists: quoted, or up to a comment. */
static int whole_value(const struct line *l, char *s, char **value)
{
    if (*s != '"') {
        cut_comment(s);
        trim_end(s);
        /* An empty value is refused, for it is more often an unset variable of
         * a script than a wish. */
        *value = s;
        return *s ? GPT_OK : line_error(l, "no value (write \"\" for empty)");
    }
    *value = quoted(&s);
    if (!*value)
        return line_error(l, "a quote does not end");
    s = skip_blanks(s);
    return *s && *s != '#' ? line_error(l, "something follows the value")
                           : GPT_OK;
}

/* The next word of a list; *value is NULL at the end. */
static int next_word(const struct line *l, char **s, char **value)
{
    *s = skip_blanks(*s);
    *value = NULL;
    if (**s == '\0' || **s == '#')
        return GPT_OK;
    if (**s == '"') {
        *value = quoted(s);
        if (!*value)
            return line_error(l, "a quote does not end");
        return **s == '\0' || is_blank(**s)
                   ? GPT_OK
                   : line_error(l, "something follows a quoted word");
    }
    *value = *s;
    while (**s && !is_blank(**s))
        (*s)++;
    if (**s)
        *(*s)++ = '\0';
    return GPT_OK;
}

/* All words of one line come from one source, so that a later line for the same
 * list appends and a later file replaces. */
static int set_list(const struct line *l, const struct gpt_opt *o, char *s)
{
    char *word;
    int words = 0;

    for (;; words++) {
        GPT_TRY(next_word(l, &s, &word));
        if (!word)
            return words > 0 ? GPT_OK : line_error(l, "no value");
        GPT_TRY(gpt_opt_set(l->p, o, word, o->name));
    }
}

/* Lists report the line themselves, word by word. */
static int set_value(const struct line *l, const struct gpt_opt *o, char *value)
{
    int status;

    if (o->kind == GPT_OPT_LIST)
        return set_list(l, o, value);
    /* The value reports itself; the line is put before it, where only this
     * function knows it. */
    GPT_TRY(whole_value(l, value, &value));
    status = gpt_opt_set(l->p, o, value, o->name);
    return status == GPT_OK
               ? GPT_OK
               : gpt_context(l->p->err, "%s:%d", l->path, l->number);
}

static int print_value(struct gpt_buf *b, const struct gpt_opt *o,
                       const void *field);
static bool is_unset(const struct gpt_opt *o, const void *field);

/* By the form in which both are printed, which says all of a value. What cannot
 * be told for want of memory counts as given. */
static bool is_default(const struct gpt_parse *p, const struct gpt_opt *o)
{
    const void *def = (const char *)p->defaults + o->offset;
    struct gpt_buf now = {0}, then = {0};

    const bool same =
        !is_unset(o, def) &&
        print_value(&now, o, gpt_opt_field(p->options, o)) == GPT_OK &&
        print_value(&then, o, def) == GPT_OK && now.data && then.data &&
        strcmp(now.data, then.data) == 0;
    gpt_buf_free(&now);
    gpt_buf_free(&then);
    return same;
}

/* print_row() marks what was not given. A line with the mark contradicts
 * nothing; one that a user wrote does, even where it says the default. */
static int set_line(const struct line *l, const struct gpt_opt *o, char *value)
{
    const bool marked = gpt_path_ends_in(value, DEFAULT_MARK);

    GPT_TRY(set_value(l, o, value));
    if (marked && is_default(l->p, o))
        l->p->origin[o - l->p->program->options] = GPT_FROM_DEFAULT;
    return GPT_OK;
}

/* Files that name further files would need a rule for the order of all; there
 * is none because this is refused. */
static bool is_about_config(const struct gpt_opt *o)
{
    return strcmp(o->name, "config") == 0 ||
           strcmp(o->name, "print-config") == 0;
}

static int read_line(const struct line *l, char *s)
{
    s = skip_blanks(s);
    if (*s == '\0' || *s == '#')
        return GPT_OK;
    char *equals = strchr(s, '=');
    if (!equals) {
        line_error(l, "not 'name = value'");
        if (strpbrk(s, ":{"))
            return gpt_hint(l->p->err, "YAML and JSON are not read: a line is "
                            "the long name of an option, '=' and its value");
        return gpt_hint(l->p->err, "'%s --print-config' prints such a file",
                        l->p->program->name);
    }
    *equals = '\0';
    trim_end(s);
    const struct gpt_opt *o = gpt_opt_find(l->p->program, s, strlen(s), NULL);
    if (!o) {
        gpt_opt_unknown(l->p->program, s, s, strlen(s), l->p->err);
        return gpt_context(l->p->err, "%s:%d", l->path, l->number);
    }
    if (is_about_config(o))
        return gpt_fail(l->p->err, GPT_EUSAGE,
                        "%s:%d: '%s' is not allowed in a configuration file",
                        l->path, l->number, o->name);
    return set_line(l, o, skip_blanks(equals + 1));
}

static int read_text(struct gpt_parse *p, const char *path, char *text,
                     size_t len)
{
    struct line l = {p, path, 0};

    /* A NUL byte would end the text early, and the rest of the file would be
     * ignored without a word. */
    if (strlen(text) != len)
        return gpt_fail(p->err, GPT_EUSAGE, "%s: offset %zu: NUL byte", path,
                        strlen(text));
    /* Editors of Windows begin a file with a mark of UTF-8, which no one
     * sees. */
    text += gpt_utf8_mark(text, len);
    for (char *next; text; text = next) {
        next = strchr(text, '\n');
        if (next)
            *next++ = '\0';
        size_t n = strlen(text);
        /* Files written on Windows. */
        if (n > 0 && text[n - 1] == '\r')
            text[n - 1] = '\0';
        l.number++;
        GPT_TRY(read_line(&l, text));
    }
    return GPT_OK;
}

/* ---- files ---- */

int gpt_opt_read_config(struct gpt_parse *p, const char *name,
                        const char *reader)
{
    char path[GPT_PATH_BYTES];
    char *text;
    size_t len;

    gpt_opt_find_preset(name, path);
    if (gpt_in_is_stdin(path))
        GPT_TRY(gpt_claim_stdin(reader, p->err));
    int status = gpt_read_file(path, GPT_CONFIG_LIMIT, &text, &len, p->err);
    if (status != GPT_OK) {
        if (status == GPT_EIO && !strchr(name, '/'))
            gpt_opt_hint_presets(p->program, p->err);
        return status;
    }
    /* A new source for every file: its lists replace those of the file before
     * it. */
    p->from = GPT_FROM_CONFIG;
    p->current++;
    status = read_text(p, path, text, len);
    gpt_free(text);
    return status;
}

/* ---- printing ---- */

/* Quotes only where reading back needs them, so that what --print-config shows
 * looks like what people write. */
static bool needs_quotes(const char *s)
{
    size_t n = strlen(s);

    return n == 0 || strpbrk(s, " \t\r\n\"\\#") != NULL;
}

static int print_word(struct gpt_buf *b, const char *s)
{
    if (!needs_quotes(s))
        return gpt_buf_printf(b, "%s", s);
    GPT_TRY(gpt_buf_add(b, "\"", 1));
    for (; *s; s++) {
        char c = *s == '\n' ? 'n' : *s == '\t' ? 't' : *s;

        if (c != *s || c == '"' || c == '\\')
            GPT_TRY(gpt_buf_add(b, "\\", 1));
        GPT_TRY(gpt_buf_add(b, &c, 1));
    }
    return gpt_buf_add(b, "\"", 1);
}

/* The shortest decimal that reads back as the same double. */
static int print_real(struct gpt_buf *b, double v)
{
    char text[32];

    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, v);
        double back = strtod(text, NULL);
        if (memcmp(&back, &v, sizeof(v)) == 0)
            break;
    }
    return gpt_buf_printf(b, "%s", text);
}

/* Rows that hold nothing: strings and lists never given. */
static bool is_unset(const struct gpt_opt *o, const void *field)
{
    if (o->kind == GPT_OPT_STRING || o->kind == GPT_OPT_CHOICE)
        return *(const char *const *)field == NULL;
    return o->kind == GPT_OPT_LIST && ((const struct gpt_list *)field)->n == 0;
}

/* The form that read_line() reads back to the same value, which a test holds
 * together. */
static int print_value(struct gpt_buf *b, const struct gpt_opt *o,
                       const void *field)
{
    const struct gpt_list *list = field;

    switch (o->kind) {
    case GPT_OPT_GROUP:
        break;
    case GPT_OPT_FLAG:
        return gpt_buf_printf(b, "%s",
                              *(const bool *)field ? "true" : "false");
    case GPT_OPT_INT:
    case GPT_OPT_BYTES:
        return gpt_buf_printf(b, "%lld", (long long)*(const int64_t *)field);
    case GPT_OPT_REAL:
        return print_real(b, *(const double *)field);
    case GPT_OPT_STRING:
    case GPT_OPT_CHOICE:
        return print_word(b, *(const char *const *)field);
    case GPT_OPT_LIST:
        for (int64_t i = 0; i < list->n; i++) {
            if (i > 0)
                GPT_TRY(gpt_buf_add(b, " ", 1));
            GPT_TRY(print_word(b, list->items[i]));
        }
    }
    return GPT_OK;
}

static int print_setting(struct gpt_buf *b, const struct gpt_opt *o,
                         const void *field)
{
    GPT_TRY(gpt_buf_printf(b, "%s = ", o->name));
    return print_value(b, o, field);
}

static int print_row(struct gpt_buf *b, const struct gpt_opt *o,
                     const void *field, enum gpt_origin origin)
{
    static const char *const origins[] = {"default", "config", "environment",
                                          "command line"};

    /* As a comment: reading the printed file must give NULL again, which no
     * value could say. */
    if (is_unset(o, field))
        return gpt_buf_printf(b, "# %s =\n", o->name);
    GPT_TRY(print_setting(b, o, field));
    return gpt_buf_printf(b, "  # %s\n", origins[origin]);
}

int gpt_options_print(const struct gpt_program *program, const void *options,
                      const struct gpt_args *args, struct gpt_buf *b)
{
    for (size_t i = 0; i < program->n_options; i++) {
        const struct gpt_opt *o = &program->options[i];

        if (o->kind == GPT_OPT_GROUP) {
            GPT_TRY(gpt_buf_printf(b, "%s# %s\n", b->len > 0 ? "\n" : "",
                                   o->help));
            continue;
        }
        if (is_about_config(o))
            continue;
        GPT_TRY(print_row(b, o, (const char *)options + o->offset,
                          args->origin[i]));
    }
    return GPT_OK;
}

/* Written from the values: to cut the origins off the text of
 * gpt_options_print() would need a second reader of quotes. */
int gpt_options_lines(const struct gpt_args *args, const void *options,
                      unsigned which, struct gpt_buf *b)
{
    for (size_t i = 0; i < args->program->n_options; i++) {
        const struct gpt_opt *o = &args->program->options[i];
        const void *field = (const char *)options + o->offset;

        if (o->kind == GPT_OPT_GROUP || is_about_config(o) ||
            is_unset(o, field) ||
            ((which & GPT_LINES_GIVEN) && !gpt_opt_is_given(args, i)) ||
            ((which & GPT_LINES_SHARED) && (o->flags & GPT_OPT_LOCAL)))
            continue;
        GPT_TRY(print_setting(b, o, field));
        GPT_TRY(gpt_buf_add(b, "\n", 1));
    }
    return GPT_OK;
}
