/* Blends: weights bit for bit, sizes, order, and arguments. */
#include "data/blend.h"

#include "base/rng.h"
#include "tests/unit/golden.h"

static void test_golden(void)
{
    FILE *f = golden_open("tests/golden/samples.txt");
    char line[64];
    int cases = 0;

    while (golden_next(f, "blend", line, sizeof(line))) {
        double w[GOLDEN_MAX], want[GOLDEN_MAX];
        struct gpt_blend b;
        struct gpt_err err = {0};

        long long size = strtoll(line, NULL, 10);
        int n = golden_array(f, "weights", w);
        cases++;
        golden_array(f, "once", want);
        gpt_normalize(w, n);
        ok(memcmp(w, want, sizeof(*w) * (size_t)n) == 0,
           "%d weights normalized, to the last bit", n);
        golden_array(f, "used", want);
        gpt_normalize(w, n);
        ok(memcmp(w, want, sizeof(*w) * (size_t)n) == 0, "and twice");
        is_int(gpt_blend_build(&b, w, n, size, &err), GPT_OK,
               "blend of %lld samples", size);
        GOLDEN_IS(f, "set", b.set, size, "data sets");
        GOLDEN_IS(f, "sample", b.sample, size, "samples");
        int64_t taken = 0;
        for (int i = 0; i < n; i++)
            taken += b.taken[i];
        is_int(taken, size, "all are taken from somewhere");
        gpt_blend_free(&b);
    }
    fclose(f);
    ok(cases >= 10, "%d cases", cases);
}

/* Blends of many sets against a scan, sample by sample: the weights are random,
 * equal, equal but for the last bit, or fall off steeply. */
static void test_many(void)
{
    enum { MOST = 1500 };
    static const int sizes[] = {3, 100, 700, 701, 1023, MOST};
    static double w[MOST], given[MOST];

    for (int k = 0; k < 6 * 4; k++) {
        int n = sizes[k / 4], kind = k % 4, wrong = 0;
        int64_t size = 20 * n;
        struct gpt_rng rng = gpt_rng_open(9, "blend");
        struct gpt_blend b;
        struct gpt_err err = {0};

        for (int i = 0; i < n; i++) {
            uint32_t r = gpt_rng_u32(rng, (uint64_t)i);

            w[i] = kind == 0   ? 1e-3 + 0x1p-32 * r
                   : kind == 1 ? 1
                   : kind == 2 ? 1 + 0x1p-52 * (r % 3)
                               : 1.0 / (1 + (r % n));
            given[i] = 0;
        }
        gpt_normalize(w, n);
        if (gpt_blend_build(&b, w, n, size, &err) != GPT_OK)
            exit(1);
        for (int64_t t = 0; t < size; t++) {
            int best = 0;
            double at = t > 0 ? (double)t : 1;

            for (int i = 1; i < n; i++)
                if (w[i] * at - given[i] > w[best] * at - given[best])
                    best = i;
            wrong += b.set[t] != best || b.sample[t] != given[best];
            given[best] += 1;
        }
        is_int(wrong, 0, "%d sets, weights of kind %d", n, kind);
        gpt_blend_free(&b);
    }
}

static void test_sizes(void)
{
    static const struct {
        int64_t size;
        double w;
        int64_t share, built;
    } rows[] = {
        {1000, 1.0, 1000, 1005}, {1000, 0.25, 250, 252}, {10, 0.3, 3, 4},
        {1, 0.1, 1, 2},          {0, 0.5, 0, 0},         {7, 1.0 / 7, 1, 2},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        is_int(gpt_blend_share(rows[i].size, rows[i].w), rows[i].share,
               "share of %lld", (long long)rows[i].size);
        is_int(gpt_blend_share_built(rows[i].size, rows[i].w), rows[i].built,
               "built for it");
    }
    struct gpt_blend b;
    struct gpt_err err = {0};
    const double w = 1;
    is_int(gpt_blend_build(&b, &w, 0, 1, &err), GPT_EUSAGE, "no data set");
    is_int(gpt_blend_build(&b, &w, 40000, 1, &err), GPT_EUSAGE,
           "too many data sets");
    is_int(gpt_blend_build(&b, &w, 1, -1, &err), GPT_EUSAGE, "no samples");
    is_int(gpt_blend_build(&b, &w, 1, UINT32_MAX + 1LL, &err), GPT_EUSAGE,
           "too many samples");
}

static void test_arguments(void)
{
    static const struct {
        const char *args[5];
        int64_t n_args;
        int status;
        int64_t n;
        const char *last;
        double weight; /* of the last; 0: none are given */
    } rows[] = {
        {{"a"}, 1, GPT_OK, 1, "a", 0},
        {{"0.5", "a", "1e-1", "b"}, 4, GPT_OK, 2, "b", 0.1},
        {{"3", "7"}, 2, GPT_OK, 1, "7", 3}, /* a number is a fine name */
        {{"a", "b"}, 2, GPT_OK, 2, "b", 0},
        {{"1", "a", "b"}, 3, GPT_OK, 3, "b", 0}, /* as Megatron reads it */
        {{"1", "a", "b", "c"}, 4, GPT_EUSAGE, 0, NULL, 0},
        {{"0", "a", "1", "b"}, 4, GPT_EUSAGE, 0, NULL, 0},
        {{"-1", "a"}, 2, GPT_EUSAGE, 0, NULL, 0},
        {{"1e308", "a", "1e308", "b"}, 4, GPT_EUSAGE, 0, NULL, 0},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        struct gpt_blend_parts p;
        struct gpt_err err = {0};

        is_int(gpt_blend_parse(&p, rows[i].args, rows[i].n_args, &err),
               rows[i].status, "arguments %zu", i);
        if (rows[i].status != GPT_OK)
            continue;
        is_int(p.n, rows[i].n, "number of data sets");
        is_str(p.prefix[p.n - 1], rows[i].last, "the last one");
        ok(rows[i].weight == 0 ? !p.weight
                               : p.weight && p.weight[p.n - 1] ==
                                                 rows[i].weight,
           "its weight");
        gpt_blend_parts_free(&p);
    }
}

static void test_split(void)
{
    static const struct {
        const char *text;
        int status;
        double edge[4];
    } rows[] = {
        {"8,1,1", GPT_OK, {0, 0.8, 0.9, 1}},
        {"969, 30, 1", GPT_OK, {0, 0.969, 0.999, 1}},
        {"1", GPT_OK, {0, 1, 1, 1}},
        {"0.5/0.5", GPT_OK, {0, 0.5, 1, 1}},
        {"0,0,5", GPT_OK, {0, 0, 0, 1}},
        {"0,0,0", GPT_EUSAGE, {0}},
        {"", GPT_EUSAGE, {0}},
        {"a,b", GPT_EUSAGE, {0}},
        {"(8, 1, 1)", GPT_OK, {0, 0.8, 0.9, 1}},
        {"1.2.3", GPT_EUSAGE, {0}},
        {"1,-1,0", GPT_EUSAGE, {0}},
        {"1e3,1,0", GPT_EUSAGE, {0}},
        {"nan,1,0", GPT_EUSAGE, {0}},
        {"969,3O,1", GPT_EUSAGE, {0}},
        {"969,,1", GPT_EUSAGE, {0}},
        {",30,1", GPT_EUSAGE, {0}},
        {"969,30,", GPT_EUSAGE, {0}},
        {"1,1,1,1", GPT_EUSAGE, {0}},
        {"11111111111111111111111111111111111111111111111111111111111111111111"
         "1111", GPT_EUSAGE, {0}},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        double edge[4];
        struct gpt_err err = {0};

        is_int(gpt_split_parse(edge, rows[i].text, &err), rows[i].status,
               "split '%s'", rows[i].text);
        for (int k = 0; rows[i].status == GPT_OK && k < 4; k++)
            is_near(edge[k], rows[i].edge[k], 1e-15, 0, "edge %d", k);
    }
}

int main(void)
{
    test_golden();
    test_many();
    test_sizes();
    test_arguments();
    test_split();
    return tap_done();
}
