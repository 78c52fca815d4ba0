/* The end of a writer: what it wrote is made durable, and gets its name. The
 * order is data, name, directory: were the name first, a crash could leave it
 * on an empty file. Several writers end together here, and io_publish.c gives
 * all of their files their names. Start at gpt_out_commit_all(). */
#include "base/io.h"

#include "base/io_publish.h"
#include "base/memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

/* Does everything up to the point where the name may change. */
static int make_durable(struct gpt_out *out, struct gpt_err *err)
{
    GPT_TRY(gpt_out_flush(out, err));
    if (atomic_load(&out->failed))
        return gpt_fail(err, GPT_EIO, "an earlier write to '%s' failed",
                        out->path);
    /* Gives back what was reserved and not used. */
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
    /* close(2) is where network file systems report a full disk. Interrupted,
     * it has closed all the same, on Linux. */
    int fd = out->fd;
    gpt_out_unreserve(out); /* what it promised is written */
    out->fd = -1;
    if (close(fd) != 0 && errno != EINTR)
        return gpt_fail_errno(err, GPT_EIO, "cannot close '%s'", out->path);
    return GPT_OK;
}

/* A removal is an entry without a new file. */
static struct gpt_publish_entry entry_of(const struct gpt_out *out)
{
    return (struct gpt_publish_entry){
        .from = out->removal ? NULL : out->tmp,
        .to = out->target,
        .force = out->flags & GPT_OUT_FORCE,
    };
}

/* From here on a temporary file may be what a journal names: an exit of the
 * process must leave it alone. Files that got their names, or that a journal
 * will give them, are no longer this process's to remove. */
static int publish(struct gpt_publish_entry *entries, size_t n_entries,
                   struct gpt_out *const *outs, size_t n, struct gpt_err *err)
{
    bool sync = false, pending;

    for (size_t i = 0; i < n; i++)
        if (outs[i] && outs[i]->tmp) {
            gpt_temp_drop(outs[i]->temp);
            sync |= !(outs[i]->flags & GPT_OUT_NOSYNC);
        }
    int status = gpt_publish(entries, n_entries, sync, &pending, err);
    for (size_t i = 0; i < n; i++)
        if (outs[i] && outs[i]->tmp) {
            if (status != GPT_OK && !pending && !outs[i]->part)
                unlink(outs[i]->tmp);
            outs[i]->temp = NULL;
        }
    return status;
}

/* One path for success and failure: whatever happens, the writers are gone
 * afterwards and no temporary file is left, but PATH.part stays for another
 * try. */
int gpt_out_commit_all(struct gpt_out *const *outs, size_t n,
                       struct gpt_err *err)
{
    struct gpt_publish_entry *entries = NULL;
    size_t n_entries = 0;
    int status;

    /* Every disk is at work before the first file is waited for. */
    GPT_TRY_GOTO(status, gpt_new(&entries, n, sizeof(*entries), "outputs", err),
                 fail);
    for (size_t i = 0; i < n; i++)
        if (outs[i] && !outs[i]->removal)
            GPT_TRY_GOTO(status, gpt_out_begin_sync(outs[i], err), fail);
    for (size_t i = 0; i < n; i++) {
        if (!outs[i])
            continue;
        if (!outs[i]->removal)
            GPT_TRY_GOTO(status, make_durable(outs[i], err), fail);
        if (outs[i]->tmp)
            entries[n_entries++] = entry_of(outs[i]);
    }
    status = publish(entries, n_entries, outs, n, err);
    /* A file inside a directory stays registered until the directory is
     * published: see gpt_temp_drop_under(). */
    for (size_t i = 0; i < n; i++)
        if (outs[i])
            gpt_out_free(outs[i]);
    gpt_free(entries);
    return status;
fail:
    for (size_t i = 0; i < n; i++)
        if (outs[i] && outs[i]->part)
            gpt_out_suspend(outs[i]);
        else
            gpt_out_abort(outs[i]);
    gpt_free(entries);
    return status;
}

int gpt_out_commit(struct gpt_out *out, struct gpt_err *err)
{
    return gpt_out_commit_all(&out, 1, err);
}

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
