/* Sums and maxima of what several ranks sent, in the order of ranks. */
#include "parallel/comm_sum.h"

#include "base/num.h"

#include <string.h>

#define REDUCE(name, type, acc_type, load, store)                            \
    static void name(uint8_t *out, const uint8_t *const *from, int64_t size, \
                     int64_t n, enum gpt_reduce op)                          \
    {                                                                        \
        for (int64_t i = 0; i < n; i++) {                                    \
            type x;                                                          \
            memcpy(&x, from[0] + i * (int64_t)sizeof(x), sizeof(x));         \
            acc_type sum = load(x);                                          \
            for (int64_t r = 1; r < size; r++) {                             \
                memcpy(&x, from[r] + i * (int64_t)sizeof(x), sizeof(x));     \
                if (op == GPT_SUM)                                           \
                    sum += load(x);                                          \
                else if (load(x) > sum || load(x) != load(x))                \
                    sum = load(x); /* NaN stays */                           \
            }                                                                \
            x = store(sum);                                                  \
            memcpy(out + i * (int64_t)sizeof(x), &x, sizeof(x));             \
        }                                                                    \
    }
#define AS_IT_IS(x) (x)
REDUCE(reduce_f32, float, float, AS_IT_IS, AS_IT_IS)
REDUCE(reduce_f64, double, double, AS_IT_IS, AS_IT_IS)
REDUCE(reduce_bf16, uint16_t, float, gpt_bf16_to_f32, gpt_f32_to_bf16)

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

gpt_reduce_fn *gpt_reduce_of(enum gpt_dtype type)
{
    switch (type) {
    case GPT_F32:
        return reduce_f32;
    case GPT_F64:
        return reduce_f64;
    case GPT_BF16:
        return reduce_bf16;
    case GPT_I64:
        return reduce_i64;
    default:
        return NULL;
    }
}
