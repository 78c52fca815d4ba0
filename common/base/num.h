/* Numbers: checked arithmetic, strict parsing, and text for people. */
#ifndef GPT_BASE_NUM_H
#define GPT_BASE_NUM_H

#include "base/status.h"

/* True when the result does not overflow; *out is written only then. */
static inline bool gpt_mul(int64_t a, int64_t b, int64_t *out)
{
    int64_t v;

    if (__builtin_mul_overflow(a, b, &v))
        return false;
    *out = v;
    return true;
}

static inline bool gpt_add(int64_t a, int64_t b, int64_t *out)
{
    int64_t v;

    if (__builtin_add_overflow(a, b, &v))
        return false;
    *out = v;
    return true;
}

/* The least integer that is not below a / b, and the least multiple of b that
 * is not below a; b > 0. */
static inline int64_t gpt_ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b > 0);
}

static inline int64_t gpt_round_up(int64_t a, int64_t b)
{
    return gpt_ceil_div(a, b) * b;
}

static inline int64_t gpt_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t gpt_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The whole of `s` is a decimal number whose value is an integer ("1000",
 * "1e3", "1.5K"), optionally followed by K, M, G, T (10^3, 10^6, 10^9, 10^12),
 * Ki, Mi, Gi, Ti (2^10...) or B (10^9). False on anything else, overflow
 * included. Locale-independent. */
bool gpt_parse_int(const char *s, int64_t *out);

/* The whole of `s` is a finite decimal number ("1e-4", "0.1", "3"). */
bool gpt_parse_real(const char *s, double *out);

/* Sizes: the same numbers, followed by nothing or B (bytes), K KB M MB G GB T
 * TB (decimal), Ki KiB Mi MiB Gi GiB Ti TiB; a final lower-case 'b' ("Mb") is
 * refused as ambiguous. */
bool gpt_parse_bytes(const char *s, int64_t *out);

/* The middle one of n numbers, or the mean of the two in the middle; NaN of
 * none. Sorts them; none is NaN. */
double gpt_median(double *values, size_t n);

/* Fixed-width little-endian fields, byte-wise: no alignment needed. */
uint16_t gpt_get_u16(const void *p);
uint32_t gpt_get_u32(const void *p);
uint64_t gpt_get_u64(const void *p);
void gpt_put_u16(void *p, uint16_t v);
void gpt_put_u32(void *p, uint32_t v);
void gpt_put_u64(void *p, uint64_t v);

/* The end of a noun that says how many: "%lld document%s". */
static inline const char *gpt_plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* Text for people, written to buf (>= 32 bytes), returned: "1.21 M",
 * "3.4 GiB", "3 h 10 min". */
char *gpt_text_si(char *buf, double v);
char *gpt_text_bytes(char *buf, double v);
char *gpt_text_duration(char *buf, double seconds);

#endif
