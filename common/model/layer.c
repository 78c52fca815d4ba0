/* A transformer layer over the backend; see layer.h. Read
 * gpt_layer_forward(), then gpt_layer_backward() from its end.
 *
 * Tensor parallelism splits qkv and fc1 by rows and proj and fc2 by columns:
 * the results of the latter, and the gradients of the former's inputs, are
 * sums over the ranks (Shoeybi et al. 2019; with rows cut between them:
 * Korthikanti et al. 2022).
 *
 * The variants of a layer meet here alone: site2() says what the feed-forward
 * reads, post_site1() and post_site2() norm what a block gives, feed_forward()
 * and feed_forward_backward() hold the activation, or lead to experts.c,
 * norm_site.c chooses the norm. A bias that the parameter table does not have
 * is NULL. So is a norm: what is read is then the stream itself. */
#include "model/layer.h"

#include "model/experts.h"
#include "model/heads.h"
#include "model/latent.h"
#include "model/linear.h"
#include "model/norm_site.h"

#include <stdio.h>

/* Streams are named by the global number of the layer: masks do not depend on
 * the stage or the chunk that a layer is in. */
static struct gpt_rng layer_rng(uint64_t seed, int64_t number, const char *what)
{
    char name[64];

    snprintf(name, sizeof(name), "dropout/layers.%lld.%s", (long long)number,
             what);
    return gpt_rng_open(seed, name);
}

void gpt_layer_bind(struct gpt_layer *layer, const struct gpt_flat *flat,
                    int64_t number, void *weights, enum gpt_dtype act,
                    float *const *gradients, uint64_t seed)
{
    layer->bucket = gpt_flat_find(flat, GPT_PROJ_WEIGHT, number)->bucket;
    layer->number = number;
    gpt_roles_bind(&layer->w, flat, number, weights, act);
    if (gradients)
        gpt_roles_bind_gradients(&layer->dw, flat, number, gradients);
    layer->attention_rng = layer_rng(seed, number, "attention");
    layer->proj_rng = layer_rng(seed, number, "proj");
    layer->mlp_rng = layer_rng(seed, number, "mlp");
}

/* ---- norms ---- */

/* The site in front of attention: it adds what the layer before has left, if
 * there is one, with that layer's dropout. */
static struct gpt_norm_site site1(const struct gpt_layer *layer,
                                  const struct gpt_pass *pass,
                                  const struct gpt_layer_acts *acts,
                                  const struct gpt_rng *x_rng)
{
    return (struct gpt_norm_site){
        .acts = &acts->norm1,
        .norms = !pass->config->no_pre_norm,
        .w = layer->w.at[GPT_NORM1_WEIGHT],
        .b = layer->w.at[GPT_NORM1_BIAS],
        .dw = layer->dw.at[GPT_NORM1_WEIGHT],
        .db = layer->dw.at[GPT_NORM1_BIAS],
        .x_rng = x_rng,
    };
}

/* The site in front of the feed-forward: it adds attention's output. Where both
 * blocks read the same stream there is nothing to add, and they may share a
 * norm. */
static struct gpt_norm_site site2(const struct gpt_layer *layer,
                                  const struct gpt_pass *pass,
                                  const struct gpt_layer_acts *acts)
{
    if (pass->config->shared_norm)
        return site1(layer, pass, acts, NULL);
    return (struct gpt_norm_site){
        .acts = &acts->norm2,
        .norms = !pass->config->no_pre_norm,
        .w = layer->w.at[GPT_NORM2_WEIGHT],
        .b = layer->w.at[GPT_NORM2_BIAS],
        .dw = layer->dw.at[GPT_NORM2_WEIGHT],
        .db = layer->dw.at[GPT_NORM2_BIAS],
        .x_rng = pass->config->parallel_blocks ? NULL : &layer->proj_rng,
    };
}

/* After a block; weight: of that norm. The block's output is kept in acts->r,
 * which is what a pass of its own calls x: gpt_output_pass(). */
static struct gpt_norm_site post_site(const struct gpt_layer *layer,
                                      const struct gpt_norm_acts *acts,
                                      enum gpt_param_role weight,
                                      enum gpt_param_role bias)
{
    return (struct gpt_norm_site){
        .acts = acts,
        .norms = true,
        .w = layer->w.at[weight],
        .b = layer->w.at[bias],
        .dw = layer->dw.at[weight],
        .db = layer->dw.at[bias],
    };
}

static struct gpt_norm_site post_site1(const struct gpt_layer *layer,
                                       const struct gpt_layer_acts *acts)
{
    return post_site(layer, &acts->post1, GPT_POST1_WEIGHT, GPT_POST1_BIAS);
}

static struct gpt_norm_site post_site2(const struct gpt_layer *layer,
                                       const struct gpt_layer_acts *acts)
{
    return post_site(layer, &acts->post2, GPT_POST2_WEIGHT, GPT_POST2_BIAS);
}

/* ---- feed-forward ---- */

static struct gpt_linear fc1_parts(const struct gpt_layer *layer,
                                   const struct gpt_pass *pass)
{
    static const struct gpt_linear_roles roles = {
        GPT_GATE_WEIGHT, GPT_GATE_BIAS, GPT_FC1_WEIGHT, GPT_FC1_BIAS,
    };

    return gpt_linear_before(pass, &layer->w, &roles, pass->widths.ffn);
}

/* GELU in its tanh form is part of the products around it, which add a bias on
 * the way; all else is an operation of its own. */
static bool is_fused(const struct gpt_layer *layer, const struct gpt_pass *pass)
{
    return pass->config->activation == GPT_GELU && !pass->config->gated &&
           layer->w.at[GPT_FC1_BIAS];
}

/* Rows of `pre` have the gate's columns first, then fc1's: the order in which
 * both are in the flat buffer. */
static struct gpt_activate activate_op(const struct gpt_layer *layer,
                                       const struct gpt_pass *pass,
                                       const struct gpt_layer_acts *acts)
{
    return (struct gpt_activate){
        .kind = (enum gpt_activation)pass->config->activation,
        .gated = pass->config->gated,
        .n = pass->n,
        .f = pass->widths.ffn,
        .act = pass->act,
        .pre = acts->pre,
        .out = acts->activated,
        .alpha_p = layer->w.at[GPT_ALPHA_P],
        .alpha_n = layer->w.at[GPT_ALPHA_N],
    };
}

/* Computes acts->activated from acts->pre; backward calls it once more. */
static void activate(const struct gpt_layer *layer,
                     const struct gpt_pass *pass,
                     const struct gpt_layer_acts *acts)
{
    struct gpt_activate op = activate_op(layer, pass, acts);

    pass->be->activate(pass->q, &op);
}

/* Computes activated (N, F) from the normed rows y; `pre` keeps what backward
 * needs. */
static void feed_forward(const struct gpt_layer *layer,
                         const struct gpt_pass *pass,
                         const struct gpt_layer_acts *acts, void *y)
{
    struct gpt_linear parts = fc1_parts(layer, pass);
    const void *x = gpt_pass_gather(pass, y);

    if (gpt_layer_has_experts(layer)) {
        gpt_experts_forward(layer, pass, acts, x);
        return;
    }

    if (is_fused(layer, pass)) {
        gpt_linear_gelu(pass, &layer->w, &parts, x, acts->pre,
                        acts->activated);
        return;
    }
    gpt_linear_wide(pass, &layer->w, &parts, pass->widths.hidden, x,
                    acts->pre);
    activate(layer, pass, acts);
}

/* ---- forward ---- */

/* Multiplies work.x, a block's output before it is added, or its gradient.
 * Granite's deep models add only a part of each block's output. */
static void multiply_output(const struct gpt_pass *pass)
{
    const float factor = (float)pass->config->residual_multiplier;

    if (factor > 0)
        pass->be->scale(pass->q, pass->work.x,
                        pass->rows * pass->widths.hidden, factor, pass->act);
}

/* The product that takes attention's output. */
static void project(const struct gpt_layer *layer, const struct gpt_pass *pass,
                    const struct gpt_layer_acts *acts)
{
    gpt_linear_partial(pass, &layer->w, GPT_PROJ_WEIGHT, GPT_PROJ_BIAS,
                       pass->widths.values, gpt_heads_values(pass, acts),
                       false);
}

/* Computes attention's output in work.x, for the second norm to add. */
static void add_attention(const struct gpt_layer *layer,
                          const struct gpt_pass *pass,
                          const struct gpt_layer_acts *acts)
{
    const struct gpt_pass own = gpt_output_pass(pass, &acts->post1);

    project(layer, &own, acts);
    gpt_linear_sum(&own);
    gpt_linear_add_bias(&own, &layer->w, GPT_PROJ_BIAS);
    multiply_output(pass);
    gpt_output_normed(pass, post_site1(layer, acts));
}

/* Computes acts->qkv from the normed rows y. */
static void make_qkv(const struct gpt_layer *layer, const struct gpt_pass *pass,
                     const struct gpt_layer_acts *acts, void *y)
{
    const struct gpt_linear qkv =
        gpt_linear_one(GPT_QKV_WEIGHT, GPT_QKV_BIAS, pass->widths.qkv);
    const void *x = gpt_pass_gather(pass, y);

    if (gpt_config_is_latent(pass->config))
        gpt_latent_forward(layer, pass, acts, x);
    else
        gpt_linear_wide(pass, &layer->w, &qkv, pass->widths.hidden, x,
                        acts->qkv);
}

/* Computes the layer up to the activation. Where both blocks lie side by side
 * they read r as it came in: the first one's output then waits in acts->att,
 * and its product is made together with the second one's. */
static void forward_to_activation(const struct gpt_layer *layer,
                                  const struct gpt_pass *pass,
                                  const struct gpt_layer_acts *acts,
                                  const void *r, const struct gpt_rng *x_rng)
{
    struct gpt_norm_site norm1 = site1(layer, pass, acts, x_rng);
    struct gpt_norm_site norm2 = site2(layer, pass, acts);

    gpt_norm_site_forward(pass, &norm1, r);
    make_qkv(layer, pass, acts, acts->norm1.y);
    gpt_heads_make(layer, pass, acts);
    gpt_heads_attend(layer, pass, acts);
    if (!pass->config->parallel_blocks)
        add_attention(layer, pass, acts);
    if (!pass->config->shared_norm)
        gpt_norm_site_forward(pass, &norm2, acts->norm1.r);
    feed_forward(layer, pass, acts, norm2.acts->y);
}

/* Computes the feed-forward's output. Blocks side by side are one sum over the
 * ranks, with the bias of both. */
static void add_feed_forward(const struct gpt_layer *layer,
                             const struct gpt_pass *pass,
                             const struct gpt_layer_acts *acts)
{
    const bool parallel = pass->config->parallel_blocks;
    const struct gpt_pass own = gpt_output_pass(pass, &acts->post2);

    if (parallel)
        project(layer, &own, acts);
    if (gpt_layer_has_experts(layer)) {
        gpt_experts_output(layer, &own, acts);
    } else {
        gpt_linear_partial(&own, &layer->w, GPT_FC2_WEIGHT, GPT_FC2_BIAS,
                           pass->widths.ffn, acts->activated, parallel);
        gpt_linear_sum(&own);
    }
    if (parallel)
        gpt_linear_add_bias(&own, &layer->w, GPT_PROJ_BIAS);
    gpt_linear_add_bias(&own, &layer->w, GPT_FC2_BIAS);
    multiply_output(pass);
    gpt_output_normed(pass, post_site2(layer, acts));
}

/* Backward needs fc2's input and not its output, unless a norm takes that: so
 * recomputation leaves the last product, and its sum over ranks, out. */
void gpt_layer_recompute(const struct gpt_layer *layer,
                         const struct gpt_pass *pass,
                         const struct gpt_layer_acts *acts, const void *r,
                         const struct gpt_rng *x_rng)
{
    forward_to_activation(layer, pass, acts, r, x_rng);
    /* the norm itself is made, too: it is small beside the product */
    if (pass->config->post_norm)
        add_feed_forward(layer, pass, acts);
}

void gpt_layer_forward(const struct gpt_layer *layer,
                       const struct gpt_pass *pass,
                       const struct gpt_layer_acts *acts, const void *r,
                       const struct gpt_rng *x_rng)
{
    forward_to_activation(layer, pass, acts, r, x_rng);
    add_feed_forward(layer, pass, acts);
}

/* ---- backward ---- */

/* Computes the gradients of fc1 or qkv. work.dwide is the gradient of the
 * output, y (rows, C) the input. The input's gradient, a sum over the ranks,
 * goes to work.dy. Two transfers run beside the two products: y's rows are
 * gathered from the other ranks while this rank computes its part of the
 * input's gradient, and the parts are summed while it computes the weights'
 * gradient. */
static void backward_wide(const struct gpt_layer *layer,
                          const struct gpt_pass *pass,
                          const struct gpt_linear *parts, void *y)
{
    const struct gpt_layer_work *work = &pass->work;
    void *part = gpt_pass_part(pass, work->dy);
    int64_t c = pass->widths.hidden, job;

    /* in front of the transfers: it is a call of their communicator, and the
     * rows here and those of the other ranks together are all */
    gpt_linear_measure(pass, &layer->w, parts, c, y, pass->rows * c,
                       work->dwide, pass->n * parts->width);
    job = gpt_pass_begin_gather(pass, y);
    gpt_linear_dx(pass, &layer->w, parts, c, work->dwide, part, NULL);
    gpt_pass_join(pass, job);
    job = gpt_pass_begin_sum(pass, part, work->dy);
    gpt_linear_dw(pass, &layer->dw, parts, c, work->dwide,
                  gpt_pass_all(pass, y));
    gpt_linear_bias_grads(pass, &layer->dw, parts, work->dwide);
    gpt_pass_join(pass, job);
}

/* Computes the gradients of fc2 or proj. work.x is the gradient of the output,
 * h (N, in) the input. The input's gradient goes to dh, which may be h; with
 * `pre` it is the one in front of GELU. */
static void backward_sum(const struct gpt_layer *layer,
                         const struct gpt_pass *pass,
                         enum gpt_param_role weight, enum gpt_param_role bias,
                         int64_t in, const void *h, void *dh, void *pre)
{
    const struct gpt_linear one =
        gpt_linear_one(weight, bias, pass->widths.hidden);
    void *dy = gpt_pass_all(pass, pass->work.x);

    /* dh may be h: both gradients take the largest element of h as it is now */
    gpt_linear_measure(pass, &layer->w, &one, in, h, pass->n * in,
                       pass->work.x, pass->rows * one.width);
    /* the bias' gradient reads this rank's rows alone, while the others come */
    const int64_t job = gpt_pass_begin_gather(pass, pass->work.x);
    gpt_linear_bias_grad(pass, layer->dw.at[bias], pass->work.x, pass->rows,
                         one.width);
    gpt_pass_join(pass, job);
    gpt_linear_dw(pass, &layer->dw, &one, in, dy, h);
    gpt_linear_dx(pass, &layer->w, &one, in, dy, dh, pre);
}

/* Computes work.dwide, the gradient of fc1's output, from work.x, that of
 * fc2's. */
static void activation_backward(const struct gpt_layer *layer,
                                const struct gpt_pass *pass,
                                const struct gpt_layer_acts *acts)
{
    const bool fused = is_fused(layer, pass);
    struct gpt_activate op = activate_op(layer, pass, acts);

    if (pass->selective)
        activate(layer, pass, acts);
    backward_sum(layer, pass, GPT_FC2_WEIGHT, GPT_FC2_BIAS, pass->widths.ffn,
                 acts->activated, fused ? pass->work.dwide : acts->activated,
                 fused ? acts->pre : NULL);
    if (fused)
        return;
    if (op.alpha_p)
        pass->be->xielu_grads(pass->q, &op, acts->activated,
                              layer->dw.at[GPT_ALPHA_P],
                              layer->dw.at[GPT_ALPHA_N]);
    pass->be->activate_bwd(pass->q, &op, acts->activated, pass->work.dwide);
}

/* Computes work.dy, the gradient of norm2.y, from work.x, that of fc2's
 * output. */
static void feed_forward_backward(const struct gpt_layer *layer,
                                  const struct gpt_pass *pass,
                                  const struct gpt_layer_acts *acts,
                                  const struct gpt_norm_site *norm2)
{
    const struct gpt_linear parts = fc1_parts(layer, pass);

    if (gpt_layer_has_experts(layer)) {
        gpt_experts_backward(layer, pass, acts, norm2);
        return;
    }
    activation_backward(layer, pass, acts);
    if (pass->selective)
        gpt_norm_site_again(pass, norm2);
    backward_wide(layer, pass, &parts, norm2->acts->y);
}

/* Computes work.dy, the gradient of norm1.y, from work.x, that of proj's
 * output. */
static void attention_backward(const struct gpt_layer *layer,
                               const struct gpt_pass *pass,
                               const struct gpt_layer_acts *acts,
                               const struct gpt_norm_site *norm1)
{
    const struct gpt_layer_work *work = &pass->work;
    const struct gpt_linear qkv =
        gpt_linear_one(GPT_QKV_WEIGHT, GPT_QKV_BIAS, pass->widths.qkv);
    struct gpt_attn attn = gpt_layer_attn(layer, pass, acts);
    const struct gpt_attn_grad attn_grad = {
        .dout = work->dy,
        .dqkv = work->dwide,
        .scratch = work->scratch,
    };

    /* selective: attention's output and log-sum-exp were not kept, nor heads
     * where they are not in qkv's place */
    if (pass->selective && acts->heads)
        gpt_heads_make_again(layer, pass, acts);
    if (pass->selective)
        gpt_heads_attend(layer, pass, acts);
    backward_sum(layer, pass, GPT_PROJ_WEIGHT, GPT_PROJ_BIAS,
                 pass->widths.values, gpt_heads_values(pass, acts),
                 gpt_heads_dvalues(pass), NULL);
    gpt_heads_spread(pass);
    pass->be->attn_bwd(pass->q, &attn, &attn_grad);
    gpt_heads_backward(layer, pass, acts);
    if (pass->selective)
        gpt_norm_site_again(pass, norm1);
    if (gpt_config_is_latent(pass->config))
        gpt_latent_backward(layer, pass, acts, acts->norm1.y);
    else
        backward_wide(layer, pass, &qkv, acts->norm1.y);
}

/* Where blocks lie side by side, work.x, the gradient of their sum, is that of
 * either output, and the second norm's backward leaves it as it is. */
void gpt_layer_backward(const struct gpt_layer *layer,
                        const struct gpt_pass *pass,
                        const struct gpt_layer_acts *acts,
                        const struct gpt_rng *x_rng)
{
    struct gpt_norm_site norm1 = site1(layer, pass, acts, x_rng);
    struct gpt_norm_site norm2 = site2(layer, pass, acts);
    const struct gpt_norm_site post1 = post_site1(layer, acts);
    const struct gpt_norm_site post2 = post_site2(layer, acts);

    gpt_output_normed_backward(pass, &post2);
    multiply_output(pass);
    feed_forward_backward(layer, pass, acts, &norm2);
    gpt_norm_site_backward(pass, &norm2, pass->work.dy);
    gpt_output_normed_backward(pass, &post1);
    if (!pass->config->parallel_blocks)
        multiply_output(pass);
    attention_backward(layer, pass, acts, &norm1);
    gpt_norm_site_backward(pass, &norm1, pass->work.dy);
}
