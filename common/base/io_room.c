/* Room for outputs, asked for before the work: a full disk is better known then
 * than after hours. Start at gpt_out_reserve().
 *
 * A disk reserves it. Where files are memory, that would make the pages, by one
 * thread, and the writes would handle each of them once more. There the outputs
 * that are open are added up instead, since all of them take of one room. */
#include "base/io_internal.h"

#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

static struct gpt_out *promises; /* outputs in memory, under the mutex */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static bool is_memory(const struct gpt_out *out)
{
    static const uint32_t tmpfs = GPT_FS_TMPFS;

    return gpt_raw_is_in(out->fd, &tmpfs, 1);
}

/* The bytes that an output has still to take of the room. Bytes that have a
 * page already are no longer free: those that were written, by an earlier run,
 * too. */
static int64_t bytes_left(const struct gpt_out *out)
{
    struct stat st;

    if (fstat(out->fd, &st) != 0)
        return out->promised;
    return gpt_max_i64(0, out->promised - (int64_t)st.st_blocks * 512);
}

static int refuse(const struct gpt_out *out, int64_t expected, int64_t others,
                  struct gpt_err *err)
{
    const int error = errno;
    struct statvfs fs;

    int status = gpt_fail_errno(err, GPT_EIO,
                                "cannot reserve %lld bytes for '%s'",
                                (long long)expected, out->path);
    if (error != ENOSPC || fstatvfs(out->fd, &fs) != 0)
        return status;
    const unsigned long long free =
        (unsigned long long)fs.f_bavail * fs.f_frsize;
    if (others > 0)
        return gpt_hint(err, "%llu bytes are free there, and %lld of them are "
                        "for other outputs", free, (long long)others);
    return gpt_hint(err, "%llu bytes are free there", free);
}

/* An output counts as soon as it has been admitted, and until it is freed. */
static int promise(struct gpt_out *out, int64_t expected, struct gpt_err *err)
{
    struct statvfs fs;
    struct stat st;
    int64_t others = 0;

    if (fstat(out->fd, &st) != 0 || fstatvfs(out->fd, &fs) != 0 ||
        fs.f_blocks == 0)
        return GPT_OK; /* one without a limit has no blocks */
    out->promised = expected;
    out->device = st.st_dev;
    pthread_mutex_lock(&mutex);
    for (const struct gpt_out *o = promises; o; o = o->next)
        if (o->device == out->device)
            others += bytes_left(o);
    const bool fits = (double)bytes_left(out) + (double)others <=
                      (double)fs.f_bavail * (double)fs.f_frsize;
    if (fits) {
        out->next = promises;
        promises = out;
    }
    pthread_mutex_unlock(&mutex);
    errno = ENOSPC;
    return fits ? GPT_OK : refuse(out, expected, others, err);
}

/* File systems that cannot reserve are taken at their word. */
int gpt_out_reserve(struct gpt_out *out, int64_t expected, struct gpt_err *err)
{
    int result;

    if (is_memory(out))
        return promise(out, expected, err);
    do
        /* The size stays, so that a reader of PATH.part never meets zeros that
         * were only reserved. */
        result = fallocate(out->fd, FALLOC_FL_KEEP_SIZE, 0, expected);
    while (result != 0 && errno == EINTR);
    out->reserved = result == 0;
    return result == 0 ||
                   (errno != ENOSPC && errno != EDQUOT && errno != EFBIG)
               ? GPT_OK
               : refuse(out, expected, 0, err);
}

void gpt_out_unreserve(struct gpt_out *out)
{
    pthread_mutex_lock(&mutex);
    for (struct gpt_out **o = &promises; *o; o = &(*o)->next)
        if (*o == out) {
            *o = out->next;
            break;
        }
    pthread_mutex_unlock(&mutex);
}
