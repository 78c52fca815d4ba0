/* Rotary positions of a head: two halves that turn against each other. */
#include "cpu/isa/simd.h"

void ISA(turn)(float *x, const float *cosine, const float *sine, int64_t half)
{
    float *y = x + half;

    for (int64_t j = 0; j < half; j += W) {
        vf a = any_load(x, j, half), b = any_load(y, j, half);
        vf c = any_load(cosine, j, half), s = any_load(sine, j, half);

        /* both are loaded before either is stored: a part may reach into the
         * other half's place, but never writes there */
        any_store(x, a * c - b * s, j, half);
        any_store(y, b * c + a * s, j, half);
    }
}
