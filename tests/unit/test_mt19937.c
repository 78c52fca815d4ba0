/* numpy.random.RandomState: expected values come from numpy itself. */
#include "data/mt19937.h"

#include "tests/lib/tap.h"

static void test_words(void)
{
    /* RandomState(seed).randint(0, 2**32, size=4, dtype=uint32) */
    static const struct {
        uint32_t seed, want[4];
    } rows[] = {
        {0, {2357136044, 2546248239, 3071714933, 3626093760}},
        {42, {1608637542, 3421126067, 4083286876, 787846414}},
        {1234, {822569775, 2137449171, 2671936806, 3512589365}},
        {4294967295, {419326371, 479346978, 3918654476, 2416749639}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gpt_mt19937 mt;
        gpt_mt19937_seed(&mt, rows[i].seed);
        for (int k = 0; k < 4; k++)
            is_int(gpt_mt19937_u32(&mt), rows[i].want[k], "seed %u, word %d",
                   rows[i].seed, k);
    }
    /* The 10000th word for seed 5489, which the C++ standard fixes. */
    struct gpt_mt19937 mt;
    uint32_t word = 0;
    gpt_mt19937_seed(&mt, 5489);
    for (int k = 0; k < 10000; k++)
        word = gpt_mt19937_u32(&mt);
    is_int(word, 4123659995, "ten thousand words");
}

static void test_shuffle(void)
{
    /* RandomState(seed).shuffle(arange(10)) */
    static const struct {
        uint32_t seed, want[10];
    } rows[] = {
        {0, {2, 8, 4, 9, 1, 6, 7, 3, 0, 5}},
        {42, {8, 1, 5, 0, 7, 2, 9, 4, 3, 6}},
        {1234, {7, 2, 9, 1, 0, 8, 4, 5, 6, 3}},
        {4294967295, {6, 9, 5, 1, 8, 0, 7, 4, 2, 3}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gpt_mt19937 mt;
        uint32_t a[10];
        for (uint32_t k = 0; k < 10; k++)
            a[k] = k;
        gpt_mt19937_seed(&mt, rows[i].seed);
        gpt_mt19937_shuffle(&mt, a, 10);
        ok(memcmp(a, rows[i].want, sizeof a) == 0, "shuffle with seed %u",
           rows[i].seed);
    }
    enum { N = 100000 };
    static uint32_t a[N];
    struct gpt_mt19937 mt;
    uint64_t sum = 0;
    for (uint32_t k = 0; k < N; k++)
        a[k] = k;
    gpt_mt19937_seed(&mt, 7);
    gpt_mt19937_shuffle(&mt, a, N);
    for (uint64_t k = 0; k < N; k++)
        sum += a[k] * k % 1000003;
    is_int(sum, 50011800984, "shuffle of 100000");
}

static void test_interval(void)
{
    struct gpt_mt19937 mt, other;
    gpt_mt19937_seed(&mt, 3);
    gpt_mt19937_seed(&other, 3);
    is_int(gpt_mt19937_interval(&mt, 0), 0, "[0, 0] is 0");
    is_int(gpt_mt19937_u32(&mt), gpt_mt19937_u32(&other), "and draws nothing");

    int outside = 0, seen[6] = {0};
    for (int i = 0; i < 1000; i++) {
        uint64_t v = gpt_mt19937_interval(&mt, 5);
        if (v > 5)
            outside++;
        else
            seen[v]++;
    }
    is_int(outside, 0, "[0, 5] stays inside");
    ok(seen[0] > 0 && seen[5] > 0, "and reaches both ends");

    gpt_mt19937_seed(&mt, 3);
    gpt_mt19937_seed(&other, 3);
    uint64_t high = gpt_mt19937_u32(&other), low = gpt_mt19937_u32(&other);
    ok(gpt_mt19937_interval(&mt, UINT64_MAX) == (high << 32 | low),
       "64 bits: the high word first");
    gpt_mt19937_seed(&mt, 3);
    ok(gpt_mt19937_interval(&mt, UINT32_MAX) == high,
       "32 bits are one word");
}

int main(void)
{
    test_words();
    test_shuffle();
    test_interval();
    return tap_done();
}
