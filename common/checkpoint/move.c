/* Moving bytes: executes a plan. A box is cut into tiles (gpt_tiling_make()),
 * a tile into bands, gather_band() intersects the tensor's pieces with a band,
 * and gpt_box_move() (move_box.c) moves each intersection, which is a box.
 *
 * Tiles bound the memory: whatever the size of a tensor, one tile and the
 * scratch of each thread are all that is held. What is only copied has small
 * tiles, which stay in the cache between the read, the checksum and the write;
 * a transposition has large ones, whose runs are long on both sides. In a file
 * of large pages or blocks tiles end where those do, as the kernel clears the
 * rest of one that is written in part, before the rest is written. Of a file
 * that is written, threads share the tiles (fill.c); gpt_tensor_gather(), which
 * fills memory, shares out the bands of its one tile.
 *
 * A transposition reads many short runs, one a column of the destination. Read
 * one by one they cost a system call each. When the pieces of a tile together
 * use much of the source's rows, as the heads of Q, K and V do, bands are so
 * narrow that all runs of a band lie in one window of the file, which is read
 * at once. */
#include "checkpoint/move_internal.h"

#include "base/memory.h"
#include "base/num.h"
#include "checkpoint/merge.h"

#include <assert.h>
#include <string.h>

enum {
    N = GPT_TENSOR_DIMS,
    SPARSE = 3,           /* a window's runs must be 1/3 of it */
    BAND_BYTES = 1 << 20, /* less is not worth a thread */
    MAX_BANDS = 16,
    COPY_BYTES = 512 << 10, /* of a tile that is only copied or cast */
    /* of one that is transposed without reading: what a conversion on the way
     * has room for */
    SEEN_BYTES = GPT_BOX_SCRATCH,
};

/* A box of a tensor, its dimensions brought to N by leading ones. */
struct target {
    const struct gpt_tensor *t;
    int64_t begin[N], shape[N], pitch[N]; /* pitch in bytes */
    enum gpt_dtype dtype;
    uint8_t *dst;
    int64_t span; /* as in struct gpt_box */
    bool window;  /* let bands read through one */
};

/* Makes *b the part of piece p that lies in the target; returns its elements, 0
 * when they are disjoint. The scratch in *b stays as it is. Leading dimensions
 * of size 1 bring every tensor to N dimensions, so that nothing below this
 * function asks how many there are. */
static int64_t intersect(struct gpt_box *b, const struct target *g,
                         const struct gpt_file_box *p)
{
    int pad = N - g->t->ndim;
    int64_t n = 1;

    b->in = p->in;
    b->packed = p->packed;
    b->merge = p->merge;
    b->offset = p->offset;
    b->dst = g->dst;
    b->src_type = p->dtype;
    b->src_size = (int64_t)gpt_dtype_bytes(p->dtype);
    assert(pad >= 0); /* gpt_tensor_make() has checked the dimensions */
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
        if (b->dst) /* where a run lies is asked without a place for it */
            b->dst += (lo - g->begin[d]) * g->pitch[d];
        n *= hi - lo;
    }
    return n;
}

/* Counts elements instead of looking for gaps: pieces do not overlap, which
 * gpt_tensor_check() has made sure of when the file was opened, so a band is
 * covered exactly when the intersections add up to it. */
static int gather_band(const struct target *g, struct gpt_box *b,
                       struct gpt_err *err)
{
    /* Counted down to 0 by what the pieces give. */
    int64_t want = g->shape[0] * g->shape[1] * g->shape[2] * g->shape[3];

    if (g->window && !b->window)
        GPT_TRY(gpt_new(&b->window, GPT_BOX_WINDOW, 1, "conversion", err));
    for (size_t i = 0; i < g->t->n && want > 0; i++) {
        int64_t n = intersect(b, g, &g->t->pieces[i]);

        if (n > 0)
            GPT_TRY(gpt_box_move(b, err));
        want -= n;
    }
    if (want != 0)
        return gpt_fail(err, GPT_EDATA,
                        "tensor '%s': %lld of its elements are in no file",
                        g->t->name, (long long)want);
    return GPT_OK;
}

static struct gpt_box box_for(const struct target *g)
{
    return (struct gpt_box){.dst_type = g->dtype,
                            .dst_size = (int64_t)gpt_dtype_bytes(g->dtype),
                            .span = g->span};
}

/* Checks the box and fills the target. begin and shape come from callers that
 * computed them from a manifest, so each is compared with the tensor before
 * anything is multiplied. */
static int set_target(struct target *g, const struct gpt_tensor *t,
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

/* Chooses by what the pieces need. Copies stay together. Conversions are cut
 * along the outermost dimension that can be cut, so that a band is contiguous.
 * Transpositions are cut along the columns: a run goes down the rows, and
 * cutting the rows would make short runs shorter. Runs of a piece that is used
 * sparsely are too far apart for a window; they are read one by one. */
static struct cut choose_cut(struct target *g)
{
    struct cut cut = {0, 1};
    struct gpt_box b = box_for(g);
    int64_t used = 0, pitch = 0, cols = g->shape[N - 1];
    bool casts = false;

    for (size_t i = 0; i < g->t->n; i++) {
        if (intersect(&b, g, &g->t->pieces[i]) == 0 || !b.in)
            continue;
        casts = casts || b.src_type != b.dst_type || b.merge;
        if (!gpt_box_transposed(&b) || gpt_box_look(&b, b.offset))
            continue;
        used += b.shape[2] * b.src_size;
        pitch = gpt_max_i64(pitch, b.from[3]);
    }
    int64_t most = gpt_min_i64(bytes_of(g) / BAND_BYTES, MAX_BANDS);
    if (pitch > 0) {
        cut.d = N - 1;
        g->window = pitch <= GPT_BOX_WINDOW / 4 && used >= pitch / SPARSE;
        if (g->window)
            most = gpt_ceil_div(cols, GPT_BOX_WINDOW / pitch);
    } else if (casts) {
        while (cut.d < N - 1 && g->shape[cut.d] == 1)
            cut.d++;
    } else {
        most = 1;
    }
    cut.bands = gpt_max_i64(1, gpt_min_i64(most, g->shape[cut.d]));
    return cut;
}

/* Band i of the target. Ends are computed from i alone, so bands tile the
 * target without a remainder to hand on. */
static struct target band_of(const struct target *g, struct cut cut, int64_t i)
{
    struct target part = *g;
    int64_t lo = g->shape[cut.d] * i / cut.bands;

    part.shape[cut.d] = g->shape[cut.d] * (i + 1) / cut.bands - lo;
    part.begin[cut.d] += lo;
    part.dst += lo * g->pitch[cut.d];
    return part;
}

/* Every thread keeps its own scratch over all its bands. A failure does not
 * stop the other bands, as an OpenMP loop cannot be left; the first one is
 * reported. */
static int gather(struct target *g, struct gpt_err *err)
{
    int status = GPT_OK;

    if (bytes_of(g) == 0)
        return GPT_OK;
    struct cut cut = choose_cut(g);
#pragma omp parallel if (cut.bands > 1)
    {
        struct gpt_box b = box_for(g); /* its scratch serves all bands */
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
        gpt_box_free(&b);
    }
    return status;
}

int gpt_tensor_gather(const struct gpt_tensor *t, const int64_t *begin,
                      const int64_t *shape, enum gpt_dtype dtype, void *dst,
                      struct gpt_err *err)
{
    struct target g;

    GPT_TRY(set_target(&g, t, begin, shape, dtype, err));
    g.dst = dst;
    return gather(&g, err);
}

/* ---- tiles ---- */

/* Where a piece ends in its file. */
static int64_t end_of(const struct gpt_file_box *p, int ndim)
{
    return p->offset + gpt_span_of(p->shape, p->stride, ndim,
                                   (int64_t)gpt_dtype_bytes(p->dtype));
}

/* Most bytes of a tile. Columns of the destination that are rows of the source
 * want long runs, and so large tiles, where the source is read. Where it is
 * looked at, a run costs nothing, and the tile stays in the cache. What all
 * tiles look at stays in this process until the last of them: so it must be one
 * stretch of at most *span bytes, else *span becomes 0. Where a product is
 * added, its factor along the lines may have to be read again for each tile. */
static int64_t tile_limit(const struct gpt_tensor *t, int64_t *span)
{
    const int last = t->ndim - 1;
    const struct gpt_in *in = NULL;
    int64_t lo = INT64_MAX, hi = 0;
    bool seen = true;

    for (size_t i = 0; i < t->n; i++)
        if (t->pieces[i].merge && t->pieces[i].merge->product)
            return GPT_TILE_BYTES;
    for (size_t i = 0; last >= 0 && i < t->n; i++) {
        const struct gpt_file_box *p = &t->pieces[i];

        if (p->shape[last] <= 1 || !p->in ||
            p->stride[last] == (int64_t)gpt_dtype_bytes(p->dtype))
            continue;
        seen = seen && !p->packed && !p->merge && (!in || p->in == in);
        in = p->in;
        lo = gpt_min_i64(lo, p->offset);
        hi = gpt_max_i64(hi, end_of(p, t->ndim));
    }
    if (!in)
        return COPY_BYTES;
    if (seen && hi - lo <= *span && gpt_in_look(in, lo, (size_t)(hi - lo)))
        return SEEN_BYTES;
    *span = 0;
    return GPT_TILE_BYTES;
}

/* Bytes of a tile that ends with a block of its file, or 0 where tiles end
 * anywhere: blocks are small, or rows are so large that none ends near one. */
static int64_t whole_blocks(int64_t block, int64_t limit, int64_t row)
{
    return block < COPY_BYTES || block > GPT_TILE_BYTES / 2 || row > block / 4
               ? 0
               : gpt_max_i64(block, (limit - block) / block * block);
}

/* Tiles are whole rows of the innermost dimensions that fit: dimension d is the
 * first whose rows are no larger than a tile, and the dimensions before it are
 * walked element by element. Each tile is thus a stretch of the box's bytes. */
int gpt_tiling_make(struct gpt_tiling *g, const struct gpt_tensor *t,
                    const int64_t *begin, const int64_t *shape,
                    enum gpt_dtype dtype, struct gpt_tile_place place,
                    struct gpt_err *err)
{
    int64_t span = place.span, outer = 1;
    const int64_t limit = tile_limit(t, &span);
    struct target whole;

    GPT_TRY(set_target(&whole, t, begin, shape, dtype, err));
    *g = (struct gpt_tiling){.t = t, .dtype = dtype, .span = span};
    memcpy(g->begin, whole.begin, sizeof(g->begin));
    memcpy(g->shape, whole.shape, sizeof(g->shape));
    memcpy(g->pitch, whole.pitch, sizeof(g->pitch));
    if (bytes_of(&whole) == 0)
        return GPT_OK;
    while (g->d < N - 1 && g->pitch[g->d] > limit)
        g->d++;
    for (int k = 0; k < g->d; k++)
        outer *= g->shape[k];
    const int64_t row = g->pitch[g->d], slab = g->shape[g->d] * row;
    g->step = whole_blocks(place.block, limit, row);
    g->ends = g->step > 0;
    if (g->ends)
        g->at = place.at % g->step;
    else
        g->step = limit / row * row;
    assert(g->step > 0); /* the last dimension's pitch is one element */
    /* each of several slabs begins elsewhere in a block: the worst counts */
    const int64_t before = !g->ends ? 0 : outer == 1 ? g->at : g->step - 1;
    g->each = gpt_ceil_div(before + slab, g->step);
    g->n = outer * g->each;
    g->most = gpt_min_i64(g->ends ? g->step + row : g->step, slab);
    return GPT_OK;
}

/* The first row of tile j of a slab, which is what dimension d walks through;
 * of j = each, its rows. A tile that is to end with a block ends with the last
 * row before that; it may be empty. */
static int64_t first_row(const struct gpt_tiling *g, int64_t slab, int64_t j)
{
    const int64_t row = g->pitch[g->d], rows = g->shape[g->d];
    const int64_t before =
        g->ends ? (g->at + slab * rows * row) % g->step : 0;

    return gpt_max_i64(0, gpt_min_i64(rows, (j * g->step - before) / row));
}

/* Tile i as a target; returns where it begins among the bytes of the box. */
static int64_t tile_of(const struct gpt_tiling *g, int64_t i, struct target *to)
{
    const int d = g->d;
    const int64_t slab = i / g->each, j = i % g->each;
    const int64_t row = first_row(g, slab, j);
    int64_t rest = slab;

    *to = (struct target){.t = g->t, .dtype = g->dtype};
    to->span = g->span;
    memcpy(to->begin, g->begin, sizeof(to->begin));
    memcpy(to->shape, g->shape, sizeof(to->shape));
    for (int k = d - 1; k >= 0; k--) {
        to->begin[k] += rest % g->shape[k];
        to->shape[k] = 1;
        rest /= g->shape[k];
    }
    to->begin[d] += row;
    to->shape[d] = first_row(g, slab, j + 1) - row;
    /* The tile is tight, however far apart its rows are in the whole tensor. */
    to->pitch[N - 1] = (int64_t)gpt_dtype_bytes(g->dtype);
    for (int k = N - 2; k >= 0; k--)
        to->pitch[k] = to->pitch[k + 1] * to->shape[k + 1];
    return (slab * g->shape[d] + row) * g->pitch[d];
}

void gpt_tiling_place(const struct gpt_tiling *g, int64_t i, int64_t *at,
                      int64_t *bytes)
{
    struct target tile;

    *at = tile_of(g, i, &tile);
    *bytes = bytes_of(&tile);
}

int gpt_tiling_gather(const struct gpt_tiling *g, int64_t i,
                      struct gpt_box *scratch, void *dst, struct gpt_err *err)
{
    struct target tile;

    tile_of(g, i, &tile);
    tile.dst = dst;
    struct cut cut = choose_cut(&tile);
    if (!tile.window)
        cut.bands = 1; /* one thread, and nothing that must fit */
    scratch->dst_type = g->dtype;
    scratch->dst_size = (int64_t)gpt_dtype_bytes(g->dtype);
    scratch->span = g->span;
    for (int64_t k = 0; k < cut.bands; k++) {
        struct target part = band_of(&tile, cut, k);

        GPT_TRY(gather_band(&part, scratch, err));
    }
    return GPT_OK;
}

/* A piece is summed from the first byte that the tile needs to the last. Other
 * tiles need what is between, and find it summed. */
int gpt_tiling_sum(const struct gpt_tiling *g, int64_t i, struct gpt_err *err)
{
    struct target tile;
    struct gpt_box b;

    tile_of(g, i, &tile);
    b = box_for(&tile);
    for (size_t k = 0; k < g->t->n; k++) {
        const struct gpt_file_box *p = &g->t->pieces[k];

        if (!p->in || !gpt_in_keeps_sums(p->in) || p->packed ||
            intersect(&b, &tile, p) == 0)
            continue;
        GPT_TRY(gpt_in_sum(b.in, b.offset,
                           gpt_span_of(b.shape, b.from, N, b.src_size), err));
    }
    return GPT_OK;
}

/* Pieces that are not met count nothing; two that are met are two runs, even
 * where they follow each other. Sharing blocks pays for large stretches, and a
 * tensor that is moved as a whole is one piece. */
bool gpt_tiling_run(const struct gpt_tiling *g, int64_t i, struct gpt_in **in,
                    int64_t *offset)
{
    struct target tile;
    struct gpt_box b;
    bool found = false;

    tile_of(g, i, &tile);
    b = box_for(&tile);
    for (size_t k = 0; k < g->t->n; k++) {
        if (intersect(&b, &tile, &g->t->pieces[k]) == 0)
            continue;
        if (found || !b.in || b.packed || b.merge || b.src_type != b.dst_type ||
            !gpt_box_is_run(&b))
            return false;
        *in = b.in;
        *offset = b.offset;
        found = true;
    }
    return found;
}

void gpt_box_free(struct gpt_box *b)
{
    if (b->room_to_merge)
        b->room_to_merge->free(b->room_to_merge);
    gpt_free(b->raw);
    gpt_free(b->window);
}

void gpt_tensor_look_begin(const struct gpt_tensor *t)
{
    const struct gpt_in *last = NULL;

    for (size_t i = 0; i < t->n; last = t->pieces[i++].in)
        if (t->pieces[i].in && t->pieces[i].in != last)
            gpt_in_look_begin(t->pieces[i].in);
}

/* Boxes of one file that follow each other are dropped as one stretch of it,
 * with what lies between them. */
void gpt_tensor_look_drop(const struct gpt_tensor *t)
{
    for (size_t i = 0, j; i < t->n; i = j) {
        int64_t lo = INT64_MAX, hi = 0;

        for (j = i; j < t->n && t->pieces[j].in == t->pieces[i].in; j++) {
            const struct gpt_file_box *p = &t->pieces[j];

            if (p->packed || p->merge)
                continue; /* is read */
            lo = gpt_min_i64(lo, p->offset);
            hi = gpt_max_i64(hi, end_of(p, t->ndim));
        }
        if (t->pieces[i].in && lo < hi)
            gpt_in_look_drop(t->pieces[i].in, lo, hi - lo);
    }
}
