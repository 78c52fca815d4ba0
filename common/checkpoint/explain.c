/* What to do next when a checkpoint does not open; see
 * gpt_source_explain() in format.h. The front ends say what is wrong with a
 * file; here it is guessed from what is at the path what the user meant by it.
 */
#include "checkpoint/format.h"
#include "checkpoint/names.h"

#include "base/io.h"
#include "checkpoint/adapter/adapter.h"
#include "checkpoint/dcp/dcp.h"
#include "checkpoint/huggingface/huggingface.h"
#include "checkpoint/pth/pth.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* The first directory in `dir` that is a checkpoint: users name the folder
 * above it. */
static bool find_below(const char *dir, char *path, size_t cap)
{
    DIR *d = opendir(dir);
    bool found = false;

    for (struct dirent *e; d && !found && (e = readdir(d));)
        found = e->d_name[0] != '.' &&
                gpt_path_join(path, cap, dir, e->d_name, NULL) == GPT_OK &&
                gpt_path_is_dir(path) && gpt_format_of(path);
    if (d)
        closedir(d);
    return found;
}

/* Counts the iterations of a root; `name` is one of them. */
static int count_iterations(const char *dir, char *name, size_t cap)
{
    DIR *d = opendir(dir);
    int n = 0;

    /* a directory that cannot be read has no name to offer */
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, "iter_", 5) == 0) {
            snprintf(name, cap, "%s", e->d_name);
            n++;
        }
    if (d)
        closedir(d);
    return n;
}

/* Explains a run of which no checkpoint opens, or not the one that was asked
 * for. */
static int explain_run(const char *path, struct gpt_err *err)
{
    char name[256];
    int n = count_iterations(path, name, sizeof(name));

    if (n > 1)
        return gpt_hint(err, "another checkpoint of the run may be whole: name "
                             "one of the directories iter_* in %.150s", path);
    return n == 1 ? gpt_hint(err, "the only checkpoint there is %.100s", name)
                  : gpt_hint(err, "no directory iter_* is in %.150s", path);
}

/* Explains a path that does not exist: it may be the name of a model on a
 * hub. */
static int explain_missing(const char *path, struct gpt_err *err)
{
    const char *slash = strchr(path, '/');
    bool plain = path[0] != '.' && path[0] != '/' &&
                 (!slash || (slash[1] && !strchr(slash + 1, '/')));

    if (strcmp(path, "-") == 0)
        return gpt_hint(err, "a checkpoint needs a file that can be read at "
                             "any offset, which standard input is not: name a "
                             "file or a directory");
    return plain ? gpt_hint(err, "it is the name of a directory; models are "
                                 "not fetched by a name, download '%.100s' "
                                 "first", path)
                 : gpt_hint(err, "check the path: its directory is not there");
}

/* What FSDP and its users save, without what says which model it is.
 * Megatron-LM's have a file of their own beside. */
static int explain_dcp(struct gpt_err *err)
{
    return gpt_hint(err, "it is of torch.distributed.checkpoint: copy %s of "
                         "the model, which transformers' save_pretrained() "
                         "writes, into it or beside it", GPT_HF_CONFIG);
}

/* Explains weights of which the file that says what the model is is missing.
 * False when there are none. */
static bool explain_lacking(const char *dir, struct gpt_err *err)
{
    static const struct {
        const char *file, *hint;
    } lacking[] = {
        {GPT_META_FIRST_FILE, "it has weights of Meta's code; " GPT_META_PARAMS
                              " is missing beside them"},
        {GPT_META_ONE_FILE, "it has weights of Mistral's code; " GPT_META_PARAMS
                            " is missing beside them"},
        {GPT_LITGPT_WEIGHTS, "it has weights of LitGPT; " GPT_LITGPT_CONFIG
                             " is missing beside them"},
        {GPT_HF_WEIGHTS, NULL},
        {GPT_HF_INDEX, NULL},
        {GPT_HF_OLD_WEIGHTS, NULL},
        {GPT_HF_OLD_INDEX, NULL},
    };

    for (size_t i = 0; i < GPT_COUNT(lacking); i++)
        if (gpt_path_holds(dir, lacking[i].file)) {
            gpt_hint(err, "%s",
                     lacking[i].hint ? lacking[i].hint
                                     : "it has weights of a Hugging Face "
                                       "directory; config.json is missing "
                                       "beside them");
            return true;
        }
    return false;
}

/* The nearest directory above a file that is a checkpoint: files of a step of
 * DeepSpeed are up to three below it. */
static bool find_above(const char *file, char dir[GPT_PATH_BYTES])
{
    enum { LEVELS = 3 };

    if (snprintf(dir, GPT_PATH_BYTES, "%s", file) >= GPT_PATH_BYTES)
        return false;
    for (int i = 0; i < LEVELS && gpt_path_to_parent(dir); i++)
        if (gpt_format_of(dir))
            return true;
    return false;
}

/* Explains a file: users complete a path with Tab down to the file of weights,
 * name the one that says what the model is, or have half of a download. */
static int explain_file(const char *path, struct gpt_err *err)
{
    char dir[GPT_PATH_BYTES];

    if (gpt_path_ends_in(path, ".gguf"))
        return gpt_hint(err, "it does not begin as GGUF does: it may be copied "
                             "or downloaded in part");
    if (find_above(path, dir))
        return gpt_hint(err, "it is a file of a checkpoint: name the "
                             "directory, '%.200s'", dir);
    if (snprintf(dir, sizeof(dir), "%s", path) < GPT_PATH_BYTES &&
        gpt_path_to_parent(dir) && explain_lacking(dir, err))
        return GPT_OK;
    return gpt_hint(err, "it is a file: name the directory of a checkpoint");
}

/* Explains a directory that no front end recognises. */
static int explain_directory(const char *path, struct gpt_err *err)
{
    char below[GPT_PATH_BYTES];

    if (gpt_path_holds(path, GPT_DCP_METADATA) ||
        gpt_path_holds(path, GPT_DCP_FSDP_MODEL))
        return explain_dcp(err);
    if (explain_lacking(path, err))
        return GPT_OK;
    if (gpt_path_holds(path, GPT_HF_ADAPTER))
        return gpt_hint(err, "it is an adapter of PEFT: open its model, which "
                             "gpt-reshape inspect names, and have the adapter "
                             "merged into it");
    if (find_below(path, below, sizeof(below)))
        return gpt_hint(err, "it is not a checkpoint itself; '%.200s' is",
                        below);
    return gpt_hint(err, "a checkpoint's directory holds %s or %s, one of "
                         "Hugging Face config.json",
                    GPT_TRACKER, GPT_MANIFEST);
}

/* Explains a configuration without weights: they are not all downloaded, or are
 * not those of PyTorch. */
static int explain_weights(const char *dir, struct gpt_err *err)
{
    DIR *d = opendir(dir);
    char part[256] = "", other[256] = "", below[GPT_PATH_BYTES];

    for (struct dirent *e; d && !part[0] && (e = readdir(d));) {
        const bool weights = gpt_path_ends_in(e->d_name, ".safetensors");

        if (strstr(e->d_name, "-of-") &&
            (weights || gpt_path_ends_in(e->d_name, ".bin")))
            snprintf(part, sizeof(part), "%s", e->d_name);
        else if (weights)
            snprintf(other, sizeof(other), "%s", e->d_name);
    }
    if (d)
        closedir(d);
    if (part[0])
        return gpt_hint(err, "%.100s is one part of the model: the index, "
                             "which names all parts, is missing beside it",
                        part);
    if (gpt_adapter_recognises(dir))
        return gpt_hint(err, "an adapter of PEFT is beside config.json: open "
                             "its model, and have the adapter merged into "
                             "it");
    if (other[0])
        return gpt_hint(err, "%.100s is there: if it holds the whole model by "
                             "the names of transformers, call it %s", other,
                        GPT_HF_WEIGHTS);
    /* config.json may stand above the steps of a run */
    if (find_below(dir, below, sizeof(below)))
        return gpt_hint(err, "the weights are missing beside config.json; "
                             "'%.200s' is a checkpoint", below);
    return gpt_hint(err, "the weights are missing beside config.json");
}

static bool lacks_weights(const char *dir)
{
    static const char *const names[] = {
        GPT_HF_WEIGHTS, GPT_HF_INDEX, GPT_HF_OLD_WEIGHTS, GPT_HF_OLD_INDEX};

    for (size_t i = 0; i < GPT_COUNT(names); i++)
        if (gpt_path_holds(dir, names[i]))
            return false;
    return gpt_path_holds(dir, GPT_HF_CONFIG);
}

void gpt_source_explain(const char *path, struct gpt_err *err)
{
    if (!err || err->hint[0])
        return;
    if (!gpt_path_is_dir(path) && gpt_in_explain(path, err) && err->hint[0])
        return;
    if (!gpt_path_exists(path))
        explain_missing(path, err);
    else if (!gpt_path_is_dir(path)) {
        if (!gpt_format_of(path)) /* for a path that is a file, this says all */
            explain_file(path, err);
    } else if (!gpt_format_of(path))
        explain_directory(path, err);
    else if (err->status == GPT_EDATA && gpt_path_holds(path, GPT_TRACKER))
        explain_run(path, err);
    else if (err->status == GPT_EDATA &&
             gpt_format_of(path) == &gpt_format_hf && lacks_weights(path))
        explain_weights(path, err);
}
