/* The list of parts that are whole; see resume.h. Start at gpt_resume_open().
 *
 * Two orders make it safe. The list is locked before anything of the output is
 * looked at, and removed while it is still locked, after the output has its
 * name: no other process ever takes what this one is about to publish. And the
 * list's name is compared with the locked file, as that may have been removed
 * between the opening and the lock. */
#include "checkpoint/resume.h"

#include "base/io.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LIMIT = 64 << 20, /* bytes of a list */
    TRIES = 10,       /* to lock a name that others remove */
};

/* A line of its own: gpt_resume_unfinished(). */
#define PUBLISHED "published"

/* A line, without the file's name: the digest has it. */
struct noted {
    uint64_t digest;
    int64_t part;
    uint32_t crc;
};

struct gpt_resume {
    char target[GPT_PATH_BYTES]; /* the output */
    char list[GPT_JOINED_BYTES], part[GPT_JOINED_BYTES];
    bool is_file;
    int fd;
    struct noted *noted; /* by digest and part */
    size_t n, cap;
    const char **names; /* of files with a line */
    size_t n_names, names_cap;
    bool added; /* a line by this process */
    bool published; /* by a run that ended before the list was removed */
    struct gpt_arena arena;
};

/* For a search of each part of each file that is written. */
static int compare_noted(const void *a, const void *b)
{
    const struct noted *x = a, *y = b;

    if (x->digest != y->digest)
        return x->digest < y->digest ? -1 : 1;
    return (x->part > y->part) - (x->part < y->part);
}

/* Closing the list is what unlocks it. */
static void free_resume(struct gpt_resume *r)
{
    if (r->fd >= 0)
        close(r->fd);
    gpt_free(r->noted);
    gpt_free(r->names);
    gpt_arena_free(&r->arena);
    gpt_free(r);
}

/* ---- names ---- */

/* ".NAME.resume" for the output `path`, whose slashes at the end go. */
static void name_list(struct gpt_resume *r, const char *path)
{
    const char *name;

    snprintf(r->target, sizeof(r->target), "%s", path);
    for (char *end = r->target + strlen(r->target);
         end > r->target + 1 && end[-1] == '/';)
        *--end = '\0';
    name = gpt_path_name(r->target);
    snprintf(r->list, sizeof(r->list), "%.*s.%s.resume",
             (int)(name - r->target), r->target, name);
}

bool gpt_resume_is_left(const char *path)
{
    struct gpt_resume r;

    name_list(&r, path);
    return gpt_path_exists(r.list);
}

/* The names of the list, and of what GPT_OUT_PART calls the output. */
static int set_names(struct gpt_resume *r, const char *path,
                     struct gpt_err *err)
{
    name_list(r, path);
    return r->is_file
               ? gpt_out_part(r->part, sizeof(r->part), r->target, err)
               : gpt_outdir_part(r->part, sizeof(r->part), r->target, err);
}

/* ---- the list ---- */

/* A link is not followed: the name can be guessed. The lock is the kernel's,
 * and ends with the process, however it ends. */
static int lock_list(struct gpt_resume *r, struct gpt_err *err)
{
    struct stat here, there;

    for (int i = 0; i < TRIES; i++) {
        r->fd = open(r->list,
                     O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
                     0666);
        if (r->fd < 0)
            return gpt_fail_errno(err, GPT_EIO, "cannot create '%s'", r->list);
        if (flock(r->fd, LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK)
                return gpt_fail_errno(err, GPT_EIO, "cannot lock '%s'",
                                      r->list);
            gpt_fail(err, GPT_EEXIST, "'%s': another process writes it",
                     r->part);
            return gpt_hint(err, "wait for it, or choose another output");
        }
        if (fstat(r->fd, &here) == 0 && lstat(r->list, &there) == 0 &&
            S_ISREG(here.st_mode) && here.st_dev == there.st_dev &&
            here.st_ino == there.st_ino)
            return GPT_OK;
        close(r->fd);
        r->fd = -1;
    }
    return gpt_fail(err, GPT_EIO, "cannot lock '%s'", r->list);
}

/* Names are few beside lines: one a file, of which even large checkpoints have
 * no more than their ranks. */
static bool knows(const struct gpt_resume *r, const char *name)
{
    for (size_t i = 0; i < r->n_names; i++)
        if (strcmp(r->names[i], name) == 0)
            return true;
    return false;
}

/* One line without its end; what is no line is passed over. Names come from
 * here alone, and are compared with those of the plan: none becomes a path. */
static int take_line(struct gpt_resume *r, char *line, struct gpt_err *err)
{
    char *name = line, *at = strchr(line, ' ');
    struct noted e;
    unsigned long long digest;
    long long part;
    unsigned crc;
    int end = 0;

    r->published = r->published || strcmp(line, PUBLISHED) == 0;
    if (!at ||
        sscanf(at, " %16llx %lld %8x%n", &digest, &part, &crc, &end) != 3 ||
        at[end] != '\0')
        return GPT_OK;
    *at = '\0';
    e = (struct noted){digest, part, crc};
    GPT_TRY(gpt_grow(&r->noted, &r->cap, r->n + 1, sizeof(*r->noted),
                     "parts that are whole", err));
    r->noted[r->n++] = e;
    if (knows(r, name))
        return GPT_OK;
    GPT_TRY(gpt_grow(&r->names, &r->names_cap, r->n_names + 1,
                     sizeof(*r->names), "names of files", err));
    r->names[r->n_names] = gpt_arena_strdup(&r->arena, name);
    return r->names[r->n_names++] ? GPT_OK
                                  : gpt_no_memory(err, "names of files");
}

/* Whole lines alone; a torn one is cut off, so that the next does not continue
 * it. */
static int read_list(struct gpt_resume *r, struct gpt_err *err)
{
    char *text, *line, *end;
    size_t len;

    if (gpt_read_file(r->list, LIMIT, &text, &len, NULL) != GPT_OK)
        return ftruncate(r->fd, 0) == 0
                   ? GPT_OK
                   : gpt_fail_errno(err, GPT_EIO, "cannot write '%s'", r->list);
    int status = GPT_OK;
    for (line = text; status == GPT_OK && (end = strchr(line, '\n'));
         line = end + 1) {
        *end = '\0';
        status = take_line(r, line, err);
    }
    if (status == GPT_OK && ftruncate(r->fd, (off_t)(line - text)) != 0)
        status = gpt_fail_errno(err, GPT_EIO, "cannot write '%s'", r->list);
    gpt_free(text);
    if (r->n)
        qsort(r->noted, r->n, sizeof(*r->noted), compare_noted);
    return status;
}

/* ---- what is there ---- */

/* Files without a line go: they are made again, or are none of this output.
 * prefix: of names in the list; two directories deep, as checkpoints are. */
static int sweep(const struct gpt_resume *r, const char *dir,
                 const char *prefix, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES], name[GPT_PATH_BYTES];
    struct stat st;
    DIR *d = opendir(dir);
    int status = GPT_OK;

    if (!d)
        return errno == ENOENT
                   ? GPT_OK
                   : gpt_fail_errno(err, GPT_EIO, "cannot read '%s'", dir);
    for (struct dirent *e; status == GPT_OK && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(name, sizeof(name), "%.500s%.500s", prefix, e->d_name);
        status = gpt_path_join(path, sizeof(path), dir, e->d_name, err);
        if (status != GPT_OK || lstat(path, &st) != 0)
            continue;
        if (S_ISDIR(st.st_mode) && !*prefix) {
            snprintf(name, sizeof(name), "%.500s/", e->d_name);
            status = sweep(r, path, name, err);
        } else if (!(S_ISREG(st.st_mode) && knows(r, name)) &&
                   remove(path) != 0) {
            status = gpt_fail_errno(err, GPT_EIO, "cannot remove '%s'", path);
        }
    }
    closedir(d);
    return status;
}

/* Begins anew: what is there is of no use to this conversion. The list stays,
 * as it is locked, and loses its lines first: a death in between leaves files
 * that no line names, which are removed next time. */
static int discard(struct gpt_resume *r, struct gpt_err *err)
{
    r->n = r->n_names = 0;
    r->published = false;
    if (ftruncate(r->fd, 0) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot write '%s'", r->list);
    return r->is_file ? gpt_out_remove_part(r->target, err)
                      : gpt_outdir_remove_part(r->target, err);
}

/* A list that names a file that will not be written is another conversion's:
 * its files would be published with these. */
static int compare_files(struct gpt_resume *r, const char *const *files,
                         int64_t n_files, struct gpt_err *err)
{
    for (size_t i = 0; i < r->n_names; i++) {
        bool found = false;

        for (int64_t k = 0; k < n_files && !found; k++)
            found = strcmp(r->names[i], files[k]) == 0;
        if (!found)
            return discard(r, err);
    }
    return r->n_names == 0 ? discard(r, err)
           : r->is_file    ? GPT_OK
                           : sweep(r, r->part, "", err);
}

/* One write(2), if the system takes it whole: O_APPEND keeps lines whole unless
 * the machine stops. */
static int add_line(struct gpt_resume *r, const char *line, struct gpt_err *err)
{
    return gpt_write_all(r->fd, line, strlen(line))
               ? GPT_OK
               : gpt_fail_errno(err, GPT_EIO, "cannot write '%s'", r->list);
}

/* The name of the part goes with the publication, and the list after it: so one
 * without the other is a death in between. It is written down, as the next run
 * makes a part again, and may be interrupted, too. */
static int note_published(struct gpt_resume *r, struct gpt_err *err)
{
    if (r->published || r->n == 0 || gpt_path_exists(r->part) ||
        !gpt_path_exists(r->target))
        return GPT_OK;
    r->published = true;
    return add_line(r, PUBLISHED "\n", err);
}

int gpt_resume_open(struct gpt_resume **out, const char *path, bool is_file,
                    const char *const *files, int64_t n_files,
                    struct gpt_err *err)
{
    struct gpt_resume *r;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&r, 1, sizeof(*r), "a list of parts", err));
    r->is_file = is_file;
    r->fd = -1;
    GPT_TRY_GOTO(status, set_names(r, path, err), fail);
    GPT_TRY_GOTO(status, lock_list(r, err), fail);
    GPT_TRY_GOTO(status, read_list(r, err), fail);
    GPT_TRY_GOTO(status, compare_files(r, files, n_files, err), fail);
    GPT_TRY_GOTO(status, note_published(r, err), fail);
    *out = r;
    return GPT_OK;
fail:
    free_resume(r);
    return status;
}

/* ---- asking and adding ---- */

bool gpt_resume_find(const struct gpt_resume *r, uint64_t digest, int64_t part,
                     uint32_t *crc)
{
    const struct noted key = {digest, part, 0};
    const struct noted *e =
        r->n ? bsearch(&key, r->noted, r->n, sizeof(key), compare_noted) : NULL;

    if (e)
        *crc = e->crc;
    return e != NULL;
}

int gpt_resume_note(struct gpt_resume *r, const char *file, uint64_t digest,
                    int64_t part, uint32_t crc, struct gpt_err *err)
{
    char line[GPT_PATH_BYTES];

    snprintf(line, sizeof(line), "%.1000s %016llx %lld %08x\n", file,
             (unsigned long long)digest, (long long)part, (unsigned)crc);
    GPT_TRY(add_line(r, line, err));
    r->added = true;
    return GPT_OK;
}

/* Blocks and not sizes: a file has its whole size from the beginning. */
static int64_t held_in(const char *path, int depth)
{
    char inner[GPT_PATH_BYTES];
    struct stat st;
    int64_t total = 0;
    DIR *d;

    if (lstat(path, &st) != 0)
        return 0;
    if (!S_ISDIR(st.st_mode))
        return S_ISREG(st.st_mode) ? (int64_t)st.st_blocks * 512 : 0;
    d = depth > 0 ? opendir(path) : NULL;
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            gpt_path_join(inner, sizeof(inner), path, e->d_name, NULL) ==
                GPT_OK)
            total += held_in(inner, depth - 1);
    if (d)
        closedir(d);
    return total;
}

bool gpt_resume_unfinished(const struct gpt_resume *r)
{
    return r->published;
}

int64_t gpt_resume_held(const struct gpt_resume *r)
{
    return held_in(r->part, 2);
}

/* ---- the end ---- */

void gpt_resume_forget(struct gpt_resume *r)
{
    r->n = 0;
    r->added = false;
}

/* The list is removed while it is locked. A process that waits for the lock
 * then has a file without a name, and begins again; see lock_list(). */
void gpt_resume_close(struct gpt_resume *r, bool published, bool *kept)
{
    int status;

    /* Without a part that is whole nothing is worth another try. A failure to
     * remove it is no worse than the one that led here. */
    *kept = !published && (r->added || r->n > 0);
    if (!published && !*kept) {
        status = discard(r, NULL);
        (void)status;
    }
    if (!*kept)
        gpt_out_remove_record(r->list);
    free_resume(r);
}
