/* A symbolic link that is replaced at once; see io.h. A link cannot be changed:
 * a new one gets the name by rename(2), so that there is always one. */
#include "base/io.h"

#include "base/io_internal.h"
#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* readlink(2) writes no end, and says nothing of a target that was cut: `cap`
 * is larger than any that this program makes. */
int gpt_link_read(const char *path, char *target, size_t cap)
{
    const ssize_t n = readlink(path, target, cap - 1);

    if (n < 0)
        return errno == EINVAL ? GPT_EDATA : GPT_EIO;
    target[n] = '\0';
    return GPT_OK;
}

/* True when there is nothing to do. Anything else of that name but a link is
 * not ours to replace. */
static int check_old(const char *path, const char *target, bool *same,
                     struct gpt_err *err)
{
    char old[PATH_MAX];
    const int status = gpt_link_read(path, old, sizeof(old));

    *same = status == GPT_OK && strcmp(old, target) == 0;
    if (status == GPT_EDATA)
        return gpt_fail(err, GPT_EEXIST, "'%s' exists and is no link", path);
    return GPT_OK;
}

/* Registered before it exists, as every temporary file is: a signal between the
 * two finds nothing to remove. */
static int replace(const char *tmp, const char *path, const char *target,
                   struct gpt_err *err)
{
    struct gpt_temp *temp = gpt_temp_add(tmp, false);
    bool made = false;

    if (!temp)
        return gpt_no_memory(err, "a file name");
    made = symlink(target, tmp) == 0;
    if (made && gpt_raw_rename(tmp, path, true) == 0) {
        gpt_temp_drop(temp);
        if (gpt_raw_fsync_parent(path) == 0)
            return GPT_OK;
        return gpt_fail_errno(err, GPT_EIO, "cannot sync the directory of '%s'",
                              path);
    }
    int status =
        gpt_fail_errno(err, GPT_EIO, "cannot make the link '%s'", path);

    if (made)
        unlink(tmp);
    gpt_temp_drop(temp);
    return status;
}

int gpt_link_write(const char *path, const char *target, struct gpt_err *err)
{
    bool same;

    GPT_TRY(check_old(path, target, &same, err));
    if (same)
        return GPT_OK;
    char *tmp = gpt_temp_name(path);
    int status = tmp ? replace(tmp, path, target, err)
                     : gpt_no_memory(err, "a file name");
    gpt_free(tmp);
    return status;
}
