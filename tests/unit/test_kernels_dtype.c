/* Conversions between float types: every half value there and back, rounding
 * to nearest even at ties, overflow, subnormals, NaN; names. */
#include "base/cpu.h"
#include "base/dtype.h"
#include "tests/lib/tap.h"

#include <float.h>

/* The nearest half value to x by search over all of them (ties to even). */
static uint16_t nearest(double x, float (*widen)(uint16_t), uint16_t inf)
{
    double a = fabs(x);
    int lo = 0, hi = inf; /* magnitudes are ordered as integers */

    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;

        if ((double)widen((uint16_t)mid) <= a)
            lo = mid;
        else
            hi = mid;
    }
    double below = (double)widen((uint16_t)lo);
    double above = hi == inf ? 2 * below - (double)widen((uint16_t)(lo - 1))
                             : (double)widen((uint16_t)hi);
    double d0 = a - below, d1 = above - a;
    int pick = d0 < d1 || (d0 == d1 && lo % 2 == 0) ? lo : hi;
    return (uint16_t)(pick | (signbit(x) ? 0x8000 : 0));
}

static uint32_t next_random(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8 ^ *s << 13;
}

static void check_half(const char *name, float (*widen)(uint16_t),
                       uint16_t (*narrow)(float), enum gpt_dtype t,
                       uint16_t inf)
{
    int bad = 0, bad_float = 0, bad_double = 0;

    for (uint32_t u = 0; u <= 0xffff; u++) {
        float f = widen((uint16_t)u);

        if ((u & 0x7fff) > inf ? !isnan(f) || !isnan(widen(narrow(f)))
                               : narrow(f) != u)
            bad++;
    }
    is_int(bad, 0, "%s: every value survives the way to float and back", name);
    uint32_t s = 7;
    for (int i = 0; i < 200000; i++) {
        /* near halves and their midpoints, where rounding decides */
        uint16_t h = (uint16_t)(next_random(&s) % inf);
        double a = (double)widen(h), b = (double)widen((uint16_t)(h + 1));
        double x = isinf(b) ? a : (a + b) / 2;

        x += (double)((int)(next_random(&s) % 3) - 1) * 1e-14 * x;
        x = i & 1 ? -x : x;
        uint16_t got;
        gpt_convert(&got, t, &x, GPT_F64, 1);
        bad_double += got != nearest(x, widen, inf);
        bad_float += narrow((float)x) != nearest((double)(float)x, widen, inf);
    }
    is_int(bad_float, 0, "%s: float rounds to nearest even", name);
    is_int(bad_double, 0, "%s: double rounds once", name);
    ok(isinf(widen(narrow(INFINITY))), "%s: infinity stays", name);
    ok(isinf(widen(narrow(FLT_MAX))), "%s: overflow is infinity", name);
    ok(isnan(widen(narrow(NAN))), "%s: NaN stays", name);
    double big = 1e300;
    uint16_t got;
    gpt_convert(&got, t, &big, GPT_F64, 1);
    is_int(got, inf, "%s: huge double is infinity", name);
}

static void check_names(void)
{
    static const struct {
        const char *text;
        enum gpt_dtype t;
    } cases[] = {
        {"BF16", GPT_BF16}, {"bf16", GPT_BF16}, {"bfloat16", GPT_BF16},
        {"fp16", GPT_F16},  {"half", GPT_F16},  {"float32", GPT_F32},
        {"F64", GPT_F64},   {"I64", GPT_I64},   {"uint16", GPT_U16},
    };
    enum gpt_dtype t;

    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        ok(gpt_dtype_parse(cases[i].text, &t) && t == cases[i].t, "parse %s",
           cases[i].text);
    ok(!gpt_dtype_parse("float31", &t), "an unknown name is refused");
    ok(!gpt_dtype_parse("", &t), "an empty name is refused");
    for (int i = 0; i < GPT_N_DTYPES; i++)
        ok(gpt_dtype_parse(gpt_dtype_name((enum gpt_dtype)i), &t) &&
               (int)t == i && gpt_dtype_bytes(t) > 0,
           "name of %s parses", gpt_dtype_name((enum gpt_dtype)i));
    ok(gpt_dtype_is_float(GPT_BF16) && !gpt_dtype_is_float(GPT_I32),
       "float types are told from others");
    is_int(gpt_dtype_bytes(GPT_N_DTYPES), 0, "no such type has no size");
}

static void check_pairs(void)
{
    static const enum gpt_dtype floats[] = {GPT_F16, GPT_BF16, GPT_F32,
                                            GPT_F64};
    const double values[] = {0, 1, -2.5, 0.15625, 96};

    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 4; j++) {
            double a[5], b[5], back[5];
            bool done = gpt_convert(a, floats[i], values, GPT_F64, 5) &&
                        gpt_convert(b, floats[j], a, floats[i], 5) &&
                        gpt_convert(back, GPT_F64, b, floats[j], 5);

            ok(done && memcmp(back, values, sizeof(values)) == 0,
               "%s to %s keeps values that both hold",
               gpt_dtype_name(floats[i]), gpt_dtype_name(floats[j]));
        }
    int32_t whole = 3;
    float f;
    ok(!gpt_convert(&f, GPT_F32, &whole, GPT_I32, 1), "integers are refused");
}

/* Every pattern of bits that matters, NaNs with their payloads as well, by the
 * loops of each instruction set: the same bits as by one element at a time. */
static void check_sets(void)
{
    enum { MANY = 1 << 18, ODD = 37 };
    static const char *const sets[] = {"base", "avx2", "avx512"};
    static const enum gpt_dtype types[] = {GPT_F16, GPT_BF16, GPT_F32};
    uint32_t *from = calloc(MANY, sizeof(*from)), s = 11;
    uint32_t *want = calloc(MANY, sizeof(*want));
    uint32_t *got = calloc(MANY, sizeof(*got));

    for (int i = 0; i < MANY; i++) /* halves: two in each word */
        from[i] = i < 65536 ? (uint32_t)i << 16 | (uint32_t)i
                  : i < 131072 ? (uint32_t)(i - 65536) << 16 | 0x8000
                               : next_random(&s);
    for (int set = 1; set < 3; set++) {
        int bad = 0;

        if (!gpt_cpu_has(sets[set])) {
            skip("no %s", sets[set]);
            continue;
        }
        for (size_t a = 0; a < 3; a++)
            for (size_t b = 0; b < 3; b++) {
                const size_t n = MANY - ODD;

                memset(got, 0, MANY * sizeof(*got));
                memset(want, 0, MANY * sizeof(*want));
                for (size_t i = 0; i < n; i += ODD) /* ends of loops */
                    gpt_convert_with(
                        0, (char *)want + i * gpt_dtype_bytes(types[b]),
                        types[b],
                        (const char *)from + i * gpt_dtype_bytes(types[a]),
                        types[a], ODD);
                gpt_convert_with(set, got, types[b], from, types[a],
                                 (n + ODD - 1) / ODD * ODD);
                bad += memcmp(got, want, MANY * sizeof(*got)) != 0;
            }
        is_int(bad, 0, "%s: the same bits", sets[set]);
    }
    free(from);
    free(want);
    free(got);
}

int main(void)
{
    check_half("F16", gpt_f16_to_f32, gpt_f32_to_f16, GPT_F16, 0x7c00);
    check_half("BF16", gpt_bf16_to_f32, gpt_f32_to_bf16, GPT_BF16, 0x7f80);
    check_names();
    check_pairs();
    check_sets();
    return tap_done();
}
