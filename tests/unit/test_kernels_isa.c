/* Parts of the inner loops that the tests of operations do not cover: exp over
 * its whole range in units in the last place, counters of dropout past 2^32 and
 * at every offset, values that are not finite, and the choice of instruction
 * sets. */
#include "tests/unit/kernels.h"

/* Units in the last place of a float near x > 0 */
static double ulp(double x)
{
    int e;

    frexp(x, &e);
    return ldexp(1, e - 24);
}

static void check_exp(void)
{
    enum { N = 1000 };
    double worst = 0;
    float at = 0, x[N], y[N];
    for (double from = -87.3; from < 88.3; from += 0.0437) {
        for (int i = 0; i < N; i++)
            y[i] = x[i] = (float)(from + 0.0437 * i / N);
        cpu_isa->exp_sum(y, N, 1, 0);
        for (int i = 0; i < N; i++) {
            double want = exp((double)x[i]);
            double e = fabs((double)y[i] - want) / ulp(want);

            if (e > worst) {
                worst = e;
                at = x[i];
            }
        }
    }
    ok(worst < 2, "%s: exp is within %.2f units in the last place (at %g)",
       setting, worst, (double)at);
    float special[] = {-88, -1000, -INFINITY, NAN, 0, -0.0f, 200, 1};
    float sum = cpu_isa->exp_sum(special, 8, 1, 0);
    ok(special[0] == 0 && special[1] == 0 && special[2] == 0,
       "%s: exp far below is 0", setting);
    ok(isnan(special[3]) && isnan(sum), "%s: exp of NaN is NaN", setting);
    ok(special[4] == 1 && special[5] == 1, "%s: exp of 0 is 1", setting);
    ok(special[6] > 2e38f, "%s: exp far above is huge", setting);
}

static void check_drop(void)
{
    static const uint64_t starts[] = {
        0, 1, 2, 3, 5, 0xfffffffe, 0x3fffffffe, 0x3ffffffffe, 1ull << 50};
    static const int64_t lengths[] = {1, 2, 3, 4, 7, 31, 32, 33, 64, 65, 200};
    struct gpt_dropout d = {.p = 0.37f, .rng = gpt_rng_open(99, "dropout")};
    struct cpu_drop drop = cpu_drop_of(&d);
    float x[200], y[201];
    int wrong = 0;

    for (int i = 0; i < 200; i++)
        x[i] = (float)(i + 1);
    for (size_t s = 0; s < GPT_COUNT(starts); s++)
        for (size_t l = 0; l < GPT_COUNT(lengths); l++) {
            int64_t n = lengths[l];

            poison(y, 201);
            cpu_isa->drop(y, x, n, &drop, starts[s]);
            for (int64_t i = 0; i < n; i++) {
                bool gone =
                    gpt_rng_uniform(d.rng, starts[s] + (uint64_t)i) < d.p;

                wrong += y[i] != (gone ? 0 : x[i] * drop.scale);
            }
            wrong += !isnan(y[n]); /* nothing past the end */
        }
    is_int(wrong, 0, "%s: dropout takes gpt_rng_uniform's values", setting);
    d.p = 0x1p-24f; /* the smallest p that drops: only the word 0 */
    is_int(cpu_drop_of(&d).below, 1, "%s: p of 2^-24 drops one word", setting);
}

static void check_not_finite(void)
{
    float x[40], loss[1], weight[1] = {1};
    int32_t target[1] = {3};

    for (int i = 0; i < 40; i++)
        x[i] = (float)i / 40;
    x[21] = NAN;
    struct gpt_xent op = {1, 40,     40,     40,   GPT_F32,
                          x, target, weight, loss, true, 0, NULL, 0, 0};
    be->xent(q, &op);
    ok(isnan(loss[0]), "%s: a NaN among the logits is a NaN loss", setting);
    for (int i = 0; i < 40; i++)
        x[i] = i % 2 ? -INFINITY : 1;
    target[0] = 4;
    be->xent(q, &op);
    is_near(loss[0], log(20), 1e-6, 0, "%s: logits of -inf take no share",
            setting);
    ok(x[1] == 0 && isfinite(x[0]), "%s: and no gradient", setting);

    float c[9] = {-200, -30, -9, -1e-8f, 0, 1e-8f, 9, 200, NAN}, zero[9] = {0};
    float aux[9];
    cpu_isa->bias_gelu(c, aux, zero, 9);
    ok(fabsf(c[0]) < 1e-30f && fabsf(c[1]) < 1e-30f && c[4] == 0 && c[6] == 9 &&
           c[7] == 200 && isnan(c[8]),
       "%s: GELU at its ends", setting);
    float g[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    cpu_isa->gelu_grad(g, aux, 9);
    ok(fabsf(g[0]) < 1e-25f && g[4] == 0.5f && g[6] == 1 && g[7] == 1 &&
           isnan(g[8]),
       "%s: slope of GELU at its ends", setting);

    float a[12] = {1, 2, 3, NAN}, b[12] = {1, 1, 1, 1}, out[1] = {0};
    struct gpt_matmul m = {.m = 1,
                           .n = 1,
                           .k = 4,
                           .tb = true,
                           .a = a,
                           .b = b,
                           .c = out,
                           .act = GPT_F32,
                           .c_type = GPT_F32};
    be->matmul(q, &m);
    ok(isnan(out[0]), "%s: NaN goes through a product", setting);
}

static void check_choice(void)
{
    struct gpt_err err;

    is_int(cpu_choose("sse9", NULL, &err), GPT_EUSAGE, "unknown set: %s",
           err.text);
    is_int(cpu_choose(NULL, "blis", &err), GPT_EUSAGE, "unknown product: %s",
           err.text);
    is_int(cpu_choose("base", "portable", &err), GPT_OK, "base is everywhere");
    is_str(cpu_isa->name, "base", "and is taken");
    is_int(cpu_choose(NULL, "", &err), GPT_OK, "an empty name is none: %s",
           err.text);
    is_int(cpu_choose(NULL, NULL, &err), GPT_OK, "the best there is");
    char text[200];
    be->describe(be, text, sizeof(text));
    ok(strstr(text, cpu_isa->name) != NULL, "described: %s", text);
}

static void body(void)
{
    check_exp();
    check_drop();
    check_not_finite();
}

int main(void)
{
    each_setting(body);
    check_choice();
    return tap_done();
}
