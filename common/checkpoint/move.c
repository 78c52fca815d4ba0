/* Moving bytes: executes a plan. gpt_tensor_pour() cuts the destination into
 * tiles, gpt_tensor_gather() a tile into bands (one a thread), gather_band()
 * meets the pieces, move_box() one box. A box is first simplified (dimensions
 * that lie tight in source and destination become one), then it is one of
 * three things: runs of contiguous elements, a transposition done in blocks
 * that fit the cache, or single elements. */
#include "checkpoint/plan.h"

#include "base/memory.h"
#include "base/num.h"

#include <string.h>

enum {
    N = GPT_TENSOR_DIMS,
    SCRATCH = 1 << 20,    /* bytes of each of a band's two buffers */
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

#define TRANSPOSE(type)                                                       \
    static void transpose_##type(uint8_t *dst, int64_t pitch,                 \
                                 const uint8_t *src, int64_t runs,            \
                                 int64_t length)                              \
    {                                                                         \
        for (int64_t i0 = 0; i0 < length; i0 += BLOCK)                        \
            for (int64_t j0 = 0; j0 < runs; j0 += BLOCK)                      \
                for (int64_t i = i0; i < length && i < i0 + BLOCK; i++)       \
                    for (int64_t j = j0; j < runs && j < j0 + BLOCK; j++)     \
                        memcpy(dst + i * pitch + j * (int64_t)sizeof(type),   \
                               src + (j * length + i) * (int64_t)sizeof(type), \
                               sizeof(type));                                 \
    }
TRANSPOSE(uint8_t)
TRANSPOSE(uint16_t)
TRANSPOSE(uint32_t)
TRANSPOSE(uint64_t)

/* src holds `runs` runs of `length` elements; element i of run j goes to row
 * i, column j of dst. */
static void transpose(uint8_t *dst, int64_t pitch, const uint8_t *src,
                      int64_t runs, int64_t length, int64_t size)
{
    if (size == 4)
        transpose_uint32_t(dst, pitch, src, runs, length);
    else if (size == 2)
        transpose_uint16_t(dst, pitch, src, runs, length);
    else if (size == 8)
        transpose_uint64_t(dst, pitch, src, runs, length);
    else
        transpose_uint8_t(dst, pitch, src, runs, length);
}

/* Rows (dimension 2) are tight in the source, columns (3) are not. */
static int move_transposed(const struct box *b, int64_t offset, uint8_t *dst,
                           struct gpt_err *err)
{
    int64_t rows = b->shape[2], cols = b->shape[3];
    int64_t size = gpt_max_i64(b->src_size, b->dst_size);
    for (int64_t i = 0; i < rows; i += LONGEST) {
        int64_t length = gpt_min_i64(rows - i, LONGEST);
        int64_t step = SCRATCH / (length * size);
        for (int64_t j = 0; j < cols; j += step) {
            int64_t runs = gpt_min_i64(cols - j, step);
            for (int64_t k = 0; k < runs; k++)
                GPT_TRY(gpt_in_read(
                    b->in, b->raw + k * length * b->src_size,
                    offset + i * b->from[2] + (j + k) * b->from[3],
                    (size_t)(length * b->src_size), err));
            const uint8_t *block = b->raw;
            if (b->src_type != b->dst_type) {
                GPT_TRY(convert(b, b->cast, b->raw, runs * length, err));
                block = b->cast;
            }
            transpose(dst + i * b->to[2] + j * b->to[3], b->to[2], block,
                      runs, length, b->dst_size);
        }
    }
    return GPT_OK;
}

/* Dimensions 2 and 3 of the box. */
static int move_matrix(const struct box *b, int64_t offset, uint8_t *dst,
                       struct gpt_err *err)
{
    bool runs = b->from[3] == b->src_size || b->shape[3] == 1;
    if (!runs && b->from[2] == b->src_size && b->shape[2] > 1)
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

static int gather_band(const struct target *g, struct gpt_err *err)
{
    struct box b = {.dst_type = g->dtype,
                    .dst_size = (int64_t)gpt_dtype_bytes(g->dtype)};
    int64_t want = g->shape[0] * g->shape[1] * g->shape[2] * g->shape[3];
    int status = GPT_OK;
    for (size_t i = 0; status == GPT_OK && i < g->t->n && want > 0; i++) {
        int64_t n = meet(&b, g, &g->t->pieces[i]);
        if (n > 0)
            status = move_box(&b, err);
        want -= n;
    }
    gpt_free(b.raw);
    if (status == GPT_OK && want != 0)
        return gpt_fail(err, GPT_EDATA,
                        "tensor '%s': %lld elements are in no file",
                        g->t->name, (long long)want);
    return status;
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

/* In bands along the outermost dimension that is not 1, a thread each. */
static int gather(const struct target *g, struct gpt_err *err)
{
    int d = 0, status = GPT_OK;
    while (d < N - 1 && g->shape[d] == 1)
        d++;
    int64_t bands = gpt_min_i64(bytes_of(g) / BAND_BYTES, MAX_BANDS);
    bands = gpt_max_i64(1, gpt_min_i64(bands, g->shape[d]));
    if (bytes_of(g) == 0)
        return GPT_OK;
    if (bands == 1)
        return gather_band(g, err);
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < bands; i++) {
        struct target part = *g;
        struct gpt_err e = {0};
        int64_t lo = g->shape[d] * i / bands;
        part.shape[d] = g->shape[d] * (i + 1) / bands - lo;
        part.begin[d] += lo;
        part.dst += lo * g->pitch[d];
        int s = gather_band(&part, &e);
        if (s != GPT_OK)
#pragma omp critical(gpt_gather_error)
        {
            if (status == GPT_OK && err)
                *err = e;
            status = s;
        }
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
