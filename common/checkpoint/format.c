/* The table of formats; see format.h. Both arrays come from one list, so that a
 * format cannot be a choice of an option and be missing from the table. */
#include "checkpoint/format.h"

#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

const struct gpt_format *const gpt_formats[] = {
#define X(name) &gpt_format_##name,
    GPT_FORMAT_READ_LIST(X) GPT_FORMAT_LIST(X)
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
int gpt_format_find(const struct gpt_format **format, const char *path,
                    struct gpt_err *err)
{
    *format = NULL;
    for (const struct gpt_format *const *f = gpt_formats; *f; f++) {
        errno = 0;
        if ((*f)->recognises(path)) {
            *format = *f;
            return GPT_OK;
        }
        /* A format that could not look must not pass for one that is not
         * there. */
        if (gpt_path_hidden(errno))
            return gpt_fail_errno(err, GPT_EIO,
                                  "cannot look for a checkpoint in '%s'", path);
    }
    return GPT_OK;
}

const struct gpt_format *gpt_format_of(const char *path)
{
    const struct gpt_format *format;

    return gpt_format_find(&format, path, NULL) == GPT_OK ? format : NULL;
}

/* Users name the folder above a checkpoint. */
bool gpt_format_below(const char *dir, char *path, size_t cap)
{
    DIR *d = opendir(dir);
    bool found = false;

    for (struct dirent *e; d && !found && (e = readdir(d));)
        found = e->d_name[0] != '.' &&
                gpt_path_join(path, cap, dir, e->d_name, NULL) == GPT_OK &&
                gpt_path_is_dir(path) && gpt_format_of(path);
    if (d)
        closedir(d);
    return found;
}
