/* Front ends behind one face; see source.h. */
#include "checkpoint/source.h"

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

#include <stdio.h>
#include <string.h>

enum { PATH = GPT_PATH_BYTES };

static bool holds(const char *dir, const char *name)
{
    char path[PATH];

    return gpt_path_join(path, sizeof(path), dir, name, NULL) == GPT_OK &&
           gpt_path_exists(path);
}

bool gpt_source_is_hf(const char *path)
{
    return holds(path, GPT_HF_CONFIG) && !holds(path, GPT_MANIFEST) &&
           !holds(path, GPT_TRACKER);
}

int gpt_source_open(struct gpt_source *s, const char *path, bool verify,
                    int64_t divisible_by, int64_t tp, struct gpt_err *err)
{
    *s = (struct gpt_source){.tp = 1, .pp = 1};
    if (gpt_source_is_hf(path)) {
        GPT_TRY(gpt_hf_open(&s->hf, path, divisible_by, tp, err));
        s->dir = path;
        s->config = *gpt_hf_config(s->hf);
        s->tensors = gpt_hf_tensors(s->hf, &s->n);
        return GPT_OK;
    }
    GPT_TRY(gpt_checkpoint_open(&s->native, path, -1, verify, err));
    s->dir = gpt_checkpoint_dir(s->native);
    s->config = *gpt_checkpoint_config(s->native);
    s->iteration = gpt_checkpoint_iteration(s->native);
    s->tensors = gpt_checkpoint_tensors(s->native, &s->n);
    gpt_checkpoint_layout(s->native, &s->tp, &s->pp);
    return GPT_OK;
}

void gpt_source_close(struct gpt_source *s)
{
    gpt_checkpoint_close(s->native);
    gpt_hf_close(s->hf);
    *s = (struct gpt_source){0};
}

const struct gpt_tensor *gpt_source_find(const void *source, const char *name)
{
    const struct gpt_source *s = source;

    if (s->native)
        return gpt_checkpoint_find(s->native, name);
    for (int64_t i = 0; i < s->n; i++)
        if (strcmp(s->tensors[i].name, name) == 0)
            return &s->tensors[i];
    return NULL;
}

static bool is_weights(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && strcmp(dot, ".safetensors") == 0;
}

const char *gpt_source_attached(const struct gpt_source *s, int64_t i)
{
    if (s->hf) {
        for (const char *const *f = gpt_hf_vocab_files; *f; f++)
            if (holds(s->dir, *f) && i-- == 0)
                return *f;
        return NULL;
    }
    int64_t n;
    const struct gpt_checkpoint_file *files =
        gpt_checkpoint_files(s->native, &n);
    for (int64_t k = 0; k < n; k++)
        if (!is_weights(files[k].name) && i-- == 0)
            return files[k].name;
    return NULL;
}

int64_t gpt_source_bytes(const struct gpt_source *s)
{
    int64_t bytes = 0, n;

    if (s->hf) {
        const struct gpt_safetensors *shard;
        const char *name;

        for (size_t i = 0; (shard = gpt_hf_shard(s->hf, i, &name)); i++)
            bytes += gpt_in_size(shard->in);
        return bytes;
    }
    const struct gpt_checkpoint_file *files =
        gpt_checkpoint_files(s->native, &n);
    for (int64_t k = 0; k < n; k++)
        bytes += is_weights(files[k].name) ? files[k].size : 0;
    return bytes;
}
