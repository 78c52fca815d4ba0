/* Fault injection from outside, by LD_PRELOAD: the nth call of a kind fails, or
 * the process dies right before it. base/fault.h does that inside the library
 * of the test builds; this is for the programs as they are installed, and for
 * calls that the library makes without a hook. tests/cli/t84-outputs.sh uses
 * it.
 *
 *     GPT_PRELOAD=open:3:EMFILE  the third open fails
 *     GPT_PRELOAD=write:2:KILL   SIGKILL comes before the second write
 *     GPT_PRELOAD=mmap:2:CUT     the second file is cut once it is mapped
 *     GPT_PRELOAD=write:2:SHORT  the second write takes half of its bytes
 *     GPT_PRELOAD=count          nothing fails; at exit "preload: KIND CALLS"
 *                                a kind is written to standard error
 *
 * Calls on /dev, /proc and /sys are neither counted nor failed, nor are those
 * on sockets and on standard error: they are no files of the user. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind {
    OPEN, READ, WRITE, FSYNC, RENAME, MMAP, TRUNCATE, RESERVE, COPY, MKDIR,
    OPENDIR, CLOSE, UNLINK, LOCK, MODE, THREAD, KINDS
};
static const char *const kind_names[KINDS] = {
    "open", "read", "write", "fsync", "rename", "mmap", "truncate", "reserve",
    "copy", "mkdir", "opendir", "close", "unlink", "lock", "mode", "thread"};

enum { KILL = -1, CUT = -2, SHORT = -3 }; /* what is no error of the call */
static const struct {
    const char *name;
    int value;
} errors[] = {{"EIO", EIO},
              {"ENOSPC", ENOSPC},
              {"EINTR", EINTR},
              {"EMFILE", EMFILE},
              {"ENOMEM", ENOMEM},
              {"EACCES", EACCES},
              {"EXDEV", EXDEV},
              {"EAGAIN", EAGAIN},
              {"EPERM", EPERM},
              {"EDQUOT", EDQUOT},
              {"EOPNOTSUPP", EOPNOTSUPP},
              {"EINVAL", EINVAL},
              {"ENOLCK", ENOLCK},
              {"KILL", KILL},
              {"CUT", CUT},
              {"SHORT", SHORT}};

static int failing = -1, error = EIO; /* kind, or -1 */
static long nth;
static atomic_long calls[KINDS];

static void print_counts(void)
{
    char text[512];
    int n = 0;

    for (int k = 0; k < KINDS; k++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "preload: %s %ld\n",
                      kind_names[k], atomic_load(&calls[k]));
    if (write(STDERR_FILENO, text, (size_t)n) < 0)
        abort();
}

/* Before main(), so that no call is missed and no lock is needed. */
__attribute__((constructor)) static void read_plan(void)
{
    const char *text = getenv("GPT_PRELOAD");
    char kind[16] = "", name[16] = "";
    bool known = false;

    if (!text || !*text)
        return;
    if (strcmp(text, "count") == 0) {
        atexit(print_counts);
        return;
    }
    if (sscanf(text, "%15[^:]:%ld:%15s", kind, &nth, name) == 3)
        for (int k = 0; k < KINDS; k++)
            if (strcmp(kind, kind_names[k]) == 0)
                failing = k;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (strcmp(name, errors[i].name) == 0) {
            error = errors[i].value;
            known = true;
        }
    if (failing < 0 || !known)
        abort();
}

/* The real function: the next one of that name. */
static void *next(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);

    if (!f)
        abort();
    return f;
}
#define REAL(type, name) ((type)(uintptr_t)next(name))

/* True, with errno set, for the call that is to fail. */
static bool fails(enum kind kind)
{
    long n = atomic_fetch_add(&calls[kind], 1) + 1;

    if ((int)kind != failing || n != nth)
        return false;
    if (error == KILL)
        raise(SIGKILL);
    errno = error > 0 ? error : 0;
    return true;
}

/* The same for reads and writes: one that is short goes on with fewer bytes. */
static bool stops(enum kind kind, size_t *n)
{
    if (!fails(kind))
        return false;
    if (error == SHORT)
        *n = (*n + 1) / 2;
    return error != SHORT;
}

static bool is_system(const char *path)
{
    return strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0 ||
           strncmp(path, "/sys/", 5) == 0;
}

static bool is_data(int fd)
{
    struct stat st;

    return fd != STDERR_FILENO && fstat(fd, &st) == 0 &&
           !S_ISSOCK(st.st_mode);
}

/* A writer's close is where network file systems report a full disk; other ones
 * cannot fail. */
static bool is_writer(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && is_data(fd);
}

/* ---- names ---- */

int open(const char *path, int flags, ...)
{
    mode_t mode = 0;

    if (flags & (O_CREAT | O_TMPFILE)) {
        va_list ap;

        va_start(ap, flags);
        mode = va_arg(ap, mode_t);
        va_end(ap);
    }
    if (!is_system(path) && fails(OPEN))
        return -1;
    return REAL(int (*)(const char *, int, ...), "open")(path, flags, mode);
}

/* open() with flags that the compiler does not know, under _FORTIFY_SOURCE */
int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
    return open(path, flags);
}

DIR *opendir(const char *path)
{
    if (!is_system(path) && fails(OPENDIR))
        return NULL;
    return REAL(DIR *(*)(const char *), "opendir")(path);
}

int rename(const char *from, const char *to)
{
    if (fails(RENAME))
        return -1;
    return REAL(int (*)(const char *, const char *), "rename")(from, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to,
              unsigned flags)
{
    if (fails(RENAME))
        return -1;
    return REAL(int (*)(int, const char *, int, const char *, unsigned),
                "renameat2")(from_dir, from, to_dir, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    if (fails(MKDIR))
        return -1;
    return REAL(int (*)(const char *, mode_t), "mkdir")(path, mode);
}

int unlink(const char *path)
{
    if (fails(UNLINK))
        return -1;
    return REAL(int (*)(const char *), "unlink")(path);
}

/* ---- contents ---- */

ssize_t read(int fd, void *p, size_t n)
{
    if (is_data(fd) && stops(READ, &n))
        return -1;
    return REAL(ssize_t (*)(int, void *, size_t), "read")(fd, p, n);
}

ssize_t pread(int fd, void *p, size_t n, off_t offset)
{
    if (stops(READ, &n))
        return -1;
    return REAL(ssize_t (*)(int, void *, size_t, off_t), "pread")(fd, p, n,
                                                                  offset);
}

ssize_t write(int fd, const void *p, size_t n)
{
    if (is_data(fd) && stops(WRITE, &n))
        return -1;
    return REAL(ssize_t (*)(int, const void *, size_t), "write")(fd, p, n);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t offset)
{
    if (stops(WRITE, &n))
        return -1;
    return REAL(ssize_t (*)(int, const void *, size_t, off_t), "pwrite")(
        fd, p, n, offset);
}

ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at,
                        size_t n, unsigned flags)
{
    if (stops(COPY, &n))
        return -1;
    return REAL(ssize_t (*)(int, off_t *, int, off_t *, size_t, unsigned),
                "copy_file_range")(from, from_at, to, to_at, n, flags);
}

int fsync(int fd)
{
    if (fails(FSYNC))
        return -1;
    return REAL(int (*)(int), "fsync")(fd);
}

int ftruncate(int fd, off_t size)
{
    if (fails(TRUNCATE))
        return -1;
    return REAL(int (*)(int, off_t), "ftruncate")(fd, size);
}

int fallocate(int fd, int mode, off_t offset, off_t size)
{
    if (fails(RESERVE))
        return -1;
    return REAL(int (*)(int, int, off_t, off_t), "fallocate")(fd, mode, offset,
                                                              size);
}

int fchmod(int fd, mode_t mode)
{
    if (fails(MODE))
        return -1;
    return REAL(int (*)(int, mode_t), "fchmod")(fd, mode);
}

int flock(int fd, int operation)
{
    if (fails(LOCK))
        return -1;
    return REAL(int (*)(int, int), "flock")(fd, operation);
}

/* As Linux does it, the descriptor is gone whatever close() returns. */
int close(int fd)
{
    bool fault = is_writer(fd) && fails(CLOSE);
    int result = REAL(int (*)(int), "close")(fd);

    if (!fault)
        return result;
    errno = error;
    return -1;
}

/* ---- memory and threads ---- */

/* As another program would that has the file. */
static void cut(int fd)
{
    char name[32];

    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    if (truncate(name, 0) != 0)
        abort();
}

void *mmap(void *p, size_t n, int protection, int flags, int fd, off_t offset)
{
    /* Memory without a file is malloc's to ask for, and that of oneDNN, whose
     * code generator (2.6) crashes when it gets none. */
    const bool due = fd >= 0 && fails(MMAP);

    if (due && error != CUT)
        return MAP_FAILED;
    void *map = REAL(void *(*)(void *, size_t, int, int, int, off_t), "mmap")(
        p, n, protection, flags, fd, offset);
    if (due)
        cut(fd);
    return map;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                   void *(*start)(void *), void *arg)
{
    if (fails(THREAD))
        return error;
    return REAL(int (*)(pthread_t *, const pthread_attr_t *,
                        void *(*)(void *), void *),
                "pthread_create")(thread, attr, start, arg);
}
