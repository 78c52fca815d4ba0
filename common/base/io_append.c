/* Logs that only grow. O_APPEND and one write(2) a line: lines of several
 * processes do not mix, and a killed one leaves whole lines. */
#include "base/io.h"

#include "base/io_internal.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct gpt_append {
    int fd;
    char *path;
    struct gpt_buf line;
};

/* The buffer of the line is kept between lines and goes with the log. */
static void append_free(struct gpt_append *a)
{
    if (a->fd >= 0)
        close(a->fd);
    gpt_buf_free(&a->line);
    gpt_free(a->path);
    gpt_free(a);
}

/* A link to a device (/dev/stdout) is followed, a link to a file is not: names
 * of logs can be guessed, and through a link under such a name this process
 * would write into the file that it points to. There is no O_TRUNC: a log of an
 * earlier run is continued. */
static int open_log(int *fd, const char *path, struct gpt_err *err)
{
    const int flags = O_WRONLY | O_APPEND | O_CLOEXEC;
    struct stat st;

    GPT_TRY(gpt_refuse_input(path, err));
    *fd = open(path, flags | O_CREAT | O_NOFOLLOW, 0666);
    if (*fd < 0 && errno == ELOOP) {
        if (stat(path, &st) != 0 || S_ISREG(st.st_mode)) {
            gpt_fail(err, GPT_EIO, "'%s' is a symbolic link", path);
            return gpt_hint(err, "give the name of the file itself");
        }
        *fd = open(path, flags);
    }
    if (*fd < 0 && errno == ENOENT)
        return gpt_out_cannot_create(err, path);
    return *fd >= 0 ? GPT_OK
                    : gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", path);
}

int gpt_append_open(struct gpt_append **a, const char *path,
                    struct gpt_err *err)
{
    struct gpt_append *f;
    int status;

    *a = NULL;
    GPT_TRY(gpt_new(&f, 1, sizeof(*f), "a log", err));
    f->fd = -1;
    GPT_TRY_GOTO(status,
                 gpt_new(&f->path, strlen(path) + 1, 1, "a file name", err),
                 fail);
    memcpy(f->path, path, strlen(path));
    GPT_TRY_GOTO(status, open_log(&f->fd, path, err), fail);
    *a = f;
    return GPT_OK;
fail:
    append_free(f);
    return status;
}

int gpt_append_bytes(struct gpt_append *a, const void *p, size_t n,
                     struct gpt_err *err)
{
    if (gpt_raw_write(a->fd, p, n, -1) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot write %zu bytes to '%s'",
                              n, a->path);
    return GPT_OK;
}

/* The line is put together first: two writes could be torn apart by another
 * process, or by a kill. */
int gpt_append_line(struct gpt_append *a, const char *line,
                    struct gpt_err *err)
{
    a->line.len = 0;
    if (gpt_buf_printf(&a->line, "%s\n", line) != GPT_OK)
        return gpt_no_memory(err, a->path);
    return gpt_append_bytes(a, a->line.data, a->line.len, err);
}

int gpt_append_sync(struct gpt_append *a, struct gpt_err *err)
{
    if (gpt_raw_fsync(a->fd) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot sync '%s'", a->path);
    return GPT_OK;
}

int gpt_append_lock(struct gpt_append *a, struct gpt_err *err)
{
    struct stat st;

    /* flock(2) belongs to the open file, so the kernel releases it when a
     * process is killed: no stale lock remains. */
    if (flock(a->fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return gpt_fail(err, GPT_EEXIST, "'%s': another process has it",
                            a->path);
        return gpt_fail_errno(err, GPT_EIO, "cannot lock '%s'", a->path);
    }
    /* The process that had the lock may have removed the file between our open
     * and our lock. */
    if (fstat(a->fd, &st) != 0 || st.st_nlink == 0)
        return gpt_fail(err, GPT_EEXIST, "'%s': another process has just "
                        "removed it", a->path);
    return GPT_OK;
}

/* A log of steps is cut when a resumed run repeats them. */
int gpt_append_cut(struct gpt_append *a, int64_t size, struct gpt_err *err)
{
    if (ftruncate(a->fd, size) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot set the size of '%s'",
                              a->path);
    return GPT_OK;
}

/* The first of two failures is the one that is reported. */
int gpt_append_close(struct gpt_append *a, struct gpt_err *err)
{
    if (!a)
        return GPT_OK;
    int status = gpt_append_sync(a, err);
    int fd = a->fd;
    a->fd = -1;
    if (close(fd) != 0 && errno != EINTR && status == GPT_OK)
        status = gpt_fail_errno(err, GPT_EIO, "cannot close '%s'", a->path);
    append_free(a);
    return status;
}

/* Drops a log after a failure: lines that were written stay, and nothing is
 * synced. */
void gpt_append_drop(struct gpt_append *a)
{
    if (a)
        append_free(a);
}
