/* Blends: weights bit for bit, sizes, order, and the arguments they come from. */
#include "data/blend.h"

#include "tests/unit/golden.h"

static void test_golden(void)
{
    FILE *f = golden_open("tests/golden/samples.txt");
    char line[64];
    int cases = 0;

    while (golden_next(f, "blend", line, sizeof line)) {
        double w[GOLDEN_MAX], want[GOLDEN_MAX];
        struct gpt_blend b;
        struct gpt_err err = {0};
        long long size = strtoll(line, NULL, 10);
        int n = golden_array(f, "weights", w);
        cases++;
        golden_array(f, "once", want);
        gpt_normalize(w, n);
        ok(memcmp(w, want, sizeof *w * (size_t)n) == 0,
           "%d weights normalized, to the last bit", n);
        golden_array(f, "used", want);
        gpt_normalize(w, n);
        ok(memcmp(w, want, sizeof *w * (size_t)n) == 0, "and twice");
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
        {"1.2.3", GPT_EUSAGE, {0}},
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
    test_sizes();
    test_arguments();
    test_split();
    return tap_done();
}
