/* See clock.h. */
#include "base/clock.h"

#include <time.h>

/* CLOCK_MONOTONIC does not jump when the time of day is set. */
double gpt_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
