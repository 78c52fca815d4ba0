/* Where a checkpoint may be written; see gpt_format_check_place() in format.h.
 * A directory that holds something else would afterwards be two things at once,
 * and which one a reader opens would depend on the reader; or, where a format
 * replaces its directory, the other thing would be gone. */
#include "checkpoint/format.h"
#include "checkpoint/names.h"

#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* True for files of weights, whatever program wrote them. */
static bool holds_weights(const char *name)
{
    return gpt_path_ends_in(name, ".safetensors") ||
           strncmp(name, "pytorch_model", 13) == 0;
}

/* Finds in `dir` a file of weights or, if `any`, anything but hidden files;
 * "" when there is none, or no such directory. */
static int find_file(const char *dir, bool any, char *found, size_t cap,
                     struct gpt_err *err)
{
    DIR *d = opendir(dir);

    found[0] = '\0';
    if (!d)
        return errno == ENOENT
                   ? GPT_OK
                   : gpt_fail_errno(err, GPT_EIO, "cannot read '%s'", dir);
    for (struct dirent *e; !found[0] && (e = readdir(d));)
        if (e->d_name[0] != '.' && (any || holds_weights(e->d_name)))
            snprintf(found, cap, "%s", e->d_name);
    closedir(d);
    return GPT_OK;
}

/* An iteration is recognised as native as its root is, but nothing is saved
 * into it. */
static int check_root(const char *dir, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];

    GPT_TRY(gpt_path_join(path, sizeof(path), dir, GPT_MANIFEST, err));
    if (!gpt_path_exists(path))
        return GPT_OK;
    gpt_fail(err, GPT_EEXIST, "%s is one checkpoint of a run", dir);
    return gpt_hint(err, "name the directory above it, or a new one");
}

/* What is above a new file or directory. Roots of runs are made with all
 * directories above them, where they are locked: `made`. The one that another
 * is in has to be there. */
static int check_parent(const char *path, bool made, struct gpt_err *err)
{
    char parent[GPT_PATH_BYTES], nearest[GPT_PATH_BYTES];

    if (gpt_path_nearest(nearest, path) && !gpt_path_is_dir(nearest))
        return gpt_fail(err, GPT_EIO, "'%s': '%s' is no directory", path,
                        nearest);
    snprintf(parent, sizeof(parent), "%s", path);
    for (char *end = parent + strlen(parent); end > parent && end[-1] == '/';)
        *--end = '\0';
    char *slash = strrchr(parent, '/');
    if (made || !slash || slash == parent)
        return GPT_OK;
    *slash = '\0';
    if (gpt_path_is_dir(parent))
        return GPT_OK;
    gpt_fail(err, GPT_EIO, "'%s': the directory '%s' is not there", path,
             parent);
    return gpt_hint(err, "make it first: mkdir -p '%.150s'", parent);
}

/* A file is replaced as a whole, where that is allowed, if it is of the same
 * format. */
static int check_file(const struct gpt_format *format, const char *path,
                      struct gpt_err *err)
{
    if (!gpt_path_exists(path))
        return check_parent(path, false, err);
    if (gpt_path_is_dir(path)) {
        gpt_fail(err, GPT_EEXIST,
                 "'%s' is a directory; a checkpoint of format %s is a file",
                 path, format->title);
        return gpt_hint(err, "name a file in it: '%.200s/model.%s'", path,
                        format->name);
    }
    errno = 0;
    if (format->recognises(path))
        return GPT_OK;
    if (gpt_path_hidden(errno))
        return gpt_fail_errno(err, GPT_EIO, "cannot look into '%s'", path);
    gpt_fail(err, GPT_EEXIST, "'%s' is there, and is no file of format %s",
             path, format->title);
    return gpt_hint(err, "name a new file");
}

/* A new directory that would be called as files are is a mistake: the file was
 * meant. */
static int check_name(const struct gpt_format *format, const char *dir,
                      struct gpt_err *err)
{
    static const char *const suffixes[] = {".safetensors", ".bin", ".pt",
                                           ".pth", ".gguf"};

    for (size_t i = 0; i < GPT_COUNT(suffixes); i++)
        if (gpt_path_ends_in(dir, suffixes[i])) {
            gpt_fail(err, GPT_EUSAGE,
                     "'%s' is a name for a file; a checkpoint of format %s is "
                     "a directory", dir, format->title);
            return gpt_hint(err, "name a directory");
        }
    return GPT_OK;
}

int gpt_format_check_place(const struct gpt_format *format, const char *dir,
                           struct gpt_err *err)
{
    const struct gpt_format *there;
    char found[256];

    if (strcmp(dir, "-") == 0) {
        gpt_fail(err, GPT_EUSAGE, "a checkpoint needs a file that can be "
                                  "written at any offset, which standard "
                                  "output is not");
        return gpt_hint(err, "name a %s; './-' is one of that name",
                        format->is_file ? "file" : "directory");
    }
    if (format->is_file)
        return check_file(format, dir, err);
    GPT_TRY(gpt_format_find(&there, dir, err));
    if (there && there != format) {
        gpt_fail(err, GPT_EEXIST,
                 "%s holds a checkpoint of format %s; one of format %s is "
                 "neither written among its files nor in its place",
                 dir, there->title, format->title);
        return gpt_hint(err, "name a new directory");
    }
    if (there && format->shares_dir)
        return check_root(dir, err);
    if (there)
        return GPT_OK;
    if (!gpt_path_exists(dir)) {
        GPT_TRY(check_name(format, dir, err));
        return check_parent(dir, format->shares_dir, err);
    }
    if (!gpt_path_is_dir(dir)) {
        gpt_fail(err, GPT_EEXIST, "'%s' is there, and is no directory", dir);
        return gpt_hint(err, "name a new directory");
    }
    GPT_TRY(find_file(dir, !format->shares_dir, found, sizeof(found), err));
    if (!found[0])
        return GPT_OK;
    gpt_fail(err, GPT_EEXIST,
             "%s holds '%s' and is no checkpoint of format %s; one is neither "
             "written among its files nor in its place",
             dir, found, format->title);
    return gpt_hint(err, "name a new directory");
}
