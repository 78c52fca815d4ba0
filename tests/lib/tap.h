/* TAP for unit tests: a line for each check, a plan at the end, exit status 1
 * when a check failed. Include it in one .c file, end main() with
 * `return tap_done();`. */
#ifndef GPT_TESTS_TAP_H
#define GPT_TESTS_TAP_H

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_n, tap_failed;

__attribute__((format(printf, 4, 5), unused)) static bool
tap_ok_at(bool pass, const char *file, int line, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    printf("%sok %d - ", pass ? "" : "not ", ++tap_n);
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
    if (!pass) {
        tap_failed++;
        printf("# failed at %s:%d\n", file, line);
    }
    fflush(stdout);
    return pass;
}

#define ok(pass, ...) tap_ok_at((pass), __FILE__, __LINE__, __VA_ARGS__)

#define is_int(got, want, ...)                                                 \
    do {                                                                       \
        long long got_ = (long long)(got), want_ = (long long)(want);          \
        if (!ok(got_ == want_, __VA_ARGS__))                                   \
            printf("# got %lld, want %lld\n", got_, want_);                    \
    } while (0)

#define is_str(got, want, ...)                                                 \
    do {                                                                       \
        const char *got_ = (got), *want_ = (want);                             \
        if (!ok(got_ && want_ && strcmp(got_, want_) == 0, __VA_ARGS__))       \
            printf("# got  '%s'\n# want '%s'\n", got_ ? got_ : "(null)",       \
                   want_ ? want_ : "(null)");                                  \
    } while (0)

/* |got - want| <= abs + rel * |want|; NaN never passes. */
#define is_near(got, want, rel, abs_, ...)                                     \
    do {                                                                       \
        double got_ = (double)(got), want_ = (double)(want);                   \
        if (!ok(fabs(got_ - want_) <= (abs_) + (rel)*fabs(want_),              \
                __VA_ARGS__))                                                  \
            printf("# got %.9g, want %.9g\n", got_, want_);                    \
    } while (0)

/* Reports a check that is impossible here, with the reason. */
#define skip(...)                                                              \
    do {                                                                       \
        printf("ok %d # SKIP ", ++tap_n);                                      \
        printf(__VA_ARGS__);                                                   \
        printf("\n");                                                          \
    } while (0)

__attribute__((unused)) static int tap_done(void)
{
    printf("1..%d\n", tap_n);
    return tap_failed != 0;
}

#endif
