/* What CRC-32 and CRC-32C have in common: they differ in their polynomials
 * (base/hash.h) and in the instructions that processors have for them. Bits are
 * reversed throughout, and a register is not inverted here. */
#ifndef GPT_BASE_CRC_H
#define GPT_BASE_CRC_H

#include "base/status.h"

/* at[k][b]: the register of byte b, followed by k zero bytes. */
struct gpt_crc_tables {
    uint32_t at[8][256];
};

void gpt_crc_make_tables(struct gpt_crc_tables *t, uint32_t polynomial);
/* The register r after n bytes more. */
uint32_t gpt_crc_run(const struct gpt_crc_tables *t, uint32_t r, const void *p,
                     size_t n);

#endif
