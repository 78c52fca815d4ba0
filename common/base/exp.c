/* e^x; see exp.h. The same lines of C are compiled for each instruction set, of
 * which none fuses a product with a sum (the Makefile's -ffp-contract=off), and
 * sums have eight lanes on all of them: so bits are the same. -O3 makes vectors
 * of these loops. */
#include "base/exp.h"

#include "base/cpu.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { LANES = 8, BLOCK = GPT_EXP_BLOCK };

int64_t gpt_exp_blocks(int64_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

#define INLINE static inline __attribute__((always_inline))

/* x = n ln 2 + r, |r| <= ln 2 / 2, then a polynomial of degree 11 in r
 * (minimax, by Remez's algorithm, with an error of 2^-57.9 of the result) and
 * 2^n. The first part of ln 2 has 32 bits, so that its products with n are
 * exact. The polynomial is added up by pairs (Estrin), since sums one after the
 * other would wait for each other. */
INLINE double exp_of(double x)
{
    const double magic = 0x1.8p52; /* adding it rounds to an integer */
    const double t = x * 0x1.71547652b82fep+0 + magic, n = t - magic;
    const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
    const double r2 = r * r, r4 = r2 * r2;
    const double p2 = 0x1.000000000000ap-1 + 0x1.55555555554f9p-3 * r;
    const double p4 = 0x1.555555555083fp-5 + 0x1.1111111127d10p-7 * r;
    const double p6 = 0x1.6c16c18438a89p-10 + 0x1.a01a012a0e7e8p-13 * r;
    const double p8 = 0x1.a01999e274b14p-16 + 0x1.71df25b516d4cp-19 * r;
    const double p10 = 0x1.28ad9b7868661p-22 + 0x1.ad7f3b22740dcp-26 * r;
    const double high = p6 + p8 * r2 + p10 * r4;
    const double p = (p2 + p4 * r2 + high * r4) * r2 + r + 1;
    uint64_t bits;
    double power;

    /* n is in the lowest bits of t, below those of magic */
    memcpy(&bits, &t, sizeof(bits));
    bits = (bits + 1023) << 52;
    memcpy(&power, &bits, sizeof(power));
    return x < -708 ? 0 : p * power;
}

/* Halves onto each other. */
INLINE double lanes_total(const double *x)
{
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

INLINE void each_block(double *restrict y, double *restrict sums,
                       const float *restrict x, int64_t blocks, double shift,
                       double by)
{
    for (int64_t b = 0; b < blocks; b++, x += BLOCK, y += BLOCK) {
        double lanes[LANES] = {0};

        for (int i = 0; i < BLOCK; i++)
            y[i] = exp_of(((double)x[i] - shift) / by);
        for (int i = 0; i < BLOCK; i += LANES)
            for (int k = 0; k < LANES; k++)
                lanes[k] += y[i + k];
        sums[b] = lanes_total(lanes);
    }
}

#define EACH_BLOCK(isa, target)                                              \
    target static void blocks_##isa(double *y, double *sums, const float *x, \
                                    int64_t blocks, double shift, double by) \
    {                                                                        \
        each_block(y, sums, x, blocks, shift, by);                           \
    }

typedef void blocks_fn(double *y, double *sums, const float *x, int64_t blocks,
                       double shift, double by);

#if defined(__x86_64__) && defined(GPT_HAVE_ISA_avx512)
EACH_BLOCK(base, )
EACH_BLOCK(avx2, __attribute__((target("avx2"))))
/* Vectors of 64 bytes, where the compiler would take halves of them. */
#ifdef __clang__
EACH_BLOCK(avx512, __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"),
                                  min_vector_width(512))))
#else
EACH_BLOCK(avx512, __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,"
                                         "prefer-vector-width=512"))))
#endif
static blocks_fn *const loops[] = {blocks_base, blocks_avx2, blocks_avx512};
#else
EACH_BLOCK(base, )
static blocks_fn *const loops[] = {blocks_base, blocks_base, blocks_base};
#endif

/* The last block may be a part of one: -inf, whose e^x is 0, fills it. */
void gpt_exp_with(int isa, double *y, double *sums, const float *x, int64_t n,
                  double shift, double by)
{
    const int64_t whole = n / BLOCK;
    float last[BLOCK];

    loops[isa](y, sums, x, whole, shift, by);
    if (whole == gpt_exp_blocks(n))
        return;
    for (int64_t i = 0; i < BLOCK; i++)
        last[i] = whole * BLOCK + i < n ? x[whole * BLOCK + i] : -INFINITY;
    loops[isa](y + whole * BLOCK, sums + whole, last, 1, shift, by);
}

/* The best set that this machine has, found once. */
static int best;

static void find_best(void)
{
    best = gpt_cpu_loops();
}

void gpt_exp_each(double *y, double *sums, const float *x, int64_t n,
                  double shift, double by)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_best);
    gpt_exp_with(best, y, sums, x, n, shift, by);
}

double gpt_exp_sum(const float *x, int64_t n, double shift)
{
    enum { MOST = 16 }; /* blocks at once */
    double y[MOST * BLOCK], sums[MOST], sum = 0;

    for (int64_t i = 0; i < n; i += MOST * BLOCK) {
        const int64_t part = n - i < MOST * BLOCK ? n - i : MOST * BLOCK;

        gpt_exp_each(y, sums, x + i, part, shift, 1);
        for (int64_t b = 0; b < gpt_exp_blocks(part); b++)
            sum += sums[b];
    }
    return sum;
}
