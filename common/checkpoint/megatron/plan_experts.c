/* Experts in a Megatron checkpoint that is planned: which of them a rank has,
 * and what of each. Start at gpt_megatron_add_experts().
 *
 * Ranks of experts have equal numbers of whole experts, and tensor parallel
 * ranks an equal part of the width of each, as of every feed-forward: what
 * Megatron-LM does without a size for experts alone. */
#include "checkpoint/megatron/write.h"

int gpt_megatron_check_experts(const struct gpt_target *t, struct gpt_err *err)
{
    const struct gpt_config *c = &t->o.config;

    if (c->num_experts == 0 && t->o.ep_size == 1)
        return GPT_OK;
    if (c->num_experts == 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "expert model parallel size %lld: the model has no experts",
                 (long long)t->o.ep_size);
        return gpt_hint(err, "leave the option out");
    }
    if (c->num_experts % t->o.ep_size != 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "num_experts (%lld) does not divide by the expert model "
                 "parallel size (%lld)",
                 (long long)c->num_experts, (long long)t->o.ep_size);
        return gpt_hint(err, "choose a divisor of num_experts");
    }
    if (c->moe_ffn_hidden_size % t->o.tp_size != 0) {
        gpt_fail(err, GPT_EUSAGE,
                 "moe_ffn_hidden_size (%lld) does not divide by the tensor "
                 "model parallel size (%lld)",
                 (long long)c->moe_ffn_hidden_size, (long long)t->o.tp_size);
        return gpt_hint(err, "choose a divisor of moe_ffn_hidden_size");
    }
    if (t->o.style == GPT_MEGATRON_LEGACY) {
        gpt_fail(err, GPT_EUSAGE,
                 "names of style %s are older than experts",
                 gpt_megatron_styles[GPT_MEGATRON_LEGACY]);
        return gpt_hint(err, "choose %s or %s",
                        gpt_megatron_styles[GPT_MEGATRON_TE],
                        gpt_megatron_styles[GPT_MEGATRON_CORE]);
    }
    return GPT_OK;
}

static int64_t count_experts(const struct gpt_target *t)
{
    return t->o.config.num_experts / t->o.ep_size;
}

int64_t gpt_megatron_more_cuts(const struct gpt_target *t,
                               const struct gpt_flat *flat)
{
    int64_t n = 0;

    for (int64_t i = 0; i < flat->n; i++)
        if (gpt_megatron_is_expert(flat->slices[i].param->role))
            n += count_experts(t);
    return n;
}

/* Modules for one expert each have both of its matrices; one for grouped
 * products has all first ones, then all second ones. Both begin where the first
 * matrix is. */
static void order_cut(const struct gpt_target *t, struct gpt_megatron_cut *cut,
                      enum gpt_param_role role, int64_t expert)
{
    const int64_t second = role == GPT_EXPERTS_FC2;

    /* roles are two apart in the order of modules */
    cut->order -= 2 * second * (GPT_EXPERTS_FC2 - GPT_EXPERTS_FC1);
    cut->within = t->o.style == GPT_MEGATRON_TE
                      ? second * count_experts(t) + expert
                      : 2 * expert + second;
}

/* The first matrix of a gated expert is two here, one above the other: a rank
 * has the same part of both. */
static void add_boxes(const struct gpt_target *t, struct gpt_megatron_cut *cut,
                      const struct gpt_slice *s, int64_t number, int64_t tp)
{
    const struct gpt_megatron_output *p = t->data;
    const int64_t row = s->param - p->table.rows;
    const int64_t rows = s->param->shape[0] / t->o.config.num_experts;
    const int64_t halves = s->param->matrices / t->o.config.num_experts;
    int64_t begin[GPT_PARAM_DIMS] = {number * rows};
    int64_t shape[GPT_PARAM_DIMS] = {rows, s->param->shape[1]};

    if (s->param->role == GPT_EXPERTS_FC2) {
        shape[1] /= t->o.tp_size;
        begin[1] = tp * shape[1];
        gpt_megatron_add_box(cut, row, begin, shape);
        return;
    }
    shape[0] = rows / halves / t->o.tp_size;
    for (int64_t h = 0; h < halves; h++) {
        begin[0] = number * rows + h * rows / halves + tp * shape[0];
        gpt_megatron_add_box(cut, row, begin, shape);
    }
}

int gpt_megatron_add_experts(struct gpt_target *t,
                             struct gpt_megatron_rank_plan *r,
                             const struct gpt_slice *s,
                             const struct gpt_layout *layout, int64_t rank,
                             struct gpt_err *err)
{
    const struct gpt_megatron_place at = gpt_megatron_place(t, rank);
    struct gpt_megatron_cut *cut;

    for (int64_t e = 0; e < count_experts(t); e++) {
        GPT_TRY(gpt_megatron_new_cut(t, r, s, layout, e, &cut, err));
        order_cut(t, cut, s->param->role, e);
        if (t->o.ep_size > 1)
            cut->group = GPT_MEGATRON_GROUPS - 1;
        add_boxes(t, cut, s, at.ep * count_experts(t) + e, at.tp);
    }
    return GPT_OK;
}
