/* Compares the checkpoint plan with a naive model, element by element: random
 * tensors in a file, cut into random boxes with permuted strides, behind random
 * views, read in random boxes and types. */
#include "checkpoint/fill.h"
#include "checkpoint/move_internal.h"
#include "checkpoint/plan.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/rng.h"
#include "tests/lib/tap.h"
#include "tests/lib/tensor_file.h"

#include <stdatomic.h>
#include <unistd.h>

enum { D = GPT_TENSOR_DIMS, ELEMENTS = 1 << 14 };

static struct gpt_err err;
static struct gpt_rng rng;
static uint64_t drawn;

static int64_t draw(int64_t n) /* 0 .. n - 1 */
{
    return (int64_t)(gpt_rng_u32(rng, drawn++) % (uint64_t)n);
}

/* Element i of the file, exact in every float type but rounded in half. */
static double element(int64_t i)
{
    return (double)(i % 251) + (double)(i % 7) / 64;
}

/* Where each element of a tensor lies: an index of the file, -1 for zero. */
struct model {
    int64_t shape[D], at[ELEMENTS];
};

static int64_t flat(const struct model *m, const int64_t *i, int ndim)
{
    int64_t k = 0;

    for (int d = 0; d < ndim; d++)
        k = k * m->shape[d] + i[d];
    return k;
}

static bool next(int64_t *i, const int64_t *shape, int ndim)
{
    for (int d = ndim - 1; d >= 0; d--) {
        if (++i[d] < shape[d])
            return true;
        i[d] = 0;
    }
    return false;
}

/* Cuts [begin, begin + shape) in two at random, or makes it a piece that lies
 * anywhere in the file with its dimensions in random order. */
static void cut(struct gpt_tensor *t, struct model *m, struct gpt_in *in,
                enum gpt_dtype type, const int64_t *begin,
                const int64_t *shape, int depth)
{
    int d = (int)draw(t->ndim);

    if (depth > 0 && shape[d] > 1) {
        int64_t b[D], s[D], half = 1 + draw(shape[d] - 1);

        memcpy(b, begin, sizeof(b));
        memcpy(s, shape, sizeof(s));
        s[d] = half;
        cut(t, m, in, type, b, s, depth - 1);
        b[d] += half;
        s[d] = shape[d] - half;
        cut(t, m, in, type, b, s, depth - 1);
        return;
    }
    struct gpt_file_box p = {.in = draw(8) ? in : NULL, .dtype = type};
    int64_t stride = 1, start, i[D] = {0};
    int order[D] = {0, 1, 2, 3};
    for (int k = t->ndim - 1; k > 0; k--) {
        int j = (int)draw(k + 1), swap = order[k];

        order[k] = order[j];
        order[j] = swap;
    }
    for (int k = t->ndim - 1; k >= 0; k--) {
        p.stride[order[k]] = stride;
        stride *= shape[order[k]] + draw(2); /* gaps now and then */
    }
    start = draw(ELEMENTS - stride);
    memcpy(p.begin, begin, sizeof(p.begin));
    memcpy(p.shape, shape, sizeof(p.shape));
    do {
        int64_t g[D], at = start;

        for (int k = 0; k < t->ndim; k++) {
            g[k] = begin[k] + i[k];
            at += i[k] * p.stride[k];
        }
        m->at[flat(m, g, t->ndim)] = p.in ? at : -1;
    } while (next(i, shape, t->ndim));
    p.offset = start * (int64_t)gpt_dtype_bytes(type);
    for (int k = 0; k < t->ndim; k++)
        p.stride[k] *= (int64_t)gpt_dtype_bytes(type);
    if (gpt_tensor_add(t, &p, &err) != GPT_OK)
        abort();
}

/* What the plan reads of a random box, against the model. */
static int check_box(const struct gpt_tensor *t, const struct model *m,
                     enum gpt_dtype source)
{
    static const enum gpt_dtype types[] = {GPT_F16, GPT_BF16, GPT_F32,
                                           GPT_F64};
    enum gpt_dtype type = types[draw(4)];
    int64_t begin[D], shape[D], i[D] = {0}, n = 1, k = 0;
    int wrong = 0;

    for (int d = 0; d < t->ndim; d++) {
        begin[d] = draw(t->shape[d]);
        shape[d] = 1 + draw(t->shape[d] - begin[d]);
        n *= shape[d];
    }
    char *got = malloc((size_t)n * 8);
    size_t size = gpt_dtype_bytes(type);
    if (gpt_tensor_gather(t, begin, shape, type, got, &err) != GPT_OK) {
        printf("# %s\n", err.text);
        free(got);
        return 1;
    }
    do {
        int64_t g[D];

        for (int d = 0; d < t->ndim; d++)
            g[d] = begin[d] + i[d];
        int64_t at = m->at[flat(m, g, t->ndim)];
        double x = at < 0 ? 0 : element(at);
        char stored[8], want[8];
        gpt_convert(stored, source, &x, GPT_F64, 1);
        gpt_convert(want, type, stored, source, 1);
        wrong += memcmp(want, got + (size_t)k++ * size, size) != 0;
    } while (next(i, shape, t->ndim));
    free(got);
    return wrong;
}

static void test_random(enum gpt_dtype source)
{
    struct gpt_in *in = tensor_file(source, ELEMENTS, element);
    int wrong = 0, unchecked = 0;
    static struct model m, v;

    for (int round = 0; round < 400; round++) {
        int ndim = 1 + (int)draw(D);
        int64_t zero[D] = {0}, shape[D] = {1, 1, 1, 1};
        static const int64_t most[D] = {900, 40, 12, 6};

        for (int d = 0; d < ndim; d++)
            shape[d] = 1 + draw(most[ndim - 1]);
        struct gpt_tensor t = gpt_tensor_make("t", source, ndim, shape);
        memcpy(m.shape, shape, sizeof(shape));
        cut(&t, &m, in, source, zero, shape, (int)draw(4));
        unchecked += gpt_tensor_check(&t, "t", &err) != GPT_OK;
        wrong += check_box(&t, &m, source);
        /* a view that permutes the dimensions, shifted cyclically */
        int shift = (int)draw(ndim);
        struct gpt_map map = {.perm = {0}};
        for (int d = 0; d < ndim; d++) {
            map.perm[d] = (d + shift) % ndim;
            map.shape[d] = v.shape[d] = shape[map.perm[d]];
        }
        struct gpt_tensor view = gpt_tensor_make("v", source, ndim, v.shape);
        if (gpt_tensor_view(&view, &t, &map, 1, &err) != GPT_OK)
            abort();
        int64_t i[D] = {0}, j[D];
        do {
            for (int d = 0; d < ndim; d++)
                j[map.perm[d]] = i[d];
            v.at[flat(&v, i, ndim)] = m.at[flat(&m, j, ndim)];
        } while (next(i, v.shape, ndim));
        unchecked += gpt_tensor_check(&view, "v", &err) != GPT_OK;
        wrong += check_box(&view, &v, source);
        gpt_tensor_free(&view);
        gpt_tensor_free(&t);
    }
    is_int(wrong, 0, "%s: 400 random tensors and views",
           gpt_dtype_name(source));
    is_int(unchecked, 0, "all of them covered");
    gpt_in_close(in);
}

/* Larger than a tile, so that bands, tiles and blocks of a transposition have
 * edges; a file that is filled has the bytes that one gather gives, whatever
 * the threads are. */
static void compare_filled(const struct gpt_tensor *t, const float *want,
                           size_t bytes, int threads)
{
    struct gpt_part part = {.tensor = t, .dtype = GPT_F32, .offset = 24,
                            .bytes = (int64_t)bytes,
                            .shape = {t->shape[0], t->shape[1]}};
    struct gpt_fill fill = {.threads = threads};
    struct gpt_out *out;
    char path[300], *text = NULL;
    size_t n = 0;

    snprintf(path, sizeof(path), "%s/gpt-filled-%d",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    if (gpt_out_open(&out, path, GPT_OUT_NOSYNC, 0, &err))
        abort();
    is_int(gpt_fill(&fill, out, "x", &part, 1, true, &err), GPT_OK,
           "filled by %d threads", threads);
    if (gpt_out_commit(out, &err) ||
        gpt_read_file(path, 1 << 26, &text, &n, &err))
        abort();
    unlink(path);
    ok(n == bytes + 24 && memcmp(text + 24, want, bytes) == 0, "the same");
    ok(part.crc == gpt_crc32c(0, want, bytes) &&
           part.zip_crc == gpt_crc32(0, want, bytes) &&
           fill.bytes == (int64_t)bytes,
       "and its checksums");
    gpt_free(text);
}

/* Tiles of a tensor that will be `at` bytes behind the beginning of a file with
 * such blocks: together they are the tensor, and each begins less than a row
 * before a block does, or with the rows that follow each other; where blocks
 * are small none is empty. Returns how many do not. */
static int64_t stray_tiles(const struct gpt_tensor *t, const float *want,
                           int64_t at, int64_t block)
{
    static const int64_t zero[D];
    const int64_t row = 4 * t->shape[t->ndim - 1];
    const int64_t slab = row * t->shape[t->ndim - 2];
    struct gpt_box scratch = {0};
    struct gpt_tiling g;
    int64_t end = 0, from, bytes, strays = 0;

    if (gpt_tiling_make(&g, t, zero, t->shape, GPT_F32,
                        (struct gpt_tile_place){.at = at, .block = block},
                        &err))
        abort();
    uint8_t *got = malloc((size_t)g.most);
    for (int64_t i = 0; i < g.n; i++, end += bytes) {
        gpt_tiling_place(&g, i, &from, &bytes);
        const int64_t past = (at + from) % block;
        if (gpt_tiling_gather(&g, i, &scratch, got, &err) != GPT_OK)
            abort();
        strays += from != end || bytes > g.most ||
                  (block <= 4096 && bytes == 0) ||
                  (block > 4096 && from % slab != 0 && past != 0 &&
                   past <= block - row) ||
                  memcmp(got, (const uint8_t *)want + from, (size_t)bytes) != 0;
    }
    gpt_box_free(&scratch);
    free(got);
    return strays + (end != t->shape[0] * (t->ndim > 2 ? slab : row)) +
           (g.most > GPT_TILE_BYTES);
}

/* Where tiles end in files of large pages: of the matrix, and of as many of its
 * rows as are four slabs, each larger than a tile of a copy. */
static void test_blocks(const struct gpt_tensor *t, const float *want)
{
    const int64_t columns = t->shape[1];
    const int64_t shape[D] = {4, 1000, columns};
    struct gpt_tensor slabs = gpt_tensor_make("slabs", GPT_F32, 3, shape);
    struct gpt_file_box p = t->pieces[0];
    int64_t strays = 0;

    p.shape[2] = columns;
    p.shape[1] = shape[1];
    p.shape[0] = shape[0];
    p.stride[2] = p.stride[1];
    p.stride[1] = p.stride[0];
    p.stride[0] *= shape[1];
    if (gpt_tensor_add(&slabs, &p, &err) != GPT_OK)
        abort();
    for (int64_t block = 512 << 10; block <= 4 << 20; block *= 2)
        for (int64_t at = 0; at < 3 * block; at += block - 24)
            strays += stray_tiles(t, want, at, block) +
                      stray_tiles(&slabs, want, at, block);
    is_int(strays, 0, "tiles end where blocks of a file do");
    is_int(stray_tiles(&slabs, want, 24, 4096), 0,
           "small blocks do not matter");
    gpt_tensor_free(&slabs);
}

static void test_large(void)
{
    enum { R = 4099, C = 1031 };
    static const int64_t zero[D], shape[D] = {R, C};
    char path[300];
    struct gpt_out *out;
    struct gpt_in *in;
    float *x = malloc(sizeof(*x) * R * C), *got = malloc(sizeof(*x) * R * C);
    snprintf(path, sizeof(path), "%s/gpt-plan-%d",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    for (int64_t i = 0; i < R * C; i++)
        x[i] = (float)i;
    if (gpt_out_open(&out, path, GPT_OUT_NOSYNC, 0, &err) ||
        gpt_out_write(out, x, sizeof(*x) * R * C, &err) ||
        gpt_out_commit(out, &err) || gpt_in_open(&in, path, &err))
        abort();
    unlink(path);
    for (int swap = 0; swap < 2; swap++) {
        struct gpt_tensor t = gpt_tensor_make("t", GPT_F32, 2, shape);
        struct gpt_file_box p = {.in = in, .dtype = GPT_F32,
                              .shape = {R, C}, .stride = {4 * C, 4}};

        if (swap) {
            p.stride[0] = 4;
            p.stride[1] = 4 * R;
        }
        if (gpt_tensor_add(&t, &p, &err) != GPT_OK)
            abort();
        is_int(gpt_tensor_gather(&t, zero, shape, GPT_F32, got, &err), GPT_OK,
               "%s matrix", swap ? "transposed" : "plain");
        int64_t wrong = 0;
        for (int64_t r = 0; r < R; r++)
            for (int64_t c = 0; c < C; c++) {
                int64_t at = swap ? c * R + r : r * C + c;
                float want = x[at];

                wrong += memcmp(&want, &got[r * C + c], sizeof(want)) != 0;
            }
        is_int(wrong, 0, "every element");
        compare_filled(&t, got, sizeof(*x) * R * C, 1);
        compare_filled(&t, got, sizeof(*x) * R * C, 3);
        test_blocks(&t, got);
        gpt_tensor_free(&t);
    }
    gpt_in_close(in);
    free(x);
    free(got);
}

/* The left quarter of a matrix, in half the bytes, while another process cuts
 * the file: rows lie too far apart to be looked at together, and what has gone
 * is an error, never zeros. */
static void test_cut(void)
{
    enum { R = 256, C = 4096, LEFT = C / 4 };
    static float x[R * C];
    static uint16_t got[R * LEFT];
    const int64_t zero[D] = {0}, shape[D] = {R, LEFT};
    struct gpt_tensor t = gpt_tensor_make("t", GPT_F32, 2, shape);
    struct gpt_file_box p = {.dtype = GPT_F32, .shape = {R, LEFT},
                             .stride = {4 * C, 4}};
    struct gpt_box scratch = {0};
    struct gpt_tiling g;
    char path[300];
    int status = GPT_OK;

    snprintf(path, sizeof(path), "%s/gpt-plan-%d",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    for (int64_t i = 0; i < R * C; i++)
        x[i] = 1;
    if (gpt_write_file(path, GPT_OUT_NOSYNC, x, sizeof(x), &err) ||
        gpt_in_open(&p.in, path, &err) || gpt_tensor_add(&t, &p, &err))
        abort();
    gpt_tensor_look_begin(&t);
    is_int(gpt_tiling_make(&g, &t, zero, shape, GPT_BF16,
                           (struct gpt_tile_place){.span = 1 << 16}, &err),
           GPT_OK, "tiles");
    is_int(truncate(path, sizeof(x) / 2), 0, "a source is cut");
    for (int64_t i = 0; i < g.n && status == GPT_OK; i++)
        status = gpt_tiling_gather(&g, i, &scratch, got, &err);
    is_int(status, GPT_EDATA, "and that is reported");
    unlink(path);
    gpt_box_free(&scratch);
    gpt_tensor_free(&t);
    gpt_in_close(p.in);
}

/* Boxes that do not make a tensor. */
static void test_refused(void)
{
    static const struct {
        const char *what;
        int64_t box[3][2]; /* begin and shape of up to three rows boxes */
        const char *want;
    } cases[] = {
        {"a hole", {{0, 3}, {4, 6}}, "hold 9 of 10"},
        {"nothing", {{0, 0}}, "hold 0 of 10"},
        {"an overlap", {{0, 6}, {5, 5}}, "overlap"},
        {"an overlap and a hole", {{0, 6}, {4, 4}}, "overlap"},
        {"beyond the end", {{0, 6}, {6, 5}}, "leaves its size"},
        {"beyond the end far", {{INT64_MAX, 1}}, "leaves its size"},
        {"before the start", {{-1, 11}}, "leaves its size"},
        {"more than all", {{0, INT64_MAX}}, "leaves its size"},
    };
    struct gpt_in *in = tensor_file(GPT_F32, ELEMENTS, element);

    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        int64_t shape[D] = {10};
        struct gpt_tensor t = gpt_tensor_make("t", GPT_F32, 1, shape);

        for (int k = 0; k < 3; k++) {
            struct gpt_file_box p = {.begin = {cases[i].box[k][0]},
                                  .shape = {cases[i].box[k][1]},
                                  .in = in, .stride = {4}, .dtype = GPT_F32};

            if (p.shape[0] && gpt_tensor_add(&t, &p, &err) != GPT_OK)
                abort();
        }
        ok(gpt_tensor_check(&t, "FILE", &err) == GPT_EDATA &&
               strstr(err.text, cases[i].want),
           "%s: %s", cases[i].what, err.text);
        gpt_tensor_free(&t);
    }
    int64_t shape[D] = {10}, begin[D] = {0};
    float got[10];
    struct gpt_tensor t = gpt_tensor_make("t", GPT_F32, 1, shape);
    is_int(gpt_tensor_gather(&t, begin, shape, GPT_F32, got, &err), GPT_EDATA,
           "gather from nothing: %s", err.text);
    struct gpt_file_box p = {.shape = {10}, .in = in, .stride = {8},
                          .dtype = GPT_I64};
    if (gpt_tensor_add(&t, &p, &err) != GPT_OK)
        abort();
    is_int(gpt_tensor_gather(&t, begin, shape, GPT_F32, got, &err), GPT_EDATA,
           "integers as floats: %s", err.text);
    t.pieces[0].offset = ELEMENTS * 4 - 8;
    is_int(gpt_tensor_gather(&t, begin, shape, GPT_I64, got, &err), GPT_EDATA,
           "beyond the file: %s", err.text);
    gpt_tensor_free(&t);
    gpt_in_close(in);
}

/* Rows repeated or zero when a table grows, cut when it shrinks. */
static void test_resize(void)
{
    static const int64_t zero[D], rows[] = {3, 5, 9};
    struct gpt_in *in = tensor_file(GPT_F32, ELEMENTS, element);
    int64_t shape[D] = {5, 4};
    struct gpt_tensor t = gpt_tensor_make("t", GPT_F32, 2, shape);

    if (gpt_tensor_add_rows(&t, in, 0, GPT_F32, zero, shape, &err) != GPT_OK)
        abort();
    for (int i = 0; i < 6; i++) {
        int64_t to[D] = {rows[i / 2], 4};
        bool repeat = i % 2;
        float got[36];
        int wrong = 0;
        struct gpt_tensor r = gpt_tensor_make("r", GPT_F32, 2, to);

        is_int(gpt_tensor_resize(&r, &t, repeat, &err), GPT_OK, "resize");
        is_int(gpt_tensor_check(&r, "r", &err), GPT_OK, "covered");
        is_int(gpt_tensor_gather(&r, zero, to, GPT_F32, got, &err), GPT_OK,
               "gather");
        for (int64_t k = 0; k < to[0] * 4; k++) {
            int64_t row = k / 4 < 5 ? k / 4 : 4;
            double want = k / 4 < 5 || repeat ? element(row * 4 + k % 4) : 0;

            wrong += got[k] < (float)want || got[k] > (float)want;
        }
        is_int(wrong, 0, "5 rows to %d, %s", (int)to[0],
               repeat ? "repeated" : "zero");
        gpt_tensor_free(&r);
    }
    gpt_tensor_free(&t);
    gpt_in_close(in);
}

/* A stretch of a box that is cut anywhere, in every way. */
static void test_flat(void)
{
    static const int64_t all[D] = {5, 7};
    struct gpt_in *in = tensor_file(GPT_F32, ELEMENTS, element);
    const struct gpt_file_box whole = {
        .begin = {1, 2}, .shape = {3, 4}, .in = in, .offset = 8,
        .dtype = GPT_F32};
    int wrong = 0;

    for (int64_t from = 0; from < 12; from++)
        for (int64_t end = from; end <= 12; end++) {
            struct gpt_tensor t = gpt_tensor_make("t", GPT_F32, 2, all);
            const struct gpt_tensor *p = &t;
            int64_t n = 0;

            wrong += gpt_tensor_add_flat(&t, &whole, from, end, &err) != GPT_OK;
            for (size_t i = 0; i < p->n; i++) {
                const struct gpt_file_box *box = &p->pieces[i];
                const int64_t at = from + n;

                wrong += box->begin[0] != 1 + at / 4 ||
                         box->begin[1] != 2 + at % 4 ||
                         box->offset != 8 + 4 * n ||
                         box->begin[1] + box->shape[1] > 6;
                n += box->shape[0] * box->shape[1];
            }
            wrong += n != end - from || t.n > 3;
            gpt_tensor_free(&t);
        }
    is_int(wrong, 0, "stretches of a box are boxes");
    gpt_in_close(in);
}

/* ---- several files ---- */

enum { FILES = 7 };

struct filled {
    atomic_int times[FILES], running, threads, most, first;
    int fail; /* this file does, -1: none */
};

/* What a front end does with one file, without a file. */
static int write_one(void *context, int64_t i, struct gpt_fill *share,
                     struct gpt_err *e)
{
    struct filled *f = context;
    int first = -1;

    atomic_compare_exchange_strong(&f->first, &first, (int)i);
    f->times[i]++;
    f->running += share->threads;
    if (f->running > f->most)
        f->most = f->running;
    usleep(1000);
    f->running -= share->threads;
    if (share->threads < 1 || i == f->fail)
        return gpt_fail(e, GPT_EDATA, "file %d", (int)i);
    return GPT_OK;
}

/* Each file once, the largest first, by no more threads than there are; the
 * first failure is what is returned. */
static void test_files(int threads)
{
    static const int64_t bytes[FILES] = {3, 1, 4, 1, 5, 9, 2};

    for (int fail = -1; fail < 6; fail += 3) {
        struct gpt_fill fill = {.threads = threads};
        struct filled f = {.first = -1, .fail = fail};
        bool once = true;

        is_int(gpt_fill_files(&fill, bytes, FILES, write_one, &f, &err),
               fail < 0 ? GPT_OK : GPT_EDATA, "%d threads, failure of %d",
               threads, fail);
        for (int i = 0; i < FILES; i++)
            once = once && (f.times[i] == 1 || (fail >= 0 && !f.times[i]));
        ok(once && f.most <= threads, "each at most once, by the threads");
        ok(threads > 1 || f.first == 5, "the largest is the first");
        if (fail >= 0)
            ok(f.times[fail] == 1 && err.text[5] == '0' + fail,
               "the failure that it was");
    }
}

int main(void)
{
    rng = gpt_rng_open(7, "plan");
    test_random(GPT_F32);
    test_random(GPT_BF16);
    test_random(GPT_F64);
    test_large();
    test_cut();
    test_refused();
    test_resize();
    test_flat();
    for (int threads = 1; threads <= 16; threads *= 4)
        test_files(threads);
    return tap_done();
}
