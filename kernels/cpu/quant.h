/* What products with weights in fewer bits share: the forms in which weights
 * and inputs meet, and the unit of inputs that become bytes. */
#ifndef GPT_KERNELS_CPU_QUANT_H
#define GPT_KERNELS_CPU_QUANT_H

#include "backend.h"

/* Weights of bf16, bytes with a scale a row, bytes with one for 32; then the
 * same with inputs that are rounded to that form. */
enum cpu_form {
    CPU_BF16,
    CPU_BYTES,
    CPU_GROUPS,
    CPU_ROUNDED,
    CPU_FORMS = 2 * CPU_ROUNDED
};
enum { CPU_GROUP = 32 };

static inline enum cpu_form cpu_form_of(const struct gpt_quant *w)
{
    return (w->type == GPT_BF16 ? CPU_BF16 : w->group ? CPU_GROUPS
                                                      : CPU_BYTES) +
           (w->round_inputs ? CPU_ROUNDED : 0);
}

/* What inputs of which the largest has this size count, when they are rounded
 * to bytes. Smaller ones count as if the largest were 2^-100: the inverse of
 * the unit is a number, too. NaN has none. */
static inline float cpu_byte_unit(float largest)
{
    return (largest < 0x1p-100F ? 0x1p-100F : largest) / 127;
}

#endif
