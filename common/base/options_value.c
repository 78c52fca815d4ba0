/* One value into one field of a program's options struct, with the checks that
 * its row asks for. */
#include "base/options_internal.h"

#include "base/num.h"

#include <stdio.h>
#include <string.h>

bool gpt_opt_takes_value(const struct gpt_opt *o)
{
    return o->kind != GPT_OPT_FLAG && o->kind != GPT_OPT_GROUP;
}

void *gpt_opt_field(void *options, const struct gpt_opt *o)
{
    return (char *)options + o->offset;
}

static int no_memory(struct gpt_parse *p)
{
    return gpt_fail(p->err, GPT_EFAIL, "out of memory for an option");
}

/* Notes who set the row; true when this source sets it for the first time. */
static bool note(struct gpt_parse *p, const struct gpt_opt *o)
{
    size_t row = (size_t)(o - p->program->options);
    bool first = p->source[row] != p->current;

    p->source[row] = p->current;
    p->origin[row] = (uint8_t)p->from;
    return first;
}

int gpt_opt_set_flag(struct gpt_parse *p, const struct gpt_opt *o, bool value)
{
    note(p, o);
    *(bool *)gpt_opt_field(p->options, o) = value;
    return GPT_OK;
}

/* "0 to 4096", "at least 1": a bound of 1e15 or more is no bound. */
static void range_text(const struct gpt_opt *o, char *buf, size_t cap)
{
    const double none = 1e15;

    if (o->max >= none)
        snprintf(buf, cap, "at least %.15g", o->min);
    else if (o->min <= -none)
        snprintf(buf, cap, "at most %.15g", o->max);
    else
        snprintf(buf, cap, "%.15g to %.15g", o->min, o->max);
}

static int check_range(struct gpt_parse *p, const struct gpt_opt *o, double v,
                       const char *text, const char *label)
{
    char range[80];
    bool any = !(o->min < 0) && !(o->min > 0) && !(o->max < 0) && !(o->max > 0);

    if (any || (v >= o->min && v <= o->max))
        return GPT_OK;
    range_text(o, range, sizeof(range));
    return gpt_fail(p->err, GPT_EUSAGE, "%s: %s is out of range (%s)", label,
                    text, range);
}

static int set_int(struct gpt_parse *p, const struct gpt_opt *o,
                   const char *text, const char *label)
{
    bool bytes = o->kind == GPT_OPT_BYTES;
    int64_t v;

    if (!(bytes ? gpt_parse_bytes(text, &v) : gpt_parse_int(text, &v)))
        return gpt_fail(p->err, GPT_EUSAGE, "%s: '%s' is not %s", label, text,
                        bytes ? "a size (a number, then K, M, G, T, Ki, Mi, "
                                "Gi, Ti or these with B)"
                              : "an integer (K, M, G, T, B, Ki, Mi, Gi may "
                                "follow)");
    GPT_TRY(check_range(p, o, (double)v, text, label));
    *(int64_t *)gpt_opt_field(p->options, o) = v;
    note(p, o);
    return GPT_OK;
}

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

static int set_choice(struct gpt_parse *p, const struct gpt_opt *o,
                      const char *text, const char *label)
{
    char all[256] = "";
    size_t n = 0, at = 0;

    for (; o->choices[n]; n++) {
        if (strcmp(o->choices[n], text) == 0) {
            *(const char **)gpt_opt_field(p->options, o) = o->choices[n];
            note(p, o);
            return GPT_OK;
        }
        if (at < sizeof(all))
            at += (size_t)snprintf(all + at, sizeof(all) - at, "%s%s",
                                   n > 0 ? ", " : "", o->choices[n]);
    }
    gpt_fail(p->err, GPT_EUSAGE, "%s: '%s' is not one of %s", label, text, all);
    const char *near = gpt_did_you_mean(text, o->choices, n);
    if (near)
        gpt_hint(p->err, "did you mean %s?", near);
    return GPT_EUSAGE;
}

static int set_string(struct gpt_parse *p, const struct gpt_opt *o,
                      const char *text)
{
    const char *copy = gpt_arena_strdup(p->arena, text);

    if (!copy)
        return no_memory(p);
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
            return no_memory(p);
        if (list->n > 0)
            memcpy(items, list->items, (size_t)list->n * sizeof(*items));
        list->items = items;
    }
    const char *copy = gpt_arena_strdup(p->arena, text);
    if (!copy)
        return no_memory(p);
    list->items[list->n++] = copy;
    return GPT_OK;
}

static int set_bool(struct gpt_parse *p, const struct gpt_opt *o,
                    const char *text, const char *label)
{
    if (strcmp(text, "true") == 0)
        return gpt_opt_set_flag(p, o, true);
    if (strcmp(text, "false") == 0)
        return gpt_opt_set_flag(p, o, false);
    return gpt_fail(p->err, GPT_EUSAGE, "%s: '%s' is neither true nor false",
                    label, text);
}

int gpt_opt_set(struct gpt_parse *p, const struct gpt_opt *o, const char *text,
                const char *label)
{
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

/* A list's default is space-separated words. */
static int set_default_list(struct gpt_parse *p, const struct gpt_opt *o)
{
    const char *words = o->def;

    while (*words) {
        size_t len = strcspn(words, " ");
        const char *word = gpt_arena_printf(p->arena, "%.*s", (int)len, words);

        if (!word)
            return no_memory(p);
        if (len > 0)
            GPT_TRY(add_word(p, o, word));
        words += len;
        words += strspn(words, " ");
    }
    return GPT_OK;
}

int gpt_opt_set_defaults(struct gpt_parse *p)
{
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
    return GPT_OK;
}
