/* --help and --version. Lines are at most 79 columns, option texts begin in
 * column 29. */
#include "base/options_internal.h"

#include "base/cpu.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 79, TEXT_COLUMN = 29 };

const char *gpt_opt_arg(const struct gpt_opt *o, char *buf, size_t cap)
{
    size_t at = 0;

    /* The table's own word wins: long lists of choices stand in the help text
     * instead. */
    if (o->arg || o->kind != GPT_OPT_CHOICE)
        return o->arg ? o->arg : "VALUE";
    buf[0] = '\0';
    for (size_t i = 0; o->choices[i] && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%s", i > 0 ? "|" : "",
                               o->choices[i]);
    return buf;
}

/* Adds words, breaking lines before column WIDTH - strlen(mark): `mark` ends
 * every line but the last. `column` is where the line stands now, `indent`
 * where the next ones begin. */
static int add_wrapped(struct gpt_buf *b, const char *text, int column,
                       int indent, const char *mark)
{
    int limit = WIDTH - (int)strlen(mark);
    bool first = true;

    for (text += strspn(text, " \n"); *text; text += strspn(text, " \n")) {
        int len = (int)strcspn(text, " \n");

        if (!first && column + 1 + len > limit) {
            GPT_TRY(gpt_buf_printf(b, "%s\n%*s", mark, indent, ""));
            column = indent;
        } else if (!first) {
            GPT_TRY(gpt_buf_add(b, " ", 1));
            column++;
        }
        GPT_TRY(gpt_buf_add(b, text, (size_t)len));
        column += len;
        text += len;
        first = false;
    }
    return gpt_buf_add(b, "\n", 1);
}

/* Continued lines begin below the first word after the name of the program. */
static int add_usage(const struct gpt_program *program, struct gpt_buf *b)
{
    int indent = (int)strlen("Usage: ") + (int)strlen(program->name) + 1;

    for (size_t i = 0; program->usage && program->usage[i]; i++) {
        GPT_TRY(gpt_buf_printf(b, "%s%s ", i == 0 ? "Usage: " : "       ",
                               program->name));
        GPT_TRY(add_wrapped(b, program->usage[i], indent, indent, ""));
    }
    GPT_TRY(gpt_buf_add(b, "\n", 1));
    return add_wrapped(b, program->purpose, 0, 0, "");
}

/* "  -f, --force", "      --threads N". */
static int add_names(const struct gpt_opt *o, struct gpt_buf *b)
{
    char choices[128];

    if (o->letter)
        GPT_TRY(gpt_buf_printf(b, "  -%c, --%s", o->letter, o->name));
    else
        GPT_TRY(gpt_buf_printf(b, "      --%s", o->name));
    if (!gpt_opt_takes_value(o))
        return GPT_OK;
    const char *arg = gpt_opt_arg(o, choices, sizeof(choices));
    /* Lists show that they take several values, unless the table says so in its
     * own words. */
    bool more = o->kind == GPT_OPT_LIST && !strstr(arg, "...");
    return gpt_buf_printf(b, " %s%s", arg, more ? "..." : "");
}

/* ": a, b, c", unless the choices stand for the value or in the help text. */
static int add_choices(const struct gpt_opt *o, struct gpt_buf *text)
{
    if (o->kind != GPT_OPT_CHOICE || !o->arg || strstr(o->help, o->choices[0]))
        return GPT_OK;
    for (size_t i = 0; o->choices[i]; i++)
        GPT_TRY(gpt_buf_printf(text, "%s%s", i > 0 ? ", " : ": ",
                               o->choices[i]));
    return GPT_OK;
}

/* Brackets hold the default as it would be typed. An empty default is the same
 * as none to a reader. */
static int add_help(const struct gpt_opt *o, struct gpt_buf *text)
{
    GPT_TRY(gpt_buf_printf(text, "%s", o->help));
    GPT_TRY(add_choices(o, text));
    if (o->kind == GPT_OPT_FLAG && o->def && strcmp(o->def, "true") == 0)
        return gpt_buf_printf(text, " [on]");
    if (o->def && gpt_opt_takes_value(o) && o->def[0])
        return gpt_buf_printf(text, " [%s]", o->def);
    if (o->flags & GPT_OPT_REQUIRED)
        return gpt_buf_printf(text, " (required)");
    return GPT_OK;
}

static int add_row(const struct gpt_opt *o, struct gpt_buf *b)
{
    struct gpt_buf text = {0};
    size_t start = b->len;

    GPT_TRY(add_names(o, b));
    /* Names that reach into the column of texts push the text to the next line;
     * cutting them would hide how to type them. */
    int used = (int)(b->len - start);
    if (used > TEXT_COLUMN - 2)
        GPT_TRY(gpt_buf_printf(b, "\n%*s", TEXT_COLUMN, ""));
    else
        GPT_TRY(gpt_buf_printf(b, "%*s", TEXT_COLUMN - used, ""));
    int status = add_help(o, &text);
    if (status == GPT_OK)
        status = add_wrapped(b, text.data, TEXT_COLUMN, TEXT_COLUMN, "");
    gpt_buf_free(&text);
    return status;
}

/* Tables that begin without a heading are those of small programs and tests. */
static int add_options(const struct gpt_program *program, struct gpt_buf *b)
{
    if (program->n_options > 0 && program->options[0].kind != GPT_OPT_GROUP)
        GPT_TRY(gpt_buf_printf(b, "\nOptions:\n"));
    for (size_t i = 0; i < program->n_options; i++) {
        const struct gpt_opt *o = &program->options[i];

        if (o->kind == GPT_OPT_GROUP)
            GPT_TRY(gpt_buf_printf(b, "\n%s:\n", o->help));
        else if (!(o->flags & GPT_OPT_HIDDEN))
            GPT_TRY(add_row(o, b));
    }
    for (size_t i = 0; i < GPT_COUNT(gpt_builtin_options); i++)
        GPT_TRY(add_row(&gpt_builtin_options[i], b));
    return GPT_OK;
}

int gpt_opt_help(const struct gpt_program *program, struct gpt_buf *b)
{
    GPT_TRY(add_usage(program, b));
    GPT_TRY(add_options(program, b));
    if (program->examples && program->examples[0])
        GPT_TRY(gpt_buf_printf(b, "\nExamples:\n"));
    for (size_t i = 0; program->examples && program->examples[i]; i++) {
        GPT_TRY(gpt_buf_printf(b, "  "));
        GPT_TRY(add_wrapped(b, program->examples[i], 2, 6, " \\"));
    }
    return gpt_buf_printf(b, "\nSee %s(1).\n", program->name);
}

/* What was found when the program was built: a report of a fault that quotes
 * --version says which decoders and collectives it has. */
static const char features[] = "cJSON"
#ifdef GPT_HAVE_DNNL
                               " oneDNN"
#endif
#ifdef GPT_HAVE_LZMA
                               " liblzma"
#endif
#ifdef GPT_HAVE_ZLIB
                               " zlib"
#endif
#ifdef GPT_HAVE_ZSTD
                               " libzstd"
#endif
#ifdef GPT_HAVE_MICROHTTPD
                               " libmicrohttpd"
#endif
#ifdef GPT_HAVE_GLOO
                               " Gloo"
#endif
    ;

#ifdef __clang__
static const char compiler[] = "clang " __clang_version__;
#else
static const char compiler[] = "gcc " __VERSION__;
#endif

int gpt_opt_version(const struct gpt_program *program, struct gpt_buf *b)
{
    int status = gpt_buf_printf(b,
                                "%s %s\n"
                                "compiler: %s\n"
                                "features: %s\n"
                                "processor: %s\n",
                                program->name, GPT_VERSION, compiler, features,
                                gpt_cpu_best());

    return status == GPT_OK && program->version ? program->version(b) : status;
}
