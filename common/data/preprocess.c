/* The pipeline of preprocess.h. Chunks travel round a ring of slots: the reader
 * fills the slot at `head`, workers take those from `take` on, the calling
 * thread writes the one at `tail` once it is done. The ring's size bounds the
 * memory and makes a fast stage wait for a slow one. A failure travels in its
 * chunk, so that the first one in the order of the input is reported, whatever
 * the timing. Start at gpt_preprocess(). */
#include "data/preprocess.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/num.h"
#include "base/signals.h"
#include "data/preprocess_chunk.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { CHUNK_BYTES = 1 << 20, MAX_WORKERS = 1024, REPORT_MS = 200 };

enum state { FREE, FILLED, DONE };

struct slot {
    struct gpt_chunk chunk;
    enum state state;
};

struct pipeline {
    const struct gpt_preprocess_options *o;
    enum gpt_dtype dtype;
    struct slot *slots;
    size_t n_slots;
    pthread_t *threads; /* the reader, then the workers */
    size_t n_threads;
    struct gpt_chunk_worker *workers;
    size_t n_started; /* workers that have taken their state */
    struct gpt_indexed_writer **writers; /* a key each */
    struct gpt_out *quarantine; /* or NULL */

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t can_fill, can_take, can_write;
    size_t head, take, tail; /* chunk numbers; slot = number % n_slots */
    bool reader_done, stop;
    struct gpt_input *input; /* open now */
    int64_t input_bytes;     /* of the inputs closed */
};

/* ---- the reader ---- */

/* The slot to fill next, or NULL when the work is to stop. */
static struct slot *wait_free(struct pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->stop && p->head - p->tail == p->n_slots)
        pthread_cond_wait(&p->can_fill, &p->lock);
    struct slot *s = p->stop ? NULL : &p->slots[p->head % p->n_slots];
    pthread_mutex_unlock(&p->lock);
    return s;
}

static void publish(struct pipeline *p, struct slot *s)
{
    pthread_mutex_lock(&p->lock);
    s->state = FILLED;
    p->head++;
    pthread_cond_signal(&p->can_take);
    pthread_mutex_unlock(&p->lock);
}

static void set_input(struct pipeline *p, struct gpt_input *in)
{
    pthread_mutex_lock(&p->lock);
    if (p->input)
        p->input_bytes += gpt_input_consumed(p->input);
    p->input = in;
    if (in && p->stop)
        gpt_input_cancel(in);
    pthread_mutex_unlock(&p->lock);
}

/* False when nothing more is to be read. */
static bool read_input(struct pipeline *p, struct gpt_cutter *cut,
                       int64_t number)
{
    for (;;) {
        struct slot *s = wait_free(p);
        if (!s)
            return false;
        struct gpt_chunk *c = &s->chunk;
        c->input = number;
        c->name = p->o->inputs[number];
        gpt_cutter_next(cut, c);
        if (c->len == 0 && c->status == GPT_OK)
            return true;
        publish(p, s);
        if (c->len == 0)
            return false;
    }
}

/* A failure to open travels like one to read: as a chunk without lines. */
static bool open_and_read(struct pipeline *p, int64_t number)
{
    struct gpt_input *in = NULL;
    struct gpt_cutter cut = {.chunk_bytes = p->o->chunk_bytes,
                             .whole_lines = p->o->skip_bad};
    if (cut.chunk_bytes <= 0)
        cut.chunk_bytes = CHUNK_BYTES;
    cut.status = gpt_input_open(&in, p->o->inputs[number], p->o->workers,
                                &cut.err);
    cut.in = in;
    set_input(p, in);
    bool more = read_input(p, &cut, number);
    set_input(p, NULL);
    gpt_input_close(in);
    gpt_free(cut.rest);
    return more;
}

static void *reader_main(void *arg)
{
    struct pipeline *p = arg;
    for (int64_t i = 0; i < p->o->n_inputs; i++)
        if (!open_and_read(p, i))
            break;
    pthread_mutex_lock(&p->lock);
    p->reader_done = true;
    pthread_cond_broadcast(&p->can_take);
    pthread_cond_signal(&p->can_write);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- the workers ---- */

static struct slot *wait_filled(struct pipeline *p)
{
    while (!p->stop && p->take == p->head && !p->reader_done)
        pthread_cond_wait(&p->can_take, &p->lock);
    if (p->stop || p->take == p->head)
        return NULL;
    return &p->slots[p->take++ % p->n_slots];
}

static void *worker_main(void *arg)
{
    struct pipeline *p = arg;
    struct slot *s;
    pthread_mutex_lock(&p->lock);
    struct gpt_chunk_worker *w = &p->workers[p->n_started++];
    while ((s = wait_filled(p))) {
        pthread_mutex_unlock(&p->lock);
        gpt_chunk_encode(w, &s->chunk);
        pthread_mutex_lock(&p->lock);
        s->state = DONE;
        pthread_cond_signal(&p->can_write);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- the writer ---- */

static void report(struct pipeline *p, struct gpt_preprocess_stats *stats)
{
    pthread_mutex_lock(&p->lock);
    stats->input_bytes = p->input_bytes;
    if (p->input)
        stats->input_bytes += gpt_input_consumed(p->input);
    pthread_mutex_unlock(&p->lock);
    if (p->o->report)
        p->o->report(p->o->user, stats);
}

/* Waits until the chunk at the tail is done; *s = NULL when there is none. At
 * most REPORT_MS, then *again is set. */
static void wait_done(struct pipeline *p, struct slot **s, bool *again)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += REPORT_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int timed = 0;
    pthread_mutex_lock(&p->lock);
    *s = &p->slots[p->tail % p->n_slots];
    while ((*s)->state != DONE && !(p->reader_done && p->tail == p->head) &&
           timed != ETIMEDOUT)
        timed = pthread_cond_timedwait(&p->can_write, &p->lock, &until);
    *again = (*s)->state != DONE && !(p->reader_done && p->tail == p->head);
    if ((*s)->state != DONE)
        *s = NULL;
    pthread_mutex_unlock(&p->lock);
}

static int write_chunk(struct pipeline *p, const struct gpt_chunk *c,
                       struct gpt_preprocess_stats *stats, struct gpt_err *err)
{
    for (int64_t k = 0; k < p->o->n_keys; k++) {
        const struct gpt_chunk_key *key = &c->keys[k];
        struct gpt_indexed_block block = {
            .tokens = key->ids.data,
            .n_tokens = (int64_t)key->ids.len,
            .lengths = key->lengths,
            .n_sequences = (int64_t)key->n_lengths,
            .document_sequences = key->document_sequences,
            .n_documents = (int64_t)key->n_documents,
        };
        GPT_TRY(gpt_indexed_writer_add(p->writers[k], &block, err));
        stats->tokens += block.n_tokens;
    }
    stats->documents += c->lines - (int64_t)c->n_bad;
    stats->text_bytes += c->text_bytes;
    stats->line_bytes += (int64_t)c->len;
    return GPT_OK;
}

/* As it is, with a newline, which only the last line of a file may lack. */
static int quarantine(struct pipeline *p, const struct gpt_chunk *c, size_t at,
                      struct gpt_err *err)
{
    const char *line = c->data + at;
    const char *newline = memchr(line, '\n', c->len - at);
    size_t len = newline ? (size_t)(newline - line) : c->len - at;
    GPT_TRY(gpt_out_write(p->quarantine, line, len, err));
    return gpt_out_write(p->quarantine, "\n", 1, err);
}

/* The bad lines of a chunk that follows `lines` lines of its input. */
static int count_bad(struct pipeline *p, const struct gpt_chunk *c,
                     int64_t lines, struct gpt_bad_report *bad,
                     struct gpt_err *err)
{
    int64_t limit = p->o->max_bad;
    for (size_t i = 0; i < c->n_bad; i++) {
        long long line = (long long)(lines + c->bad[i].line);
        bad->of_kind[c->bad[i].kind]++;
        if (bad->n++ < GPT_BAD_NAMED) {
            bad->named[bad->n_named] = c->named[i];
            gpt_context(&bad->named[bad->n_named++], "%s:%lld", c->name, line);
        }
        if (limit >= 0 && bad->n > limit)
            return gpt_fail(err, GPT_EDATA, "%s:%lld: bad line number %lld, "
                            "limit %lld", c->name, line, (long long)bad->n,
                            (long long)limit);
        if (p->quarantine)
            GPT_TRY(quarantine(p, c, c->bad[i].at, err));
    }
    return GPT_OK;
}

static void release(struct pipeline *p, struct slot *s)
{
    pthread_mutex_lock(&p->lock);
    s->state = FREE;
    p->tail++;
    pthread_cond_signal(&p->can_fill);
    pthread_mutex_unlock(&p->lock);
}

static int write_all(struct pipeline *p, struct gpt_preprocess_stats *stats,
                     struct gpt_err *err)
{
    int64_t input = -1, lines = 0; /* of the input before the chunk */
    for (;;) {
        struct slot *s;
        bool again;
        wait_done(p, &s, &again);
        if (gpt_signals_stop())
            return gpt_fail(err, GPT_EFAIL, "stopped by %s",
                            gpt_signal_name(gpt_signals_stop()));
        if (!s && !again)
            return GPT_OK;
        if (s) {
            const struct gpt_chunk *c = &s->chunk;
            if (c->input != input)
                lines = 0;
            input = c->input;
            if (c->status != GPT_OK) {
                if (err)
                    *err = c->err;
                return c->in_line ? gpt_context(err, "%s:%lld", c->name,
                                                (long long)(lines + c->lines))
                                  : c->status;
            }
            GPT_TRY(count_bad(p, c, lines, &stats->bad, err));
            lines += c->lines;
            GPT_TRY(write_chunk(p, c, stats, err));
            release(p, s);
        }
        report(p, stats);
    }
}

/* ---- setting up and taking down ---- */

static int open_workers(struct pipeline *p, size_t n, struct gpt_err *err)
{
    GPT_TRY(gpt_new(&p->workers, n, sizeof(*p->workers), "workers", err));
    for (size_t i = 0; i < n; i++) {
        struct gpt_chunk_worker *w = &p->workers[i];
        w->n_keys = (size_t)p->o->n_keys;
        w->dtype = p->dtype;
        w->skip_bad = p->o->skip_bad;
        w->eod = p->o->append_eod ? gpt_tokenizer_eod(p->o->tokenizer) : -1;
        GPT_TRY(gpt_encoder_open(&w->encoder, p->o->tokenizer, err));
        GPT_TRY(gpt_jsonl_open(&w->scanner, p->o->keys, w->n_keys, err));
    }
    p->n_slots = 2 * n + 2;
    GPT_TRY(gpt_new(&p->slots, p->n_slots, sizeof(*p->slots), "chunks", err));
    for (size_t i = 0; i < p->n_slots; i++)
        GPT_TRY(gpt_chunk_init(&p->slots[i].chunk, (size_t)p->o->n_keys, err));
    return GPT_OK;
}

static void close_workers(struct pipeline *p, size_t n)
{
    for (size_t i = 0; p->workers && i < n; i++) {
        gpt_encoder_close(p->workers[i].encoder);
        gpt_jsonl_close(p->workers[i].scanner);
    }
    for (size_t i = 0; p->slots && i < p->n_slots; i++)
        gpt_chunk_free(&p->slots[i].chunk, (size_t)p->o->n_keys);
    gpt_free(p->workers);
    gpt_free(p->slots);
    gpt_free(p->threads);
}

static int open_writers(struct pipeline *p, struct gpt_err *err)
{
    const struct gpt_preprocess_options *o = p->o;
    GPT_TRY(gpt_new(&p->writers, (size_t)o->n_keys, sizeof(*p->writers),
                    "writers", err));
    for (int64_t k = 0; k < o->n_keys; k++) {
        for (int64_t j = 0; j < k; j++)
            if (strcmp(o->keys[j], o->keys[k]) == 0)
                return gpt_fail(err, GPT_EUSAGE, "key '%s' is named twice",
                                o->keys[k]);
        struct gpt_buf prefix = {0};
        int status = GPT_EFAIL;
        if (gpt_buf_printf(&prefix, "%s_%s_document", o->output_prefix,
                           o->keys[k]) == GPT_OK)
            status = gpt_indexed_writer_open(&p->writers[k], prefix.data,
                                             p->dtype, o->out_flags, err);
        else
            gpt_fail(err, GPT_EFAIL, "cannot allocate a file name");
        gpt_buf_free(&prefix);
        GPT_TRY(status);
    }
    return GPT_OK;
}

/* Is `path` PREFIX_KEY_document.bin or .idx, as we would write it? */
static bool is_output(const struct gpt_preprocess_options *o, const char *path)
{
    size_t n = strlen(o->output_prefix);
    if (strncmp(path, o->output_prefix, n) != 0 || path[n] != '_')
        return false;
    for (int64_t k = 0; k < o->n_keys; k++) {
        const char *rest = path + n + 1;
        size_t len = strlen(o->keys[k]);
        if (strncmp(rest, o->keys[k], len) == 0 &&
            (strcmp(rest + len, "_document.bin") == 0 ||
             strcmp(rest + len, "_document.idx") == 0))
            return true;
    }
    return false;
}

static int open_quarantine(struct pipeline *p, struct gpt_err *err)
{
    const struct gpt_preprocess_options *o = p->o;
    if (!o->quarantine)
        return GPT_OK;
    if (is_output(o, o->quarantine))
        return gpt_fail(err, GPT_EUSAGE, "'%s' cannot be both a data set and "
                        "the file for bad lines", o->quarantine);
    for (int64_t i = 0; i < o->n_inputs; i++)
        if (gpt_path_same(o->quarantine, o->inputs[i]))
            return gpt_fail(err, GPT_EUSAGE, "'%s' cannot be both an input and "
                            "the file for bad lines", o->quarantine);
    return gpt_out_open(&p->quarantine, o->quarantine, o->out_flags, 0, err);
}

static void abort_writers(struct pipeline *p)
{
    gpt_out_abort(p->quarantine);
    for (int64_t k = 0; p->writers && k < p->o->n_keys; k++)
        gpt_indexed_writer_abort(p->writers[k]);
    gpt_free(p->writers);
}

/* The quarantine first: no data set without the lines that it lacks. */
static int commit_writers(struct pipeline *p, struct gpt_err *err)
{
    struct gpt_out *out = p->quarantine;
    p->quarantine = NULL;
    if (out)
        GPT_TRY(gpt_out_commit(out, err));
    for (int64_t k = 0; k < p->o->n_keys; k++) {
        struct gpt_indexed_writer *w = p->writers[k];
        p->writers[k] = NULL;
        GPT_TRY(gpt_indexed_writer_commit(w, err));
    }
    return GPT_OK;
}

static int start_threads(struct pipeline *p, size_t n_workers,
                         struct gpt_err *err)
{
    GPT_TRY(gpt_new(&p->threads, n_workers + 1, sizeof(*p->threads),
                    "threads", err));
    for (size_t i = 0; i <= n_workers; i++) {
        errno = pthread_create(&p->threads[i], NULL,
                               i ? worker_main : reader_main, p);
        if (errno)
            return gpt_fail_errno(err, GPT_EFAIL,
                                  "cannot start thread %zu of %zu", i + 1,
                                  n_workers + 1);
        p->n_threads++;
    }
    return GPT_OK;
}

static void join_threads(struct pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    if (p->input)
        gpt_input_cancel(p->input);
    pthread_cond_broadcast(&p->can_fill);
    pthread_cond_broadcast(&p->can_take);
    pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
}

const char *gpt_bad_word(int kind)
{
    static const char *const words[GPT_BAD_KINDS] = {
#define X(name, word) [name] = word,
        GPT_JSONL_BAD_LIST(X)
#undef X
        [GPT_BAD_LONG] = "too long",
    };
    return words[kind];
}

int64_t gpt_preprocess_total(const struct gpt_preprocess_options *o)
{
    int64_t total = 0;
    for (int64_t i = 0; i < o->n_inputs; i++) {
        struct stat st;
        if (stat(o->inputs[i], &st) != 0 || !S_ISREG(st.st_mode) ||
            !gpt_add(total, st.st_size, &total))
            return -1;
    }
    return total;
}

static int run(struct pipeline *p, size_t n_workers,
               struct gpt_preprocess_stats *stats, struct gpt_err *err)
{
    GPT_TRY(open_writers(p, err));
    GPT_TRY(open_quarantine(p, err));
    GPT_TRY(open_workers(p, n_workers, err));
    int status = start_threads(p, n_workers, err);
    if (status == GPT_OK)
        status = write_all(p, stats, err);
    join_threads(p);
    GPT_TRY(status);
    return commit_writers(p, err);
}

int gpt_preprocess(const struct gpt_preprocess_options *options,
                   struct gpt_preprocess_stats *stats, struct gpt_err *err)
{
    struct pipeline p = {.o = options};
    size_t n_workers = (size_t)gpt_max_i64(
        1, gpt_min_i64(options->workers, MAX_WORKERS));
    memset(stats, 0, sizeof(*stats));
    if (options->append_eod && gpt_tokenizer_eod(options->tokenizer) < 0)
        return gpt_fail(err, GPT_EDATA, "the vocabulary has no "
                        "<|endoftext|> to append to documents");
    p.dtype = gpt_indexed_best_dtype(
        gpt_tokenizer_vocab_size(options->tokenizer));
    pthread_mutex_init(&p.lock, NULL);
    pthread_cond_init(&p.can_fill, NULL);
    pthread_cond_init(&p.can_take, NULL);
    pthread_cond_init(&p.can_write, NULL);
    int status = run(&p, n_workers, stats, err);
    close_workers(&p, n_workers);
    abort_writers(&p);
    pthread_cond_destroy(&p.can_write);
    pthread_cond_destroy(&p.can_take);
    pthread_cond_destroy(&p.can_fill);
    pthread_mutex_destroy(&p.lock);
    return status;
}
