/* Scaling of rotary positions as ramps over rates; see rotary.h. Each kind is a
 * few constants of struct gpt_rope_scaling, which kernels apply. */
#include "model/rotary.h"

#include <math.h>

/* Pair i makes `turns` turns over the positions of pretraining at this i. */
static double pair_of(const struct gpt_config *c, double turns)
{
    return (double)gpt_config_rotary(c) *
           log((double)c->rotary_positions / (turns * 2 * M_PI)) /
           (2 * log(c->rotary_base));
}

/* YaRN's factor of sines and cosines where the model has none of its own:
 * interpolation makes scores flatter, longer queries and keys sharpen them. */
static double yarn_attention(double factor)
{
    return factor > 1 ? 0.1 * log(factor) + 1 : 1;
}

/* Fast pairs stay, slow ones are interpolated; between them a ramp over pairs,
 * whose ends are whole numbers. */
static void scale_yarn(struct gpt_rope_scaling *s, const struct gpt_config *c)
{
    double fast = fmax(floor(pair_of(c, c->rotary_fast)), 0);
    double slow = fmin(ceil(pair_of(c, c->rotary_slow)),
                       (double)gpt_config_rotary(c) - 1);

    s->from = slow > fast || slow < fast ? slow : slow + 0.001;
    s->to = fast;
    s->attention = c->rotary_attention > 0
                       ? c->rotary_attention
                       : yarn_attention(c->rotary_factor);
}

/* Llama 3.1: a ramp over the turns that a pair makes, rate * positions / 2
 * pi. */
static void scale_llama3(struct gpt_rope_scaling *s,
                         const struct gpt_config *c)
{
    s->by_rate = (double)c->rotary_positions / (2 * M_PI);
    s->from = c->rotary_low_factor;
    s->to = c->rotary_high_factor;
}

/* A larger base slows the slowest pair by the factor and the fastest not at
 * all. Two elements are the fastest pair alone. */
static double stretched_base(const struct gpt_config *c, double stretch)
{
    const double r = (double)gpt_config_rotary(c);

    return r <= 2 ? c->rotary_base : c->rotary_base * pow(stretch, r / (r - 2));
}

/* The model's own length decides, not that of a text: angles of keys in a
 * cache must not change while a text grows. */
static double dynamic_base(const struct gpt_config *c)
{
    double length = (double)c->max_positions;
    double before = (double)c->rotary_positions;

    if (length <= before)
        return c->rotary_base;
    return stretched_base(c, c->rotary_factor * length / before -
                                 (c->rotary_factor - 1));
}

/* LongRoPE, as transformers has it: what sharpens scores follows from how much
 * longer the longest text is, and is the same in short ones. */
static void scale_longrope(struct gpt_rope_scaling *s,
                           const struct gpt_config *c, bool is_long)
{
    const double *from =
        is_long ? c->rotary_long_factors : c->rotary_short_factors;

    s->factor = 1; /* there is a scaling */
    s->n_divisors = gpt_config_factors(c);
    for (int64_t i = 0; i < s->n_divisors; i++)
        s->divisors[i] = (float)from[i];
    s->attention = c->rotary_attention > 0 ? c->rotary_attention
                                           : gpt_config_sharpness(c);
}

/* Kinds differ in constants alone, so that kernels know one formula. Layers
 * with a window never see more of a text than in pretraining, and may have
 * angles of their own, which are not stretched (Gemma 3, OLMo 3). */
void gpt_rotary_fill(struct gpt_rope *op, const struct gpt_config *c,
                     int64_t layer, bool is_long)
{
    struct gpt_rope_scaling *s = &op->scaling;
    const bool local = c->rotary_local_base > 0 &&
                       gpt_config_window(c, layer, INT64_MAX) > 0;

    op->rotary = gpt_config_rotary(c);
    op->base = local ? c->rotary_local_base : c->rotary_base;
    op->interleaved = c->rotary_interleaved;
    op->query_growth = (float)c->rotary_query_growth;
    op->query_positions = c->rotary_positions;
    /* no pair is past 2^60: all of them are interpolated */
    *s = (struct gpt_rope_scaling){
        .factor = c->rotary_factor,
        .from = 0x1p60,
        .to = 0x1p61,
        .attention = 1,
    };
    switch (local ? GPT_SCALING_NONE
                  : (enum gpt_rotary_scaling)c->rotary_scaling) {
    case GPT_SCALING_NONE:
        s->factor = 0;
        return;
    case GPT_SCALING_LINEAR:
        return;
    case GPT_SCALING_DYNAMIC:
        s->factor = 0;
        op->base = dynamic_base(c);
        return;
    case GPT_SCALING_NTK_ALPHA:
        s->factor = 0;
        op->base = stretched_base(c, c->rotary_factor);
        return;
    case GPT_SCALING_LLAMA3:
        scale_llama3(s, c);
        return;
    case GPT_SCALING_YARN:
        scale_yarn(s, c);
        return;
    case GPT_SCALING_LONGROPE:
        scale_longrope(s, c, is_long);
        return;
    }
}
