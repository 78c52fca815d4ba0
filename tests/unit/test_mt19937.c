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

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
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

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct gpt_mt19937 mt;
        uint32_t a[10];

        for (uint32_t k = 0; k < 10; k++)
            a[k] = k;
        gpt_mt19937_seed(&mt, rows[i].seed);
        gpt_mt19937_shuffle(&mt, a, 10);
        ok(memcmp(a, rows[i].want, sizeof(a)) == 0, "shuffle with seed %u",
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

/* Nothing is drawn for one element, one word at least for two. */
static void test_short(void)
{
    struct gpt_mt19937 mt, other;
    uint32_t a[] = {5, 6};

    gpt_mt19937_seed(&mt, 3);
    gpt_mt19937_seed(&other, 3);
    gpt_mt19937_shuffle(&mt, a, 0);
    gpt_mt19937_shuffle(&mt, a, 1);
    is_int(gpt_mt19937_u32(&mt), gpt_mt19937_u32(&other), "nothing drawn");
    gpt_mt19937_shuffle(&mt, a, 2);
    ok(a[0] + a[1] == 11 && (a[0] == 5 || a[0] == 6), "two elements");
    ok(gpt_mt19937_u32(&mt) != gpt_mt19937_u32(&other), "one word drawn");
}

int main(void)
{
    test_words();
    test_shuffle();
    test_short();
    return tap_done();
}
