/* base/rng.h: the known answers of Philox, stability of the derived streams,
 * and moments of the draws. */
#include "base/rng.h"
#include "tests/lib/tap.h"

static void test_known_answers(void)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0},
         {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    uint32_t out[4];

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        gpt_philox(rows[i].counter, rows[i].key, out);
        ok(memcmp(out, rows[i].want, sizeof(out)) == 0, "known answer %zu", i);
    }
}

static void test_streams(void)
{
    struct gpt_rng a = gpt_rng_open(1234, "dropout");
    struct gpt_rng b = gpt_rng_open(1235, "dropout");
    struct gpt_rng c = gpt_rng_open(1234, "sample");
    int same_seed = 0, same_name = 0;
    uint32_t counter[4] = {5, 0, 0, 0}, out[4];

    for (uint64_t i = 0; i < 1000; i++) {
        same_seed += gpt_rng_u32(a, i) == gpt_rng_u32(c, i);
        same_name += gpt_rng_u32(a, i) == gpt_rng_u32(b, i);
    }
    is_int(same_seed, 0, "streams of two names differ");
    is_int(same_name, 0, "streams of two seeds differ");
    gpt_philox(counter, a.key, out);
    ok(gpt_rng_u32(a, 20) == out[0] && gpt_rng_u32(a, 23) == out[3],
       "word i is word i %% 4 of block i / 4");
    uint32_t far = gpt_rng_u32(a, (uint64_t)1 << 40);
    ok(far != gpt_rng_u32(a, 0), "the counter is 64 bits wide");
    /* Checkpoints and tests depend on these for ever. */
    ok(a.key[0] == 0x9b4a602d && a.key[1] == 0x5bddb992,
       "the key of (1234, \"dropout\") is fixed: %08x %08x", a.key[0],
       a.key[1]);
}

static void test_moments(void)
{
    enum { N = 200000 };
    struct gpt_rng r = gpt_rng_open(7, "moments");
    double sum = 0, squares = 0, cubes = 0, fourths = 0;
    double usum = 0, usquares = 0, neighbours = 0, last = 0;
    bool inside = true, alone = true;
    float next;

    for (uint64_t i = 0; i < N; i++) {
        double u = (double)gpt_rng_uniform(r, i);
        double z = (double)gpt_rng_normal(r, i);

        gpt_rng_normals(r, i, 1, &next);
        alone = alone && z == (double)next;
        inside = inside && u >= 0 && u < 1;
        usum += u;
        usquares += u * u;
        sum += z;
        squares += z * z;
        cubes += z * z * z;
        fourths += z * z * z * z;
        neighbours += z * last;
        last = z;
    }
    ok(inside, "uniform draws are in [0, 1)");
    ok(alone, "a normal alone is that of the stream");
    /* Bounds are five standard errors. */
    is_near(usum / N, 0.5, 0, 5 * 0.2887 / 447, "uniform mean");
    is_near(usquares / N, 1.0 / 3, 0, 5 * 0.298 / 447, "uniform square");
    is_near(sum / N, 0, 0, 5 / 447.0, "normal mean");
    is_near(squares / N, 1, 0, 5 * 1.414 / 447, "normal variance");
    is_near(cubes / N, 0, 0, 5 * 3.87 / 447, "normal third moment");
    is_near(fourths / N, 3, 0, 5 * 9.8 / 447, "normal fourth moment");
    is_near(neighbours / N, 0, 0, 5 / 447.0, "neighbours are independent");
}

int main(void)
{
    test_known_answers();
    test_streams();
    test_moments();
    return tap_done();
}
