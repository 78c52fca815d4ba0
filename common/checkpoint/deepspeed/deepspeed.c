/* Finding and opening a checkpoint of DeepSpeed. A path is a root, where
 * `latest` names the directory of a step, or such a directory; config.json of
 * the model is in either. Start at gpt_deepspeed_find() and
 * gpt_deepspeed_open(). */
#include "checkpoint/deepspeed/deepspeed.h"

#include "checkpoint/huggingface/huggingface.h"

#include <stdio.h>
#include <string.h>

enum { TAG_BYTES = 256 };

/* Stages 0 to 2 have one file of the model for all data parallel ranks; in
 * stage 3 each has one, of which the first says what parameters there are. */
static const char *const model_files[] = {
    "mp_rank_00_model_states.pt",
    "zero_pp_rank_0_mp_rank_00_model_states.pt",
};

/* ---- finding ---- */

/* Fills what a directory of a step tells by the names in it. */
static bool is_step(struct gpt_deepspeed *d, const char *dir)
{
    const char *file = NULL;

    for (size_t i = 0; !file && i < GPT_COUNT(model_files); i++)
        if (gpt_path_holds(dir, model_files[i]))
            file = model_files[i];
    d->universal = gpt_path_holds(dir, "zero");
    d->pipeline = gpt_deepspeed_is_pipeline(dir);
    d->model_file = file;
    snprintf(d->dir, sizeof(d->dir), "%s", dir);
    return file || d->universal || d->pipeline;
}

/* The name of a step, as a file beside it says; a name that leaves the
 * directory is none. */
static bool read_tag(const char *root, const char *file, char *tag)
{
    char path[GPT_PATH_BYTES], *text;
    size_t len;

    if (gpt_path_join(path, sizeof(path), root, file, NULL) != GPT_OK ||
        gpt_path_is_dir(path) || !gpt_path_exists(path) ||
        gpt_read_held(path, TAG_BYTES - 1, &text, &len, NULL) != GPT_OK)
        return false;
    snprintf(tag, TAG_BYTES, "%.*s", (int)strcspn(text, "\r\n"), text);
    gpt_free(text);
    return gpt_name_is_safe(tag);
}

/* A step may be copied without its root: then config.json is beside its files,
 * or still one directory up. */
static bool find_config(struct gpt_deepspeed *d, const char *path)
{
    char up[GPT_JOINED_BYTES];

    snprintf(d->root, sizeof(d->root), "%s", path);
    if (gpt_path_holds(path, GPT_HF_CONFIG))
        return true;
    snprintf(up, sizeof(up), "%s/..", path);
    if (strlen(up) >= sizeof(d->root) || !gpt_path_holds(up, GPT_HF_CONFIG))
        return false;
    memcpy(d->root, up, strlen(up) + 1);
    return true;
}

bool gpt_deepspeed_find(struct gpt_deepspeed *d, const char *path)
{
    static const char *const latest[] = {"latest", "latest_universal"};
    char tag[TAG_BYTES], dir[GPT_PATH_BYTES];

    /* a step itself first: it may lie under a root of another one */
    if (is_step(d, path))
        return find_config(d, path);
    for (size_t i = 0; i < GPT_COUNT(latest); i++)
        if (read_tag(path, latest[i], tag) &&
            gpt_path_join(dir, sizeof(dir), path, tag, NULL) == GPT_OK &&
            is_step(d, dir))
            return find_config(d, path);
    return false;
}

/* ---- parts ---- */

int gpt_deepspeed_add_file(struct gpt_deepspeed *d, const char *name,
                           struct gpt_torch **out, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];

    GPT_TRY(gpt_path_join(path, sizeof(path), d->dir, name, err));
    GPT_TRY(gpt_grow(&d->files, &d->cap_files, (size_t)d->n_files + 1,
                     sizeof(*d->files), "files", err));
    GPT_TRY(gpt_grow(&d->file_names, &d->cap_names, (size_t)d->n_files + 1,
                     sizeof(*d->file_names), "files", err));
    d->file_names[d->n_files] = gpt_arena_strdup(&d->arena, name);
    if (!d->file_names[d->n_files])
        return gpt_no_memory(err, "names of files");
    /* any tensor may be read from any of them, in the order of the output */
    GPT_TRY(gpt_in_allow(d->n_files + 2, err));
    *out = &d->files[d->n_files];
    GPT_TRY(gpt_torch_open(*out, path, err));
    d->n_files++;
    return GPT_OK;
}

int gpt_deepspeed_take_step(struct gpt_deepspeed *d, const struct gpt_torch *t,
                            const struct gpt_pickle_value *count,
                            struct gpt_err *err)
{
    int64_t step;

    GPT_TRY(gpt_torch_count(t, count, &step, err));
    if (step < 0) /* not all versions count in every place */
        return GPT_OK;
    d->steps_differ |= d->step >= 0 && step != d->step;
    d->step = step;
    return GPT_OK;
}

/* ---- opening ---- */

/* Files of a second tensor parallel rank mean that tensors were cut in ways
 * that only the model knows. */
int gpt_deepspeed_open(struct gpt_deepspeed *d, bool optimizer,
                       struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];

    d->step = -1;
    if (!d->universal && !d->pipeline &&
        (gpt_path_holds(d->dir, "mp_rank_01_model_states.pt") ||
         gpt_path_holds(d->dir, "zero_pp_rank_0_mp_rank_01_model_states.pt"))) {
        gpt_fail(err, GPT_EDATA,
                 "%s: has several tensor parallel ranks, which are not read",
                 d->dir);
        return gpt_hint(err, "make it a universal checkpoint with DeepSpeed's "
                             "ds_to_universal.py");
    }
    if (d->model_file) {
        GPT_TRY(gpt_path_join(path, sizeof(path), d->dir, d->model_file, err));
        GPT_TRY(gpt_torch_open(&d->model, path, err));
    }
    if (d->universal)
        return gpt_deepspeed_open_universal(d, optimizer, err);
    return d->pipeline ? gpt_deepspeed_open_pipeline(d, optimizer, err)
                       : gpt_deepspeed_open_zero(d, optimizer, err);
}

/* Also for what failed halfway: what was not made is zero. */
void gpt_deepspeed_close(struct gpt_deepspeed *d)
{
    for (int64_t i = 0; i < d->n; i++)
        for (int k = 0; k < GPT_N_ADAM_KINDS; k++)
            gpt_tensor_free(&d->params[i].kinds[k]);
    for (int64_t i = 0; i < d->n_files; i++)
        gpt_torch_close(&d->files[i]);
    for (size_t i = 0; i < d->n_whole; i++)
        gpt_tensor_free(&d->whole[i]->kinds[0]);
    for (int64_t i = 0; i < d->n_others; i++)
        gpt_torch_close(&d->others[i]);
    gpt_torch_close(&d->model);
    gpt_safetensors_close(&d->states);
    gpt_free(d->others);
    gpt_free(d->whole);
    gpt_free(d->params);
    gpt_free(d->files);
    gpt_free(d->file_names);
    gpt_arena_free(&d->arena);
    *d = (struct gpt_deepspeed){0};
}
