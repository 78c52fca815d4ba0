/* The front end of nanoGPT's checkpoints, out/ckpt.pt: a row of
 * checkpoint/format.h, read only. Source: nanoGPT of A. Karpathy, train.py and
 * model.py. The file has the weights under "model", the arguments that the
 * model was made with, and the state of AdamW. Start at open_nanogpt(). */
#include "checkpoint/format.h"
#include "checkpoint/huggingface/rows.h"
#include "checkpoint/pth/pth.h"

#define FILE_NAME "ckpt.pt"
#define ARGUMENTS "model_args"

/* GPT-2's names; matrices are those of nn.Linear, and not transposed. */
static const struct gpt_hf_rule rules[] = {
    RULE(WORD_EMBEDDING, SAME, "wte.weight"),
    RULE(POSITION_EMBEDDING, SAME, "wpe.weight"),
    GPT2_NORM1,
    RULE(QKV_WEIGHT, QKV, "h.%.attn.c_attn.weight"),
    RULE(QKV_BIAS, QKV, "h.%.attn.c_attn.bias"),
    RULE(PROJ_WEIGHT, SAME, "h.%.attn.c_proj.weight"),
    RULE(PROJ_BIAS, SAME, "h.%.attn.c_proj.bias"),
    GPT2_NORM2,
    GPT2_MLP(SAME),
    GPT2_ENDS,
};
static const struct gpt_hf_family family = {
    .model_type = "nanoGPT",
    .prefix = "transformer.",
    .rules = rules,
    .n_rules = GPT_COUNT(rules),
};

/* The directory of a run, or its file, which users call by other beginnings. */
static bool recognise_nanogpt(const char *path)
{
    return gpt_path_is_dir(path) ? gpt_path_holds(path, FILE_NAME)
                                 : gpt_path_ends_in(path, FILE_NAME) &&
                                       gpt_path_exists(path);
}

/* ---- the model ---- */

/* A size among the arguments. Sums of sizes that are too large are found where
 * the configuration is completed. */
static int read_size(const struct gpt_pth *p,
                     const struct gpt_pickle_value *arguments, const char *key,
                     int64_t *to, struct gpt_err *err)
{
    const struct gpt_pickle_value *v = gpt_pickle_find(arguments, key);

    if (gpt_pickle_int(v, to) && *to > 0)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA, "%s/%s: " ARGUMENTS ": %s is %s", p->dir,
                    p->files[0].name, key,
                    v ? "no positive integer" : "missing");
}

/* An argument that is not known may change what the model computes. Without
 * biases there are none in norms, either. Files from before the argument have
 * them. */
static int read_arguments(struct gpt_source *s, struct gpt_err *err)
{
    static const char *const known[] = {"n_layer", "n_head", "n_embd",
                                        "block_size", "bias", "vocab_size",
                                        "dropout", NULL};
    const struct gpt_pth *p = s->data;
    const struct gpt_pickle_value *arguments =
        gpt_pickle_find(p->files[0].torch.root, ARGUMENTS);
    struct gpt_config *c = &s->config;
    int64_t bias = 1;
    double dropout = 0;

    if (!gpt_pickle_mapping(arguments)) {
        gpt_fail(err, GPT_EDATA, "%s/%s: no dict '" ARGUMENTS "'", p->dir,
                 p->files[0].name);
        return gpt_hint(err, "a checkpoint that nanoGPT's train.py saves has "
                             "one, which says what the model is");
    }
    const char *others = gpt_pickle_others(arguments, known, &s->arena);
    if (others)
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: " ARGUMENTS " has %.200s, which nanoGPT's "
                        "model does not have", p->dir, p->files[0].name,
                        others);
    *c = (struct gpt_config){.position_embedding = GPT_POSITION_LEARNED,
                             .activation = GPT_GELU_EXACT,
                             .norm_epsilon = 1e-5,
                             .init_std = 0.02,
                             .tied_embeddings = true};
    GPT_TRY(read_size(p, arguments, "n_layer", &c->num_layers, err));
    GPT_TRY(read_size(p, arguments, "n_head", &c->num_attention_heads, err));
    GPT_TRY(read_size(p, arguments, "n_embd", &c->hidden_size, err));
    GPT_TRY(read_size(p, arguments, "block_size", &c->max_positions, err));
    GPT_TRY(read_size(p, arguments, "vocab_size", &c->vocab_size, err));
    (void)gpt_pickle_int(gpt_pickle_find(arguments, "bias"), &bias);
    (void)gpt_pickle_real(gpt_pickle_find(arguments, "dropout"), &dropout);
    /* keys that are missing keep what they have here */
    c->no_linear_bias = c->no_norm_bias = !bias;
    c->hidden_dropout = c->attention_dropout = dropout;
    return GPT_OK;
}

/* ---- the source ---- */

/* nanoGPT draws its samples at random, and keeps no place in its data. */
static int open_nanogpt(struct gpt_source *s, const char *path,
                        const struct gpt_source_options *o,
                        struct gpt_err *err)
{
    static const char *const known[] = {"model", "optimizer", ARGUMENTS,
                                        "iter_num", "best_val_loss", "config",
                                        NULL};
    const char *name = FILE_NAME; /* that of the path, where it is a file */

    GPT_TRY(gpt_pth_begin(s, path, o, "a checkpoint of nanoGPT", err));
    if (!gpt_path_is_dir(path))
        name = gpt_arena_strdup(&s->arena, gpt_path_name(path));
    s->at = gpt_arena_strdup(&s->arena, path);
    if (!name || !s->at)
        return gpt_no_memory(err, "names of files");
    GPT_TRY(gpt_pth_add(s->data, name, "model", err));
    GPT_TRY(read_arguments(s, err));
    GPT_TRY(gpt_pth_import(s, &family, gpt_pth_find, name, o, err));
    s->family = "gpt2";
    return gpt_pth_import_run(s, "iter_num", known, o->optimizer, err);
}

const struct gpt_format gpt_format_nanogpt = {
    .name = "nanogpt",
    .title = "nanoGPT",
    .recognises = recognise_nanogpt,
    .open = open_nanogpt,
    .close = gpt_pth_close,
    .list = gpt_pth_list,
};
