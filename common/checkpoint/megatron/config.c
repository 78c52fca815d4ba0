/* The configuration of a Megatron checkpoint: the arguments of its run, as far
 * as they are there, and what the shapes of tensors say. Start at
 * gpt_megatron_configure().
 *
 * Shapes go before arguments, since a shape cannot be wrong about itself, and
 * since the releases of 2019 have no arguments. What a shape cannot say (heads,
 * epsilon, activation) comes from arguments or from GPT-2's defaults. */
#include "checkpoint/megatron/megatron.h"

#include "base/log.h"
#include "base/num.h"
#include "checkpoint/huggingface/family.h"
#include "checkpoint/plan.h"
#include "checkpoint/run_state.h"

#include <string.h>

/* ---- sizes ---- */

/* The shape of a tensor of the first rank, without a dimension of layers. */
struct shape {
    int ndim;
    int64_t size[GPT_TENSOR_DIMS];
};

static bool find_shape(const struct gpt_megatron *m, enum gpt_param_role role,
                       struct shape *out)
{
    const struct gpt_safetensor *t = NULL;
    const struct gpt_tensor *whole = NULL;
    int64_t layer = -1;

    *out = (struct shape){0};
    /* the first layer stands for all, whether they are stacked or not */
    if (m->dist) {
        whole = gpt_megatron_dist_tensor(
            m, "", role,
            role == GPT_FC1_WEIGHT || role == GPT_ROUTER_WEIGHT ? 0 : -1,
            &layer);
        if (!whole)
            return false;
        out->ndim = whole->ndim - (layer >= 0);
        memcpy(out->size, whole->shape + (layer >= 0),
               (size_t)gpt_max_i64(out->ndim, 0) * sizeof(*out->size));
        return true;
    }
    t = gpt_megatron_tensor(&m->ranks[0].chunks[0], role, 0);
    if (!t)
        return false;
    out->ndim = t->ndim;
    memcpy(out->size, t->shape, sizeof(*t->shape) * 2);
    return true;
}

/* What the first rank's tensors say: C, F, rows of the vocabulary and of the
 * table of positions. A first layer with experts has a router in place of a
 * width F, which is in the arguments of such a model. */
static int read_shapes(struct gpt_megatron *m, struct gpt_err *err)
{
    const bool sparse = gpt_config_has_experts(&m->config, 0);
    struct shape words, positions, fc1;
    const bool found = find_shape(m, GPT_WORD_EMBEDDING, &words);
    const bool learned = find_shape(m, GPT_POSITION_EMBEDDING, &positions);

    find_shape(m, sparse ? GPT_ROUTER_WEIGHT : GPT_FC1_WEIGHT, &fc1);
    /* tensors are looked up under all names, so this is also the test of
     * whether the file is of a GPT at all */
    if (words.ndim != 2 || fc1.ndim != 2) {
        gpt_fail(err, GPT_EDATA, "%s/%s: no %s of a GPT", m->dir,
                 m->ranks[0].file, found ? "layer" : "word_embeddings");
        return gpt_hint(err, "'gpt-reshape inspect' shows what is in the file");
    }
    m->config.hidden_size = words.size[1];
    if (!gpt_mul(words.size[0], m->tp_size, &m->config.padded_vocab_size) ||
        !gpt_mul(fc1.size[0], m->tp_size, &fc1.size[0]))
        return gpt_fail(err, GPT_EDATA, "%s/%s: a shape overflows", m->dir,
                        m->ranks[0].file);
    /* an odd number is found when the gate and its partner are taken apart */
    if (!sparse)
        m->config.ffn_hidden_size = fc1.size[0] / (m->config.gated ? 2 : 1);
    if (learned)
        m->config.max_positions = positions.size[0];
    return GPT_OK;
}

/* Heads are in no shape. The releases without arguments are GPT-2's, whose
 * heads have 64 elements in every size. */
static int assume_heads(struct gpt_megatron *m, struct gpt_err *err)
{
    struct gpt_config *c = &m->config;

    if (c->num_attention_heads > 0)
        return GPT_OK;
    if (c->hidden_size < 64 || c->hidden_size % 64 != 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s: no argument 'num_attention_heads', and %lld "
                        "channels are not heads of 64",
                        m->dir, (long long)c->hidden_size);
    c->num_attention_heads = c->hidden_size / 64;
    gpt_warn("%s: holds no arguments: %lld heads of 64 are assumed, as in "
             "GPT-2",
             m->dir, (long long)c->num_attention_heads);
    return GPT_OK;
}

/* Ids that exist. Runs with GPT-2's vocabulary do not always say its size; then
 * it is known from how many rows it is padded to. */
static void read_vocabulary(struct gpt_megatron *m,
                            const struct gpt_pickle_value *args)
{
    struct gpt_config *c = &m->config;
    const struct gpt_pickle_value *tokenizer =
        gpt_pickle_find(args, "tokenizer_type");
    int64_t unit = 128;

    c->vocab_size = 0;
    /* the second is of converters, which pad by rules of their own */
    gpt_megatron_int(args, "vocab_size", &c->vocab_size);
    gpt_megatron_int(args, "orig_vocab_size", &c->vocab_size);
    if (c->vocab_size > 0 && c->vocab_size <= c->padded_vocab_size)
        return;
    gpt_megatron_int(args, "make_vocab_size_divisible_by", &unit);
    c->vocab_size = c->padded_vocab_size;
    if ((!tokenizer || gpt_pickle_is(tokenizer, "GPT2BPETokenizer")) &&
        unit > 0 && unit <= 1 << 20 &&
        c->padded_vocab_size ==
            gpt_config_padded_vocab(50257, unit, m->tp_size))
        c->vocab_size = 50257;
}

/* Untied where the arguments say so; without them, where a first and last stage
 * has a matrix of its own. With several stages the last one has a copy. */
static void read_ties(struct gpt_megatron *m,
                      const struct gpt_pickle_value *args)
{
    struct shape output;
    const bool untied =
        m->dist ? find_shape(m, GPT_OUTPUT_WEIGHT, &output) :
        m->pp_size == 1 && m->ranks[0].n_chunks == 1 &&
        gpt_megatron_tensor(&m->ranks[0].chunks[m->ranks[0].n_chunks - 1],
                            GPT_OUTPUT_WEIGHT, 0);

    m->config.tied_embeddings =
        !gpt_megatron_flag(args, "untie_embeddings_and_output_weights", untied);
}

/* ---- the run ---- */

/* 0 where the key is absent, as in the first releases. */
static int read_version(struct gpt_megatron *m, struct gpt_err *err)
{
    double version = 0;

    gpt_megatron_real(m->ranks[0].torch.root, "checkpoint_version", &version);
    if (!(version >= 0) || version >= 4)
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: checkpoint_version %g, known are 0 to 3",
                        m->dir, m->ranks[0].file, version);
    m->version = (int64_t)version;
    return GPT_OK;
}

/* The family that the arguments name, or NULL: Megatron-LM knows of none, and
 * models of several have the same tensors. */
static const char *read_family(const struct gpt_pickle_value *args)
{
    const struct gpt_pickle_value *v =
        gpt_pickle_find(args, GPT_MEGATRON_FAMILY);
    char name[64];

    if (!v || v->kind != GPT_PICKLE_STRING || v->n >= sizeof(name))
        return NULL;
    memcpy(name, v->text, v->n);
    name[v->n] = '\0';
    const struct gpt_hf_family *family = gpt_hf_family_find(name, NULL);
    return family ? family->model_type : NULL;
}

/* What is kept of a run: its place. That there is no run to resume holds until
 * gpt_megatron_add_run() has found one. */
static int read_state(struct gpt_megatron *m,
                      const struct gpt_pickle_value *args, struct gpt_err *err)
{
    const struct gpt_pickle_value *root = m->ranks[0].torch.root;
    int64_t train = 0, valid = 0;

    /* the name of 2019, then that of all later versions */
    gpt_megatron_int(root, "total_iters", &m->iteration);
    gpt_megatron_int(root, "iteration", &m->iteration);
    gpt_megatron_int(args, "consumed_train_samples", &train);
    gpt_megatron_int(args, "consumed_valid_samples", &valid);
    if (m->iteration < 0 || m->iteration >= GPT_JSON_EXACT || train < 0 ||
        train >= GPT_JSON_EXACT || valid < 0 || valid >= GPT_JSON_EXACT)
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: iteration or consumed samples "
                        "are out of range",
                        m->dir, m->ranks[0].file);
    m->state = gpt_run_state_make(m->iteration, train, valid);
    cJSON_AddStringToObject(m->state, GPT_RUN_CONVERTED, "megatron");
    gpt_run_state_put_family(m->state, read_family(args));
    return GPT_OK;
}

/* Sizes of the layout in the arguments are compared with the files: a directory
 * that lost its last ranks would look like one of a smaller layout. */
static int check_layout(const struct gpt_megatron *m,
                        const struct gpt_pickle_value *args,
                        struct gpt_err *err)
{
    int64_t tp = m->tp_size, pp = m->pp_size, ep = m->ep_size;
    int64_t layers = m->config.num_layers;

    /* global tensors have no layout */
    if (m->dist)
        return GPT_OK;
    gpt_megatron_int(args, "model_parallel_size", &tp);
    gpt_megatron_int(args, "tensor_model_parallel_size", &tp);
    gpt_megatron_int(args, "pipeline_model_parallel_size", &pp);
    gpt_megatron_int(args, "expert_model_parallel_size", &ep);
    gpt_megatron_int(args, "num_layers", &layers);
    /* the first name is that of version 2 and before */
    if (tp != m->tp_size || pp != m->pp_size) {
        gpt_fail(err, GPT_EDATA,
                 "%s: has files of %lld x %lld ranks, its arguments say "
                 "%lld x %lld",
                 m->dir, (long long)m->tp_size, (long long)m->pp_size,
                 (long long)tp, (long long)pp);
        return gpt_hint(err, "each node may have written its own ranks: copy "
                             "the directories mp_rank_* of all into one");
    }
    if (ep != m->ep_size) {
        gpt_fail(err, GPT_EDATA,
                 "%s: has files of %lld ranks of experts, its arguments say "
                 "%lld",
                 m->dir, (long long)m->ep_size, (long long)ep);
        return gpt_hint(err, "each node may have written its own ranks: copy "
                             "the directories mp_rank_* of all into one");
    }
    if (layers != m->config.num_layers)
        return gpt_fail(err, GPT_EDATA,
                        "%s: its files have %lld layers, its arguments say "
                        "%lld",
                        m->dir, (long long)m->config.num_layers,
                        (long long)layers);
    return GPT_OK;
}

/* Experts are shared among ranks: whole ones, and parts of each. */
static int check_experts(const struct gpt_megatron *m, struct gpt_err *err)
{
    const struct gpt_config *c = &m->config;

    if (c->num_experts % m->ep_size == 0 &&
        c->moe_ffn_hidden_size % m->etp_size == 0)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: %lld experts of width %lld do not divide by its %lld "
                    "ranks of experts, %lld tensor parallel ranks each",
                    m->dir, (long long)c->num_experts,
                    (long long)c->moe_ffn_hidden_size, (long long)m->ep_size,
                    (long long)m->etp_size);
}

/* The layout comes first: sizes are products of shapes with it. The first
 * rank's file stands for all; what other files hold is compared when tensors
 * are made. */
int gpt_megatron_configure(struct gpt_megatron *m, struct gpt_err *err)
{
    const struct gpt_pickle_value *args =
        gpt_pickle_find(m->ranks[0].torch.root, "args");
    struct gpt_config *c = &m->config;
    struct gpt_err inner = {0};

    /* variants first: what a shape means depends on them */
    GPT_TRY(check_layout(m, args, err));
    if (m->dist)
        c->num_layers = gpt_megatron_dist_layers(m);
    GPT_TRY(gpt_megatron_read_variants(c, args, m->dir, err));
    GPT_TRY(read_version(m, err));
    GPT_TRY(read_shapes(m, err));
    GPT_TRY(assume_heads(m, err));
    read_vocabulary(m, args);
    read_ties(m, args);
    if (gpt_config_complete(c, 1, 1, &inner) != GPT_OK)
        return gpt_fail(err, GPT_EDATA, "%s: %s", m->dir, inner.text);
    GPT_TRY(check_experts(m, err));
    return read_state(m, args, err);
}
