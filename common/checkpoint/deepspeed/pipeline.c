/* Steps of GPT-NeoX, EleutherAI's code: DeepSpeed's engine of pipelines writes
 * a file a layer, whose names are those of modules there. They get the names of
 * transformers' gpt_neox, whose config.json is beside, as other steps have
 * them. Start at gpt_deepspeed_open_pipeline(). Source: DeepSpeed,
 * runtime/pipe/module.py; for names of modules GPT-NeoX's files.
 *
 * Only steps of one tensor parallel rank are read: of several, biases behind
 * matrices that are cut by columns are sums over the ranks, and norms are
 * means, and nothing is computed here. Stages are no matter, as layers have
 * numbers over all of them. The optimizer's state is left out. */
#include "checkpoint/deepspeed/deepspeed.h"

#include "base/log.h"
#include "checkpoint/safetensors/entry.h"
#include "checkpoint/source.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 2000 }; /* layers */

struct pipeline {
    struct gpt_deepspeed *d;
    size_t cap;
    int64_t blocks, last; /* of layers with attention: how many, and the number
                           * of the last file */
};

/* Engines whose topology has no tensor parallel ranks leave them out of names.
 * False when there is no such file. */
static bool name_layer(char *name, size_t cap, const char *dir, int layer,
                       int rank)
{
    snprintf(name, cap, "layer_%02d-model_%02d-model_states.pt", layer, rank);
    if (gpt_path_holds(dir, name))
        return true;
    snprintf(name, cap, "layer_%02d-model_states.pt", layer);
    return rank == 0 && gpt_path_holds(dir, name);
}

bool gpt_deepspeed_is_pipeline(const char *dir)
{
    char name[64];

    return name_layer(name, sizeof(name), dir, 0, 0);
}

/* What transformers calls a tensor; block < 0: of a layer without attention. A
 * name that is not known stays, and is refused with the model. */
static const char *rename_tensor(struct gpt_deepspeed *d, int64_t block,
                                 const char *name)
{
    static const char *const names[][2] = {
        {"word_embeddings.weight", "gpt_neox.embed_in.weight"},
        {"norm.weight", "gpt_neox.final_layer_norm.weight"},
        {"norm.bias", "gpt_neox.final_layer_norm.bias"},
        {"final_linear.weight", "embed_out.weight"},
    };

    if (block >= 0)
        return gpt_arena_printf(&d->arena, "gpt_neox.layers.%lld.%s",
                                (long long)block, name);
    for (size_t i = 0; i < GPT_COUNT(names); i++)
        if (strcmp(names[i][0], name) == 0)
            return names[i][1];
    return gpt_arena_strdup(&d->arena, name);
}

/* Vectors and matrices; others, which no model here has, get no pieces. */
static int add_tensor(struct pipeline *p, struct gpt_in *in, int64_t block,
                      const struct gpt_safetensor *e, struct gpt_err *err)
{
    struct gpt_deepspeed *d = p->d;
    const char *name = rename_tensor(d, block, e->name);

    if (!name)
        return gpt_no_memory(err, "names of parameters");
    if (e->ndim > GPT_TENSOR_DIMS)
        return gpt_fail(err, GPT_EDATA, "%s: tensor '%.200s' has %d dimensions",
                        gpt_in_path(in), e->name, e->ndim);
    GPT_TRY(gpt_grow(&d->params, &p->cap, (size_t)d->n + 1, sizeof(*d->params),
                     "parameters", err));
    struct gpt_deepspeed_param *to = &d->params[d->n++];
    *to = (struct gpt_deepspeed_param){.name = name};
    to->kinds[0] = gpt_tensor_make(name, e->dtype, e->ndim, e->shape);
    return e->ndim == 1 || e->ndim == 2
               ? gpt_stored_add(&to->kinds[0], in, e, err)
               : GPT_OK;
}

/* Blocks follow each other by their numbers: without one of them all behind it
 * would be other layers. */
static int check_block(struct pipeline *p, int layer, struct gpt_err *err)
{
    if (p->blocks > 0 && p->last != layer - 1) {
        gpt_fail(err, GPT_EDATA,
                 "%s: has layer_%02lld and layer_%02d, and none between them",
                 p->d->dir, (long long)p->last, layer);
        return gpt_hint(err, "copy the directory of the step whole");
    }
    p->last = layer;
    p->blocks++;
    return GPT_OK;
}

static int add_layer(struct pipeline *p, int layer, const char *name,
                     struct gpt_err *err)
{
    struct gpt_safetensors st;
    struct gpt_torch *file;
    int status;

    GPT_TRY(gpt_deepspeed_add_file(p->d, name, &file, err));
    GPT_TRY(gpt_torch_list(&st, file, file->root, err));
    const bool block =
        gpt_safetensors_find(&st, "attention.query_key_value.weight") != NULL;
    status = block ? check_block(p, layer, err) : GPT_OK;
    for (int64_t i = 0; status == GPT_OK && i < st.n; i++)
        status = add_tensor(p, file->in, block ? p->blocks - 1 : -1,
                            &st.tensors[i], err);
    gpt_safetensors_close(&st);
    return status;
}

int gpt_deepspeed_check_heads(const struct gpt_deepspeed *d, int64_t heads,
                              struct gpt_err *err)
{
    int64_t there = heads;

    (void)gpt_pickle_int(gpt_pickle_find(gpt_pickle_find(d->model.root, "args"),
                                         "num_attention_heads"), &there);
    if (there == heads)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: its run had %lld attention heads, config.json says "
                    "%lld",
                    d->dir, (long long)there, (long long)heads);
}

int gpt_deepspeed_open_pipeline(struct gpt_deepspeed *d, bool optimizer,
                                struct gpt_err *err)
{
    struct pipeline p = {.d = d};
    char name[64];

    if (name_layer(name, sizeof(name), d->dir, 0, 1)) {
        gpt_fail(err, GPT_EDATA,
                 "%s: has layers of several tensor parallel ranks, which are "
                 "not read", d->dir);
        return gpt_hint(err, "make it a directory of transformers with "
                             "GPT-NeoX's convert_neox_to_hf.py");
    }
    for (int layer = 0; layer < MOST; layer++)
        if (name_layer(name, sizeof(name), d->dir, layer, 0))
            GPT_TRY(add_layer(&p, layer, name, err));
    if (p.blocks == 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s: its layers are not those of GPT-NeoX: none has a "
                        "tensor 'attention.query_key_value.weight'", d->dir);
    if (optimizer)
        gpt_warn("%s: its optimizer state is left out, as that of a pipeline "
                 "is not read: weights are those that were computed with",
                 d->dir);
    return GPT_OK;
}
