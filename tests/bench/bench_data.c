/* Speed of opening and reading a corpus: the check of an index, the three
 * indices of a split, blends, samples. A floor is the time to touch the
 * necessary bytes at the bandwidth of this machine. */
#include "data/blend.h"
#include "data/corpus.h"
#include "data/idx.h"
#include "data/indexed.h"
#include "data/mt19937.h"
#include "data/sample_index.h"
#include "tests/bench/bench.h"
#include "tests/lib/tree.h"
#include "tests/lib/writer.h"

enum { SEQUENCES = 10000000, LENGTH = 300, T = 1024, SHORT_SET = 100000 };

static void die(const struct gpt_err *err)
{
    fprintf(stderr, "bench: %s\n", err->text);
    exit(1);
}

struct image {
    uint8_t *bytes;
    int64_t size, tokens;
};

/* An .idx of documents with 1 to 2 * LENGTH tokens. */
static struct image make_image(void)
{
    struct image im = {NULL, 42 + 20 * (int64_t)SEQUENCES, 0};

    im.bytes = malloc((size_t)im.size);
    if (!im.bytes || !gpt_idx_header(im.bytes, GPT_U16, SEQUENCES, SEQUENCES))
        exit(1);
    uint8_t *lengths = im.bytes + GPT_IDX_HEADER;
    uint8_t *pointers = lengths + 4 * (size_t)SEQUENCES;
    uint8_t *documents = pointers + 8 * (size_t)SEQUENCES;
    for (int64_t i = 0; i <= SEQUENCES; i++) {
        int32_t n = 1 + (int32_t)((uint64_t)i * 2654435761u % (2 * LENGTH));
        int64_t at = 2 * im.tokens;

        memcpy(documents + 8 * i, &i, 8);
        if (i == SEQUENCES)
            break;
        memcpy(lengths + 4 * i, &n, 4);
        memcpy(pointers + 8 * i, &at, 8);
        im.tokens += n;
    }
    return im;
}

static void check_image(void *ctx)
{
    struct image *im = ctx;
    struct gpt_idx idx;
    struct gpt_err err;

    if (gpt_idx_parse(&idx, im->bytes, im->size, 2 * im->tokens, "bench",
                      &err) != GPT_OK)
        die(&err);
}

static void build_samples(void *ctx)
{
    struct image *im = ctx;
    struct gpt_samples s;
    struct gpt_err err;
    const struct gpt_samples_source source = {
        .lengths = im->bytes + GPT_IDX_HEADER,
        .end = SEQUENCES,
        .seq_length = T,
        .seed = 1234,
    };

    if (gpt_samples_build(&s, &source, &err) != GPT_OK)
        die(&err);
    gpt_samples_free(&s);
}

struct shuffle {
    uint32_t *a;
};

static void shuffle_all(void *ctx)
{
    struct shuffle *s = ctx;
    struct gpt_mt19937 mt;

    gpt_mt19937_seed(&mt, 1);
    gpt_mt19937_shuffle(&mt, s->a, SEQUENCES);
}

struct mixture {
    int n;
    double w[10000];
    int64_t size;
};

static void blend(void *ctx)
{
    struct mixture *m = ctx;
    struct gpt_blend b;
    struct gpt_err err;

    if (gpt_blend_build(&b, m->w, m->n, m->size, &err) != GPT_OK)
        die(&err);
    gpt_blend_free(&b);
}

struct fetch {
    struct gpt_corpus *c;
    int64_t next;
};

enum { FETCHES = 1000 };

static void fetch(void *ctx)
{
    struct fetch *f = ctx;
    int32_t x[T + 1];
    struct gpt_err err;

    for (int i = 0; i < FETCHES; i++, f->next++)
        if (gpt_corpus_get(f->c, GPT_TRAIN,
                           f->next % gpt_corpus_size(f->c, GPT_TRAIN), x,
                           &err) != GPT_OK)
            die(&err);
}

/* A data set on disk, 16 bits, of SHORT_SET documents. */
static void write_set(const char *prefix)
{
    static uint16_t tokens[2 * LENGTH];
    struct gpt_indexed_writer *w;
    struct gpt_err err;
    int32_t one = 1;

    if (writer_open(&w, prefix, GPT_U16, 0, &err) != GPT_OK)
        die(&err);
    for (int i = 0; i < SHORT_SET; i++) {
        int32_t n = 1 + (int32_t)((uint64_t)i * 2654435761u % (2 * LENGTH));
        const struct gpt_indexed_block b = {tokens, n, &n, 1, &one, 1};

        tokens[i % (2 * LENGTH)] = (uint16_t)i;
        if (gpt_indexed_writer_add(w, &b, &err) != GPT_OK)
            die(&err);
    }
    if (writer_commit(w, &err) != GPT_OK)
        die(&err);
}

static void bench_fetch(double copy)
{
    char dir[] = "/tmp/gpt-bench.XXXXXX", prefix[64];
    const char *const impls[] = {"mmap", "cached", "lazy"};

    make_tree(dir);
    snprintf(prefix, sizeof(prefix), "%s/set", dir);
    write_set(prefix);
    const char *const paths[] = {prefix};
    for (int i = 0; i < 3; i++) {
        struct gpt_corpus_options o = {.data_path = paths, .n_data_path = 1,
                                       .split = "1", .impl = impls[i],
                                       .seq_length = T, .seed = 1,
                                       .n_samples = {1, 0, 0},
                                       .vocab_size = 65536};
        struct fetch f = {NULL, 0};
        struct gpt_err err;
        char name[64];

        if (gpt_corpus_open(&f.c, &o, &err) != GPT_OK)
            die(&err);
        double t = bench_time(fetch, &f, 0.3) / FETCHES / (T + 1);
        snprintf(name, sizeof(name), "sample of %d, %s", T, impls[i]);
        bench_row(name, 1e-6 / t, "Mtok/s", copy / 6 * 1e-6, -1);
        gpt_corpus_close(f.c);
    }
    remove_tree(dir);
}

int main(void)
{
    double read, copy;
    struct image im = make_image();

    bench_bandwidth(&read, &copy);
    bench_head();
    double t = bench_time(check_image, &im, 0.3);
    bench_row("check .idx of 1e7 sequences", 1e-6 * SEQUENCES / t, "Mseq/s",
              read / 20 * 1e-6, -1);
    t = bench_time(build_samples, &im, 0.3);
    /* lengths read twice, documents written, shuffled and read */
    bench_row("three indices, 1e7 sequences", 1e-6 * SEQUENCES / t, "Mseq/s",
              copy / 24 * 1e-6, -1);
    struct shuffle s = {malloc(4 * (size_t)SEQUENCES)};
    if (!s.a)
        return 1;
    memset(s.a, 0, 4 * (size_t)SEQUENCES);
    t = bench_time(shuffle_all, &s, 0.3);
    bench_row("shuffle of 1e7, as numpy's", 1e-6 * SEQUENCES / t, "M/s",
              copy / 16 * 1e-6, -1);
    free(s.a);
    for (int n = 10; n <= 10000; n *= 10) {
        static struct mixture m;
        char name[64];

        m.n = n;
        m.size = 10000000 / n;
        for (int i = 0; i < n; i++)
            m.w[i] = 1 + i * 7919 % 1009;
        gpt_normalize(m.w, n);
        t = bench_time(blend, &m, 0.3);
        snprintf(name, sizeof(name), "blend of %d sets", n);
        bench_row(name, 1e-6 * (double)m.size / t, "M/s",
                  copy / 6 * 1e-6, -1);
    }
    free(im.bytes);
    bench_fetch(copy);
    return 0;
}
