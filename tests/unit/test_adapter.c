/* What adapters are made of: patterns of names, against what Python's re says
 * of them; and merged elements, against sums that are made one by one, in
 * random matrices that lie in files in random ways. */
#include "base/memory.h"
#include "base/rng.h"
#include "checkpoint/adapter/adapter.h"
#include "checkpoint/fill.h"
#include "checkpoint/merge.h"
#include "tests/lib/tap.h"
#include "tests/lib/tensor_file.h"

enum { ELEMENTS = 1 << 20 };

static struct gpt_err err;
static struct gpt_rng rng;
static uint64_t drawn;

static int64_t draw(int64_t n) /* 0 .. n - 1 */
{
    return (int64_t)(gpt_rng_u32(rng, drawn++) % (uint64_t)n);
}

/* ---- patterns ---- */

static void test_patterns(void)
{
    static const struct {
        const char *pattern, *path;
        bool matches;
    } rows[] = {
        {"q_proj", "model.layers.0.self_attn.q_proj", true},
        {"q_proj", "q_proj", true},
        {"q_proj", "model.layers.0.self_attn.xq_proj", false},
        {"q_proj", "model.q_proj.x", false},
        {"layers.0.self_attn.q_proj", "model.layers.0.self_attn.q_proj", true},
        {"layers.0", "model.layersx0", true}, /* a dot is any character */
        {"layers\\.0", "model.layersx0", false},
        {"^model.q", "model.q", true},
        {"^q", "model.q", false},
        {"q$", "model.q", true},
        {".*proj", "a.b.c_proj", true},
        {"[qk]_proj|o", "a.k_proj", true},
        {"[qk]_proj|o", "a.o", true},
        {"[^qk]_proj", "a.k_proj", false},
        {"[]a-c]+", "x.b]c", true},
        {"layers\\.(?:[02]|1\\d)\\.x", "m.layers.17.x", true},
        {"layers\\.(?:[02]|1\\d)\\.x", "m.layers.1.x", false},
        {"\\w{3}", "a.xyz", true},
        {"\\w{3}", "a.xy", false},
        {"x{2,}", "a.xxxx", true},
        {"x{2,3}", "a.xxxx", false},
        {"x{,3}y", "a.y", true},
        {"x{,}y", "a.xxxxy", true},
        {"x{00000000000000000002}", "a.xx", true},
        {"x{a}", "a.x{a}", true},
        {"x{}", "a.x{}", true},
        {"[\\w-]+", "a.b-c", true},
        {"(?:^)*x", "a.x", true},
        {"(a|b(c|d))*e", "z.abdabce", true},
        {"(a*)*(b+)+?c?", "aaab", true},
        {"", "a.b", false},
        {"", "a.", true},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gpt_pattern *p;
        int64_t budget = 1000000;
        bool matches = !rows[i].matches;

        ok(gpt_pattern_open(&p, rows[i].pattern, "test", &err) == GPT_OK &&
               gpt_pattern_ends(&matches, p, rows[i].path, &budget, &err) ==
                   GPT_OK &&
               matches == rows[i].matches,
           "'%s' %s '%s'", rows[i].pattern,
           rows[i].matches ? "matches" : "does not match", rows[i].path);
        gpt_pattern_close(p);
    }
}

static void test_bad_patterns(void)
{
    static const char *const bad[] = {
        "(a", "a)", "*a", "a**", "[a", "[z-a]", "\\1", "(?=a)", "\\b",
        "a{5000}", "((((a{99}){99}){99}){99})", "\\", "[\\.-z]", "{2}a",
        "a*{2}", "a{2}{3}", "a{99999999999999999999}", "^*a", "$?",
    };
    struct gpt_pattern *p;
    char text[1100];
    int64_t budget = 10;
    bool matches;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ok(gpt_pattern_open(&p, bad[i], "test", &err) == GPT_EDATA && !p,
           "'%s' is refused: %s", bad[i], err.text);
    memset(text, 'a', sizeof(text));
    text[1099] = '\0';
    ok(gpt_pattern_open(&p, text, "test", &err) == GPT_EDATA, "%s", err.text);
    memset(text, '(', 300);
    text[300] = '\0';
    ok(gpt_pattern_open(&p, text, "test", &err) == GPT_EDATA, "%s", err.text);
    for (int i = 0; i < 60; i++)
        memcpy(text + 60 + 4 * i, "){1}", 5);
    ok(gpt_pattern_open(&p, text, "test", &err) == GPT_EDATA,
       "groups in groups, which are read 2^60 times: %s", err.text);
    ok(gpt_pattern_open(&p, "((((){99}){99}){99}){99}", "test", &err) ==
           GPT_EDATA,
       "so are groups of nothing: %s", err.text);
    ok(gpt_pattern_open(&p, "(a*)*b", "test", &err) == GPT_OK &&
           gpt_pattern_ends(&matches, p, "aaaaaaaaaaaaaaaa", &budget, &err) ==
               GPT_EDATA,
       "steps are counted: %s", err.text);
    gpt_pattern_close(p);
}

/* A file may have very many of them. */
static void test_small_patterns(void)
{
    enum { N = 1000 };
    static struct gpt_pattern *p[N];
    const double before = gpt_memory_resident();
    bool opened = true;

    for (int i = 0; i < N; i++)
        opened &= gpt_pattern_open(&p[i], "a", "test", &err) == GPT_OK;
    ok(opened && gpt_memory_resident() - before < N * 3e3,
       "a short pattern takes little memory: %d bytes",
       (int)((gpt_memory_resident() - before) / N));
    for (int i = 0; i < N; i++)
        gpt_pattern_close(p[i]);
}

/* ---- merging ---- */

/* Elements of the file, small and of all signs. */
static double number(int64_t i)
{
    return (double)((i * 7919) % 1009 - 504) / 4096;
}

/* A matrix somewhere in a file: rows or columns together, with room between, in
 * one piece or cut in two by rows or by columns. */
static struct gpt_tensor place(struct gpt_in *in, enum gpt_dtype type,
                               int64_t rows, int64_t columns)
{
    const int64_t size = (int64_t)gpt_dtype_bytes(type), shape[2] = {rows,
                                                                     columns};
    const bool turned = draw(2);
    const int64_t pitch = (turned ? rows : columns) + draw(3);
    struct gpt_tensor t = gpt_tensor_make("w", type, 2, shape);
    const int d = (int)draw(2);
    const int64_t cut = draw(shape[d] + 1);

    for (int k = 0; k < 2; k++) {
        struct gpt_file_box b = {.in = in, .dtype = type,
                                 .shape = {rows, columns}};

        b.stride[turned] = pitch * size;
        b.stride[!turned] = size;
        b.begin[d] = k ? cut : 0;
        b.shape[d] = k ? shape[d] - cut : cut;
        /* halves in the places of a whole, or apart */
        b.offset = (draw(2) ? 0 : k * 9000) * size + b.begin[d] * b.stride[d];
        if (b.shape[d] && gpt_tensor_add(&t, &b, &err) != GPT_OK)
            abort();
    }
    return t;
}

/* All elements as double. */
static double *read_all(const struct gpt_tensor *t)
{
    const int64_t begin[GPT_TENSOR_DIMS] = {0};
    double *x = malloc((size_t)(t->shape[0] * t->shape[1]) * sizeof(*x));

    if (gpt_tensor_gather(t, begin, t->shape, GPT_F64, x, &err) != GPT_OK)
        abort();
    return x;
}

static double round_to(double x, enum gpt_dtype type)
{
    const float f = (float)x;

    return type == GPT_F16    ? (double)gpt_f16_to_f32(gpt_f32_to_f16(f))
           : type == GPT_BF16 ? (double)gpt_bf16_to_f32(gpt_f32_to_bf16(f))
                              : (double)f;
}

/* The merged element by the definition in merge.h. */
static double naive(const double *w, const double *left, const double *right,
                    int64_t i, int64_t j, int64_t rank, int64_t columns,
                    float scale, bool rounds, enum gpt_dtype type)
{
    double sum = 0;

    for (int64_t k = 0; k < rank; k++)
        sum += left[i * rank + k] * right[k * columns + j];
    float scaled = (float)sum * scale;
    if (rounds)
        scaled = (float)round_to((double)scaled, type);
    return round_to((double)((float)w[i * columns + j] + scaled), type);
}

/* Random boxes of the merged matrix, as its type. */
static bool compare(const struct gpt_tensor *t, const double *want)
{
    bool same = true;

    for (int n = 0; n < 20; n++) {
        int64_t begin[GPT_TENSOR_DIMS], shape[GPT_TENSOR_DIMS];

        for (int d = 0; d < 2; d++) {
            begin[d] = n ? draw(t->shape[d]) : 0;
            shape[d] = n ? 1 + draw(t->shape[d] - begin[d]) : t->shape[d];
        }
        double *x = malloc((size_t)(shape[0] * shape[1]) * sizeof(*x));
        if (gpt_tensor_gather(t, begin, shape, GPT_F64, x, &err) != GPT_OK)
            abort();
        for (int64_t i = 0; i < shape[0]; i++)
            for (int64_t j = 0; j < shape[1]; j++) {
                const double y =
                    want[(begin[0] + i) * t->shape[1] + begin[1] + j];

                same &= !(x[i * shape[1] + j] < y || x[i * shape[1] + j] > y);
            }
        free(x);
    }
    return same;
}

/* True when a random matrix of that size is merged as the definition says. */
static bool merges(struct gpt_in *in, enum gpt_dtype type,
                   struct gpt_in *factors, int64_t rows, int64_t columns,
                   int64_t rank)
{
    struct gpt_arena arena = {0};
    struct gpt_product p = {
        .what = "test",
        .left = place(factors, GPT_F32, rows, rank),
        .right = place(factors, GPT_F32, rank, columns),
        .scale = (float)(1 + draw(9)) / 3, .rounds = draw(2)};
    struct gpt_tensor w = place(in, type, rows, columns);
    double *x = read_all(&w), *a = read_all(&p.left), *b = read_all(&p.right);

    if (gpt_product_make(&p, &w, &err) != GPT_OK ||
        gpt_merge_pieces(&w, &p, &arena, &err) != GPT_OK)
        abort();
    for (int64_t i = rows * columns; i-- > 0;)
        x[i] = naive(x, a, b, i / columns, i % columns, rank, columns, p.scale,
                     p.rounds && type != GPT_F32, type);
    const bool same = compare(&w, x);
    gpt_tensor_free(&w);
    gpt_product_free(&p);
    gpt_arena_free(&arena);
    free(x);
    free(a);
    free(b);
    return same;
}

static void test_merge(enum gpt_dtype type)
{
    struct gpt_in *in = tensor_file(type, ELEMENTS, number);
    struct gpt_in *factors = tensor_file(GPT_F32, ELEMENTS, number);
    bool same = true;

    for (int n = 0; n < 60; n++) {
        const int64_t rows = 1 + draw(90), columns = 1 + draw(90);

        same &= merges(in, type, factors, rows, columns,
                       1 + draw(n % 10 ? 8 : 90));
    }
    ok(same, "random matrices of %s, in random boxes", gpt_dtype_name(type));
    gpt_in_close(in);
    gpt_in_close(factors);
}

/* Factors that are read in several parts, and lines that end inside a strip. */
static void test_wide(void)
{
    static const struct {
        int64_t rows, columns, rank;
    } sizes[] = {
        {5, 150, GPT_MERGE_RANK}, /* 64 positions at once */
        {150, 5, GPT_MERGE_RANK},
        {6, 601, 1000}, /* 256 */
        {3, 40000, 9},   /* 29120, and more than a row is read of */
        {40000, 3, 9},
    };
    struct gpt_in *in = tensor_file(GPT_BF16, ELEMENTS, number);
    struct gpt_in *factors = tensor_file(GPT_F32, ELEMENTS, number);

    for (size_t i = 0; i < GPT_COUNT(sizes); i++)
        ok(merges(in, GPT_BF16, factors, sizes[i].rows, sizes[i].columns,
                  sizes[i].rank),
           "%lld x %lld of rank %lld", (long long)sizes[i].rows,
           (long long)sizes[i].columns, (long long)sizes[i].rank);
    gpt_in_close(in);
    gpt_in_close(factors);
}

/* Lengths of outputs after the merge are those that were asked for. */
static void test_lengths(bool out_rows)
{
    const int64_t rows = 37, columns = 53, n = out_rows ? rows : columns;
    struct gpt_in *in = tensor_file(GPT_F32, ELEMENTS, number);
    struct gpt_arena arena = {0};
    struct gpt_product p = {.what = "test", .scale = 2, .out_rows = out_rows,
                            .left = place(in, GPT_F32, rows, 3),
                            .right = place(in, GPT_F32, 3, columns),
                            .lengths = gpt_tensor_make("l", GPT_F32, 1, &n)};
    struct gpt_tensor w = place(in, GPT_F32, rows, columns);
    struct gpt_file_box lengths = {.in = in, .offset = 400, .dtype = GPT_F32,
                                   .shape = {n}, .stride = {4}};
    double worst = 0;

    if (gpt_tensor_add(&p.lengths, &lengths, &err) != GPT_OK ||
        gpt_product_make(&p, &w, &err) != GPT_OK ||
        gpt_merge_pieces(&w, &p, &arena, &err) != GPT_OK)
        abort();
    double *x = read_all(&w);
    for (int64_t o = 0; o < n; o++) {
        double squares = 0;

        for (int64_t i = 0; i < (out_rows ? columns : rows); i++) {
            const double v = x[out_rows ? o * columns + i : i * columns + o];

            squares += v * v;
        }
        worst = fmax(worst,
                     fabs(sqrt(squares) - fabs(number(100 + o))));
    }
    ok(worst < 1e-6, "lengths of %s: %g apart", out_rows ? "rows" : "columns",
       worst);
    free(x);
    gpt_tensor_free(&w);
    gpt_product_free(&p);
    gpt_arena_free(&arena);
    gpt_in_close(in);
}

/* A sum that the type does not hold. */
static void test_overflow(int64_t width)
{
    const int64_t begin[GPT_TENSOR_DIMS] = {0};
    struct gpt_in *in = tensor_file(GPT_F16, ELEMENTS, number);
    struct gpt_in *factors = tensor_file(GPT_F32, ELEMENTS, number);
    struct gpt_arena arena = {0};
    struct gpt_product p = {.what = "the adapter", .scale = 1e9F,
                            .left = place(factors, GPT_F32, 8, 2),
                            .right = place(factors, GPT_F32, 2, width)};
    struct gpt_tensor w = place(in, GPT_F16, 8, width);
    uint16_t x[64];

    if (gpt_product_make(&p, &w, &err) != GPT_OK ||
        gpt_merge_pieces(&w, &p, &arena, &err) != GPT_OK)
        abort();
    is_int(gpt_tensor_gather(&w, begin, w.shape, GPT_F16, x, &err), GPT_EDATA,
           "an overflow: %s", err.text);
    ok(strstr(err.text, "the adapter: element 0, 0 of") != NULL,
       "names the first place");
    gpt_tensor_free(&w);
    gpt_product_free(&p);
    gpt_arena_free(&arena);
    gpt_in_close(in);
    gpt_in_close(factors);
}

int main(void)
{
    rng = gpt_rng_open(38, "adapter");
    test_patterns();
    test_bad_patterns();
    test_small_patterns();
    test_merge(GPT_F32);
    test_merge(GPT_BF16);
    test_merge(GPT_F16);
    test_wide();
    test_lengths(true);
    test_lengths(false);
    test_overflow(8);
    test_overflow(1);
    return tap_done();
}
