/* Counts pieces in parallel: see corpus_count.h. The calling thread reads
 * blocks and hands them to workers, each with a counter of its own, so that
 * counting needs no lock; blocks circulate between the two lists `spare` and
 * `full`. Sums do not depend on which worker counted which block. A failure
 * does not stop the workers at once: a block before it may fail, too, and the
 * first failure in the order of the corpus is the one to report, whatever the
 * timing. Start at gpt_count_corpus(), then count_blocks(). */
#include "cmd/vocab/corpus_count.h"

#include "base/memory.h"
#include "base/progress.h"
#include "base/signals.h"
#include "base/thread.h"
#include "text/content.h"
#include "text/jsonl.h"

#include <pthread.h>
#include <string.h>

struct job {
    struct job *next;
    int64_t number; /* in the order of the corpus */
    struct gpt_block block;
};

struct pool {
    const struct gpt_count_options *options;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job *spare, *full, **full_end;
    bool finished; /* no job will be added */
    int status;    /* of the first job that failed, in the corpus's order */
    int64_t failed_number;
    struct gpt_err failure;
};

/* What a worker counts is its own until the end: only the lists are shared. */
struct worker {
    struct pool *pool;
    pthread_t thread;
    bool started;
    struct gpt_piece_counter *counter;
    struct gpt_jsonl *scanner;
    int64_t documents, bytes;
};

/* ---- counting a block ---- */

static int count_text(struct worker *w, const char *text, size_t len,
                      struct gpt_err *err)
{
    w->bytes += (int64_t)len;
    return gpt_piece_counter_text(w->counter, gpt_pretok_gpt2, text, len, err);
}

/* A key that holds a list of strings counts each of them. */
static int count_line(struct worker *w, const char *line, size_t len,
                      struct gpt_err *err)
{
    GPT_TRY(gpt_jsonl_scan(w->scanner, line, len, err));
    w->documents++;
    for (int64_t key = 0; key < w->pool->options->n_keys; key++) {
        const struct gpt_str *s;
        size_t n = gpt_jsonl_strings(w->scanner, (size_t)key, &s);

        for (size_t i = 0; i < n; i++)
            GPT_TRY(count_text(w, s[i].data, s[i].len, err));
    }
    return GPT_OK;
}

/* Blocks of JSON Lines end with a line, so that each is counted by itself;
 * blocks of plain text end where no piece can go across. */
static int count_block(struct worker *w, const struct gpt_block *b,
                       struct gpt_err *err)
{
    if (!b->jsonl) {
        w->documents += b->begins_file;
        return count_text(w, b->data, b->len, err);
    }
    /* Lines are counted for messages: the block knows its first one. */
    int64_t number = b->first_line;
    const char *end = b->data + b->len;
    for (const char *line = b->data; line < end; number++) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));

        if (!stop)
            stop = end;
        int status = count_line(w, line, (size_t)(stop - line), err);
        if (status != GPT_OK) {
            gpt_context(err, "%s:%lld", b->name, (long long)number);
            if (gpt_content_is_pretty(line, end))
                gpt_hint(err, "the object continues on the next line: jq -c . "
                         "'%s' >new.jsonl makes JSON lines, one object a line",
                         b->name);
            else if (b->guessed)
                gpt_hint(err, "taken for JSON lines because it begins with "
                         "'{'; if it is plain text: --input-format text");
            return status;
        }
        line = stop + 1;
    }
    return GPT_OK;
}

/* ---- threads ---- */

/* Takes a full block, or returns NULL when there will be none. After a failure
 * only blocks before the one that failed matter: they may fail, too. */
static struct job *take_full(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->full && !p->finished && p->status == GPT_OK)
        pthread_cond_wait(&p->changed, &p->lock);
    struct job *j = p->full;
    if (p->status != GPT_OK && j && j->number > p->failed_number)
        j = NULL;
    if (j) {
        p->full = j->next;
        if (!p->full)
            p->full_end = &p->full;
    }
    pthread_mutex_unlock(&p->lock);
    return j;
}

/* Takes a block to read into; NULL after a failure, which ends the reading. As
 * many blocks as exist bound the memory. */
static struct job *take_spare(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->spare && p->status == GPT_OK)
        pthread_cond_wait(&p->changed, &p->lock);
    struct job *j = p->status == GPT_OK ? p->spare : NULL;
    if (j)
        p->spare = j->next;
    pthread_mutex_unlock(&p->lock);
    return j;
}

/* Full blocks are a queue, so that they are counted about in the order of the
 * corpus: an error is then found early. */
static void give_full(struct pool *p, struct job *j)
{
    pthread_mutex_lock(&p->lock);
    j->next = NULL;
    *p->full_end = j;
    p->full_end = &j->next;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

/* Gives a block back with the status of its work. The failure of the lowest
 * number is kept. */
static void give_spare(struct pool *p, struct job *j, int status,
                       const struct gpt_err *err)
{
    pthread_mutex_lock(&p->lock);
    if (status != GPT_OK &&
        (p->status == GPT_OK || j->number < p->failed_number)) {
        p->status = status;
        p->failed_number = j->number;
        p->failure = *err;
    }
    j->next = p->spare;
    p->spare = j;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

/* Workers still take what is full. */
static void end_jobs(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->finished = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static void *count_blocks(void *arg)
{
    struct worker *w = arg;
    struct job *j;

    while ((j = take_full(w->pool)) != NULL) {
        struct gpt_err err;
        int status = count_block(w, &j->block, &err);

        give_spare(w->pool, j, status, &err);
    }
    return NULL;
}

/* ---- the reader ---- */

static int read_corpus(struct pool *p, struct gpt_blocks *blocks,
                       struct gpt_err *err)
{
    struct gpt_progress *progress =
        gpt_progress_open(p->options->progress, "count", "B",
                          gpt_blocks_total(blocks));
    int status = GPT_OK;
    bool end = false;
    struct job *j;

    for (int64_t n = 0; !end && (j = take_spare(p)) != NULL; n++) {
        j->number = n;
        status = gpt_blocks_next(blocks, &j->block, &end, err);
        if (status == GPT_OK)
            status = gpt_signals_check(err);
        /* A failure to read has the number of its block: one of an earlier line
         * counts before it. */
        if (status != GPT_OK || end) {
            give_spare(p, j, status, err);
            break;
        }
        give_full(p, j);
        gpt_progress_set(progress, gpt_blocks_consumed(blocks), NULL);
    }
    gpt_progress_close(progress);
    return status;
}

/* The thread starts last: from then on counter and scanner are the worker's
 * alone, until it is joined. */
static int start_worker(struct worker *w, struct pool *pool,
                        struct gpt_err *err)
{
    const struct gpt_count_options *o = pool->options;

    w->pool = pool;
    GPT_TRY(gpt_piece_counter_open(&w->counter, err));
    GPT_TRY(gpt_jsonl_open(&w->scanner, o->keys, (size_t)o->n_keys, err));
    GPT_TRY(gpt_thread_start(&w->thread, "counter", count_blocks, w, err));
    w->started = true;
    return GPT_OK;
}

/* Workers that wait for a block are ended by end_jobs(), also when the reading
 * failed or one of them could not be started. */
static int run_pool(struct pool *pool, struct worker *w, struct gpt_err *err)
{
    const struct gpt_count_options *o = pool->options;
    struct gpt_blocks *blocks = NULL;
    struct gpt_blocks_options b = o->blocks;
    int status;

    b.threads = o->threads;
    GPT_TRY_GOTO(status, gpt_blocks_open(&blocks, &b, err), out);
    for (int64_t i = 0; i < o->threads; i++)
        GPT_TRY_GOTO(status, start_worker(&w[i], pool, err), out);
    status = read_corpus(pool, blocks, err);
out:
    end_jobs(pool);
    for (int64_t i = 0; i < o->threads; i++)
        if (w[i].started)
            gpt_thread_join(w[i].thread);
    gpt_blocks_close(blocks);
    /* Read without the lock, as all workers have been joined. The pool has the
     * first failure in the order of the corpus, also where the reading
     * failed. */
    if (pool->status != GPT_OK) {
        *err = pool->failure;
        status = pool->status;
    }
    return status;
}

/* Adds everything to the first worker's counter and hands that out. Each
 * counter is closed once it was added: two copies of the distinct pieces are
 * enough. */
static int add_up(struct worker *w, int64_t n,
                  struct gpt_piece_counter **counter,
                  struct gpt_count_totals *totals, struct gpt_err *err)
{
    for (int64_t i = 0; i < n; i++) {
        totals->documents += w[i].documents;
        totals->bytes += w[i].bytes;
        if (i == 0)
            continue;
        GPT_TRY(gpt_piece_counter_merge(w[0].counter, w[i].counter, err));
        gpt_piece_counter_close(w[i].counter);
        w[i].counter = NULL;
    }
    *counter = w[0].counter;
    w[0].counter = NULL;
    return GPT_OK;
}

int gpt_count_corpus(struct gpt_piece_counter **counter,
                     struct gpt_count_totals *totals,
                     const struct gpt_count_options *options,
                     struct gpt_err *err)
{
    struct pool pool = {.options = options};
    struct worker *w = NULL;
    struct job *jobs = NULL;
    /* For each worker the block it counts and one that waits; one to read. */
    size_t n = (size_t)options->threads, n_jobs = 2 * n + 1;
    int status;

    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.changed, NULL);
    pool.full_end = &pool.full;
    *totals = (struct gpt_count_totals){0};
    GPT_TRY_GOTO(status, gpt_new(&w, n, sizeof(*w), "threads", err), out);
    GPT_TRY_GOTO(status, gpt_new(&jobs, n_jobs, sizeof(*jobs), "jobs", err),
                 out);
    for (size_t i = 0; i < n_jobs; i++) {
        jobs[i].next = pool.spare;
        pool.spare = &jobs[i];
    }
    GPT_TRY_GOTO(status, run_pool(&pool, w, err), out);
    status = add_up(w, options->threads, counter, totals, err);
out:
    for (size_t i = 0; jobs && i < n_jobs; i++)
        gpt_free(jobs[i].block.data);
    for (size_t i = 0; w && i < n; i++) {
        gpt_piece_counter_close(w[i].counter);
        gpt_jsonl_close(w[i].scanner);
    }
    gpt_free(jobs);
    gpt_free(w);
    pthread_mutex_destroy(&pool.lock);
    pthread_cond_destroy(&pool.changed);
    return status;
}
