/* The part of numpy.random.RandomState that Megatron's sample order needs:
 * MT19937 seeded by an integer, and shuffle. Not for anything else: base/rng.h
 * has this project's own random numbers. Source: Matsumoto and Nishimura, 1998;
 * numpy's legacy seeding and masked rejection. */
#ifndef GPT_DATA_MT19937_H
#define GPT_DATA_MT19937_H

#include <stdint.h>

struct gpt_mt19937 {
    uint32_t key[624];
    int next; /* 624: generate first */
};

/* As RandomState(seed). */
void gpt_mt19937_seed(struct gpt_mt19937 *mt, uint32_t seed);
/* The next 32 bits of the sequence. */
uint32_t gpt_mt19937_u32(struct gpt_mt19937 *mt);

/* RandomState.shuffle of n <= 2^32 elements; the order is the same for any
 * type. */
void gpt_mt19937_shuffle(struct gpt_mt19937 *mt, uint32_t *a, int64_t n);

#endif
