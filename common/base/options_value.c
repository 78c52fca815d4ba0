/* One value into one field of a program's options struct, with the checks that
 * its row asks for. */
#include "base/options_internal.h"

#include "base/num.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* A flag takes a value in a configuration file only ("fp16 = false"); on the
 * command line it stands alone, or is negated. */
bool gpt_opt_takes_value(const struct gpt_opt *o)
{
    return o->kind != GPT_OPT_FLAG && o->kind != GPT_OPT_GROUP;
}

/* The table knows fields as offsets, so that one const table serves every
 * struct of options: a test may parse into a second one. */
void *gpt_opt_field(void *options, const struct gpt_opt *o)
{
    return (char *)options + o->offset;
}

/* Gives a row its default again. */
static void unset(struct gpt_parse *p, size_t row)
{
    const struct gpt_opt *o = &p->program->options[row];
    void *field = gpt_opt_field(p->options, o);

    if (o->kind == GPT_OPT_FLAG)
        *(bool *)field = false;
    else if (o->kind == GPT_OPT_REAL)
        *(double *)field = 0;
    else if (o->kind == GPT_OPT_INT || o->kind == GPT_OPT_BYTES)
        *(int64_t *)field = 0;
    else if (o->kind == GPT_OPT_LIST)
        *(struct gpt_list *)field = (struct gpt_list){0};
    else
        *(const char **)field = NULL;
    /* A default has the form of a value that is typed, and cannot fail. */
    if (o->def && o->kind != GPT_OPT_LIST)
        (void)gpt_opt_set(p, o, o->def, o->name);
    p->source[row] = 0;
    p->origin[row] = GPT_FROM_DEFAULT;
}

/* What was typed never contradicts a preset: a row replaces the others that say
 * the same thing, when they come from an older source. Two of one source stay,
 * for the program to refuse. */
static void unset_others(struct gpt_parse *p, const struct gpt_opt *o)
{
    for (size_t i = 0; o->one_of && i < p->program->n_options; i++) {
        const struct gpt_opt *other = &p->program->options[i];

        if (other != o && other->one_of &&
            strcmp(other->one_of, o->one_of) == 0 &&
            p->origin[i] != GPT_FROM_DEFAULT && p->source[i] != p->current)
            unset(p, i);
    }
}

/* Notes the source that set the row; true when it sets the row for the first
 * time. */
static bool note(struct gpt_parse *p, const struct gpt_opt *o)
{
    size_t row = (size_t)(o - p->program->options);
    bool first = p->source[row] != p->current;
    /* A flag that is switched off says nothing that others could contradict. */
    bool says = o->kind != GPT_OPT_FLAG ||
                *(const bool *)gpt_opt_field(p->options, o);

    assert(row < p->program->n_options);
    p->source[row] = p->current;
    p->origin[row] = (uint8_t)p->from;
    if (says)
        unset_others(p, o);
    return first;
}

/* Flags cannot fail; the status is for callers that treat all kinds alike. */
int gpt_opt_set_flag(struct gpt_parse *p, const struct gpt_opt *o, bool value)
{
    *(bool *)gpt_opt_field(p->options, o) = value;
    note(p, o);
    return GPT_OK;
}

/* "0 to 4096", "at least 1": a bound of 1e15 or more is named only to a value
 * that exceeds it. */
static void range_text(const struct gpt_opt *o, double v, char *buf, size_t cap)
{
    const double none = 1e15;

    if (o->max >= none && v <= o->max)
        snprintf(buf, cap, "at least %.15g", o->min);
    else if (o->min <= -none && v >= o->min)
        snprintf(buf, cap, "at most %.15g", o->max);
    else /* a large bound is an integer, of which every digit counts */
        snprintf(buf, cap, "%.15g to %.*g", o->min, o->max < none ? 15 : 16,
                 o->max);
}

static int check_range(struct gpt_parse *p, const struct gpt_opt *o, double v,
                       const char *text, const char *label)
{
    char range[80];
    /* Comparisons with 0 instead of ==, which the compiler warns of for
     * doubles; both 0 means that the row has no range. */
    bool any = !(o->min < 0) && !(o->min > 0) && !(o->max < 0) && !(o->max > 0);

    if (any || (v >= o->min && v <= o->max))
        return GPT_OK;
    range_text(o, v, range, sizeof(range));
    return gpt_fail(p->err, GPT_EUSAGE, "%s: %s is out of range (%s)", label,
                    text, range);
}

/* A number that is no int64_t is out of range even where the row has none. */
static int refuse_int(struct gpt_parse *p, const struct gpt_opt *o,
                      const char *text, const char *label)
{
    const bool bytes = o->kind == GPT_OPT_BYTES;
    const double end = -(double)INT64_MIN;
    double v;

    if (gpt_parse_real(text, &v) && (v >= end || v < -end)) {
        GPT_TRY(check_range(p, o, v, text, label));
        return gpt_fail(p->err, GPT_EUSAGE, "%s: %s is out of range (%lld to "
                        "%lld)", label, text, (long long)INT64_MIN,
                        (long long)INT64_MAX);
    }
    return gpt_fail(p->err, GPT_EUSAGE, "%s: '%s' is not %s", label, text,
                    bytes ? "a size (a number, then K, M, G, T, Ki, Mi, Gi, Ti "
                            "or these with B)"
                          : "an integer (K, M, G, T, B, Ki, Mi, Gi may "
                            "follow)");
}

/* The range is checked as a double: bounds above 2^53 are "no bound" rows,
 * where a rounded comparison does no harm. */
static int set_int(struct gpt_parse *p, const struct gpt_opt *o,
                   const char *text, const char *label)
{
    bool bytes = o->kind == GPT_OPT_BYTES;
    int64_t v;

    if (!(bytes ? gpt_parse_bytes(text, &v) : gpt_parse_int(text, &v)))
        return refuse_int(p, o, text, label);
    GPT_TRY(check_range(p, o, (double)v, text, label));
    *(int64_t *)gpt_opt_field(p->options, o) = v;
    note(p, o);
    return GPT_OK;
}

/* gpt_parse_real() accepts finite numbers only, so that no row needs to think
 * of NaN. */
static int set_real(struct gpt_parse *p, const struct gpt_opt *o,
                    const char *text, const char *label)
{
    double v;

    if (!gpt_parse_real(text, &v))
        return gpt_fail(p->err, GPT_EUSAGE, "%s: '%s' is not a number", label,
                        text);
    GPT_TRY(check_range(p, o, v, text, label));
    *(double *)gpt_opt_field(p->options, o) = v;
    note(p, o);
    return GPT_OK;
}

/* The field points into the table, not at the typed text: programs may compare
 * pointers, and the text of argv may go away. */
static int set_choice(struct gpt_parse *p, const struct gpt_opt *o,
                      const char *text, const char *label)
{
    for (size_t i = 0; o->choices[i]; i++) {
        if (strcasecmp(o->choices[i], text) == 0) {
            *(const char **)gpt_opt_field(p->options, o) = o->choices[i];
            note(p, o);
            return GPT_OK;
        }
    }
    char all[256];
    const size_t n = gpt_opt_list_names(all, sizeof(all), o->choices);
    const char *near = gpt_did_you_mean(text, o->choices, n);

    gpt_fail(p->err, GPT_EUSAGE, "%s: '%s' is not one of %s", label, text, all);
    if (near)
        gpt_hint(p->err, "did you mean %s?", near);
    return GPT_EUSAGE;
}

/* A copy in the arena: text of a configuration file is freed once it was
 * read. */
static int set_string(struct gpt_parse *p, const struct gpt_opt *o,
                      const char *text)
{
    const char *copy = gpt_arena_strdup(p->arena, text);

    if (!copy)
        return gpt_no_memory(p->err, "an option");
    *(const char **)gpt_opt_field(p->options, o) = copy;
    note(p, o);
    return GPT_OK;
}

/* The first word from a new source replaces what older sources gave. The array
 * doubles inside the arena whenever n is a power of two. */
static int add_word(struct gpt_parse *p, const struct gpt_opt *o,
                    const char *text)
{
    struct gpt_list *list = gpt_opt_field(p->options, o);

    if (note(p, o))
        *list = (struct gpt_list){0};
    if ((list->n & (list->n - 1)) == 0) {
        size_t cap = list->n > 0 ? (size_t)list->n * 2 : 1;
        const char **items = gpt_arena_alloc(p->arena, cap, sizeof(*items));

        if (!items)
            return gpt_no_memory(p->err, "an option");
        if (list->n > 0)
            memcpy(items, list->items, (size_t)list->n * sizeof(*items));
        list->items = items;
    }
    const char *copy = gpt_arena_strdup(p->arena, text);
    if (!copy)
        return gpt_no_memory(p->err, "an option");
    list->items[list->n++] = copy;
    return GPT_OK;
}

/* The words that follow replace those of an earlier option of this name. The
 * array stays in the arena. */
void gpt_opt_begin_list(struct gpt_parse *p, const struct gpt_opt *o)
{
    struct gpt_list *list = gpt_opt_field(p->options, o);

    if (o->flags & GPT_OPT_ONCE)
        *list = (struct gpt_list){0};
}

/* The words of YAML, and of Python, in any case. Numbers are none of them: "1"
 * is more likely the value of another option. */
static int set_bool(struct gpt_parse *p, const struct gpt_opt *o,
                    const char *text, const char *label)
{
    static const char *const words[][2] = {
        {"false", "true"}, {"no", "yes"}, {"off", "on"}};

    for (size_t i = 0; i < GPT_COUNT(words); i++)
        for (int value = 0; value <= 1; value++)
            if (strcasecmp(text, words[i][value]) == 0)
                return gpt_opt_set_flag(p, o, value != 0);
    return gpt_fail(p->err, GPT_EUSAGE, "%s: '%s' is neither true nor false",
                    label, text);
}

/* An empty name is a variable of a script that was not set: joined with names
 * of files, it would be the root of the file system. */
static int check_name(struct gpt_parse *p, const struct gpt_opt *o,
                      const char *text, const char *label)
{
    const unsigned names = GPT_OPT_FILE | GPT_OPT_DIR | GPT_OPT_SET;

    if (*text || !(o->flags & names))
        return GPT_OK;
    gpt_fail(p->err, GPT_EUSAGE, "%s: the name is empty", label);
    return gpt_hint(p->err, "a variable of a script may not be set");
}

int gpt_opt_set(struct gpt_parse *p, const struct gpt_opt *o, const char *text,
                const char *label)
{
    GPT_TRY(check_name(p, o, text, label));
    switch (o->kind) {
    case GPT_OPT_GROUP:
        break;
    case GPT_OPT_FLAG:
        return set_bool(p, o, text, label);
    case GPT_OPT_INT:
    case GPT_OPT_BYTES:
        return set_int(p, o, text, label);
    case GPT_OPT_REAL:
        return set_real(p, o, text, label);
    case GPT_OPT_STRING:
        return set_string(p, o, text);
    case GPT_OPT_CHOICE:
        return set_choice(p, o, text, label);
    case GPT_OPT_LIST:
        return add_word(p, o, text);
    }
    return gpt_fail(p->err, GPT_EFAIL, "%s cannot be set", label);
}

/* A list's default is space-separated words. The words go through add_word()
 * like given ones, so that the first given word replaces all of them. */
static int set_default_list(struct gpt_parse *p, const struct gpt_opt *o)
{
    const char *words = o->def;

    while (*words) {
        size_t len = strcspn(words, " ");
        const char *word = gpt_arena_printf(p->arena, "%.*s", (int)len, words);

        if (!word)
            return gpt_no_memory(p->err, "an option");
        if (len > 0)
            GPT_TRY(add_word(p, o, word));
        words += len;
        words += strspn(words, " ");
    }
    return GPT_OK;
}

int gpt_opt_set_defaults(struct gpt_parse *p)
{
    /* Zero is the default of every row without one: NULL, 0, off. Source 1 is
     * that of the defaults: zero means "never set" in p->source. */
    memset(p->options, 0, p->program->options_bytes);
    p->from = GPT_FROM_DEFAULT;
    p->current = 1;
    for (size_t i = 0; i < p->program->n_options; i++) {
        const struct gpt_opt *o = &p->program->options[i];

        if (o->kind == GPT_OPT_GROUP || !o->def)
            continue;
        GPT_TRY(o->kind == GPT_OPT_LIST ? set_default_list(p, o)
                                        : gpt_opt_set(p, o, o->def, o->name));
    }
    void *copy = gpt_arena_alloc(p->arena, 1, p->program->options_bytes);

    if (!copy)
        return gpt_no_memory(p->err, "options");
    p->defaults = memcpy(copy, p->options, p->program->options_bytes);
    return GPT_OK;
}
