/* A transformer layer over the backend; see layer.h. Read
 * gpt_layer_forward(), then gpt_layer_backward() from its end.
 *
 * Tensor parallelism splits qkv and fc1 by rows and proj and fc2 by columns:
 * the results of the latter, and the gradients of the former's inputs, are
 * sums over the ranks (Shoeybi et al. 2019; with rows cut between them:
 * Korthikanti et al. 2022).
 *
 * The variants of a layer meet here alone: norm_op() chooses the norm,
 * feed_forward() and feed_forward_backward() hold the activation, and a bias
 * that the parameter table does not have is NULL. */
#include "model/layer.h"

#include <math.h>
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
    layer->bucket = gpt_flat_find(flat, GPT_NORM1_WEIGHT, number)->bucket;
    gpt_roles_bind(&layer->w, flat, number, weights, act);
    if (gradients)
        gpt_roles_bind_gradients(&layer->dw, flat, number, gradients);
    layer->attention_rng = layer_rng(seed, number, "attention");
    layer->proj_rng = layer_rng(seed, number, "proj");
    layer->mlp_rng = layer_rng(seed, number, "mlp");
}

/* ---- norms ---- */

/* The norm of a site as an operation; forward and backward take the same one.
 * The residual stream has been summed over the ranks before, dropout has not
 * been applied yet: the norm applies it while it adds x. */
static struct gpt_norm norm_op(const struct gpt_pass *pass,
                               const struct gpt_norm_site *site, const void *r)
{
    struct gpt_norm op = {
        .kind = GPT_LAYERNORM,
        .n = pass->rows,
        .c = pass->widths.hidden,
        .eps = (float)pass->config->norm_epsilon,
        .act = pass->act,
        .resid_in = r,
        .resid_out = site->acts->r,
        .y = site->acts->y,
        .w = site->w,
        .b = site->b,
        .mean = site->acts->mean,
        .rstd = site->acts->rstd,
    };

    if (site->x_rng) {
        op.x = pass->work.x;
        op.dropout =
            gpt_pass_dropout(pass, *site->x_rng, pass->config->hidden_dropout);
    }
    return op;
}

void gpt_norm_site_forward(const struct gpt_pass *pass,
                           const struct gpt_norm_site *site, const void *r)
{
    struct gpt_norm op = norm_op(pass, site, r);

    pass->be->norm_fwd(pass->q, &op);
}

void gpt_norm_site_backward(const struct gpt_pass *pass,
                            const struct gpt_norm_site *site, const void *dy)
{
    /* backward reads the sum that forward left, instead of its two terms */
    struct gpt_norm op = norm_op(pass, site, site->acts->r);
    struct gpt_norm_grad grad = {
        .dy = dy,
        .dresid = pass->work.dresid,
        .dx = site->x_rng ? pass->work.x : NULL,
        .dw = site->dw,
        .db = site->db,
        .scratch = pass->work.scratch,
    };

    pass->be->norm_bwd(pass->q, &op, &grad);
}

/* y once more, from the sum that was kept: nothing is added to it again. */
static void norm_again(const struct gpt_pass *pass,
                       const struct gpt_norm_site *site)
{
    struct gpt_norm op = norm_op(pass, site, site->acts->r);

    op.x = NULL;
    pass->be->norm_fwd(pass->q, &op);
}

/* In front of attention: adds what the layer before has left, if there is one,
 * with that layer's dropout. */
static struct gpt_norm_site site1(const struct gpt_layer *layer,
                                  const struct gpt_layer_acts *acts,
                                  const struct gpt_rng *x_rng)
{
    return (struct gpt_norm_site){
        .acts = &acts->norm1,
        .w = layer->w.at[GPT_NORM1_WEIGHT],
        .b = layer->w.at[GPT_NORM1_BIAS],
        .dw = layer->dw.at[GPT_NORM1_WEIGHT],
        .db = layer->dw.at[GPT_NORM1_BIAS],
        .x_rng = x_rng,
    };
}

/* In front of the feed-forward: adds attention's output. */
static struct gpt_norm_site site2(const struct gpt_layer *layer,
                                  const struct gpt_layer_acts *acts)
{
    return (struct gpt_norm_site){
        .acts = &acts->norm2,
        .w = layer->w.at[GPT_NORM2_WEIGHT],
        .b = layer->w.at[GPT_NORM2_BIAS],
        .dw = layer->dw.at[GPT_NORM2_WEIGHT],
        .db = layer->dw.at[GPT_NORM2_BIAS],
        .x_rng = &layer->proj_rng,
    };
}

/* ---- linear layers; W is (out, in) ---- */

/* y (N, out) = x (N, in) W^T, with the epilogue. Without a bias the epilogue
 * must not read one. */
static void linear(const struct gpt_pass *pass, const struct gpt_roles *w,
                   enum gpt_param_role weight, enum gpt_param_role bias,
                   int64_t in, int64_t out, const void *x, void *y,
                   enum gpt_epilogue epilogue, void *aux)
{
    struct gpt_matmul op = {
        .m = pass->n,
        .n = out,
        .k = in,
        .tb = true,
        .a = x,
        .b = w->at[weight],
        .c = y,
        .act = pass->act,
        .c_type = pass->act,
        .epilogue = epilogue,
        .bias = w->at[bias],
        .aux = aux,
    };

    pass->be->matmul(pass->q, &op);
}

static enum gpt_epilogue bias_epilogue(const struct gpt_roles *w,
                                       enum gpt_param_role bias)
{
    return w->at[bias] ? GPT_EPI_BIAS : GPT_EPI_NONE;
}

/* work.x (rows, C) = x (N, in) W^T + bias, where W's columns are cut over the
 * ranks: their results are added, then the bias, once */
static void linear_sum(const struct gpt_pass *pass, const struct gpt_roles *w,
                       enum gpt_param_role weight, enum gpt_param_role bias,
                       int64_t in, const void *x)
{
    int64_t c = pass->widths.hidden;
    void *sum = pass->work.x, *part = gpt_pass_part(pass, sum);

    linear(pass, w, weight, bias, in, c, x, part,
           pass->tp ? GPT_EPI_NONE : bias_epilogue(w, bias), NULL);
    if (!pass->tp)
        return;
    /* the bias is whole on every rank: added to each part it would count once
     * a rank */
    gpt_pass_sum(pass, part, sum);
    if (w->at[bias])
        pass->be->bias_add(pass->q, sum, w->at[bias], pass->rows, c,
                           pass->act);
}

/* dx (N, in) = dy (N, out) W; pre: dx is multiplied by gelu'(pre) */
static void linear_dx(const struct gpt_pass *pass, const void *w, int64_t in,
                      int64_t out, const void *dy, void *dx, void *pre)
{
    struct gpt_matmul op = {
        .m = pass->n,
        .n = in,
        .k = out,
        .a = dy,
        .b = w,
        .c = dx,
        .act = pass->act,
        .c_type = pass->act,
        .epilogue = pre ? GPT_EPI_DGELU : GPT_EPI_NONE,
        .aux = pre,
    };

    pass->be->matmul(pass->q, &op);
}

/* dW (out, in) += dy^T x, dy (N, out), x (N, in), in float whatever `act` is: a
 * step adds many small terms. The first microbatch overwrites (beta 0). */
static void linear_dw(const struct gpt_pass *pass, const struct gpt_roles *dw,
                      enum gpt_param_role weight, int64_t in, int64_t out,
                      const void *dy, const void *x)
{
    struct gpt_matmul op = {
        .m = out,
        .n = in,
        .k = pass->n,
        .ta = true,
        .a = dy,
        .b = x,
        .c = dw->at[weight],
        .act = pass->act,
        .c_type = GPT_F32,
        .beta = pass->beta,
    };

    pass->be->matmul(pass->q, &op);
}

/* db (columns) += column sums of dy (rows, columns), where there is a bias */
static void bias_grad(const struct gpt_pass *pass, float *db, const void *dy,
                      int64_t rows, int64_t columns)
{
    if (db)
        pass->be->bias_grad(pass->q, db, dy, rows, columns, pass->act);
}

/* ---- attention ---- */

struct gpt_attn gpt_layer_attn(const struct gpt_layer *layer,
                               const struct gpt_pass *pass,
                               const struct gpt_layer_acts *acts)
{
    const struct gpt_config *c = pass->config;
    const struct gpt_widths *w = &pass->widths;

    return (struct gpt_attn){
        .b = pass->b,
        .t = pass->t,
        .h = w->heads,
        .g = w->groups,
        .d = c->head_size,
        .head0 = w->heads * pass->layout->at[GPT_TP],
        .h_global = c->num_attention_heads, /* keys dropout and ALiBi */
        .scale = 1.0F / sqrtf((float)c->head_size),
        .alibi = c->position_embedding == GPT_POSITION_ALIBI,
        .act = pass->act,
        .qkv = acts->qkv,
        .out = acts->att,
        .lse = acts->lse,
        .doc_start = pass->doc_start,
        .dropout =
            gpt_pass_dropout(pass, layer->attention_rng, c->attention_dropout),
    };
}

/* Turns queries and keys of qkv by their positions, or their gradients back. */
static void apply_rope(const struct gpt_pass *pass, void *qkv, bool inverse)
{
    const struct gpt_config *c = pass->config;
    struct gpt_rope op = {
        .n = pass->n,
        .t = pass->t,
        .h = pass->widths.heads,
        .g = pass->widths.groups,
        .d = c->head_size,
        .rotary = gpt_config_rotary(c),
        .base = c->rotary_base,
        .act = pass->act,
        .inverse = inverse,
        .qkv = qkv,
        .positions = pass->positions,
    };

    if (c->position_embedding == GPT_POSITION_ROPE)
        pass->be->rope(pass->q, &op);
}

/* att (N, H D) from qkv: over the block itself, or over the cache. */
static void attend(const struct gpt_layer *layer, const struct gpt_pass *pass,
                   const struct gpt_layer_acts *acts)
{
    struct gpt_attn attn = gpt_layer_attn(layer, pass, acts);

    /* generation brings its own cache; the heads are those of training */
    if (!pass->cache) {
        pass->be->attn_fwd(pass->q, &attn);
        return;
    }
    struct gpt_attn_cached cached = *pass->cache;
    cached.h = attn.h;
    cached.g = attn.g;
    cached.d = attn.d;
    cached.scale = attn.scale;
    cached.alibi = attn.alibi;
    cached.act = attn.act;
    cached.qkv = attn.qkv;
    cached.out = attn.out;
    pass->be->attn_cached(pass->q, &cached);
}

/* ---- feed-forward ---- */

/* gelu (N, F) from the normed rows, with what backward needs in `pre`. */
static void feed_forward(const struct gpt_layer *layer,
                         const struct gpt_pass *pass,
                         const struct gpt_layer_acts *acts)
{
    linear(pass, &layer->w, GPT_FC1_WEIGHT, GPT_FC1_BIAS, pass->widths.hidden,
           pass->widths.ffn_in, gpt_pass_gather(pass, acts->norm2.y),
           acts->gelu, GPT_EPI_BIAS_GELU, acts->pre);
}

/* gelu once more, from `pre`. */
static void activate_again(const struct gpt_pass *pass,
                           const struct gpt_layer_acts *acts)
{
    pass->be->gelu(pass->q, acts->gelu, acts->pre, pass->n * pass->widths.ffn,
                   pass->act);
}

/* ---- forward ---- */

/* Ends with the activation: backward needs fc2's input and not its output, so
 * that recomputation leaves the last product, and its sum over ranks, out. */
void gpt_layer_recompute(const struct gpt_layer *layer,
                         const struct gpt_pass *pass,
                         const struct gpt_layer_acts *acts, const void *r,
                         const struct gpt_rng *x_rng)
{
    const struct gpt_widths *w = &pass->widths;
    struct gpt_norm_site norm1 = site1(layer, acts, x_rng);
    struct gpt_norm_site norm2 = site2(layer, acts);

    gpt_norm_site_forward(pass, &norm1, r);
    linear(pass, &layer->w, GPT_QKV_WEIGHT, GPT_QKV_BIAS, w->hidden, w->qkv,
           gpt_pass_gather(pass, acts->norm1.y), acts->qkv,
           bias_epilogue(&layer->w, GPT_QKV_BIAS), NULL);
    apply_rope(pass, acts->qkv, false);
    attend(layer, pass, acts);
    linear_sum(pass, &layer->w, GPT_PROJ_WEIGHT, GPT_PROJ_BIAS, w->attention,
               acts->att);
    gpt_norm_site_forward(pass, &norm2, acts->norm1.r);
    feed_forward(layer, pass, acts);
}

void gpt_layer_forward(const struct gpt_layer *layer,
                       const struct gpt_pass *pass,
                       const struct gpt_layer_acts *acts, const void *r,
                       const struct gpt_rng *x_rng)
{
    gpt_layer_recompute(layer, pass, acts, r, x_rng);
    linear_sum(pass, &layer->w, GPT_FC2_WEIGHT, GPT_FC2_BIAS, pass->widths.ffn,
               acts->gelu);
}

/* ---- backward ---- */

/* Backward of fc1 or qkv: work.dwide is the gradient of the output, y (rows,
 * C) the input. The input's gradient, a sum over the ranks, goes to work.dy.
 * Two transfers run beside the two products: y's rows are gathered from the
 * other ranks while this rank computes its part of the input's gradient, and
 * the parts are summed while it computes the weights' gradient. */
static void backward_wide(const struct gpt_layer *layer,
                          const struct gpt_pass *pass,
                          enum gpt_param_role weight, enum gpt_param_role bias,
                          int64_t out, void *y)
{
    const struct gpt_layer_work *work = &pass->work;
    void *part = gpt_pass_part(pass, work->dy);
    int64_t c = pass->widths.hidden, job;

    job = gpt_pass_begin_gather(pass, y);
    linear_dx(pass, layer->w.at[weight], c, out, work->dwide, part, NULL);
    gpt_pass_join(pass, job);
    job = gpt_pass_begin_sum(pass, part, work->dy);
    linear_dw(pass, &layer->dw, weight, c, out, work->dwide,
              gpt_pass_all(pass, y));
    bias_grad(pass, layer->dw.at[bias], work->dwide, pass->n, out);
    gpt_pass_join(pass, job);
}

/* Backward of fc2 or proj: work.x is the gradient of the output, h (N, in) the
 * input, whose gradient goes to dh; with `pre` the one in front of GELU. */
static void backward_sum(const struct gpt_layer *layer,
                         const struct gpt_pass *pass,
                         enum gpt_param_role weight, enum gpt_param_role bias,
                         int64_t in, const void *h, void *dh, void *pre)
{
    int64_t c = pass->widths.hidden;
    const void *dy = gpt_pass_all(pass, pass->work.x);

    /* the bias' gradient reads this rank's rows alone, while the others come */
    const int64_t job = gpt_pass_begin_gather(pass, pass->work.x);
    bias_grad(pass, layer->dw.at[bias], pass->work.x, pass->rows, c);
    gpt_pass_join(pass, job);
    linear_dw(pass, &layer->dw, weight, in, c, dy, h);
    linear_dx(pass, layer->w.at[weight], in, c, dy, dh, pre);
}

/* From work.x, the gradient of fc2's output, to work.dy, that of norm2.y. */
static void feed_forward_backward(const struct gpt_layer *layer,
                                  const struct gpt_pass *pass,
                                  const struct gpt_layer_acts *acts,
                                  const struct gpt_norm_site *norm2)
{
    const struct gpt_widths *w = &pass->widths;

    if (pass->selective)
        activate_again(pass, acts);
    backward_sum(layer, pass, GPT_FC2_WEIGHT, GPT_FC2_BIAS, w->ffn, acts->gelu,
                 pass->work.dwide, acts->pre);
    if (pass->selective)
        norm_again(pass, norm2);
    backward_wide(layer, pass, GPT_FC1_WEIGHT, GPT_FC1_BIAS, w->ffn_in,
                  acts->norm2.y);
}

/* From work.x, the gradient of proj's output, to work.dy, that of norm1.y. */
static void attention_backward(const struct gpt_layer *layer,
                               const struct gpt_pass *pass,
                               const struct gpt_layer_acts *acts,
                               const struct gpt_norm_site *norm1)
{
    const struct gpt_layer_work *work = &pass->work;
    const struct gpt_widths *w = &pass->widths;
    struct gpt_attn attn = gpt_layer_attn(layer, pass, acts);
    const struct gpt_attn_grad attn_grad = {
        .dout = work->dy,
        .dqkv = work->dwide,
        .scratch = work->scratch,
    };

    /* selective: attention's output and log-sum-exp were not kept */
    if (pass->selective)
        attend(layer, pass, acts);
    backward_sum(layer, pass, GPT_PROJ_WEIGHT, GPT_PROJ_BIAS, w->attention,
                 acts->att, work->dy, NULL);
    pass->be->attn_bwd(pass->q, &attn, &attn_grad);
    apply_rope(pass, work->dwide, true);
    if (pass->selective)
        norm_again(pass, norm1);
    backward_wide(layer, pass, GPT_QKV_WEIGHT, GPT_QKV_BIAS, w->qkv,
                  acts->norm1.y);
}

void gpt_layer_backward(const struct gpt_layer *layer,
                        const struct gpt_pass *pass,
                        const struct gpt_layer_acts *acts,
                        const struct gpt_rng *x_rng)
{
    struct gpt_norm_site norm1 = site1(layer, acts, x_rng);
    struct gpt_norm_site norm2 = site2(layer, acts);

    feed_forward_backward(layer, pass, acts, &norm2);
    gpt_norm_site_backward(pass, &norm2, pass->work.dy);
    attention_backward(layer, pass, acts, &norm1);
    gpt_norm_site_backward(pass, &norm1, pass->work.dy);
}
