/* The iterations of a root: which one is opened, and which ones are removed.
 * Rank 0 lists what there is, and all ranks open the first that is whole for
 * all of them. Start at gpt_checkpoint_open_all(). */
#include "checkpoint/native/native.h"
#include "checkpoint/native/internal.h"

#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TRIED = 100 };

/* Opens one directory on all ranks, or on none. Each rank checks the checksums
 * of its share of the files, so that together they read every byte once; a rank
 * that finds damage makes the candidate fail for all. */
static int open_directory(struct gpt_checkpoint **c, const char *dir,
                          const struct gpt_source_options *o,
                          struct gpt_err *err)
{
    struct gpt_agreement *peers = o->peers;
    const struct gpt_share share = {.weights_only = o->weights_only,
                                    .verify = o->verify,
                                    .later = o->verify_later,
                                    .rank = peers ? peers->rank : 0,
                                    .size = peers ? peers->size : 1};
    int status = gpt_path_is_dir(dir)
                     ? gpt_checkpoint_open_here(c, dir, &share, err)
                     : gpt_fail(err, GPT_EDATA, "%s: no such checkpoint", dir);

    status = gpt_agreement_settle(peers, status, "", NULL, err);
    if (status != GPT_OK) {
        gpt_checkpoint_close(*c);
        *c = NULL;
    }
    return status;
}

/* Where to look, best first: iterations of a root, or ITSELF for a directory
 * that is a checkpoint itself. As text, for other ranks. */
#define ITSELF (-1)

static int add_candidate(struct gpt_buf *list, int64_t iteration,
                         struct gpt_err *err)
{
    return gpt_buf_printf(list, "%lld\n", (long long)iteration) == GPT_OK
               ? GPT_OK
               : gpt_no_memory(err, "a name");
}

/* Adds the iterations of `others` that come before the tracked one, or those
 * that come after it. Where no tracked one is known, all of them are before
 * it. */
static int add_others(struct gpt_buf *list, const int64_t *others, size_t n,
                      int64_t tracked, bool before, struct gpt_err *err)
{
    for (size_t i = 0; i < n && i < MAX_TRIED; i++)
        if (others[i] != tracked && (others[i] < tracked) == before)
            GPT_TRY(add_candidate(list, others[i], err));
    return GPT_OK;
}

/* Lists what the tracker names, then the other iterations, newest first; those
 * after the tracked one come last, as a tracker that was set back has left them
 * on purpose. A tracker that is missing or damaged is no failure yet: *why
 * keeps what is wrong with it, to be reported if nothing else opens, and as a
 * warning if something does. */
static int list_root(struct gpt_buf *list, const char *root,
                     struct gpt_err *why, struct gpt_err *err)
{
    int64_t *others, tracked;
    size_t n;
    int status = gpt_checkpoint_tracker(root, &tracked, why);

    if (status == GPT_OK) {
        GPT_TRY(add_candidate(list, tracked, err));
    } else if (status == GPT_EDATA) {
        tracked = INT64_MAX;
    } else {
        *err = *why;
        return status;
    }
    GPT_TRY(gpt_checkpoint_list(root, &others, &n, err));
    status = add_others(list, others, n, tracked, true, err);
    if (status == GPT_OK)
        status = add_others(list, others, n, tracked, false, err);
    gpt_free(others);
    return status;
}

/* A directory named iter_* counts as a checkpoint even without its manifest:
 * the message is then that this one is incomplete, and no other one is taken in
 * the place of the one that was named. */
static int list_candidates(struct gpt_buf *list, const char *path,
                           int64_t iteration, struct gpt_err *why,
                           struct gpt_err *err)
{
    char manifest[GPT_PATH_BYTES];

    if (!gpt_path_is_dir(path))
        return gpt_fail(err, GPT_EIO, "%s: no such directory", path);
    GPT_TRY(gpt_path_join(manifest, sizeof(manifest), path, GPT_MANIFEST, err));
    if (gpt_path_exists(manifest) ||
        strncmp(gpt_path_name(path), "iter_", 5) == 0)
        return add_candidate(list, ITSELF, err);
    if (iteration >= 0)
        return add_candidate(list, iteration, err);
    GPT_TRY(list_root(list, path, why, err));
    if (list->data)
        return GPT_OK;
    *err = *why;
    return why->status;
}

/* The iteration as rank 0 has told it; each rank makes the path itself, as
 * ranks may see the root under the same name only. */
static int open_candidate(struct gpt_checkpoint **c, const char *path,
                          int64_t iteration,
                          const struct gpt_source_options *o,
                          struct gpt_err *err)
{
    char dir[GPT_PATH_BYTES];

    if (iteration == ITSELF)
        snprintf(dir, sizeof(dir), "%s", path);
    else
        GPT_TRY(gpt_checkpoint_path(dir, sizeof(dir), path, iteration, err));
    return open_directory(c, dir, o, err);
}

/* Opens the first candidate that opens, or reports why the best one did not.
 * Only bad data leads on to the next: a disk that cannot be read or a rank that
 * died would fail for every candidate, and an older checkpoint must not be
 * resumed because of a passing failure. */
static int open_first(struct gpt_checkpoint **c, const char *path,
                      const char *candidates,
                      const struct gpt_source_options *o, struct gpt_err *why,
                      struct gpt_err *err)
{
    for (const char *at = candidates; *at; at = strchr(at, '\n') + 1) {
        struct gpt_err failure = {0};
        int status =
            open_candidate(c, path, strtoll(at, NULL, 10), o, &failure);

        if (status == GPT_OK && why->status != GPT_OK &&
            gpt_agreement_first(o->peers)) {
            gpt_warn("%s", why->text);
            gpt_warn("using %s instead", gpt_checkpoint_dir(*c));
        }
        if (status == GPT_OK)
            return status;
        if (why->status == GPT_OK)
            *why = failure;
        if (status != GPT_EDATA)
            break;
    }
    *err = *why;
    return why->status;
}

/* Rank 0 alone lists the candidates, because a directory may change while ranks
 * list it. All ranks then walk the same list, and open_directory() makes them
 * succeed or fail at each candidate together. */
int gpt_checkpoint_open_all(struct gpt_checkpoint **c, const char *path,
                            const struct gpt_source_options *o,
                            struct gpt_err *err)
{
    struct gpt_err own = {0}, why = {0};
    struct gpt_buf list = {0};
    char *told = NULL;
    int status = GPT_OK;

    *c = NULL;
    err = err ? err : &own;
    if (gpt_agreement_first(o->peers))
        status = list_candidates(&list, path, o->iteration, &why, err);
    status = gpt_agreement_settle(o->peers, status, list.data, &told, err);
    if (status == GPT_OK)
        status =
            open_first(c, path, told ? told : list.data, o, &why, err);
    gpt_free(told);
    gpt_buf_free(&list);
    return status;
}

/* ---- removing ---- */

/* A file that is gone already is no failure: an earlier run may have been
 * stopped while it removed the directory. */
static int remove_in(const char *dir, const char *name, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];

    GPT_TRY(gpt_path_join(path, sizeof(path), dir, name, err));
    if (unlink(path) != 0 && errno != ENOENT)
        return gpt_fail_errno(err, GPT_EIO, "%s: cannot remove", path);
    return GPT_OK;
}

static int remove_files(const char *path, struct gpt_err *err)
{
    DIR *dir = opendir(path);
    int status = GPT_OK;

    if (!dir)
        return gpt_fail_errno(err, GPT_EIO, "%s", path);
    for (struct dirent *e; status == GPT_OK && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            status = remove_in(path, e->d_name, err);
    closedir(dir);
    if (status == GPT_OK && rmdir(path) != 0)
        status = gpt_fail_errno(err, GPT_EIO, "%s: cannot remove", path);
    return status;
}

/* The manifest goes first. A directory without one counts as incomplete for
 * every reader, so a crash in the middle leaves no checkpoint that opens and
 * then lacks files. What cannot be removed stays with a warning: a new
 * checkpoint is on disk, and a file that someone has put into an old one is no
 * reason to end the run that wrote it. */
static bool remove_iteration(const char *path)
{
    struct gpt_err why = {0};

    if (remove_in(path, GPT_MANIFEST, &why) == GPT_OK &&
        remove_files(path, &why) == GPT_OK)
        return true;
    gpt_warn("an old checkpoint is not removed: %s", why.text);
    return false;
}

/* ---- the best one ---- */

/* The link is relative, so that a root may be moved. */
int64_t gpt_checkpoint_best(const char *root)
{
    char path[GPT_PATH_BYTES], target[GPT_PATH_BYTES];
    int64_t iteration;

    if (gpt_path_join(path, sizeof(path), root, GPT_BEST, NULL) != GPT_OK ||
        gpt_link_read(path, target, sizeof(target)) != GPT_OK ||
        !gpt_name_is_iteration(target, &iteration))
        return -1;
    return iteration;
}

int gpt_checkpoint_mark_best(const char *root, int64_t iteration,
                             struct gpt_err *err)
{
    char path[GPT_PATH_BYTES], link[GPT_PATH_BYTES];

    GPT_TRY(gpt_checkpoint_path(path, sizeof(path), root, iteration, err));
    GPT_TRY(gpt_path_join(link, sizeof(link), root, GPT_BEST, err));
    if (!gpt_path_is_dir(path))
        return gpt_fail(err, GPT_EDATA, "%s: no such checkpoint", path);
    return gpt_link_write(link, gpt_path_name(path), err);
}

/* ---- pruning ---- */

/* Counts complete checkpoints only, since an incomplete one is no fallback. The
 * one that the tracker names stays whatever its age: a reader may be about to
 * open it. */
int gpt_checkpoint_prune(const char *root, int64_t keep, struct gpt_err *err)
{
    const int64_t best = gpt_checkpoint_best(root);
    int64_t *list, tracked = -1, complete = 0;
    size_t n;
    int status = GPT_OK;

    if (keep <= 0)
        return GPT_OK;
    GPT_TRY(gpt_checkpoint_list(root, &list, &n, err));
    if (gpt_checkpoint_tracker(root, &tracked, NULL) != GPT_OK)
        tracked = -1;
    for (size_t i = 0; status == GPT_OK && i < n; i++) {
        char path[GPT_PATH_BYTES];
        cJSON *manifest;

        status = gpt_checkpoint_path(path, sizeof(path), root, list[i], err);
        if (status != GPT_OK)
            break;
        if (complete >= keep && list[i] != tracked && list[i] != best) {
            remove_iteration(path);
        } else if (gpt_manifest_read(&manifest, path, NULL) == GPT_OK) {
            /* those after the tracked one are what a user went back from */
            complete += tracked < 0 || list[i] <= tracked;
            cJSON_Delete(manifest);
        }
    }
    gpt_free(list);
    return status;
}

int gpt_checkpoint_prune_loaded(const char *root, int64_t keep,
                                int64_t iteration, struct gpt_err *err)
{
    int64_t tracked;

    if (gpt_checkpoint_tracker(root, &tracked, NULL) != GPT_OK ||
        tracked != iteration)
        return GPT_OK;
    return gpt_checkpoint_prune(root, keep, err);
}

/* A reader that finds the newest checkpoint damaged takes the next one: it must
 * not be that of the run which was here before. So all manifests go first, the
 * files of all iterations later: a run that is killed meanwhile leaves none
 * that opens. */
int gpt_checkpoint_replace(const char *root, int64_t until, int64_t iteration,
                           struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];
    const int64_t best = gpt_checkpoint_best(root);
    int64_t *list;
    size_t n, kept = 0;
    int status = GPT_OK;

    if (until == INT64_MAX)
        return GPT_OK;
    GPT_TRY(gpt_checkpoint_list(root, &list, &n, err));
    for (size_t i = 0; i < n; i++)
        if (list[i] > until && list[i] != iteration)
            list[kept++] = list[i];
    for (size_t i = 0; status == GPT_OK && i < kept; i++) {
        status = gpt_checkpoint_path(path, sizeof(path), root, list[i], err);
        if (status == GPT_OK && list[i] == best)
            (void)remove_in(root, GPT_BEST, NULL);
        if (status == GPT_OK)
            (void)remove_in(path, GPT_MANIFEST, NULL); /* tried again below */
    }
    for (size_t i = 0; status == GPT_OK && i < kept; i++) {
        status = gpt_checkpoint_path(path, sizeof(path), root, list[i], err);
        if (status == GPT_OK && remove_iteration(path))
            gpt_info("removed %s, of the run that this one replaces", path);
    }
    gpt_free(list);
    return status;
}
