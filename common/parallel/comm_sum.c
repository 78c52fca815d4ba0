/* Sums and maxima of what several ranks sent, in the order of ranks: addition
 * of floats is not associative, and the same order gives the same bits each
 * time. BF16 and F16 are added in float and rounded once, at the end. */
#include "parallel/comm_sum.h"

#include "base/num.h"

/* A block of sums stays in the first-level cache while all ranks are added.
 * `out` may be one of from[]: a block of it is written after the same block of
 * all has been read. Blocks of memory.h and callers' own are aligned to their
 * type. A simd loop runs along elements, never along ranks, so vector
 * instructions leave the order of each element's sum as it is. The maximum
 * tests for NaN by itself, because every comparison with one is false: without
 * the test a NaN of a later rank would vanish. */
enum { BLOCK = 1024 };

#define REDUCE(name, type, acc_type, load, store, add_loop)                  \
    static void name(uint8_t *out, const uint8_t *const *from, int64_t size, \
                     int64_t n, enum gpt_reduce op)                          \
    {                                                                        \
        acc_type acc[BLOCK];                                                 \
        type *to = (type *)(void *)out;                                      \
        for (int64_t at = 0; at < n; at += BLOCK) {                          \
            const int64_t k = n - at < BLOCK ? n - at : BLOCK;               \
            const type *x = (const type *)(const void *)from[0] + at;        \
            for (int64_t i = 0; i < k; i++)                                  \
                acc[i] = load(x[i]);                                         \
            for (int64_t r = 1; r < size; r++) {                             \
                x = (const type *)(const void *)from[r] + at;                \
                if (op == GPT_SUM)                                           \
                    add_loop for (int64_t i = 0; i < k; i++)                 \
                        acc[i] += load(x[i]);                                \
                else                                                         \
                    for (int64_t i = 0; i < k; i++) /* NaN stays */          \
                        if (load(x[i]) > acc[i] || load(x[i]) != load(x[i])) \
                            acc[i] = load(x[i]);                             \
            }                                                                \
            for (int64_t i = 0; i < k; i++)                                  \
                to[at + i] = store(acc[i]);                                  \
        }                                                                    \
    }
#define AS_IT_IS(x) (x)
#define SIMD _Pragma("omp simd")
#define CALLS /* a function an element, which no vector can hold */
REDUCE(reduce_f32, float, float, AS_IT_IS, AS_IT_IS, SIMD)
REDUCE(reduce_f64, double, double, AS_IT_IS, AS_IT_IS, SIMD)
REDUCE(reduce_bf16, uint16_t, float, gpt_bf16_to_f32, gpt_f32_to_bf16, CALLS)
REDUCE(reduce_f16, uint16_t, float, gpt_f16_to_f32, gpt_f32_to_f16, CALLS)

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
