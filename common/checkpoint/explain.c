/* What to do next when a checkpoint does not open; see
 * gpt_source_explain() in format.h. The front ends say what is wrong with a
 * file, and what a directory of theirs lacks; here it is guessed what the user
 * meant by the path. */
#include "checkpoint/format.h"
#include "checkpoint/names.h"

#include "base/io.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* Counts the iterations of a root; `name` is one of them. */
static int count_iterations(const char *dir, char *name, size_t cap)
{
    DIR *d = opendir(dir);
    int n = 0;

    /* a directory that cannot be read has no name to offer */
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, "iter_", 5) == 0) {
            snprintf(name, cap, "%s", e->d_name);
            n++;
        }
    if (d)
        closedir(d);
    return n;
}

/* Explains a run of which no checkpoint opens, or not the one that was asked
 * for. */
static int explain_run(const char *path, struct gpt_err *err)
{
    char name[256];
    int n = count_iterations(path, name, sizeof(name));

    if (n > 1)
        return gpt_hint(err, "another checkpoint of the run may be whole: name "
                             "one of the directories iter_* in %.150s", path);
    return n == 1 ? gpt_hint(err, "the only checkpoint there is %.100s", name)
                  : gpt_hint(err, "no directory iter_* is in %.150s", path);
}

/* Explains a path that does not exist: it may be the name of a model on a
 * hub. */
static int explain_missing(const char *path, struct gpt_err *err)
{
    const char *slash = strchr(path, '/');
    bool plain = path[0] != '.' && path[0] != '/' &&
                 (!slash || (slash[1] && !strchr(slash + 1, '/')));

    if (strcmp(path, "-") == 0)
        return gpt_hint(err, "a checkpoint needs a file that can be read at "
                             "any offset, which standard input is not: name a "
                             "file or a directory");
    return plain ? gpt_hint(err, "it is the name of a directory; models are "
                                 "not fetched by a name, download '%.100s' "
                                 "first", path)
                 : gpt_hint(err, "check the path: its directory is not there");
}

/* Explains a directory that has files of a format without those by which it is
 * recognised. False when there are none. */
static bool explain_lacking(const char *dir, struct gpt_err *err)
{
    for (const struct gpt_format *const *f = gpt_formats; *f; f++)
        if ((*f)->explain && (*f)->explain(dir, err))
            return true;
    return false;
}

/* The nearest directory above a file that is a checkpoint: files of a step of
 * DeepSpeed are up to three below it. */
static bool find_above(const char *file, char dir[GPT_PATH_BYTES])
{
    enum { LEVELS = 3 };

    if (snprintf(dir, GPT_PATH_BYTES, "%s", file) >= GPT_PATH_BYTES)
        return false;
    for (int i = 0; i < LEVELS && gpt_path_to_parent(dir); i++)
        if (gpt_format_of(dir))
            return true;
    return false;
}

/* Explains a file: users complete a path with Tab down to the file of weights,
 * name the one that says what the model is, or have half of a download. */
static int explain_file(const char *path, struct gpt_err *err)
{
    char dir[GPT_PATH_BYTES];

    if (gpt_path_ends_in(path, ".gguf"))
        return gpt_hint(err, "it does not begin as GGUF does: it may be copied "
                             "or downloaded in part");
    if (find_above(path, dir))
        return gpt_hint(err, "it is a file of a checkpoint: name the "
                             "directory, '%.200s'", dir);
    if (snprintf(dir, sizeof(dir), "%s", path) < GPT_PATH_BYTES &&
        gpt_path_to_parent(dir) && explain_lacking(dir, err))
        return GPT_OK;
    return gpt_hint(err, "it is a file: name the directory of a checkpoint");
}

/* Explains a directory that no front end recognises. */
static int explain_directory(const char *path, struct gpt_err *err)
{
    char below[GPT_PATH_BYTES];

    if (explain_lacking(path, err))
        return GPT_OK;
    if (gpt_format_below(path, below, sizeof(below)))
        return gpt_hint(err, "it is not a checkpoint itself; '%.200s' is",
                        below);
    return gpt_hint(err, "a checkpoint's directory holds %s or %s, one of "
                         "Hugging Face config.json",
                    GPT_TRACKER, GPT_MANIFEST);
}

void gpt_source_explain(const char *path, struct gpt_err *err)
{
    if (!err || err->hint[0])
        return;
    if (!gpt_path_is_dir(path) && gpt_in_explain(path, err) && err->hint[0])
        return;
    const struct gpt_format *format = gpt_format_of(path);

    if (!gpt_path_exists(path))
        explain_missing(path, err);
    else if (!gpt_path_is_dir(path)) {
        if (!format) /* for a path that is a file, this says all */
            explain_file(path, err);
    } else if (!format)
        explain_directory(path, err);
    else if (err->status == GPT_EDATA && gpt_path_holds(path, GPT_TRACKER))
        explain_run(path, err);
    else if (err->status == GPT_EDATA && format->explain)
        format->explain(path, err);
}
