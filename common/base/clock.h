/* The time, for intervals: setting the time of day does not change it. */
#ifndef GPT_BASE_CLOCK_H
#define GPT_BASE_CLOCK_H

/* Seconds since an arbitrary start, by CLOCK_MONOTONIC. */
double gpt_now(void);

#endif
