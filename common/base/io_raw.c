/* System calls with the retries that POSIX asks for: interrupted calls, short
 * writes, descriptors that another process made non-blocking. */
#include "base/io_internal.h"

#include "base/fault.h"
#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

enum { CHUNK = 1 << 30 }; /* bytes a call; Linux stops just under 2^31 */

/* True when the call that failed is worth repeating. */
static bool again(int fd, short events)
{
    if (errno == EINTR)
        return true;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
        return false;
    struct pollfd wait = {.fd = fd, .events = events};
    return poll(&wait, 1, -1) >= 0 || errno == EINTR;
}

/* The hook stands at the system call itself, so that injected failures go
 * through every retry and message above it. */
static ssize_t write_once(int fd, const void *p, size_t n, int64_t offset)
{
    if (gpt_fault(GPT_FAULT_WRITE))
        return -1;
    return offset < 0 ? write(fd, p, n) : pwrite(fd, p, n, offset);
}

int gpt_raw_write(int fd, const void *p, size_t n, int64_t offset)
{
    const char *from = p;

    while (n > 0) {
        ssize_t done = write_once(fd, from, n < CHUNK ? n : CHUNK, offset);

        if (done < 0) {
            if (!again(fd, POLLOUT))
                return -1;
            continue;
        }
        /* write(2) of more than nothing that writes nothing: without an error
         * of its own it would be repeated for ever. */
        if (done == 0) {
            errno = EIO;
            return -1;
        }
        from += done;
        n -= (size_t)done;
        if (offset >= 0)
            offset += done;
    }
    return 0;
}

/* Reads once, as write_once() writes. */
static ssize_t read_once(int fd, void *p, size_t n, int64_t offset)
{
    if (gpt_fault(GPT_FAULT_READ))
        return -1;
    return offset < 0 ? read(fd, p, n) : pread(fd, p, n, offset);
}

bool gpt_write_all(int fd, const void *p, size_t n)
{
    return gpt_raw_write(fd, p, n, -1) == 0;
}

int64_t gpt_raw_read(int fd, void *p, size_t n, int64_t offset)
{
    char *to = p;
    size_t got = 0;

    while (got < n) {
        size_t want = n - got < CHUNK ? n - got : CHUNK;
        ssize_t done = read_once(fd, to + got, want,
                                 offset < 0 ? -1 : offset + (int64_t)got);

        if (done < 0) {
            /* A read that waits for a person or a pipe ends at a request to
             * stop. */
            if ((errno == EINTR && gpt_signals_stop()) || !again(fd, POLLIN))
                return -1;
            continue;
        }
        if (done == 0)
            break;
        got += (size_t)done;
    }
    return (int64_t)got;
}

int64_t gpt_raw_copy(int to, int64_t to_offset, int from, int64_t offset,
                     int64_t n)
{
    /* The kernel moves its own copies of both offsets; the descriptors'
     * positions stay where they are. */
    off_t in = offset, out = to_offset;
    ssize_t done;

    do
        done = gpt_fault(GPT_FAULT_WRITE)
                   ? -1
                   : copy_file_range(from, &in, to, &out,
                                     (size_t)(n < CHUNK ? n : CHUNK), 0);
    while (done < 0 && errno == EINTR);
    /* this happens across file systems, with old kernels and special files */
    if (done < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS ||
                     errno == EOPNOTSUPP || errno == EBADF ||
                     errno == ETXTBSY || errno == EPERM))
        return 0;
    return done;
}

int gpt_raw_fsync(int fd)
{
    int result;

    do
        result = gpt_fault(GPT_FAULT_FSYNC) ? -1 : fsync(fd);
    while (result != 0 && errno == EINTR);
    /* Pipes, terminals and some file systems have nothing to sync. */
    return result != 0 && (errno == EINVAL || errno == EROFS ||
                           errno == ENOTSUP)
               ? 0
               : result;
}

/* Renames on file systems without RENAME_NOREPLACE: link() never replaces. */
static int rename_by_link(const char *from, const char *to)
{
    if (link(from, to) == 0)
        return unlink(from);
    if (errno == EEXIST)
        return -1;
    struct stat st; /* without links either: a small race remains */
    if (lstat(to, &st) == 0) {
        errno = EEXIST;
        return -1;
    }
    return rename(from, to);
}

/* renameat2() decides about an existing target in the same step as it renames.
 * A check before a plain rename(2) would lose the file of a writer that came in
 * between. */
int gpt_raw_rename(const char *from, const char *to, bool force)
{
    if (gpt_fault(GPT_FAULT_RENAME))
        return -1;
    if (force)
        return rename(from, to);
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -1;
    return rename_by_link(from, to);
}

int gpt_raw_unlink(const char *path)
{
    return gpt_fault(GPT_FAULT_UNLINK) ? -1 : unlink(path);
}

int gpt_raw_fsync_parent(const char *path)
{
    char dir[GPT_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    int len = slash ? (int)(slash - path) : 1;

    if (slash == path)
        len = 1; /* the slash is the root directory itself */
    if (snprintf(dir, sizeof(dir), "%.*s", len, slash ? path : ".") >=
        (int)sizeof(dir)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? 0 : -1; /* writable but not readable */
    int result = gpt_raw_fsync(fd);
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

bool gpt_raw_is_in(int fd, const uint32_t *kinds, size_t n)
{
    struct statfs fs;

    if (fstatfs(fd, &fs) != 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((uint32_t)fs.f_type == kinds[i])
            return true;
    return false;
}
