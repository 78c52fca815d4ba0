/* The thread that fills the ring of preprocess_ring.h. Start at
 * gpt_ring_reader(), at the end. */
#include "cmd/preprocess/ring_internal.h"

#include "base/memory.h"
#include "base/num.h"

enum { CHUNK_BYTES = 1 << 18 };

/* ---- chunks ---- */

/* Waits until fewer than `limit` chunks are in flight; false when the work is
 * to stop. With the lock. */
static bool wait_fewer(struct gpt_ring *r, size_t limit)
{
    while (!r->stop && r->head - r->tail >= limit)
        pthread_cond_wait(&r->can_fill, &r->lock);
    return !r->stop;
}

/* A chunk to fill, or NULL when the work is to stop. */
static struct gpt_line_chunk *take_unused(struct gpt_ring *r, size_t limit)
{
    struct gpt_line_chunk *c = NULL;

    pthread_mutex_lock(&r->lock);
    if (wait_fewer(r, limit))
        c = r->unused[--r->n_unused];
    pthread_mutex_unlock(&r->lock);
    return c;
}

static void put_unused(struct gpt_ring *r, struct gpt_line_chunk *c)
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

static void publish(struct gpt_ring *r, struct gpt_line_chunk *c)
{
    pthread_mutex_lock(&r->lock);
    r->slots[r->head++ % r->n_slots] = (struct gpt_ring_slot){c, false};
    pthread_cond_signal(&r->can_take);
    pthread_mutex_unlock(&r->lock);
}

/* ---- inputs ---- */

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
    size_t limit = plain ? r->n_slots - GPT_RING_AHEAD : r->n_slots;

    for (;;) {
        struct gpt_line_chunk *c = take_unused(r, limit);

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
    cut.status = gpt_input_open_range(&in, &r->o->inputs[number],
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

void *gpt_ring_reader(void *ring)
{
    struct gpt_ring *r = ring;

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
