/* Completes publications that a killed program left: see io_publish.c for the
 * steps. The journal of one is a file in the directory of its last file, and
 * may come from anywhere: it is only obeyed for files whose names a writer of
 * this library would have given, and which are those that it describes. Start
 * at gpt_publish_complete(), at the end. */
#include "base/io_publish.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/num.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    JOURNAL_BYTES = 16 << 20,
    CRC_TEXT = 9, /* eight digits and NUL, at the end */
    WAIT_MS = 10,
    WAITS = 1000, /* a writer needs milliseconds; its disk may be slow */
};

struct recovery {
    const char *dir;     /* with its slash; "" is here */
    char *journal;       /* dir + name */
    char *text;          /* all of the journal */
    size_t len;
    struct gpt_publish_entry *entries;
    size_t n, cap;
    struct gpt_arena names;
    int fd;
};

/* ---- reading ---- */

static int not_a_journal(const struct recovery *r, struct gpt_err *err)
{
    gpt_fail(err, GPT_EDATA, "'%s' is damaged: it describes no publication",
             r->journal);
    return gpt_hint(err, "make the files that it stands for again, and remove "
                         "it");
}

/* Takes a string of the journal. NULL at the end, or where no NUL follows: what
 * comes from a file need not be a string. */
static char *take_string(struct recovery *r, size_t *at)
{
    char *s = r->text + *at, *end = memchr(s, '\0', r->len - *at);

    if (!end)
        return NULL;
    *at += (size_t)(end - s) + 1;
    return s;
}

/* True for a temporary name of `base`, or for the part of a run that
 * resumes. */
static bool fits(const char *name, const char *base, bool part)
{
    size_t n = strlen(base);

    if (part && strncmp(name, base, n) == 0 && strcmp(name + n, ".part") == 0)
        return true;
    return gpt_is_temp_of(name, base);
}

/* Takes an entry, whose five strings become paths. */
static int take_entry(struct recovery *r, size_t *at, struct gpt_err *err)
{
    char *to = take_string(r, at), *from = to ? take_string(r, at) : NULL;
    char *old = from ? take_string(r, at) : NULL;
    char *bytes = old ? take_string(r, at) : NULL;
    char *changed = bytes ? take_string(r, at) : NULL;

    if (!changed)
        return not_a_journal(r, err);
    /* Names in other directories are absolute; no name leads out of one. */
    size_t len = gpt_publish_dir(to);
    const char *base = to + len, *dir = len ? to : r->dir;
    struct gpt_publish_entry e = {.force = true};
    if (!len)
        len = strlen(r->dir);
    if ((dir == to && to[0] != '/') || !*base ||
        (*from && !fits(from, base, true)) || !fits(old, base, false) ||
        !gpt_parse_int(bytes, &e.bytes) || !gpt_parse_int(changed, &e.changed))
        return not_a_journal(r, err);
    e.to = gpt_arena_printf(&r->names, "%.*s%s", (int)len, dir, base);
    e.old = gpt_arena_printf(&r->names, "%.*s%s", (int)len, dir, old);
    if (*from)
        e.from = gpt_arena_printf(&r->names, "%.*s%s", (int)len, dir, from);
    if (!e.to || !e.old || (*from && !e.from))
        return gpt_no_memory(err, "file names");
    GPT_TRY(gpt_grow(&r->entries, &r->cap, r->n + 1, sizeof(*r->entries),
                     "files", err));
    r->entries[r->n++] = e;
    return GPT_OK;
}

static int parse(struct recovery *r, struct gpt_err *err)
{
    size_t at = sizeof(GPT_PUBLISH_MAGIC);
    char sum[CRC_TEXT];

    if (r->len < at + CRC_TEXT || memcmp(r->text, GPT_PUBLISH_MAGIC, at) != 0)
        return not_a_journal(r, err);
    r->len -= CRC_TEXT;
    snprintf(sum, sizeof(sum), "%08" PRIx32, gpt_crc32c(0, r->text, r->len));
    if (memcmp(sum, r->text + r->len, CRC_TEXT) != 0)
        return not_a_journal(r, err);
    while (at < r->len)
        GPT_TRY(take_entry(r, &at, err));
    return r->n > 0 ? GPT_OK : not_a_journal(r, err);
}

/* Reads a journal. Only journals that the user made are obeyed; root obeys
 * all. */
static int read_journal(struct recovery *r, bool *gone, struct gpt_err *err)
{
    struct stat st;

    r->fd = open(r->journal, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    *gone = r->fd < 0 && errno == ENOENT;
    if (*gone)
        return GPT_OK;
    if (r->fd < 0 || fstat(r->fd, &st) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", r->journal);
    if (geteuid() != 0 && st.st_uid != geteuid())
        return gpt_fail(err, GPT_EIO, "'%s' is of another user, whose program "
                        "died while it gave files their names", r->journal);
    if (!S_ISREG(st.st_mode) || st.st_size > JOURNAL_BYTES)
        return not_a_journal(r, err);
    GPT_TRY(gpt_new(&r->text, (size_t)st.st_size + 1, 1, "a journal", err));
    int64_t got = gpt_raw_read(r->fd, r->text, (size_t)st.st_size, 0);
    if (got < 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot read '%s'", r->journal);
    r->len = (size_t)got;
    return parse(r, err);
}

/* ---- completing ---- */

/* A file that another writer, or a user, has changed since is not published,
 * and nothing else of its set. */
static int check_file(const struct recovery *r,
                      const struct gpt_publish_entry *e, struct gpt_err *err)
{
    struct stat st;

    if (!e->from)
        return GPT_OK;
    const char *path = lstat(e->from, &st) == 0 ? e->from : e->to;
    if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
        st.st_size == e->bytes && gpt_publish_time(&st) == e->changed)
        return GPT_OK;
    gpt_fail(err, GPT_EDATA, "'%s': a program died while it gave files their "
             "names, and its '%s' is missing or changed", r->journal, e->from);
    return gpt_hint(err, "make these files again after removing '%s'",
                    r->journal);
}

/* The lock ends with its process. Until then that process is at work, and is
 * waited for. */
static int wait_for_writer(const struct recovery *r, struct gpt_err *err)
{
    const struct timespec pause = {.tv_nsec = WAIT_MS * 1000000};

    for (int i = 0; flock(r->fd, LOCK_EX | LOCK_NB) != 0; i++) {
        if (errno != EWOULDBLOCK) {
            gpt_fail_errno(err, GPT_EIO, "cannot lock '%s'", r->journal);
            return gpt_hint(err, "it is of a program that died while it gave "
                            "files their names: copy the directory to a file "
                            "system with locks, or make its files again after "
                            "removing it");
        }
        if (i == WAITS)
            return gpt_fail(err, GPT_EIO, "'%s': another process has been "
                            "giving files their names for %d s", r->journal,
                            WAITS * WAIT_MS / 1000);
        nanosleep(&pause, NULL);
    }
    return GPT_OK;
}

static bool anything_waits(const struct recovery *r)
{
    struct stat st;

    for (size_t i = 0; i < r->n; i++)
        if (r->entries[i].from && lstat(r->entries[i].from, &st) == 0)
            return true;
    return false;
}

static int complete(struct recovery *r, struct gpt_err *err)
{
    struct stat st;

    GPT_TRY(wait_for_writer(r, err));
    /* Its writer, or another reader, has finished it meanwhile. */
    if (fstat(r->fd, &st) != 0 || st.st_nlink == 0)
        return GPT_OK;
    /* Without a file that waits for its name only the end was missing. */
    if (anything_waits(r)) {
        for (size_t i = 0; i < r->n; i++)
            GPT_TRY(check_file(r, &r->entries[i], err));
        GPT_TRY(gpt_publish_forward(r->entries, r->n, true, err));
    }
    gpt_publish_finish(r->entries, r->n, r->journal);
    return GPT_OK;
}

/* True when the journal names the file `base`, or where base is NULL, always. A
 * reader completes only what it asks for: other journals in the directory may
 * be other users'. */
static bool names_file(const struct recovery *r, const char *base)
{
    for (size_t i = 0; base && i < r->n; i++)
        if (strcmp(r->entries[i].to + gpt_publish_dir(r->entries[i].to),
                   base) == 0)
            return true;
    return !base;
}

static int complete_one(const char *dir, const char *name, const char *base,
                        bool *done, struct gpt_err *err)
{
    struct recovery r = {.dir = dir, .fd = -1};
    bool gone = false;
    int status;

    r.journal = gpt_arena_printf(&r.names, "%s%s", dir, name);
    status = r.journal ? read_journal(&r, &gone, err)
                       : gpt_no_memory(err, "a file name");
    /* A journal that has just gone was completed by another program: the file
     * that is asked for may be there now. */
    if (status == GPT_OK && (gone || names_file(&r, base))) {
        *done = true;
        if (!gone)
            status = complete(&r, err);
    }
    if (r.fd >= 0)
        close(r.fd);
    gpt_free(r.entries);
    gpt_free(r.text);
    gpt_arena_free(&r.names);
    return status;
}

/* Completes what waits in dir, which is "" or ends in a slash. */
static int complete_in(const char *dir, const char *base, bool *done,
                       struct gpt_err *err)
{
    static const size_t suffix = sizeof(GPT_PUBLISH_SUFFIX) - 1;
    DIR *d = opendir(dir[0] ? dir : ".");
    int status = GPT_OK;

    if (!d)
        return GPT_OK; /* a directory that is not there holds no journal */
    for (struct dirent *e; status == GPT_OK && (e = readdir(d)) != NULL;) {
        size_t n = strlen(e->d_name);

        if (e->d_name[0] == '.' && n > suffix + 1 &&
            strcmp(e->d_name + n - suffix, GPT_PUBLISH_SUFFIX) == 0)
            status = complete_one(dir, e->d_name, base, done, err);
    }
    closedir(d);
    return status;
}

int gpt_publish_complete(const char *path, bool *done, struct gpt_err *err)
{
    char dir[GPT_PATH_BYTES], link[GPT_PATH_BYTES];
    size_t len = gpt_publish_dir(path);

    *done = false;
    if (len >= sizeof(dir))
        return GPT_OK;
    snprintf(dir, sizeof(dir), "%.*s", (int)len, path);
    GPT_TRY(complete_in(dir, path + len, done, err));
    /* The file that a link names is published beside itself. */
    ssize_t n = readlink(path, link, sizeof(link) - 1);
    if (n <= 0)
        return GPT_OK;
    link[n] = '\0';
    size_t target = gpt_publish_dir(link);
    snprintf(dir, sizeof(dir), "%.*s%.*s", link[0] == '/' ? 0 : (int)len, path,
             (int)target, link);
    return complete_in(dir, link + target, done, err);
}

int gpt_in_settle(const char *path, struct gpt_err *err)
{
    bool done;

    return gpt_publish_complete(path, &done, err);
}

int gpt_out_complete(const char *dir, struct gpt_err *err)
{
    char name[GPT_PATH_BYTES];
    bool done;

    snprintf(name, sizeof(name), "%s/", dir);
    return complete_in(name, NULL, &done, err);
}

/* ---- what killed programs left, and nothing needs ---- */

/* Removes temporary files of any age and process: the caller holds the lock of
 * the directory, so that every writer is gone. Files that wait for their names
 * get these first. */
void gpt_out_sweep(const char *dir)
{
    char full[GPT_PATH_BYTES + 300];

    if (gpt_out_complete(dir, NULL) != GPT_OK)
        return;
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        snprintf(full, sizeof(full), "%s/%s", dir, e->d_name);
        if (gpt_is_temp(e->d_name))
            gpt_remove_tree(full);
    }
    closedir(d);
}
