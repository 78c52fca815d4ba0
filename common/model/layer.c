/* A transformer layer over the backend; see layer.h. Read
 * gpt_layer_forward(), then gpt_layer_backward() from its end.
 *
 * Tensor parallelism splits qkv and fc1 by rows and proj and fc2 by columns;
 * "sum over TP" marks where the results of the ranks will be added. */
#include "model/layer.h"

#include <math.h>
#include <stdio.h>

static struct gpt_rng layer_rng(uint64_t seed, int64_t number, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "dropout/layers.%lld.%s", (long long)number,
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

struct gpt_dropout gpt_pass_dropout(const struct gpt_pass *pass,
                                    struct gpt_rng rng, double p)
{
    return (struct gpt_dropout){
        .p = pass->dropout ? (float)p : 0.0F,
        .rng = rng,
        .sample0 = pass->sample0,
        .t_local = pass->t,
        .t_global = pass->t,
        .t0 = 0,
    };
}

/* ---- norms ---- */

static struct gpt_norm norm_op(const struct gpt_pass *pass,
                               const struct gpt_norm_site *site, const void *r)
{
    struct gpt_norm op = {
        .kind = GPT_LAYERNORM,
        .n = pass->n,
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

/* dW (out, in) += dy^T x; dbias (out) += column sums of dy */
static void linear_dw(const struct gpt_pass *pass, const struct gpt_roles *dw,
                      enum gpt_param_role weight, enum gpt_param_role bias,
                      int64_t in, int64_t out, const void *dy, const void *x)
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
    pass->be->bias_grad(pass->q, dw->at[bias], dy, pass->n, out, pass->act);
}

struct gpt_attn gpt_layer_attn(const struct gpt_layer *layer,
                               const struct gpt_pass *pass,
                               const struct gpt_layer_acts *acts)
{
    const struct gpt_config *c = pass->config;
    int64_t tp = pass->layout->tp_size;
    int64_t heads = c->num_attention_heads / tp;
    return (struct gpt_attn){
        .b = pass->b,
        .t = pass->t,
        .h = heads,
        .g = c->num_query_groups / tp,
        .d = c->head_size,
        .head0 = heads * pass->layout->tp_rank,
        .h_global = c->num_attention_heads,
        .scale = 1.0F / sqrtf((float)c->head_size),
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
           pass->layout->tp_size;
}

static int64_t width_heads(const struct gpt_pass *pass)
{
    return pass->config->num_attention_heads * pass->config->head_size /
           pass->layout->tp_size;
}

static int64_t width_ffn(const struct gpt_pass *pass)
{
    return pass->config->ffn_hidden_size / pass->layout->tp_size;
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
    cached.act = attn.act;
    cached.qkv = attn.qkv;
    cached.out = attn.out;
    pass->be->attn_cached(pass->q, &cached);
}

void gpt_layer_forward(const struct gpt_layer *layer,
                       const struct gpt_pass *pass,
                       const struct gpt_layer_acts *acts, const void *r,
                       const struct gpt_rng *x_rng)
{
    int64_t c = pass->config->hidden_size;
    struct gpt_norm_site norm1 = site1(layer, acts, x_rng);
    struct gpt_norm_site norm2 = site2(layer, acts);

    gpt_norm_site_forward(pass, &norm1, r);
    linear(pass, &layer->w, GPT_QKV_WEIGHT, GPT_QKV_BIAS, c, width_qkv(pass),
           acts->norm1.y, acts->qkv, GPT_EPI_BIAS, NULL);
    attend(layer, pass, acts);
    linear(pass, &layer->w, GPT_PROJ_WEIGHT, GPT_PROJ_BIAS, width_heads(pass),
           c, acts->att, pass->work.x, GPT_EPI_BIAS, NULL);
    /* sum over TP: work.x, then the bias */
    gpt_norm_site_forward(pass, &norm2, acts->norm1.r);
    linear(pass, &layer->w, GPT_FC1_WEIGHT, GPT_FC1_BIAS, c, width_ffn(pass),
           acts->norm2.y, acts->gelu, GPT_EPI_BIAS_GELU, acts->pre);
    linear(pass, &layer->w, GPT_FC2_WEIGHT, GPT_FC2_BIAS, width_ffn(pass), c,
           acts->gelu, pass->work.x, GPT_EPI_BIAS, NULL);
    /* sum over TP: work.x, then the bias */
}

void gpt_layer_backward(const struct gpt_layer *layer,
                        const struct gpt_pass *pass,
                        const struct gpt_layer_acts *acts,
                        const struct gpt_rng *x_rng)
{
    const struct gpt_layer_work *work = &pass->work;
    int64_t c = pass->config->hidden_size;
    struct gpt_norm_site norm1 = site1(layer, acts, x_rng);
    struct gpt_norm_site norm2 = site2(layer, acts);

    linear_dw(pass, &layer->dw, GPT_FC2_WEIGHT, GPT_FC2_BIAS, width_ffn(pass),
              c, work->x, acts->gelu);
    linear_dx(pass, layer->w.at[GPT_FC2_WEIGHT], width_ffn(pass), c, work->x,
              work->dwide, acts->pre);
    linear_dw(pass, &layer->dw, GPT_FC1_WEIGHT, GPT_FC1_BIAS, c,
              width_ffn(pass), work->dwide, acts->norm2.y);
    linear_dx(pass, layer->w.at[GPT_FC1_WEIGHT], c, width_ffn(pass),
              work->dwide, work->dy, NULL);
    /* sum over TP: work.dy */
    gpt_norm_site_backward(pass, &norm2, work->dy);

    linear_dw(pass, &layer->dw, GPT_PROJ_WEIGHT, GPT_PROJ_BIAS,
              width_heads(pass), c, work->x, acts->att);
    linear_dx(pass, layer->w.at[GPT_PROJ_WEIGHT], width_heads(pass), c, work->x,
              work->dy, NULL);
    struct gpt_attn attn = gpt_layer_attn(layer, pass, acts);
    struct gpt_attn_grad attn_grad = {
        .dout = work->dy,
        .dqkv = work->dwide,
        .scratch = work->scratch,
    };
    pass->be->attn_bwd(pass->q, &attn, &attn_grad);
    linear_dw(pass, &layer->dw, GPT_QKV_WEIGHT, GPT_QKV_BIAS, c,
              width_qkv(pass), work->dwide, acts->norm1.y);
    linear_dx(pass, layer->w.at[GPT_QKV_WEIGHT], c, width_qkv(pass),
              work->dwide, work->dy, NULL);
    /* sum over TP: work.dy */
    gpt_norm_site_backward(pass, &norm1, work->dy);
}
