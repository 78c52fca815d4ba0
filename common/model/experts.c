/* Experts of a layer; see experts.h. Read gpt_experts_forward(),
 * gpt_experts_output(), then gpt_experts_backward().
 *
 * A router gives every token the numbers of K experts, and a weight for each.
 * Rows of tokens are copied side by side for each expert, so that its products
 * are of matrices, and their outputs are added up for each token again. Every
 * rank routes all tokens, and works on the rows of its own experts: numbers are
 * exchanged where any feed-forward exchanges them, and no others. The router's
 * gradients are sums over ranks, as each has those of its own experts'
 * weights. */
#include "model/experts.h"

#include "model/linear.h"

/* ---- the operations' structs ---- */

static struct gpt_router route_op(const struct gpt_layer *layer,
                                  const struct gpt_pass *pass,
                                  const struct gpt_layer_acts *acts)
{
    const struct gpt_config *c = pass->config;
    const struct gpt_expert_acts *a = &acts->experts;

    return (struct gpt_router){
        .n = pass->n,
        .e = c->num_experts,
        .k = c->moe_router_topk,
        .groups = c->moe_router_num_groups,
        .group_topk = c->moe_router_group_topk,
        /* as DeepSeek has it: V3 adds up two scores, V2 takes one */
        .group_best =
            c->moe_router_score_function == GPT_SCORE_SIGMOID ? 2 : 1,
        .sigmoid = c->moe_router_score_function == GPT_SCORE_SIGMOID,
        .whole = c->moe_router_pre_softmax,
        .scaling = c->moe_router_topk_scaling_factor > 0
                       ? (float)c->moe_router_topk_scaling_factor
                       : 1,
        .act = pass->act,
        .logits = a->logits,
        .bias = layer->w.at[GPT_ROUTER_BIAS],
        .weight = a->weight,
        .expert = a->expert,
        .begin = a->begin,
        .source = a->source,
        .place = a->place,
    };
}

static struct gpt_expert_rows rows_of(const struct gpt_pass *pass,
                                      const struct gpt_expert_acts *a)
{
    return (struct gpt_expert_rows){
        .n = pass->n,
        .k = pass->config->moe_router_topk,
        .first = pass->widths.experts * pass->layout->at[GPT_TP],
        .count = pass->widths.experts,
        .act = pass->act,
        .begin = a->begin,
        .source = a->source,
        .place = a->place,
        .weight = a->weight,
    };
}

/* The activation of experts, in all rows that there may be: how many there are
 * is known to the device alone. */
static struct gpt_activate expert_activate(const struct gpt_pass *pass,
                                           const struct gpt_expert_acts *a)
{
    return (struct gpt_activate){
        .kind = (enum gpt_activation)pass->config->activation,
        .gated = pass->config->gated,
        .n = pass->n * pass->config->moe_router_topk,
        .f = pass->widths.expert,
        .act = pass->act,
        .pre = a->pre,
        .out = a->activated,
    };
}

/* The one of the feed-forward beside them. */
static struct gpt_activate shared_activate(const struct gpt_pass *pass,
                                           const struct gpt_layer_acts *acts)
{
    struct gpt_activate op = expert_activate(pass, &acts->experts);

    op.n = pass->n;
    op.f = pass->widths.shared;
    op.pre = acts->pre;
    op.out = acts->activated;
    return op;
}

/* A layer with experts has no biases of dense feed-forwards, whose roles stand
 * for none here. */
static struct gpt_linear shared_fc1(const struct gpt_layer *layer,
                                    const struct gpt_pass *pass)
{
    static const struct gpt_linear_roles roles = {
        GPT_SHARED_GATE, GPT_GATE_BIAS, GPT_SHARED_FC1, GPT_FC1_BIAS,
    };

    return gpt_linear_before(pass, &layer->w, &roles, pass->widths.shared);
}

static bool has_shared(const struct gpt_pass *pass)
{
    return pass->widths.shared > 0;
}

/* ---- forward ---- */

/* y (N, n) float = x (N, C) W^T, of a router: scores are compared, so that they
 * are not rounded to `act`. */
static void score(const struct gpt_layer *layer, const struct gpt_pass *pass,
                  enum gpt_param_role role, int64_t n, const void *x, float *y)
{
    const struct gpt_matmul op = {
        .m = pass->n,
        .n = n,
        .k = pass->widths.hidden,
        .tb = true,
        .a = x,
        .b = layer->w.at[role],
        .c = y,
        .act = pass->act,
        .c_type = GPT_F32,
        .sums = pass->sums,
    };

    pass->be->matmul(pass->q, &op);
}

/* out = rows (., in) W^T, W of each expert (n, in). */
static void multiply(const struct gpt_layer *layer, const struct gpt_pass *pass,
                     const struct gpt_expert_rows *rows,
                     enum gpt_param_role role, int64_t n, int64_t in,
                     const void *from, void *out)
{
    const struct gpt_expert_matmul op = {
        .rows = rows,
        .n = n,
        .k = in,
        .tb = true,
        .a = from,
        .b = layer->w.at[role],
        .c = out,
        .quant = gpt_roles_quant(&layer->w, role),
        .sums = pass->sums,
    };

    pass->be->expert_matmul(pass->q, &op);
}

/* Computes acts->activated of the feed-forward of all tokens, weighed by its
 * gate: its product with fc2 is then weighed, too. */
static void activate_shared(const struct gpt_pass *pass,
                            const struct gpt_layer_acts *acts)
{
    const struct gpt_activate op = shared_activate(pass, acts);

    pass->be->activate(pass->q, &op);
    if (acts->experts.gate)
        pass->be->gate_rows(pass->q, acts->activated, acts->experts.gate,
                            pass->n, pass->widths.shared, pass->act);
}

static void shared_forward(const struct gpt_layer *layer,
                           const struct gpt_pass *pass,
                           const struct gpt_layer_acts *acts, const void *x)
{
    const struct gpt_linear parts = shared_fc1(layer, pass);

    if (!has_shared(pass))
        return;
    if (acts->experts.gate)
        score(layer, pass, GPT_SHARED_ROUTER, 1, x, acts->experts.gate);
    gpt_linear_wide(pass, &layer->w, &parts, pass->widths.hidden, x,
                    acts->pre);
    activate_shared(pass, acts);
}

void gpt_experts_forward(const struct gpt_layer *layer,
                         const struct gpt_pass *pass,
                         const struct gpt_layer_acts *acts, const void *x)
{
    const struct gpt_expert_acts *a = &acts->experts;
    const struct gpt_router route = route_op(layer, pass, acts);
    const struct gpt_expert_rows rows = rows_of(pass, a);
    const struct gpt_activate op = expert_activate(pass, a);
    const int64_t c = pass->widths.hidden;

    shared_forward(layer, pass, acts, x);
    score(layer, pass, GPT_ROUTER_WEIGHT, pass->config->num_experts, x,
          a->logits);
    pass->be->route(pass->q, &route);
    pass->be->expert_pick(pass->q, &rows, x, pass->work.experts.rows, c);
    multiply(layer, pass, &rows, GPT_EXPERTS_FC1, pass->widths.expert_in, c,
             pass->work.experts.rows, a->pre);
    pass->be->activate(pass->q, &op);
}

/* The same sum whatever the number of ranks, for generation: every rank gets
 * the rows of all pairs, to which one rank each has added, and adds them up in
 * the order of one rank alone. */
static void sum_pairs(const struct gpt_pass *pass,
                      const struct gpt_expert_rows *rows)
{
    const struct gpt_expert_work *work = &pass->work.experts;
    const int64_t pairs = rows->n * rows->k, c = pass->widths.hidden;
    struct gpt_expert_rows alone = *rows, all = *rows;

    alone.n = pairs;
    alone.k = 1;
    all.first = 0;
    all.count = 1;
    all.begin = work->ends;
    all.place = work->same;
    pass->be->expert_sum(pass->q, &alone, work->rows, work->pairs, c, false,
                         false);
    gpt_comm_all_reduce(pass->tp, pass->q, work->pairs, pairs * c, pass->act,
                        GPT_SUM);
    pass->be->expert_sum(pass->q, &all, work->pairs, pass->work.x, c, true,
                         has_shared(pass));
}

/* The feed-forward of all tokens comes first, and experts are added to it: in
 * this order with any number of ranks. */
void gpt_experts_output(const struct gpt_layer *layer,
                        const struct gpt_pass *pass,
                        const struct gpt_layer_acts *acts)
{
    const struct gpt_expert_acts *a = &acts->experts;
    const struct gpt_expert_rows rows = rows_of(pass, a);
    const int64_t c = pass->widths.hidden;

    if (has_shared(pass))
        gpt_linear_partial(pass, &layer->w, GPT_SHARED_FC2, GPT_FC2_BIAS,
                           pass->widths.shared, acts->activated, false);
    multiply(layer, pass, &rows, GPT_EXPERTS_FC2, c, pass->widths.expert,
             a->activated, pass->work.experts.rows);
    if (pass->columns) {
        if (has_shared(pass))
            gpt_linear_sum(pass);
        sum_pairs(pass, &rows);
        return;
    }
    pass->be->expert_sum(pass->q, &rows, pass->work.experts.rows,
                         gpt_pass_part(pass, pass->work.x), c, true,
                         has_shared(pass));
    gpt_linear_sum(pass);
}

/* ---- backward ---- */

/* dW (out, in) of a router += dlogits^T x, and its part of dx (N, C). */
static void router_weights(const struct gpt_layer *layer,
                           const struct gpt_pass *pass,
                           enum gpt_param_role role, int64_t n,
                           const void *dlogits, const void *x)
{
    const struct gpt_matmul op = {
        .m = n,
        .n = pass->widths.hidden,
        .k = pass->n,
        .ta = true,
        .a = dlogits,
        .b = x,
        .c = layer->dw.at[role],
        .act = pass->act,
        .c_type = GPT_F32,
        .beta = pass->beta,
    };

    pass->be->matmul(pass->q, &op);
}

static void router_rows(const struct gpt_layer *layer,
                        const struct gpt_pass *pass, enum gpt_param_role role,
                        int64_t n, const void *dlogits, void *dx, bool add)
{
    const struct gpt_matmul op = {
        .m = pass->n,
        .n = pass->widths.hidden,
        .k = n,
        .a = dlogits,
        .b = layer->w.at[role],
        .c = dx,
        .act = pass->act,
        .c_type = pass->act,
        .beta = add ? 1.0F : 0.0F,
    };

    pass->be->matmul(pass->q, &op);
}

/* Gradients of the gate, which lie after those of the router. */
static void *dgate(const struct gpt_pass *pass)
{
    return (char *)pass->work.experts.dlogits +
           (size_t)(pass->n * pass->config->num_experts) *
               gpt_dtype_bytes(pass->act);
}

/* From dy (N, C), the gradient of the output, to work.dwide, that of the first
 * product. */
static void shared_output_backward(const struct gpt_layer *layer,
                                   const struct gpt_pass *pass,
                                   const struct gpt_layer_acts *acts, void *dy)
{
    const int64_t f = pass->widths.shared, n = pass->n;
    const struct gpt_linear fc2 =
        gpt_linear_one(GPT_SHARED_FC2, GPT_FC2_BIAS, pass->widths.hidden);
    const struct gpt_activate op = shared_activate(pass, acts);
    void *dactivated = pass->work.experts.dactivated;

    gpt_linear_measure(pass, &layer->w, &fc2, f, acts->activated, n * f, dy,
                       n * fc2.width);
    gpt_linear_dw(pass, &layer->dw, &fc2, f, dy, acts->activated);
    gpt_linear_dx(pass, &layer->w, &fc2, f, dy, dactivated, NULL);
    if (acts->experts.gate)
        pass->be->gate_rows_bwd(pass->q, acts->activated, dactivated,
                                acts->experts.gate, dgate(pass), n, f,
                                pass->act);
    pass->be->activate_bwd(pass->q, &op, dactivated, pass->work.dwide);
}

/* The product with each expert's matrix (in, n), and the gradient of a matrix
 * (m, n) from rows dy (., m) and x (., n). */
static void multiply_back(const struct gpt_layer *layer,
                          const struct gpt_pass *pass,
                          const struct gpt_expert_rows *rows,
                          enum gpt_param_role role, int64_t n, int64_t in,
                          const void *from, void *out)
{
    const struct gpt_expert_matmul op = {
        .rows = rows,
        .n = n,
        .k = in,
        .a = from,
        .b = layer->w.at[role],
        .c = out,
    };

    pass->be->expert_matmul(pass->q, &op);
}

static void expert_weights(const struct gpt_layer *layer,
                           const struct gpt_pass *pass,
                           const struct gpt_expert_rows *rows,
                           enum gpt_param_role role, int64_t m, int64_t n,
                           const void *dy, const void *x)
{
    const struct gpt_expert_matmul op = {
        .rows = rows,
        .m = m,
        .n = n,
        .ta = true,
        .a = dy,
        .b = x,
        .c = layer->dw.at[role],
        .beta = pass->beta,
    };

    pass->be->expert_matmul(pass->q, &op);
}

/* From dy to the gradients of the first products and of the weights. The rows
 * of dy stay as they are: a pair's weight comes into fc2's gradient with the
 * activations, and into theirs after the dot that is the weight's gradient. */
static void experts_output_backward(const struct gpt_layer *layer,
                                    const struct gpt_pass *pass,
                                    const struct gpt_layer_acts *acts,
                                    const void *dy)
{
    const struct gpt_expert_acts *a = &acts->experts;
    const struct gpt_expert_work *work = &pass->work.experts;
    const struct gpt_expert_rows rows = rows_of(pass, a);
    const struct gpt_activate op = expert_activate(pass, a);
    const int64_t c = pass->widths.hidden, f = pass->widths.expert;

    pass->be->expert_pick(pass->q, &rows, dy, work->rows, c);
    multiply_back(layer, pass, &rows, GPT_EXPERTS_FC2, f, c, work->rows,
                  work->dactivated);
    pass->be->expert_weigh(pass->q, &rows, a->activated, work->dactivated, f,
                           work->dweight);
    expert_weights(layer, pass, &rows, GPT_EXPERTS_FC2, c, f, work->rows,
                   a->activated);
    pass->be->activate_bwd(pass->q, &op, work->dactivated, work->dpre);
}

/* The losses of the router are the same on all ranks, and one of them adds
 * their gradient. How many tokens each expert has is added up where the bias
 * would have a gradient: backward comes once for each microbatch, whatever
 * forward computes again. */
static void route_backward(const struct gpt_layer *layer,
                           const struct gpt_pass *pass,
                           const struct gpt_layer_acts *acts)
{
    const struct gpt_router route = route_op(layer, pass, acts);
    const struct gpt_expert_work *work = &pass->work.experts;
    const bool first = pass->layout->at[GPT_TP] == 0;
    const struct gpt_router_grad grad = {
        .dweight = work->dweight,
        .dlogits = work->dlogits,
        .aux = first ? (float)pass->config->moe_aux_loss_coeff : 0,
        .z = first ? (float)pass->config->moe_z_loss_coeff : 0,
        .weights = pass->weights,
        .scale = pass->scale,
        .losses = work->losses,
        .counts = layer->dw.at[GPT_ROUTER_BIAS],
    };

    pass->be->route_bwd(pass->q, &route, &grad);
}

/* Gradients of weights from x (N, C), the rows of all ranks. */
static void weights_backward(const struct gpt_layer *layer,
                             const struct gpt_pass *pass,
                             const struct gpt_layer_acts *acts, void *x)
{
    const struct gpt_expert_work *work = &pass->work.experts;
    const struct gpt_expert_rows rows = rows_of(pass, &acts->experts);
    const struct gpt_linear parts = shared_fc1(layer, pass);
    const int64_t c = pass->widths.hidden;

    if (has_shared(pass)) {
        gpt_linear_measure(pass, &layer->w, &parts, c, x, pass->n * c,
                           pass->work.dwide, pass->n * parts.width);
        gpt_linear_dw(pass, &layer->dw, &parts, c, pass->work.dwide, x);
    }
    if (acts->experts.gate)
        router_weights(layer, pass, GPT_SHARED_ROUTER, 1, dgate(pass), x);
    router_weights(layer, pass, GPT_ROUTER_WEIGHT, pass->config->num_experts,
                   work->dlogits, x);
    pass->be->expert_pick(pass->q, &rows, x, work->rows, c);
    expert_weights(layer, pass, &rows, GPT_EXPERTS_FC1, pass->widths.expert_in,
                   c, work->dpre, work->rows);
}

/* This rank's part of dx (N, C). */
static void rows_backward(const struct gpt_layer *layer,
                          const struct gpt_pass *pass,
                          const struct gpt_layer_acts *acts, void *dx)
{
    const struct gpt_expert_work *work = &pass->work.experts;
    const struct gpt_expert_rows rows = rows_of(pass, &acts->experts);
    const struct gpt_linear parts = shared_fc1(layer, pass);
    const int64_t c = pass->widths.hidden;

    if (has_shared(pass))
        gpt_linear_dx(pass, &layer->w, &parts, c, pass->work.dwide, dx, NULL);
    router_rows(layer, pass, GPT_ROUTER_WEIGHT, pass->config->num_experts,
                work->dlogits, dx, has_shared(pass));
    if (acts->experts.gate)
        router_rows(layer, pass, GPT_SHARED_ROUTER, 1, dgate(pass), dx, true);
    multiply_back(layer, pass, &rows, GPT_EXPERTS_FC1, c,
                  pass->widths.expert_in, work->dpre, work->rows);
    pass->be->expert_sum(pass->q, &rows, work->rows, dx, c, false, true);
}

/* With sequence parallelism the rows of all ranks have one place: those of the
 * output's gradient are done with when those of the input come. */
void gpt_experts_backward(const struct gpt_layer *layer,
                          const struct gpt_pass *pass,
                          const struct gpt_layer_acts *acts,
                          const struct gpt_norm_site *norm2)
{
    const struct gpt_activate op = expert_activate(pass, &acts->experts);
    void *part = gpt_pass_part(pass, pass->work.dy);

    if (pass->selective) {
        pass->be->activate(pass->q, &op);
        if (has_shared(pass))
            activate_shared(pass, acts);
    }
    void *dy = gpt_pass_gather(pass, pass->work.x);
    if (has_shared(pass))
        shared_output_backward(layer, pass, acts, dy);
    experts_output_backward(layer, pass, acts, dy);
    route_backward(layer, pass, acts);
    if (pass->selective)
        gpt_norm_site_again(pass, norm2);
    weights_backward(layer, pass, acts,
                     gpt_pass_gather(pass, norm2->acts->y));
    rows_backward(layer, pass, acts, part);
    gpt_pass_sum(pass, part, pass->work.dy);
}
