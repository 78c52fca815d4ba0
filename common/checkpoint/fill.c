/* Filling a file from its plan; see fill.h, and fill_files.c for several files.
 * gpt_fill() cuts the parts into tiles and has threads take them one by one;
 * fill_tile() gathers, sums and writes one.
 *
 * A tile that is only copied stays in the cache from the read to the write, and
 * its checksum is taken in between, for nothing. Where the file system shares
 * blocks, the write of such a tile is a request to share.
 *
 * Checksums of tiles are joined when the last tile of a part is written, by the
 * thread that wrote it: so the sum of a part is that of its bytes in order,
 * however the tiles fell to threads. */
#include "checkpoint/fill.h"

#include "base/hash.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/signals.h"
#include "checkpoint/move_internal.h"
#include "checkpoint/resume.h"
#include "checkpoint/source.h"

#include <assert.h>
#include <omp.h>
#include <stdatomic.h>
#include <string.h>

enum {
    CHECK_BYTES = 1 << 20, /* read at once to be summed, or written at once
                            * from memory */
};

/* A part while it is written. */
struct work {
    bool narrows; /* to fp16, from another type */
    struct gpt_tiling tiling; /* of bytes in memory, n alone */
    int64_t first;            /* of its tiles among all */
    atomic_llong left;        /* tiles that are not written; 0: whole */
};

struct tile_sum {
    uint32_t crc, zip_crc;
    int64_t bytes;
};

struct fill {
    struct gpt_fill *p;
    struct gpt_out *out;
    const char *name;
    struct gpt_part *parts;
    struct work *works;
    int64_t n, n_tiles;
    struct tile_sum *sums; /* of all tiles */
    int64_t most;          /* bytes of the largest tile */
    bool zip;
    uint64_t digest;
    atomic_bool shares; /* blocks can be shared: until one cannot */
    atomic_bool failed;
    int status; /* the first failure */
    struct gpt_err *err;
};

/* Memory of one thread, for all the tiles that it takes. */
struct hand {
    struct gpt_box box;
    uint8_t *tile, *packed;
};

static struct gpt_fill *whole_of(struct gpt_fill *p)
{
    return p->whole ? p->whole : p;
}

/* ---- the list of tiles ---- */

/* Bytes of n elements as they are in the file. */
static int64_t packed_bytes(const struct gpt_packing *k, int64_t bytes)
{
    const int64_t elements = bytes / (int64_t)sizeof(float);

    if (!k)
        return bytes;
    assert(elements % k->elements == 0);
    return elements / k->elements * k->bytes;
}

/* The type of a tensor may be that of the output already; its pieces have that
 * of the input. */
static bool narrows(const struct gpt_part *p)
{
    bool other = false;

    for (size_t i = 0; p->dtype == GPT_F16 && i < p->tensor->n; i++)
        other |= p->tensor->pieces[i].dtype != GPT_F16;
    return other && !p->packing;
}

/* Tiles are numbered through all parts, in the order of the file, so that it
 * grows from its beginning to its end but for what threads have in hand. */
static int cut_parts(struct fill *w, struct gpt_err *err)
{
    const int threads = whole_of(w->p)->threads;
    const struct gpt_source *from = whole_of(w->p)->source;
    struct gpt_tile_place place = {
        .span = gpt_fill_seen(threads, from && from->n_adapters > 0) /
                gpt_fill_threads(threads)};
    const int64_t block = gpt_out_block(w->out);

    GPT_TRY(gpt_new(&w->works, (size_t)w->n, sizeof(*w->works), "parts", err));
    for (int64_t i = 0; i < w->n; i++) {
        struct gpt_part *p = &w->parts[i];
        struct work *k = &w->works[i];

        p->crc = p->zip_crc = 0;
        if (p->tensor) {
            gpt_tensor_look_begin(p->tensor);
            k->narrows = narrows(p);
            place.at = p->offset;
            place.block = p->packing ? 0 : block;
            GPT_TRY(gpt_tiling_make(&k->tiling, p->tensor, p->begin, p->shape,
                                    p->dtype, place, err));
        } else {
            k->tiling.n = gpt_ceil_div(p->bytes, CHECK_BYTES);
        }
        k->first = w->n_tiles;
        atomic_init(&k->left, k->tiling.n);
        w->n_tiles += k->tiling.n;
        w->most = gpt_max_i64(w->most, k->tiling.most);
    }
    return gpt_new(&w->sums, (size_t)w->n_tiles, sizeof(*w->sums), "checksums",
                   err);
}

/* The part that a tile is of. */
static int64_t find_part(const struct fill *w, int64_t tile)
{
    int64_t lo = 0, hi = w->n - 1;

    while (lo < hi) {
        const int64_t mid = (lo + hi + 1) / 2;

        if (w->works[mid].first <= tile)
            lo = mid;
        else
            hi = mid - 1;
    }
    /* of several that begin there the last, which is the one with tiles */
    return lo;
}

/* ---- what was written before ---- */

/* A number that fp16 does not hold is lost without an error: it is counted. */
static void note_infinite(const struct fill *w, const struct gpt_part *p,
                          int64_t n)
{
    if (n == 0)
        return;
#pragma omp critical(gpt_fill_infinite)
    {
        struct gpt_fill *whole = whole_of(w->p);

        whole->infinite += n;
        if (!whole->infinite_in ||
            strcmp(p->tensor->name, whole->infinite_in) < 0)
            whole->infinite_in = p->tensor->name;
    }
}

/* Sums of what the file has in the place of a part, and infinities in it. */
static int sum_there(const struct fill *w, int64_t part, uint8_t *buffer,
                     struct tile_sum *sum, int64_t *infinite,
                     struct gpt_err *err)
{
    const struct gpt_part *p = &w->parts[part];

    *sum = (struct tile_sum){.bytes = p->bytes};
    *infinite = 0;
    for (int64_t at = 0; at < p->bytes; at += CHECK_BYTES) {
        const size_t n = (size_t)gpt_min_i64(CHECK_BYTES, p->bytes - at);

        if (whole_of(w->p)->stops)
            GPT_TRY(gpt_signals_check(err));
        GPT_TRY(gpt_out_reread(w->out, buffer, n, p->offset + at, err));
        sum->crc = gpt_crc32c(sum->crc, buffer, n);
        if (w->zip)
            sum->zip_crc = gpt_crc32(sum->zip_crc, buffer, n);
        if (w->works[part].narrows)
            *infinite += gpt_f16_infinite(buffer, (int64_t)n);
    }
    return GPT_OK;
}

/* A part that was noted and is there is whole. One that cannot be read, or is
 * not what was noted, is written again. */
static int64_t take_part(struct fill *w, int64_t i, uint8_t *buffer)
{
    struct gpt_part *p = &w->parts[i];
    struct tile_sum sum;
    int64_t infinite;
    uint32_t crc;

    if (!p->tensor || !gpt_resume_find(w->p->resume, w->digest, i, &crc) ||
        sum_there(w, i, buffer, &sum, &infinite, NULL) != GPT_OK ||
        sum.crc != crc)
        return 0;
    note_infinite(w, p, infinite);
    p->crc = sum.crc;
    p->zip_crc = sum.zip_crc;
    atomic_store(&w->works[i].left, 0);
    return p->bytes;
}

/* Reading is the whole cost, so it is shared among threads like the writing. A
 * part that is taken has no tiles left to write. */
static int take_parts(struct fill *w, struct gpt_err *err)
{
    const int threads = gpt_fill_threads(w->p->threads);
    int64_t bytes = 0;
    uint8_t *buffers;

    w->digest = gpt_resume_digest(w->name, w->parts, w->n);
    GPT_TRY(gpt_new(&buffers, (size_t)threads, CHECK_BYTES, "checksums", err));
#pragma omp parallel for schedule(dynamic) num_threads(threads) \
    reduction(+ : bytes)
    for (int64_t i = 0; i < w->n; i++)
        bytes += take_part(
            w, i, buffers + (size_t)omp_get_thread_num() * CHECK_BYTES);
    gpt_free(buffers);
#pragma omp critical(gpt_fill_done)
    {
        whole_of(w->p)->bytes += bytes;
        whole_of(w->p)->taken += bytes;
    }
    return GPT_OK;
}

/* ---- a tile ---- */

/* Block after block; a tile is whole blocks. */
static void pack(const struct gpt_packing *k, uint8_t *to, const float *from,
                 int64_t n)
{
    for (int64_t i = 0; i < n; i += k->elements) {
        k->pack(to, from + i);
        to += k->bytes;
    }
}

/* A tile on its way. */
struct tile {
    const uint8_t *data;
    int64_t at; /* in the part */
    struct tile_sum *sum;
    /* Where all of it lies in one stretch of a file, else NULL; whether `data`
     * is that stretch, as the kernel keeps it. */
    struct gpt_in *in;
    int64_t from;
    bool seen;
};

/* Scratch is made when the first tile needs it. */
static int gather(const struct fill *w, struct hand *h,
                  const struct gpt_tiling *g, int64_t i, struct gpt_err *err)
{
    if (!h->tile)
        GPT_TRY(gpt_new(&h->tile, (size_t)w->most, 1, "tile", err));
    return gpt_tiling_gather(g, i, &h->box, h->tile, err);
}

/* Tile i of a part in the type that is asked for. One that is bytes of a file
 * is looked at, where that can be done, and not gathered. */
static int fetch(const struct fill *w, struct hand *h, const struct gpt_part *p,
                 const struct gpt_tiling *g, int64_t i, struct tile *t,
                 struct gpt_err *err)
{
    int64_t *bytes = &t->sum->bytes;

    if (!p->tensor) {
        t->at = i * CHECK_BYTES;
        t->data = (const uint8_t *)p->data + t->at;
        *bytes = gpt_min_i64(CHECK_BYTES, p->bytes - t->at);
        return GPT_OK;
    }
    GPT_TRY(gpt_tiling_sum(g, i, err));
    gpt_tiling_place(g, i, &t->at, bytes);
    if (!p->packing && gpt_tiling_run(g, i, &t->in, &t->from))
        t->data = gpt_in_look(t->in, t->from, (size_t)*bytes);
    else
        t->in = NULL;
    t->seen = t->data != NULL;
    if (t->seen)
        return GPT_OK;
    GPT_TRY(gather(w, h, g, i, err));
    t->data = h->tile;
    return GPT_OK;
}

/* Fills the tile and its sums. */
static int make_tile(const struct fill *w, struct hand *h,
                     const struct gpt_part *p, const struct work *k, int64_t i,
                     struct tile *t, struct gpt_err *err)
{
    struct tile_sum *sum = t->sum;

    GPT_TRY(fetch(w, h, p, &k->tiling, i, t, err));
    if (p->packing) {
        if (!h->packed)
            GPT_TRY(gpt_new(&h->packed, (size_t)w->most, 1, "tile", err));
        pack(p->packing, h->packed, (const float *)(const void *)h->tile,
             sum->bytes / (int64_t)sizeof(float));
        t->data = h->packed;
        t->at = packed_bytes(p->packing, t->at);
        sum->bytes = packed_bytes(p->packing, sum->bytes);
    }
    if (k->narrows)
        note_infinite(w, p, gpt_f16_infinite(t->data, sum->bytes));
    sum->crc = gpt_crc32c(0, t->data, (size_t)sum->bytes);
    if (w->zip)
        sum->zip_crc = gpt_crc32(0, t->data, (size_t)sum->bytes);
    return GPT_OK;
}

/* Shares a tile with the input where the file system can, else writes it. What
 * is shared, or looked at in place, has been read for its checksum before: a
 * source that changes in between is found when the output is verified. The
 * first refusal of the kernel counts for the whole file, as it is the file
 * system's. */
static int put_tile(struct fill *w, const struct gpt_part *p,
                    const struct tile *t, struct gpt_err *err)
{
    const int64_t offset = p->offset + t->at;

    if (t->in && atomic_load(&w->shares)) {
        if (gpt_out_shares(w->out, t->in) &&
            gpt_out_share(w->out, offset, t->in, t->from, t->sum->bytes))
            return GPT_OK;
        atomic_store(&w->shares, false);
    }
    return gpt_out_pwrite(w->out, t->data, (size_t)t->sum->bytes, offset, err);
}

/* A write fails, too, when what it is given has gone: then reading says so, and
 * in other words than those of a disk that is full. */
static int put_seen(struct fill *w, struct hand *h, const struct gpt_part *p,
                    const struct work *k, int64_t i, const struct tile *t,
                    struct gpt_err *err)
{
    const int status = put_tile(w, p, t, err);
    struct gpt_err e = {0};

    if (!t->seen)
        return status;
    int kept = gpt_in_look_check(t->in, &e);
    if (kept == GPT_OK && status != GPT_OK)
        kept = gather(w, h, &k->tiling, i, &e);
    if (kept != GPT_OK && err)
        *err = e;
    gpt_in_look_pass(t->in, t->from, t->sum->bytes);
    return kept != GPT_OK ? kept : status;
}

/* The last tile of a part has been written. Sums of its tiles were stored
 * before the counter went down, which orders them for the thread that comes
 * here. */
static int end_part(struct fill *w, int64_t part, struct gpt_err *err)
{
    const struct work *k = &w->works[part];
    struct gpt_part *p = &w->parts[part];
    int status = GPT_OK;

    p->crc = p->zip_crc = 0;
    for (int64_t i = k->first; i < k->first + k->tiling.n; i++) {
        const struct tile_sum *s = &w->sums[i];

        p->crc = gpt_crc_join(GPT_CRC32C_POLYNOMIAL, p->crc, s->crc, s->bytes);
        if (w->zip)
            p->zip_crc = gpt_crc_join(GPT_CRC32_POLYNOMIAL, p->zip_crc,
                                      s->zip_crc, s->bytes);
    }
    if (p->tensor)
        gpt_tensor_look_drop(p->tensor);
    if (!w->p->resume || !p->tensor)
        return GPT_OK;
#pragma omp critical(gpt_fill_note)
    status = gpt_resume_note(w->p->resume, w->name, w->digest, part, p->crc,
                             err);
    return status;
}

static int fill_tile(struct fill *w, struct hand *h, int64_t tile,
                     struct gpt_err *err)
{
    const int64_t part = find_part(w, tile);
    const struct gpt_part *p = &w->parts[part];
    struct work *k = &w->works[part];
    struct tile t = {.sum = &w->sums[tile]};

    if (atomic_load(&whole_of(w->p)->failed))
        return gpt_fail(err, GPT_EFAIL, "another file has failed");
    if (whole_of(w->p)->stops)
        GPT_TRY(gpt_signals_check(err));
    if (atomic_load(&k->left) == 0)
        return GPT_OK; /* by an earlier run */
    GPT_TRY(make_tile(w, h, p, k, tile - k->first, &t, err));
    GPT_TRY(put_seen(w, h, p, k, tile - k->first, &t, err));
    if (p->tensor)
#pragma omp critical(gpt_fill_done)
    {
        struct gpt_fill *whole = whole_of(w->p);

        whole->bytes += t.sum->bytes;
        if (whole->done)
            whole->done(whole->context, whole->bytes);
    }
    return atomic_fetch_sub(&k->left, 1) == 1 ? end_part(w, part, err)
                                              : GPT_OK;
}

/* ---- the file ---- */

/* The first failure is the one that is reported. */
static void keep_failure(struct fill *w, int status, const struct gpt_err *e)
{
#pragma omp critical(gpt_fill_error)
    {
        if (w->status == GPT_OK) {
            w->status = status;
            if (w->err)
                *w->err = *e;
        }
        atomic_store(&w->failed, true);
    }
}

/* Tiles that are under way when one fails are finished, others are not
 * begun. */
static void fill_all(struct fill *w)
{
    const int64_t most = gpt_max_i64(1, w->n_tiles);
    const int threads =
        (int)gpt_min_i64(gpt_fill_threads(w->p->threads), most);

#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        struct hand h = {.tile = NULL};

#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < w->n_tiles; i++) {
            struct gpt_err e = {0};
            const int status =
                atomic_load(&w->failed) ? GPT_OK : fill_tile(w, &h, i, &e);

            if (status != GPT_OK)
                keep_failure(w, status, &e);
        }
        gpt_box_free(&h.box);
        gpt_free(h.tile);
        gpt_free(h.packed);
    }
}

/* Everything that several threads look at is made before they begin, and read
 * after they have ended; between, each writes its own tile's sum, and counters
 * are atomic. */
int gpt_fill(struct gpt_fill *p, struct gpt_out *out, const char *name,
             struct gpt_part *parts, int64_t n, bool zip, struct gpt_err *err)
{
    struct fill w = {.p = p, .out = out, .name = name, .parts = parts, .n = n,
                     .zip = zip, .status = GPT_OK, .err = err};
    int status;

    atomic_init(&w.shares, true);
    atomic_init(&w.failed, false);
    GPT_TRY_GOTO(status, cut_parts(&w, err), out);
    if (p->resume)
        GPT_TRY_GOTO(status, take_parts(&w, err), out);
    fill_all(&w);
    status = w.status;
out:
    gpt_free(w.works);
    gpt_free(w.sums);
    return status;
}
