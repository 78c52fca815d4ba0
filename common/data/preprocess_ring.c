/* The ring of preprocess_ring.h: the reader fills the slot at `head`, workers
 * take those from `take` on, the caller empties the one at `tail` once it is
 * done. Start at gpt_ring_next() and read upwards. */
#include "data/preprocess_ring.h"

#include "base/memory.h"
#include "base/num.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

enum { CHUNK_BYTES = 1 << 20, MAX_WORKERS = 1024, WAIT_MS = 200 };

enum state { FREE, FILLED, DONE };

struct slot {
    struct gpt_chunk chunk;
    enum state state;
};

struct gpt_ring {
    const struct gpt_preprocess_options *o;
    enum gpt_dtype dtype;
    struct slot *slots;
    size_t n_slots;
    pthread_t *threads; /* the reader, then the workers */
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
    bool reader_done, stop;
    struct gpt_input *input; /* open now */
    int64_t input_bytes;     /* of the inputs closed */
};

/* ---- the reader ---- */

/* The slot to fill next, or NULL when the work is to stop. */
static struct slot *wait_free(struct gpt_ring *r)
{
    pthread_mutex_lock(&r->lock);
    while (!r->stop && r->head - r->tail == r->n_slots)
        pthread_cond_wait(&r->can_fill, &r->lock);
    struct slot *s = r->stop ? NULL : &r->slots[r->head % r->n_slots];
    pthread_mutex_unlock(&r->lock);
    return s;
}

static void publish(struct gpt_ring *r, struct slot *s)
{
    pthread_mutex_lock(&r->lock);
    s->state = FILLED;
    r->head++;
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
    for (;;) {
        struct slot *s = wait_free(r);
        if (!s)
            return false;
        struct gpt_chunk *c = &s->chunk;
        c->input = number;
        c->name = r->o->inputs[number].path;
        c->begin = cut->in ? gpt_input_begin(cut->in) : 0;
        gpt_cutter_next(cut, c);
        if (c->len == 0 && c->status == GPT_OK) {
            sum_up(r, cut, number, &digest);
            return true;
        }
        if (plain)
            gpt_xxh64_add(&digest, c->data, c->len);
        c->digest = digest;
        publish(r, s);
        if (c->len == 0)
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
        gpt_chunk_encode(w, &s->chunk);
        pthread_mutex_lock(&r->lock);
        s->state = DONE;
        pthread_cond_signal(&r->can_write);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* ---- who empties the ring ---- */

/* Is there nothing left? */
static bool at_end(const struct gpt_ring *r)
{
    return r->reader_done && r->tail == r->head;
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
    struct slot *s = &r->slots[r->tail % r->n_slots];
    while (s->state != DONE && !at_end(r) && timed != ETIMEDOUT)
        timed = pthread_cond_timedwait(&r->can_write, &r->lock, &until);
    bool done = s->state == DONE;
    *end = !done && at_end(r);
    pthread_mutex_unlock(&r->lock);
    return done ? &s->chunk : NULL;
}

void gpt_ring_release(struct gpt_ring *r)
{
    pthread_mutex_lock(&r->lock);
    r->slots[r->tail % r->n_slots].state = FREE;
    r->tail++;
    pthread_cond_signal(&r->can_fill);
    pthread_mutex_unlock(&r->lock);
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

static int open_workers(struct gpt_ring *r, struct gpt_err *err)
{
    size_t n = r->n_workers, n_keys = (size_t)r->o->n_keys;
    GPT_TRY(gpt_new(&r->workers, n, sizeof(*r->workers), "workers", err));
    for (size_t i = 0; i < n; i++) {
        struct gpt_chunk_worker *w = &r->workers[i];
        w->n_keys = n_keys;
        w->dtype = r->dtype;
        w->skip_bad = r->o->skip_bad;
        w->empty = r->o->empty;
        w->places = r->o->sources;
        w->eod = r->o->append_eod ? gpt_tokenizer_eod(r->o->tokenizer) : -1;
        GPT_TRY(gpt_encoder_open(&w->encoder, r->o->tokenizer, err));
        GPT_TRY(gpt_jsonl_open(&w->scanner, r->o->keys, n_keys, err));
    }
    GPT_TRY(gpt_new(&r->slots, 2 * n + 2, sizeof(*r->slots), "chunks", err));
    r->n_slots = 2 * n + 2;
    for (size_t i = 0; i < r->n_slots; i++)
        GPT_TRY(gpt_chunk_init(&r->slots[i].chunk, n_keys, err));
    return GPT_OK;
}

static int start_threads(struct gpt_ring *r, struct gpt_err *err)
{
    size_t n = r->n_workers + 1;
    GPT_TRY(gpt_new(&r->threads, n, sizeof(*r->threads), "threads", err));
    for (size_t i = 0; i < n; i++) {
        errno = pthread_create(&r->threads[i], NULL,
                               i ? worker_main : reader_main, r);
        if (errno)
            return gpt_fail_errno(err, GPT_EFAIL,
                                  "cannot start thread %zu of %zu", i + 1, n);
        r->n_threads++;
    }
    return GPT_OK;
}

int gpt_ring_open(struct gpt_ring **ring,
                  const struct gpt_preprocess_options *options,
                  enum gpt_dtype dtype, const struct gpt_point *from,
                  struct gpt_err *err)
{
    struct gpt_ring *r;
    *ring = NULL;
    GPT_TRY(gpt_new(&r, 1, sizeof(*r), "a ring of chunks", err));
    r->o = options;
    r->dtype = dtype;
    r->first_input = from->input;
    r->first_offset = from->offset;
    r->first_digest = from->digest;
    r->sums = from->sums;
    r->input_bytes =
        gpt_max_i64(0, gpt_preprocess_bytes(options, from->input));
    r->n_workers = (size_t)gpt_max_i64(
        1, gpt_min_i64(options->workers, MAX_WORKERS));
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->can_fill, NULL);
    pthread_cond_init(&r->can_take, NULL);
    pthread_cond_init(&r->can_write, NULL);
    int status = open_workers(r, err);
    if (status == GPT_OK)
        status = start_threads(r, err);
    if (status != GPT_OK) {
        gpt_ring_close(r);
        return status;
    }
    *ring = r;
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
    for (size_t i = 0; i < r->n_slots; i++)
        gpt_chunk_free(&r->slots[i].chunk, (size_t)r->o->n_keys);
    pthread_cond_destroy(&r->can_write);
    pthread_cond_destroy(&r->can_take);
    pthread_cond_destroy(&r->can_fill);
    pthread_mutex_destroy(&r->lock);
    gpt_free(r->workers);
    gpt_free(r->slots);
    gpt_free(r->threads);
    gpt_free(r);
}
