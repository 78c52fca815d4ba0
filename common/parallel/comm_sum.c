/* Sums and maxima of what several ranks sent, in the order of ranks: addition
 * of floats is not associative, and the same order gives the same bits each
 * time. BF16 and F16 are added in float and rounded once, at the end. */
#include "parallel/comm_sum.h"

#include "base/num.h"

#include <string.h>

/* A block of sums stays in the first-level cache while all ranks are added.
 * `out` may be one of from[]: a block of it is written after the same block of
 * all has been read. Blocks of memory.h and callers' own are aligned to their
 * type. A simd loop runs along elements, never along ranks, so vector
 * instructions leave the order of each element's sum as it is. The maximum
 * tests for NaN by itself, because every comparison with one is false: without
 * the test a NaN of a later rank would vanish. */
enum { BLOCK = 1024 };

/* acc (n) op= x (n). */
#define FOLD(name, type)                                                       \
    static void name(type *acc, const type *x, int64_t n, enum gpt_reduce op)  \
    {                                                                          \
        if (op == GPT_SUM)                                                     \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                \
                acc[i] += x[i];                                                \
        else                                                                   \
            _Pragma("omp simd") for (int64_t i = 0; i < n; i++) /* NaN stays */\
                acc[i] = x[i] > acc[i] || x[i] != x[i] ? x[i] : acc[i];        \
    }
FOLD(fold_f32, float)
FOLD(fold_f64, double)

#define REDUCE(name, type, fold)                                               \
    static void name(uint8_t *out, const uint8_t *const *from, int64_t size,   \
                     int64_t n, enum gpt_reduce op)                            \
    {                                                                          \
        type acc[BLOCK];                                                       \
        type *to = (type *)(void *)out;                                        \
        for (int64_t at = 0; at < n; at += BLOCK) {                            \
            const int64_t k = gpt_min_i64(n - at, BLOCK);                      \
            for (int64_t r = 0; r < size; r++) {                               \
                const type *x = (const type *)(const void *)from[r] + at;      \
                if (r == 0)                                                    \
                    memcpy(acc, x, (size_t)k * sizeof(*x));                    \
                else                                                           \
                    fold(acc, x, k, op);                                       \
            }                                                                  \
            memcpy(to + at, acc, (size_t)k * sizeof(*acc));                    \
        }                                                                      \
    }
REDUCE(reduce_f32, float, fold_f32)
REDUCE(reduce_f64, double, fold_f64)

/* Numbers of two bytes. They are widened and rounded a block at a time, as
 * gpt_convert() does that in vectors. */
static void reduce_narrow(uint8_t *out, const uint8_t *const *from,
                          int64_t size, int64_t n, enum gpt_reduce op,
                          enum gpt_dtype type)
{
    float acc[BLOCK], x[BLOCK];

    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t k = gpt_min_i64(n - at, BLOCK);

        gpt_convert(acc, GPT_F32, from[0] + 2 * at, type, (size_t)k);
        for (int64_t r = 1; r < size; r++) {
            gpt_convert(x, GPT_F32, from[r] + 2 * at, type, (size_t)k);
            fold_f32(acc, x, k, op);
        }
        gpt_convert(out + 2 * at, type, acc, GPT_F32, (size_t)k);
    }
}

static void reduce_bf16(uint8_t *out, const uint8_t *const *from, int64_t size,
                        int64_t n, enum gpt_reduce op)
{
    reduce_narrow(out, from, size, n, op, GPT_BF16);
}

static void reduce_f16(uint8_t *out, const uint8_t *const *from, int64_t size,
                       int64_t n, enum gpt_reduce op)
{
    reduce_narrow(out, from, size, n, op, GPT_F16);
}

/* Sums wrap in unsigned arithmetic, where overflow is defined. An element is
 * written after it has been read from all ranks, so `out` may be one of from[].
 */
static void reduce_i64(uint8_t *out, const uint8_t *const *from, int64_t size,
                       int64_t n, enum gpt_reduce op)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t sum = gpt_get_u64(from[0] + i * 8); /* wraps */

        for (int64_t r = 1; r < size; r++) {
            uint64_t x = gpt_get_u64(from[r] + i * 8);

            if (op == GPT_SUM)
                sum += x;
            else if ((int64_t)x > (int64_t)sum)
                sum = x;
        }
        gpt_put_u64(out + i * 8, sum);
    }
}

/* NULL says that the type has no sums; the carrier makes that the failure of
 * the call. */
gpt_reduce_fn *gpt_reduce_of(enum gpt_dtype type)
{
    switch (type) {
    case GPT_F32:
        return reduce_f32;
    case GPT_F64:
        return reduce_f64;
    case GPT_BF16:
        return reduce_bf16;
    case GPT_F16:
        return reduce_f16;
    case GPT_I64:
        return reduce_i64;
    default:
        return NULL;
    }
}
