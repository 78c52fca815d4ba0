/* Options by the names of other programs. A row of a program's table of foreign
 * names has one of three outcomes: the name stands for options of this program,
 * it has no effect here and is skipped with a warning, or it is refused with a
 * sentence that says what to do. options_command.c looks a name up here when it
 * is none of the program's own. */
#include "base/options_internal.h"

#include "base/log.h"
#include "base/num.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* So many names without effect have a line each. */
enum { FEW_SKIPPED = 3 };

/* The length of what turns a flag off, in front of its name. */
static size_t negation(const char *name, size_t len)
{
    static const char *const words[] = {"no-", "disable-"};

    for (size_t i = 0; i < GPT_COUNT(words); i++) {
        const size_t n = strlen(words[i]);

        if (len > n && gpt_opt_same_name(words[i], name, n))
            return n;
    }
    return 0;
}

/* A row whose name ends with '*' is of every name that begins so, or that turns
 * off one that does: other programs have families of options about what is not
 * here. */
static bool is_in_family(const struct gpt_foreign_option *f, const char *name,
                         size_t len)
{
    char stem[40];
    const size_t n = strlen(f->name) - 1, off = negation(name, len);

    if (f->name[n] != '*')
        return false;
    assert(n < sizeof(stem));
    memcpy(stem, f->name, n);
    stem[n] = '\0';
    return (len >= n && gpt_opt_same_name(stem, name, n)) ||
           (off > 0 && len - off >= n &&
            gpt_opt_same_name(stem, name + off, n));
}

/* A name that has a row of its own is not answered by that of its family. */
const struct gpt_foreign_option *
gpt_opt_find_foreign(const struct gpt_program *program, const char *name,
                     size_t len)
{
    for (size_t i = 0; i < program->n_foreign; i++)
        if (gpt_opt_same_name(program->foreign[i].name, name, len))
            return &program->foreign[i];
    for (size_t i = 0; i < program->n_hints; i++)
        if (gpt_opt_same_name(program->hints[i].name, name, len))
            return &program->hints[i];
    for (size_t i = 0; i < program->n_hints; i++)
        if (is_in_family(&program->hints[i], name, len))
            return &program->hints[i];
    return NULL;
}

/* One word of what a name stands for, with '%' replaced by the value. */
static const char *expand_word(struct gpt_parse *p, const char *word,
                               size_t len, const char *value)
{
    const char *mark = memchr(word, '%', len);

    if (!mark || !value)
        return gpt_arena_printf(p->arena, "%.*s", (int)len, word);
    return gpt_arena_printf(p->arena, "%.*s%s%.*s", (int)(mark - word), word,
                            value, (int)(len - (size_t)(mark - word) - 1),
                            mark + 1);
}

int gpt_opt_expand_foreign(struct gpt_parse *p,
                           const struct gpt_foreign_option *f,
                           const char *value, const char **words, int cap,
                           int *n)
{
    *n = 0;
    for (const char *at = f->means; *at; *n += 1) {
        size_t len = strcspn(at, " ");

        assert(*n < cap);
        words[*n] = expand_word(p, at, len, value);
        if (!words[*n])
            return gpt_no_memory(p->err, "options");
        at += len;
        at += strspn(at, " ");
    }
    return GPT_OK;
}

/* True when `word` is one of `words`, which have blanks between them. */
static bool is_among(const char *word, const char *words)
{
    const size_t len = strlen(word);

    for (const char *at = words; *at; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");

        if (n == len && memcmp(at, word, n) == 0)
            return true;
        at += n;
    }
    return false;
}

/* The option whose value a name with `over` takes away. */
static const struct gpt_opt *option_over(const struct gpt_parse *p,
                                         const struct gpt_foreign_option *f)
{
    const char *name = f->means + 2;
    const struct gpt_opt *o =
        gpt_opt_find(p->program, name, strcspn(name, "= "), NULL);

    assert(o && o->kind == GPT_OPT_CHOICE);
    return o;
}

const char *gpt_opt_find_kept(const struct gpt_parse *p,
                              const struct gpt_foreign_option *f)
{
    /* Sources are read in their order, and the command line from left to right:
     * what comes after the name replaces its value as it does any other, so
     * that only what came before needs to be looked at here. */
    if (!f->over)
        return NULL;
    const struct gpt_opt *o = option_over(p, f);
    const char *value = *(const char *const *)gpt_opt_field(p->options, o);

    return is_among(value, f->over) ? NULL : value;
}

/* ---- names that are judged when all options are known ---- */

int gpt_opt_keep_foreign(struct gpt_parse *p,
                         const struct gpt_foreign_option *f, const char *label)
{
    const char *copy = gpt_arena_strdup(p->arena, label);

    if (!copy)
        return gpt_no_memory(p->err, "options");
    GPT_TRY(gpt_grow(&p->kept, &p->kept_cap, p->n_kept + 1, sizeof(*p->kept),
                     "options", p->err));
    p->kept[p->n_kept++] = (struct gpt_kept_name){copy, f};
    return GPT_OK;
}

/* A value that stood before the name gave way to it; one that comes after the
 * name says the opposite. */
static int check_over(const struct gpt_parse *p, const struct gpt_kept_name *k)
{
    const struct gpt_opt *o = option_over(p, k->f);
    const char *value = *(const char *const *)gpt_opt_field(p->options, o);

    if (!is_among(value, k->f->over))
        return GPT_OK;
    gpt_fail(p->err, GPT_EUSAGE, "%s excludes --%s %s", k->label, o->name,
             value);
    return gpt_hint(p->err, "leave one of them out: %s is here %s", k->label,
                    k->f->means);
}

static void warn_of_one(const struct gpt_kept_name *k)
{
    gpt_warn("%s (a name of %s) has no effect here: %s", k->label, k->f->source,
             k->f->only ? "no other value is possible" : k->f->answer);
}

/* Names of one source in one line, as often and as they were written, so that
 * each can be found in the script. */
static int warn_of_source(const struct gpt_parse *p, const char *source)
{
    struct gpt_buf list = {0};
    int status = GPT_OK, n = 0;

    for (size_t i = 0; status == GPT_OK && i < p->n_kept; i++)
        if (p->kept[i].f->skip && strcmp(p->kept[i].f->source, source) == 0)
            status = gpt_buf_printf(&list, "%s%s", n++ > 0 ? ", " : "",
                                    p->kept[i].label);
    if (status == GPT_OK)
        gpt_warn("%d name%s of %s without effect here; --verbose says why of "
                 "each: %s", n, gpt_plural(n), source, list.data);
    gpt_buf_free(&list);
    return status == GPT_OK ? GPT_OK : gpt_no_memory(p->err, "a message");
}

/* True when a name before name i came from the same source. */
static bool is_reported(const struct gpt_parse *p, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (p->kept[k].f->skip &&
            strcmp(p->kept[k].f->source, p->kept[i].f->source) == 0)
            return true;
    return false;
}

/* The level of messages is not set yet: the row has it. A program without such
 * a row says the names alone. */
static bool is_verbose(const struct gpt_parse *p)
{
    const struct gpt_opt *o = gpt_opt_find(p->program, "verbose", 7, NULL);

    return o && *(const bool *)gpt_opt_field(p->options, o);
}

/* A script of another program has dozens of names without effect: a line for
 * each would hide what else is said. */
static int warn_of_skipped(const struct gpt_parse *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n_kept; i++)
        n += p->kept[i].f->skip;
    const bool each = n <= FEW_SKIPPED || is_verbose(p);
    for (size_t i = 0; i < p->n_kept; i++) {
        if (!p->kept[i].f->skip)
            continue;
        if (each)
            warn_of_one(&p->kept[i]);
        else if (!is_reported(p, i))
            GPT_TRY(warn_of_source(p, p->kept[i].f->source));
    }
    return GPT_OK;
}

/* What contradicts ends the program, so that it comes before what is left out
 * without harm. */
int gpt_opt_judge_kept(const struct gpt_parse *p)
{
    for (size_t i = 0; i < p->n_kept; i++)
        if (p->kept[i].f->over)
            GPT_TRY(check_over(p, &p->kept[i]));
    return warn_of_skipped(p);
}

/* Writes "--lr=%" as "--lr VALUE". */
static void print_meaning(char *buf, size_t cap, const char *means)
{
    size_t n = 0;

    for (const char *at = means; *at && n + sizeof(" VALUE") < cap; at++) {
        if (strncmp(at, "=%", 2) == 0) {
            n += (size_t)snprintf(buf + n, cap - n, " VALUE");
            at++;
        } else {
            buf[n++] = *at;
        }
    }
    buf[n] = '\0';
}

/* A name without a meaning has a sentence of its own in the table; for the
 * others the sentence is their meaning. */
int gpt_opt_refuse_foreign(const struct gpt_foreign_option *f,
                           const char *label, struct gpt_err *err)
{
    char meaning[200];

    gpt_fail(err, GPT_EUSAGE, "unknown option '%.140s', a name of %s", label,
             f->source);
    if (f->only)
        return gpt_hint(err, "%s is its one value here: %s", f->only,
                        f->answer);
    if (!f->means)
        return gpt_hint(err, "%s", f->answer);
    print_meaning(meaning, sizeof(meaning), f->means);
    return gpt_hint(err, "here it is %s", meaning);
}
