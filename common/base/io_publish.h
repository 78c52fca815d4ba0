/* Publication of several files at once: io_publish.c does it, io_recover.c
 * completes one that was interrupted. Inside base/ only. */
#ifndef GPT_BASE_IO_PUBLISH_H
#define GPT_BASE_IO_PUBLISH_H

#include "base/io_internal.h"

#include <sys/stat.h>

#define GPT_PUBLISH_MAGIC "gpt publication 1"
#define GPT_PUBLISH_SUFFIX ".publish"

/* A file and its name. `from` and `old` are in the directory of `to`. */
struct gpt_publish_entry {
    const char *from; /* complete and on disk; NULL: `to` is to go */
    const char *to;   /* where it really is: gpt_real_target() */
    bool force;       /* `to` may exist */
    char *old;        /* where `to` is meanwhile; set by gpt_publish() */
    int64_t bytes, changed; /* of `from`: its size, and gpt_publish_time() */
    bool moved_old, moved_new;
};

/* Publishes n files, in this order, or none of them: the file that readers open
 * first is the last one. After a failure *pending tells that names could not be
 * taken back: the files under `from` are still needed then. */
int gpt_publish(struct gpt_publish_entry *entries, size_t n, bool sync,
                bool *pending, struct gpt_err *err) GPT_MUST_USE;

/* Completes each publication that a dead program left and that names `path`;
 * waits for one that is in progress. *done tells that there was one. GPT_EIO
 * when it cannot be completed. */
int gpt_publish_complete(const char *path, bool *done, struct gpt_err *err)
    GPT_MUST_USE;

/* ---- what both files use ---- */

/* Time of the last change, in nanoseconds: a rename leaves it as it is. */
static inline int64_t gpt_publish_time(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

size_t gpt_publish_dir(const char *path);
int gpt_publish_forward(struct gpt_publish_entry *entries, size_t n, bool sync,
                        struct gpt_err *err) GPT_MUST_USE;
void gpt_publish_finish(const struct gpt_publish_entry *entries, size_t n,
                        const char *journal);

#endif
