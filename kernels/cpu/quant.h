/* What products with weights in fewer bits share: the forms in which weights
 * and inputs meet, and the unit of inputs that become bytes. */
#ifndef GPT_KERNELS_CPU_QUANT_H
#define GPT_KERNELS_CPU_QUANT_H

#include "backend.h"
#include "cpu/isa/isa.h"

#include "base/num.h"

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

/* Panels. Where steps of generation read a matrix faster so (few/), it does not
 * lie in rows, but in panels of 32 rows, which are read from their beginning to
 * their end: a panel is 4 bytes of each row, then the next 4 of each. Such
 * steps come in fours. Rows and values that are not there are zero. Where
 * groups of 32 have scales, they end with the scale of each row, and all groups
 * are whole. */
enum { CPU_PANEL = 32, CPU_STEP = 4 * CPU_PANEL };
enum { CPU_GROUP_BYTES = (CPU_GROUP + 2) * CPU_PANEL };

/* Floats lie in panels of as many rows as a tile has columns: a float of each
 * row, then the next of each, which is what tiles read (isa/tile.h). */

/* Bytes of a row in a panel, of which there are so many. */
static inline int64_t cpu_panel_row(int64_t bytes)
{
    return gpt_round_up(bytes, 16);
}

/* Bytes of a panel of the matrix, whose rows have k values. */
static inline int64_t cpu_panel_bytes(const struct gpt_quant *w, int64_t k)
{
    const int64_t row = w->type == GPT_BF16 ? 2 * k : k;

    if (w->type == GPT_F32)
        return cpu_isa->nr * k * (int64_t)sizeof(float);
    return w->group ? gpt_ceil_div(k, CPU_GROUP) * CPU_GROUP_BYTES
                    : cpu_panel_row(row) * CPU_PANEL;
}

/* Where byte `at` of row `row` lies among panels. */
static inline int64_t cpu_panel_at(const struct gpt_quant *w, int64_t row,
                                   int64_t at, int64_t k)
{
    const int64_t scales =
        w->group ? at / CPU_GROUP * 2 * CPU_PANEL : 0; /* before it */

    return row / CPU_PANEL * cpu_panel_bytes(w, k) + scales +
           at / 4 * CPU_STEP + row % CPU_PANEL * 4 + at % 4;
}

/* The same of the scale of group g. */
static inline int64_t cpu_panel_scale_at(const struct gpt_quant *w, int64_t row,
                                         int64_t g, int64_t k)
{
    return row / CPU_PANEL * cpu_panel_bytes(w, k) +
           (g + 1) * CPU_GROUP_BYTES - 2 * (CPU_PANEL - row % CPU_PANEL);
}

/* The form in which a matrix meets its inputs. */
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
