/* Initial values of parameters; see gpt_param_init() in params.h. */
#include "base/rng.h"
#include "model/params.h"

#include <math.h>
#include <stdio.h>

/* Numbers are drawn by the global index of an element, so that they depend
 * neither on the cut nor on the number of threads. The stream's name is that of
 * the parameter: adding rows to the table changes no other parameter. */
static void init_normal(const struct gpt_slice *s, uint64_t seed, double std,
                        float *dst)
{
    char stream[GPT_PARAM_NAME + 8];

    snprintf(stream, sizeof(stream), "init/%s", s->param->name);
    struct gpt_rng rng = gpt_rng_open(seed, stream);
    int64_t columns = s->param->shape[1];
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < s->shape[0]; r++) {
        float *row = dst + r * s->shape[1];
        int64_t first = (s->begin[0] + r) * columns + s->begin[1];

        gpt_rng_normals(rng, (uint64_t)first, s->shape[1], row);
        for (int64_t k = 0; k < s->shape[1]; k++)
            row[k] = (float)(std * (double)row[k]);
    }
}

void gpt_param_init(const struct gpt_config *c, const struct gpt_slice *slice,
                    uint64_t seed, float *dst)
{
    switch (slice->param->init) {
    case GPT_INIT_ZERO:
    case GPT_INIT_ONE:
        for (int64_t i = 0; i < slice->count; i++)
            dst[i] = slice->param->init == GPT_INIT_ONE ? 1.0F : 0.0F;
        return;
    /* ln(e^g - 1) for what is left of 0.8 when a half is added */
    case GPT_INIT_ALPHA_P:
    case GPT_INIT_ALPHA_N:
        for (int64_t i = 0; i < slice->count; i++)
            dst[i] = (float)log(expm1(
                slice->param->init == GPT_INIT_ALPHA_P ? 0.8 : 0.3));
        return;
    case GPT_INIT_NORMAL:
        init_normal(slice, seed, c->init_std, dst);
        return;
    case GPT_INIT_NORMAL_OUTPUT:
        /* each of the 2 L blocks adds to the residual stream: its variance
         * must not grow with their number (Radford et al. 2019) */
        init_normal(slice, seed,
                    c->init_std / sqrt(2.0 * (double)c->num_layers), dst);
        return;
    }
}
