/* A lock on a directory: flock(2) on a file in it that holds the pid. The
 * kernel drops such a lock when its process ends, however it ends, so no stale
 * lock has to be recognised. The file stays: were it removed, two runs could
 * lock two files of one name. */
#include "checkpoint/lock.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The pid is for the message alone. The lock is the kernel's, and ends with its
 * process: the pid that a killed run has left in the file excludes no run. */
static int report_holder(int fd, const char *dir, struct gpt_err *err)
{
    char pid[24] = "";
    ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);

    pid[n > 0 ? strcspn(pid, "\n") : 0] = 0;
    gpt_fail(err, GPT_EEXIST, "%s: another run saves there%s%s", dir,
             *pid ? ", process " : "", pid);
    return gpt_hint(err, "wait for it, stop it, or choose another directory");
}

/* Opens DIR/.lock; `create` is O_CREAT or 0. *fd is -1 when there is no such
 * file, and none is to be created. The name can be guessed, so the file may be
 * a link: neither a symbolic nor a hard link is followed, or the pid would be
 * written into the file that it points to. */
static int open_lock_file(int *fd, const char *dir, int create,
                          struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];
    struct stat st;

    GPT_TRY(gpt_path_join(path, sizeof(path), dir, ".lock", err));
    /* O_CLOEXEC: a child that inherited the descriptor would keep the lock
     * after this process has ended. No O_TRUNC: a run that is refused must not
     * erase the pid of the run that holds the lock. */
    *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | create,
               0666);
    if (*fd < 0 && errno == ENOENT && !create)
        return GPT_OK;
    if (*fd < 0 && errno != ELOOP)
        return gpt_fail_errno(err, GPT_EIO, "%s: cannot write there", path);
    if (*fd >= 0 && fstat(*fd, &st) == 0 && S_ISREG(st.st_mode) &&
        st.st_nlink == 1)
        return GPT_OK;
    gpt_lock_close(*fd);
    *fd = -1;
    gpt_fail(err, GPT_EIO, "%s: is a link or no regular file", path);
    return gpt_hint(err, "remove it: a lock is a plain file");
}

static int take_lock(int *fd, const char *dir, struct gpt_err *err)
{
    int status;

    if (flock(*fd, LOCK_EX | LOCK_NB) == 0)
        return GPT_OK;
    status = errno == EWOULDBLOCK
                 ? report_holder(*fd, dir, err)
                 : gpt_fail_errno(err, GPT_EIO, "%s: cannot lock", dir);
    gpt_lock_close(*fd);
    *fd = -1;
    return status;
}

int gpt_lock_open(int *fd, const char *dir, struct gpt_err *err)
{
    *fd = -1;
    GPT_TRY(gpt_path_mkdirs(dir, err));
    GPT_TRY(open_lock_file(fd, dir, O_CREAT, err));
    GPT_TRY(take_lock(fd, dir, err));
    if (ftruncate(*fd, 0) == 0)
        (void)!dprintf(*fd, "%ld\n", (long)getpid());
    gpt_out_sweep(dir); /* what a killed run left */
    return GPT_OK;
}

int gpt_lock_join(int *fd, const char *dir, struct gpt_err *err)
{
    *fd = -1;
    GPT_TRY(open_lock_file(fd, dir, 0, err));
    return *fd < 0 ? GPT_OK : take_lock(fd, dir, err);
}

/* The file stays. Another process may have it open and be about to lock it:
 * after an unlink() that process and a later one would hold locks on two
 * different files of one name. */
void gpt_lock_close(int fd)
{
    if (fd >= 0)
        close(fd);
}
