/* Norms of a layer as calls of the backend; see norm_site.h. A site that
 * norms nothing only adds to the stream. */
#include "model/norm_site.h"

/* The norm of a site as an operation; forward and backward take the same one.
 * The residual stream has been summed over the ranks before, dropout has not
 * been applied yet: the norm applies it while it adds x. */
static struct gpt_norm norm_op(const struct gpt_pass *pass,
                               const struct gpt_norm_site *site, const void *r)
{
    struct gpt_norm op = {
        .kind = (enum gpt_norm_kind)pass->config->normalization,
        .plus_one = pass->config->norm_plus_one,
        .n = pass->rows,
        .c = pass->widths.hidden,
        .eps = (float)pass->config->norm_epsilon,
        .act = pass->act,
        .resid_in = r,
        .resid_out = site->acts->r,
        .y = site->norms ? site->acts->y : NULL,
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

/* Adds dy to dresid: the sum that a norm begins with, where there is no
 * norm. */
static void add_gradient(const struct gpt_pass *pass, const void *dy)
{
    const struct gpt_norm add = {
        .n = pass->rows,
        .c = pass->widths.hidden,
        .act = pass->act,
        .resid_in = pass->work.dresid,
        .x = dy,
        .resid_out = pass->work.dresid,
    };

    pass->be->norm_fwd(pass->q, &add);
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

    if (site->norms) {
        pass->be->norm_bwd(pass->q, &op, &grad);
        return;
    }
    add_gradient(pass, dy);
    if (grad.dx)
        pass->be->dropout(pass->q, grad.dx, grad.dresid, op.n, op.c, op.act,
                          &op.dropout);
}

/* Selective recomputation keeps the sum and the statistics, and makes y anew.
 */
void gpt_norm_site_again(const struct gpt_pass *pass,
                         const struct gpt_norm_site *site)
{
    struct gpt_norm op = norm_op(pass, site, site->acts->r);

    op.x = NULL;
    if (site->norms)
        pass->be->norm_fwd(pass->q, &op);
}

/* ---- of what a block gives ---- */

struct gpt_pass gpt_output_pass(const struct gpt_pass *pass,
                                const struct gpt_norm_acts *acts)
{
    struct gpt_pass own = *pass;

    if (pass->config->post_norm)
        own.work.x = acts->r;
    return own;
}

/* Computes work.x, what the next norm adds, from what gpt_output_pass() has
 * kept. */
void gpt_output_normed(const struct gpt_pass *pass, struct gpt_norm_site site)
{
    struct gpt_norm_acts acts = *site.acts;

    if (!pass->config->post_norm)
        return;
    /* the site is of the layer, the place of y of the pass: recomputation has
     * another x */
    acts.y = pass->work.x;
    site.acts = &acts;
    gpt_norm_site_forward(pass, &site, acts.r);
}

/* Turns the gradient of what was added into that of the block's output, both in
 * work.x. A norm's backward adds to a stream, which is empty here. */
void gpt_output_normed_backward(const struct gpt_pass *pass,
                                const struct gpt_norm_site *site)
{
    struct gpt_pass own = *pass;
    const size_t bytes = (size_t)(pass->rows * pass->widths.hidden) *
                         gpt_dtype_bytes(pass->act);

    if (!pass->config->post_norm)
        return;
    own.work.dresid = pass->work.dy;
    pass->be->zero(pass->q, own.work.dresid, bytes);
    gpt_norm_site_backward(&own, site, pass->work.x);
    pass->be->copy(pass->q, pass->work.x, own.work.dresid, bytes);
}
