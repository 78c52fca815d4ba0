/* Options by the names of other programs. A row of a program's table of foreign
 * names has one of three outcomes: the name stands for options of this program,
 * it has no effect here and is skipped with a warning, or it is refused with a
 * sentence that says what to do. options_command.c looks a name up here when it
 * is none of the program's own. */
#include "base/options_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

const struct gpt_foreign_option *
gpt_opt_find_foreign(const struct gpt_program *program, const char *name,
                     size_t len)
{
    for (size_t i = 0; i < program->n_foreign; i++)
        if (gpt_opt_same_name(program->foreign[i].name, name, len))
            return &program->foreign[i];
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

/* Whether `words`, with blanks between them, have `word`. */
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

const char *gpt_opt_find_kept(const struct gpt_parse *p,
                              const struct gpt_foreign_option *f)
{
    /* Sources are read in their order, and the command line from left to right:
     * what comes after the name replaces its value as it does any other, so
     * that only what came before needs to be looked at here. */
    if (!f->over)
        return NULL;
    const char *name = f->means + 2;
    const struct gpt_opt *o =
        gpt_opt_find(p->program, name, strcspn(name, "= "), NULL);
    assert(o && o->kind == GPT_OPT_CHOICE);
    const char *value = *(const char *const *)gpt_opt_field(p->options, o);

    return is_among(value, f->over) ? NULL : value;
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
