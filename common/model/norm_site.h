/* Places of norms: in front of a block, after it, at the two ends of a model.
 * Each is one operation of the backend that also adds what waits to be added to
 * the residual stream. layer.h's letters and buffers. */
#ifndef GPT_MODEL_NORM_SITE_H
#define GPT_MODEL_NORM_SITE_H

#include "model/layer.h"

/* One norm with its residual and dropout, also for the final one. Forward
 * reads r and x (work.x when x_rng), backward reads work.dy. */
struct gpt_norm_site {
    const struct gpt_norm_acts *acts;
    bool norms; /* false: it only adds to the stream */
    const void *w, *b; /* NULL: there is none */
    float *dw, *db;
    const struct gpt_rng *x_rng; /* NULL: nothing is added */
};
void gpt_norm_site_forward(const struct gpt_pass *pass,
                           const struct gpt_norm_site *site, const void *r);
void gpt_norm_site_backward(const struct gpt_pass *pass,
                            const struct gpt_norm_site *site, const void *dy);
/* y once more, from the sum that was kept: nothing is added to it again. */
void gpt_norm_site_again(const struct gpt_pass *pass,
                         const struct gpt_norm_site *site);

/* The pass in which a block computes its output: with a norm after it, x is
 * where that norm's input is kept. */
struct gpt_pass gpt_output_pass(const struct gpt_pass *pass,
                                const struct gpt_norm_acts *acts);
/* work.x, which the next norm adds, from what that pass has left at the site;
 * and backward, from one gradient to the other, both in work.x (work.dy is
 * overwritten). Without norms after blocks both do nothing. */
void gpt_output_normed(const struct gpt_pass *pass, struct gpt_norm_site site);
void gpt_output_normed_backward(const struct gpt_pass *pass,
                                const struct gpt_norm_site *site);

#endif
