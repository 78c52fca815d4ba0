/* Counter-based random numbers: a value is a pure function of (seed, purpose,
 * index), so it does not depend on ranks, threads, layout or order.
 * Source: Philox4x32-10, Salmon et al., SC'11. */
#ifndef GPT_BASE_RNG_H
#define GPT_BASE_RNG_H

#include "base/status.h"

/* Four 32-bit words for a counter and a key. */
void gpt_philox(const uint32_t counter[4], const uint32_t key[2],
                uint32_t out[4]);

/* The key of a stream: seed and a name ("init/layers.3.mlp.fc1.weight",
 * "dropout", "sample") hashed together (FNV-1a 64 of the name, then mixed). */
struct gpt_rng {
    uint32_t key[2];
};
struct gpt_rng gpt_rng_open(uint64_t seed, const char *name);

/* Value `index` of the stream. Uniform in [0, 1) with 24 bits; standard normal
 * by Box-Muller in double, pairs (2k, 2k+1) from one Philox block. */
uint32_t gpt_rng_u32(struct gpt_rng r, uint64_t index);
float gpt_rng_uniform(struct gpt_rng r, uint64_t index);
float gpt_rng_normal(struct gpt_rng r, uint64_t index);
/* Normals first .. first + n - 1, each pair computed once. */
void gpt_rng_normals(struct gpt_rng r, uint64_t first, int64_t n, float *dst);

#endif
