/* See nearest.h. */
#include "checkpoint/nearest.h"

#include "base/memory.h"

#include <stdint.h>
#include <string.h>

static void remove_row(struct gpt_nearest *to, size_t i)
{
    memmove(to->rows + i, to->rows + i + 1, (--to->n - i) * sizeof(*to->rows));
}

void gpt_nearest_keep(struct gpt_nearest *to, const struct gpt_misfit *m)
{
    size_t at = 0;

    for (size_t i = 0; i < to->n; i++)
        if (strcmp(to->rows[i].name, m->name) == 0) {
            if (to->rows[i].n <= m->n)
                return;
            remove_row(to, i);
        }
    while (at < to->n && to->rows[at].n <= m->n)
        at++;
    if (at == GPT_NEAREST)
        return;
    if (to->n == GPT_NEAREST)
        to->n--;
    memmove(to->rows + at + 1, to->rows + at,
            (to->n++ - at) * sizeof(*to->rows));
    to->rows[at] = *m;
}

static int say_misfit(struct gpt_buf *b, const struct gpt_misfit *m)
{
    GPT_TRY(gpt_buf_printf(b, "%s%s in", b->len ? "; " : "", m->name));
    const size_t shown = m->n == SIZE_MAX           ? 1
                         : m->n < GPT_MISFIT_FIELDS ? m->n
                                                    : GPT_MISFIT_FIELDS;

    for (size_t i = 0; i < shown; i++)
        GPT_TRY(gpt_buf_printf(b, "%s %s", i ? "," : "", m->fields[i]));
    return m->n > shown && m->n < SIZE_MAX
               ? gpt_buf_printf(b, " and %zu more", m->n - shown)
               : GPT_OK;
}

int gpt_nearest_fail(const struct gpt_nearest *near, const char *what,
                     size_t all, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    int status = GPT_OK;

    for (size_t i = 0; status == GPT_OK && i < near->n; i++)
        status = say_misfit(&b, &near->rows[i]);
    if (status != GPT_OK) {
        gpt_buf_free(&b);
        return gpt_no_memory(err, "a message");
    }
    status = gpt_fail(err, GPT_EDATA,
                      "no %s is this model; the nearest of %zu differ: %s",
                      what, all, b.data ? b.data : "");
    gpt_buf_free(&b);
    return status;
}
