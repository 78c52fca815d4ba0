/* Opening an adapter's files, and what each tensor is by its name; see
 * adapter.h. Start at gpt_adapter_open(). */
#include "checkpoint/adapter/adapter.h"

#include "base/io.h"
#include "checkpoint/huggingface/huggingface.h"
#include "checkpoint/torch/torch.h"

#include <stdlib.h>
#include <string.h>

/* Words of a name that say what a tensor is to the module before them. Behind
 * them there may be the adapter's own name, and a leaf. */
static const struct {
    const char *words;
    enum gpt_adapter_kind kind;
    const char *leaf; /* that must be there; "": may be; NULL: must not */
} marks[] = {
    {".lora_A", GPT_ADAPTER_A, "weight"},
    {".lora_B", GPT_ADAPTER_B, "weight"},
    {".lora_B", GPT_ADAPTER_BIAS, "bias"},
    {".lora_embedding_A", GPT_ADAPTER_EMBEDDING_A, NULL},
    {".lora_embedding_B", GPT_ADAPTER_EMBEDDING_B, NULL},
    {".lora_magnitude_vector", GPT_ADAPTER_LENGTHS, ""},
    {".token_adapter.trainable_tokens_delta", GPT_ADAPTER_TOKENS, NULL},
};

/* Words of modules that are wrapped; what is behind them is the module's. */
static const char *const wrapping[] = {".modules_to_save", ".base_layer"};

/* Trainers leave adapter_config.json beside whole models, too. */
bool gpt_adapter_recognises(const char *dir)
{
    return !gpt_hf_has_weights(dir) && gpt_path_holds(dir, GPT_HF_ADAPTER);
}

/* Names are in the arena, and so are those that messages use. */
void gpt_adapter_close(struct gpt_adapter *a)
{
    gpt_adapter_config_free(&a->config);
    gpt_safetensors_close(&a->weights);
    gpt_free(a->entries);
    gpt_arena_free(&a->arena);
    *a = (struct gpt_adapter){0};
}

/* Splits what is behind the words, "", ".NAME", ".LEAF" or ".NAME.LEAF"; the
 * leaf is "" when there is none. False for more words than that. */
static bool split_tail(const char *tail, const char **leaf)
{
    static const char *const leaves[] = {"weight", "bias"};
    const char *last = strrchr(tail, '.');

    *leaf = "";
    for (size_t i = 0; last && i < GPT_COUNT(leaves); i++)
        if (strcmp(last + 1, leaves[i]) == 0)
            *leaf = leaves[i];
    if (!tail[0])
        return true;
    const char *second = strchr(tail + 1, '.');
    return tail[0] == '.' && (!second || (second == last && **leaf));
}

/* The module is the first n characters of the name. */
static int set_module(struct gpt_adapter *a, struct gpt_adapter_entry *e,
                      const char *name, size_t n, struct gpt_err *err)
{
    e->module = gpt_arena_printf(&a->arena, "%.*s", (int)n, name);
    return e->module ? GPT_OK : gpt_no_memory(err, "names of an adapter");
}

/* A tensor that is left out would be a part of the training that is lost. */
static int fail_of_name(const struct gpt_adapter *a, const char *name,
                        struct gpt_err *err)
{
    gpt_fail(err, GPT_EDATA,
             "%s/%s: tensor '%.200s' is none of LoRA's that are "
             "known",
             a->dir, a->file, name);
    return gpt_hint(err, "merge_and_unload() of peft puts an adapter of its "
                         "kind into its model");
}

/* A tensor that is the module's own. Wrappers put a word between the module and
 * the leaf: what was saved in its place, or what it adapts. */
static int read_whole(struct gpt_adapter *a, struct gpt_adapter_entry *e,
                      const char *name, struct gpt_err *err)
{
    const char *last = strrchr(name, '.'), *at, *leaf;

    for (size_t i = 0; i < GPT_COUNT(wrapping); i++) {
        if (!(at = strstr(name, wrapping[i])))
            continue;
        if (!split_tail(at + strlen(wrapping[i]), &leaf) || !*leaf)
            return fail_of_name(a, name, err);
        e->leaf = leaf;
        return set_module(a, e, name, (size_t)(at - name), err);
    }
    if (!last || strstr(name, ".lora_"))
        return fail_of_name(a, name, err);
    e->leaf = gpt_arena_strdup(&a->arena, last + 1);
    if (!e->leaf)
        return gpt_no_memory(err, "names of an adapter");
    return set_module(a, e, name, (size_t)(last - name), err);
}

/* Rows of the table are tried in their order; what fits none is the model's own
 * tensor. The prefix is that of the class around the model. */
static int read_name(struct gpt_adapter *a, struct gpt_adapter_entry *e,
                     struct gpt_err *err)
{
    static const char prefix[] = "base_model.model.";
    const char *name = e->tensor->name, *at, *leaf;

    GPT_TRY(gpt_hf_unwrap(&name, &a->arena, err));
    if (strncmp(name, prefix, sizeof(prefix) - 1) == 0)
        name += sizeof(prefix) - 1;
    for (size_t i = 0; i < GPT_COUNT(marks); i++) {
        const size_t n = strlen(marks[i].words);

        if (!(at = strstr(name, marks[i].words)) || !strchr(".", at[n]) ||
            !split_tail(at + n, &leaf) ||
            (marks[i].leaf && marks[i].leaf[0] &&
             strcmp(leaf, marks[i].leaf) != 0) ||
            (!marks[i].leaf && *leaf))
            continue;
        e->kind = marks[i].kind;
        e->leaf = "";
        return set_module(a, e, name, (size_t)(at - name), err);
    }
    e->kind = GPT_ADAPTER_WHOLE;
    return read_whole(a, e, name, err);
}

/* Kinds of a module come together, and equal entries side by side. */
static int by_module(const void *a, const void *b)
{
    const struct gpt_adapter_entry *x = a, *y = b;
    const int order = strcmp(x->module, y->module);

    if (order)
        return order;
    return x->kind != y->kind ? (x->kind < y->kind ? -1 : 1)
                              : strcmp(x->leaf, y->leaf);
}

/* Views of a file of torch.save() may repeat elements: no tensor is larger than
 * its file, so that a small one does not mean a long work. */
static int check_entry(const struct gpt_adapter *a,
                       const struct gpt_safetensor *t, struct gpt_err *err)
{
    int64_t bytes;

    if (!gpt_dtype_is_float(t->dtype))
        return gpt_fail(err, GPT_EDATA, "%s/%s: tensor '%.200s' is of type %s",
                        a->dir, a->file, t->name, gpt_dtype_name(t->dtype));
    if (!gpt_safetensor_bytes(t, &bytes) || bytes > gpt_in_size(a->weights.in))
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: tensor '%.200s' is larger than "
                        "its file",
                        a->dir, a->file, t->name);
    if (t->ndim >= 1 && t->ndim <= 2 && t->shape[0] > 0 &&
        (t->ndim == 1 || t->shape[1] > 0))
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s/%s: tensor '%.200s' is no vector and no "
                    "matrix",
                    a->dir, a->file, t->name);
}

/* With bias "all" a module that is saved has its bias under two names: the one
 * without its wrapper's word counts, as in peft. Else two are too many. */
static int drop_doubles(struct gpt_adapter *a, struct gpt_err *err)
{
    int64_t n = 1;

    for (int64_t i = 1; i < a->n; i++) {
        struct gpt_adapter_entry *last = &a->entries[n - 1];
        const struct gpt_adapter_entry *e = &a->entries[i];

        if (by_module(last, e) != 0)
            a->entries[n++] = *e;
        else if (strstr(last->tensor->name, ".modules_to_save."))
            *last = *e;
        else if (!strstr(e->tensor->name, ".modules_to_save."))
            return gpt_fail(err, GPT_EDATA,
                            "%s/%s: '%.150s' and '%.150s' are the same of two "
                            "adapters, or twice of one",
                            a->dir, a->file, last->tensor->name,
                            e->tensor->name);
    }
    a->n = n;
    return GPT_OK;
}

/* Sorted by module, so that its tensors are found together. */
static int read_entries(struct gpt_adapter *a, struct gpt_err *err)
{
    GPT_TRY(gpt_new(&a->entries, (size_t)a->weights.n, sizeof(*a->entries),
                    "an adapter", err));
    for (int64_t i = 0; i < a->weights.n; i++) {
        const struct gpt_safetensor *t = &a->weights.tensors[i];

        GPT_TRY(check_entry(a, t, err));
        if (strstr(t->name, ".original_module."))
            continue; /* of a module of which another one was saved */
        a->entries[a->n].tensor = t;
        GPT_TRY(read_name(a, &a->entries[a->n++], err));
    }
    if (a->n == 0)
        return gpt_fail(err, GPT_EDATA, "%s/%s: it has no tensors", a->dir,
                        a->file);
    qsort(a->entries, (size_t)a->n, sizeof(*a->entries), by_module);
    return drop_doubles(a, err);
}

/* As in peft, the file of safetensors counts where both are. */
static int open_weights(struct gpt_adapter *a, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];

    a->file = GPT_ADAPTER_WEIGHTS;
    if (!gpt_path_holds(a->dir, a->file) &&
        gpt_path_holds(a->dir, GPT_ADAPTER_OLD_WEIGHTS))
        a->file = GPT_ADAPTER_OLD_WEIGHTS;
    GPT_TRY(gpt_path_join(path, sizeof(path), a->dir, a->file, err));
    if (!gpt_path_exists(path))
        return gpt_fail(err, GPT_EDATA, "%s: neither %s nor %s", a->dir,
                        GPT_ADAPTER_WEIGHTS, GPT_ADAPTER_OLD_WEIGHTS);
    return gpt_path_ends_in(a->file, ".bin")
               ? gpt_torch_open_tensors(&a->weights, path, err)
               : gpt_safetensors_open(&a->weights, path, err);
}

/* The configuration first: it is small, and says what is not merged. */
int gpt_adapter_open(struct gpt_adapter *a, const char *dir,
                     struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];

    *a = (struct gpt_adapter){.n = 0};
    a->dir = gpt_arena_strdup(&a->arena, dir);
    if (!a->dir)
        return gpt_no_memory(err, "an adapter");
    if (!gpt_path_holds(dir, GPT_HF_ADAPTER)) {
        gpt_fail(err, gpt_path_exists(dir) ? GPT_EDATA : GPT_EIO, "%s: no %s",
                 dir, GPT_HF_ADAPTER);
        return gpt_hint(err, "an adapter is the directory that peft's "
                             "save_pretrained() has written");
    }
    GPT_TRY(gpt_path_join(path, sizeof(path), dir, GPT_HF_ADAPTER, err));
    /* messages about patterns name it later */
    const char *kept = gpt_arena_strdup(&a->arena, path);
    if (!kept)
        return gpt_no_memory(err, "an adapter");
    GPT_TRY(gpt_adapter_config_read(&a->config, kept, err));
    GPT_TRY(open_weights(a, err));
    return read_entries(a, err);
}
