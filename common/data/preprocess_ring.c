/* The ring of preprocess_ring.h: the reader fills a chunk for the slot at
 * `head`, workers take those from `take` on, the caller empties the one at
 * `tail` once it is done. Chunks that are free lie on a stack, so that the ones
 * in use are those that caches hold. Start at gpt_ring_next() and read upwards.
 */
#include "data/preprocess_ring.h"

#include "base/memory.h"
#include "base/num.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

/* A decompressor goes on while nobody takes its chunks, as long as the longest
 * vocabulary takes to load; what lies plain on disk need not be read early. */
enum { CHUNK_BYTES = 1 << 18, AHEAD = 32, MAX_WORKERS = 1024, WAIT_MS = 200 };

static const struct gpt_preprocess_limits defaults = {
    .line = (int64_t)4 << 30,
    .sequence = INT32_MAX - 1,
    .long_line = 16 << 20,
};

struct slot {
    struct gpt_chunk *chunk;
    bool done; /* encoded */
};

struct gpt_ring {
    const struct gpt_preprocess_options *o;
    struct gpt_preprocess_limits limits;
    struct gpt_chunk *chunks;
    struct slot *slots;
    size_t n_slots; /* and chunks */
    pthread_t reader, *threads; /* the workers */
    bool reading;
    size_t n_threads;
    struct gpt_chunk_worker *workers;
    size_t n_workers;
    size_t n_started; /* workers that have taken their state */
    int64_t first_input, first_offset;
    struct gpt_xxh64 first_digest;
    struct gpt_input_sum *sums; /* of each input, when it is read */

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t can_fill, can_take, can_write;
    size_t head, take, tail; /* chunk numbers; slot = number % n_slots */
    struct gpt_chunk **unused;
    size_t n_unused;
    bool reader_done, stop;
    struct gpt_input *input; /* open now */
    int64_t input_bytes;     /* of the inputs closed */
};

/* ---- the reader ---- */

/* Waits until fewer than `limit` chunks are in flight; false when the work is
 * to stop. With the lock. */
static bool wait_fewer(struct gpt_ring *r, size_t limit)
{
    while (!r->stop && r->head - r->tail >= limit)
        pthread_cond_wait(&r->can_fill, &r->lock);
    return !r->stop;
}

/* A chunk to fill, or NULL when the work is to stop. */
static struct gpt_chunk *take_unused(struct gpt_ring *r, size_t limit)
{
    struct gpt_chunk *c = NULL;
    pthread_mutex_lock(&r->lock);
    if (wait_fewer(r, limit))
        c = r->unused[--r->n_unused];
    pthread_mutex_unlock(&r->lock);
    return c;
}

static void put_unused(struct gpt_ring *r, struct gpt_chunk *c)
{
    pthread_mutex_lock(&r->lock);
    r->unused[r->n_unused++] = c;
    pthread_mutex_unlock(&r->lock);
}

static void wait_alone(void *ring)
{
    struct gpt_ring *r = ring;
    pthread_mutex_lock(&r->lock);
    wait_fewer(r, 1);
    pthread_mutex_unlock(&r->lock);
}

static void publish(struct gpt_ring *r, struct gpt_chunk *c)
{
    pthread_mutex_lock(&r->lock);
    r->slots[r->head++ % r->n_slots] = (struct slot){c, false};
    pthread_cond_signal(&r->can_take);
    pthread_mutex_unlock(&r->lock);
}

static void set_input(struct gpt_ring *r, struct gpt_input *in)
{
    pthread_mutex_lock(&r->lock);
    if (r->input)
        r->input_bytes += gpt_input_consumed(r->input);
    r->input = in;
    if (in && r->stop)
        gpt_input_cancel(in);
    pthread_mutex_unlock(&r->lock);
}

/* An input is at its end. */
static void sum_up(struct gpt_ring *r, const struct gpt_cutter *cut,
                   int64_t number, const struct gpt_xxh64 *plain)
{
    struct gpt_xxh64 packed;
    const struct gpt_xxh64 *digest = plain;
    if (!gpt_input_is_plain(cut->in)) {
        gpt_input_digest(cut->in, &packed);
        digest = &packed;
    }
    r->sums[number] = (struct gpt_input_sum){
        .begin = gpt_input_begin(cut->in),
        .bytes = (int64_t)digest->n,
        .xxh64 = gpt_xxh64_end(digest),
    };
}

/* False when nothing more is to be read. */
static bool read_input(struct gpt_ring *r, struct gpt_cutter *cut,
                       int64_t number, struct gpt_xxh64 digest)
{
    bool plain = cut->in && gpt_input_is_plain(cut->in);
    size_t limit = plain ? r->n_slots - AHEAD : r->n_slots;
    for (;;) {
        struct gpt_chunk *c = take_unused(r, limit);
        if (!c)
            return false;
        c->input = number;
        c->name = r->o->inputs[number].path;
        c->begin = cut->in ? gpt_input_begin(cut->in) : 0;
        gpt_cutter_next(cut, c);
        if (c->len == 0 && c->status == GPT_OK) {
            put_unused(r, c);
            sum_up(r, cut, number, &digest);
            return true;
        }
        if (plain)
            gpt_xxh64_add(&digest, c->data, c->len);
        c->digest = digest;
        bool failed = c->len == 0;
        publish(r, c);
        if (failed)
            return false;
    }
}

/* A failure to open travels like one to read: as a chunk without lines. */
static bool open_and_read(struct gpt_ring *r, int64_t number)
{
    bool first = number == r->first_input;
    int64_t offset = first ? r->first_offset : 0;
    struct gpt_xxh64 digest = {0};
    struct gpt_input *in = NULL;
    struct gpt_cutter cut = {.chunk_bytes = r->o->chunk_bytes,
                             .max_line = r->limits.line,
                             .long_line = r->limits.long_line,
                             .wait_alone = wait_alone,
                             .user = r,
                             .offset = offset,
                             .whole_lines = r->o->skip_bad};
    if (cut.chunk_bytes <= 0)
        cut.chunk_bytes = CHUNK_BYTES;
    cut.status = gpt_input_open_span(&in, &r->o->inputs[number],
                                     r->o->workers, &cut.err);
    cut.in = in;
    set_input(r, in);
    if (cut.status == GPT_OK && offset > 0)
        cut.status = gpt_input_skip(in, offset, &cut.err);
    if (first)
        digest = r->first_digest;
    bool more = read_input(r, &cut, number, digest);
    set_input(r, NULL);
    gpt_input_close(in);
    gpt_free(cut.rest);
    return more;
}

static void *reader_main(void *arg)
{
    struct gpt_ring *r = arg;
    for (int64_t i = r->first_input; i < r->o->n_inputs; i++)
        if (!open_and_read(r, i))
            break;
    pthread_mutex_lock(&r->lock);
    r->reader_done = true;
    pthread_cond_broadcast(&r->can_take);
    pthread_cond_signal(&r->can_write);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* ---- the workers ---- */

static struct slot *wait_filled(struct gpt_ring *r)
{
    while (!r->stop && r->take == r->head && !r->reader_done)
        pthread_cond_wait(&r->can_take, &r->lock);
    if (r->stop || r->take == r->head)
        return NULL;
    return &r->slots[r->take++ % r->n_slots];
}

static void *worker_main(void *arg)
{
    struct gpt_ring *r = arg;
    struct slot *s;
    pthread_mutex_lock(&r->lock);
    struct gpt_chunk_worker *w = &r->workers[r->n_started++];
    while ((s = wait_filled(r))) {
        pthread_mutex_unlock(&r->lock);
        gpt_chunk_encode(w, s->chunk);
        pthread_mutex_lock(&r->lock);
        s->done = true;
        pthread_cond_signal(&r->can_write);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* ---- who empties the ring ---- */

static bool at_end(const struct gpt_ring *r)
{
    return r->reader_done && r->tail == r->head;
}

/* The chunk at the tail is encoded. */
static bool tail_done(const struct gpt_ring *r)
{
    return r->tail != r->head && r->slots[r->tail % r->n_slots].done;
}

const struct gpt_chunk *gpt_ring_next(struct gpt_ring *r, bool *end)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int timed = 0;
    pthread_mutex_lock(&r->lock);
    while (!tail_done(r) && !at_end(r) && timed != ETIMEDOUT)
        timed = pthread_cond_timedwait(&r->can_write, &r->lock, &until);
    const struct gpt_chunk *c =
        tail_done(r) ? r->slots[r->tail % r->n_slots].chunk : NULL;
    *end = at_end(r);
    pthread_mutex_unlock(&r->lock);
    return c;
}

void gpt_ring_release(struct gpt_ring *r)
{
    struct gpt_chunk *c = r->slots[r->tail % r->n_slots].chunk;
    gpt_chunk_trim(c, (size_t)r->o->n_keys, (size_t)r->limits.long_line);
    pthread_mutex_lock(&r->lock);
    r->unused[r->n_unused++] = c;
    r->tail++;
    pthread_cond_signal(&r->can_fill);
    pthread_mutex_unlock(&r->lock);
}

const struct gpt_input_sum *gpt_ring_sums(const struct gpt_ring *r)
{
    return r->sums;
}

int64_t gpt_ring_consumed(struct gpt_ring *r)
{
    pthread_mutex_lock(&r->lock);
    int64_t bytes = r->input_bytes;
    if (r->input)
        bytes += gpt_input_consumed(r->input);
    pthread_mutex_unlock(&r->lock);
    return bytes;
}

/* ---- setting up and taking down ---- */

static int64_t limit_or(int64_t given, int64_t otherwise)
{
    return given > 0 ? given : otherwise;
}

static void fill_ring(struct gpt_ring *r,
                      const struct gpt_preprocess_options *o,
                      const struct gpt_point *from)
{
    r->o = o;
    r->limits.line = limit_or(o->limits.line, defaults.line);
    r->limits.sequence = limit_or(o->limits.sequence, defaults.sequence);
    r->limits.long_line = limit_or(o->limits.long_line, defaults.long_line);
    r->first_input = from->input;
    r->first_offset = from->offset;
    r->first_digest = from->digest;
    r->input_bytes = gpt_max_i64(0, gpt_preprocess_bytes(o, from->input));
    r->n_workers =
        (size_t)gpt_max_i64(1, gpt_min_i64(o->workers, MAX_WORKERS));
    r->n_slots = 2 * r->n_workers + 4 + AHEAD;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->can_fill, NULL);
    pthread_cond_init(&r->can_take, NULL);
    pthread_cond_init(&r->can_write, NULL);
}

static int make_chunks(struct gpt_ring *r, struct gpt_err *err)
{
    size_t n = r->n_slots, n_keys = (size_t)r->o->n_keys;
    GPT_TRY(gpt_new(&r->slots, n, sizeof(*r->slots), "chunks", err));
    GPT_TRY(gpt_new(&r->unused, n, sizeof(*r->unused), "chunks", err));
    GPT_TRY(gpt_new(&r->chunks, n, sizeof(*r->chunks), "chunks", err));
    for (size_t i = 0; i < n; i++) {
        GPT_TRY(gpt_chunk_init(&r->chunks[i], n_keys, err));
        r->unused[r->n_unused++] = &r->chunks[i];
    }
    return gpt_new(&r->sums, (size_t)r->o->n_inputs, sizeof(*r->sums),
                   "digests of inputs", err);
}

static int start_thread(pthread_t *thread, void *(*run)(void *),
                        struct gpt_ring *r, struct gpt_err *err)
{
    errno = pthread_create(thread, NULL, run, r);
    return errno ? gpt_fail_errno(err, GPT_EFAIL, "cannot start a thread")
                 : GPT_OK;
}

int gpt_ring_open(struct gpt_ring **ring,
                  const struct gpt_preprocess_options *options,
                  const struct gpt_point *from, struct gpt_err *err)
{
    struct gpt_ring *r;
    *ring = NULL;
    GPT_TRY(gpt_new(&r, 1, sizeof(*r), "a ring of chunks", err));
    fill_ring(r, options, from);
    int status = make_chunks(r, err);
    if (status == GPT_OK)
        status = start_thread(&r->reader, reader_main, r, err);
    r->reading = status == GPT_OK;
    if (status != GPT_OK)
        gpt_ring_close(r);
    else
        *ring = r;
    return status;
}

static int open_worker(struct gpt_ring *r, struct gpt_chunk_worker *w,
                       enum gpt_dtype dtype, struct gpt_err *err)
{
    const struct gpt_preprocess_options *o = r->o;
    *w = (struct gpt_chunk_worker){
        .n_keys = (size_t)o->n_keys,
        .dtype = dtype,
        .eod = o->append_eod ? gpt_tokenizer_eod(o->tokenizer) : -1,
        .empty = o->empty,
        .skip_bad = o->skip_bad,
        .keep_bad = o->quarantine != NULL,
        .places = o->sources,
        .max_sequence = r->limits.sequence,
        .long_line = r->limits.long_line,
    };
    GPT_TRY(gpt_encoder_open(&w->encoder, o->tokenizer, err));
    return gpt_jsonl_open(&w->scanner, o->keys, w->n_keys, err);
}

int gpt_ring_start(struct gpt_ring *r, enum gpt_dtype dtype,
                   struct gpt_err *err)
{
    size_t n = r->n_workers;
    GPT_TRY(gpt_new(&r->workers, n, sizeof(*r->workers), "workers", err));
    GPT_TRY(gpt_new(&r->threads, n, sizeof(*r->threads), "threads", err));
    for (size_t i = 0; i < n; i++)
        GPT_TRY(open_worker(r, &r->workers[i], dtype, err));
    for (; r->n_threads < n; r->n_threads++)
        GPT_TRY(start_thread(&r->threads[r->n_threads], worker_main, r, err));
    return GPT_OK;
}

static void join_threads(struct gpt_ring *r)
{
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    if (r->input)
        gpt_input_cancel(r->input);
    pthread_cond_broadcast(&r->can_fill);
    pthread_cond_broadcast(&r->can_take);
    pthread_mutex_unlock(&r->lock);
    if (r->reading)
        pthread_join(r->reader, NULL);
    for (size_t i = 0; i < r->n_threads; i++)
        pthread_join(r->threads[i], NULL);
}

void gpt_ring_close(struct gpt_ring *r)
{
    if (!r)
        return;
    join_threads(r);
    for (size_t i = 0; r->workers && i < r->n_workers; i++) {
        gpt_encoder_close(r->workers[i].encoder);
        gpt_jsonl_close(r->workers[i].scanner);
    }
    for (size_t i = 0; r->chunks && i < r->n_slots; i++)
        gpt_chunk_free(&r->chunks[i], (size_t)r->o->n_keys);
    pthread_cond_destroy(&r->can_write);
    pthread_cond_destroy(&r->can_take);
    pthread_cond_destroy(&r->can_fill);
    pthread_mutex_destroy(&r->lock);
    gpt_free(r->workers);
    gpt_free(r->chunks);
    gpt_free(r->unused);
    gpt_free(r->slots);
    gpt_free(r->sums);
    gpt_free(r->threads);
    gpt_free(r);
}
