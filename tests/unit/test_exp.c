/* e^x of many numbers: bits are the same on each set of instructions and for
 * each length, errors are below 1.1 units in the last place, also at the ends
 * of the range. */
#include "base/cpu.h"
#include "base/exp.h"
#include "base/rng.h"
#include "tests/lib/tap.h"

#include <math.h>
#include <string.h>

enum {
    N = 100000,
    BLOCKS = N / GPT_EXP_BLOCK + 1,
    ROOM = BLOCKS * GPT_EXP_BLOCK
};

static float x[N];
static double y[ROOM], sums[BLOCKS], again[ROOM], again_sums[BLOCKS];

/* The largest error in units in the last place of e^((x - shift) / by). */
static double worst(double shift, double by)
{
    double most = 0;

    for (int i = 0; i < N; i++) {
        const long double want =
            expl((long double)(((double)x[i] - shift) / by));
        int e;

        (void)frexpl(want, &e);
        most = fmax(most,
                    (double)(fabsl((long double)y[i] - want) /
                             ldexpl(1, e - 53)));
    }
    return most;
}

static void test_errors(void)
{
    static const struct {
        double from, to, shift, by;
    } ranges[] = {{-0.5, 0.5, 0, 1}, {-20, 0, 0, 1},       {-707, 709, 0, 1},
                  {-30, 3, 3, 0.7},  {-1e-6, 1e-6, 0, 1},  {-708, -700, 0, 1},
                  {0, 70, 70, 0.1},  {-1e3, 1e3, 1e3, 9e3}};
    const struct gpt_rng rng = gpt_rng_open(3, "exp");

    for (size_t r = 0; r < GPT_COUNT(ranges); r++) {
        for (int i = 0; i < N; i++)
            x[i] = (float)(ranges[r].from +
                           (ranges[r].to - ranges[r].from) *
                               (double)gpt_rng_uniform(rng, (uint64_t)i));
        gpt_exp_each(y, sums, x, N, ranges[r].shift, ranges[r].by);
        const double most = worst(ranges[r].shift, ranges[r].by);
        ok(most < 1.1, "from %g to %g less %g, by %g: off by %.3f units",
           ranges[r].from, ranges[r].to, ranges[r].shift, ranges[r].by, most);
        for (int isa = 0; isa <= gpt_cpu_loops(); isa++) {
            gpt_exp_with(isa, again, again_sums, x, N, ranges[r].shift,
                         ranges[r].by);
            ok(memcmp(y, again, sizeof(y)) == 0 &&
                   memcmp(sums, again_sums, sizeof(sums)) == 0,
               "the same bits by set %d", isa);
        }
    }
}

static void test_ends(void)
{
    const float ends[] = {0,    -0.0f, -708,  -708.1f,   -745, -1e30f,
                          -3e38f, 709, -INFINITY, NAN};

    for (int isa = 0; isa <= gpt_cpu_loops(); isa++) {
        gpt_exp_with(isa, y, sums, ends, 9, 0, 1);
        ok(y[0] == 1 && y[1] == 1 && sums[0] == 2 + y[2] + y[7],
           "set %d: e^0 is 1", isa);
        ok(y[2] > 0 && y[3] == 0 && y[4] == 0 && y[5] == 0 && y[6] == 0 &&
               y[8] == 0 && y[9] == 0 && y[GPT_EXP_BLOCK - 1] == 0,
           "what is far below is 0, and what is past the end");
        gpt_exp_with(isa, y, sums, ends, 3, 0, 1e-300);
        ok(y[0] == 1 && y[2] == 0, "of a quotient that is infinite, too");
        gpt_exp_with(isa, y, sums, ends, 10, 0, 1);
        ok(isnan(y[9]) && isnan(sums[0]), "NaN stays");
    }
}

/* A number's result does not depend on how many come with it. */
static void test_lengths(void)
{
    static const int lengths[] = {0, 1, 63, 64, 65, 1024, 1025, 5000};
    int wrong = 0;

    for (int i = 0; i < N; i++)
        x[i] = (float)-(i % 977) / 32;
    gpt_exp_each(again, again_sums, x, N, 0, 1);
    for (size_t l = 0; l < GPT_COUNT(lengths); l++) {
        const int n = lengths[l];
        double sum = 0;

        gpt_exp_each(y, sums, x, n, 0, 1);
        for (int b = 0; b < gpt_exp_blocks(n); b++)
            sum += sums[b];
        wrong += memcmp(y, again, (size_t)n * sizeof(*y)) != 0;
        wrong += memcmp(sums, again_sums,
                        (size_t)(n / GPT_EXP_BLOCK) * sizeof(*sums)) != 0;
        wrong += gpt_exp_sum(x, n, 0) != sum;
    }
    is_int(wrong, 0, "the same for each length, and the sum alone");
}

int main(void)
{
    test_errors();
    test_ends();
    test_lengths();
    return tap_done();
}
