/* Files that get their names together. No system call renames several files at
 * once, so a journal makes one step of it: everything is on disk under
 * temporary names; then the journal, which lists them, gets its own name, and
 * from there on the new files are the ones that count. Start at gpt_publish();
 * io_recover.c completes what a killed program left.
 *
 *     1  the files and the names of their temporary names are on disk
 *     2  ".LAST.publish" appears, locked: the moment that decides
 *     3  the old files move aside, the last in the list first
 *     4  the new files take their places, the last in the list last
 *     5  the old files and the journal are removed
 *
 * Between 3 and 4 the file that readers open first is missing: no reader gets
 * one file of the old set and one of the new. A failure in 3 and 4 takes
 * all steps back. A death leaves the journal, and the next program that opens
 * or writes one of the files repeats 3 to 5. */
#include "base/io_publish.h"

#include "base/hash.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 20 }; /* journals of other writers that come in between */

/* ---- the steps, also those of io_recover.c ---- */

/* Bytes of the directory in `path`, its last slash included. */
size_t gpt_publish_dir(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Neighbours in the list are mostly in one directory: it is synced once. */
static int sync_dirs(const struct gpt_publish_entry *e, size_t n, bool sync,
                     struct gpt_err *err)
{
    for (size_t i = 0; sync && i < n; i++) {
        size_t len = gpt_publish_dir(e[i].to);

        if (i > 0 && gpt_publish_dir(e[i - 1].to) == len &&
            memcmp(e[i - 1].to, e[i].to, len) == 0)
            continue;
        if (gpt_raw_fsync_parent(e[i].to) != 0)
            return gpt_fail_errno(err, GPT_EIO,
                                  "cannot sync the directory of '%s'",
                                  e[i].to);
    }
    return GPT_OK;
}

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static int cannot_publish(const struct gpt_publish_entry *e,
                          struct gpt_err *err)
{
    if (errno == EEXIST)
        return gpt_out_exists(err, e->to);
    return gpt_fail_errno(err, GPT_EIO, "cannot publish '%s'", e->to);
}

/* Each step asks what is there and not what was done, so that it can be
 * repeated from any place at which a program died. */
int gpt_publish_forward(struct gpt_publish_entry *e, size_t n, bool sync,
                        struct gpt_err *err)
{
    bool moved = false;

    for (size_t i = n; i-- > 0;) {
        if ((e[i].from && !exists(e[i].from)) || !exists(e[i].to))
            continue;
        if (gpt_raw_rename(e[i].to, e[i].old, true) != 0)
            return cannot_publish(&e[i], err);
        e[i].moved_old = moved = true;
    }
    /* The old names are gone on disk before a new one can be there: a power cut
     * must not leave a new file beside an old one either. */
    GPT_TRY(sync_dirs(e, n, sync && moved, err));
    for (size_t i = 0; i < n; i++) {
        if (!e[i].from || !exists(e[i].from))
            continue;
        if (gpt_raw_rename(e[i].from, e[i].to, e[i].force) != 0)
            return cannot_publish(&e[i], err);
        e[i].moved_new = true;
    }
    return sync_dirs(e, n, sync, err);
}

/* The journal goes last: until then everything could be repeated. Old files
 * that cannot be removed have temporary names, and go with these. */
void gpt_publish_finish(const struct gpt_publish_entry *e, size_t n,
                        const char *journal)
{
    for (size_t i = 0; i < n; i++)
        if (!e[i].from || exists(e[i].to))
            gpt_raw_unlink(e[i].old);
    gpt_raw_unlink(journal);
}

/* ---- the journal ---- */

/* Makes "dir/.name.publish" of "dir/name"; freed with gpt_free(). */
static char *journal_name(const char *path)
{
    size_t dir = gpt_publish_dir(path);
    size_t bytes = strlen(path) + sizeof("..publish");
    char *name = gpt_alloc(bytes, 1);

    if (name)
        snprintf(name, bytes, "%.*s.%s%s", (int)dir, path, path + dir,
                 GPT_PUBLISH_SUFFIX);
    return name;
}

/* A file beside the journal is named without its directory, so that the whole
 * directory may be moved; another one absolutely. */
static int add_target(struct gpt_buf *b, const char *to, const char *journal)
{
    size_t dir = gpt_publish_dir(to);
    char parent[GPT_PATH_BYTES];

    if (dir == gpt_publish_dir(journal) && memcmp(to, journal, dir) == 0)
        return gpt_buf_add(b, to + dir, strlen(to + dir) + 1);
    snprintf(parent, sizeof(parent), "%.*s", (int)dir, dir ? to : "./");
    char *full = realpath(dir ? parent : ".", NULL);
    if (!full)
        return GPT_EIO;
    int status = gpt_buf_printf(b, "%s/%s", full, to + dir);
    free(full);
    return status == GPT_OK ? gpt_buf_add(b, "", 1) : status;
}

static int add_entry(struct gpt_buf *b, const struct gpt_publish_entry *e,
                     const char *journal)
{
    const char *from = e->from ? e->from + gpt_publish_dir(e->from) : "";
    const char *old = e->old + gpt_publish_dir(e->old);

    GPT_TRY(add_target(b, e->to, journal));
    GPT_TRY(gpt_buf_add(b, from, strlen(from) + 1));
    GPT_TRY(gpt_buf_add(b, old, strlen(old) + 1));
    GPT_TRY(gpt_buf_printf(b, "%" PRId64, e->bytes));
    GPT_TRY(gpt_buf_add(b, "", 1));
    GPT_TRY(gpt_buf_printf(b, "%" PRId64, e->changed));
    return gpt_buf_add(b, "", 1);
}

/* Writes strings that end in NUL, as a file name may hold anything else. */
static int describe(struct gpt_buf *b, const struct gpt_publish_entry *e,
                    size_t n, const char *journal, struct gpt_err *err)
{
    int status;

    GPT_TRY_GOTO(status, gpt_buf_add(b, GPT_PUBLISH_MAGIC,
                                     sizeof(GPT_PUBLISH_MAGIC)), fail);
    for (size_t i = 0; i < n; i++)
        GPT_TRY_GOTO(status, add_entry(b, &e[i], journal), fail);
    GPT_TRY_GOTO(status, gpt_buf_printf(b, "%08" PRIx32,
                                        gpt_crc32c(0, b->data, b->len)), fail);
    GPT_TRY_GOTO(status, gpt_buf_add(b, "", 1), fail);
    return GPT_OK;
fail:
    return gpt_fail(err, status, "cannot describe what becomes of '%s'",
                    e[n - 1].to);
}

/* It is locked before it has its name, so that no program takes it for that of
 * a dead one. The descriptor holds the lock. */
static int write_journal(int *fd, const char *tmp, const struct gpt_buf *text,
                         struct gpt_err *err)
{
    *fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*fd < 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot create '%s'", tmp);
    /* A file system without locks leaves one guard less: the rename below
     * still keeps a second writer out. */
    (void)flock(*fd, LOCK_EX | LOCK_NB);
    if (gpt_raw_write(*fd, text->data, text->len, 0) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot write '%s'", tmp);
    if (gpt_raw_fsync(*fd) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot sync '%s'", tmp);
    return GPT_OK;
}

/* A name that is taken is the journal of another writer of the same files:
 * these are completed first, or waited for. */
static int name_journal(const char *tmp, const char *journal,
                        const char *path, struct gpt_err *err)
{
    for (int i = 0; gpt_raw_rename(tmp, journal, false) != 0; i++) {
        bool done;

        if (errno != EEXIST || i == TRIES)
            return gpt_fail_errno(err, GPT_EIO, "cannot publish '%s'", path);
        GPT_TRY(gpt_publish_complete(path, &done, err));
    }
    return GPT_OK;
}

/* ---- one set ---- */

static int look_at_files(struct gpt_publish_entry *e, struct gpt_err *err)
{
    struct stat st;

    if (e->from) {
        if (lstat(e->from, &st) != 0)
            return gpt_fail_errno(err, GPT_EIO, "cannot find '%s'", e->from);
        e->bytes = st.st_size;
        e->changed = gpt_publish_time(&st);
    }
    if (!e->force && exists(e->to))
        return gpt_out_exists(err, e->to);
    e->old = gpt_temp_name(e->to);
    return e->old ? GPT_OK : gpt_no_memory(err, "a file name");
}

/* Takes the steps back in reverse. What cannot be taken back stays as it is,
 * with the journal: the next program goes forward from there. */
static bool take_back(struct gpt_publish_entry *e, size_t n)
{
    bool good = true;

    for (size_t i = n; good && i-- > 0;)
        if (e[i].moved_new)
            good = gpt_raw_rename(e[i].to, e[i].from, true) == 0;
    for (size_t i = 0; good && i < n; i++)
        if (e[i].moved_old)
            good = gpt_raw_rename(e[i].old, e[i].to, true) == 0;
    return good;
}

/* Exchanges the files after the journal has its name. */
static int exchange(struct gpt_publish_entry *e, size_t n, bool sync,
                    const char *journal, bool *pending, struct gpt_err *err)
{
    int status = sync_dirs(e + n - 1, 1, sync, err);

    if (status == GPT_OK)
        status = gpt_publish_forward(e, n, sync, err);
    if (status == GPT_OK) {
        gpt_publish_finish(e, n, journal);
        return GPT_OK;
    }
    *pending = !take_back(e, n) || gpt_raw_unlink(journal) != 0;
    if (*pending)
        gpt_hint(err, "the new files are complete on disk: the next gpt "
                      "program that opens one of them gives them their names");
    return status;
}

static int publish_set(struct gpt_publish_entry *e, size_t n, bool sync,
                       bool *pending, struct gpt_err *err)
{
    char *journal = journal_name(e[n - 1].to), *tmp = NULL;
    struct gpt_temp *temp = NULL;
    struct gpt_buf text = {0};
    int fd = -1, status = GPT_OK;

    tmp = journal ? gpt_temp_name(journal) : NULL;
    temp = tmp ? gpt_temp_add(tmp, false) : NULL;
    if (!temp) {
        status = gpt_no_memory(err, "a file name");
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        GPT_TRY_GOTO(status, look_at_files(&e[i], err), out);
    GPT_TRY_GOTO(status, describe(&text, e, n, journal, err), out);
    GPT_TRY_GOTO(status, write_journal(&fd, tmp, &text, err), out);
    GPT_TRY_GOTO(status, sync_dirs(e, n, sync, err), out);
    GPT_TRY_GOTO(status, name_journal(tmp, journal, e[n - 1].to, err), out);
    gpt_temp_drop(temp);
    temp = NULL;
    status = exchange(e, n, sync, journal, pending, err);
out:
    if (temp)
        unlink(tmp);
    gpt_temp_drop(temp);
    if (fd >= 0)
        close(fd); /* and with it the lock */
    for (size_t i = 0; i < n; i++)
        gpt_free(e[i].old);
    gpt_buf_free(&text);
    gpt_free(tmp);
    gpt_free(journal);
    return status;
}

int gpt_publish(struct gpt_publish_entry *e, size_t n, bool sync,
                bool *pending, struct gpt_err *err)
{
    *pending = false;
    for (size_t i = 0; i < n; i++)
        GPT_TRY(gpt_refuse_input(e[i].to, err));
    if (n == 0)
        return GPT_OK;
    if (n > 1 || !e[0].from)
        return publish_set(e, n, sync, pending, err);
    /* One name changes at once. Were it before the content is on disk, a crash
     * could leave the new name on an empty file. */
    if (gpt_raw_rename(e[0].from, e[0].to, e[0].force) != 0)
        return cannot_publish(&e[0], err);
    e[0].moved_new = true;
    return sync_dirs(e, n, sync, err);
}
