/* Numbers: strict parsing, little-endian fields, text for people. */
#include "base/num.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit {
    const char *name;
    int64_t factor;
};

/* isdigit() would be undefined for negative chars. */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits at *s, *s moved after them, appended to the negative *v: the most
 * negative number has no positive twin. Returns their number, -1 when *v
 * overflows. */
static int append_digits(const char **s, int64_t *v)
{
    int n = 0;

    for (; is_digit(**s); n++, (*s)++)
        if (__builtin_mul_overflow(*v, (int64_t)10, v) ||
            __builtin_sub_overflow(*v, (int64_t)(**s - '0'), v))
            return -1;
    return n;
}

/* "12", "1.5", "1e3", "2.5e-1" at *s as *v x 10^*exponent, *v negative. */
static bool parse_negated_decimal(const char **s, int64_t *v, int *exponent)
{
    int whole, fraction = 0, power = 0;

    *v = 0;
    whole = append_digits(s, v);
    if (whole >= 0 && **s == '.') {
        ++*s;
        fraction = append_digits(s, v);
    }
    if (whole < 0 || fraction < 0 || whole + fraction == 0)
        return false;
    if ((**s == 'e' || **s == 'E') &&
        (is_digit((*s)[1]) || ((*s)[1] == '-' && is_digit((*s)[2])) ||
         ((*s)[1] == '+' && is_digit((*s)[2])))) {
        bool negative = *++*s == '-';

        if (!is_digit(**s))
            ++*s;
        /* no 64-bit number needs a larger power: further digits are left to the
         * unit, which is then not found */
        for (; is_digit(**s) && power < 1000; ++*s)
            power = power * 10 + (**s - '0');
        power = negative ? -power : power;
    }
    *exponent = power - fraction;
    return true;
}

/* *v x 10^exponent, when that is an integer that fits. A zero stays zero
 * whatever the exponent, so the loops end at it. */
static bool shift_decimal(int64_t *v, int exponent)
{
    for (; exponent > 0 && *v != 0; exponent--)
        if (!gpt_mul(*v, 10, v))
            return false;
    for (; exponent < 0 && *v != 0; exponent++) {
        if (*v % 10 != 0)
            return false;
        *v /= 10;
    }
    return true;
}

/* The digits are negated already, so a positive number is multiplied by the
 * negated factor. */
static bool parse_with_unit(const char *s, const struct unit *units,
                            size_t n_units, int64_t *out)
{
    bool negative = *s == '-';
    int64_t v, factor = 1;
    int exponent;

    if (*s == '-' || *s == '+')
        s++;
    if (!parse_negated_decimal(&s, &v, &exponent))
        return false;
    if (*s) {
        size_t i = 0;

        while (i < n_units && strcmp(s, units[i].name) != 0)
            i++;
        if (i == n_units)
            return false;
        factor = units[i].factor;
    }
    if (!gpt_mul(v, negative ? factor : -factor, &v) ||
        !shift_decimal(&v, exponent))
        return false;
    *out = v;
    return true;
}

/* The powers that counts and sizes have in common. */
#define DECIMAL_UNITS                                                          \
    {"K", 1000}, {"M", 1000000}, {"G", 1000000000}, {"T", 1000000000000}
#define BINARY_UNITS                                                           \
    {"Ki", (int64_t)1 << 10}, {"Mi", (int64_t)1 << 20},                        \
        {"Gi", (int64_t)1 << 30}, {"Ti", (int64_t)1 << 40}

/* "12K" is 12,000 and "12Ki" 12,288: the letters are those of SI and IEC. */
bool gpt_parse_int(const char *s, int64_t *out)
{
    static const struct unit units[] = {
        DECIMAL_UNITS,
        BINARY_UNITS,
        {"B", 1000000000}, /* a billion, as in 300B tokens */
    };

    return parse_with_unit(s, units, GPT_COUNT(units), out);
}

/* A sign is refused: no size is negative, and "+1GB" is more likely a typing
 * error. */
bool gpt_parse_bytes(const char *s, int64_t *out)
{
    static const struct unit units[] = {
        DECIMAL_UNITS,
        BINARY_UNITS,
        {"B", 1}, /* a byte */
        {"KB", 1000},
        {"MB", 1000000},
        {"GB", 1000000000},
        {"TB", 1000000000000},
        {"KiB", (int64_t)1 << 10},
        {"MiB", (int64_t)1 << 20},
        {"GiB", (int64_t)1 << 30},
        {"TiB", (int64_t)1 << 40},
    };

    return is_digit(*s) && parse_with_unit(s, units, GPT_COUNT(units), out);
}

/* [+-] digits [. digits] [e [+-] digits], with a digit before or after the
 * point: what strtod() takes less names, hexadecimals and white space. */
static bool is_decimal(const char *s)
{
    int digits = 0;

    if (*s == '-' || *s == '+')
        s++;
    for (; is_digit(*s); s++)
        digits++;
    if (*s == '.')
        for (s++; is_digit(*s); s++)
            digits++;
    if (digits == 0)
        return false;
    if (*s == 'e' || *s == 'E') {
        s++;
        if (*s == '-' || *s == '+')
            s++;
        if (!is_digit(*s))
            return false;
        while (is_digit(*s))
            s++;
    }
    return *s == '\0';
}

bool gpt_parse_real(const char *s, double *out)
{
    if (!is_decimal(s))
        return false;
    double v = strtod(s, NULL); /* no program here calls setlocale() */
    if (!isfinite(v))
        return false;
    *out = v;
    return true;
}

static int compare_reals(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double gpt_median(double *values, size_t n)
{
    if (n == 0)
        return (double)NAN;
    qsort(values, n, sizeof(*values), compare_reals);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* ---- little-endian fields ---- */

/* Byte by byte, so that neither the order nor the alignment of the machine
 * matters; compilers make one load of it. */
uint16_t gpt_get_u16(const void *p)
{
    const uint8_t *b = p;

    return (uint16_t)(b[0] | b[1] << 8);
}

uint32_t gpt_get_u32(const void *p)
{
    const uint8_t *b = p;

    return (uint32_t)gpt_get_u16(b) | (uint32_t)gpt_get_u16(b + 2) << 16;
}

uint64_t gpt_get_u64(const void *p)
{
    const uint8_t *b = p;

    return (uint64_t)gpt_get_u32(b) | (uint64_t)gpt_get_u32(b + 4) << 32;
}

void gpt_put_u16(void *p, uint16_t v)
{
    uint8_t *b = p;

    b[0] = (uint8_t)v;
    b[1] = (uint8_t)(v >> 8);
}

void gpt_put_u32(void *p, uint32_t v)
{
    gpt_put_u16(p, (uint16_t)v);
    gpt_put_u16((uint8_t *)p + 2, (uint16_t)(v >> 16));
}

void gpt_put_u64(void *p, uint64_t v)
{
    gpt_put_u32(p, (uint32_t)v);
    gpt_put_u32((uint8_t *)p + 4, (uint32_t)(v >> 32));
}

/* ---- text for people ---- */

enum { TEXT_BYTES = 32 };

char *gpt_text_si(char *buf, double v)
{
    static const char *const units[] = {"", " k", " M", " G", " T", " P", " E"};
    double a = fabs(v);
    size_t u = 0;

    /* 999.5 and more would print as 1000 (or 1e+03): take the next unit. */
    while (a >= 999.5 && u + 1 < GPT_COUNT(units)) {
        a /= 1000;
        v /= 1000;
        u++;
    }
    if (u == 0)
        snprintf(buf, TEXT_BYTES, "%.3g", v);
    else
        snprintf(buf, TEXT_BYTES, "%.*f%s",
                 a < 9.995 ? 2 : a < 99.95 ? 1 : 0, v, units[u]);
    return buf;
}

char *gpt_text_bytes(char *buf, double v)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t u = 0;

    /* from these limits on a number would print as 1024 of its unit */
    while (fabs(v) >= (u == 0 ? 1023.5 : 1023.95) && u + 1 < GPT_COUNT(units)) {
        v /= 1024;
        u++;
    }
    snprintf(buf, TEXT_BYTES, "%.*f %s", u == 0 ? 0 : 1, v, units[u]);
    return buf;
}

/* Two units at most, and one between ten minutes and an hour: an estimate is
 * not more exact. */
char *gpt_text_duration(char *buf, double seconds)
{
    /* NaN and infinity fail the comparison, too */
    if (!(seconds < 1e9)) {
        snprintf(buf, TEXT_BYTES, "years");
        return buf;
    }
    long s = lround(fmax(seconds, 0));
    if (s < 60)
        snprintf(buf, TEXT_BYTES, "%ld s", s);
    else if (s < 600)
        snprintf(buf, TEXT_BYTES, "%ld min %ld s", s / 60, s % 60);
    else if (s < 3600)
        snprintf(buf, TEXT_BYTES, "%ld min", s / 60);
    else if (s < 86400)
        snprintf(buf, TEXT_BYTES, "%ld h %ld min", s / 3600, s / 60 % 60);
    else
        snprintf(buf, TEXT_BYTES, "%ld d %ld h", s / 86400, s / 3600 % 24);
    return buf;
}
