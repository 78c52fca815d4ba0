/* Directories that appear at once. A directory is filled under a temporary name
 * beside its target; commit syncs it and renames it, exchanging it with the one
 * that it replaces. */
#include "base/io.h"

#include "base/fault.h"
#include "base/io_internal.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct gpt_outdir {
    unsigned flags;
    char *target, *tmp;    /* target == NULL: joined */
    struct gpt_temp *temp; /* NULL: not ours to remove */
};

/* Frees the description alone; what happens to the directory is decided
 * before. */
static void outdir_free(struct gpt_outdir *dir)
{
    gpt_free(dir->target);
    gpt_free(dir->tmp);
    gpt_free(dir);
}

/* An empty directory may be replaced without force: nothing is lost, and
 * rename(2) itself refuses should it be filled meanwhile. */
static bool is_empty_dir(const char *path)
{
    DIR *d = opendir(path);
    int entries = 0;

    if (!d)
        return false;
    while (entries <= 2 && readdir(d))
        entries++;
    closedir(d);
    return entries <= 2; /* "." and ".." */
}

/* Makes the directory that is filled. Of one that outlives the process there is
 * no entry for removal, and it may be there: a link in its place is none. */
static int make_tmp(struct gpt_outdir *d, const char *path, struct gpt_err *err)
{
    const bool kept = d->flags & GPT_OUT_PART;
    struct stat st;

    d->tmp = kept ? gpt_part_dir_name(d->target) : gpt_temp_name(d->target);
    /* Registered before it exists: a signal between the two finds nothing to
     * remove, the other way round would leave a directory. */
    d->temp = d->tmp && !kept ? gpt_temp_add(d->tmp, true) : NULL;
    if (!d->temp && (!d->tmp || !kept))
        return gpt_no_memory(err, "a file name");
    if (mkdir(d->tmp, 0777) == 0)
        return GPT_OK;
    if (kept && errno == EEXIST && lstat(d->tmp, &st) == 0 &&
        S_ISDIR(st.st_mode))
        return GPT_OK;
    gpt_temp_drop(d->temp);
    return errno == ENOENT ? gpt_out_cannot_create(err, path)
                           : gpt_fail_errno(err, GPT_EIO,
                                            "cannot make directory '%s'", path);
}

int gpt_outdir_open(struct gpt_outdir **dir, const char *path, unsigned flags,
                    struct gpt_err *err)
{
    struct gpt_outdir *d;
    struct stat st;
    int status;

    *dir = NULL;
    GPT_TRY(gpt_new(&d, 1, sizeof(*d), "an output directory", err));
    d->flags = flags;
    GPT_TRY_GOTO(status, gpt_refuse_input(path, err), fail);
    GPT_TRY_GOTO(status, gpt_real_target(path, &d->target, err), fail);
    if (lstat(d->target, &st) == 0 && !(flags & GPT_OUT_FORCE) &&
        !is_empty_dir(d->target)) {
        status = gpt_out_exists(err, path);
        goto fail;
    }
    /* Before a new one is made: what killed writers left may fill the disk. */
    gpt_temp_sweep(d->target);
    GPT_TRY_GOTO(status, make_tmp(d, path, err), fail);
    *dir = d;
    return GPT_OK;
fail:
    outdir_free(d);
    return status;
}

/* A joined directory has no target and is not registered: a second process must
 * neither publish nor remove what the first one owns. */
int gpt_outdir_join(struct gpt_outdir **dir, const char *path,
                    struct gpt_err *err)
{
    struct gpt_outdir *d;

    *dir = NULL;
    if (!gpt_path_is_dir(path))
        return gpt_fail(err, GPT_EIO, "'%s' is no directory", path);
    GPT_TRY(gpt_new(&d, 1, sizeof(*d), "an output directory", err));
    d->tmp = gpt_alloc(strlen(path) + 1, 1);
    if (!d->tmp) {
        outdir_free(d);
        return gpt_no_memory(err, "a file name");
    }
    memcpy(d->tmp, path, strlen(path));
    *dir = d;
    return GPT_OK;
}

int gpt_outdir_part(char *buf, size_t cap, const char *path,
                    struct gpt_err *err)
{
    char *target, *part;

    GPT_TRY(gpt_real_target(path, &target, err));
    part = gpt_part_dir_name(target);
    gpt_free(target);
    if (!part)
        return gpt_no_memory(err, "a file name");
    const bool fits = (size_t)snprintf(buf, cap, "%s", part) < cap;
    gpt_free(part);
    return fits ? GPT_OK
                : gpt_fail(err, GPT_EFAIL, "the path '%s' is too long", path);
}

int gpt_outdir_remove_part(const char *path, struct gpt_err *err)
{
    char part[GPT_PATH_BYTES];

    GPT_TRY(gpt_outdir_part(part, sizeof(part), path, err));
    return gpt_remove_tree(part) == 0 || errno == ENOENT
               ? GPT_OK
               : gpt_fail_errno(err, GPT_EIO, "cannot remove '%s'", part);
}

const char *gpt_outdir_path(const struct gpt_outdir *dir)
{
    return dir->tmp;
}

/* ---- commit ---- */

/* Files were synced one by one as they were committed. */
static int sync_dir(const char *path, const struct stat *st, int type,
                    struct FTW *ftw)
{
    (void)st;
    (void)ftw;
    if (type != FTW_D)
        return 0;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int result = gpt_raw_fsync(fd);
    close(fd);
    return result;
}

/* Where the file system cannot exchange names there is a moment at which the
 * target is missing; its old content then stands beside it. */
static int replace_in_two_steps(struct gpt_outdir *dir)
{
    char *old = gpt_temp_name(dir->target);

    if (!old) {
        errno = ENOMEM;
        return -1;
    }
    /* The old directory keeps a temporary name until the new one is in place,
     * and gets its own name back when that fails. */
    int result = rename(dir->target, old);
    if (result == 0 && rename(dir->tmp, dir->target) != 0) {
        int error = errno;

        rename(old, dir->target);
        errno = error;
        result = -1;
    }
    if (result == 0)
        gpt_remove_tree(old);
    gpt_free(old);
    return result;
}

static int swap_names(struct gpt_outdir *dir)
{
    /* Directories do not pass gpt_raw_rename(), so the hook for tests is
     * here. */
    if (gpt_fault(GPT_FAULT_RENAME))
        return -1;
    /* rename(2) replaces nothing but an empty directory. */
    if (rename(dir->tmp, dir->target) == 0)
        return 0;
    if (!(dir->flags & GPT_OUT_FORCE) ||
        (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR))
        return -1;
    /* One step for the file system: there is no moment without a directory of
     * that name. */
    if (renameat2(AT_FDCWD, dir->tmp, AT_FDCWD, dir->target,
                  RENAME_EXCHANGE) != 0)
        return errno == EINVAL || errno == ENOSYS ? replace_in_two_steps(dir)
                                                  : -1;
    gpt_remove_tree(dir->tmp); /* the old one */
    return 0;
}

static int publish(struct gpt_outdir *dir, struct gpt_err *err)
{
    bool sync = !(dir->flags & GPT_OUT_NOSYNC);

    /* Inputs may have been opened since the directory was. */
    GPT_TRY(gpt_refuse_input(dir->target, err));
    /* Order of publication: files (each at its commit), the directories that
     * hold their names, the rename, the directory that holds the new name. A
     * crash between any two leaves the old directory or the new one,
     * complete. */
    if (sync && nftw(dir->tmp, sync_dir, 16, FTW_PHYS) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot sync '%s'", dir->tmp);
    /* A target that appeared meanwhile is reported as existing, in the same
     * words as at the open. */
    if (swap_names(dir) != 0) {
        if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)
            return gpt_out_exists(err, dir->target);
        return gpt_fail_errno(err, GPT_EIO, "cannot publish '%s'",
                              dir->target);
    }
    gpt_temp_drop(dir->temp);
    gpt_temp_drop_under(dir->tmp);
    dir->temp = NULL;
    if (sync && gpt_raw_fsync_parent(dir->target) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot sync the directory of '%s'",
                              dir->target);
    return GPT_OK;
}

/* A failed commit removes what was written: the caller could not say which part
 * of it is on disk. */
int gpt_outdir_commit(struct gpt_outdir *dir, struct gpt_err *err)
{
    int status = dir->target ? publish(dir, err) : GPT_OK;

    if (status != GPT_OK || !dir->target)
        gpt_outdir_abort(dir);
    else
        outdir_free(dir);
    return status;
}

void gpt_outdir_abort(struct gpt_outdir *dir)
{
    if (!dir)
        return;
    if (dir->temp)
        gpt_remove_tree(dir->tmp);
    gpt_temp_drop_under(dir->tmp);
    gpt_temp_drop(dir->temp);
    outdir_free(dir);
}
