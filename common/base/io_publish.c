/* The end of a file that io_out.c writes: synced and published, given up, or
 * left as PATH.part for going on later. */
#include "base/io_internal.h"

#include "base/memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

static void out_free(struct gpt_out *out)
{
    if (out->fd >= 0 && !out->standard_output)
        close(out->fd);
    gpt_free(out->path);
    gpt_free(out->target);
    gpt_free(out->tmp);
    gpt_free(out->buffer);
    gpt_free(out);
}

/* ---- commit ---- */

/* Everything up to the point where the name may change. */
static int make_durable(struct gpt_out *out, struct gpt_err *err)
{
    GPT_TRY(gpt_out_flush(out, err));
    if (atomic_load(&out->failed))
        return gpt_fail(err, GPT_EIO, "an earlier write to '%s' failed",
                        out->path);
    if (out->reserved && ftruncate(out->fd, gpt_out_tell(out)) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot set the size of '%s'",
                              out->path);
    if (out->mode && fchmod(out->fd, out->mode) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot set the mode of '%s'",
                              out->path);
    if (!(out->flags & GPT_OUT_NOSYNC) && gpt_raw_fsync(out->fd) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot sync '%s'", out->path);
    if (out->standard_output)
        return GPT_OK;
    int fd = out->fd;
    out->fd = -1;
    if (close(fd) != 0 && errno != EINTR)
        return gpt_fail_errno(err, GPT_EIO, "cannot close '%s'", out->path);
    return GPT_OK;
}

static int publish(struct gpt_out *out, struct gpt_err *err)
{
    bool force = out->flags & GPT_OUT_FORCE;

    if (gpt_raw_rename(out->tmp, out->target, force) != 0) {
        if (errno == EEXIST)
            return gpt_out_exists(err, out->path);
        return gpt_fail_errno(err, GPT_EIO, "cannot publish '%s'", out->path);
    }
    gpt_temp_drop(out->temp);
    out->temp = NULL;
    out->part = false;
    if (!(out->flags & GPT_OUT_NOSYNC) &&
        gpt_raw_fsync_parent(out->target) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot sync the directory of '%s'",
                              out->path);
    return GPT_OK;
}

int gpt_out_sync(struct gpt_out *out, struct gpt_err *err)
{
    GPT_TRY(gpt_out_flush(out, err));
    if (out->stream || (out->flags & GPT_OUT_NOSYNC))
        return GPT_OK;
    if (gpt_raw_fsync(out->fd) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot sync '%s'", out->path);
    return GPT_OK;
}

int gpt_out_commit(struct gpt_out *out, struct gpt_err *err)
{
    int status = make_durable(out, err);

    if (status == GPT_OK && out->tmp)
        status = publish(out, err);
    if (status != GPT_OK && !out->part) {
        gpt_out_abort(out);
        return status;
    }
    /* A file inside a directory stays registered until the directory is
     * published: see gpt_temp_drop_under(). */
    out_free(out);
    return status;
}

void gpt_out_abort(struct gpt_out *out)
{
    if (!out)
        return;
    if (out->temp || (out->part && out->tmp))
        unlink(out->tmp ? out->tmp : out->target);
    gpt_temp_drop(out->temp);
    out_free(out);
}

/* ---- PATH.part ---- */

void gpt_out_suspend(struct gpt_out *out)
{
    if (out)
        out_free(out);
}

/* What "PATH.part" of `path` is called; freed with gpt_free(). */
static int part_of(char **part, const char *path, struct gpt_err *err)
{
    char *target;

    GPT_TRY(gpt_real_target(path, &target, err));
    *part = gpt_part_name(target);
    gpt_free(target);
    return *part ? GPT_OK
                 : gpt_fail(err, GPT_EFAIL, "out of memory for a file name");
}

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

/* ---- a file at once ---- */

int gpt_write_file(const char *path, unsigned flags, const void *data,
                   size_t len, struct gpt_err *err)
{
    struct gpt_out *out;

    GPT_TRY(gpt_out_open(&out, path, flags, (int64_t)len, err));
    int status = gpt_out_write(out, data, len, err);
    if (status == GPT_OK)
        return gpt_out_commit(out, err);
    gpt_out_abort(out);
    return status;
}
