/* Latent attention; see latent.h. Read gpt_latent_forward(), then
 * gpt_latent_backward().
 *
 * Every rank has the whole rows of few numbers, and makes its own heads of
 * them: nothing is exchanged that other attention would not exchange. The
 * gradients of these rows are a rank's own part, as those of its heads are; so
 * are those of the matrices and norms that make them, which are summed over
 * the ranks at the end of a step, as a router's are. */
#include "model/latent.h"

#include "model/linear.h"

/* Norms of these rows have no bias, and add nothing to a stream. */
struct row_norm {
    enum gpt_param_role weight;
    int64_t width;
    void *in, *out;
    float *rstd;
};

static struct row_norm q_norm(const struct gpt_pass *pass,
                              const struct gpt_latent_acts *a)
{
    return (struct row_norm){GPT_Q_LATENT_NORM, pass->widths.q_rank, a->q_down,
                             a->q, a->q_rstd};
}

static struct row_norm kv_norm(const struct gpt_pass *pass,
                               const struct gpt_latent_acts *a)
{
    return (struct row_norm){GPT_KV_LATENT_NORM, pass->widths.kv_rank,
                             a->kv_down, a->kv, a->kv_rstd};
}

static struct gpt_norm norm_op(const struct gpt_layer *layer,
                               const struct gpt_pass *pass,
                               const struct row_norm *norm)
{
    const struct gpt_config *c = pass->config;

    return (struct gpt_norm){
        .kind = (enum gpt_norm_kind)c->normalization,
        .plus_one = c->norm_plus_one,
        .n = pass->n,
        .c = norm->width,
        .eps = (float)(c->latent_norm_epsilon > 0 ? c->latent_norm_epsilon
                                                  : c->norm_epsilon),
        .act = pass->act,
        .resid_in = norm->in,
        .resid_out = norm->in,
        .y = norm->out,
        .w = layer->w.at[norm->weight],
        .rstd = norm->rstd,
    };
}

/* Queries of the stream itself have no such row. */
static void norm_rows(const struct gpt_layer *layer,
                      const struct gpt_pass *pass, const struct row_norm *norm)
{
    const struct gpt_norm op = norm_op(layer, pass, norm);

    if (norm->width > 0)
        pass->be->norm_fwd(pass->q, &op);
}

/* dx, the gradient of the rows before the norm, from dy. The norm's backward
 * adds to a stream, which is empty here. */
static void norm_rows_backward(const struct gpt_layer *layer,
                               const struct gpt_pass *pass,
                               const struct row_norm *norm, const void *dy,
                               void *dx)
{
    const struct gpt_norm op = norm_op(layer, pass, norm);
    const struct gpt_norm_grad grad = {
        .dy = dy,
        .dresid = dx,
        .dw = layer->dw.at[norm->weight],
        .scratch = pass->work.scratch,
    };

    pass->be->zero(pass->q, dx,
                   (size_t)(pass->n * norm->width) *
                       gpt_dtype_bytes(pass->act));
    pass->be->norm_bwd(pass->q, &op, &grad);
}

/* ---- products ---- */

/* A matrix without a bias: the role of one that this attention never has stands
 * for none. */
static struct gpt_linear matrix(enum gpt_param_role weight, int64_t out)
{
    return gpt_linear_one(weight, GPT_QKV_BIAS, out);
}

/* y (N, out) = x (N, in) W^T. */
static void multiply(const struct gpt_layer *layer, const struct gpt_pass *pass,
                     enum gpt_param_role weight, int64_t in, int64_t out,
                     const void *x, void *y)
{
    const struct gpt_linear one = matrix(weight, out);

    gpt_linear_wide(pass, &layer->w, &one, in, x, y);
}

/* Gradients of a matrix and of its input, from dy (N, out); add: dx is added
 * to. */
static void multiply_backward(const struct gpt_layer *layer,
                              const struct gpt_pass *pass,
                              enum gpt_param_role weight, int64_t in,
                              int64_t out, void *dy, const void *x, void *dx,
                              bool add)
{
    struct gpt_linear one = matrix(weight, out);

    one.add = add;
    gpt_linear_measure(pass, &layer->w, &one, in, x, pass->n * in, dy,
                       pass->n * out);
    gpt_linear_dw(pass, &layer->dw, &one, in, dy, x);
    gpt_linear_dx(pass, &layer->w, &one, in, dy, dx, NULL);
}

static struct gpt_latent latent_op(const struct gpt_pass *pass,
                                   const struct gpt_layer_acts *acts)
{
    const struct gpt_config *c = pass->config;
    const struct gpt_latent_work *work = &pass->work.latent;

    return (struct gpt_latent){
        .n = pass->n,
        .h = pass->widths.heads,
        .nope = c->qk_head_dim,
        .turned = c->qk_pos_emb_head_dim,
        .value = c->v_head_dim,
        .act = pass->act,
        .q = work->q,
        .k = work->turned,
        .kv = work->kv,
        .qkv = acts->qkv,
    };
}

/* ---- forward ---- */

/* Queries (N, H D), of rows of their own where these are narrow. */
static void make_queries(const struct gpt_layer *layer,
                         const struct gpt_pass *pass,
                         const struct gpt_layer_acts *acts, const void *x)
{
    const struct gpt_latent_acts *a = &acts->latent;
    const struct gpt_widths *w = &pass->widths;
    const struct row_norm norm = q_norm(pass, a);

    if (w->q_rank == 0) {
        multiply(layer, pass, GPT_Q_PROJ, w->hidden, w->attention, x,
                 pass->work.latent.q);
        return;
    }
    multiply(layer, pass, GPT_Q_DOWN, w->hidden, w->q_rank, x, a->q_down);
    norm_rows(layer, pass, &norm);
    multiply(layer, pass, GPT_Q_UP, w->q_rank, w->attention, a->q,
             pass->work.latent.q);
}

void gpt_latent_forward(const struct gpt_layer *layer,
                        const struct gpt_pass *pass,
                        const struct gpt_layer_acts *acts, const void *x)
{
    const struct gpt_latent_acts *a = &acts->latent;
    const struct gpt_latent_work *work = &pass->work.latent;
    const struct gpt_widths *w = &pass->widths;
    const struct row_norm norm = kv_norm(pass, a);
    const struct gpt_latent op = latent_op(pass, acts);

    make_queries(layer, pass, acts, x);
    multiply(layer, pass, GPT_KV_DOWN, w->hidden, w->kv_rank, x, a->kv_down);
    norm_rows(layer, pass, &norm);
    multiply(layer, pass, GPT_KV_UP, w->kv_rank, w->kv_up, a->kv, work->kv);
    multiply(layer, pass, GPT_K_TURNED, w->hidden, w->turned, x, work->turned);
    pass->be->latent_join(pass->q, &op);
}

/* ---- backward ---- */

/* From work.q, the gradient of queries, to dq_down, that of their rows. */
static void queries_backward(const struct gpt_layer *layer,
                             const struct gpt_pass *pass,
                             const struct gpt_layer_acts *acts)
{
    const struct gpt_latent_acts *a = &acts->latent;
    const struct gpt_latent_work *work = &pass->work.latent;
    const struct gpt_widths *w = &pass->widths;
    const struct row_norm norm = q_norm(pass, a);

    multiply_backward(layer, pass, GPT_Q_UP, w->q_rank, w->attention, work->q,
                      a->q, work->dnormed, false);
    norm_rows_backward(layer, pass, &norm, work->dnormed, work->dq_down);
}

/* From work.kv, the gradient of keys and values, to dkv_down. */
static void keys_backward(const struct gpt_layer *layer,
                          const struct gpt_pass *pass,
                          const struct gpt_layer_acts *acts)
{
    const struct gpt_latent_acts *a = &acts->latent;
    const struct gpt_latent_work *work = &pass->work.latent;
    const struct gpt_widths *w = &pass->widths;
    const struct row_norm norm = kv_norm(pass, a);

    multiply_backward(layer, pass, GPT_KV_UP, w->kv_rank, w->kv_up, work->kv,
                      a->kv, work->dnormed, false);
    norm_rows_backward(layer, pass, &norm, work->dnormed, work->dkv_down);
}

/* Selective recomputation keeps what the products gave. */
static void make_normed(const struct gpt_layer *layer,
                        const struct gpt_pass *pass,
                        const struct gpt_layer_acts *acts)
{
    const struct row_norm q = q_norm(pass, &acts->latent);
    const struct row_norm kv = kv_norm(pass, &acts->latent);

    norm_rows(layer, pass, &q);
    norm_rows(layer, pass, &kv);
}

void gpt_latent_backward(const struct gpt_layer *layer,
                         const struct gpt_pass *pass,
                         const struct gpt_layer_acts *acts, void *y)
{
    const struct gpt_latent_work *work = &pass->work.latent;
    const struct gpt_widths *w = &pass->widths;
    const struct gpt_latent op = latent_op(pass, acts);
    const struct gpt_latent_grad grad = {
        .dqkv = pass->work.dwide,
        .dq = work->q,
        .dk = work->turned,
        .dkv = work->kv,
    };
    void *part = gpt_pass_part(pass, pass->work.dy);
    const bool narrow = w->q_rank > 0;

    pass->be->latent_split(pass->q, &op, &grad);
    if (pass->selective)
        make_normed(layer, pass, acts);
    if (narrow)
        queries_backward(layer, pass, acts);
    keys_backward(layer, pass, acts);
    const void *x = gpt_pass_gather(pass, y);
    multiply_backward(layer, pass, narrow ? GPT_Q_DOWN : GPT_Q_PROJ, w->hidden,
                      narrow ? w->q_rank : w->attention,
                      narrow ? work->dq_down : work->q, x, part, false);
    multiply_backward(layer, pass, GPT_KV_DOWN, w->hidden, w->kv_rank,
                      work->dkv_down, x, part, true);
    multiply_backward(layer, pass, GPT_K_TURNED, w->hidden, w->turned,
                      work->turned, x, part, true);
    gpt_pass_sum(pass, part, pass->work.dy);
}
