/* What follows from a configuration for a layer, or for a text of some length:
 * how many elements turn, and by which factors, which layers turn, and how far
 * they see. See config.h. */
#include "model/config.h"

#include "model/layer_list.h"

#include <math.h>

/* Cut, as transformers cuts it. A share that is made of a number of elements
 * has to be a hair above it, not below. */
int64_t gpt_config_rotary(const struct gpt_config *c)
{
    return (int64_t)((double)c->head_size * c->rotary_percent);
}

/* In float, whatever the type of activations: transformers rounds the factor to
 * bf16 there, which is within the error of bf16. */
float gpt_config_word_scale(const struct gpt_config *c)
{
    return c->scale_embedding ? sqrtf((float)c->hidden_size)
                              : (float)c->embedding_multiplier;
}

/* Without rotary positions nothing turns, whatever the list says. */
bool gpt_config_turns(const struct gpt_config *c, int64_t layer)
{
    return c->position_embedding == GPT_POSITION_ROPE &&
           !gpt_layers_entry(c->no_rope_freq, layer, true);
}

/* Models with experts in all layers have no list. */
bool gpt_config_has_experts(const struct gpt_config *c, int64_t layer)
{
    return c->num_experts > 0 && layer >= c->moe_dense_layers &&
           (c->moe_layer_freq == 0 ||
            gpt_layers_entry(c->moe_layer_freq, layer, true));
}

/* One function for layers, flops and what a device must be able to do: all
 * three agree on which texts are too short for a window to matter. */
int64_t gpt_config_window(const struct gpt_config *c, int64_t layer,
                          int64_t length)
{
    if (layer < c->window_full_layers)
        return 0;
    if (!gpt_layers_entry(c->window_attn_skip_freq, layer, false))
        return 0;
    /* the last token of a text that fits sees all of it */
    return c->window_size + 1 < length ? c->window_size : 0;
}

/* A pair is two elements that turn together: their share of a head counts, and
 * not all of it. */
int64_t gpt_config_factors(const struct gpt_config *c)
{
    return c->rotary_scaling == GPT_SCALING_LONGROPE ? gpt_config_rotary(c) / 2
                                                     : 0;
}

/* A factor that is not said is what two other fields say. */
double gpt_config_sharpness(const struct gpt_config *c)
{
    const double before = (double)c->rotary_positions;
    const double factor = c->rotary_factor > 0
                              ? c->rotary_factor
                              : (double)c->max_positions / before;

    return factor > 1 ? sqrt(1 + log(factor) / log(before)) : 1;
}

/* One answer for all tokens of a text: keys that were turned by one list mean
 * nothing to queries that were turned by the other. */
bool gpt_config_is_long(const struct gpt_config *c, int64_t length)
{
    return c->rotary_scaling == GPT_SCALING_LONGROPE &&
           length > c->rotary_positions;
}
