/* Findings about damaged data sets: counted by kind, the first ones told. The
 * kinds and their words are in idx.h. */
#include "data/idx.h"

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

int gpt_damage_found(struct gpt_damages *all, struct gpt_err *err,
                     enum gpt_damage kind, const char *hint, const char *fmt,
                     ...)
{
    struct gpt_err own = {0};
    char text[sizeof(own.text)];
    va_list args;

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
