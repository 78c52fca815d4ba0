/* The table of what backends may lack; see abilities.h. A backend that gains an
 * operation sets its bit, and nothing changes here. */
#include "model/abilities.h"

#include "base/log.h"

/* Layers may alternate, and a pipeline's stage may hold none with a window: the
 * model is refused as a whole, on all ranks alike. */
static bool has_window(const struct gpt_config *c, int64_t length)
{
    for (int64_t l = 0; l < c->num_layers; l++)
        if (gpt_config_window(c, l, length) > 0)
            return true;
    return false;
}

enum gpt_alibi gpt_alibi_of(const struct gpt_config *c)
{
    return c->position_embedding == GPT_POSITION_ALIBI        ? GPT_ALIBI
           : c->position_embedding == GPT_POSITION_ALIBI_BF16 ? GPT_ALIBI_BF16
                                                              : GPT_ALIBI_NONE;
}

int gpt_abilities_check(const struct gpt_config *c, int64_t length,
                        const struct gpt_backend *be, struct gpt_err *err)
{
    const struct {
        enum gpt_ability ability;
        bool wanted;
        const char *field, *what;
    } rows[] = {
        /* a window that no text is longer than asks for nothing */
        {GPT_CAN_WINDOW, has_window(c, length), "window_size",
         "attention to a window"},
        {GPT_CAN_CAP, c->attn_logit_softcapping > 0, "attn_logit_softcapping",
         "attention of capped scores"},
        {GPT_CAN_CAP, c->final_logit_softcapping > 0,
         "final_logit_softcapping", "capped logits"},
        /* the square root of a width, and no power of two: it cannot be folded
         * into weights, which the output layer shares */
        {GPT_CAN_SCALE_WORDS, c->scale_embedding, "scale_embedding",
         "scaled embeddings"},
        {GPT_CAN_SCALE_WORDS, c->embedding_multiplier > 0,
         "embedding_multiplier", "scaled embeddings"},
        {GPT_CAN_NORM_WIDE, c->qk_norm_whole, "qk_norm_whole",
         "norms of all heads together"},
        {GPT_CAN_EXPERTS, c->num_experts > 0, "num_experts", "experts"},
        {GPT_CAN_LATENT, gpt_config_is_latent(c), "kv_lora_rank",
         "latent attention"},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++)
        if (rows[i].wanted && !(be->abilities & rows[i].ability))
            return gpt_fail(err, GPT_EDEVICE,
                            "device %s has no %s, which the model has (%s): "
                            "the CPU computes it",
                            be->name, rows[i].what, rows[i].field);
    return GPT_OK;
}

/* Nothing else shows that a head size or a type costs most of a GPU's speed. */
void gpt_abilities_warn(const struct gpt_config *c, enum gpt_dtype act,
                        const struct gpt_backend *be)
{
    /* what kernels are chosen by; windows and documents are in all */
    const struct gpt_attn op = {
        .d = c->head_size,
        .alibi = gpt_alibi_of(c),
        .softcap = (float)c->attn_logit_softcapping,
        .act = act,
    };

    const char *why = be->attn_slow ? be->attn_slow(&op) : NULL;

    if (why)
        gpt_warn("attention runs many times below the speed of device %s: %s",
                 be->name, why);
}
