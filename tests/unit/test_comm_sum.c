/* Reductions of what ranks sent (parallel/comm_sum.h) against one element at a
 * time: every bit, at lengths around those of blocks, with NaN among them, and
 * into one of the inputs. */
#include "parallel/comm_sum.h"

#include "base/dtype.h"
#include "tests/lib/tap.h"

#include <math.h>

enum { RANKS = 5, LENGTH = 3000 };

static uint64_t state = 88172645463325252u;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static double get(enum gpt_dtype type, const uint8_t *p, int64_t i)
{
    uint16_t narrow;
    double wide;
    float x;

    if (type == GPT_F64) {
        memcpy(&wide, p + 8 * i, sizeof(wide));
        return wide;
    }
    if (type == GPT_F32) {
        memcpy(&x, p + 4 * i, sizeof(x));
        return (double)x;
    }
    memcpy(&narrow, p + 2 * i, sizeof(narrow));
    return (double)(type == GPT_BF16 ? gpt_bf16_to_f32(narrow)
                                     : gpt_f16_to_f32(narrow));
}

static void put(enum gpt_dtype type, uint8_t *p, int64_t i, double x)
{
    gpt_convert(p + (int64_t)gpt_dtype_bytes(type) * i, type, &x, GPT_F64, 1);
}

/* acc op x, rounded as sums of this type are. */
static double fold(enum gpt_dtype type, enum gpt_reduce op, double acc,
                   double x)
{
    if (op == GPT_MAX)
        return x > acc || isnan(x) ? x : acc;
    return type == GPT_F64 ? acc + x : (double)((float)acc + (float)x);
}

static void test_type(enum gpt_dtype type, enum gpt_reduce op)
{
    static uint8_t in[RANKS][8 * LENGTH], out[8 * LENGTH], want[8 * LENGTH];
    const int64_t n = 1 + (int64_t)(next() % LENGTH);
    const int64_t size = 1 + (int64_t)(next() % RANKS);
    const size_t bytes = gpt_dtype_bytes(type) * (size_t)n;
    const uint8_t *from[RANKS];

    for (int64_t r = 0; r < size; r++) {
        from[r] = in[r];
        for (int64_t i = 0; i < n; i++)
            put(type, in[r], i,
                next() % 200 == 0 ? (double)NAN
                                  : (double)(int64_t)next() * 0x1p-55);
    }
    for (int64_t i = 0; i < n; i++) {
        double acc = get(type, in[0], i);

        for (int64_t r = 1; r < size; r++)
            acc = fold(type, op, acc, get(type, in[r], i));
        put(type, want, i, acc);
    }
    gpt_reduce_of(type)(out, from, size, n, op);
    ok(memcmp(out, want, bytes) == 0, "%s, %s of %lld ranks, %lld elements",
       gpt_dtype_name(type), op == GPT_SUM ? "sum" : "maximum",
       (long long)size, (long long)n);
    uint8_t *own = in[next() % (uint64_t)size];
    gpt_reduce_of(type)(own, from, size, n, op);
    ok(memcmp(own, want, bytes) == 0, "into one of them");
}

/* Integers that a double does not hold; sums wrap. */
static void test_integers(void)
{
    const int64_t a[3] = {INT64_MAX, -5, (1LL << 53) + 1}, b[3] = {1, 3, -7};
    const uint8_t *const from[2] = {(const uint8_t *)a, (const uint8_t *)b};
    int64_t sum[3], most[3];

    gpt_reduce_of(GPT_I64)((uint8_t *)sum, from, 2, 3, GPT_SUM);
    gpt_reduce_of(GPT_I64)((uint8_t *)most, from, 2, 3, GPT_MAX);
    ok(sum[0] == INT64_MIN && sum[1] == -2 && sum[2] == (1LL << 53) - 6,
       "sums of integers");
    ok(most[0] == a[0] && most[1] == b[1] && most[2] == a[2],
       "maxima of integers");
}

int main(void)
{
    static const enum gpt_dtype types[] = {GPT_F32, GPT_F64, GPT_BF16, GPT_F16};

    for (int round = 0; round < 6; round++)
        for (size_t i = 0; i < GPT_COUNT(types); i++) {
            test_type(types[i], GPT_SUM);
            test_type(types[i], GPT_MAX);
        }
    test_integers();
    ok(!gpt_reduce_of(GPT_U16), "other types have no sums");
    return tap_done();
}
