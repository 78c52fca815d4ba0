/* Compares the three indices of a split with Megatron's; limits of the plan of
 * epochs. */
#include "data/sample_index.h"

#include "base/signals.h"
#include "tests/unit/golden.h"

#include <signal.h>

static void test_golden(void)
{
    FILE *f = golden_open("tests/golden/samples.txt");
    char line[256];
    int cases = 0;

    while (golden_next(f, "index", line, sizeof(line))) {
        long long begin, end, seq_length, wanted, seed;
        double values[GOLDEN_MAX];
        int32_t lengths[GOLDEN_MAX];

        if (sscanf(line, "%lld %lld %lld %lld %lld", &begin, &end, &seq_length,
                   &wanted, &seed) != 5)
            exit(1);
        int n = golden_array(f, "lengths", values);
        for (int i = 0; i < n; i++)
            lengths[i] = (int32_t)values[i];
        const struct gpt_samples_source source = {
            (const uint8_t *)lengths, begin, end, seq_length, wanted,
            (uint32_t)seed, false, false, false};
        struct gpt_samples s;
        struct gpt_err err = {0};
        cases++;
        if (!ok(gpt_samples_build(&s, &source, &err) == GPT_OK,
                "case %d: [%lld, %lld) length %lld, %lld wanted, seed %lld",
                cases, begin, end, seq_length, wanted, seed))
            continue;
        GOLDEN_IS(f, "document", s.document, s.n_visits, "document index");
        GOLDEN_IS(f, "visit", s.visit, s.plan.n + 1, "sample index");
        GOLDEN_IS(f, "offset", s.offset, s.plan.n + 1, "offsets");
        GOLDEN_IS(f, "shuffle", s.shuffle, s.plan.n, "shuffle index");
        gpt_samples_free(&s);
    }
    fclose(f);
    ok(cases >= 10, "%d cases", cases);
}

static void test_plan(void)
{
    /* 101 tokens of length 10 are 10 samples an epoch; 0.8 of them 8. */
    static const struct {
        int64_t tokens, seq, wanted, epochs, n, before;
        bool separate;
    } rows[] = {
        {101, 10, 0, 1, 10, 10, false},
        {101, 10, 1, 1, 10, 10, false},
        {101, 10, 10, 1, 10, 10, false},
        {101, 10, 11, 2, 20, 10, true},   /* 1 of the last epoch < 8 */
        {101, 10, 17, 2, 20, 10, true},   /* 7 < 8 */
        {101, 10, 18, 2, 20, 10, false},  /* 8: not fewer */
        {101, 10, 20, 2, 20, 20, false},
        {101, 10, 1000, 100, 1009, 999, true},
        {9, 8, 1, 1, 1, 1, false},
        {9, 8, 2, 2, 2, 2, false},
        {2, 1, 5, 3, 5, 5, false},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        struct gpt_samples_plan p;

        ok(gpt_samples_plan(&p, rows[i].tokens, rows[i].seq, rows[i].wanted),
           "plan %zu", i);
        is_int(p.epochs, rows[i].epochs, "epochs");
        is_int(p.n, rows[i].n, "samples");
        is_int(p.separate, rows[i].separate, "last epoch by itself");
        if (rows[i].separate)
            is_int(p.n_before, rows[i].before, "samples before it");
    }
    struct gpt_samples_plan p;
    ok(!gpt_samples_plan(&p, 100, INT64_MAX / 2, 3), "overflow is seen");
}

static void test_refused(void)
{
    static const int32_t lengths[] = {3, 0, 5};
    struct gpt_samples_source source = {(const uint8_t *)lengths, 0, 3, 8, 1,
                                        1, false, false, false};
    struct gpt_samples s;
    struct gpt_err err = {0};

    is_int(gpt_samples_build(&s, &source, &err), GPT_EDATA,
           "8 tokens are too few for length 8");
    ok(strstr(err.text, "3 sequences with 8 tokens") &&
           strstr(err.text, "takes 9"), "numbers: %s", err.text);
    source.begin = 1;
    source.end = 2;
    source.seq_length = 1;
    is_int(gpt_samples_build(&s, &source, &err), GPT_EDATA, "no token");
    source.end = 1;
    is_int(gpt_samples_build(&s, &source, &err), GPT_EDATA, "no sequence");
    source = (struct gpt_samples_source){(const uint8_t *)lengths, 0, 3, 1,
                                         UINT32_MAX, 1, false,
                                         false, false};
    is_int(gpt_samples_build(&s, &source, &err), GPT_EDATA,
           "more samples than 32 bits number");
}

/* A sample a sequence, also an empty one: each epoch has every sequence once,
 * shuffled by itself, or all in order. */
static void test_documents(void)
{
    enum { N = 50 };
    static const int32_t lengths[N] = {7, 0, 3};
    struct gpt_samples_source source = {.lengths = (const uint8_t *)lengths,
                                        .begin = 0, .end = N, .seq_length = 8,
                                        .wanted = 2 * N + 1, .seed = 3,
                                        .documents = true};

    for (int ordered = 0; ordered < 2; ordered++) {
        int seen[N] = {0}, moved = 0, wrong = 0;
        struct gpt_samples s;
        struct gpt_err err = {0};

        source.in_order = ordered;
        if (!ok(gpt_samples_build(&s, &source, &err) == GPT_OK, "documents"))
            continue;
        is_int(s.plan.n, 3 * N, "samples of three epochs");
        for (int64_t i = 0; i < s.plan.n; i++) {
            const uint32_t k = s.document[s.visit[s.shuffle[i]]];

            wrong += seen[k]++ != i / N || s.offset[s.shuffle[i]] != 0;
            moved += k != i % N;
        }
        is_int(wrong, 0, "every sequence once an epoch");
        ok(ordered ? moved == 0 : moved > N, "%d of them not in their place",
           moved);
        gpt_samples_free(&s);
    }
}

/* After all others: every index ends after a signal. */
static void test_stopped(void)
{
    static const int32_t lengths[] = {7, 3};
    struct gpt_samples_source source = {.lengths = (const uint8_t *)lengths,
                                        .end = 2, .seq_length = 4,
                                        .wanted = 100, .seed = 1};
    struct gpt_samples s;

    gpt_signals_adopt(SIGTERM);
    for (int documents = 0; documents < 2; documents++) {
        struct gpt_err err = {0};

        source.documents = documents;
        is_int(gpt_samples_build(&s, &source, &err), GPT_EFAIL,
               "an index ends when a signal asks to stop");
        is_str(err.text, "stopped by SIGTERM", "which is said");
        ok(!s.document && !s.shuffle, "nothing is left of it");
    }
}

int main(void)
{
    test_golden();
    test_plan();
    test_refused();
    test_documents();
    test_stopped();
    return tap_done();
}
