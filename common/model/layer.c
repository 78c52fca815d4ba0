/* A transformer layer over the backend; see layer.h. Read
 * gpt_layer_forward(), then gpt_layer_backward() from its end.
 *
 * Tensor parallelism splits qkv and fc1 by rows and proj and fc2 by columns:
 * the results of the latter, and the gradients of the former's inputs, are
 * sums over the ranks (Shoeybi et al. 2019; with rows cut between them:
 * Korthikanti et al. 2022). */
#include "model/layer.h"

#include <math.h>
#include <stdio.h>

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

static struct gpt_norm norm_op(const struct gpt_pass *pass,
                               const struct gpt_norm_site *site, const void *r)
{
    struct gpt_norm op = {
        .kind = GPT_LAYERNORM,
        .n = pass->rows,
        .c = pass->config->hidden_size,
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

/* y once more, from the sum that was kept. */
static void norm_again(const struct gpt_pass *pass,
                       const struct gpt_norm_site *site)
{
    struct gpt_norm op = norm_op(pass, site, site->acts->r);

    op.x = NULL;
    pass->be->norm_fwd(pass->q, &op);
}

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

/* y (N, out) = x (N, in) W^T, with the epilogue */
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

/* work.x (rows, C) = x (N, in) W^T + bias, where W's columns are cut over the
 * ranks: their results are added, then the bias, once */
static void linear_sum(const struct gpt_pass *pass, const struct gpt_roles *w,
                       enum gpt_param_role weight, enum gpt_param_role bias,
                       int64_t in, const void *x)
{
    int64_t c = pass->config->hidden_size;
    void *sum = pass->work.x, *part = gpt_pass_part(pass, sum);

    linear(pass, w, weight, bias, in, c, x, part,
           pass->tp ? GPT_EPI_NONE : GPT_EPI_BIAS, NULL);
    if (!pass->tp)
        return;
    gpt_pass_sum(pass, part, sum);
    pass->be->bias_add(pass->q, sum, w->at[bias], pass->rows, c, pass->act);
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

/* dW (out, in) += dy^T x, dy (N, out), x (N, in) */
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

/* ---- attention and feed-forward ---- */

struct gpt_attn gpt_layer_attn(const struct gpt_layer *layer,
                               const struct gpt_pass *pass,
                               const struct gpt_layer_acts *acts)
{
    const struct gpt_config *c = pass->config;
    int64_t tp = pass->layout->size[GPT_TP];
    int64_t heads = c->num_attention_heads / tp;

    return (struct gpt_attn){
        .b = pass->b,
        .t = pass->t,
        .h = heads,
        .g = c->num_query_groups / tp,
        .d = c->head_size,
        .head0 = heads * pass->layout->at[GPT_TP],
        .h_global = c->num_attention_heads,
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

/* Widths held here: of qkv, of the heads' output, of the feed-forward. */
static int64_t width_qkv(const struct gpt_pass *pass)
{
    const struct gpt_config *c = pass->config;

    return (c->num_attention_heads + 2 * c->num_query_groups) * c->head_size /
           pass->layout->size[GPT_TP];
}

static int64_t width_heads(const struct gpt_pass *pass)
{
    return pass->config->num_attention_heads * pass->config->head_size /
           pass->layout->size[GPT_TP];
}

static int64_t width_ffn(const struct gpt_pass *pass)
{
    return pass->config->ffn_hidden_size / pass->layout->size[GPT_TP];
}

/* Queries and keys of qkv, or their gradients, turned by their positions. */
static void turn(const struct gpt_pass *pass, void *qkv, bool inverse)
{
    const struct gpt_config *c = pass->config;
    struct gpt_rope op = {
        .n = pass->n,
        .t = pass->t,
        .h = c->num_attention_heads / pass->layout->size[GPT_TP],
        .g = c->num_query_groups / pass->layout->size[GPT_TP],
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

void gpt_layer_recompute(const struct gpt_layer *layer,
                         const struct gpt_pass *pass,
                         const struct gpt_layer_acts *acts, const void *r,
                         const struct gpt_rng *x_rng)
{
    int64_t c = pass->config->hidden_size;
    struct gpt_norm_site norm1 = site1(layer, acts, x_rng);
    struct gpt_norm_site norm2 = site2(layer, acts);

    gpt_norm_site_forward(pass, &norm1, r);
    linear(pass, &layer->w, GPT_QKV_WEIGHT, GPT_QKV_BIAS, c, width_qkv(pass),
           gpt_pass_gather(pass, acts->norm1.y), acts->qkv, GPT_EPI_BIAS, NULL);
    turn(pass, acts->qkv, false);
    attend(layer, pass, acts);
    linear_sum(pass, &layer->w, GPT_PROJ_WEIGHT, GPT_PROJ_BIAS,
               width_heads(pass), acts->att);
    gpt_norm_site_forward(pass, &norm2, acts->norm1.r);
    linear(pass, &layer->w, GPT_FC1_WEIGHT, GPT_FC1_BIAS, c, width_ffn(pass),
           gpt_pass_gather(pass, acts->norm2.y), acts->gelu, GPT_EPI_BIAS_GELU,
           acts->pre);
}

void gpt_layer_forward(const struct gpt_layer *layer,
                       const struct gpt_pass *pass,
                       const struct gpt_layer_acts *acts, const void *r,
                       const struct gpt_rng *x_rng)
{
    gpt_layer_recompute(layer, pass, acts, r, x_rng);
    linear_sum(pass, &layer->w, GPT_FC2_WEIGHT, GPT_FC2_BIAS, width_ffn(pass),
               acts->gelu);
}

/* Backward of fc1 or qkv: work.dwide is the gradient of the output, y (rows,
 * C) the input, whose gradient, the sum over the ranks, comes to work.dy. The
 * rows of y that others have come while that is computed, and it is summed
 * while the weights' gradient is. */
static void backward_wide(const struct gpt_layer *layer,
                          const struct gpt_pass *pass,
                          enum gpt_param_role weight, enum gpt_param_role bias,
                          int64_t out, void *y)
{
    const struct gpt_layer_work *work = &pass->work;
    void *part = gpt_pass_part(pass, work->dy);
    int64_t c = pass->config->hidden_size, job;

    job = gpt_pass_begin_gather(pass, y);
    linear_dx(pass, layer->w.at[weight], c, out, work->dwide, part, NULL);
    gpt_pass_join(pass, job);
    job = gpt_pass_begin_sum(pass, part, work->dy);
    linear_dw(pass, &layer->dw, weight, c, out, work->dwide,
              gpt_pass_all(pass, y));
    pass->be->bias_grad(pass->q, layer->dw.at[bias], work->dwide, pass->n, out,
                        pass->act);
    gpt_pass_join(pass, job);
}

/* Backward of fc2 or proj: work.x is the gradient of the output, h (N, in) the
 * input, whose gradient goes to dh; pre: that in front of GELU. */
static void backward_sum(const struct gpt_layer *layer,
                         const struct gpt_pass *pass,
                         enum gpt_param_role weight, enum gpt_param_role bias,
                         int64_t in, const void *h, void *dh, void *pre)
{
    int64_t c = pass->config->hidden_size;
    const void *dy = gpt_pass_all(pass, pass->work.x);

    const int64_t job = gpt_pass_begin_gather(pass, pass->work.x);
    pass->be->bias_grad(pass->q, layer->dw.at[bias], pass->work.x, pass->rows,
                        c, pass->act);
    gpt_pass_join(pass, job);
    linear_dw(pass, &layer->dw, weight, in, c, dy, h);
    linear_dx(pass, layer->w.at[weight], in, c, dy, dh, pre);
}

void gpt_layer_backward(const struct gpt_layer *layer,
                        const struct gpt_pass *pass,
                        const struct gpt_layer_acts *acts,
                        const struct gpt_rng *x_rng)
{
    const struct gpt_layer_work *work = &pass->work;
    struct gpt_norm_site norm1 = site1(layer, acts, x_rng);
    struct gpt_norm_site norm2 = site2(layer, acts);

    if (pass->selective)
        pass->be->gelu(pass->q, acts->gelu, acts->pre,
                       pass->n * width_ffn(pass), pass->act);
    backward_sum(layer, pass, GPT_FC2_WEIGHT, GPT_FC2_BIAS, width_ffn(pass),
                 acts->gelu, work->dwide, acts->pre);
    if (pass->selective)
        norm_again(pass, &norm2);
    backward_wide(layer, pass, GPT_FC1_WEIGHT, GPT_FC1_BIAS, width_ffn(pass),
                  acts->norm2.y);
    gpt_norm_site_backward(pass, &norm2, work->dy);

    if (pass->selective)
        attend(layer, pass, acts);
    backward_sum(layer, pass, GPT_PROJ_WEIGHT, GPT_PROJ_BIAS,
                 width_heads(pass), acts->att, work->dy, NULL);
    struct gpt_attn attn = gpt_layer_attn(layer, pass, acts);
    struct gpt_attn_grad attn_grad = {
        .dout = work->dy,
        .dqkv = work->dwide,
        .scratch = work->scratch,
    };
    pass->be->attn_bwd(pass->q, &attn, &attn_grad);
    turn(pass, work->dwide, true);
    if (pass->selective)
        norm_again(pass, &norm1);
    backward_wide(layer, pass, GPT_QKV_WEIGHT, GPT_QKV_BIAS, width_qkv(pass),
                  acts->norm1.y);
    gpt_norm_site_backward(pass, &norm1, work->dy);
}
