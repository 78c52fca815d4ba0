/* Random numbers for tests: the same ones in every run. */
#ifndef GPT_TESTS_LIB_RANDOM_H
#define GPT_TESTS_LIB_RANDOM_H

#include <stdint.h>
#include <stdlib.h>

static uint32_t rnd_state = 12345;

__attribute__((unused)) static double rnd(void) /* uniform in [-1, 1) */
{
    rnd_state = rnd_state * 1664525u + 1013904223u;
    return (double)(rnd_state >> 8) / (1 << 23) - 1;
}

__attribute__((unused)) static int64_t rnd_int(int64_t lo, int64_t hi)
{
    return lo + (int64_t)((rnd() + 1) / 2 * (double)(hi - lo + 1));
}

/* n floats, random times scale; free() them */
__attribute__((unused)) static float *rnd_floats(int64_t n, double scale)
{
    float *x = malloc((size_t)(n + 1) * sizeof(*x));

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(rnd() * scale);
    return x;
}

#endif
