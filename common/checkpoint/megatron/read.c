/* The parts of all ranks as whole parameters: views, no element is read. Start
 * at gpt_megatron_merge(); add_qkv() has the three orders in which the rows of
 * the fused matrix of queries, keys and values have been stored. */
#include "checkpoint/megatron/megatron.h"

#include "checkpoint/names.h"

#include <assert.h>
#include <string.h>

/* A part of a parameter that a rank holds. */
struct part {
    const struct gpt_safetensor *entry;
    struct gpt_in *in;
    int64_t shape[GPT_PARAM_DIMS]; /* that it must have */
    int64_t part, parts;           /* which of equal parts of the rows of the
                                    * rank's tensor */
};

/* Rows [from, from + n * step) of a part in steps, as rows `to` and on of the
 * parameter, at its columns `column` and on. */
static int add_rows(struct gpt_tensor *out, const struct part *p, int64_t to,
                    int64_t n, int64_t from, int64_t step, int64_t column,
                    struct gpt_err *err)
{
    const int64_t size = (int64_t)gpt_dtype_bytes(p->entry->dtype);
    const int64_t *given = p->entry->strides;
    /* converters save transposed views, whose rows are not contiguous */
    const int64_t row = given ? given[0] : size * p->shape[1];
    struct gpt_file_box box = {
        .in = p->in,
        .dtype = p->entry->dtype,
        .offset = p->entry->begin + (p->part * p->shape[0] + from) * row,
        .begin = {to, column},
        .shape = {n, p->shape[1]},
        .stride = {row * step, given && out->ndim == 2 ? given[1] : size},
    };

    return gpt_tensor_add(out, &box, err);
}

/* The rows of a rank in version 0 are all queries, then all keys, then all
 * values: [3, heads, D]. In version 1 the three alternate row by row:
 * [heads, D, 3]. From version 2 on the order is ours: [heads, 3, D]. Versions 0
 * and 1 are older than grouped queries. */
static int add_qkv(struct gpt_tensor *out, const struct gpt_megatron *m,
                   const struct part *p, int64_t tp, struct gpt_err *err)
{
    const int64_t d = m->config.head_size;
    const int64_t heads = m->config.num_attention_heads / m->tp_size;
    const int64_t first = tp * p->shape[0];

    /* Rows of a rank are whole groups, or, where there are more ranks than
     * groups, an equal cut of them: both are consecutive rows of ours. */
    if (m->version >= 2)
        return add_rows(out, p, first, p->shape[0], 0, 1, 0, err);
    if (m->config.num_query_groups != m->config.num_attention_heads)
        return gpt_fail(err, GPT_EDATA,
                        "%s: grouped queries with checkpoint_version %lld",
                        m->dir, (long long)m->version);
    /* The order is that within a rank: a rank's rows are permuted before ranks
     * are joined. Converters that join first are wrong for version 0 with more
     * than one rank. */
    for (int64_t h = 0; h < heads; h++)
        for (int64_t j = 0; j < 3; j++) {
            const int64_t to = first + (3 * h + j) * d;

            if (m->version == 0)
                GPT_TRY(
                    add_rows(out, p, to, d, (j * heads + h) * d, 1, 0, err));
            else
                GPT_TRY(add_rows(out, p, to, d, 3 * h * d + j, 3, 0, err));
        }
    return GPT_OK;
}

/* The shape of a part follows from the model and the layout. A part that
 * differs by a factor is the sign of a file from another layout in the same
 * directory. */
static int check_part(const struct gpt_megatron *m,
                      const struct gpt_megatron_rank *r,
                      const struct gpt_param *param, const struct part *p,
                      struct gpt_err *err)
{
    const struct gpt_safetensor *e = p->entry;
    const int64_t rows = p->shape[0] * p->parts;

    if (e->ndim != param->ndim || e->shape[0] != rows ||
        (e->ndim == 2 && e->shape[1] != p->shape[1]))
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: tensor '%s' has %d dimensions, %lld x %lld; "
                        "its model says %lld x %lld",
                        m->dir, r->file, e->name, e->ndim,
                        (long long)(e->ndim > 0 ? e->shape[0] : 1),
                        (long long)(e->ndim > 1 ? e->shape[1] : 1),
                        (long long)rows, (long long)p->shape[1]);
    if (!gpt_dtype_is_float(e->dtype))
        return gpt_fail(err, GPT_EDATA, "%s/%s: tensor '%s' is of type %s",
                        m->dir, r->file, e->name, gpt_dtype_name(e->dtype));
    return GPT_OK;
}

/* Returns what an optimizer keeps of a tensor, or the tensor itself. A weight
 * is taken from the optimizer where that has it in fp32: the model's own is
 * that one, rounded. */
const struct gpt_safetensor *
gpt_megatron_choose(const struct gpt_megatron *m,
                    const struct gpt_megatron_chunk *c,
                    const struct gpt_safetensor *weight, int kind)
{
    const struct gpt_safetensor *state =
        m->has_optimizer ? &c->state[kind][weight - c->tensors.tensors] : NULL;

    assert(kind == GPT_MEGATRON_MASTER || (state && state->name));
    return state && state->name ? state : weight;
}

/* One rank's part, in place. Of what is not cut, every rank has a copy; the
 * first one's is taken, and the others only have to be there. copy: so it is
 * with the whole part, which a rank with other experts has given. */
static int add_part(struct gpt_megatron *m, struct gpt_tensor *out,
                    const struct gpt_param *param, struct gpt_megatron_rank *r,
                    struct gpt_megatron_chunk *c, int64_t tp, bool copy,
                    int kind, struct gpt_err *err)
{
    struct part p = {
        .in = r->torch.in,
        .shape = {param->shape[0], param->ndim > 1 ? param->shape[1] : 1},
    };

    p.entry =
        gpt_megatron_tensor(c, param->role, param->layer - c->first_layer);
    if (!p.entry)
        return gpt_fail(err, GPT_EDATA, "%s/%s: no tensor for '%s'", m->dir,
                        r->file, param->name);
    /* every rank's copy counts as used, so that the check for unknown tensors
     * sees the rest alone */
    c->used[p.entry - c->tensors.tensors] = true;
    const struct gpt_safetensor *weight = p.entry;
    if (!copy)
        p.entry = gpt_megatron_choose(m, c, weight, kind);
    if (p.entry != weight)
        p.in = r->state_in;
    p.part = gpt_megatron_part(param->role, m->config.gated, &p.parts);
    if (param->split == GPT_SPLIT_ROWS || param->split == GPT_SPLIT_BY_GROUP)
        p.shape[0] /= m->tp_size;
    if (param->split == GPT_SPLIT_COLUMNS)
        p.shape[1] /= m->tp_size;
    GPT_TRY(check_part(m, r, param, &p, err));
    if (copy)
        return GPT_OK;
    if (tp == 0 || param->split != GPT_SPLIT_NONE)
        gpt_tensor_widen(out, p.entry->dtype);
    if (param->role == GPT_QKV_WEIGHT || param->role == GPT_QKV_BIAS)
        return add_qkv(out, m, &p, tp, err);
    switch (param->split) {
    case GPT_SPLIT_NONE:
        return tp ? GPT_OK : add_rows(out, &p, 0, p.shape[0], 0, 1, 0, err);
    case GPT_SPLIT_COLUMNS:
        return add_rows(out, &p, 0, p.shape[0], 0, 1, tp * p.shape[1], err);
    case GPT_SPLIT_ROWS:
    case GPT_SPLIT_BY_GROUP:
    case GPT_SPLIT_BY_EXPERT:
        break;
    }
    return add_rows(out, &p, tp * p.shape[0], p.shape[0], 0, 1, 0, err);
}

/* The stage and chunk that hold a parameter. */
static bool find_place(const struct gpt_megatron *m,
                       const struct gpt_param *param, int64_t *pp, int64_t *v)
{
    *pp = param->place == GPT_PLACE_EMBEDDING ? 0 : m->pp_size - 1;
    *v = param->place == GPT_PLACE_EMBEDDING ? 0 : m->ranks[0].n_chunks - 1;
    if (param->layer < 0)
        return true;
    /* few chunks: a search costs nothing beside the lookups of names */
    for (*v = 0; *v < m->ranks[0].n_chunks; ++*v)
        for (*pp = 0; *pp < m->pp_size; ++*pp) {
            const struct gpt_megatron_chunk *c =
                &gpt_megatron_rank(m, *pp, 0)->chunks[*v];

            if (param->layer >= c->first_layer &&
                param->layer < c->first_layer + c->n_layers)
                return true;
        }
    return false;
}

/* Parts are added in the order of ranks, which is the order of rows or columns,
 * so the pieces of a tensor lie in the order in which they are read. */
static int merge_param(struct gpt_megatron *m, const struct gpt_param *param,
                       struct gpt_tensor *out, int kind, struct gpt_err *err)
{
    int64_t pp, v;

    if (m->dist)
        return gpt_megatron_merge_dist(m, param, out, kind, err);
    const bool found = find_place(m, param, &pp, &v);

    assert(found); /* layers were counted from the same lists */
    if (!found)
        return GPT_EFAIL;
    if (gpt_megatron_is_expert(param->role))
        return gpt_megatron_merge_experts(m, param, out, pp, v, kind, err);
    for (int64_t tp = 0; tp < m->tp_size; tp++)
        for (int64_t ep = 0; ep < m->ep_size; ep++) {
            struct gpt_megatron_rank *r = gpt_megatron_rank_of(m, ep, pp, tp);

            if (r->file)
                GPT_TRY(add_part(m, out, param, r, &r->chunks[v], tp,
                                 r != gpt_megatron_rank(m, pp, tp), kind,
                                 err));
        }
    return GPT_OK;
}

/* A tensor that is no parameter means that the model computes something that
 * this one does not. The tied output layer of megatron-core is a copy. */
static int check_unused(const struct gpt_megatron *m, struct gpt_err *err)
{
    for (int64_t i = 0; i < gpt_megatron_ranks(m); i++)
        for (int64_t v = 0; v < m->ranks[i].n_chunks; v++) {
            const struct gpt_megatron_chunk *c = &m->ranks[i].chunks[v];

            for (int64_t k = 0; k < c->tensors.n; k++) {
                const char *name = c->tensors.tensors[k].name;

                if (c->used[k] || gpt_megatron_ignores(name) ||
                    (m->config.tied_embeddings &&
                     strcmp(name, "output_layer.weight") == 0))
                    continue;
                return gpt_fail(err, GPT_EDATA,
                                "%s/%s: tensor '%.200s' is not one of a "
                                "GPT model", m->dir, m->ranks[i].file, name);
            }
        }
    return GPT_OK;
}

/* One tensor of a kind for each parameter, under the names of native ones. */
static int merge_kind(struct gpt_megatron *m, enum gpt_kind kind, int state,
                      struct gpt_err *err)
{
    for (int64_t i = 0; i < m->table.n; i++) {
        const struct gpt_param *p = &m->table.rows[i];
        const char *name =
            gpt_arena_printf(&m->arena, "%s%s", gpt_kind_prefix(kind), p->name);

        if (p->counts && kind != GPT_KIND_PARAMETERS)
            continue;
        if (!name) /* it outlives the table, which a program may free */
            return gpt_no_memory(err, "names of tensors");
        m->tensors[m->n] = gpt_tensor_make(name, GPT_F32, p->ndim, p->shape);
        GPT_TRY(merge_param(m, p, &m->tensors[m->n++], state, err));
    }
    return GPT_OK;
}

/* Before anything is divided by the number of ranks. More ranks than groups
 * share the rows of queries, keys and values in equal parts, wherever a group
 * ends; layouts here have whole groups. */
static int check_widths(const struct gpt_megatron *m, struct gpt_err *err)
{
    struct gpt_config c = m->config;
    struct gpt_undivided first;
    const int64_t rows =
        (c.num_attention_heads + 2 * c.num_query_groups) * c.head_size;

    if (m->version >= 2 && m->tp_size % c.num_query_groups == 0 &&
        rows % m->tp_size == 0)
        c.num_query_groups = m->tp_size;
    /* each rank has a part of every expert */
    if (c.num_experts > 0)
        c.num_experts = m->tp_size;
    if (gpt_widths_divide(&c, m->tp_size, &first))
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA,
                    "%s: %s (%lld) does not divide by its %lld tensor parallel "
                    "ranks",
                    m->dir, first.field, (long long)first.value,
                    (long long)m->tp_size);
}

/* The number of layers was counted from names; the tensors of each must be
 * there, so a table of parameters is no larger than the files justify. */
int gpt_megatron_merge(struct gpt_megatron *m, struct gpt_err *err)
{
    int64_t held = 0;

    for (int64_t i = 0; i < gpt_megatron_ranks(m); i++)
        for (int64_t v = 0; v < m->ranks[i].n_chunks; v++)
            held += m->ranks[i].chunks[v].tensors.n;
    /* stacked layers are counted by a dimension of tensors that are there */
    if (m->dist)
        held = m->config.num_layers;
    if (m->config.num_layers > held)
        return gpt_fail(err, GPT_EDATA, "%s: %lld layers, %lld tensors", m->dir,
                        (long long)m->config.num_layers, (long long)held);
    GPT_TRY(check_widths(m, err));
    GPT_TRY(gpt_params_build(&m->table, &m->config, err));
    GPT_TRY(gpt_new(&m->tensors, (size_t)m->table.n * 3, sizeof(*m->tensors),
                    "tensors", err));
    /* Weights first, so that the table's order is theirs; then each kind of
     * moment, as a native checkpoint has them. Without optimizer state the
     * weights are those of the model, of whatever type they are. */
    GPT_TRY(merge_kind(m, GPT_KIND_PARAMETERS, GPT_MEGATRON_MASTER, err));
    if (m->has_optimizer) {
        GPT_TRY(merge_kind(m, GPT_KIND_EXP_AVG, GPT_MEGATRON_EXP_AVG, err));
        GPT_TRY(
            merge_kind(m, GPT_KIND_EXP_AVG_SQ, GPT_MEGATRON_EXP_AVG_SQ, err));
    }
    return m->dist ? gpt_megatron_check_dist(m, err) : check_unused(m, err);
}
