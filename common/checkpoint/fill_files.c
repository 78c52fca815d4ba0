/* Whole files, several of them at once, and what threads and memory that takes;
 * see fill.h. Start at gpt_fill_files().
 *
 * write(2) holds a lock of its file, so that threads which share one file wait
 * for each other wherever writing is most of the work. So each file has a lane,
 * with its share of the threads, and no write waits for one of another lane. */
#include "checkpoint/fill.h"

#include "base/memory.h"
#include "base/num.h"
#include "checkpoint/merge.h"
#include "checkpoint/source.h"

#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    SEEN_BYTES = 128 << 20, /* of files that all threads look at, most */
    MOST_BYTES = 240 << 20, /* and with what they hold */
};

struct turn {
    int64_t file, bytes;
};

struct batch {
    struct gpt_fill *p;
    struct turn *turns; /* the files in their order */
    gpt_fill_one *write;
    void *context;
    int status; /* the first failure */
    struct gpt_err *err;
};

/* A number that was asked for is not cut to that of processors: more threads
 * are of use to disks that answer late, though not to copies in memory. */
int gpt_fill_threads(int asked)
{
    const int n = asked > 0 ? asked : omp_get_max_threads();

    return n < GPT_FILL_THREADS ? n : GPT_FILL_THREADS;
}

/* Packed tiles are smaller than their floats. */
static int64_t held_bytes(int threads, bool merges)
{
    const int64_t each = GPT_TILE_BYTES + GPT_TILE_SCRATCH;

    return gpt_fill_threads(threads) *
           (merges ? each + GPT_MERGE_SCRATCH : each);
}

int64_t gpt_fill_seen(int threads, bool merges)
{
    return gpt_min_i64(SEEN_BYTES, MOST_BYTES - held_bytes(threads, merges));
}

int64_t gpt_fill_memory(int threads, bool merges)
{
    return held_bytes(threads, merges) + gpt_fill_seen(threads, merges);
}

/* One file of a lane. The first failure is noted before others can follow from
 * it: they end when they see the flag. */
static void fill_one(struct batch *b, int64_t file, int threads)
{
    struct gpt_fill share = {.threads = threads,
                             .flags = b->p->flags,
                             .resume = b->p->resume,
                             .whole = b->p};
    struct gpt_err e = {0};

    if (atomic_load(&b->p->failed))
        return;
    const int status = b->write(b->context, file, &share, &e);
    if (status == GPT_OK)
        return;
#pragma omp critical(gpt_fill_error)
    if (b->status == GPT_OK) {
        b->status = status;
        if (b->err)
            *b->err = e;
    }
    atomic_store(&b->p->failed, true);
}

/* n files from turn `first` on, in so many lanes. */
static void fill_lanes(struct batch *b, int64_t first, int64_t n, int lanes,
                       int threads)
{
#pragma omp parallel for schedule(dynamic) num_threads(lanes) if (lanes > 1)
    for (int64_t i = 0; i < n; i++)
        fill_one(b, b->turns[first + i].file,
                 threads / lanes + (omp_get_thread_num() < threads % lanes));
}

static int compare_turns(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;

    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1)
                                : (x->file > y->file) - (x->file < y->file);
}

/* Lanes then end at about the same time. */
static int order_files(struct batch *b, const int64_t *bytes, int64_t n,
                       struct gpt_err *err)
{
    GPT_TRY(gpt_new(&b->turns, (size_t)n, sizeof(*b->turns), "files", err));
    for (int64_t i = 0; i < n; i++)
        b->turns[i] = (struct turn){i, bytes ? bytes[i] : 0};
    qsort(b->turns, (size_t)n, sizeof(*b->turns), compare_turns);
    return GPT_OK;
}

/* After the last tile: what no tile has read is left to be summed. */
static int check_source(struct gpt_fill *p, struct gpt_err *err)
{
    const int status =
        p->source ? gpt_source_check(p->source, err) : GPT_OK;

    p->spoilt = status == GPT_EDATA;
    return status;
}

/* The files that are left when all lanes have had as many share the threads
 * anew, so that none has nothing to do. */
int gpt_fill_files(struct gpt_fill *p, const int64_t *bytes, int64_t n,
                   gpt_fill_one *write, void *context, struct gpt_err *err)
{
    struct batch b = {.p = p, .write = write, .context = context,
                      .status = GPT_OK, .err = err};
    const int threads = gpt_fill_threads(p->threads);
    const int lanes = (int)gpt_min_i64(threads, n);
    const int64_t rest = n % gpt_max_i64(1, lanes);
    const int levels = omp_get_max_active_levels();

    if (n == 0)
        return check_source(p, err);
    GPT_TRY(order_files(&b, bytes, n, err));
    if (threads > lanes || rest > 0)
        omp_set_max_active_levels(2); /* threads inside of lanes */
    fill_lanes(&b, 0, n - rest, lanes, threads);
    if (rest > 0)
        fill_lanes(&b, n - rest, rest, (int)rest, threads);
    omp_set_max_active_levels(levels);
    gpt_free(b.turns);
    return b.status == GPT_OK ? check_source(p, err) : b.status;
}

/* The size is known, so that a full disk is reported at once. What is between
 * parts and behind the last is zero. */
int gpt_fill_file(struct gpt_fill *p, const char *path, const char *name,
                  int64_t bytes, struct gpt_part *parts, int64_t n,
                  struct gpt_err *err)
{
    struct gpt_out *out;

    GPT_TRY(gpt_out_open(&out, path, p->flags, bytes, err));
    int status = gpt_fill(p, out, name, parts, n, false, err);
    if (status == GPT_OK)
        status = check_source(p, err);
    if (status == GPT_OK)
        return gpt_out_commit(out, err);
    gpt_out_abort(out);
    return status;
}
