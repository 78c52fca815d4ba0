/* PATH.part by name: the outputs of a run that was interrupted, published or
 * removed by the one that resumes it. Writing such a file is in io_out.c. */
#include "base/io_publish.h"

#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Makes the name "PATH.part" beside the file that `path` really is; freed with
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
 * than the old. A part that is not there was published before: there is nothing
 * to do for it. */
static int add_part(struct gpt_publish_entry *e, size_t *n, const char *path,
                    struct gpt_err *err)
{
    struct stat st;
    char *target, *part;

    GPT_TRY(gpt_real_target(path, &target, err));
    part = gpt_part_name(target);
    int status = part ? GPT_OK : gpt_no_memory(err, "a file name");
    /* Frees both names like a failure, with GPT_OK. */
    if (status == GPT_OK && !gpt_path_exists(part))
        goto skip;
    if (status == GPT_OK && lstat(target, &st) == 0 &&
        chmod(part, st.st_mode & 0777) != 0)
        status = gpt_fail_errno(err, GPT_EIO, "cannot set the mode of '%s'",
                                part);
    if (status == GPT_OK) {
        e[(*n)++] = (struct gpt_publish_entry){
            .from = part, .to = target, .force = true};
        return GPT_OK;
    }
skip:
    gpt_free(part);
    gpt_free(target);
    return status;
}

/* Adds the removal of a file of the old set that the new one does not have,
 * such as the .json of an older run: left behind, it would describe tokens that
 * are gone. */
static int add_gone(struct gpt_publish_entry *e, size_t *n, const char *path,
                    struct gpt_err *err)
{
    char *target;

    if (!gpt_path_exists(path))
        return GPT_OK;
    GPT_TRY(gpt_real_target(path, &target, err));
    /* no `from`: the target only goes */
    e[(*n)++] = (struct gpt_publish_entry){.to = target, .force = true};
    return GPT_OK;
}

int gpt_out_publish_parts(const char *const *paths, size_t n,
                          const char *const *gone, size_t n_gone,
                          struct gpt_err *err)
{
    struct gpt_publish_entry *e;
    size_t n_parts = 0;
    int status = GPT_OK;
    bool pending;

    /* Another program may have died over the end of the same work. */
    if (n > 0)
        GPT_TRY(gpt_in_settle(paths[n - 1], err));
    GPT_TRY(gpt_new(&e, n + n_gone + 1, sizeof(*e), "outputs", err));
    /* Removals come first: at no moment is a new file beside a stale one. */
    for (size_t i = 0; i < n_gone; i++)
        GPT_TRY_GOTO(status, add_gone(e, &n_parts, gone[i], err), out);
    for (size_t i = 0; i < n; i++)
        GPT_TRY_GOTO(status, add_part(e, &n_parts, paths[i], err), out);
    status = gpt_publish(e, n_parts, true, &pending, err);
out:
    for (size_t i = 0; i < n_parts; i++) {
        gpt_free((char *)(uintptr_t)e[i].from);
        gpt_free((char *)(uintptr_t)e[i].to);
    }
    gpt_free(e);
    return status;
}

int gpt_out_part(char *buf, size_t cap, const char *path, struct gpt_err *err)
{
    char *part;

    GPT_TRY(part_of(&part, path, err));
    const bool fits = (size_t)snprintf(buf, cap, "%s", part) < cap;
    gpt_free(part);
    return fits ? GPT_OK
                : gpt_fail(err, GPT_EFAIL, "the path '%s' is too long", path);
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

/* What the record was for is done, so that this is no failure; but the next run
 * finds it, and takes it for that of one to resume. */
void gpt_out_remove_record(const char *path)
{
    if (unlink(path) != 0 && errno != ENOENT)
        gpt_warn("'%s' cannot be removed: %s; nothing is left to resume from "
                 "it, so it may be removed by hand", path, strerror(errno));
}
