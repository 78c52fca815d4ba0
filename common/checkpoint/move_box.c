/* Moving one box from a file into memory. The box is first simplified:
 * dimensions that are tight in source and destination become one. Then it is
 * one of three things: runs of contiguous elements, a transposition done in
 * blocks that fit the cache, or single elements. Start at gpt_box_move().
 *
 * Every box is four-dimensional with the innermost dimension last. from[] and
 * to[] are the strides of source and destination in bytes; to[3] is always one
 * element, as a destination is row-major. */
#include "checkpoint/move_internal.h"

#include "base/memory.h"
#include "base/num.h"
#include "base/vectors.h"
#include "checkpoint/merge.h"

#include <assert.h>
#include <string.h>

enum {
    N = GPT_TENSOR_DIMS,
    SCRATCH = GPT_BOX_SCRATCH,
    LINE = 64,         /* bytes of a line of the cache */
    LOOK = 64 << 10,   /* bytes that are worth a system call */
    LONGEST = 4096,    /* source run of a transposition, elements */
};

static int convert(const struct gpt_box *b, void *dst, const void *src,
                   int64_t n, struct gpt_err *err)
{
    if (!gpt_convert(dst, b->dst_type, src, b->src_type, (size_t)n))
        return gpt_fail(err, GPT_EDATA, "%s: cannot convert %s to %s",
                        gpt_in_path(b->in), gpt_dtype_name(b->src_type),
                        gpt_dtype_name(b->dst_type));
    return GPT_OK;
}

/* Reads n bytes of the source at `offset`, whose elements may have to be
 * unpacked or merged. A short run is not worth a system call where it can be
 * looked at. */
static int read_source(struct gpt_box *b, void *dst, int64_t offset,
                       size_t n, struct gpt_err *err)
{
    const uint8_t *seen = NULL;

    if (b->near && n < LOOK)
        seen = gpt_in_look(b->in, offset, n);
    if (seen) {
        memcpy(dst, seen, n);
        return GPT_OK;
    }
    if (b->merge)
        return b->merge->read(b->merge, b->in, dst, offset, n,
                              &b->room_to_merge, err);
    return b->packed ? gpt_packed_read(b->packed, b->in, dst, offset, n, err)
                     : gpt_in_read(b->in, dst, offset, n, err);
}

static int64_t source_size(const struct gpt_box *b)
{
    if (b->merge)
        return b->merge->end;
    return b->packed ? b->packed->elements * b->src_size : gpt_in_size(b->in);
}

/* Returns elements where the kernel keeps them, or NULL where they must be
 * read. They are used as they lie, so they must be aligned as elements are. */
static const uint8_t *see_elements(const struct gpt_box *b, int64_t offset,
                                   int64_t bytes)
{
    return b->packed || b->merge || bytes > b->span || offset % b->src_size != 0
               ? NULL
               : gpt_in_look(b->in, offset, (size_t)bytes);
}

/* Moves n contiguous elements. Without a conversion they go from the file into
 * the destination directly; otherwise from where they lie or, through scratch,
 * in parts. */
static int move_run(struct gpt_box *b, int64_t offset, int64_t n,
                    uint8_t *dst, struct gpt_err *err)
{
    if (b->src_type == b->dst_type)
        return read_source(b, dst, offset, (size_t)(n * b->src_size), err);
    /* gpt_box_move() checks only a box that is near for lost pages */
    const uint8_t *seen =
        b->near ? see_elements(b, offset, n * b->src_size) : NULL;
    if (seen)
        return convert(b, dst, seen, n, err);
    while (n > 0) {
        int64_t k = gpt_min_i64(n, SCRATCH / b->src_size);

        GPT_TRY(read_source(b, b->raw, offset, (size_t)(k * b->src_size),
                            err));
        GPT_TRY(convert(b, dst, b->raw, k, err));
        offset += k * b->src_size;
        dst += k * b->dst_size;
        n -= k;
    }
    return GPT_OK;
}

_Static_assert(2 * SCRATCH + GPT_BOX_WINDOW <= GPT_TILE_SCRATCH, "see plan.h");

/* A transposition touches every cache line of one side once for each element in
 * it. Blocks that are a line wide on both sides use lines up while they are in
 * the first-level cache. Blocks follow each other along the source's runs,
 * which the processor then fetches ahead. Inside a block, squares of as many
 * elements as a vector has are transposed in registers: where vectors i and
 * i + n / 2 are interleaved into 2 i and 2 i + 1, log2(n) times, rows have
 * become columns. What is left at the edges goes element by element. The
 * element size is a constant of each copy of the function, so that memcpy() is
 * one move. */
typedef uint32_t quad __attribute__((vector_size(16)));
typedef uint16_t octet __attribute__((vector_size(16)));

static void square_uint32_t(uint8_t *dst, int64_t to, const uint8_t *src,
                            int64_t from)
{
    quad a[4], b[4];

    for (int i = 0; i < 4; i++)
        memcpy(&a[i], src + i * from, sizeof(a[i]));
    for (int i = 0; i < 2; i++) {
        b[2 * i] = GPT_LANES(quad, a[i], a[i + 2], 0, 4, 1, 5);
        b[2 * i + 1] = GPT_LANES(quad, a[i], a[i + 2], 2, 6, 3, 7);
    }
    for (int i = 0; i < 2; i++) {
        a[2 * i] = GPT_LANES(quad, b[i], b[i + 2], 0, 4, 1, 5);
        a[2 * i + 1] = GPT_LANES(quad, b[i], b[i + 2], 2, 6, 3, 7);
    }
    for (int i = 0; i < 4; i++)
        memcpy(dst + i * to, &a[i], sizeof(a[i]));
}

static void square_uint16_t(uint8_t *dst, int64_t to, const uint8_t *src,
                            int64_t from)
{
    octet a[8], b[8];

    for (int i = 0; i < 8; i++)
        memcpy(&a[i], src + i * from, sizeof(a[i]));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++) {
            b[2 * i] = GPT_LANES(octet, a[i], a[i + 4], 0, 8, 1, 9, 2, 10, 3,
                                 11);
            b[2 * i + 1] = GPT_LANES(octet, a[i], a[i + 4], 4, 12, 5, 13, 6,
                                     14, 7, 15);
        }
        memcpy(a, b, sizeof(a));
    }
    for (int i = 0; i < 8; i++)
        memcpy(dst + i * to, &a[i], sizeof(a[i]));
}

/* Other sizes have no squares. */
#define square_uint8_t(dst, to, src, from) ((void)(dst), (void)(src))
#define square_uint64_t(dst, to, src, from) ((void)(dst), (void)(src))

/* Rows [i0, i1) and columns [j0, j1) of dst. */
#define TRANSPOSE(type, side)                                                  \
    static void edge_##type(uint8_t *dst, int64_t to, const uint8_t *src,      \
                            int64_t from, int64_t i0, int64_t i1, int64_t j0,  \
                            int64_t j1)                                        \
    {                                                                          \
        const int64_t size = (int64_t)sizeof(type);                            \
        for (int64_t i = i0; i < i1; i++)                                      \
            for (int64_t j = j0; j < j1; j++)                                  \
                memcpy(dst + i * to + j * size, src + j * from + i * size,     \
                       sizeof(type));                                          \
    }                                                                          \
    static void block_##type(uint8_t *dst, int64_t to, const uint8_t *src,     \
                             int64_t from, int64_t i0, int64_t i1, int64_t j0, \
                             int64_t j1)                                       \
    {                                                                          \
        const int64_t size = (int64_t)sizeof(type);                            \
        const int64_t ie = side > 1 ? i1 - (i1 - i0) % side : i0;              \
        const int64_t je = side > 1 ? j1 - (j1 - j0) % side : j0;              \
        for (int64_t i = i0; i < ie; i += side)                                \
            for (int64_t j = j0; j < je; j += side)                            \
                square_##type(dst + i * to + j * size, to,                     \
                              src + j * from + i * size, from);                \
        edge_##type(dst, to, src, from, i0, ie, je, j1);                       \
        edge_##type(dst, to, src, from, ie, i1, j0, j1);                       \
    }                                                                          \
    static void transpose_##type(uint8_t *dst, int64_t to, const uint8_t *src, \
                                 int64_t from, int64_t runs, int64_t length)   \
    {                                                                          \
        const int64_t wide = LINE / (int64_t)sizeof(type);                     \
        for (int64_t j = 0; j < runs; j += wide)                               \
            for (int64_t i = 0; i < length; i += wide)                         \
                block_##type(dst, to, src, from, i,                            \
                             gpt_min_i64(length, i + wide), j,                 \
                             gpt_min_i64(runs, j + wide));                     \
    }
TRANSPOSE(uint8_t, 1)
TRANSPOSE(uint16_t, 8)
TRANSPOSE(uint32_t, 4)
TRANSPOSE(uint64_t, 1)

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

/* Transposes `runs` runs of `length` elements, `from` bytes apart in memory.
 * Conversion comes first and works on whole runs, which are contiguous in the
 * source; the transposition then moves elements of one size. */
static int put_transposed(const struct gpt_box *b, uint8_t *dst,
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

/* Makes `bytes` bytes of the file from `offset` on readable at *at. Reads a
 * whole window ahead, since the next run of a transposition follows soon after;
 * the window stays valid for later boxes of the same file. */
static int fill_window(struct gpt_box *b, int64_t offset, int64_t bytes,
                       const uint8_t **at, struct gpt_err *err)
{
    if (b->window_in != b->in || b->window_packed != b->packed ||
        b->window_merge != b->merge || offset < b->window_at ||
        offset + bytes > b->window_at + b->window_bytes) {
        int64_t n = gpt_min_i64(GPT_BOX_WINDOW, source_size(b) - offset);

        n = gpt_max_i64(n, bytes); /* beyond the file: reading says so */
        b->window_in = NULL;
        GPT_TRY(read_source(b, b->window, offset, (size_t)n, err));
        b->window_in = b->in;
        b->window_packed = b->packed;
        b->window_merge = b->merge;
        b->window_at = offset;
        b->window_bytes = n;
    }
    *at = b->window + (offset - b->window_at);
    return GPT_OK;
}

const uint8_t *gpt_box_look(const struct gpt_box *b, int64_t offset)
{
    return see_elements(b, offset, (b->shape[3] - 1) * b->from[3] +
                                       b->shape[2] * b->src_size);
}

/* Runs of a transposition, one after the other into the scratch. */
static int read_runs(struct gpt_box *b, int64_t offset, int64_t runs,
                     int64_t length, struct gpt_err *err)
{
    const int64_t bytes = length * b->src_size;

    if (b->packed && !b->merge)
        return gpt_packed_read_lines(b->packed, b->in, b->raw, offset,
                                     b->from[3], runs, (size_t)bytes, err);
    for (int64_t k = 0; k < runs; k++)
        GPT_TRY(read_source(b, b->raw + k * bytes, offset + k * b->from[3],
                            (size_t)bytes, err));
    return GPT_OK;
}

/* Moves a box whose rows (dimension 2) are tight in the source and whose
 * columns (3) are not. Best is to look at the source; it stays in this process
 * until the part is written, as the next tile takes other rows of the same
 * columns. Else all columns come out of one window when they fit. Otherwise
 * runs are read one by one, LONGEST elements at a time, so that enough of them
 * fit in the scratch to fill whole blocks. */
static int move_transposed(struct gpt_box *b, int64_t offset, uint8_t *dst,
                           struct gpt_err *err)
{
    int64_t rows = b->shape[2], cols = b->shape[3];
    int64_t size = gpt_max_i64(b->src_size, b->dst_size);
    int64_t span = (cols - 1) * b->from[3] + rows * b->src_size;
    const uint8_t *at = b->near ? gpt_box_look(b, offset) : NULL;

    if (at)
        return put_transposed(b, dst, at, b->from[3], cols, rows, err);
    if (b->window && b->from[3] > 0 && span <= GPT_BOX_WINDOW &&
        rows * b->dst_size <= b->room) {
        GPT_TRY(fill_window(b, offset, span, &at, err));
        return put_transposed(b, dst, at, b->from[3], cols, rows, err);
    }
    for (int64_t i = 0; i < rows; i += LONGEST) {
        int64_t length = gpt_min_i64(rows - i, LONGEST);
        int64_t step = gpt_max_i64(1, b->room / (length * size));

        for (int64_t j = 0; j < cols; j += step) {
            int64_t runs = gpt_min_i64(cols - j, step);

            GPT_TRY(read_runs(b, offset + i * b->from[2] + j * b->from[3],
                              runs, length, err));
            GPT_TRY(put_transposed(b, dst + i * b->to[2] + j * b->to[3],
                                   b->raw, length * b->src_size, runs, length,
                                   err));
        }
    }
    return GPT_OK;
}

bool gpt_box_transposed(const struct gpt_box *b)
{
    return b->from[3] != b->src_size && b->shape[3] > 1 &&
           b->from[2] == b->src_size && b->shape[2] > 1;
}

/* Moves dimensions 2 and 3 of the box in the cheapest of the three ways. */
static int move_matrix(struct gpt_box *b, int64_t offset, uint8_t *dst,
                       struct gpt_err *err)
{
    bool runs = b->from[3] == b->src_size || b->shape[3] == 1;

    if (gpt_box_transposed(b))
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

/* Dimension d has size 1: moves those before it inwards, so that sizes above 1
 * come to lie innermost. */
static void drop_dim(struct gpt_box *b, int d)
{
    for (; d > 0; d--) {
        b->shape[d] = b->shape[d - 1];
        b->from[d] = b->from[d - 1];
        b->to[d] = b->to[d - 1];
    }
    b->shape[0] = 1;
}

/* A box that is contiguous on both sides becomes one run, whatever its
 * dimensions were, and a matrix with rows of equal pitch becomes two
 * dimensions: that is what the three ways of moving look at. The last dimension
 * is left alone even when its size is 1, because its stride in the destination
 * is what "tight" means there. */
static void simplify(struct gpt_box *b)
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

bool gpt_box_is_run(struct gpt_box *b)
{
    simplify(b);
    return b->shape[0] * b->shape[1] * b->shape[2] == 1 &&
           (b->from[N - 1] == b->src_size || b->shape[N - 1] == 1);
}

/* Fills a box that has no file with zeros: dummy rows of optimizer state. */
static void zero_box(const struct gpt_box *b)
{
    for (int64_t i = 0; i < b->shape[0]; i++)
        for (int64_t j = 0; j < b->shape[1]; j++)
            for (int64_t k = 0; k < b->shape[2]; k++)
                memset(b->dst + i * b->to[0] + j * b->to[1] + k * b->to[2], 0,
                       (size_t)(b->shape[3] * b->dst_size));
}

/* Makes scratch for this box, at most SCRATCH bytes each for raw and converted
 * elements, and keeps it for the next box. A box that is read straight into its
 * destination needs none. */
static int make_room(struct gpt_box *b, struct gpt_err *err)
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

int gpt_box_move(struct gpt_box *b, struct gpt_err *err)
{
    if (!b->in) {
        zero_box(b);
        return GPT_OK;
    }
    assert(b->to[N - 1] == b->dst_size || b->shape[N - 1] == 1);
    simplify(b);
    const int64_t span = gpt_span_of(b->shape, b->from, N, b->src_size);
    b->near = !b->packed && !b->merge && span <= b->span;
    GPT_TRY(make_room(b, err));
    for (int64_t i = 0; i < b->shape[0]; i++)
        for (int64_t j = 0; j < b->shape[1]; j++)
            GPT_TRY(move_matrix(
                b, b->offset + i * b->from[0] + j * b->from[1],
                b->dst + i * b->to[0] + j * b->to[1], err));
    if (!b->near)
        return GPT_OK;
    if (span >= LOOK && !gpt_box_transposed(b))
        gpt_in_look_pass(b->in, b->offset, span);
    return gpt_in_look_check(b->in, err);
}
