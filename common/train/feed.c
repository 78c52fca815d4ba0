/* Batches of samples; see feed.h. Two buffers: one is being computed with
 * while a thread fills the other (gpt_feed_ahead). The thread lives as long as
 * the feed, so that a step starts and allocates nothing. */
#include "train/feed.h"

#include "base/memory.h"
#include "base/num.h"

#include <pthread.h>

struct batch {
    enum gpt_split split;
    int64_t first, n; /* n microbatches; 0 = holds nothing */
    int32_t *tokens;  /* (B, T + 1), one microbatch at a time */
    int32_t *input, *target, *position, *doc_start; /* (n, B, T) */
    float *weight, *loss;
    struct gpt_microbatch *micro;
    int status;
    struct gpt_err err;
};

struct gpt_feed {
    struct gpt_feed_options o;
    struct batch batches[2];
    int now; /* the one that is being used */
    pthread_t thread;
    pthread_mutex_t mutex; /* of the two below */
    pthread_cond_t changed;
    bool ahead; /* the thread is to fill, or fills, the other one */
    bool closing;
    bool started;
};

static void batch_free(struct batch *b)
{
    gpt_free(b->micro);
    gpt_free(b->loss);
    gpt_free(b->weight);
    gpt_free(b->doc_start);
    gpt_free(b->position);
    gpt_free(b->target);
    gpt_free(b->input);
    gpt_free(b->tokens);
}

static int batch_new(const struct gpt_feed *f, struct batch *b,
                     struct gpt_err *err)
{
    size_t n = (size_t)f->o.max_micro_batches;
    size_t micro = (size_t)(f->o.micro_batch * f->o.seq_length);
    static const char what[] = "a batch";

    GPT_TRY(gpt_new(&b->tokens, micro + (size_t)f->o.micro_batch,
                    sizeof *b->tokens, what, err));
    GPT_TRY(gpt_new(&b->input, n * micro, sizeof *b->input, what, err));
    GPT_TRY(gpt_new(&b->target, n * micro, sizeof *b->target, what, err));
    GPT_TRY(gpt_new(&b->position, n * micro, sizeof *b->position, what, err));
    GPT_TRY(gpt_new(&b->doc_start, n * micro, sizeof *b->doc_start, what, err));
    GPT_TRY(gpt_new(&b->weight, n * micro, sizeof *b->weight, what, err));
    GPT_TRY(gpt_new(&b->loss, n * micro, sizeof *b->loss, what, err));
    return gpt_new(&b->micro, n, sizeof *b->micro, what, err);
}

int64_t gpt_feed_memory(const struct gpt_feed_options *o)
{
    int64_t micro = o->micro_batch * o->seq_length;
    return 2 *
           ((micro + o->micro_batch) * (int64_t)sizeof(int32_t) +
            o->max_micro_batches *
                (micro * (int64_t)(4 * sizeof(int32_t) + 2 * sizeof(float)) +
                 (int64_t)sizeof(struct gpt_microbatch)));
}

/* Mask to weight: the mean of this microbatch, averaged over all of the global
 * batch. */
static void average(float *weight, int64_t rows, int64_t micro_batches)
{
    double sum = 0;
    for (int64_t i = 0; i < rows; i++)
        sum += (double)weight[i];
    double scale = sum > 0 ? 1 / (sum * (double)micro_batches) : 0;
    for (int64_t i = 0; i < rows; i++)
        weight[i] = (float)((double)weight[i] * scale);
}

static int fill_micro(const struct gpt_feed *f, struct batch *b, int64_t i)
{
    int64_t bt = f->o.micro_batch * f->o.seq_length, at = i * bt;
    int64_t size = gpt_corpus_size(f->o.corpus, b->split);
    int64_t number = i * f->o.dp_size + f->o.dp_rank;
    int64_t sample0 = b->first + number * f->o.micro_batch;

    for (int64_t j = 0; j < f->o.micro_batch; j++)
        GPT_TRY(gpt_corpus_get(f->o.corpus, b->split, (sample0 + j) % size,
                               b->tokens + j * (f->o.seq_length + 1), &b->err));
    gpt_batch_masks(&f->o.masks, b->tokens, f->o.micro_batch, f->o.seq_length,
                    b->input + at, b->target + at, b->position + at,
                    b->weight + at, b->doc_start + at);
    average(b->weight + at, bt, b->n * f->o.dp_size);
    b->micro[i] = (struct gpt_microbatch){
        .input = b->input + at,
        .target = b->target + at,
        .position = b->position + at,
        .doc_start = b->doc_start + at,
        .weight = b->weight + at,
        .sample0 = sample0,
    };
    return GPT_OK;
}

static void fill(const struct gpt_feed *f, struct batch *b)
{
    b->status = GPT_OK;
    for (int64_t i = 0; i < b->n && b->status == GPT_OK; i++)
        b->status = fill_micro(f, b, i);
}

static void *reader(void *arg)
{
    struct gpt_feed *f = arg;

    pthread_mutex_lock(&f->mutex);
    for (;;) {
        while (!f->ahead && !f->closing)
            pthread_cond_wait(&f->changed, &f->mutex);
        if (f->closing)
            break;
        struct batch *b = &f->batches[1 - f->now];
        pthread_mutex_unlock(&f->mutex);
        fill(f, b);
        pthread_mutex_lock(&f->mutex);
        f->ahead = false;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->mutex);
    return NULL;
}

/* Waits until nothing is being read. */
static void settle(struct gpt_feed *f)
{
    pthread_mutex_lock(&f->mutex);
    while (f->ahead)
        pthread_cond_wait(&f->changed, &f->mutex);
    pthread_mutex_unlock(&f->mutex);
}

static void stop_reader(struct gpt_feed *f)
{
    if (!f->started)
        return;
    settle(f);
    pthread_mutex_lock(&f->mutex);
    f->closing = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->mutex);
    pthread_join(f->thread, NULL);
}

int gpt_feed_open(struct gpt_feed **feed,
                  const struct gpt_feed_options *options, struct gpt_err *err)
{
    struct gpt_feed *f = NULL;
    int status;

    *feed = NULL;
    GPT_TRY(gpt_new(&f, 1, sizeof *f, "the data feed", err));
    f->o = *options;
    f->o.dp_size = gpt_max_i64(f->o.dp_size, 1);
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->changed, NULL);
    GPT_TRY_GOTO(status, batch_new(f, &f->batches[0], err), fail);
    GPT_TRY_GOTO(status, batch_new(f, &f->batches[1], err), fail);
    f->started = pthread_create(&f->thread, NULL, reader, f) == 0;
    *feed = f;
    return GPT_OK;
fail:
    gpt_feed_close(f);
    return status;
}

void gpt_feed_close(struct gpt_feed *f)
{
    if (!f)
        return;
    stop_reader(f);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->mutex);
    batch_free(&f->batches[0]);
    batch_free(&f->batches[1]);
    gpt_free(f);
}

void gpt_feed_ahead(struct gpt_feed *f, enum gpt_split split, int64_t first,
                    int64_t n)
{
    struct batch *b = &f->batches[1 - f->now];

    if (!f->started) /* the next read does it */
        return;
    settle(f);
    b->split = split;
    b->first = first;
    b->n = n;
    pthread_mutex_lock(&f->mutex);
    f->ahead = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}

int gpt_feed_read(struct gpt_feed *f, enum gpt_split split, int64_t first,
                  int64_t n, struct gpt_err *err)
{
    struct batch *b;

    settle(f);
    f->now = 1 - f->now;
    b = &f->batches[f->now];
    if (b->split != split || b->first != first || b->n != n) {
        b->split = split;
        b->first = first;
        b->n = n;
        fill(f, b);
    }
    if (b->status != GPT_OK) {
        b->n = 0;
        *err = b->err;
        return b->status;
    }
    return GPT_OK;
}

const struct gpt_microbatch *gpt_feed_microbatch(const struct gpt_feed *f,
                                                 int64_t i)
{
    return &f->batches[f->now].micro[i];
}

float *gpt_feed_losses(struct gpt_feed *f, int64_t i)
{
    return f->batches[f->now].loss + i * f->o.micro_batch * f->o.seq_length;
}

void gpt_feed_scale(struct gpt_feed *f, float scale)
{
    struct batch *b = &f->batches[f->now];
    int64_t n = b->n * f->o.micro_batch * f->o.seq_length;

    for (int64_t i = 0; i < n; i++)
        b->weight[i] *= scale;
    b->first = -1; /* not what it is taken for: to be read again */
}

double gpt_feed_loss(const struct gpt_feed *f, int64_t *rows)
{
    const struct batch *b = &f->batches[f->now];
    int64_t n = b->n * f->o.micro_batch * f->o.seq_length;
    double sum = 0;

    *rows = 0;
    for (int64_t i = 0; i < n; i++) {
        if (b->weight[i] > 0) {
            sum += (double)b->loss[i];
            (*rows)++;
        }
    }
    return sum;
}
