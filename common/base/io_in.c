/* Input files: size first, then reads at offsets. */
#include "base/io_internal.h"

#include "base/hash.h"
#include "base/io_publish.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OTHER_FILES = 128 }; /* that may be open as well */

struct gpt_in {
    int fd;
    int64_t size;
    char *path;
    void *map; /* NULL until gpt_in_map() */
    struct gpt_look *watch; /* of the map; NULL: no memory */
    struct gpt_buf last_words; /* where the map is not whole any more */
    /* NULL until gpt_in_look_begin(), or for good */
    _Atomic(struct gpt_look *) look;
    struct gpt_block_sums *sums; /* NULL until gpt_in_keep_sums() */
};

/* Reports a failed read of a stream, which has no offset. */
static int cannot_read(struct gpt_err *err, const char *path)
{
    return gpt_fail_errno(err, GPT_EIO, "cannot read '%s'", path);
}

/* A file that is missing may be one whose writer died while it gave several
 * files their names: these are completed first. */
static int open_existing(int *fd, const char *path, int flags,
                         struct gpt_err *err)
{
    bool done = false;

    *fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (*fd < 0 && errno == ENOENT) {
        GPT_TRY(gpt_publish_complete(path, &done, err));
        *fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    }
    return *fd >= 0 ? GPT_OK
                    : gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", path);
}

/* Opens a regular file. Not blocking: a FIFO is refused instead of waited
 * for. */
static int open_regular(int *fd, struct stat *st, const char *path,
                        struct gpt_err *err)
{
    GPT_TRY(open_existing(fd, path, O_NONBLOCK, err));
    if (fstat(*fd, st) != 0)
        return cannot_read(err, path);
    if (S_ISREG(st->st_mode))
        return GPT_OK;
    return gpt_fail(err, GPT_EIO, "'%s' is %s, not a regular file", path,
                    S_ISDIR(st->st_mode)    ? "a directory"
                    : S_ISFIFO(st->st_mode) ? "a pipe"
                    : S_ISSOCK(st->st_mode) ? "a socket"
                                            : "a device");
}

int gpt_in_open(struct gpt_in **in, const char *path, struct gpt_err *err)
{
    struct gpt_in *f;
    struct stat st;
    int status;

    *in = NULL;
    GPT_TRY(gpt_new(&f, 1, sizeof(*f), "a file", err));
    f->fd = -1;
    GPT_TRY_GOTO(status,
                 gpt_new(&f->path, strlen(path) + 1, 1, "a file name", err),
                 fail);
    memcpy(f->path, path, strlen(path));
    /* Everything below relies on a size that is known and on pread(2). */
    GPT_TRY_GOTO(status, open_regular(&f->fd, &st, path, err), fail);
    f->size = st.st_size;
    *in = f;
    return GPT_OK;
fail:
    gpt_in_close(f);
    return status;
}

/* Data sets of thousands of shards keep all their files open. Asked for before
 * the first is opened, the limit is reported with the number needed, not by a
 * failure in the middle. */
int gpt_in_allow(int64_t files, struct gpt_err *err)
{
    const rlim_t need = (rlim_t)files + OTHER_FILES;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need)
        return GPT_OK;
    if (limit.rlim_max < need) {
        gpt_fail(err, GPT_EIO, "%lld files must be open at once beside %d of "
                 "the program's own, the limit is %lld", (long long)files,
                 OTHER_FILES, (long long)limit.rlim_max);
        return gpt_hint(err, "raise it: ulimit -H -n %lld", (long long)need);
    }
    limit.rlim_cur = need;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        return gpt_fail_errno(err, GPT_EIO,
                              "cannot raise the limit of open files to %lld",
                              (long long)need);
    return GPT_OK;
}

void gpt_in_close(struct gpt_in *in)
{
    if (!in)
        return;
    if (in->watch)
        gpt_look_close(in->watch);
    else if (in->map && in->size > 0)
        munmap(in->map, (size_t)in->size);
    gpt_look_close(atomic_load(&in->look));
    gpt_sums_close(in->sums);
    if (in->fd >= 0)
        close(in->fd);
    gpt_buf_free(&in->last_words);
    gpt_free(in->path);
    gpt_free(in);
}

int64_t gpt_in_size(const struct gpt_in *in)
{
    return in->size;
}

/* The inode cannot be another file's while this one is open. */
bool gpt_in_is_current(const struct gpt_in *in)
{
    struct stat mine, now;

    return fstat(in->fd, &mine) == 0 && stat(in->path, &now) == 0 &&
           mine.st_dev == now.st_dev && mine.st_ino == now.st_ino;
}

/* The stamp is all zero where the system does not say: then it matches no
 * file. */
struct gpt_in_stamp gpt_in_stamp(const struct gpt_in *in)
{
    struct stat st;

    if (fstat(in->fd, &st) != 0)
        return (struct gpt_in_stamp){.size = 0};
    return (struct gpt_in_stamp){
        .device = (int64_t)st.st_dev,
        .inode = (int64_t)st.st_ino,
        .size = st.st_size,
        .seconds = st.st_mtim.tv_sec,
        .nanoseconds = st.st_mtim.tv_nsec,
    };
}

const char *gpt_in_path(const struct gpt_in *in)
{
    return in->path;
}

int gpt_in_descriptor(const struct gpt_in *in)
{
    return in->fd;
}

int gpt_in_keep_sums(struct gpt_in *in, struct gpt_err *err)
{
    return in->sums ? GPT_OK : gpt_sums_open(&in->sums, in->size, err);
}

bool gpt_in_keeps_sums(const struct gpt_in *in)
{
    return in->sums != NULL;
}

struct gpt_block_sums *gpt_in_sums(const struct gpt_in *in)
{
    return in->sums;
}

int gpt_in_read(struct gpt_in *in, void *dst, int64_t offset, size_t n,
                struct gpt_err *err)
{
    /* Written so that nothing overflows: offset + n may, for numbers out of a
     * hostile file. */
    if (offset < 0 || offset > in->size ||
        n > (uint64_t)(in->size - offset))
        return gpt_fail(err, GPT_EDATA,
                        "'%s' is cut short: %zu bytes wanted at offset %lld, "
                        "the file has %lld",
                        in->path, n, (long long)offset, (long long)in->size);
    /* The file may have been cut since it was opened: the size of then is no
     * promise. */
    int64_t got = gpt_raw_read(in->fd, dst, n, offset);
    if (got < 0)
        return gpt_fail_errno(err, GPT_EIO,
                              "cannot read %zu bytes at offset %lld of '%s'", n,
                              (long long)offset, in->path);
    if ((size_t)got < n)
        return gpt_fail(err, GPT_EDATA,
                        "'%s' shrank while it was read: end at offset %lld",
                        in->path, (long long)(offset + got));
    return GPT_OK;
}

static int report_gone(const struct gpt_in *in, struct gpt_err *err)
{
    gpt_fail(err, GPT_EIO, "cannot read '%s': a page of it is gone", in->path);
    return gpt_hint(err, "another process has cut the file, or its disk fails");
}

/* Readers of a map look at it without asking whether it is whole. */
static void guard(struct gpt_in *in)
{
    struct gpt_err gone;

    report_gone(in, &gone);
    if (gpt_log_prepare_error(&in->last_words, &gone) != GPT_OK)
        return; /* zeros that are taken for the file would be worse */
    in->watch = gpt_look_at(in->map, (size_t)in->size);
    if (in->watch)
        gpt_look_end_with(in->watch, in->last_words.data);
}

int gpt_in_map(struct gpt_in *in, const uint8_t **data, struct gpt_err *err)
{
    /* mmap(2) refuses length 0; callers get an address all the same and never
     * read from it. */
    static uint8_t nothing[1];

    if (!in->map && in->size == 0)
        in->map = nothing;
    if (!in->map) {
        void *p = mmap(NULL, (size_t)in->size, PROT_READ, MAP_SHARED, in->fd,
                       0);

        if (p == MAP_FAILED)
            return gpt_fail_errno(err, GPT_EIO, "cannot map '%s'", in->path);
        in->map = p;
        guard(in);
    }
    *data = in->map;
    return GPT_OK;
}

/* A mapping outlives its descriptor. Thousands of mapped shards would otherwise
 * use up the limit of open files. */
void gpt_in_map_only(struct gpt_in *in)
{
    if (!in->map || in->fd < 0)
        return;
    close(in->fd);
    in->fd = -1;
}

void gpt_in_watch(struct gpt_in *in)
{
    if (in->watch)
        gpt_look_end_with(in->watch, NULL);
}

int gpt_in_whole(const struct gpt_in *in, struct gpt_err *err)
{
    if (!in->watch || !gpt_look_lost(in->watch))
        return GPT_OK;
    return report_gone(in, err);
}

/* ---- looking ---- */

/* Two threads may come here at once: one of them keeps what it has made. */
void gpt_in_look_begin(struct gpt_in *in)
{
    struct gpt_look *none = NULL;

    if (atomic_load(&in->look) || in->fd < 0)
        return;
    struct gpt_look *look = gpt_look_open(in->fd, in->size);
    if (look && !atomic_compare_exchange_strong(&in->look, &none, look))
        gpt_look_close(look);
}

const uint8_t *gpt_in_look(const struct gpt_in *in, int64_t offset, size_t n)
{
    const struct gpt_look *look = atomic_load(&in->look);

    return look && offset >= 0 && offset <= in->size &&
                   n <= (uint64_t)(in->size - offset)
               ? gpt_look_data(look) + offset
               : NULL;
}

/* The size tells what no fault does: the rest of the page in which a file ends
 * now is zeros. */
int gpt_in_look_check(const struct gpt_in *in, struct gpt_err *err)
{
    const struct gpt_look *look = atomic_load(&in->look);
    struct stat st;

    if (!look)
        return GPT_OK;
    if (fstat(in->fd, &st) != 0)
        return cannot_read(err, in->path);
    if (st.st_size < in->size)
        return gpt_fail(err, GPT_EDATA,
                        "'%s' shrank while it was read: end at offset %lld",
                        in->path, (long long)st.st_size);
    if (gpt_look_lost(look))
        return gpt_fail(err, GPT_EIO, "cannot read '%s': a page of it is gone",
                        in->path);
    return GPT_OK;
}

void gpt_in_look_drop(const struct gpt_in *in, int64_t offset, int64_t n)
{
    if (n > 0 && gpt_in_look(in, offset, (size_t)n))
        gpt_look_drop(atomic_load(&in->look), offset, n);
}

void gpt_in_look_pass(const struct gpt_in *in, int64_t offset, int64_t n)
{
    if (n > 0 && gpt_in_look(in, offset, (size_t)n))
        gpt_look_pass(atomic_load(&in->look), offset, n);
}

/* ---- whole files ---- */

static int too_large(struct gpt_err *err, const char *path, int64_t limit)
{
    return gpt_fail(err, GPT_EDATA, "'%s' is larger than %lld bytes", path,
                    (long long)limit);
}

/* A file's size is what to expect; pipes have none, and others may lie (/proc)
 * or change, so the end is where read(2) says. */
static int read_to_end(int fd, const char *path, int64_t limit, char **data,
                       size_t *len, struct gpt_err *err)
{
    struct stat st;
    size_t cap = 0, need = 64 * 1024;

    if (fstat(fd, &st) != 0)
        return cannot_read(err, path);
    if (S_ISREG(st.st_mode) && st.st_size > limit)
        return too_large(err, path, limit);
    if (S_ISREG(st.st_mode) && st.st_size > 0)
        need = (size_t)st.st_size + 2; /* one to see the end, one for NUL */
    for (;; need = cap + 1) {
        GPT_TRY(gpt_grow(data, &cap, need, 1, path, err));
        size_t room = cap - 1 - *len;
        int64_t got = gpt_raw_read(fd, *data + *len, room, -1);
        if (got < 0)
            return cannot_read(err, path);
        *len += (size_t)got;
        if ((uint64_t)*len > (uint64_t)limit)
            return too_large(err, path, limit);
        if ((size_t)got < room) {
            (*data)[*len] = '\0';
            return GPT_OK;
        }
    }
}

/* The same, which leaves nothing after a failure. */
static int read_or_free(int fd, const char *path, int64_t limit, char **data,
                        size_t *len, struct gpt_err *err)
{
    const int status = read_to_end(fd, path, limit, data, len, err);

    if (status != GPT_OK) {
        gpt_free(*data);
        *data = NULL;
        *len = 0;
    }
    return status;
}

/* O_NONBLOCK is not set, unlike above: a FIFO or a process substitution of the
 * shell is read to its end. */
int gpt_read_file(const char *path, int64_t limit, char **data, size_t *len,
                  struct gpt_err *err)
{
    bool standard = strcmp(path, "-") == 0;
    int fd = STDIN_FILENO;

    *data = NULL;
    *len = 0;
    if (!standard)
        GPT_TRY(open_existing(&fd, path, 0, err));
    int status = read_or_free(fd, standard ? "standard input" : path, limit,
                              data, len, err);
    if (!standard)
        close(fd);
    return status;
}

int gpt_read_held(const char *path, int64_t limit, char **data, size_t *len,
                  struct gpt_err *err)
{
    struct stat st;
    int fd = -1;

    *data = NULL;
    *len = 0;
    int status = open_regular(&fd, &st, path, err);
    if (status == GPT_OK)
        status = read_or_free(fd, path, limit, data, len, err);
    if (fd >= 0)
        close(fd);
    return status;
}

bool gpt_in_is_stdin(const char *path)
{
    struct stat named, standard;

    if (strcmp(path, "-") == 0)
        return true;
    return stat(path, &named) == 0 && fstat(STDIN_FILENO, &standard) == 0 &&
           (S_ISFIFO(named.st_mode) || S_ISSOCK(named.st_mode)) &&
           named.st_dev == standard.st_dev && named.st_ino == standard.st_ino;
}

int gpt_claim_stdin(const char *reader, struct gpt_err *err)
{
    static char first[64];

    if (!first[0]) {
        snprintf(first, sizeof(first), "%s", reader);
        return GPT_OK;
    }
    if (strcmp(first, reader) == 0)
        gpt_fail(err, GPT_EUSAGE, "%s names standard input twice", reader);
    else
        gpt_fail(err, GPT_EUSAGE, "%s and %s both read standard input", first,
                 reader);
    return gpt_hint(err, "it can be read once: name a file in place of one");
}

/* Nothing that could wait is read: a pipe has no offsets. */
int gpt_in_explain(const char *path, struct gpt_err *err)
{
    static const char pointer[] = "version https://git-lfs";
    char first[64] = {0};
    int fd = -1;

    if (!err)
        return GPT_EDATA;
    if (err->hint[0] || open_existing(&fd, path, O_NONBLOCK, NULL) != GPT_OK)
        return err->status;
    const bool read = gpt_raw_read(fd, first, sizeof(first) - 1, 0) >= 0;
    close(fd);
    if (read && strncmp(first, pointer, sizeof(pointer) - 1) == 0)
        return gpt_hint(err, "it is a pointer of Git LFS and not the file: "
                             "'git lfs pull' in its directory fetches that");
    if (read && first[strspn(first, " \t\r\n")] == '<')
        return gpt_hint(err, "it is a web page and not the file: fetch it "
                             "again, perhaps with a login");
    return err->status;
}

int gpt_sha256_file(char hex[65], int64_t *bytes, const char *path,
                    struct gpt_err *err)
{
    char *data;
    size_t len;

    /* Files of a vocabulary are small, and the one that "-" names can be read
     * only once. */
    GPT_TRY(gpt_read_file(path, INT64_C(1) << 32, &data, &len, err));
    gpt_sha256(hex, data, len);
    *bytes = (int64_t)len;
    gpt_free(data);
    return GPT_OK;
}
