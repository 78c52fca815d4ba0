/* Rotary positions of a head: two halves that turn against each other. */
#include "cpu/isa/simd.h"

static inline vf half_load(const float *x, int64_t j, int64_t n)
{
    return n - j >= W ? load(x + j) : load_part(x + j, n - j, 0);
}

static inline void half_store(float *x, vf v, int64_t j, int64_t n)
{
    if (n - j >= W)
        store(x + j, v);
    else
        store_part(x + j, v, n - j);
}

void ISA(turn)(float *x, const float *cosine, const float *sine, int64_t half)
{
    float *y = x + half;

    for (int64_t j = 0; j < half; j += W) {
        vf a = half_load(x, j, half), b = half_load(y, j, half);
        vf c = half_load(cosine, j, half), s = half_load(sine, j, half);

        /* both are loaded before either is stored: a part may reach into the
         * other half's place, but never writes there */
        half_store(x, a * c - b * s, j, half);
        half_store(y, b * c + a * s, j, half);
    }
}
