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
    return gpt_config_is_latent(c)
               ? c->qk_pos_emb_head_dim
               : (int64_t)((double)c->head_size * c->rotary_percent);
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

int64_t gpt_config_expert_layers(const struct gpt_config *c)
{
    int64_t n = 0;

    for (int64_t l = 0; l < c->num_layers; l++)
        n += gpt_config_has_experts(c, l);
    return n;
}

bool gpt_config_has_dense(const struct gpt_config *c)
{
    return c->num_experts == 0 || gpt_config_expert_layers(c) < c->num_layers;
}

/* The number of the first layer from `from` on that has experts, or has none;
 * num_layers when there is no such layer. */
static int64_t next_layer(const struct gpt_config *c, int64_t from,
                          bool experts)
{
    while (from < c->num_layers && gpt_config_has_experts(c, from) != experts)
        from++;
    return from;
}

/* True when the same layers have experts by two other numbers. */
static bool is_same(const struct gpt_config *c, int64_t dense, int64_t freq)
{
    struct gpt_config other = *c;

    other.moe_dense_layers = dense;
    other.moe_layer_freq = freq;
    for (int64_t l = 0; l < c->num_layers; l++)
        if (gpt_config_has_experts(c, l) != gpt_config_has_experts(&other, l))
            return false;
    return true;
}

/* Where the first layer with experts is the second-last or the last of all
 * layers, many numbers fit: the first one is the list's own. */
void gpt_config_settle_experts(struct gpt_config *c)
{
    const int64_t first = next_layer(c, 0, true);
    const int64_t second = next_layer(c, first + 1, true);
    const int64_t freqs[] = {first + 1, second - first};
    bool found = false;

    /* the rules of a model refuse it */
    if (first >= c->num_layers)
        return;
    if (next_layer(c, first, false) >= c->num_layers) {
        c->moe_dense_layers = first;
        c->moe_layer_freq = 0;
        return;
    }
    for (int i = 0; i < 2 && !found; i++) {
        found = is_same(c, 0, freqs[i]);
        if (found)
            c->moe_dense_layers = 0;
        else if ((found = is_same(c, first, freqs[i])))
            c->moe_dense_layers = first;
        if (found)
            c->moe_layer_freq = freqs[i];
    }
    if (!found && is_same(c, 0, c->moe_layer_freq))
        c->moe_dense_layers = 0;
}

/* A list that does not repeat may still be every so many-th of the layers after
 * the first: its beginning is filled in by what follows. A list without experts
 * packs to 0, which would be all. */
bool gpt_config_choose_experts(struct gpt_config *c, const bool *experts)
{
    struct gpt_config chosen = *c;
    int64_t first = 0, second;

    chosen.moe_dense_layers = 0;
    chosen.moe_layer_freq = gpt_layers_pack(experts, c->num_layers, true);
    while (first < c->num_layers && !experts[first])
        first++;
    if (first == c->num_layers)
        chosen.moe_dense_layers = first;
    if (chosen.moe_layer_freq < 0) {
        for (second = first + 1; second < c->num_layers && !experts[second];)
            second++;
        chosen.moe_dense_layers = first;
        chosen.moe_layer_freq = second - first;
        for (int64_t l = 0; l < c->num_layers; l++)
            if (gpt_config_has_experts(&chosen, l) != experts[l])
                return false;
    }
    gpt_config_settle_experts(&chosen);
    c->moe_dense_layers = chosen.moe_dense_layers;
    c->moe_layer_freq = chosen.moe_layer_freq;
    return true;
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
