/* Removing old iterations of a checkpoint root. */
#include "checkpoint/manifest.h"
#include "checkpoint/native.h"

#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH = GPT_PATH_BYTES };

static int remove_in(const char *dir, const char *name, struct gpt_err *err)
{
    char path[PATH];

    GPT_TRY(gpt_path_join(path, sizeof(path), dir, name, err));
    if (unlink(path) != 0 && errno != ENOENT)
        return gpt_fail_errno(err, GPT_EIO, "%s: cannot remove", path);
    return GPT_OK;
}

/* The manifest goes first: what is left is then visibly incomplete. */
static int remove_iteration(const char *path, struct gpt_err *err)
{
    int status = remove_in(path, GPT_MANIFEST, err);
    DIR *dir = opendir(path);

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

int gpt_checkpoint_prune(const char *root, int64_t keep, struct gpt_err *err)
{
    int64_t *list, tracked = -1, complete = 0;
    size_t n;
    int status = GPT_OK;

    if (keep <= 0)
        return GPT_OK;
    GPT_TRY(gpt_checkpoint_list(root, &list, &n, err));
    if (gpt_checkpoint_tracker(root, &tracked, NULL) != GPT_OK)
        tracked = -1;
    for (size_t i = 0; status == GPT_OK && i < n; i++) {
        char path[PATH];
        cJSON *manifest;

        status = gpt_checkpoint_path(path, sizeof(path), root, list[i], err);
        if (status != GPT_OK)
            break;
        if (complete >= keep && list[i] != tracked) {
            status = remove_iteration(path, err);
        } else if (gpt_manifest_read(&manifest, path, NULL) == GPT_OK) {
            complete++;
            cJSON_Delete(manifest);
        }
    }
    gpt_free(list);
    return status;
}
