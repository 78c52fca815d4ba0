/* The choice of tokens: the tokens that top-k, top-p and both keep, ties,
 * boundaries, and the distribution of draws. Only equal logits have exact sums,
 * so tests of boundaries use equal ones. */
#include "generate/adjust.h"
#include "golden.h"

enum { MOST = 8, IDS = 3000 };

static struct gpt_sampler *sampler;

static void logits_of(const double *p, int n, float *logits)
{
    for (int i = 0; i < n; i++)
        logits[i] = p[i] > 0 ? (float)log(p[i]) : -INFINITY;
}

/* The set of ids that any u can select, as bits. */
static unsigned reachable(const float *logits, int n,
                          const struct gpt_sampling *rule)
{
    unsigned set = 0;

    for (int i = 0; i < 4096; i++) {
        int32_t token = -1;

        if (gpt_sample(sampler, logits, n, rule, (i + 0.5) / 4096, &token,
                       NULL) != GPT_OK ||
            token < 0 || token >= n)
            return ~0U;
        set |= 1U << token;
    }
    return set;
}

struct truth {
    const char *what;
    double p[MOST]; /* up to the first negative */
    struct gpt_sampling rule;
    unsigned want; /* bit i: token i can be chosen */
};

#define RULE(t, k, p)                                  \
    {                                                  \
        .temperature = (t), .top_k = (k), .top_p = (p) \
    }
#define P_HALVES                        \
    {                                   \
        .25, .5, .125, .0625, .0625, -1 \
    }
#define P_FLAT                 \
    {                          \
        .25, .25, .25, .25, -1 \
    }

static const struct truth truths[] = {
    {"no filter", P_HALVES, RULE(1, 0, 0), 0x1F},
    {"temperature 0", P_HALVES, RULE(0, 0, 0), 0x02},
    {"temperature 0 does not read k or p", P_HALVES, RULE(0, 3, .9), 0x02},
    {"greedy among equals: lowest id", P_FLAT, RULE(0, 0, 0), 0x1},
    {"k = 1 is greedy", P_HALVES, RULE(1, 1, 0), 0x02},
    {"k = 1 among equals: lowest id", P_FLAT, RULE(1, 1, 0), 0x1},
    {"k = 2", P_HALVES, RULE(1, 2, 0), 0x03},
    {"k = 3", P_HALVES, RULE(1, 3, 0), 0x07},
    {"k = 4: the tie at the threshold survives", P_HALVES, RULE(1, 4, 0), 0x1F},
    {"k = 2 of equals: all survive", P_FLAT, RULE(1, 2, 0), 0xF},
    {"k = V", P_HALVES, RULE(1, 5, 0), 0x1F},
    {"k > V", P_HALVES, RULE(1, 100, 0), 0x1F},
    {"p = 1 is off", P_HALVES, RULE(1, 0, 1), 0x1F},
    {"p tiny: the first stays", P_HALVES, RULE(1, 0, 1e-9), 0x02},
    {"p = .4: only the one that crosses", P_HALVES, RULE(1, 0, .4), 0x02},
    {"p just below .5", P_HALVES, RULE(1, 0, .4999), 0x02},
    {"p just above .5", P_HALVES, RULE(1, 0, .5001), 0x03},
    {"p just below .75", P_HALVES, RULE(1, 0, .7499), 0x03},
    {"p just above .75", P_HALVES, RULE(1, 0, .7501), 0x07},
    {"p just above .875: of equals the lower id", P_HALVES, RULE(1, 0, .8751),
     0x0F},
    {"p just above .9375: and the last", P_HALVES, RULE(1, 0, .9376), 0x1F},
    {"p = .25 of equals: the sum before the second equals p, kept", P_FLAT,
     RULE(1, 0, .25), 0x3},
    {"p = .2499 of equals: one", P_FLAT, RULE(1, 0, .2499), 0x1},
    {"p = .75 of equals: all", P_FLAT, RULE(1, 0, .75), 0xF},
    {"p = .3 of equals: two, by id", P_FLAT, RULE(1, 0, .3), 0x3},
    {"p after k: renormalised", P_HALVES, RULE(1, 2, .6), 0x02},
    {"p after k at the boundary", {.4, .4, .1, .1, -1}, RULE(1, 2, .5), 0x3},
    {"p after k below it", {.4, .4, .1, .1, -1}, RULE(1, 2, .4999), 0x1},
    {"k cuts what p would keep", P_HALVES, RULE(1, 2, .99), 0x03},
    {"p after temperature 1/2: .25 of .344 crosses", P_HALVES, RULE(.5, 0, .72),
     0x02},
    {"p after temperature 1: it would not", P_HALVES, RULE(1, 0, .72), 0x03},
    {"minus infinity takes no part", {0, .5, 0, .5, -1}, RULE(1, 0, 0), 0xA},
    {"nor in top-k", {0, .5, 0, .5, -1}, RULE(1, 3, 0), 0xA},
    {"a tiny temperature is greedy", P_HALVES, RULE(1e-30, 0, 0), 0x02},
    {"one token", {1, -1}, RULE(1, 5, .5), 0x1},
};

static int length(const double *p)
{
    int n = 0;

    while (n < MOST && p[n] >= 0)
        n++;
    return n;
}

static void test_truths(void)
{
    for (size_t i = 0; i < GPT_COUNT(truths); i++) {
        const struct truth *t = &truths[i];
        float logits[MOST];
        int n = length(t->p);

        logits_of(t->p, n, logits);
        unsigned got = reachable(logits, n, &t->rule);
        if (!ok(got == t->want, "%s", t->what))
            printf("# got %#x, want %#x\n", got, t->want);
    }
}

static void test_bad_logits(void)
{
    const struct gpt_sampling rule = RULE(1, 0, 0), greedy = RULE(0, 0, 0);
    const float bad[][3] = {
        {0, NAN, 1},
        {NAN, 0, 1},
        {0, INFINITY, 1},
        {-INFINITY, -INFINITY, -INFINITY},
    };

    for (size_t i = 0; i < GPT_COUNT(bad); i++) {
        struct gpt_err err = {0};
        int32_t token = -1;

        /* all are forbidden in the last */
        const int want = i < 3 ? GPT_EDIVERGED : GPT_EUSAGE;
        is_int(gpt_sample(sampler, bad[i], 3, &rule, .5, &token, &err), want,
               "bad logits %zu are reported", i);
        is_int(gpt_sample(sampler, bad[i], 3, &greedy, .5, &token, NULL), want,
               "and when greedy");
    }
}

/* What is kept, the slow way: sort by (logit desc, id), apply the rule as it
 * is written. weight[i] = 0 for what is dropped. */
static void kept_slowly(const float *logits, int n,
                        const struct gpt_sampling *rule, double *weight)
{
    int order[IDS];

    for (int i = 0; i < n; i++) {
        int j = i;

        for (; j > 0 && logits[order[j - 1]] < logits[i]; j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
    int m = n;
    if (rule->top_k > 0 && rule->top_k < n) {
        m = (int)rule->top_k;
        while (m < n && !(logits[order[m]] < logits[order[m - 1]]))
            m++;
    }
    double total = 0, before = 0;
    memset(weight, 0, sizeof(*weight) * (size_t)n);
    for (int i = 0; i < m; i++) {
        double x = (double)logits[order[i]] - (double)logits[order[0]];

        weight[order[i]] = exp(x / rule->temperature);
        total += weight[order[i]];
    }
    for (int i = 0; i < m; i++) {
        double w = weight[order[i]];

        if (rule->top_p > 0 && rule->top_p < 1 && before > rule->top_p * total)
            weight[order[i]] = 0;
        before += w;
    }
}

/* Random logits, many ties: every draw must be in the slow set, and counts
 * must follow the slow weights: chi-square within 5 standard deviations. */
static void test_against_slow(const struct gpt_sampling *rule, int n)
{
    enum { DRAWS = 20000 };
    float logits[512];
    double weight[512];
    int64_t count[512] = {0};
    struct gpt_rng rng = gpt_rng_open(7, "test");
    for (int i = 0; i < n; i++)
        logits[i] = roundf(gpt_rng_normal(rng, (uint64_t)i) * 4) / 4;
    kept_slowly(logits, n, rule, weight);
    bool inside = true;
    struct gpt_rng draws = gpt_sample_rng(1234, (uint64_t)n, 0);
    for (int i = 0; i < DRAWS; i++) {
        int32_t token = -1;
        int rc = gpt_sample(sampler, logits, n, rule,
                            gpt_sample_uniform(draws, i), &token, NULL);

        inside &= rc == GPT_OK && weight[token] > 0;
        count[token]++;
    }
    double total = 0, chi = 0;
    int kinds = -1;
    for (int i = 0; i < n; i++)
        total += weight[i];
    for (int i = 0; i < n; i++) {
        double want = weight[i] / total * DRAWS;

        if (want > 0) {
            double off = (double)count[i] - want;

            chi += off * off / want;
            kinds++;
        }
    }
    ok(inside, "n %d T %g k %d p %g: draws are in the kept set", n,
       rule->temperature, (int)rule->top_k, rule->top_p);
    ok(fabs(chi - kinds) <= 5 * sqrt(2.0 * kinds + 1),
       "their counts follow it: chi-square %.1f of %d", chi, kinds);
}

static void test_distribution(void)
{
    const struct gpt_sampling rules[] = {
        RULE(1, 0, 0),  RULE(.7, 0, 0), RULE(1.5, 0, .9),   RULE(1, 40, 0),
        RULE(1, 7, .5), RULE(1, 0, .3), RULE(.8, 100, .95), RULE(1, 0, .999),
    };

    for (size_t i = 0; i < GPT_COUNT(rules); i++) {
        test_against_slow(&rules[i], 400);
        test_against_slow(&rules[i], 17);
    }
}

/* Each token that is kept, and no other, at the middle of its share of [0, 1):
 * of vocabularies that have several blocks, and weights from nearly equal to
 * some that vanish. */
static void test_nucleus(void)
{
    static const double temperatures[] = {1e-3, .1, .4, 1, 4, 1000};
    static const double ps[] = {1e-9, .03, .5, .9, .99, .999999, 1 - 1e-13};
    static float logits[IDS];
    static double weight[IDS];
    struct gpt_rng rng = gpt_rng_open(8, "test");
    int wrong = 0, cases = 0;

    for (size_t t = 0; t < GPT_COUNT(temperatures); t++)
        for (size_t k = 0; k < GPT_COUNT(ps); k++, cases++) {
            const struct gpt_sampling rule = {
                .temperature = temperatures[t], .top_p = ps[k],
                .top_k = cases % 3 == 2 ? 700 : 0};
            const int n = cases % 2 ? IDS : 1000;
            double total = 0, before = 0;

            for (int i = 0; i < n; i++)
                logits[i] = 3 * gpt_rng_normal(rng, (uint64_t)(i + 5 * cases));
            kept_slowly(logits, n, &rule, weight);
            for (int i = 0; i < n; i++)
                total += weight[i];
            for (int i = 0; i < n; before += weight[i++]) {
                const double u = (before + weight[i] / 2) / total;
                int32_t token = -1;

                /* shares that are no larger than what sums are off by */
                if (weight[i] < 1e-11 * total)
                    continue;
                wrong += gpt_sample(sampler, logits, n, &rule, u, &token,
                                    NULL) != GPT_OK || token != i;
            }
        }
    is_int(wrong, 0, "%d nuclei of many tokens", cases);
}

static void test_streams(void)
{
    struct gpt_rng a = gpt_sample_rng(1, 0, 0), b = gpt_sample_rng(1, 0, 1);
    struct gpt_rng c = gpt_sample_rng(1, 1, 0), d = gpt_sample_rng(2, 0, 0);
    double u = gpt_sample_uniform(a, 5);

    ok(u >= 0 && u < 1, "u is in [0, 1)");
    ok(u == gpt_sample_uniform(gpt_sample_rng(1, 0, 0), 5), "and repeatable");
    ok(u != gpt_sample_uniform(a, 6), "position counts");
    ok(u != gpt_sample_uniform(b, 5), "sample counts");
    ok(u != gpt_sample_uniform(c, 5), "request counts");
    ok(u != gpt_sample_uniform(d, 5), "seed counts");
    double lowest = 1, highest = 0, sum = 0;
    for (int i = 0; i < 10000; i++) {
        u = gpt_sample_uniform(a, i);
        lowest = fmin(lowest, u);
        highest = fmax(highest, u);
        sum += u;
    }
    ok(lowest >= 0 && lowest < .001 && highest < 1 && highest > .999,
       "spread over [0, 1)");
    is_near(sum / 10000, .5, 0, .015, "with mean 1/2");
}

/* ---- both semantics, against transformers and a slow Megatron ---- */

static int read_ids(FILE *f, const char *name, int32_t *ids)
{
    double values[GOLDEN_MAX];
    int n = golden_array(f, name, values);

    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)values[i];
    return n;
}

/* A rule, or the end of the file: "end 0". */
static int golden_rule(FILE *f, double *r)
{
    char word[16];
    long at = ftell(f);

    if (fscanf(f, " %15s", word) == 1 && strcmp(word, "end") == 0)
        return 0;
    fseek(f, at, SEEK_SET);
    return golden_array(f, "rule", r);
}

static void test_golden(void)
{
    FILE *f = golden_open("tests/golden/sampling.txt");
    double r[GOLDEN_MAX], values[GOLDEN_MAX];
    int32_t prompt[16], text[16], kept[32], counts[32] = {0};
    int cases = 0, n_rule;

    for (; (n_rule = golden_rule(f, r)) == 8; cases++) {
        struct gpt_sampling rule = RULE(r[1], (int64_t)r[2], r[3]);
        float logits[32];
        double off = 0;
        unsigned want = 0;

        rule.semantics = r[0] != 0 ? GPT_HUGGING_FACE : GPT_MEGATRON;
        rule.min_p = r[4];
        rule.repetition_penalty = r[5];
        rule.presence_penalty = r[6];
        rule.frequency_penalty = r[7];
        int n = golden_array(f, "logits", values);
        for (int i = 0; i < n; i++)
            logits[i] = (float)values[i];
        struct gpt_history h = {.prompt = prompt, .text = text};
        h.n_prompt = read_ids(f, "prompt", prompt);
        h.n_text = read_ids(f, "text", text);
        gpt_adjust(logits, n, &rule, &h, counts);
        golden_array(f, "adjusted", values);
        for (int i = 0; i < n; i++)
            off = fmax(off, fabs((double)logits[i] - values[i]) + counts[i]);
        ok(off < 1e-5, "case %d: penalties, off by %g", cases, off);
        for (int i = read_ids(f, "kept", kept); i > 0; i--)
            want |= 1U << kept[i - 1];
        unsigned got = reachable(logits, n, &rule);
        if (!ok(got == want, "case %d: the tokens that are kept", cases))
            printf("# got %#x, want %#x\n", got, want);
    }
    ok(cases == 240, "%d cases", cases);
    fclose(f);
}

static void test_adjustments(void)
{
    const struct gpt_bias bias[] = {{1, 2.5F}, {2, -INFINITY}, {9, 1}};
    const int32_t prompt[] = {0, 3};
    int32_t counts[4] = {0};
    float logits[4] = {0};
    struct gpt_sampling rule = RULE(1, 0, 0);
    const struct gpt_history h = {.prompt = prompt, .n_prompt = 2};

    ok(!gpt_adjusts(&rule), "no rule changes nothing");
    rule.bias = bias;
    rule.n_bias = 3;
    rule.after_colon = true;
    rule.colon = 3;
    rule.newline = 0;
    ok(gpt_adjusts(&rule), "a bias does");
    gpt_adjust(logits, 4, &rule, &h, counts);
    is_near((double)logits[1], 2.5, 0, 0, "a bias is added");
    ok(logits[2] == -INFINITY, "a token can be forbidden");
    ok(logits[0] == -INFINITY, "no newline after the prompt's colon");
    is_near((double)logits[3], 0, 0, 0, "others stay");
}

/* Megatron: p * decay after each token, never below the bound. */
static void test_decay(void)
{
    struct gpt_sampling rule = RULE(1, 0, 0.8);
    double p = 0.8;

    is_near(gpt_sampling_next_p(&rule, p), 0.8, 0, 0, "no decay");
    rule.top_p_bound = 0.5;
    is_near(gpt_sampling_next_p(&rule, p), 0.8, 0, 0,
            "a bound alone does nothing");
    rule.top_p_decay = 0.75;
    p = gpt_sampling_next_p(&rule, p);
    is_near(p, 0.6, 1e-15, 0, "a decay multiplies");
    p = gpt_sampling_next_p(&rule, p);
    is_near(p, 0.5, 0, 0, "down to the bound");
    rule.top_p_bound = 0;
    is_near(gpt_sampling_next_p(&rule, 0.5), 0.375, 1e-15, 0,
            "without a bound further");
    is_near(gpt_sampling_next_p(&rule, 0), 0, 0, 0, "off stays off");
}

/* Vocabularies around the sizes of blocks, with many equal logits: the best
 * token, and the first and the last of those that top-k keeps. */
static void test_blocks(void)
{
    static const int64_t sizes[] = {1, 63, 64, 65, 127, 129, 512};
    float logits[512];
    int bad = 0;

    for (size_t n = 0; n < GPT_COUNT(sizes); n++)
        for (int64_t k = 1; k <= sizes[n]; k += 5) {
            const struct gpt_sampling rule = {.temperature = 1, .top_k = k},
                                      greedy = {.temperature = 0};
            int32_t got[3], want[3] = {-1, -1, -1};

            for (int64_t i = 0; i < sizes[n]; i++)
                logits[i] = (float)((i * 37 + 5 * k) % 23);
            for (int64_t i = 0; i < sizes[n]; i++) {
                int64_t above = 0;

                for (int64_t j = 0; j < sizes[n]; j++)
                    above += logits[j] > logits[i];
                if (above == 0 && want[0] < 0)
                    want[0] = (int32_t)i;
                if (above < k && want[1] < 0)
                    want[1] = (int32_t)i;
                if (above < k)
                    want[2] = (int32_t)i;
            }
            /* Megatron takes a top-k of one for greedy */
            if (k == 1)
                want[1] = want[2] = want[0];
            bad += gpt_sample(sampler, logits, sizes[n], &greedy, 0, &got[0],
                              NULL) != GPT_OK ||
                   gpt_sample(sampler, logits, sizes[n], &rule, 0, &got[1],
                              NULL) != GPT_OK ||
                   gpt_sample(sampler, logits, sizes[n], &rule, 1, &got[2],
                              NULL) != GPT_OK ||
                   memcmp(got, want, sizeof(got)) != 0;
        }
    is_int(bad, 0, "candidates of any place");
    logits[300] = NAN;
    const struct gpt_sampling greedy = {.temperature = 0};
    int32_t token;
    is_int(gpt_sample(sampler, logits, 512, &greedy, 0, &token, NULL),
           GPT_EDIVERGED, "and what is no number is found there");
}

int main(void)
{
    if (gpt_sampler_open(&sampler, IDS, NULL) != GPT_OK)
        return 1;
    test_truths();
    test_bad_logits();
    test_distribution();
    test_nucleus();
    test_streams();
    test_golden();
    test_adjustments();
    test_decay();
    test_blocks();
    gpt_sampler_close(sampler);
    return tap_done();
}
