/* Experts in a Megatron checkpoint: which ranks have which of them, and their
 * matrices as parts of the parameters here, which have all experts of a layer
 * one above the other. Start at gpt_megatron_merge_experts().
 *
 * A rank has some whole experts (expert parallel), and of each of these a part
 * of its width, as of any feed-forward (tensor parallel). Modules for grouped
 * products had, until 2026, one tensor for all experts of a rank: a stack of
 * matrices whose rows are what others have as columns. Source: megatron-core,
 * core/transformer/moe/experts.py. */
#include "checkpoint/megatron/megatron.h"

#include <stdio.h>

/* ---- ranks ---- */

struct gpt_megatron_rank *gpt_megatron_expert_rank(const struct gpt_megatron *m,
                                                   int64_t ep, int64_t pp,
                                                   int64_t r)
{
    for (int64_t tp = r; tp < m->tp_size; tp += m->etp_size)
        if (gpt_megatron_rank_of(m, ep, pp, tp)->file)
            return gpt_megatron_rank_of(m, ep, pp, tp);
    return NULL;
}

static int missing(const struct gpt_megatron *m, int64_t ep, int64_t pp,
                   int64_t tp, struct gpt_err *err)
{
    char of[64] = "", ranks[32] = "";

    if (m->ep_size > 1) {
        snprintf(of, sizeof(of), "expert rank %lld, ", (long long)ep);
        snprintf(ranks, sizeof(ranks), "%lld x ", (long long)m->ep_size);
    }
    gpt_fail(err, GPT_EDATA,
             "%s: no file of %stensor rank %lld in stage %lld, of %s%lld x "
             "%lld ranks",
             m->dir, of, (long long)tp, (long long)pp, ranks,
             (long long)m->tp_size, (long long)m->pp_size);
    return gpt_hint(err, "copy the directory of the iteration whole: each node "
                         "may have written its own ranks");
}

/* Where experts are cut over all tensor parallel ranks, every rank has a file.
 * Else a rank of the one kind goes with some of the other. */
static int find_holes(const struct gpt_megatron *m, struct gpt_err *err)
{
    for (int64_t pp = 0; pp < m->pp_size; pp++) {
        for (int64_t tp = 0; tp < m->tp_size; tp++)
            if (!gpt_megatron_rank(m, pp, tp)->file)
                return missing(m, 0, pp, tp, err);
        for (int64_t ep = 0; ep < m->ep_size; ep++)
            for (int64_t r = 0; r < m->etp_size; r++)
                if (!gpt_megatron_expert_rank(m, ep, pp, r))
                    return missing(m, ep, pp, r, err);
    }
    return GPT_OK;
}

/* The second of two numbers in a name is that of the stage, and where there is
 * one stage that of experts: only the arguments tell. Ranks lie in memory alike
 * in both cases. */
int gpt_megatron_settle_ranks(struct gpt_megatron *m, struct gpt_err *err)
{
    const struct gpt_pickle_value *args =
        gpt_pickle_find(m->ranks[0].torch.root, "args");
    int64_t pp = m->pp_size, ep = 1, experts = 0;

    gpt_megatron_int(args, "pipeline_model_parallel_size", &pp);
    gpt_megatron_int(args, "expert_model_parallel_size", &ep);
    if (m->numbers == 2 && pp == 1 && ep > 1) {
        m->ep_size = m->pp_size;
        m->pp_size = 1;
    }
    m->etp_size = m->tp_size;
    gpt_megatron_int(args, "num_experts", &experts);
    if (experts > 0)
        gpt_megatron_int(args, "expert_tensor_parallel_size", &m->etp_size);
    if (m->etp_size < 1 || m->tp_size % m->etp_size != 0)
        return gpt_fail(err, GPT_EDATA,
                        "%s: its run had expert_tensor_parallel_size %lld with "
                        "%lld tensor parallel ranks, which is not supported",
                        m->dir, (long long)m->etp_size, (long long)m->tp_size);
    return find_holes(m, err);
}

/* ---- matrices ---- */

/* A part of an expert's matrix that a rank holds, (rows, columns), or that of
 * all of the rank's experts. */
struct part {
    const struct gpt_safetensor *entry;
    struct gpt_in *in;
    bool all;
    int64_t rows, columns;
    int64_t index, count; /* of the expert among the rank's */
};

/* The shape of the tensor that a part is in. */
static int check_part(const struct gpt_megatron *m,
                      const struct gpt_megatron_rank *r, const struct part *p,
                      enum gpt_param_role role, struct gpt_err *err)
{
    const struct gpt_safetensor *e = p->entry;
    const bool fc1 = role == GPT_EXPERTS_FC1;
    const int64_t rows = !p->all ? p->rows
                         : fc1   ? p->columns
                                 : p->columns * p->count;
    const int64_t columns = !p->all ? p->columns
                            : fc1   ? p->rows * p->count
                                    : p->rows;

    if (e->ndim != 2 || e->shape[0] != rows || e->shape[1] != columns)
        return gpt_fail(err, GPT_EDATA,
                        "%s/%s: tensor '%s' has %d dimensions, %lld x %lld; "
                        "its model says %lld x %lld",
                        m->dir, r->file, e->name, e->ndim,
                        (long long)(e->ndim > 0 ? e->shape[0] : 1),
                        (long long)(e->ndim > 1 ? e->shape[1] : 1),
                        (long long)rows, (long long)columns);
    if (!gpt_dtype_is_float(e->dtype))
        return gpt_fail(err, GPT_EDATA, "%s/%s: tensor '%s' is of type %s",
                        m->dir, r->file, e->name, gpt_dtype_name(e->dtype));
    if (p->all && e->strides)
        return gpt_fail(err, GPT_EDATA, "%s/%s: tensor '%s' is not contiguous",
                        m->dir, r->file, e->name);
    return GPT_OK;
}

/* Rows [from, from + n) of a part, as those from `to` on of the parameter, at
 * its columns from `column` on. A stack has columns of ours as rows. */
static int add_rows(struct gpt_tensor *out, const struct part *p, int64_t from,
                    int64_t n, int64_t to, int64_t column, struct gpt_err *err)
{
    const int64_t size = (int64_t)gpt_dtype_bytes(p->entry->dtype);
    const int64_t *given = p->entry->strides;
    struct gpt_file_box box = {
        .in = p->in,
        .dtype = p->entry->dtype,
        .begin = {to, column},
        .shape = {n, p->columns},
        .stride = {given ? given[0] : size * p->columns,
                   given ? given[1] : size},
    };

    box.offset = p->entry->begin + from * box.stride[0];
    if (p->all) {
        box.stride[0] = size;
        box.stride[1] = size * p->rows;
        box.offset = p->entry->begin +
                     size * (p->index * p->rows * p->columns + from);
    }
    return gpt_tensor_add(out, &box, err);
}

/* One expert of a rank, in place: `number` among all of the layer. The first
 * matrix of a gated one is two, of which each rank has a part: those of the
 * gate lie together here, then those of the other. */
static int add_expert(const struct gpt_megatron *m, const struct gpt_param *p,
                      struct gpt_tensor *out, const struct part *part,
                      int64_t number, int64_t r, struct gpt_err *err)
{
    const int64_t rows = p->shape[0] / m->config.num_experts;
    const int64_t halves =
        p->role == GPT_EXPERTS_FC1 && m->config.gated ? 2 : 1;
    const int64_t n = part->rows / halves;

    gpt_tensor_widen(out, part->entry->dtype);
    if (p->role == GPT_EXPERTS_FC2)
        return add_rows(out, part, 0, n, number * rows, r * part->columns, err);
    for (int64_t h = 0; h < halves; h++)
        GPT_TRY(add_rows(out, part, h * n, n,
                         number * rows + h * rows / halves + r * n, 0, err));
    return GPT_OK;
}

/* All experts of a rank. first: this rank gives them, and others may have the
 * same. */
static int add_rank(struct gpt_megatron *m, const struct gpt_param *p,
                    struct gpt_tensor *out, struct gpt_megatron_rank *r,
                    int64_t v, int64_t ep, int64_t etp, bool first, int kind,
                    struct gpt_err *err)
{
    struct gpt_megatron_chunk *c = &r->chunks[v];
    const int64_t count = m->config.num_experts / m->ep_size;
    const int64_t rows = p->shape[0] / m->config.num_experts;
    const bool fc1 = p->role == GPT_EXPERTS_FC1;
    struct part part = {
        .count = count,
        .rows = fc1 ? rows / m->etp_size : rows,
        .columns = fc1 ? p->shape[1] : p->shape[1] / m->etp_size,
    };

    for (int64_t e = 0; e < count; e++) {
        const struct gpt_safetensor *weight = gpt_megatron_expert(
            c, p->role, p->layer - c->first_layer, e, &part.all);

        if (!weight)
            return gpt_fail(err, GPT_EDATA,
                            "%s/%s: no tensor of expert %lld for '%s'", m->dir,
                            r->file, (long long)e, p->name);
        c->used[weight - c->tensors.tensors] = true;
        part.entry =
            first ? gpt_megatron_choose(m, c, weight, kind) : weight;
        part.in = part.entry == weight ? r->torch.in : r->state_in;
        part.index = e;
        GPT_TRY(check_part(m, r, &part, p->role, err));
        if (first)
            GPT_TRY(add_expert(m, p, out, &part, ep * count + e, etp, err));
    }
    return GPT_OK;
}

int gpt_megatron_merge_experts(struct gpt_megatron *m,
                               const struct gpt_param *p,
                               struct gpt_tensor *out, int64_t pp, int64_t v,
                               int kind, struct gpt_err *err)
{
    for (int64_t ep = 0; ep < m->ep_size; ep++)
        for (int64_t tp = 0; tp < m->tp_size; tp++) {
            struct gpt_megatron_rank *r = gpt_megatron_rank_of(m, ep, pp, tp);
            const int64_t etp = tp % m->etp_size;

            if (r->file)
                GPT_TRY(add_rank(m, p, out, r, v, ep, etp,
                                 r == gpt_megatron_expert_rank(m, ep, pp, etp),
                                 kind, err));
        }
    return GPT_OK;
}
