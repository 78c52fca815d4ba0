/* Moving bytes: executes a plan. gpt_tensor_pour() cuts the destination into
 * tiles, gather() a tile into bands, gather_band() meets the pieces,
 * move_box() moves one box. A box is first simplified (dimensions that lie
 * tight in source and destination become one), then it is one of three things:
 * runs of contiguous elements, a transposition done in blocks that fit the
 * cache, or single elements.
 *
 * What is only copied is moved by one thread: more would wait for the same
 * memory. Conversions and transpositions are shared out. A transposition reads
 * many short runs; when the pieces of a tile together use much of the source's
 * rows (as the heads of Q, K and V do), bands are so narrow that all of a
 * band's runs lie in one window of the file, which is read at once. */
#include "checkpoint/plan.h"

#include "base/memory.h"
#include "base/num.h"

#include <string.h>

enum {
    N = GPT_TENSOR_DIMS,
    SCRATCH = 1 << 20,    /* bytes of each of a band's two buffers */
    WINDOW = 1 << 20,     /* of a file, read at once */
    SPARSE = 8,           /* a window's runs must be 1/8 of it */
    BAND_BYTES = 1 << 20, /* less is not worth a thread */
    MAX_BANDS = 16,
    BLOCK = 32,     /* side of a transposed block, elements */
    LONGEST = 4096, /* source run of a transposition, elements */
};

/* One box: shape and strides in bytes, outermost dimension first. */
struct box {
    struct gpt_in *in;
    int64_t shape[N], from[N], to[N];
    int64_t offset;
    uint8_t *dst;
    enum gpt_dtype src_type, dst_type;
    int64_t src_size, dst_size;
    uint8_t *raw, *cast; /* scratch, `room` bytes each */
    int64_t room;
    uint8_t *window; /* NULL: not to be used */
    const struct gpt_in *window_in;
    int64_t window_at, window_bytes;
};

static int convert(const struct box *b, void *dst, const void *src, int64_t n,
                   struct gpt_err *err)
{
    if (!gpt_convert(dst, b->dst_type, src, b->src_type, (size_t)n))
        return gpt_fail(err, GPT_EDATA, "%s: cannot convert %s to %s",
                        gpt_in_path(b->in), gpt_dtype_name(b->src_type),
                        gpt_dtype_name(b->dst_type));
    return GPT_OK;
}

/* n contiguous elements. */
static int move_run(const struct box *b, int64_t offset, int64_t n,
                    uint8_t *dst, struct gpt_err *err)
{
    if (b->src_type == b->dst_type)
        return gpt_in_read(b->in, dst, offset, (size_t)(n * b->src_size),
                           err);
    while (n > 0) {
        int64_t k = gpt_min_i64(n, SCRATCH / b->src_size);
        GPT_TRY(gpt_in_read(b->in, b->raw, offset, (size_t)(k * b->src_size),
                            err));
        GPT_TRY(convert(b, dst, b->raw, k, err));
        offset += k * b->src_size;
        dst += k * b->dst_size;
        n -= k;
    }
    return GPT_OK;
}

_Static_assert(2 * SCRATCH + WINDOW <= GPT_TILE_SCRATCH, "see plan.h");

#define TRANSPOSE(type)                                                       \
    static void transpose_##type(uint8_t *dst, int64_t to, const uint8_t *src, \
                                 int64_t from, int64_t runs, int64_t length)  \
    {                                                                         \
        const int64_t size = (int64_t)sizeof(type);                           \
        for (int64_t i0 = 0; i0 < length; i0 += BLOCK)                        \
            for (int64_t j0 = 0; j0 < runs; j0 += BLOCK)                      \
                for (int64_t i = i0; i < length && i < i0 + BLOCK; i++)       \
                    for (int64_t j = j0; j < runs && j < j0 + BLOCK; j++)     \
                        memcpy(dst + i * to + j * size,                       \
                               src + j * from + i * size, sizeof(type));      \
    }
TRANSPOSE(uint8_t)
TRANSPOSE(uint16_t)
TRANSPOSE(uint32_t)
TRANSPOSE(uint64_t)

/* src holds `runs` runs of `length` elements, `from` bytes apart; element i of
 * run j goes to row i, column j of dst, whose rows are `to` bytes apart. */
static void transpose(uint8_t *dst, int64_t to, const uint8_t *src,
                      int64_t from, int64_t runs, int64_t length, int64_t size)
{
    if (size == 4)
        transpose_uint32_t(dst, to, src, from, runs, length);
    else if (size == 2)
        transpose_uint16_t(dst, to, src, from, runs, length);
    else if (size == 8)
        transpose_uint64_t(dst, to, src, from, runs, length);
    else
        transpose_uint8_t(dst, to, src, from, runs, length);
}

/* `runs` runs of `length` elements, `from` bytes apart in memory. */
static int put_transposed(const struct box *b, uint8_t *dst,
                          const uint8_t *src, int64_t from, int64_t runs,
                          int64_t length, struct gpt_err *err)
{
    int64_t bytes = length * b->dst_size;
    if (b->src_type == b->dst_type) {
        transpose(dst, b->to[2], src, from, runs, length, b->dst_size);
        return GPT_OK;
    }
    int64_t step = gpt_max_i64(1, b->room / bytes);
    for (int64_t j = 0; j < runs; j += step) {
        int64_t n = gpt_min_i64(step, runs - j);
        for (int64_t k = 0; k < n; k++)
            GPT_TRY(convert(b, b->cast + k * bytes, src + (j + k) * from,
                            length, err));
        transpose(dst + j * b->to[3], b->to[2], b->cast, bytes, n, length,
                  b->dst_size);
    }
    return GPT_OK;
}

/* `bytes` bytes of the file from `offset` on, in the window. */
static int look(struct box *b, int64_t offset, int64_t bytes,
                const uint8_t **at, struct gpt_err *err)
{
    if (b->window_in != b->in || offset < b->window_at ||
        offset + bytes > b->window_at + b->window_bytes) {
        int64_t n = gpt_min_i64(WINDOW, gpt_in_size(b->in) - offset);
        n = gpt_max_i64(n, bytes); /* beyond the file: reading says so */
        b->window_in = NULL;
        GPT_TRY(gpt_in_read(b->in, b->window, offset, (size_t)n, err));
        b->window_in = b->in;
        b->window_at = offset;
        b->window_bytes = n;
    }
    *at = b->window + (offset - b->window_at);
    return GPT_OK;
}

/* Rows (dimension 2) are tight in the source, columns (3) are not. */
static int move_transposed(struct box *b, int64_t offset, uint8_t *dst,
                           struct gpt_err *err)
{
    int64_t rows = b->shape[2], cols = b->shape[3];
    int64_t size = gpt_max_i64(b->src_size, b->dst_size);
    int64_t span = (cols - 1) * b->from[3] + rows * b->src_size;
    const uint8_t *at;
    if (b->window && b->from[3] > 0 && span <= WINDOW &&
        rows * b->dst_size <= b->room) {
        GPT_TRY(look(b, offset, span, &at, err));
        return put_transposed(b, dst, at, b->from[3], cols, rows, err);
    }
    for (int64_t i = 0; i < rows; i += LONGEST) {
        int64_t length = gpt_min_i64(rows - i, LONGEST);
        int64_t step = gpt_max_i64(1, b->room / (length * size));
        for (int64_t j = 0; j < cols; j += step) {
            int64_t runs = gpt_min_i64(cols - j, step);
            for (int64_t k = 0; k < runs; k++)
                GPT_TRY(gpt_in_read(
                    b->in, b->raw + k * length * b->src_size,
                    offset + i * b->from[2] + (j + k) * b->from[3],
                    (size_t)(length * b->src_size), err));
            GPT_TRY(put_transposed(b, dst + i * b->to[2] + j * b->to[3],
                                   b->raw, length * b->src_size, runs, length,
                                   err));
        }
    }
    return GPT_OK;
}

static bool is_transposed(const struct box *b)
{
    return b->from[3] != b->src_size && b->shape[3] > 1 &&
           b->from[2] == b->src_size && b->shape[2] > 1;
}

/* Dimensions 2 and 3 of the box. */
static int move_matrix(struct box *b, int64_t offset, uint8_t *dst,
                       struct gpt_err *err)
{
    bool runs = b->from[3] == b->src_size || b->shape[3] == 1;
    if (is_transposed(b))
        return move_transposed(b, offset, dst, err);
    for (int64_t i = 0; i < b->shape[2]; i++) {
        int64_t from = offset + i * b->from[2];
        uint8_t *to = dst + i * b->to[2];
        if (runs)
            GPT_TRY(move_run(b, from, b->shape[3], to, err));
        for (int64_t j = 0; !runs && j < b->shape[3]; j++)
            GPT_TRY(move_run(b, from + j * b->from[3], 1, to + j * b->to[3],
                             err));
    }
    return GPT_OK;
}

static void drop_dim(struct box *b, int d)
{
    for (; d > 0; d--) {
        b->shape[d] = b->shape[d - 1];
        b->from[d] = b->from[d - 1];
        b->to[d] = b->to[d - 1];
    }
    b->shape[0] = 1;
}

/* Dimensions of size 1 go; neighbours that are tight on both sides merge. */
static void simplify(struct box *b)
{
    for (int d = 1; d < N - 1; d++) /* the last one stays tight in dst */
        if (b->shape[d] == 1)
            drop_dim(b, d);
    for (int d = 1; d < N; d++)
        if (b->shape[d - 1] > 1 &&
            b->from[d - 1] == b->shape[d] * b->from[d] &&
            b->to[d - 1] == b->shape[d] * b->to[d]) {
            b->shape[d] *= b->shape[d - 1];
            b->shape[d - 1] = 1;
            drop_dim(b, d - 1);
        }
}

static void zero_box(const struct box *b)
{
    for (int64_t i = 0; i < b->shape[0]; i++)
        for (int64_t j = 0; j < b->shape[1]; j++)
            for (int64_t k = 0; k < b->shape[2]; k++)
                memset(b->dst + i * b->to[0] + j * b->to[1] + k * b->to[2], 0,
                       (size_t)(b->shape[3] * b->dst_size));
}

/* Scratch for this box; kept for the next. */
static int make_room(struct box *b, struct gpt_err *err)
{
    int64_t n = b->shape[0] * b->shape[1] * b->shape[2] * b->shape[3];
    int64_t size = gpt_max_i64(b->src_size, b->dst_size);
    int64_t room = n < SCRATCH / size ? n * size : SCRATCH;
    bool plain = b->src_type == b->dst_type && b->from[3] == b->src_size;
    if (plain || room <= b->room)
        return GPT_OK;
    gpt_free(b->raw);
    b->room = 0;
    GPT_TRY(gpt_new(&b->raw, 2, (size_t)room, "conversion", err));
    b->cast = b->raw + room;
    b->room = room;
    return GPT_OK;
}

static int move_box(struct box *b, struct gpt_err *err)
{
    if (!b->in) {
        zero_box(b);
        return GPT_OK;
    }
    simplify(b);
    GPT_TRY(make_room(b, err));
    for (int64_t i = 0; i < b->shape[0]; i++)
        for (int64_t j = 0; j < b->shape[1]; j++)
            GPT_TRY(move_matrix(
                b, b->offset + i * b->from[0] + j * b->from[1],
                b->dst + i * b->to[0] + j * b->to[1], err));
    return GPT_OK;
}

/* A box of a tensor, its dimensions brought to N by leading ones. */
struct target {
    const struct gpt_tensor *t;
    int64_t begin[N], shape[N], pitch[N]; /* pitch in bytes */
    enum gpt_dtype dtype;
    uint8_t *dst;
    bool window; /* let bands read through one */
};

/* What piece p gives to the target; returns its elements. */
static int64_t meet(struct box *b, const struct target *g,
                    const struct gpt_piece *p)
{
    int pad = N - g->t->ndim;
    int64_t n = 1;
    b->in = p->in;
    b->offset = p->offset;
    b->dst = g->dst;
    b->src_type = p->dtype;
    b->src_size = (int64_t)gpt_dtype_bytes(p->dtype);
    for (int d = 0; d < N; d++) {
        int64_t begin = d < pad ? 0 : p->begin[d - pad];
        int64_t shape = d < pad ? 1 : p->shape[d - pad];
        int64_t stride = d < pad ? 0 : p->stride[d - pad];
        int64_t lo = gpt_max_i64(begin, g->begin[d]);
        int64_t hi = gpt_min_i64(begin + shape, g->begin[d] + g->shape[d]);
        if (lo >= hi)
            return 0;
        b->shape[d] = hi - lo;
        b->from[d] = stride;
        b->to[d] = g->pitch[d];
        b->offset += (lo - begin) * stride;
        b->dst += (lo - g->begin[d]) * g->pitch[d];
        n *= hi - lo;
    }
    return n;
}

static int gather_band(const struct target *g, struct box *b,
                       struct gpt_err *err)
{
    int64_t want = g->shape[0] * g->shape[1] * g->shape[2] * g->shape[3];
    if (g->window && !b->window)
        GPT_TRY(gpt_new(&b->window, WINDOW, 1, "conversion", err));
    for (size_t i = 0; i < g->t->n && want > 0; i++) {
        int64_t n = meet(b, g, &g->t->pieces[i]);
        if (n > 0)
            GPT_TRY(move_box(b, err));
        want -= n;
    }
    if (want != 0)
        return gpt_fail(err, GPT_EDATA,
                        "tensor '%s': %lld elements are in no file",
                        g->t->name, (long long)want);
    return GPT_OK;
}

static struct box box_for(const struct target *g)
{
    return (struct box){.dst_type = g->dtype,
                        .dst_size = (int64_t)gpt_dtype_bytes(g->dtype)};
}

static void free_box(struct box *b)
{
    gpt_free(b->raw);
    gpt_free(b->window);
}

/* Checks the box and fills the target. */
static int aim(struct target *g, const struct gpt_tensor *t,
               const int64_t *begin, const int64_t *shape,
               enum gpt_dtype dtype, struct gpt_err *err)
{
    int pad = N - t->ndim;
    int64_t pitch = (int64_t)gpt_dtype_bytes(dtype);
    *g = (struct target){.t = t, .dtype = dtype};
    for (int d = N - 1; d >= 0; d--) {
        int k = d - pad;
        g->begin[d] = k < 0 ? 0 : begin[k];
        g->shape[d] = k < 0 ? 1 : shape[k];
        g->pitch[d] = pitch;
        if (k >= 0 && (begin[k] < 0 || shape[k] < 0 ||
                       begin[k] > t->shape[k] ||
                       shape[k] > t->shape[k] - begin[k]))
            return gpt_fail(err, GPT_EDATA,
                            "tensor '%s': [%lld, +%lld) of dimension %d is "
                            "asked for, its size is %lld",
                            t->name, (long long)begin[k], (long long)shape[k],
                            k, (long long)t->shape[k]);
        if (!gpt_mul(pitch, g->shape[d], &pitch))
            return gpt_fail(err, GPT_EDATA, "tensor '%s': size overflows",
                            t->name);
    }
    return GPT_OK;
}

static int64_t bytes_of(const struct target *g)
{
    return g->pitch[0] * g->shape[0];
}

/* How a target is shared out: `bands` along dimension d. */
struct cut {
    int d;
    int64_t bands;
};

/* Looks at the pieces: copies stay together, conversions are cut along the
 * outermost dimension, transpositions along the columns, so that their runs
 * stay long. */
static struct cut choose_cut(struct target *g)
{
    struct cut cut = {0, 1};
    struct box b = box_for(g);
    int64_t used = 0, pitch = 0, cols = g->shape[N - 1];
    bool casts = false;
    for (size_t i = 0; i < g->t->n; i++) {
        if (meet(&b, g, &g->t->pieces[i]) == 0 || !b.in)
            continue;
        casts = casts || b.src_type != b.dst_type;
        if (!is_transposed(&b))
            continue;
        used += b.shape[2] * b.src_size;
        pitch = gpt_max_i64(pitch, b.from[3]);
    }
    int64_t most = gpt_min_i64(bytes_of(g) / BAND_BYTES, MAX_BANDS);
    if (pitch > 0) {
        cut.d = N - 1;
        g->window = pitch <= WINDOW / 4 && used >= pitch / SPARSE;
        if (g->window)
            most = gpt_ceil_div(cols, WINDOW / pitch);
    } else if (casts) {
        while (cut.d < N - 1 && g->shape[cut.d] == 1)
            cut.d++;
    } else {
        most = 1;
    }
    cut.bands = gpt_max_i64(1, gpt_min_i64(most, g->shape[cut.d]));
    return cut;
}

static struct target band_of(const struct target *g, struct cut cut, int64_t i)
{
    struct target part = *g;
    int64_t lo = g->shape[cut.d] * i / cut.bands;
    part.shape[cut.d] = g->shape[cut.d] * (i + 1) / cut.bands - lo;
    part.begin[cut.d] += lo;
    part.dst += lo * g->pitch[cut.d];
    return part;
}

static int gather(struct target *g, struct gpt_err *err)
{
    int status = GPT_OK;
    if (bytes_of(g) == 0)
        return GPT_OK;
    struct cut cut = choose_cut(g);
#pragma omp parallel if (cut.bands > 1)
    {
        struct box b = box_for(g); /* its scratch serves all bands */
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < cut.bands; i++) {
            struct target part = band_of(g, cut, i);
            struct gpt_err e = {0};
            int s = gather_band(&part, &b, &e);
            if (s != GPT_OK)
#pragma omp critical(gpt_gather_error)
            {
                if (status == GPT_OK && err)
                    *err = e;
                status = s;
            }
        }
        free_box(&b);
    }
    return status;
}

int gpt_tensor_gather(const struct gpt_tensor *t, const int64_t *begin,
                      const int64_t *shape, enum gpt_dtype dtype, void *dst,
                      struct gpt_err *err)
{
    struct target g;
    GPT_TRY(aim(&g, t, begin, shape, dtype, err));
    g.dst = dst;
    return gather(&g, err);
}

int gpt_tensor_pour(const struct gpt_tensor *t, const int64_t *begin,
                    const int64_t *shape, enum gpt_dtype dtype, void *tile,
                    gpt_sink *sink, void *context, struct gpt_err *err)
{
    struct target whole;
    GPT_TRY(aim(&whole, t, begin, shape, dtype, err));
    int d = 0;
    while (d < N - 1 && whole.pitch[d] > GPT_TILE_BYTES)
        d++;
    if (bytes_of(&whole) == 0)
        return GPT_OK;
    /* dimensions before d are walked one by one, d in steps of `step` */
    int64_t step = GPT_TILE_BYTES / whole.pitch[d], outer = 1;
    for (int k = 0; k < d; k++)
        outer *= whole.shape[k];
    for (int64_t i = 0; i < outer; i++)
        for (int64_t at = 0; at < whole.shape[d]; at += step) {
            struct target g = whole;
            int64_t rest = i;
            for (int k = d - 1; k >= 0; k--) {
                g.begin[k] += rest % whole.shape[k];
                g.shape[k] = 1;
                rest /= whole.shape[k];
            }
            g.begin[d] += at;
            g.shape[d] = gpt_min_i64(step, whole.shape[d] - at);
            g.dst = tile;
            for (int k = d - 1; k >= 0; k--)
                g.pitch[k] = g.pitch[k + 1] * g.shape[k + 1];
            GPT_TRY(gather(&g, err));
            GPT_TRY(sink(context, tile, (size_t)bytes_of(&g), err));
        }
    return GPT_OK;
}
