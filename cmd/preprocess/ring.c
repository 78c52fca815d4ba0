/* The ring of preprocess_ring.h: the reader fills a chunk for the slot at
 * `head`, workers take those from `take` on, the caller empties the one at
 * `tail` once it is done. Chunks that are free lie on a stack, so that the ones
 * in use are those that caches hold. Start at gpt_ring_next() and read upwards.
 */
#include "cmd/preprocess/ring_internal.h"

#include "base/memory.h"
#include "base/num.h"
#include "base/thread.h"
#include "text/inputs.h"

#include <errno.h>
#include <time.h>

enum { MAX_WORKERS = 1024, WAIT_MS = 200 };

static const struct gpt_preprocess_limits defaults = {
    .line = (int64_t)4 << 30,
    .sequence = INT32_MAX - 1,
    .long_line = 16 << 20,
};

/* ---- the workers ---- */

static struct gpt_ring_slot *wait_filled(struct gpt_ring *r)
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
    struct gpt_ring_slot *s;

    pthread_mutex_lock(&r->lock);
    struct gpt_line_chunk_worker *w = &r->workers[r->n_started++];
    while ((s = wait_filled(r))) {
        pthread_mutex_unlock(&r->lock);
        gpt_line_chunk_encode(w, s->chunk);
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

const struct gpt_line_chunk *gpt_ring_next(struct gpt_ring *r, bool *end)
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
    const struct gpt_line_chunk *c =
        tail_done(r) ? r->slots[r->tail % r->n_slots].chunk : NULL;
    *end = at_end(r);
    pthread_mutex_unlock(&r->lock);
    return c;
}

void gpt_ring_release(struct gpt_ring *r)
{
    struct gpt_line_chunk *c = r->slots[r->tail % r->n_slots].chunk;

    gpt_line_chunk_trim(c, (size_t)r->o->n_keys, (size_t)r->limits.long_line);
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
    r->input_bytes = gpt_max_i64(0, gpt_inputs_bytes(o->inputs, from->input));
    r->n_workers =
        (size_t)gpt_max_i64(1, gpt_min_i64(o->workers, MAX_WORKERS));
    r->n_slots = 2 * r->n_workers + 4 + GPT_RING_AHEAD;
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
        GPT_TRY(gpt_line_chunk_init(&r->chunks[i], n_keys, err));
        r->unused[r->n_unused++] = &r->chunks[i];
    }
    return gpt_new(&r->sums, (size_t)r->o->n_inputs, sizeof(*r->sums),
                   "digests of inputs", err);
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
        status = gpt_thread_start(&r->reader, "reader", gpt_ring_reader, r,
                                  err);
    r->reading = status == GPT_OK;
    if (status != GPT_OK)
        gpt_ring_close(r);
    else
        *ring = r;
    return status;
}

static int open_worker(struct gpt_ring *r, struct gpt_line_chunk_worker *w,
                       enum gpt_dtype dtype, struct gpt_err *err)
{
    const struct gpt_preprocess_options *o = r->o;

    *w = (struct gpt_line_chunk_worker){
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
        GPT_TRY(gpt_thread_start(&r->threads[r->n_threads], "tokenizer",
                                 worker_main, r, err));
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
        gpt_thread_join(r->reader);
    for (size_t i = 0; i < r->n_threads; i++)
        gpt_thread_join(r->threads[i]);
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
        gpt_line_chunk_free(&r->chunks[i], (size_t)r->o->n_keys);
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
