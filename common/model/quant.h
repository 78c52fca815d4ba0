/* Weights of a decoder in fewer bits: matrices as bf16, or as bytes with a
 * scale a row or for 32 values of a row; vectors and the table of positions
 * stay floats. The device must compute with them (GPT_CAN_QUANT) and share its
 * memory with the host. Floats are such weights, too, where the device keeps
 * matrices of them otherwise than in rows. */
#ifndef GPT_MODEL_QUANT_H
#define GPT_MODEL_QUANT_H

#include "backend.h"
#include "model/weights.h"

/* GPT_F32 or GPT_BF16; or GPT_I8 with group 32, or 0 for a scale a row.
 * round_inputs: inputs of products with the matrices get this form, too (struct
 * gpt_quant); not with GPT_F32. */
struct gpt_quant_form {
    enum gpt_dtype type;
    int64_t group;
    bool round_inputs;
};

struct gpt_quant_store;

/* True when weights of this form are kept in a store. Floats are where the
 * device keeps them otherwise than in rows; else they are a flat buffer. */
bool gpt_quant_store_wanted(struct gpt_backend *be, struct gpt_quant_form form);

/* The bytes that gpt_quant_store_open() will allocate; 0 where the device
 * cannot compute with such weights. */
int64_t gpt_quant_store_bytes(struct gpt_backend *be,
                              const struct gpt_flat *flat,
                              struct gpt_quant_form form);

/* Room for all of flat's parameters, zero; flat outlives it. GPT_EDEVICE when
 * the device cannot compute with such weights. */
int gpt_quant_store_open(struct gpt_quant_store **store,
                         struct gpt_backend *be, const struct gpt_flat *flat,
                         struct gpt_quant_form form,
                         struct gpt_err *err) GPT_MUST_USE;
void gpt_quant_store_close(struct gpt_quant_store *store); /* NULL is fine */

/* Puts the values of flat->slices[i] there, each rounded to nearest; scales are
 * the least that bytes suffice for. GPT_EDATA for a matrix with values that are
 * no finite numbers, where there are scales. */
int gpt_quant_store_put(struct gpt_quant_store *store, int64_t i,
                        const float *values, struct gpt_err *err) GPT_MUST_USE;

/* As gpt_roles_bind(). */
void gpt_quant_store_bind(const struct gpt_quant_store *store, int64_t layer,
                          struct gpt_roles *roles);

/* Bytes of the first `rows` rows of flat->slices[i]. */
int64_t gpt_quant_store_rows(const struct gpt_quant_store *store, int64_t i,
                             int64_t rows);

#endif
