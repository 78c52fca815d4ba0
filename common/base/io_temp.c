/* Temporary files: their names, a registry for removal when the program dies,
 * and the removal of what killed programs left.
 *
 * The registry is read by signal handlers. Entries are only ever added at the
 * head and reused, never freed, so a handler can walk it at any moment; newest
 * first, so files go before the directory that holds them. */
#include "base/io_internal.h"

#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STALE_SECONDS = 3600 };

struct gpt_temp {
    struct gpt_temp *next;
    atomic_bool used;
    bool is_dir;
    pid_t owner; /* a child after fork() must not clean up */
    char path[GPT_PATH_BYTES];
};

static _Atomic(struct gpt_temp *) registry;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Reusing an entry would break "newest first" for directories, so those take
 * new entries, and a file reuses only entries newer than every directory. */
static struct gpt_temp *take_entry(bool is_dir)
{
    struct gpt_temp *t = is_dir ? NULL : atomic_load(&registry);

    for (; t && !t->is_dir; t = t->next)
        if (!atomic_load(&t->used))
            return t;
    t = calloc(1, sizeof(*t));
    if (t) {
        t->next = atomic_load(&registry);
        t->is_dir = is_dir;
        atomic_store(&registry, t);
    }
    return t;
}

struct gpt_temp *gpt_temp_add(const char *path, bool is_dir)
{
    if (strlen(path) >= GPT_PATH_BYTES)
        return NULL;
    pthread_mutex_lock(&lock);
    struct gpt_temp *t = take_entry(is_dir);
    if (t) {
        /* The path is complete before `used` is set: a handler that sees the
         * flag sees the path. */
        t->owner = getpid();
        snprintf(t->path, sizeof(t->path), "%s", path);
        atomic_store(&t->used, true);
    }
    pthread_mutex_unlock(&lock);
    return t;
}

/* Only a flag is cleared, and nothing freed: a handler may be reading the entry
 * at this moment. */
void gpt_temp_drop(struct gpt_temp *t)
{
    if (t)
        atomic_store(&t->used, false);
}

/* A directory was renamed as a whole, and with it every file that is registered
 * inside. */
void gpt_temp_drop_under(const char *dir)
{
    size_t len = strlen(dir);

    for (struct gpt_temp *t = atomic_load(&registry); t; t = t->next)
        if (strncmp(t->path, dir, len) == 0 && t->path[len] == '/')
            gpt_temp_drop(t);
}

void gpt_out_cleanup(void)
{
    /* A handler must not change the errno of the code it interrupts. */
    int error = errno;
    pid_t self = getpid();

    for (struct gpt_temp *t = atomic_load(&registry); t; t = t->next) {
        /* The exchange lets exactly one of several callers remove a file: a
         * handler and the end of main() may both be here. */
        if (t->owner != self || !atomic_exchange(&t->used, false))
            continue;
        if (t->is_dir)
            rmdir(t->path);
        else
            unlink(t->path);
    }
    errno = error;
}

/* ---- names ---- */

/* The name is in the directory of the target: rename(2) works within one file
 * system only. The leading dot hides it from globs; pid and random number keep
 * writers apart, on machines that share a file system as well. */
char *gpt_temp_name(const char *path)
{
    uint32_t random = 0;
    const char *base = gpt_path_name(path);
    size_t bytes = strlen(path) + 40;
    char *name = gpt_alloc(bytes, 1);

    if (!name)
        return NULL;
    /* Early at boot there may be no randomness yet; the pid and O_EXCL still
     * keep names apart. */
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) < 0)
        random = (uint32_t)time(NULL);
    snprintf(name, bytes, "%.*s.%s.tmp.%ld.%08x", (int)(base - path), path,
             base, (long)getpid(), random);
    return name;
}

char *gpt_part_name(const char *path)
{
    size_t bytes = strlen(path) + sizeof(".part");
    char *name = gpt_alloc(bytes, 1);

    if (name)
        snprintf(name, bytes, "%s.part", path);
    return name;
}

/* The directory is hidden, unlike a file's part: programs that list directories
 * by their beginnings must not meet half of one. */
char *gpt_part_dir_name(const char *path)
{
    const char *base = gpt_path_name(path);
    size_t bytes = strlen(path) + sizeof("..part");
    char *name = gpt_alloc(bytes, 1);

    if (name)
        snprintf(name, bytes, "%.*s.%s.part", (int)(base - path), path, base);
    return name;
}

/* The pid of the process that made `name`, a temporary name for `base`; 0 when
 * it is none. */
static long maker_of(const char *name, const char *base)
{
    size_t len = strlen(base);
    long pid;
    unsigned random;
    int end = 0;

    if (name[0] != '.' || strncmp(name + 1, base, len) != 0)
        return 0;
    if (sscanf(name + 1 + len, ".tmp.%ld.%8x%n", &pid, &random, &end) != 2 ||
        name[1 + len + (size_t)end] != '\0')
        return 0;
    return pid > 0 ? pid : 0;
}

bool gpt_is_temp_of(const char *name, const char *base)
{
    return maker_of(name, base) > 0;
}

/* True when the process that made the temporary name is gone. */
static bool is_orphan(const char *name, const char *base)
{
    long pid = maker_of(name, base);

    return pid > 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH;
}

bool gpt_is_temp(const char *name)
{
    const char *mark = strstr(name, ".tmp.");
    long pid;
    unsigned random;
    int end = 0;

    return name[0] == '.' && mark && mark > name + 1 &&
           sscanf(mark, ".tmp.%ld.%8x%n", &pid, &random, &end) == 2 &&
           mark[end] == '\0';
}

void gpt_temp_sweep(const char *path)
{
    const char *base = gpt_path_name(path);
    char dir[GPT_PATH_BYTES], full[GPT_JOINED_BYTES];
    struct stat st;

    snprintf(dir, sizeof(dir), "%.*s", (int)(base - path), path);
    DIR *d = opendir(dir[0] ? dir : ".");
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (!is_orphan(e->d_name, base))
            continue;
        snprintf(full, sizeof(full), "%s%s", dir, e->d_name);
        /* The age protects writers on other machines, whose pids mean
         * nothing here. */
        if (lstat(full, &st) == 0 && st.st_mtime + STALE_SECONDS < time(NULL))
            gpt_remove_tree(full);
    }
    closedir(d);
}

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* FTW_PHYS: a symbolic link is removed, not followed. A hostile checkpoint
 * could point anywhere. An empty directory goes without being opened, for which
 * the process may have no descriptor left. */
int gpt_remove_tree(const char *path)
{
    if (rmdir(path) == 0)
        return 0;
    return nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

int gpt_real_target(const char *path, char **out, struct gpt_err *err)
{
    struct stat st;
    char *resolved = NULL;

    *out = NULL;
    if (path[0] == '\0')
        return gpt_fail(err, GPT_EIO, "cannot write '': empty file name");
    /* Renaming onto a link would replace the link. What it points to is
     * replaced instead, in its own directory. */
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) {
        resolved = realpath(path, NULL);
        if (!resolved)
            return gpt_fail_errno(err, GPT_EIO, "cannot follow link '%s'",
                                  path);
        path = resolved;
    }
    /* Slashes at the end would put the temporary name inside of the
     * directory. */
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    int status = gpt_new(out, len + 1, 1, "a file name", err);
    if (status == GPT_OK)
        memcpy(*out, path, len);
    free(resolved);
    return status;
}

int gpt_out_exists(struct gpt_err *err, const char *path)
{
    gpt_fail(err, GPT_EEXIST, "'%s' exists already", path);
    gpt_hint(err, "use --force to replace it, or another name");
    return GPT_EEXIST;
}

int gpt_out_cannot_create(struct gpt_err *err, const char *path)
{
    int error = errno, len = (int)(gpt_path_name(path) - path);
    char dir[GPT_PATH_BYTES];

    snprintf(dir, sizeof(dir), "%.*s", len > 1 ? len - 1 : len, path);
    if (error == ENOENT && len > 0 && !gpt_path_exists(dir)) {
        gpt_fail(err, GPT_EIO, "cannot create '%s': there is no directory "
                 "'%s'", path, dir);
        return gpt_hint(err, "mkdir -p '%s' makes it", dir);
    }
    errno = error;
    return gpt_fail_errno(err, GPT_EIO, "cannot create '%s'", path);
}
