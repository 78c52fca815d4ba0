/* Paths: questions about them, and directories on the way. */
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* basename(3) may change its argument. */
const char *gpt_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool gpt_path_program(char dir[GPT_PATH_BYTES])
{
    ssize_t n = readlink("/proc/self/exe", dir, GPT_PATH_BYTES - 1);

    dir[n > 0 ? n : 0] = '\0';
    dir[gpt_path_name(dir) - dir] = '\0';
    return *dir;
}

bool gpt_path_hidden(int error)
{
    return error == EACCES || error == EIO || error == EMFILE ||
           error == ENFILE || error == ENOMEM || error == ESTALE;
}

bool gpt_path_exists(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

bool gpt_path_is_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Moves *path to its next name, which is no "."; returns its length, 0 at the
 * end. */
static size_t next_name(const char **path)
{
    size_t n;

    do {
        *path += strspn(*path, "/");
        n = strcspn(*path, "/");
    } while (n == 1 && **path == '.' && (*path)++);
    return n;
}

static bool same_names(const char *a, const char *b)
{
    size_t n;

    if ((*a == '/') != (*b == '/'))
        return false;
    do {
        n = next_name(&a);
        if (n != next_name(&b) || strncmp(a, b, n) != 0)
            return false;
        a += n;
        b += n;
    } while (n > 0);
    return true;
}

/* Where there are files, names prove nothing: links, "." and bind mounts give
 * one file several. */
bool gpt_path_same(const char *a, const char *b)
{
    struct stat x, y;
    const bool is_a = stat(a, &x) == 0, is_b = stat(b, &y) == 0;

    if (!is_a && !is_b)
        return same_names(a, b);
    return is_a && is_b && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool gpt_path_ends_in(const char *path, const char *suffix)
{
    const size_t n = strlen(path), k = strlen(suffix);

    return n >= k && strcmp(path + n - k, suffix) == 0;
}

/* A path that does not fit names no file. */
bool gpt_path_holds(const char *dir, const char *name)
{
    char path[GPT_JOINED_BYTES];

    return name &&
           gpt_path_join(path, sizeof(path), dir, name, NULL) == GPT_OK &&
           gpt_path_exists(path);
}

/* Begins at 1: the root, or the first letter of a relative path, is no
 * directory to be made. */
int gpt_path_mkdirs(const char *path, struct gpt_err *err)
{
    char part[GPT_PATH_BYTES];
    size_t len = strlen(path);

    if (len >= sizeof(part))
        return gpt_fail(err, GPT_EIO,
                        "'%.100s...': a path of %zu bytes is too long, limit "
                        "%zu",
                        path, len, sizeof(part) - 1);
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        /* Making before asking: of several ranks that make one directory, all
         * but one find it there, and none fails. */
        if (mkdir(part, 0777) == 0)
            continue;
        int error = errno;
        if (gpt_path_is_dir(part))
            continue;
        if (error == EEXIST && !gpt_path_exists(part))
            return gpt_fail(err, GPT_EIO, "cannot make directory '%s': a "
                            "symbolic link to nothing is there", part);
        errno = error == EEXIST ? ENOTDIR : error;
        return gpt_fail_errno(err, GPT_EIO, "cannot make directory '%s'", part);
    }
    return GPT_OK;
}

/* Names are cut off at slashes, from the end, until what is left is there.
 * Several slashes together are one. */
size_t gpt_path_there(const char *path)
{
    char part[GPT_PATH_BYTES];
    size_t len = strlen(path);

    if (len >= sizeof(part))
        return len;
    memcpy(part, path, len + 1);
    while (len > 0 && !gpt_path_is_dir(part)) {
        do
            len--;
        while (len > 0 && path[len] != '/');
        part[len] = '\0';
    }
    return len;
}

/* Removes from the deepest directory upwards, and stops at the first that is
 * not empty, as all above contain it. An absolute path begins with the root,
 * which is always there. */
void gpt_path_rmdirs(const char *path, size_t there)
{
    char part[GPT_PATH_BYTES];
    size_t len = strlen(path);

    if (len >= sizeof(part))
        return;
    memcpy(part, path, len + 1);
    for (; len > there; len--) {
        if (path[len] != '/' && path[len] != '\0')
            continue;
        part[len] = '\0';
        if (rmdir(part) != 0 && errno != ENOENT)
            return;
    }
}

int gpt_path_join(char *buf, size_t cap, const char *dir, const char *name,
                  struct gpt_err *err)
{
    size_t len = strlen(dir);
    const char *slash = len > 0 && dir[len - 1] == '/' ? "" : "/";
    /* A path that was cut would name another file. */
    int n = snprintf(buf, cap, "%s%s%s", dir, slash, name);

    if (n < 0 || (size_t)n >= cap)
        return gpt_fail(err, GPT_EFAIL,
                        "path of %d bytes is longer than %zu: '%.80s...'", n,
                        cap, dir);
    return GPT_OK;
}

bool gpt_path_to_parent(char *path)
{
    char *slash = strrchr(path, '/');

    if (strcmp(path, "/") == 0 || strcmp(path, ".") == 0)
        return false;
    if (slash)
        slash[slash == path] = '\0'; /* the parent of "/a" is "/" */
    else
        memcpy(path, ".", 2); /* of one name or more */
    return *path != '\0';
}

bool gpt_path_nearest(char nearest[GPT_PATH_BYTES], const char *path)
{
    struct stat st;

    if (snprintf(nearest, GPT_PATH_BYTES, "%s", path) >= GPT_PATH_BYTES)
        return false;
    while (stat(nearest, &st) != 0)
        if ((errno != ENOENT && errno != ENOTDIR) ||
            !gpt_path_to_parent(nearest))
            return false;
    return true;
}

int gpt_path_check_writable(const char *path, struct gpt_err *err)
{
    char nearest[GPT_PATH_BYTES];

    if (!gpt_path_nearest(nearest, path))
        return GPT_OK;
    const bool dir = gpt_path_is_dir(nearest);
    if (!dir && strcmp(nearest, path) != 0) {
        errno = ENOTDIR;
        return gpt_fail_errno(err, GPT_EIO, "cannot make '%s'", path);
    }
    /* with the rights that files are opened with; a directory is also passed */
    if (faccessat(AT_FDCWD, nearest, W_OK | (dir ? X_OK : 0), AT_EACCESS) == 0)
        return GPT_OK;
    return gpt_fail_errno(err, GPT_EIO, "cannot write '%s'", path);
}

/* What is made later lies on the file system of the nearest directory above
 * it. */
bool gpt_path_room(const char *dir, double *room)
{
    char path[GPT_PATH_BYTES];
    struct statvfs fs;

    if (!gpt_path_nearest(path, dir) || statvfs(path, &fs) != 0)
        return false;
    /* File systems without blocks, as /proc, say nothing. */
    *room = (double)fs.f_bavail * (double)fs.f_frsize;
    return fs.f_blocks > 0;
}

bool gpt_path_returns(const char *path)
{
    char before[GPT_PATH_BYTES];

    for (const char *at = path; (at = strstr(at, "/..")); at += 3) {
        const int len = (int)(at - path);

        if (len > 0 && (at[3] == '/' || at[3] == '\0') &&
            snprintf(before, sizeof(before), "%.*s", len, path) == len &&
            !gpt_path_exists(before))
            return true;
    }
    return false;
}

/* Links are followed as far as there is a path; above that, directories are
 * compared and not names. */
bool gpt_path_below(const char *path, const char *dir)
{
    char there[GPT_PATH_BYTES], *full;
    bool below = false;

    if (snprintf(there, sizeof(there), "%s", path) >= (int)sizeof(there))
        return false;
    while (!(full = realpath(there, NULL)) && gpt_path_to_parent(there))
        continue;
    if (!full)
        return false;
    bool more = strcmp(there, path) != 0 || gpt_path_to_parent(full);
    for (; more && !below; more = gpt_path_to_parent(full))
        below = gpt_path_same(full, dir);
    free(full);
    return below;
}
