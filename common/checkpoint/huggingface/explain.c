/* What is missing in a directory of Hugging Face that does not open; see
 * gpt_hf_explain(). */
#include "checkpoint/format.h"
#include "checkpoint/huggingface/huggingface.h"

#include "base/io.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

bool gpt_hf_has_weights(const char *dir)
{
    static const char *const names[] = {
        GPT_HF_WEIGHTS, GPT_HF_INDEX, GPT_HF_OLD_WEIGHTS, GPT_HF_OLD_INDEX,
        GPT_HF_FSDP_WEIGHTS};

    for (size_t i = 0; i < GPT_COUNT(names); i++)
        if (gpt_path_holds(dir, names[i]))
            return true;
    return false;
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
    if (gpt_path_holds(dir, GPT_HF_ADAPTER))
        return gpt_hint(err, "an adapter of PEFT is beside config.json: open "
                             "its model, and have the adapter merged into "
                             "it");
    if (other[0])
        return gpt_hint(err, "%.100s is there: if it holds the whole model by "
                             "the names of transformers, call it %s", other,
                        GPT_HF_WEIGHTS);
    /* config.json may stand above the steps of a run */
    if (gpt_format_below(dir, below, sizeof(below)))
        return gpt_hint(err, "the weights are missing beside config.json; "
                             "'%.200s' is a checkpoint", below);
    return gpt_hint(err, "the weights are missing beside config.json");
}

bool gpt_hf_explain(const char *dir, struct gpt_err *err)
{
    const bool config = gpt_path_holds(dir, GPT_HF_CONFIG);
    const bool weights = gpt_hf_has_weights(dir);

    if (config && !weights)
        explain_weights(dir, err);
    else if (weights && !config)
        gpt_hint(err, "it has weights of a Hugging Face directory; "
                      "config.json is missing beside them");
    else if (!config && gpt_path_holds(dir, GPT_HF_ADAPTER))
        gpt_hint(err, "it is an adapter of PEFT: open its model, which "
                      "gpt-reshape inspect names, and have the adapter "
                      "merged into it");
    else
        return false;
    return true;
}
