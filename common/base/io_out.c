/* The atomic writer. A file is written under a temporary name in the directory
 * of its target; commit syncs it, renames it and syncs the directory, so a
 * crash at any point leaves the old complete file or the new one. Pipes,
 * devices and "-" cannot be renamed and are written directly ("streams").
 * Start at gpt_out_open(); io_commit.c is the end of a writer. */
#include "base/io.h"

#include "base/io_publish.h"
#include "base/memory.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BUFFER = 256 * 1024,
    UNBUFFERED = 64 * 1024, /* bytes that are not copied into the buffer */
};
#define WRITEBACK_EVERY (INT64_C(8) << 20)

/* ---- give up ---- */

/* Standard output stays open: it belongs to the process, which checks it at its
 * end. */
void gpt_out_free(struct gpt_out *out)
{
    gpt_out_unreserve(out);
    if (out->fd >= 0 && !out->standard_output)
        close(out->fd);
    gpt_free(out->path);
    gpt_free(out->target);
    gpt_free(out->tmp);
    gpt_free(out->memory ? out->memory : out->buffer);
    gpt_free(out);
}

void gpt_out_abort(struct gpt_out *out)
{
    if (!out)
        return;
    /* Only what this writer has made: a target that existed before, or a name
     * whose creation failed, is not touched. */
    if (out->temp || (out->part && out->tmp && !out->removal &&
                      !(out->flags & GPT_OUT_PART)))
        unlink(out->tmp ? out->tmp : out->target);
    gpt_temp_drop(out->temp);
    gpt_out_free(out);
}

/* PATH.part keeps what reached the kernel. The buffer is dropped on purpose:
 * the journal of the run says how many bytes count. */
void gpt_out_suspend(struct gpt_out *out)
{
    if (out)
        gpt_out_free(out);
}

/* ---- open ---- */

/* O_NOCTTY: a terminal that is written to must not become that of the
 * process. */
static int open_stream(struct gpt_out *out, struct gpt_err *err)
{
    out->stream = true;
    out->flags &= ~(unsigned)GPT_OUT_DIRECT;
    if (out->standard_output)
        out->fd = STDOUT_FILENO;
    else
        out->fd = open(out->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (out->fd < 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", out->path);
    return GPT_OK;
}

static int create(struct gpt_out *out, const char *name, struct gpt_err *err)
{
    /* Registered before it exists, as in io_dir.c: a signal in between finds
     * nothing to remove. */
    out->temp = gpt_temp_add(name, false);
    if (!out->temp)
        return gpt_fail(err, GPT_EFAIL, "cannot register '%s'", name);
    out->fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                   0666);
    if (out->fd >= 0)
        return GPT_OK;
    gpt_temp_drop(out->temp); /* not ours, should it exist */
    out->temp = NULL;
    if (errno == EEXIST)
        return gpt_out_exists(err, out->path);
    return gpt_out_cannot_create(err, out->path);
}

/* Keeps the first `at` bytes of PATH.part. */
static int open_part(struct gpt_out *out, int64_t at, struct gpt_err *err)
{
    struct stat st;
    /* A run that resumes must not create the file: without it the journal
     * describes something else. */
    int fresh = at == 0 ? O_CREAT | O_TRUNC : 0;

    out->fd = open(out->tmp, O_RDWR | O_CLOEXEC | O_NOFOLLOW | fresh, 0666);
    if (out->fd < 0 && fresh)
        return gpt_out_cannot_create(err, out->path);
    if (out->fd < 0 || fstat(out->fd, &st) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", out->tmp);
    if (st.st_size < at)
        return gpt_fail(err, GPT_EDATA, "'%s' has %lld bytes, must have %lld",
                        out->tmp, (long long)st.st_size, (long long)at);
    /* Bytes after `at` were written after the last entry of the journal and are
     * written again. */
    if (ftruncate(out->fd, at) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot set the size of '%s'",
                              out->tmp);
    out->flushed = out->written_back = at;
    out->part = true;
    return GPT_OK;
}

/* Opens what a run that was interrupted may have left, or makes it. The size is
 * set at once: bytes come at offsets, and those of the earlier run stay. */
static int open_kept(struct gpt_out *out, const char *name, int64_t expected,
                     struct gpt_err *err)
{
    out->fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (out->fd < 0)
        return gpt_out_cannot_create(err, out->path);
    if (ftruncate(out->fd, expected) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot set the size of '%s'",
                              out->path);
    atomic_store(&out->end, expected);
    out->part = true;
    return GPT_OK;
}

/* Opens a regular file. With at < 0 it gets a temporary name of its own. */
static int open_regular(struct gpt_out *out, int64_t expected, int64_t at,
                        struct gpt_err *err)
{
    const bool kept = out->flags & GPT_OUT_PART;
    struct stat st;

    bool done;

    /* What a killed writer of these files left is completed before anything is
     * said of them, and before its temporary files are swept. */
    GPT_TRY(gpt_publish_complete(out->path, &done, err));
    GPT_TRY(gpt_refuse_input(out->path, err));
    GPT_TRY(gpt_real_target(out->path, &out->target, err));
    /* The directory around it has a temporary name already, and appears at
     * once. */
    if (out->flags & GPT_OUT_INSIDE)
        return kept ? open_kept(out, out->target, expected, err)
                    : create(out, out->target, err);
    if (lstat(out->target, &st) == 0) {
        if (!(out->flags & GPT_OUT_FORCE))
            return gpt_out_exists(err, out->path);
        /* A file that is replaced keeps its permissions, which the umask would
         * change. */
        out->mode = st.st_mode & 0777;
    }
    if (at < 0)
        gpt_temp_sweep(out->target);
    out->tmp = at < 0 && !kept ? gpt_temp_name(out->target)
                               : gpt_part_name(out->target);
    if (!out->tmp)
        return gpt_no_memory(err, "a file name");
    if (kept)
        return open_kept(out, out->tmp, expected, err);
    return at < 0 ? create(out, out->tmp, err) : open_part(out, at, err);
}

static int open_out(struct gpt_out **out, const char *path, unsigned flags,
                    int64_t expected, int64_t at, struct gpt_err *err)
{
    struct gpt_out *o;
    struct stat st;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&o, 1, sizeof(*o), "an output file", err));
    o->fd = -1;
    o->flags = flags;
    o->standard_output = strcmp(path, "-") == 0;
    const char *name = o->standard_output ? "standard output" : path;
    GPT_TRY_GOTO(status,
                 gpt_new(&o->path, strlen(name) + 1, 1, "a file name", err),
                 fail);
    memcpy(o->path, name, strlen(name));
    /* stat(2) follows links: a link to a device is a device. */
    bool known = !o->standard_output && stat(path, &st) == 0;
    if (known && S_ISDIR(st.st_mode)) {
        status = gpt_fail(err, GPT_EIO, "cannot write '%s': it is a directory",
                          path);
        goto fail;
    }
    if (o->standard_output || (known && !S_ISREG(st.st_mode)))
        status = open_stream(o, err);
    else
        status = open_regular(o, expected, at, err);
    if (status == GPT_OK && expected > 0 && !o->stream)
        status = gpt_out_reserve(o, expected, err);
    if (status != GPT_OK)
        goto fail;
    *out = o;
    return GPT_OK;
fail:
    gpt_out_abort(o);
    return status;
}

int gpt_out_open(struct gpt_out **out, const char *path, unsigned flags,
                 int64_t expected, struct gpt_err *err)
{
    return open_out(out, path, flags, expected, -1, err);
}

/* `tmp` only says that there is a name to change. */
int gpt_out_open_removal(struct gpt_out **out, const char *path,
                         struct gpt_err *err)
{
    struct gpt_out *o;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&o, 1, sizeof(*o), "an output file", err));
    o->fd = -1;
    o->removal = true;
    o->flags = GPT_OUT_FORCE;
    GPT_TRY_GOTO(status, gpt_real_target(path, &o->target, err), fail);
    GPT_TRY_GOTO(status, gpt_refuse_input(path, err), fail);
    o->tmp = gpt_temp_name(o->target);
    if (o->tmp) {
        *out = o;
        return GPT_OK;
    }
    status = gpt_no_memory(err, "a file name");
fail:
    gpt_out_abort(o);
    return status;
}

int gpt_out_open_part(struct gpt_out **out, const char *path, unsigned flags,
                      int64_t at, struct gpt_err *err)
{
    return open_out(out, path, flags, 0, at, err);
}

/* ---- write ---- */

/* The flag makes the commit fail even when a caller ignores this status: a file
 * with a hole must not get its name. */
int gpt_out_cannot_write(struct gpt_out *out, size_t n, int64_t offset,
                         struct gpt_err *err)
{
    atomic_store(&out->failed, true);
    return gpt_fail_errno(err, GPT_EIO,
                          "cannot write %zu bytes at offset %lld of '%s'", n,
                          (long long)offset, out->path);
}

/* Starts writing to the disk early, so that the fsync at the end is short. */
static void write_back(struct gpt_out *out)
{
    sync_file_range(out->fd, out->written_back,
                    out->flushed - out->written_back, SYNC_FILE_RANGE_WRITE);
    out->written_back = out->flushed;
}

void gpt_out_flushed(struct gpt_out *out, size_t n)
{
    out->flushed += (int64_t)n;
    if (!out->stream && out->flushed - out->written_back >= WRITEBACK_EVERY)
        write_back(out);
}

static int put(struct gpt_out *out, const void *p, size_t n,
               struct gpt_err *err)
{
    /* pwrite(2) for files: threads that write at offsets of their own share the
     * descriptor, and with it the position. */
    if (gpt_raw_write(out->fd, p, n, out->stream ? -1 : out->flushed) != 0)
        return gpt_out_cannot_write(out, n, out->flushed, err);
    gpt_out_flushed(out, n);
    return GPT_OK;
}

int gpt_out_flush(struct gpt_out *out, struct gpt_err *err)
{
    /* Empty whatever happens: bytes that failed once must not be written again
     * at a later place. */
    size_t n = out->fill;

    if (out->flags & GPT_OUT_DIRECT)
        return gpt_direct_flush(out, err);
    assert(n <= BUFFER);
    out->fill = 0;
    return n > 0 ? put(out, out->buffer, n, err) : GPT_OK;
}

int gpt_out_begin_sync(struct gpt_out *out, struct gpt_err *err)
{
    GPT_TRY(gpt_out_flush(out, err));
    if (!out->stream && !(out->flags & GPT_OUT_NOSYNC))
        write_back(out);
    return GPT_OK;
}

int gpt_out_write(struct gpt_out *out, const void *p, size_t n,
                  struct gpt_err *err)
{
    if (out->flags & GPT_OUT_DIRECT)
        return gpt_direct_write(out, p, n, err);
    if (!out->buffer)
        GPT_TRY(gpt_new(&out->buffer, BUFFER, 1, "a write buffer", err));
    /* Large writes pass the buffer by; what waits in it goes first, to keep the
     * order. */
    if (n > BUFFER - out->fill || n >= UNBUFFERED)
        GPT_TRY(gpt_out_flush(out, err));
    if (n >= UNBUFFERED)
        return put(out, p, n, err);
    if (n > 0)
        memcpy(out->buffer + out->fill, p, n);
    out->fill += n;
    return GPT_OK;
}

/* Where the kernel does not go on, reading and writing does. */
int gpt_out_copy(struct gpt_out *out, struct gpt_in *in, int64_t offset,
                 int64_t n, struct gpt_err *err)
{
    char *piece = NULL;
    int status = gpt_out_flush(out, err);

    /* The kernel may copy less than asked, or refuse the pair of files (0): the
     * rest goes through memory. */
    while (status == GPT_OK && n > 0 && !out->stream) {
        int64_t done = gpt_raw_copy(out->fd, out->flushed,
                                    gpt_in_descriptor(in), offset, n);

        if (done < 0)
            return gpt_out_cannot_write(out, (size_t)n, out->flushed, err);
        if (done == 0)
            break;
        out->flushed += done;
        offset += done;
        n -= done;
    }
    if (status == GPT_OK && n > 0)
        status = gpt_new(&piece, BUFFER, 1, "a copy buffer", err);
    while (status == GPT_OK && n > 0) {
        size_t some = n < BUFFER ? (size_t)n : BUFFER;

        status = gpt_in_read(in, piece, offset, some, err);
        if (status == GPT_OK)
            status = put(out, piece, some, err);
        offset += (int64_t)some;
        n -= (int64_t)some;
    }
    gpt_free(piece);
    return status;
}

int gpt_out_printf(struct gpt_out *out, struct gpt_err *err, const char *fmt,
                   ...)
{
    char small[1024];
    char *large = NULL;
    va_list args, again;
    int status = GPT_OK;

    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(small, sizeof(small), fmt, args);
    va_end(args);
    if (n >= (int)sizeof(small)) {
        status = gpt_new(&large, (size_t)n + 1, 1, "a line of text", err);
        if (status == GPT_OK)
            vsnprintf(large, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    if (status == GPT_OK && n > 0)
        status = gpt_out_write(out, large ? large : small, (size_t)n, err);
    gpt_free(large);
    return status;
}

int gpt_out_pwrite(struct gpt_out *out, const void *p, size_t n,
                   int64_t offset, struct gpt_err *err)
{
    if (out->stream) {
        atomic_store(&out->failed, true);
        return gpt_fail(err, GPT_EIO,
                        "cannot write at an offset: '%s' is not a regular file",
                        out->path);
    }
    if (gpt_raw_write(out->fd, p, n, offset) != 0)
        return gpt_out_cannot_write(out, n, offset, err);
    /* writing to the disk begins early here, too; small writes are left to the
     * fsync */
    if (n >= UNBUFFERED && !(out->flags & GPT_OUT_NOSYNC))
        sync_file_range(out->fd, offset, (off_t)n, SYNC_FILE_RANGE_WRITE);
    long long end = offset + (long long)n, old = atomic_load(&out->end);
    /* The largest end that any thread has reached. A failed exchange has loaded
     * the present value into `old`. */
    while (old < end && !atomic_compare_exchange_weak(&out->end, &old, end))
        ;
    return GPT_OK;
}

int64_t gpt_out_block(const struct gpt_out *out)
{
    struct stat st;

    return !out->stream && fstat(out->fd, &st) == 0 ? st.st_blksize : 0;
}

int64_t gpt_out_tell(const struct gpt_out *out)
{
    int64_t at = out->flushed + (int64_t)out->fill;
    int64_t end = atomic_load(&out->end);

    return at > end ? at : end;
}

int gpt_out_reread(struct gpt_out *out, void *dst, size_t n, int64_t offset,
                   struct gpt_err *err)
{
    if (out->stream)
        return gpt_fail(err, GPT_EIO,
                        "cannot read back '%s': it is not a regular file",
                        out->path);
    GPT_TRY(gpt_out_flush(out, err));
    int64_t got = gpt_raw_read(out->fd, dst, n, offset);
    if (got < 0)
        return gpt_fail_errno(err, GPT_EIO,
                              "cannot read back %zu bytes at offset %lld of "
                              "'%s'",
                              n, (long long)offset, out->path);
    if ((size_t)got < n)
        return gpt_fail(err, GPT_EIO,
                        "cannot read back %zu bytes at offset %lld of '%s': "
                        "only %lld were written",
                        n, (long long)offset, out->path, (long long)got);
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
