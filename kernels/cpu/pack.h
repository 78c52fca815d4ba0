/* Panels of operands for products of pairs (pair/), from a matrix as it is in
 * memory. Start at cpu_pack_all(). */
#ifndef GPT_KERNELS_CPU_PACK_H
#define GPT_KERNELS_CPU_PACK_H

#include "base/num.h"
#include "cpu/pair/pair.h"

/* An operand in memory, bf16, rows ld apart. along_k: k runs along stored rows,
 * else across them. */
struct cpu_stored {
    const uint16_t *mem;
    int64_t ld;
    bool along_k, is_a;
};

/* Element (row or column i of c, l) of it. */
static inline const uint16_t *cpu_stored_at(const struct cpu_stored *s,
                                            int64_t i, int64_t l)
{
    return s->mem + (s->along_k ? i * s->ld + l : l * s->ld + i);
}

/* Panels that n rows or columns make, or chunks that n of k make. */
static inline int64_t cpu_panels_of(int64_t n)
{
    return gpt_ceil_div(n, PAIR_PANEL);
}

/* Panels of rows first.., n of them, k values from k0 on. Chunk c of panel i
 * goes to `to` + i * next + c * PAIR_VALUES. */
struct cpu_packing {
    struct cpu_stored from;
    int64_t first, n, k0, k;
    uint16_t *to;
    int64_t next;
};

/* A packing is so many bands, each of which writes whole chunks of its own, so
 * that threads may share them. */
int64_t cpu_pack_bands(const struct cpu_packing *o);
void cpu_pack_band(const struct cpu_packing *o, int64_t i);
void cpu_pack_all(const struct cpu_packing *o);

#endif
