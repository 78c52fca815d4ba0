/* What somebody asked for, to be kept beside what came of it. */
#include "base/memory.h"
#include "base/options.h"

#include <stdio.h>
#include <string.h>

static bool is_named(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

/* Bytes of "name = value" before "  # command line". */
static int without_origin(const char *line)
{
    size_t n = strlen(line), at = n;

    while (at > 0 && strncmp(line + at, "  # ", 4) != 0)
        at--;
    return (int)(at > 0 ? at : n);
}

int gpt_options_given(const struct gpt_args *args, const void *options,
                      const char *const *without, struct gpt_buf *b)
{
    struct gpt_buf all = {0};
    int status = gpt_options_print(args->program, options, args, &all);

    for (char *line = all.data, *end; status == GPT_OK && line && *line;
         line = end) {
        char name[64];

        end = line + strcspn(line, "\n");
        if (*end)
            *end++ = '\0';
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(line, " ="), line);
        if (gpt_option_given(args, name) && !is_named(without, name))
            status = gpt_buf_printf(b, "%.*s\n", without_origin(line), line);
    }
    gpt_buf_free(&all);
    return status;
}
