/* Checkpoints of Megatron-LM in the format torch_dist: tensors are global, in a
 * checkpoint of torch.distributed.checkpoint, and what is no tensor is in
 * common.pt. Start at gpt_megatron_open_dist(). Source: megatron-core,
 * dist_checkpointing/ and sharded_state_dict() of its modules.
 *
 * Layers that are alike are one tensor with a first dimension for layers; else
 * each has its own. A gated linear_fc1 is the whole gate and, after it, its
 * partner, whatever ranks there were. */
#include "checkpoint/megatron/megatron.h"

#include "checkpoint/dcp/dcp.h"

#include <stdio.h>
#include <string.h>

enum { NAME = GPT_PARAM_NAME + 96 };

/* In front of the names of weights: what an optimizer keeps of them. A run in
 * mixed precision and a distributed optimizer have different words for fp32
 * weights. */
static const char *const prefixes[][2] = {
    [GPT_MEGATRON_EXP_AVG] = {"optimizer.state.exp_avg.", NULL},
    [GPT_MEGATRON_EXP_AVG_SQ] = {"optimizer.state.exp_avg_sq.", NULL},
    [GPT_MEGATRON_MASTER] = {"optimizer.state.param.",
                             "optimizer.state.fp32_param."},
};
/* In front of these, where ranks share experts: one of two optimizers. */
static const char *const chains[] = {"", "chained_0.", "chained_1."};

bool gpt_megatron_is_dist(const char *dir)
{
    return gpt_path_holds(dir, GPT_DCP_METADATA) &&
           gpt_path_holds(dir, GPT_DCP_COMMON);
}

/* The file of a run's state takes the place of a rank's: its keys are the same,
 * without a model. */
int gpt_megatron_open_dist(struct gpt_megatron *m, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];

    /* what asks for a layout gets that of one rank: tensors have none */
    m->tp_size = m->pp_size = m->ep_size = m->etp_size = 1;
    GPT_TRY(gpt_new(&m->ranks, 1, sizeof(*m->ranks), "ranks", err));
    m->ranks[0].file = GPT_DCP_COMMON;
    GPT_TRY(gpt_path_join(path, sizeof(path), m->dir, GPT_DCP_COMMON, err));
    GPT_TRY(gpt_torch_open(&m->ranks[0].torch, path, err));
    return gpt_dcp_open(&m->dist, m->dir, err);
}

/* ---- tensors ---- */

/* Stacked layers have a first dimension; *layer is the index in it, or -1. */
const struct gpt_tensor *gpt_megatron_dist_tensor(const struct gpt_megatron *m,
                                                  const char *prefix,
                                                  enum gpt_param_role role,
                                                  int64_t number,
                                                  int64_t *layer)
{
    const struct gpt_tensor *t;
    const char *alias;
    char name[NAME];

    for (int i = 0; (alias = gpt_megatron_alias(role, i)); i++) {
        *layer = -1;
        if (number < 0) {
            snprintf(name, sizeof(name), "%s%s", prefix, alias);
        } else {
            snprintf(name, sizeof(name), "%sdecoder.layers.%lld.%s", prefix,
                     (long long)number, alias);
            if ((t = gpt_dcp_find(m->dist, name)))
                return t;
            *layer = number;
            snprintf(name, sizeof(name), "%sdecoder.layers.%s", prefix, alias);
        }
        if ((t = gpt_dcp_find(m->dist, name)))
            return t;
    }
    return NULL;
}

/* The size of the first dimension of stacked layers, or the number of layers
 * that have names of their own. Every layer has attention. */
int64_t gpt_megatron_dist_layers(const struct gpt_megatron *m)
{
    int64_t layer, n = 0;
    const struct gpt_tensor *t =
        gpt_megatron_dist_tensor(m, "", GPT_QKV_WEIGHT, 0, &layer);

    if (t && layer >= 0)
        return t->shape[0];
    /* counts no further than there are tensors */
    while (n < m->dist->n &&
           gpt_megatron_dist_tensor(m, "", GPT_QKV_WEIGHT, n, &layer))
        n++;
    return n;
}

/* Reports the last two dimensions, which are those of one layer, also where a
 * tensor has all layers. */
static int bad_shape(const struct gpt_megatron *m, const struct gpt_tensor *t,
                     const struct gpt_param *p, int64_t rows,
                     struct gpt_err *err)
{
    return gpt_fail(err, GPT_EDATA,
                    "%s: tensor '%.200s' has %d dimensions, the last are %lld "
                    "x %lld; its model says %lld x %lld",
                    m->dir, t->name, t->ndim,
                    (long long)(t->ndim > 1 ? t->shape[t->ndim - 2] : 1),
                    (long long)(t->ndim > 0 ? t->shape[t->ndim - 1] : 1),
                    (long long)rows, (long long)p->shape[1]);
}

/* Appends rows [from, from + shape[0]) of a tensor, or of one of its layers.
 * Pieces are boxes, so that of each only the bounds are cut. */
static int add_rows(struct gpt_tensor *out, const struct gpt_tensor *t,
                    int64_t layer, int64_t from, struct gpt_err *err)
{
    const int skip = layer >= 0;

    for (size_t i = 0; i < t->n; i++) {
        const struct gpt_file_box *p = &t->pieces[i];
        struct gpt_file_box box = {.in = p->in, .dtype = p->dtype,
                                   .offset = p->offset};
        const int64_t end = from + out->shape[0];

        /* a box of other layers; of one that has this layer among others, the
         * place of the layer */
        if (skip && (layer < p->begin[0] || layer >= p->begin[0] + p->shape[0]))
            continue;
        if (skip)
            box.offset += (layer - p->begin[0]) * p->stride[0];
        for (int d = 0; d < out->ndim; d++) {
            box.begin[d] = p->begin[d + skip];
            box.shape[d] = p->shape[d + skip];
            box.stride[d] = p->stride[d + skip];
        }
        /* a piece may reach out of the rows that are wanted, on both sides */
        if (box.begin[0] < from) {
            const int64_t cut = from - box.begin[0];

            box.offset += cut * box.stride[0];
            box.begin[0] += cut;
            box.shape[0] -= cut;
        }
        if (box.begin[0] + box.shape[0] > end)
            box.shape[0] = end - box.begin[0];
        box.begin[0] -= from;
        if (box.shape[0] > 0)
            GPT_TRY(gpt_tensor_add(out, &box, err));
    }
    return GPT_OK;
}

/* The experts that a piece has of a tensor (experts, rows, columns), with a
 * dimension of layers in front or without: the matrices of each above those of
 * the next. */
static int add_experts(struct gpt_tensor *out, const struct gpt_file_box *p,
                       int64_t layer, int64_t rows, struct gpt_err *err)
{
    const int skip = layer >= 0;

    if (skip && (layer < p->begin[0] || layer >= p->begin[0] + p->shape[0]))
        return GPT_OK;
    for (int64_t e = 0; e < p->shape[skip]; e++) {
        const struct gpt_file_box box = {
            .in = p->in,
            .dtype = p->dtype,
            .offset = p->offset + e * p->stride[skip] +
                      (skip ? (layer - p->begin[0]) * p->stride[0] : 0),
            .begin = {(p->begin[skip] + e) * rows + p->begin[skip + 1],
                      p->begin[skip + 2]},
            .shape = {p->shape[skip + 1], p->shape[skip + 2]},
            .stride = {p->stride[skip + 1], p->stride[skip + 2]},
        };

        GPT_TRY(gpt_tensor_add(out, &box, err));
    }
    return GPT_OK;
}

static int merge_experts(struct gpt_megatron *m, const struct gpt_param *p,
                         const struct gpt_tensor *t, int64_t layer,
                         struct gpt_tensor *out, struct gpt_err *err)
{
    const int64_t rows = p->shape[0] / m->config.num_experts;
    const int64_t *shape = t->shape + (layer >= 0);

    if (t->ndim != 3 + (layer >= 0) || shape[0] != m->config.num_experts ||
        shape[1] != rows || shape[2] != p->shape[1] ||
        (layer >= 0 && t->shape[0] != m->config.num_layers))
        return bad_shape(m, t, p, rows, err);
    if (!gpt_dtype_is_float(t->dtype))
        return gpt_fail(err, GPT_EDATA, "%s: tensor '%.200s' is of type %s",
                        m->dir, t->name, gpt_dtype_name(t->dtype));
    out->dtype = t->dtype;
    for (size_t i = 0; i < t->n; i++)
        GPT_TRY(add_experts(out, &t->pieces[i], layer, rows, err));
    return GPT_OK;
}

/* A tensor of an optimizer, whichever of several has it. */
static const struct gpt_tensor *find_state(const struct gpt_megatron *m,
                                           const char *prefix,
                                           enum gpt_param_role role,
                                           int64_t number, int64_t *layer)
{
    const struct gpt_tensor *t = NULL;
    char name[NAME];

    for (size_t i = 0; !t && i < GPT_COUNT(chains); i++) {
        snprintf(name, sizeof(name), "%s%s", chains[i], prefix);
        t = gpt_megatron_dist_tensor(m, name, role, number, layer);
    }
    return t;
}

/* The weight itself, or what the optimizer keeps of it. Fp32 weights that are
 * nowhere else are the model's own. */
static const struct gpt_tensor *find_kind(const struct gpt_megatron *m,
                                          const struct gpt_param *p, int kind,
                                          int64_t *layer)
{
    const struct gpt_tensor *t = NULL;

    /* the words of one optimizer, then of the other */
    for (int i = 0; m->has_optimizer && !t && i < 2 && prefixes[kind][i]; i++)
        t = find_state(m, prefixes[kind][i], p->role, p->layer, layer);
    return t || kind != GPT_MEGATRON_MASTER
               ? t
               : gpt_megatron_dist_tensor(m, "", p->role, p->layer, layer);
}

/* The weight is looked up for moments, too: what has a moment and no weight is
 * no parameter. Shapes are compared with the model's, as a dimension of layers
 * is taken out of the one and a gate out of the other. */
int gpt_megatron_merge_dist(struct gpt_megatron *m, const struct gpt_param *p,
                            struct gpt_tensor *out, int kind,
                            struct gpt_err *err)
{
    int64_t layer, ignored, parts;
    const int64_t part = gpt_megatron_part(p->role, m->config.gated, &parts);
    const struct gpt_tensor *weight =
        gpt_megatron_dist_tensor(m, "", p->role, p->layer, &ignored);
    const struct gpt_tensor *t =
        m->buckets && !p->counts
            ? NULL
            : find_kind(m, p, kind, &layer);

    if (m->buckets && weight && !p->counts) {
        m->dist->used[weight - m->dist->tensors] = true;
        return gpt_megatron_copy_bucket(m->buckets, p, kind, out, err);
    }
    if (!t || !weight)
        return gpt_fail(err, GPT_EDATA, "%s: no tensor for '%s'%s", m->dir,
                        p->name, weight ? " in its optimizer state" : "");
    /* weights alone: each is used, or the model is another one */
    m->dist->used[weight - m->dist->tensors] = true;
    if (gpt_megatron_is_expert(p->role))
        return merge_experts(m, p, t, layer, out, err);
    const int64_t *shape = t->shape + (layer >= 0);
    if (t->ndim != p->ndim + (layer >= 0) || shape[0] != p->shape[0] * parts ||
        (p->ndim == 2 && shape[1] != p->shape[1]) ||
        (layer >= 0 && t->shape[0] != m->config.num_layers))
        return bad_shape(m, t, p, p->shape[0] * parts, err);
    if (!gpt_dtype_is_float(t->dtype))
        return gpt_fail(err, GPT_EDATA, "%s: tensor '%.200s' is of type %s",
                        m->dir, t->name, gpt_dtype_name(t->dtype));
    out->dtype = t->dtype;
    return add_rows(out, t, layer, part * p->shape[0], err);
}

static bool is_state(const char *name)
{
    for (size_t i = 0; i < GPT_COUNT(chains); i++)
        if (strncmp(name, chains[i], strlen(chains[i])) == 0 &&
            strncmp(name + strlen(chains[i]), "optimizer.", 10) == 0)
            return true;
    return false;
}

/* A weight that is no parameter means that the model computes something that
 * this one does not. Optimizer state of a kind that is not read is none. */
int gpt_megatron_check_dist(const struct gpt_megatron *m, struct gpt_err *err)
{
    for (int64_t i = 0; i < m->dist->n; i++) {
        const char *name = m->dist->tensors[i].name;

        if (!m->dist->used[i] && !gpt_megatron_ignores(name) &&
            !is_state(name) && strncmp(name, "rng_state", 9) != 0)
            return gpt_fail(err, GPT_EDATA,
                            "%s: tensor '%.200s' is not one of a GPT model",
                            m->dir, name);
    }
    return GPT_OK;
}

/* Moments of the word table, as whole as it is, stand for all; one that is
 * missing is found when tensors are made. */
bool gpt_megatron_dist_has_optimizer(const struct gpt_megatron *m, bool *other)
{
    int64_t layer;
    const struct gpt_tensor *words =
        gpt_megatron_dist_tensor(m, "", GPT_WORD_EMBEDDING, -1, &layer);
    const struct gpt_tensor *moment =
        find_state(m, prefixes[GPT_MEGATRON_EXP_AVG][0], GPT_WORD_EMBEDDING, -1,
                   &layer);

    *other = false;
    for (int64_t i = 0; i < m->dist->n && !*other; i++)
        *other = is_state(m->dist->tensors[i].name);
    return words && moment && words->ndim == moment->ndim;
}
