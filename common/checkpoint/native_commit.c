/* The end of writing: what all ranks wrote becomes the manifest, then the
 * directory gets its name, then the tracker names it. */
#include "checkpoint/native.h"
#include "checkpoint/native_internal.h"

#include "base/io.h"

#include <stdio.h>
#include <string.h>

enum { PATH = GPT_PATH_BYTES };

/* ---- the manifest ---- */

/* "name": VALUE, taking and freeing a tree. */
static int add_json(struct gpt_buf *b, const char *name, const cJSON *tree)
{
    char *text = tree ? gpt_json_print(tree, true) : NULL;
    int status = text ? gpt_buf_printf(b, "\"%s\": %s,\n", name, text)
                      : GPT_EFAIL;

    cJSON_free(text);
    return status;
}

static int compose(struct gpt_buf *b, struct gpt_checkpoint_writer *w,
                   const struct gpt_config *config, int64_t tp, int64_t pp,
                   const cJSON *state, struct gpt_err *err)
{
    cJSON *empty = cJSON_CreateObject(), *model = gpt_config_to_json(config);
    int status = gpt_buf_printf(
        b,
        "{\n\"format\": \"gpt-checkpoint\",\n\"version\": %d,\n"
        "\"iteration\": %lld,\n\"layout\": {\"tensor_parallel\": %lld, "
        "\"pipeline_parallel\": %lld},\n",
        gpt_manifest_version(&w->list), (long long)w->iteration, (long long)tp,
        (long long)pp);

    if (status == GPT_OK)
        status = add_json(b, "config", model);
    if (status == GPT_OK)
        status = add_json(b, "state", state ? state : empty);
    cJSON_Delete(model);
    cJSON_Delete(empty);
    if (status == GPT_OK)
        status = gpt_manifest_print(b, &w->list);
    if (status == GPT_OK)
        status = gpt_manifest_seal(b);
    if (status != GPT_OK)
        return gpt_fail(err, status, "%s: no memory for the manifest",
                        w->path);
    if (b->len > GPT_MANIFEST_LIMIT)
        return gpt_fail(err, GPT_EFAIL,
                        "%s: the manifest would have %zu bytes, limit %d",
                        w->path, b->len, GPT_MANIFEST_LIMIT);
    return GPT_OK;
}

static int put_manifest(struct gpt_checkpoint_writer *w,
                        const struct gpt_config *config, int64_t tp_size,
                        int64_t pp_size, const cJSON *state,
                        struct gpt_err *err)
{
    struct gpt_buf b = {0};
    char path[PATH];
    int status = compose(&b, w, config, tp_size, pp_size, state, err);

    if (status == GPT_OK)
        status = gpt_path_join(path, sizeof(path), gpt_outdir_path(w->dir),
                               GPT_MANIFEST, err);
    if (status == GPT_OK)
        status = gpt_write_file(path, w->flags | GPT_OUT_INSIDE, b.data,
                                b.len, err);
    gpt_buf_free(&b);
    return status;
}

static int publish(struct gpt_checkpoint_writer *w, struct gpt_err *err)
{
    char path[PATH], text[32];
    struct gpt_outdir *dir = w->dir;

    w->dir = NULL;
    GPT_TRY(gpt_outdir_commit(dir, err));
    GPT_TRY(gpt_path_join(path, sizeof(path), w->root, GPT_TRACKER, err));
    snprintf(text, sizeof(text), "%lld\n", (long long)w->iteration);
    return gpt_write_file(path, w->flags | GPT_OUT_FORCE, text, strlen(text),
                          err);
}

/* ---- several ranks ---- */

/* A rank's list as a JSON object. */
static int list_text(struct gpt_buf *b, struct gpt_manifest_list *list,
                     struct gpt_err *err)
{
    if (gpt_buf_printf(b, "{\n") != GPT_OK ||
        gpt_manifest_print(b, list) != GPT_OK || gpt_manifest_seal(b) != GPT_OK)
        return gpt_fail(err, GPT_EFAIL, "no memory for the manifest");
    return GPT_OK;
}

/* Adds what another rank wrote. */
static int merge(struct gpt_checkpoint_writer *w, const char *text,
                 int64_t rank, struct gpt_err *err)
{
    char what[40];
    cJSON *root;

    snprintf(what, sizeof(what), "the files of rank %lld", (long long)rank);
    GPT_TRY(gpt_json_parse(&root, text, strlen(text), what, err));
    int status = gpt_manifest_parse(&w->list, root, what, err);
    cJSON_Delete(root);
    return status;
}

static int merge_all(struct gpt_checkpoint_writer *w, char **parts,
                     struct gpt_err *err)
{
    for (int64_t r = 1; w->peers && r < w->peers->size; r++)
        GPT_TRY(merge(w, parts[r], r, err));
    return GPT_OK;
}

/* Rank 0: all ranks have written. */
static int finish(struct gpt_checkpoint_writer *w, char **parts,
                  const struct gpt_config *config, int64_t tp_size,
                  int64_t pp_size, const cJSON *state, struct gpt_err *err)
{
    GPT_TRY(merge_all(w, parts, err));
    GPT_TRY(put_manifest(w, config, tp_size, pp_size, state, err));
    return publish(w, err);
}

int gpt_checkpoint_commit_all(struct gpt_checkpoint_writer *w, int status,
                              const struct gpt_config *config, int64_t tp_size,
                              int64_t pp_size, const cJSON *state,
                              struct gpt_err *err)
{
    struct gpt_agreement *peers = w->peers;
    struct gpt_buf mine = {0};
    char **parts = NULL;

    if (status == GPT_OK && !gpt_agreement_first(peers))
        status = list_text(&mine, &w->list, err);
    status = gpt_agreement_gather(peers, status, mine.data, &parts, err);
    gpt_buf_free(&mine);
    if (gpt_agreement_first(peers)) {
        if (status == GPT_OK)
            status = finish(w, parts, config, tp_size, pp_size, state, err);
        if (peers)
            gpt_agreement_free_parts(peers, parts);
        gpt_checkpoint_abort(w);
        return gpt_agreement_tell(peers, status, "", NULL, err);
    }
    if (status == GPT_OK)
        status = gpt_agreement_tell(peers, GPT_OK, "", NULL, err);
    gpt_checkpoint_abort(w);
    return status;
}

int gpt_checkpoint_commit(struct gpt_checkpoint_writer *w,
                          const struct gpt_config *config, int64_t tp_size,
                          int64_t pp_size, const cJSON *state,
                          struct gpt_err *err)
{
    return gpt_checkpoint_commit_all(w, GPT_OK, config, tp_size, pp_size,
                                     state, err);
}
