/* The threads of a run: see chunk_stream.h. Start at read_inputs(), the thread
 * that reads, and encode_chunks(), the threads that tokenize. */
#include "cmd/preprocess/chunk_stream.h"

#include "base/memory.h"
#include "base/num.h"
#include "base/thread.h"
#include "cmd/preprocess/cutter.h"
#include "cmd/preprocess/ring.h"
#include "text/inputs.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

enum { MAX_WORKERS = 1024, CHUNK_BYTES = 1 << 18 };

/* How many more chunks may be in flight where the input is decompressed: that
 * continues while a vocabulary loads and no worker takes them, and the slowest
 * vocabulary takes about that many chunks of time. What lies plain on disk need
 * not be read early. */
enum { AHEAD = 32 };

static const struct gpt_preprocess_limits defaults = {
    .line = (int64_t)4 << 30,
    .sequence = INT32_MAX - 1,
    .long_line = 16 << 20,
};

struct worker {
    struct gpt_chunk_stream *stream;
    struct gpt_line_chunk_worker state;
    pthread_t thread;
};

struct gpt_chunk_stream {
    const struct gpt_preprocess_options *o;
    struct gpt_preprocess_limits limits;
    struct gpt_ring *ring;
    size_t n_slots; /* of the ring */
    pthread_t reader;
    bool reading; /* the reader was started */
    struct worker *workers;
    size_t n_workers, n_started;

    /* Where the reader begins. */
    int64_t first_input, first_offset;
    struct gpt_xxh64 first_digest;

    /* Written by the reader before it puts a chunk of a later input, or ends:
     * the ring's lock orders that before the caller reads it. */
    struct gpt_input_sum *sums;

    pthread_mutex_t lock;    /* of all below */
    struct gpt_input *input; /* open now */
    int64_t input_bytes;     /* of the inputs closed */
    bool stopping;
};

/* ---- the workers ---- */

/* A worker has its own encoder and scanner: only the ring is shared. */
static void *encode_chunks(void *worker)
{
    struct worker *w = worker;
    struct gpt_ring *ring = w->stream->ring;
    struct gpt_line_chunk *c;
    size_t number;

    while ((c = gpt_ring_take_filled(ring, &number))) {
        gpt_line_chunk_encode(&w->state, c);
        gpt_ring_put_encoded(ring, number);
    }
    return NULL;
}

/* ---- the reader ---- */

/* Names the input that is open, for gpt_chunk_stream_consumed() and for a stop,
 * which cancels a read that waits for a pipe. A stop that came before it is not
 * lost: it cancels the input here. */
static void set_input(struct gpt_chunk_stream *s, struct gpt_input *in)
{
    pthread_mutex_lock(&s->lock);
    if (s->input)
        s->input_bytes += gpt_input_consumed(s->input);
    s->input = in;
    if (in && s->stopping)
        gpt_input_cancel(in);
    pthread_mutex_unlock(&s->lock);
}

/* Keeps the sum of an input that is at its end. It is that of the bytes on
 * disk: a decompressor sees them, and a plain input's are those of its
 * chunks. */
static void keep_sum(struct gpt_chunk_stream *s, const struct gpt_cutter *cut,
                     int64_t number, const struct gpt_xxh64 *plain)
{
    struct gpt_xxh64 packed;
    const struct gpt_xxh64 *digest = plain;

    if (!gpt_input_is_plain(cut->in)) {
        gpt_input_digest(cut->in, &packed);
        digest = &packed;
    }
    s->sums[number] = (struct gpt_input_sum){
        .begin = gpt_input_begin(cut->in),
        .bytes = (int64_t)digest->n,
        .xxh64 = gpt_xxh64_end(digest),
    };
}

/* `in` is NULL where it could not be opened. */
static void describe_input(struct gpt_line_chunk *c, const struct gpt_input *in,
                           const char *path)
{
    const bool unnamed = strcmp(path, "-") == 0;

    c->name = unnamed ? "(standard input)" : path;
    c->packed = in ? gpt_input_packed(in) : NULL;
    c->pipe = unnamed || (in && gpt_input_size(in) < 0);
    c->begin = in ? gpt_input_begin(in) : 0;
}

/* Reads an input to its end. Returns false when nothing more is to be read:
 * after a failure, which the last chunk carries, and after a stop. */
static bool read_input(struct gpt_chunk_stream *s, struct gpt_cutter *cut,
                       int64_t number, struct gpt_xxh64 digest)
{
    bool plain = cut->in && gpt_input_is_plain(cut->in);
    size_t limit = plain ? s->n_slots - AHEAD : s->n_slots;

    for (;;) {
        struct gpt_line_chunk *c = gpt_ring_take_empty(s->ring, limit);

        if (!c)
            return false;
        c->input = number;
        describe_input(c, cut->in, s->o->inputs[number].path);
        gpt_cutter_next(cut, c);
        if (c->len == 0 && c->status == GPT_OK) {
            gpt_ring_put_empty(s->ring, c);
            keep_sum(s, cut, number, &digest);
            return true;
        }
        /* Once the chunk is put it is a worker's, which may change it: the
         * digest is taken before. */
        if (plain)
            gpt_xxh64_add(&digest, c->data, c->len);
        c->digest = digest;
        /* Once put, the chunk belongs to a worker. */
        bool failed = c->len == 0;
        gpt_ring_put_filled(s->ring, c);
        if (failed)
            return false;
    }
}

static void wait_alone(void *ring)
{
    gpt_ring_wait_empty(ring);
}

/* A failure to open travels like one to read: as a chunk without lines. */
static bool open_and_read(struct gpt_chunk_stream *s, int64_t number)
{
    bool first = number == s->first_input;
    int64_t offset = first ? s->first_offset : 0;
    struct gpt_xxh64 digest = {0};
    struct gpt_input *in = NULL;
    struct gpt_cutter cut = {.chunk_bytes = s->o->chunk_bytes,
                             .max_line = s->limits.line,
                             .long_line = s->limits.long_line,
                             .wait_alone = wait_alone,
                             .user = s->ring,
                             .offset = offset,
                             .whole_lines = s->o->skip_bad};

    if (cut.chunk_bytes <= 0)
        cut.chunk_bytes = CHUNK_BYTES;
    cut.status = gpt_input_open_range(&in, &s->o->inputs[number],
                                      s->o->workers, &cut.err);
    cut.in = in;
    set_input(s, in);
    if (cut.status == GPT_OK && offset > 0)
        cut.status = gpt_input_skip(in, offset, &cut.err);
    if (first)
        digest = s->first_digest;
    /* A failure to open or to skip is in cut.status: the first chunk carries
     * it. */
    bool more = read_input(s, &cut, number, digest);
    set_input(s, NULL);
    gpt_input_close(in);
    /* What is left there was a line cut by a failure. */
    gpt_free(cut.rest);
    return more;
}

static void *read_inputs(void *stream)
{
    struct gpt_chunk_stream *s = stream;

    for (int64_t i = s->first_input; i < s->o->n_inputs; i++)
        if (!open_and_read(s, i))
            break;
    gpt_ring_end(s->ring);
    return NULL;
}

/* ---- the caller ---- */

const struct gpt_line_chunk *gpt_chunk_stream_next(struct gpt_chunk_stream *s,
                                                   bool *end)
{
    return gpt_ring_next(s->ring, end);
}

void gpt_chunk_stream_release(struct gpt_chunk_stream *s)
{
    gpt_ring_release(s->ring);
}

/* The caller may read the sums of inputs before that of the chunk that it
 * holds, and all of them at the end. */
const struct gpt_input_sum *
gpt_chunk_stream_sums(const struct gpt_chunk_stream *s)
{
    return s->sums;
}

int64_t gpt_chunk_stream_consumed(struct gpt_chunk_stream *s)
{
    pthread_mutex_lock(&s->lock);
    int64_t bytes = s->input_bytes;
    if (s->input)
        bytes += gpt_input_consumed(s->input);
    pthread_mutex_unlock(&s->lock);
    return bytes;
}

/* ---- open, start, close ---- */

/* Tests lower the limits; users have no option for them. */
static int64_t limit_or(int64_t given, int64_t otherwise)
{
    return given > 0 ? given : otherwise;
}

static void fill_stream(struct gpt_chunk_stream *s,
                        const struct gpt_preprocess_options *o,
                        const struct gpt_point *from)
{
    s->o = o;
    s->limits.line = limit_or(o->limits.line, defaults.line);
    s->limits.sequence = limit_or(o->limits.sequence, defaults.sequence);
    s->limits.long_line = limit_or(o->limits.long_line, defaults.long_line);
    s->first_input = from->input;
    s->first_offset = from->offset;
    s->first_digest = from->digest;
    s->input_bytes = gpt_max_i64(0, gpt_inputs_bytes(o->inputs, from->input));
    s->n_workers =
        (size_t)gpt_max_i64(1, gpt_min_i64(o->workers, MAX_WORKERS));
    /* One in the hands of each worker, one waiting for it, and some that wait
     * for a slow one to be written. */
    s->n_slots = 2 * s->n_workers + 4 + AHEAD;
    pthread_mutex_init(&s->lock, NULL);
}

int gpt_chunk_stream_open(struct gpt_chunk_stream **stream,
                          const struct gpt_preprocess_options *options,
                          const struct gpt_point *from, struct gpt_err *err)
{
    struct gpt_chunk_stream *s;
    int status;

    *stream = NULL;
    GPT_TRY(gpt_new(&s, 1, sizeof(*s), "a stream of chunks", err));
    fill_stream(s, options, from);
    GPT_TRY_GOTO(status, gpt_ring_open(&s->ring, s->n_slots,
                                       (size_t)options->n_keys,
                                       (size_t)s->limits.long_line, err), fail);
    GPT_TRY_GOTO(status, gpt_new(&s->sums, (size_t)options->n_inputs,
                                 sizeof(*s->sums), "digests of inputs", err),
                 fail);
    GPT_TRY_GOTO(status, gpt_thread_start(&s->reader, "reader", read_inputs, s,
                                          err), fail);
    s->reading = true;
    *stream = s;
    return GPT_OK;
fail:
    gpt_chunk_stream_close(s);
    return status;
}

/* Encoders share the tokenizer, which is not changed after it was loaded. */
static int open_worker(struct gpt_chunk_stream *s, struct worker *w,
                       enum gpt_dtype dtype, struct gpt_err *err)
{
    const struct gpt_preprocess_options *o = s->o;

    w->stream = s;
    w->state = (struct gpt_line_chunk_worker){
        .n_keys = (size_t)o->n_keys,
        .dtype = dtype,
        .eod = o->append_eod ? gpt_tokenizer_eod(o->tokenizer) : -1,
        .empty = o->empty,
        .skip_bad = o->skip_bad,
        .keep_bad = o->quarantine != NULL,
        .places = o->sources,
        .max_sequence = s->limits.sequence,
        .long_line = s->limits.long_line,
    };
    GPT_TRY(gpt_encoder_open(&w->state.encoder, o->tokenizer, err));
    return gpt_jsonl_open(&w->state.scanner, o->keys, w->state.n_keys, err);
}

int gpt_chunk_stream_start(struct gpt_chunk_stream *s, enum gpt_dtype dtype,
                           struct gpt_err *err)
{
    size_t n = s->n_workers;

    assert(!s->workers); /* once */
    GPT_TRY(gpt_new(&s->workers, n, sizeof(*s->workers), "workers", err));
    for (size_t i = 0; i < n; i++)
        GPT_TRY(open_worker(s, &s->workers[i], dtype, err));
    /* All workers are open before the first is started: none runs when opening
     * another fails. */
    for (; s->n_started < n; s->n_started++)
        GPT_TRY(gpt_thread_start(&s->workers[s->n_started].thread, "tokenizer",
                                 encode_chunks, &s->workers[s->n_started],
                                 err));
    return GPT_OK;
}

/* A thread may wait at the ring or for bytes of a pipe: both are ended. */
static void join_threads(struct gpt_chunk_stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    if (s->input)
        gpt_input_cancel(s->input);
    pthread_mutex_unlock(&s->lock);
    if (s->ring)
        gpt_ring_stop(s->ring);
    if (s->reading)
        gpt_thread_join(s->reader);
    /* Workers that were not started have no thread to join. */
    for (size_t i = 0; i < s->n_started; i++)
        gpt_thread_join(s->workers[i].thread);
}

void gpt_chunk_stream_close(struct gpt_chunk_stream *s)
{
    if (!s)
        return;
    join_threads(s);
    for (size_t i = 0; s->workers && i < s->n_workers; i++) {
        gpt_encoder_close(s->workers[i].state.encoder);
        gpt_jsonl_close(s->workers[i].state.scanner);
    }
    gpt_ring_close(s->ring);
    pthread_mutex_destroy(&s->lock);
    gpt_free(s->workers);
    gpt_free(s->sums);
    gpt_free(s);
}
