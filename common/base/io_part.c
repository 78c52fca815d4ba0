/* PATH.part by name: the outputs of a run that was interrupted, published or
 * removed by the one that resumes it. Writing such a file is in io_out.c. */
#include "base/io_internal.h"

#include "base/memory.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* The name "PATH.part" beside the file that `path` really is; freed with
 * gpt_free(). */
static int part_of(char **part, const char *path, struct gpt_err *err)
{
    char *target;

    GPT_TRY(gpt_real_target(path, &target, err));
    *part = gpt_part_name(target);
    gpt_free(target);
    return *part ? GPT_OK
                 : gpt_no_memory(err, "a file name");
}

/* The mode is set before the rename, so that the new name never has another one
 * than the old. */
static int rename_part(const char *part, const char *path,
                       struct gpt_err *err)
{
    struct stat st;
    char *target;

    GPT_TRY(gpt_real_target(path, &target, err));
    int status = GPT_OK;
    if (lstat(target, &st) == 0 && chmod(part, st.st_mode & 0777) != 0)
        status = gpt_fail_errno(err, GPT_EIO, "cannot set the mode of '%s'",
                                part);
    if (status == GPT_OK && gpt_raw_rename(part, target, true) != 0)
        status = gpt_fail_errno(err, GPT_EIO, "cannot publish '%s'", path);
    gpt_free(target);
    return status;
}

int gpt_out_publish_part(const char *path, struct gpt_err *err)
{
    char *part;

    GPT_TRY(part_of(&part, path, err));
    int status = GPT_OK;
    if (gpt_path_exists(part)) /* else it was published before */
        status = rename_part(part, path, err);
    gpt_free(part);
    return status;
}

int gpt_out_sync_names(const char *path, struct gpt_err *err)
{
    char *target;

    GPT_TRY(gpt_real_target(path, &target, err));
    int status = GPT_OK;
    if (gpt_raw_fsync_parent(target) != 0)
        status = gpt_fail_errno(err, GPT_EIO, "cannot sync the directory of "
                                "'%s'", path);
    gpt_free(target);
    return status;
}

int gpt_out_remove_part(const char *path, struct gpt_err *err)
{
    char *part;

    GPT_TRY(part_of(&part, path, err));
    int status = GPT_OK;
    if (unlink(part) != 0 && errno != ENOENT)
        status = gpt_fail_errno(err, GPT_EIO, "cannot remove '%s'", part);
    gpt_free(part);
    return status;
}
