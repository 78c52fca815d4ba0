/* The end of writing: what all ranks wrote becomes the manifest, then the
 * directory gets its name, then the tracker names it. */
#include "checkpoint/native/native.h"
#include "checkpoint/native/internal.h"
#include "checkpoint/small_file.h"

#include "base/io.h"

#include <stdio.h>
#include <string.h>

/* ---- the manifest ---- */

/* Appends "name": VALUE. */
static int add_json(struct gpt_buf *b, const char *name, const cJSON *tree)
{
    char *text = gpt_json_print(tree, true);
    int status = text ? gpt_buf_printf(b, "\"%s\": %s,\n", name, text)
                      : GPT_EFAIL;

    cJSON_free(text);
    return status;
}

/* The text is written piece by piece, not as one tree: a list of slices of a
 * large model is far larger as a tree than as text. */
static int compose_manifest(struct gpt_buf *b, struct gpt_checkpoint_writer *w,
                            const struct gpt_config *config, int64_t tp,
                            int64_t pp, const cJSON *state, struct gpt_err *err)
{
    cJSON *empty = cJSON_CreateObject(), *model = gpt_config_to_json(config);
    int status;

    GPT_TRY_GOTO(
        status,
        gpt_buf_printf(
            b,
            "{\n\"format\": \"gpt-checkpoint\",\n\"version\": %d,\n"
            "\"iteration\": %lld,\n\"layout\": {\"tensor_parallel\": %lld, "
            "\"pipeline_parallel\": %lld},\n",
            gpt_manifest_version(&w->list), (long long)w->iteration,
            (long long)tp, (long long)pp),
        out);
    GPT_TRY_GOTO(status, add_json(b, "config", model), out);
    GPT_TRY_GOTO(status, add_json(b, "state", state ? state : empty), out);
    GPT_TRY_GOTO(status, gpt_manifest_print(b, &w->list), out);
    status = gpt_manifest_seal(b);
out:
    cJSON_Delete(model);
    cJSON_Delete(empty);
    if (status != GPT_OK)
        return gpt_fail(err, status, "%s: no memory for the manifest",
                        w->path);
    if (b->len > GPT_MANIFEST_LIMIT)
        return gpt_fail(err, GPT_EFAIL,
                        "%s: the manifest would have %zu bytes, limit %d",
                        w->path, b->len, GPT_MANIFEST_LIMIT);
    return GPT_OK;
}

/* Writes the manifest last into the directory, so that a directory with a
 * manifest has all of its files. */
static int put_manifest(struct gpt_checkpoint_writer *w,
                        const struct gpt_config *config, int64_t tp_size,
                        int64_t pp_size, const cJSON *state,
                        struct gpt_err *err)
{
    struct gpt_buf b = {0};
    int status;

    GPT_TRY_GOTO(status,
                 compose_manifest(&b, w, config, tp_size, pp_size, state, err),
                 out);
    status =
        gpt_small_file_write(gpt_outdir_path(w->dir), GPT_MANIFEST,
                             gpt_small_flags(w->flags), b.data, b.len, err);
out:
    gpt_buf_free(&b);
    return status;
}

/* The order is what makes a crash harmless. The files and the manifest are on
 * disk before the directory gets its name, and the directory has its name
 * before the tracker mentions it. A machine that stops in between leaves a
 * directory with a temporary name, which no program reads, or a whole
 * checkpoint that the tracker does not know yet, next to the one that it
 * knows. */
static int publish(struct gpt_checkpoint_writer *w, struct gpt_err *err)
{
    struct gpt_outdir *dir = w->dir;
    char text[32];

    w->dir = NULL;
    GPT_TRY(gpt_outdir_commit(dir, err));
    int n = snprintf(text, sizeof(text), "%lld\n", (long long)w->iteration);
    return gpt_small_file_write(w->root, GPT_TRACKER,
                                (w->flags & ~(unsigned)GPT_OUT_PART) |
                                    GPT_OUT_FORCE,
                                text, (size_t)n, err);
}

/* ---- several ranks ---- */

/* A rank's list as a JSON object: a manifest without its head, which rank 0
 * parses with the same code and the same checks as a manifest on disk. */
static int print_list(struct gpt_buf *b, struct gpt_manifest_list *list,
                      struct gpt_err *err)
{
    if (gpt_buf_printf(b, "{\n") != GPT_OK ||
        gpt_manifest_print(b, list) != GPT_OK || gpt_manifest_seal(b) != GPT_OK)
        return gpt_fail(err, GPT_EFAIL, "no memory for the manifest");
    return GPT_OK;
}

/* Adds what another rank wrote to rank 0's list. */
static int merge_list(struct gpt_checkpoint_writer *w, const char *text,
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
        GPT_TRY(merge_list(w, parts[r], r, err));
    return GPT_OK;
}

/* Writes manifest, directory and tracker on rank 0, after every rank has its
 * files on disk. */
static int commit_merged(struct gpt_checkpoint_writer *w, char **parts,
                         const struct gpt_config *config, int64_t tp_size,
                         int64_t pp_size, const cJSON *state,
                         struct gpt_err *err)
{
    GPT_TRY(merge_all(w, parts, err));
    GPT_TRY(put_manifest(w, config, tp_size, pp_size, state, err));
    return publish(w, err);
}

/* A rank other than 0 hands in its list, which says that its files are synced,
 * and waits. Rank 0 publishes only when every list has come, and tells the
 * others how that went: no rank trains on in the belief that a
 * checkpoint exists which does not. Rank 0 frees the writer before it answers,
 * so that a failed commit has removed its directory when the others report
 * it. */
int gpt_checkpoint_commit_all(struct gpt_checkpoint_writer *w, int status,
                              const struct gpt_config *config, int64_t tp_size,
                              int64_t pp_size, const cJSON *state,
                              struct gpt_err *err)
{
    struct gpt_agreement *peers = w->peers;
    struct gpt_buf mine = {0};
    char **parts = NULL;

    if (status == GPT_OK && !gpt_agreement_first(peers))
        status = print_list(&mine, &w->list, err);
    status = gpt_agreement_gather(peers, status, mine.data, &parts, err);
    gpt_buf_free(&mine);
    if (gpt_agreement_first(peers)) {
        if (status == GPT_OK)
            status =
                commit_merged(w, parts, config, tp_size, pp_size, state, err);
        if (peers)
            gpt_agreement_free_parts(peers, parts);
        gpt_checkpoint_abort(w);
        return gpt_agreement_answer(peers, status, "", NULL, err);
    }
    if (status == GPT_OK)
        status = gpt_agreement_answer(peers, GPT_OK, "", NULL, err);
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
