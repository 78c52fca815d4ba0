/* The architecture of a model that is written: the first whose keys and tensors
 * can say what the model is. Start at gpt_gguf_choose(). */
#include "checkpoint/gguf/internal.h"

#include "checkpoint/nearest.h"

#include "backend.h"

#include <string.h>

static void add_field(struct gpt_misfit *m, const char *field)
{
    if (m->n < GPT_MISFIT_FIELDS)
        m->fields[m->n] = field;
    m->n++;
}

/* Takes into `read` what keys and tensors say of how positions are scaled.
 * False when files of the architecture have no way to say it. */
static bool take_scaling(struct gpt_config *read, const struct gpt_config *c,
                         const struct gpt_gguf_arch *arch)
{
    read->rotary_scaling = c->rotary_scaling;
    switch (c->rotary_scaling) {
    case GPT_SCALING_DYNAMIC:
        return false;
    case GPT_SCALING_NTK_ALPHA:
        if (arch->folds_alpha)
            read->rotary_factor = c->rotary_factor;
        return arch->folds_alpha;
    /* lists are there, and the factor is not, from which no more follows than
     * the number that is */
    case GPT_SCALING_LONGROPE:
        if (!arch->has_lists)
            return false;
        memcpy(read->rotary_short_factors, c->rotary_short_factors,
               sizeof(read->rotary_short_factors));
        memcpy(read->rotary_long_factors, c->rotary_long_factors,
               sizeof(read->rotary_long_factors));
        read->rotary_attention = c->rotary_attention;
        read->rotary_positions = c->rotary_positions;
        return true;
    case GPT_SCALING_LLAMA3:
        read->rotary_factor = c->rotary_factor;
        read->rotary_low_factor = c->rotary_low_factor;
        read->rotary_high_factor = c->rotary_high_factor;
        read->rotary_positions = c->rotary_positions;
        return arch->has_freqs;
    case GPT_SCALING_YARN:
        /* a key says that the factor of sines and cosines is 1 */
        if (gpt_gguf_is_used(arch, GPT_GGUF_GROWTH, c)) {
            read->rotary_attention = 1;
        } else {
            read->rotary_fast = 32;
            read->rotary_slow = 1;
        }
        return true;
    default:
        return true;
    }
}

/* The fields in which a model differs from what its keys will say. */
static struct gpt_misfit misfit(const struct gpt_config *c,
                                const struct gpt_gguf_arch *arch)
{
    struct gpt_misfit m = {.name = arch->name};
    struct gpt_config read = arch->base;

    /* what keys carry, and what follows from tensors */
    read.vocab_size = c->vocab_size;
    read.padded_vocab_size = c->padded_vocab_size;
    read.tied_embeddings = c->tied_embeddings || arch->only_tied;
    read.init_std = c->init_std;
    read.rotary_percent = c->rotary_percent;
    for (size_t i = 0; i < gpt_gguf_n_fields; i++)
        if (gpt_gguf_is_used(arch, gpt_gguf_fields[i].use, c) &&
            gpt_gguf_fields[i].form != GPT_GGUF_ALL_ONES)
            memcpy((char *)&read + gpt_gguf_fields[i].offset,
                   (const char *)c + gpt_gguf_fields[i].offset,
                   gpt_gguf_fields[i].form == GPT_GGUF_OPPOSITE
                       ? sizeof(bool)
                       : sizeof(int64_t));
    if (arch->free_norm)
        read.qk_norm = c->qk_norm;
    gpt_gguf_take_latent(&read, c, arch);
    const char *unsaid = gpt_gguf_latent_misfit(c, arch);
    if (unsaid)
        add_field(&m, unsaid);
    /* shares of it, or none, are no number of experts */
    if (c->num_experts > 0 && c->moe_ffn_hidden_size > 0 &&
        ((arch->must_share && c->moe_shared_expert_intermediate_size == 0) ||
         (arch->uses & GPT_GGUF_HAS(COUNT) &&
          c->moe_shared_expert_intermediate_size % c->moe_ffn_hidden_size)))
        add_field(&m, "moe_shared_expert_intermediate_size");
    if (arch->uses & GPT_GGUF_HAS(EXPERTS) && arch->must_share &&
        c->num_experts == 0)
        add_field(&m, "num_experts");
    if (arch->all_groups && c->num_query_groups != c->num_attention_heads)
        add_field(&m, "num_query_groups");
    if (arch->fills_width)
        read.head_size = c->hidden_size / c->num_attention_heads;
    if (read.num_experts > 0 && !(arch->uses & GPT_GGUF_HAS(EXPERT_FFN)))
        read.moe_ffn_hidden_size = c->ffn_hidden_size;
    if (arch->window_every > 0 && c->window_size > 0) {
        read.window_size = c->window_size;
        gpt_gguf_settle_window(&read, arch);
    }
    const struct gpt_hf_biases biases = gpt_hf_biases_of(c);
    gpt_gguf_free_biases(&read, arch, &biases);
    if (arch->wide_layers > 0 && arch->wide_layers == c->num_layers &&
        c->hidden_size % c->num_attention_heads == 0)
        read.query_pre_attn_scalar =
            (double)(c->hidden_size / c->num_attention_heads);
    if (read.query_pre_attn_scalar == (double)c->head_size)
        read.query_pre_attn_scalar = 0;
    if (arch->uses & GPT_GGUF_HAS(CAPS) && !(c->attn_logit_softcapping > 0 &&
                                             c->final_logit_softcapping > 0))
        add_field(&m, c->attn_logit_softcapping > 0 ? "final_logit_softcapping"
                                                    : "attn_logit_softcapping");
    if (arch->each_norm_layers > 0 && c->num_layers >= arch->each_norm_layers)
        read.qk_norm = read.qk_norm_each =
            c->qk_norm_each || arch->must_norm_each;
    if (arch->says_parallel)
        read.parallel_blocks = c->parallel_blocks;
    if (arch->pairs)
        read.rotary_interleaved = c->rotary_interleaved;
    if (!arch->base.gated && c->activation <= GPT_GELU_EXACT)
        read.activation = c->activation;
    if (!take_scaling(&read, c, arch))
        add_field(&m, "rotary_scaling");
    if (arch->whole_heads && gpt_config_rotary(c) != c->head_size)
        add_field(&m, "rotary_percent");
    const char *fields[GPT_MISFIT_FIELDS];
    const size_t n =
        gpt_config_differences(c, &read, fields, GPT_COUNT(fields));
    for (size_t i = 0; i < n; i++)
        add_field(&m, i < GPT_COUNT(fields) ? fields[i] : NULL);
    return m;
}

/* The family that the model came from goes first: Phi-3 and Llama are the
 * same function in other tensors, and a user expects the names that the model
 * had. */
int gpt_gguf_choose(const struct gpt_config *c, const char *family,
                    const struct gpt_gguf_arch **arch, struct gpt_err *err)
{
    struct gpt_nearest near = {.n = 0};

    for (size_t i = 0; family && i < gpt_gguf_n_archs; i++)
        if (strcmp(gpt_gguf_archs[i].family, family) == 0 &&
            misfit(c, &gpt_gguf_archs[i]).n == 0) {
            *arch = &gpt_gguf_archs[i];
            return GPT_OK;
        }
    for (size_t i = 0; i < gpt_gguf_n_archs; i++) {
        const struct gpt_misfit m = misfit(c, &gpt_gguf_archs[i]);

        if (m.n == 0) {
            *arch = &gpt_gguf_archs[i];
            return GPT_OK;
        }
        gpt_nearest_keep(&near, &m);
    }
    return gpt_nearest_fail(&near, "architecture of GGUF files",
                            gpt_gguf_n_archs, err);
}
