/* Collects findings about damaged data sets: all are counted by kind, the first
 * of each kind are handed on. See set_damage.h. */
#include "data/set_damage.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

const char *gpt_damage_word(enum gpt_damage kind)
{
    static const char *const words[] = {
#define X(name, word) word,
        GPT_DAMAGE_LIST(X)
#undef X
    };

    return words[kind];
}

int64_t gpt_damages_total(const struct gpt_damages *all)
{
    int64_t n = 0;

    for (int k = 0; k < GPT_N_DAMAGES; k++)
        n += all->count[k];
    return n;
}

/* The text is made before it is known where it goes: *err may be NULL. */
int gpt_damage_found(struct gpt_damages *all, struct gpt_err *err,
                     enum gpt_damage kind, const char *hint, const char *fmt,
                     ...)
{
    struct gpt_err own = {0};
    char text[sizeof(own.text)];
    va_list args;

    assert(kind < GPT_N_DAMAGES);
    /* Beyond the first ones no text is made: a damaged set may have a finding a
     * token. */
    if (all && ++all->count[kind] > all->most)
        return GPT_OK;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    struct gpt_err *to = all ? &own : err;
    gpt_fail(to, GPT_EDATA, "%s", text);
    if (hint)
        gpt_hint(to, "%s", hint);
    if (!all)
        return GPT_EDATA;
    if (all->found)
        all->found(all->user, kind, &own);
    return GPT_OK;
}
