/* Pointers by role into flat buffers; see weights.h. Gradients are bound by
 * bucket instead of from one base: with ZeRO-2 several buckets share memory,
 * and a bucket's memory holds it from its own beginning. */
#include "model/weights.h"

void gpt_roles_bind(struct gpt_roles *roles, const struct gpt_flat *flat,
                    int64_t layer, void *base, enum gpt_dtype type)
{
    for (int role = 0; role < GPT_N_ROLES; role++) {
        const struct gpt_slice *slice =
            gpt_flat_find(flat, (enum gpt_param_role)role, layer);

        /* layer code takes NULL for a parameter that this model lacks */
        roles->at[role] = NULL;
        if (slice && base)
            roles->at[role] =
                (char *)base + (size_t)slice->offset * gpt_dtype_bytes(type);
    }
}

void gpt_roles_bind_gradients(struct gpt_roles *roles,
                              const struct gpt_flat *flat, int64_t layer,
                              float *const *buckets)
{
    for (int role = 0; role < GPT_N_ROLES; role++) {
        const struct gpt_slice *slice =
            gpt_flat_find(flat, (enum gpt_param_role)role, layer);

        roles->at[role] = NULL;
        if (slice)
            roles->at[role] =
                buckets[slice->bucket] +
                (slice->offset - flat->buckets[slice->bucket].begin);
    }
}

enum gpt_param_role gpt_roles_output_role(const struct gpt_roles *roles)
{
    /* without an own matrix the model is tied: the table has no such row */
    return roles->at[GPT_OUTPUT_WEIGHT] ? GPT_OUTPUT_WEIGHT
                                        : GPT_WORD_EMBEDDING;
}

void *gpt_roles_output(const struct gpt_roles *roles)
{
    return roles->at[gpt_roles_output_role(roles)];
}

/* OPT's table has two rows in front, which no position reads. */
void *gpt_roles_positions(const struct gpt_roles *roles,
                          const struct gpt_config *c, size_t element)
{
    char *table = roles->at[GPT_POSITION_EMBEDDING];

    return table ? table + (size_t)(c->position_offset * c->hidden_size) *
                               element
                 : NULL;
}
