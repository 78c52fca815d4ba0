/* The ring of chunks: see ring.h for the protocol. One lock guards all numbers;
 * it is held for a few instructions a chunk of some hundred kilobytes, so that
 * threads hardly ever meet at it. A chunk itself belongs to the one thread that
 * took it, without a lock. Read the reader's part first. */
#include "cmd/preprocess/ring.h"

#include "base/memory.h"
#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <time.h>

enum { WAIT_MS = 200 };

struct slot {
    struct gpt_line_chunk *chunk;
    bool encoded;
};

struct gpt_ring {
    size_t n_slots, n_keys, keep;  /* as many chunks as slots */
    struct gpt_line_chunk *chunks; /* the memory of all */

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t can_fill, can_take, can_write;
    struct slot *slots;
    /* Always tail <= take <= head: chunks below tail are written, those below
     * take are with a worker or encoded, those below head are filled. */
    size_t head, take, tail; /* chunk numbers; they only grow */
    struct gpt_line_chunk **unused;
    size_t n_unused;
    bool ended, stopped;
};

static struct slot *slot_of(struct gpt_ring *r, size_t number)
{
    return &r->slots[number % r->n_slots];
}

/* ---- the reader ---- */

/* With the lock. Returns false after a stop. */
static bool wait_fewer(struct gpt_ring *r, size_t limit)
{
    while (!r->stopped && r->head - r->tail >= limit)
        pthread_cond_wait(&r->can_fill, &r->lock);
    return !r->stopped;
}

struct gpt_line_chunk *gpt_ring_take_empty(struct gpt_ring *r, size_t limit)
{
    struct gpt_line_chunk *c = NULL;

    assert(limit >= 1 && limit <= r->n_slots);
    pthread_mutex_lock(&r->lock);
    if (wait_fewer(r, limit)) {
        /* Fewer in flight than chunks: one is unused. */
        assert(r->n_unused > 0);
        c = r->unused[--r->n_unused];
    }
    pthread_mutex_unlock(&r->lock);
    return c;
}

/* Unused chunks lie on a stack: the one that was used last, whose memory is
 * most likely in a cache, is taken first, and chunks of a ring that is never
 * full are never touched. With the lock. */
static void push_unused(struct gpt_ring *r, struct gpt_line_chunk *c)
{
    assert(r->n_unused < r->n_slots);
    r->unused[r->n_unused++] = c;
}

void gpt_ring_put_empty(struct gpt_ring *r, struct gpt_line_chunk *c)
{
    pthread_mutex_lock(&r->lock);
    push_unused(r, c);
    pthread_mutex_unlock(&r->lock);
}

void gpt_ring_put_filled(struct gpt_ring *r, struct gpt_line_chunk *c)
{
    pthread_mutex_lock(&r->lock);
    assert(r->head - r->tail < r->n_slots && !r->ended);
    *slot_of(r, r->head++) = (struct slot){c, false};
    pthread_cond_signal(&r->can_take); /* one chunk, one worker */
    pthread_mutex_unlock(&r->lock);
}

void gpt_ring_wait_empty(struct gpt_ring *r)
{
    pthread_mutex_lock(&r->lock);
    wait_fewer(r, 1);
    pthread_mutex_unlock(&r->lock);
}

void gpt_ring_end(struct gpt_ring *r)
{
    pthread_mutex_lock(&r->lock);
    r->ended = true;
    /* Every worker that waits ends; so does the writer, if all is written. */
    pthread_cond_broadcast(&r->can_take);
    pthread_cond_signal(&r->can_write);
    pthread_mutex_unlock(&r->lock);
}

/* ---- the workers ---- */

struct gpt_line_chunk *gpt_ring_take_filled(struct gpt_ring *r, size_t *number)
{
    struct gpt_line_chunk *c = NULL;

    pthread_mutex_lock(&r->lock);
    while (!r->stopped && r->take == r->head && !r->ended)
        pthread_cond_wait(&r->can_take, &r->lock);
    /* At the end the chunks that are left are still encoded. */
    if (!r->stopped && r->take != r->head) {
        *number = r->take++;
        c = slot_of(r, *number)->chunk;
    }
    pthread_mutex_unlock(&r->lock);
    return c;
}

void gpt_ring_put_encoded(struct gpt_ring *r, size_t number)
{
    pthread_mutex_lock(&r->lock);
    assert(number - r->tail < r->take - r->tail); /* was taken, not released */
    slot_of(r, number)->encoded = true;
    /* Also when it is not the one at the tail: the writer looks again, and the
     * common case needs no second condition. */
    pthread_cond_signal(&r->can_write);
    pthread_mutex_unlock(&r->lock);
}

/* ---- the writer ---- */

/* The chunk at the tail, if it is encoded. With the lock. */
static struct gpt_line_chunk *encoded_tail(struct gpt_ring *r)
{
    const struct slot *s = slot_of(r, r->tail);

    return r->tail != r->head && s->encoded ? s->chunk : NULL;
}

static bool at_end(const struct gpt_ring *r)
{
    return r->ended && r->tail == r->head;
}

const struct gpt_line_chunk *gpt_ring_next(struct gpt_ring *r, bool *end)
{
    /* A limit to the wait lets the caller look at signals and draw its
     * progress, also while a long line is encoded. */
    const struct timespec until = gpt_thread_after(WAIT_MS / 1e3);
    int timed = 0;
    pthread_mutex_lock(&r->lock);
    while (!encoded_tail(r) && !at_end(r) && timed != ETIMEDOUT)
        timed = pthread_cond_timedwait(&r->can_write, &r->lock, &until);
    const struct gpt_line_chunk *c = encoded_tail(r);
    *end = at_end(r);
    pthread_mutex_unlock(&r->lock);
    return c;
}

/* Only the writer moves the tail: it may read it without the lock, and the
 * chunk is still its own. */
void gpt_ring_release(struct gpt_ring *r)
{
    struct gpt_line_chunk *c = slot_of(r, r->tail)->chunk;

    /* The chunk is still the writer's, so that memory is freed without the
     * lock. */
    gpt_line_chunk_trim(c, r->n_keys, r->keep);
    pthread_mutex_lock(&r->lock);
    assert(encoded_tail(r) == c && r->tail != r->take);
    push_unused(r, c);
    r->tail++;
    pthread_cond_signal(&r->can_fill);
    pthread_mutex_unlock(&r->lock);
}

/* ---- open, stop, close ---- */

static int make_chunks(struct gpt_ring *r, struct gpt_err *err)
{
    size_t n = r->n_slots;

    GPT_TRY(gpt_new(&r->slots, n, sizeof(*r->slots), "chunks", err));
    GPT_TRY(gpt_new(&r->unused, n, sizeof(*r->unused), "chunks", err));
    GPT_TRY(gpt_new(&r->chunks, n, sizeof(*r->chunks), "chunks", err));
    for (size_t i = 0; i < n; i++) {
        GPT_TRY(gpt_line_chunk_init(&r->chunks[i], r->n_keys, err));
        push_unused(r, &r->chunks[i]);
    }
    return GPT_OK;
}

int gpt_ring_open(struct gpt_ring **ring, size_t n_slots, size_t n_keys,
                  size_t keep, struct gpt_err *err)
{
    struct gpt_ring *r;

    *ring = NULL;
    GPT_TRY(gpt_new(&r, 1, sizeof(*r), "a ring of chunks", err));
    r->n_slots = n_slots;
    r->n_keys = n_keys;
    r->keep = keep;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->can_fill, NULL);
    pthread_cond_init(&r->can_take, NULL);
    gpt_thread_cond_init(&r->can_write);
    int status = make_chunks(r, err);
    if (status != GPT_OK)
        gpt_ring_close(r);
    else
        *ring = r;
    return status;
}

/* The writer needs no signal: it is the thread that stops the ring. */
void gpt_ring_stop(struct gpt_ring *r)
{
    pthread_mutex_lock(&r->lock);
    r->stopped = true;
    pthread_cond_broadcast(&r->can_fill);
    pthread_cond_broadcast(&r->can_take);
    pthread_mutex_unlock(&r->lock);
}

void gpt_ring_close(struct gpt_ring *r)
{
    if (!r)
        return;
    for (size_t i = 0; r->chunks && i < r->n_slots; i++)
        gpt_line_chunk_free(&r->chunks[i], r->n_keys);
    pthread_cond_destroy(&r->can_write);
    pthread_cond_destroy(&r->can_take);
    pthread_cond_destroy(&r->can_fill);
    pthread_mutex_destroy(&r->lock);
    gpt_free(r->chunks);
    gpt_free(r->unused);
    gpt_free(r->slots);
    gpt_free(r);
}
