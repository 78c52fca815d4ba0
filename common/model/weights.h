/* Where each parameter of a layer is in a rank's flat buffer: layer code reads
 * weights and adds to gradients through these pointers. */
#ifndef GPT_MODEL_WEIGHTS_H
#define GPT_MODEL_WEIGHTS_H

#include "backend.h"
#include "base/dtype.h"
#include "model/fp8.h"
#include "model/params.h"

/* Pointers by role into one flat buffer (weights, or gradients); NULL for a
 * parameter that this rank or architecture does not have. */
struct gpt_roles {
    void *at[GPT_N_ROLES];
    struct gpt_quant quant[GPT_N_ROLES]; /* without values: `at` is as usual */
    struct gpt_fp8_types fp8; /* of products with these matrices */
};

/* The matrix of a role in fewer bits, or NULL. */
static inline const struct gpt_quant *gpt_roles_quant(
    const struct gpt_roles *roles, enum gpt_param_role role)
{
    return roles->quant[role].values ? &roles->quant[role] : NULL;
}

/* The roles of a layer (global number), or with layer -1 those outside layers.
 * `base` is a buffer of flat->elements of `type`. */
void gpt_roles_bind(struct gpt_roles *roles, const struct gpt_flat *flat,
                    int64_t layer, void *base, enum gpt_dtype type);

/* The same for gradients: buckets[i] (float) is the memory of
 * flat->buckets[i], several of which may share theirs. */
void gpt_roles_bind_gradients(struct gpt_roles *roles,
                              const struct gpt_flat *flat, int64_t layer,
                              float *const *buckets);

/* The output layer's matrix (V, C): its own, or the word table when tied. */
void *gpt_roles_output(const struct gpt_roles *roles);
enum gpt_param_role gpt_roles_output_role(const struct gpt_roles *roles);
/* The row of position 0 of the table of positions, of elements of `element`
 * bytes; NULL where none are learned or they are held elsewhere. */
void *gpt_roles_positions(const struct gpt_roles *roles,
                          const struct gpt_config *c, size_t element);

#endif
