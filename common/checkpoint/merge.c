/* Elements with a product added, as pieces of tensors show them; see merge.h.
 * Start at gpt_merge_pieces(), which makes them, or at read_merged(): the
 * bytes of the file are read into the destination and cut into rectangles of
 * the matrix. */
#include "checkpoint/merge_internal.h"

#include "base/num.h"

#include <assert.h>

/* ---- reading ---- */

static int read_base(const struct gpt_merging *m, struct gpt_in *in, void *dst,
                     int64_t offset, size_t bytes, struct gpt_merge_room **room,
                     struct gpt_err *err)
{
    if (m->under)
        return m->under->read(m->under, in, dst, offset, bytes, room, err);
    return m->packed ? gpt_packed_read(m->packed, in, dst, offset, bytes, err)
                     : gpt_in_read(in, dst, offset, bytes, err);
}

static int round_all(float *x, enum gpt_dtype type, int64_t n)
{
    for (int64_t i = 0; i < n; i += GPT_MERGE_BLOCK)
        gpt_merge_round_floats(x + i, type,
                               gpt_min_i64(GPT_MERGE_BLOCK, n - i));
    return GPT_OK;
}

/* Whole lines are taken together; what comes before the first and after the
 * last whole one is a rectangle of one line. Between lines there may be bytes
 * that are none of the matrix: they stay as they are. */
static int read_merged(const struct gpt_merging *m, struct gpt_in *in,
                       void *dst, int64_t offset, size_t bytes,
                       struct gpt_merge_room **room, struct gpt_err *err)
{
    const int64_t size = (int64_t)gpt_dtype_bytes(m->dtype);
    const int64_t line = m->pitch / size; /* elements */
    const float *factors;
    uint8_t *to = dst;

    assert(offset >= m->begin && (offset - m->begin) % size == 0);
    GPT_TRY(read_base(m, in, dst, offset, bytes, room, err));
    if (!m->product)
        return round_all(dst, m->kept, (int64_t)bytes / size);
    GPT_TRY(gpt_merge_make_room(room, err));
    GPT_TRY(gpt_product_factors(m->product, &factors, err));
    int64_t i = (offset - m->begin) / size, taken;
    for (int64_t n = (int64_t)bytes / size; n > 0;
         i += taken, n -= taken, to += taken * size) {
        const int64_t at = i % line;
        const int64_t whole = at == 0 ? n / line : 0;
        const int64_t lines =
            gpt_min_i64(gpt_max_i64(whole, 1), m->lines - i / line);
        const int64_t count =
            gpt_min_i64(m->n - at, whole ? line : gpt_min_i64(n, line - at));

        const struct gpt_merge_area area = {
            .dst = to,
            .line = m->line + i / line,
            .lines = lines,
            .at = m->at + at,
            .n = count,
            .factors = factors,
        };

        taken = whole ? whole * line : gpt_min_i64(n, line - at);
        if (lines > 0 && count > 0)
            GPT_TRY(gpt_merge_add(m, *room, &area, err));
    }
    return GPT_OK;
}

/* ---- pieces ---- */

/* A piece as lines: false when neither its rows nor its columns are. */
static bool line_up(struct gpt_merging *m, const struct gpt_file_box *b,
                    int ndim)
{
    const int64_t size = (int64_t)gpt_dtype_bytes(b->dtype);
    const int64_t columns = ndim > 1 ? b->shape[1] : 1;
    const int64_t across = ndim > 1 && columns > 1 ? b->stride[1] : size;
    const int64_t rows = b->shape[0], down = rows > 1 ? b->stride[0] : size;

    /* a vector is one line, and so is a matrix of one column that is tight */
    m->columns = across != size || (columns == 1 && down == size);
    m->line = m->columns ? (ndim > 1 ? b->begin[1] : 0) : b->begin[0];
    m->lines = m->columns ? columns : rows;
    m->at = m->columns ? b->begin[0] : ndim > 1 ? b->begin[1] : 0;
    m->n = m->columns ? rows : columns;
    m->pitch = m->columns ? across : down;
    if (m->lines == 1)
        m->pitch =
            gpt_max_i64(ndim > 1 ? b->stride[!!m->columns] : size, m->n * size);
    m->begin = b->offset;
    m->end = b->offset + (m->lines - 1) * m->pitch + m->n * size;
    return (m->columns ? down : across) == size && m->pitch % size == 0 &&
           m->pitch >= m->n * size && b->offset >= 0;
}

/* Lets *m, the stretch of earlier pieces, hold the next one, too, where both
 * are of one order in one file. */
static bool extend(struct gpt_merging *m, const struct gpt_merging *next)
{
    const int64_t size = (int64_t)gpt_dtype_bytes(m->dtype);
    const int64_t line = gpt_min_i64(m->line, next->line);
    const int64_t at = gpt_min_i64(m->at, next->at);
    const int64_t line_end =
        gpt_max_i64(m->line + m->lines, next->line + next->lines);
    const int64_t end = gpt_max_i64(m->at + m->n, next->at + next->n);
    int64_t apart, begin;

    if (m->dtype != next->dtype || m->kept != next->kept ||
        m->packed != next->packed || m->under != next->under ||
        m->columns != next->columns || m->pitch != next->pitch ||
        (end - at) * size > m->pitch ||
        !gpt_mul(next->line - m->line, m->pitch, &apart) ||
        next->begin - m->begin != apart + (next->at - m->at) * size ||
        !gpt_mul(m->line - line, m->pitch, &begin))
        return false;
    m->begin -= begin + (m->at - at) * size;
    m->line = line;
    m->at = at;
    m->lines = line_end - line;
    m->n = end - at;
    m->end = gpt_max_i64(m->end, next->end);
    return true;
}

/* Pieces that follow each other mostly lie in one stretch: one of them is then
 * made for all, so that what was read for one piece serves the next. type: of
 * the model's elements; GPT_N_DTYPES: as each piece has it. */
static int wrap_pieces(struct gpt_tensor *w, struct gpt_product *p,
                       enum gpt_dtype type, struct gpt_arena *arena,
                       struct gpt_err *err)
{
    struct gpt_merging *last = NULL;
    const struct gpt_in *in = NULL;

    for (size_t i = 0; i < w->n; i++) {
        struct gpt_file_box *b = &w->pieces[i];
        struct gpt_merging m = {.read = read_merged,
                                .product = p,
                                .dtype = b->dtype,
                                .kept = type != GPT_N_DTYPES ? type
                                        : b->merge           ? b->merge->kept
                                                             : b->dtype,
                                .packed = b->packed,
                                .under = b->merge};

        if (!b->in || !line_up(&m, b, w->ndim))
            return gpt_fail(err, GPT_EDATA,
                            "%s: the elements of %s lie in an order to which "
                            "nothing can be added",
                            p ? p->what : "adapter", w->name);
        if (m.under)
            m.packed = NULL; /* it has it */
        if (!last || in != b->in || !extend(last, &m)) {
            last = gpt_arena_alloc(arena, 1, sizeof(*last));
            if (!last)
                return gpt_no_memory(err, "merging");
            *last = m;
        }
        in = b->in;
        b->merge = last;
        b->packed = NULL;
    }
    return GPT_OK;
}

int gpt_merge_pieces(struct gpt_tensor *w, struct gpt_product *p,
                     struct gpt_arena *arena, struct gpt_err *err)
{
    return wrap_pieces(w, p, GPT_N_DTYPES, arena, err);
}

/* ---- rounding ---- */

static void unpack_f16(float *to, const uint8_t *block)
{
    *to = gpt_f16_to_f32(gpt_get_u16(block));
}

static void unpack_bf16(float *to, const uint8_t *block)
{
    *to = gpt_bf16_to_f32(gpt_get_u16(block));
}

/* Blocks of one element: a stretch of them is one of floats. */
static const struct gpt_packing f16_as_floats = {
    .name = "F16", .elements = 1, .bytes = 2, .unpack = unpack_f16};
static const struct gpt_packing bf16_as_floats = {
    .name = "BF16", .elements = 1, .bytes = 2, .unpack = unpack_bf16};

/* A piece of two bytes an element, as one of floats. */
static int widen(struct gpt_file_box *b, int ndim, struct gpt_arena *arena,
                 struct gpt_err *err)
{
    struct gpt_packed *k = gpt_arena_alloc(arena, 1, sizeof(*k));
    int64_t elements = 1;

    if (!k)
        return gpt_no_memory(err, "merging");
    for (int d = 0; d < ndim; d++) {
        elements += (b->shape[d] - 1) * (b->stride[d] / 2);
        b->stride[d] *= 2;
    }
    *k = (struct gpt_packed){.packing = b->dtype == GPT_F16 ? &f16_as_floats
                                                            : &bf16_as_floats,
                             .begin = b->offset,
                             .elements = elements};
    b->offset = 0;
    b->dtype = GPT_F32;
    b->packed = k;
    return GPT_OK;
}

/* Doubles stay what they are. */
int gpt_merge_round(struct gpt_tensor *w, enum gpt_dtype type,
                    struct gpt_arena *arena, struct gpt_err *err)
{
    for (size_t i = 0; i < w->n; i++) {
        struct gpt_file_box *b = &w->pieces[i];

        if (b->dtype == type || b->dtype == GPT_F64 || type == GPT_F64 ||
            b->merge || b->packed)
            return GPT_OK;
        if (b->dtype != GPT_F32)
            GPT_TRY(widen(b, w->ndim, arena, err));
    }
    return wrap_pieces(w, NULL, type, arena, err);
}
