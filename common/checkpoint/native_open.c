/* Choosing the checkpoint to open: rank 0 lists what there is, and all ranks
 * open the first that is whole for all of them. Start at
 * gpt_checkpoint_open_all(). */
#include "checkpoint/native.h"
#include "checkpoint/native_internal.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = GPT_PATH_BYTES, MAX_TRIED = 100 };

/* On all ranks, or on none. */
static int open_dir(struct gpt_checkpoint **c, const char *dir, bool verify,
                    struct gpt_agreement *peers, struct gpt_err *err)
{
    struct gpt_share share = {verify, peers ? peers->rank : 0,
                          peers ? peers->size : 1};
    int status = gpt_path_is_dir(dir)
                     ? gpt_checkpoint_open_here(c, dir, &share, err)
                     : gpt_fail(err, GPT_EDATA, "%s: no such checkpoint", dir);

    status = gpt_agreement_meet(peers, status, "", NULL, err);
    if (status != GPT_OK) {
        gpt_checkpoint_close(*c);
        *c = NULL;
    }
    return status;
}

/* Where to look, best first: iterations of a root, or HERE for a directory that
 * is a checkpoint itself. As text, for other ranks. */
#define HERE (-1)

static int add_candidate(struct gpt_buf *list, int64_t iteration,
                         struct gpt_err *err)
{
    return gpt_buf_printf(list, "%lld\n", (long long)iteration) == GPT_OK
               ? GPT_OK
               : gpt_fail(err, GPT_EFAIL, "out of memory");
}

/* What the tracker names, then the others, newest first. *why: what is wrong
 * with the tracker. */
static int list_root(struct gpt_buf *list, const char *root,
                     struct gpt_err *why, struct gpt_err *err)
{
    int64_t *others, tracked = -1;
    size_t n;
    int status = gpt_checkpoint_tracker(root, &tracked, why);

    if (status == GPT_OK) {
        GPT_TRY(add_candidate(list, tracked, err));
    } else if (status != GPT_EDATA) {
        *err = *why;
        return status;
    }
    GPT_TRY(gpt_checkpoint_list(root, &others, &n, err));
    bool known = status == GPT_OK;
    status = GPT_OK;
    for (size_t i = 0; i < n && i < MAX_TRIED && status == GPT_OK; i++)
        if (!known || others[i] != tracked)
            status = add_candidate(list, others[i], err);
    gpt_free(others);
    return status;
}

static int list_candidates(struct gpt_buf *list, const char *path,
                           int64_t iteration, struct gpt_err *why,
                           struct gpt_err *err)
{
    char manifest[PATH];

    if (!gpt_path_is_dir(path))
        return gpt_fail(err, GPT_EIO, "%s: no such directory", path);
    GPT_TRY(gpt_path_join(manifest, sizeof(manifest), path, GPT_MANIFEST, err));
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    if (gpt_path_exists(manifest) || strncmp(base, "iter_", 5) == 0)
        return add_candidate(list, HERE, err);
    if (iteration >= 0)
        return add_candidate(list, iteration, err);
    GPT_TRY(list_root(list, path, why, err));
    if (list->data)
        return GPT_OK;
    *err = *why;
    return why->status;
}

static int open_candidate(struct gpt_checkpoint **c, const char *path,
                          int64_t iteration, bool verify,
                          struct gpt_agreement *peers, struct gpt_err *err)
{
    char dir[PATH];

    if (iteration == HERE)
        snprintf(dir, sizeof(dir), "%s", path);
    else
        GPT_TRY(gpt_checkpoint_path(dir, sizeof(dir), path, iteration, err));
    return open_dir(c, dir, verify, peers, err);
}

/* The first candidate that opens, or why the best one did not. */
static int open_first(struct gpt_checkpoint **c, const char *path,
                      const char *candidates, bool verify,
                      struct gpt_agreement *peers, struct gpt_err *why,
                      struct gpt_err *err)
{
    for (const char *at = candidates; *at; at = strchr(at, '\n') + 1) {
        struct gpt_err failure = {0};
        int status = open_candidate(c, path, strtoll(at, NULL, 10), verify,
                                    peers, &failure);

        if (status == GPT_OK && why->status != GPT_OK &&
            gpt_agreement_first(peers)) {
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

int gpt_checkpoint_open_all(struct gpt_checkpoint **c, const char *path,
                            int64_t iteration, bool verify,
                            struct gpt_agreement *peers, struct gpt_err *err)
{
    struct gpt_err own = {0}, why = {0};
    struct gpt_buf list = {0};
    char *told = NULL;
    int status = GPT_OK;

    *c = NULL;
    err = err ? err : &own;
    if (gpt_agreement_first(peers))
        status = list_candidates(&list, path, iteration, &why, err);
    status = gpt_agreement_meet(peers, status, list.data, &told, err);
    if (status == GPT_OK)
        status = open_first(c, path, told ? told : list.data, verify, peers,
                            &why, err);
    gpt_free(told);
    gpt_buf_free(&list);
    return status;
}

int gpt_checkpoint_open(struct gpt_checkpoint **c, const char *path,
                        int64_t iteration, bool verify, struct gpt_err *err)
{
    return gpt_checkpoint_open_all(c, path, iteration, verify, NULL, err);
}
