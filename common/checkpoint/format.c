/* The table of formats; see format.h. Both arrays come from one list, so that a
 * format cannot be a choice of an option and be missing from the table. */
#include "checkpoint/format.h"

#include <string.h>

const struct gpt_format *const gpt_formats[] = {
#define X(name) &gpt_format_##name,
    GPT_FORMAT_LIST(X)
#undef X
        NULL,
};

const char *const gpt_format_names[] = {
#define X(name) #name,
    GPT_FORMAT_LIST(X)
#undef X
        NULL,
};

const struct gpt_format *gpt_format_named(const char *name)
{
    for (const struct gpt_format *const *f = gpt_formats; *f; f++)
        if (strcmp((*f)->name, name) == 0)
            return *f;
    return NULL;
}

/* Judged by names of files, without opening one, so that a damaged checkpoint
 * is still opened by its own front end, which can say what is wrong. */
const struct gpt_format *gpt_format_of(const char *path)
{
    for (const struct gpt_format *const *f = gpt_formats; *f; f++)
        if ((*f)->recognises(path))
            return *f;
    return NULL;
}
