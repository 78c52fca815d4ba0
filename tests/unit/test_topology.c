/* Compares groups and layers with Megatron's; refusals. */
#include "parallel/topology.h"

#include "tests/unit/golden.h"

enum { MAX_WORLD = 64 };

/* "0 2 4" of a rank's group. */
static void group_text(const struct gpt_topology *t, enum gpt_group kind,
                       char *text, size_t cap)
{
    int64_t ranks[MAX_WORLD], index, n;
    size_t at = 0;

    n = gpt_topology_group(t, kind, ranks, &index);
    text[0] = '\0';
    for (int64_t i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, cap - at, " %lld",
                               (long long)ranks[i]);
}

/* Every member of a golden group finds this group, and its place in it. */
static int wrong_members(long long tp, long long pp, long long world,
                         enum gpt_group kind, const double *want, int n)
{
    int wrong = 0;

    for (int i = 0; i < n; i++) {
        const int64_t size[GPT_N_DIMS] = {[GPT_TP] = tp, [GPT_PP] = pp};
        struct gpt_topology t;
        struct gpt_err err;
        int64_t ranks[MAX_WORLD], index;

        if (gpt_topology_init(&t, world, (int64_t)want[i], size, 1, &err) !=
            GPT_OK)
            return n;
        bool same = gpt_topology_group(&t, kind, ranks, &index) == n &&
                    index == i;
        for (int k = 0; same && k < n; k++)
            same = ranks[k] == (int64_t)want[k];
        wrong += !same;
    }
    return wrong;
}

static void test_groups(void)
{
    FILE *f = golden_open("tests/golden/parallel.txt");
    static const enum gpt_group kinds[] = {GPT_GROUP_TP, GPT_GROUP_DP,
                                           GPT_GROUP_PP,
                                           GPT_GROUP_EMBEDDING};
    char line[256];
    int cases = 0;

    while (golden_next(f, "sizes", line, sizeof(line))) {
        long long tp, pp, dp;

        if (sscanf(line, "%lld %lld %lld", &tp, &pp, &dp) != 3)
            exit(1);
        const long long world = tp * pp * dp;
        const long long counts[] = {pp * dp, tp * pp, tp * dp, tp * dp};
        int wrong = 0;
        for (size_t k = 0; k < GPT_COUNT(kinds); k++)
            for (long long i = 0; i < counts[k]; i++) {
                double want[GOLDEN_MAX];
                int n = golden_array(f, gpt_group_name(kinds[k]), want);

                wrong += wrong_members(tp, pp, world, kinds[k], want, n);
            }
        is_int(wrong, 0, "groups of TP %lld PP %lld DP %lld", tp, pp, dp);
        cases++;
    }
    fclose(f);
    is_int(cases, 13, "sizes");
}

static void test_members(void)
{
    const int64_t size[GPT_N_DIMS] = {[GPT_TP] = 2, [GPT_PP] = 4};
    struct gpt_topology t;
    struct gpt_err err;
    int64_t ranks[MAX_WORLD], index;
    char text[256];

    is_int(gpt_topology_init(&t, 16, 6, size, 2, &err), GPT_OK, "rank 6");
    ok(t.at[GPT_TP] == 0 && t.at[GPT_DP] == 1 && t.at[GPT_PP] == 1 &&
           t.size[GPT_DP] == 2 && t.chunks == 2,
       "coordinates");
    group_text(&t, GPT_GROUP_PP, text, sizeof(text));
    is_str(text, " 2 6 10 14", "its pipeline");
    is_int(gpt_topology_group(&t, GPT_GROUP_EMBEDDING, ranks, &index), 2,
           "embedding group");
    is_int(index, -1, "a stage between is not in it");
    is_int(gpt_topology_group(&t, GPT_GROUP_WORLD, ranks, &index), 16,
           "world");
    is_int(index, 6, "place in the world");
}

static void test_layers(void)
{
    FILE *f = golden_open("tests/golden/parallel.txt");
    char line[256];
    int cases = 0;

    while (golden_next(f, "layers", line, sizeof(line))) {
        long long layers, stages, chunks, first, last;
        struct gpt_topology t;
        struct gpt_err err = {0};
        double want[GOLDEN_MAX];
        int wrong = 0, k = 0;

        if (sscanf(line, "%lld %lld %lld %lld %lld", &layers, &stages, &chunks,
                   &first, &last) != 5)
            exit(1);
        golden_array(f, "chunks", want);
        const int64_t size[GPT_N_DIMS] = {[GPT_TP] = 1, [GPT_PP] = stages};
        if (gpt_topology_init(&t, stages, 0, size, chunks, &err) != GPT_OK)
            exit(1);
        const struct gpt_layer_cut cut = {layers, first, last};
        for (int64_t p = 0; p < stages; p++)
            for (int64_t v = 0; v < chunks; v++, k += 2) {
                int64_t begin = -1, count = -1;

                wrong += gpt_topology_layers(&t, &cut, p, v, &begin, &count,
                                             &err) != GPT_OK;
                wrong += begin != (int64_t)want[k] ||
                         count != (int64_t)want[k + 1];
            }
        is_int(wrong, 0, "%lld layers, %lld stages, %lld chunks, uneven "
               "%lld %lld", layers, stages, chunks, first, last);
        cases++;
    }
    fclose(f);
    is_int(cases, 14, "assignments of layers");
}

static void test_refused(void)
{
    static const struct {
        int64_t world, rank, tp, pp, chunks;
        const char *says;
    } rows[] = {
        {6, 0, 4, 1, 1,
         "6 ranks are not a multiple of the parallel sizes tensor 4 x"},
        {2, 0, 2, 2, 1, "not a multiple of the parallel sizes tensor 2 x "
                        "pipeline 2"},
        {4, 4, 1, 1, 1, "rank 4 is not one of 4 ranks"},
        {4, -1, 1, 1, 1, "rank -1"},
        {0, 0, 1, 1, 1, "not one of 0 ranks"},
        {4, 0, 0, 1, 1, "at least 1"},
        {4, 0, 1, -2, 1, "at least 1"},
        {4, 0, 1, 1, 0, "at least 1"},
        {4, 0, INT64_MAX, INT64_MAX, 1, "at least 1"},
        {4, 0, 4, 1, 2, "2 virtual stages need a pipeline parallel size"},
    };
    struct gpt_topology t;
    struct gpt_err err = {0};

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        const int64_t size[GPT_N_DIMS] = {[GPT_TP] = rows[i].tp,
                                          [GPT_PP] = rows[i].pp};

        ok(gpt_topology_init(&t, rows[i].world, rows[i].rank, size,
                             rows[i].chunks, &err) == GPT_EUSAGE &&
               strstr(err.text, rows[i].says),
           "refused: %s", err.text);
    }
}

static void test_layers_refused(void)
{
    static const struct {
        int64_t stages, chunks, layers, first, last;
        const char *says;
    } rows[] = {
        {4, 1, 10, 0, 0, "10 of 10 layers do not divide over 4"},
        {4, 2, 12, 0, 0, "3 layers of pipeline stage 0 do not divide into 2"},
        {4, 1, 3, 0, 0, "3 of 3 layers do not divide"},
        {4, 1, 10, 3, 0, "7 of 10 layers do not divide over 3"},
        {4, 1, 10, 6, 5, "the first and last pipeline stages take 11"},
        {2, 1, 10, 4, 5, "1 of 10 layers do not divide over 0"},
        {3, 2, 14, 4, 0, "5 layers of pipeline stage 1"},
        {3, 2, 11, 3, 0, "3 layers of pipeline stage 0"},
        {1, 1, 4, 4, 0, "at least 2"},
        {2, 1, 0, 0, 0, "at least 1 layer"},
        {2, 1, 4, -1, 0, "at least 1 layer"},
    };
    struct gpt_topology t;
    struct gpt_err err = {0};
    int64_t begin, count;

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        const int64_t size[GPT_N_DIMS] = {[GPT_TP] = 1,
                                          [GPT_PP] = rows[i].stages};

        if (gpt_topology_init(&t, rows[i].stages, 0, size, rows[i].chunks,
                              &err) != GPT_OK)
            exit(1);
        const struct gpt_layer_cut cut = {rows[i].layers, rows[i].first,
                                          rows[i].last};
        ok(gpt_topology_layers(&t, &cut, 0, 0, &begin, &count, &err) ==
               GPT_EUSAGE &&
               strstr(err.text, rows[i].says),
           "refused: %s", err.text);
    }
}

int main(void)
{
    test_groups();
    test_members();
    test_layers();
    test_refused();
    test_layers_refused();
    return tap_done();
}
