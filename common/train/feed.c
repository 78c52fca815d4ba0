/* Batches of samples; see feed.h. There are two: one is computed with while a
 * thread fills the other (gpt_feed_ahead) and sends it to the device. The
 * thread lives as long as the feed, so that a step starts no thread and
 * allocates nothing.
 *
 * A batch belongs to the thread from the moment `ahead` is set until the thread
 * clears it, else to the caller. wait_for_reader() is the only wait between the
 * two.
 * On the device the queue that computes may still read a batch when the caller
 * has turned to the next one: the event `used` is recorded then, and the thread
 * sends new samples to that memory only after it.
 *
 * Reading ahead is a guess (an evaluation may come in between). gpt_feed_read()
 * compares what is there with what it wants, and reads itself when they differ,
 * so a wrong guess costs time and never a wrong sample. */
#include "train/feed.h"

#include "base/memory.h"
#include "base/num.h"
#include "base/thread.h"

#include <assert.h>
#include <pthread.h>

struct batch {
    enum gpt_split split;
    int64_t first, n; /* n microbatches; 0 = holds nothing */
    int32_t *tokens;  /* (B, T + 1), one microbatch at a time */
    void *blocks;     /* of all microbatches, one behind the other */
    void *device;     /* the same there, or NULL */
    float *loss;      /* (n, B, T) */
    struct gpt_microbatch *micro;
    struct gpt_event *used; /* what computed with it before */
    bool own_weights; /* see gpt_feed_loss() */
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
    struct gpt_queue *sending;
};

static int64_t rows(const struct gpt_feed_options *o)
{
    return o->micro_batch * o->seq_length;
}

static int64_t blocks_bytes(const struct gpt_feed_options *o)
{
    return o->max_micro_batches * gpt_microbatch_bytes(rows(o));
}

static int64_t loss_bytes(const struct gpt_feed_options *o)
{
    return o->max_micro_batches * rows(o) * (int64_t)sizeof(float);
}

static void batch_free(struct gpt_backend *be, struct batch *b)
{
    if (b->used)
        be->event_close(b->used);
    if (b->device)
        be->free(be, b->device);
    if (b->blocks)
        be->host_free(be, b->blocks);
    if (b->loss)
        be->host_free(be, b->loss);
    gpt_free(b->micro);
    gpt_free(b->tokens);
}

static int batch_on_device(const struct gpt_feed *f, struct batch *b,
                           struct gpt_err *err)
{
    struct gpt_backend *be = f->o.be;

    if (be->host_memory)
        return GPT_OK;
    GPT_TRY(be->event_open(be, &b->used, err));
    return be->alloc(be, (size_t)blocks_bytes(&f->o),
                     gpt_memory_kind_name(GPT_MEM_INPUTS), &b->device, err);
}

static int batch_new(const struct gpt_feed *f, struct batch *b,
                     struct gpt_err *err)
{
    struct gpt_backend *be = f->o.be;
    static const char what[] = "a batch";
    void *loss;

    GPT_TRY(gpt_new(&b->tokens, (size_t)(rows(&f->o) + f->o.micro_batch),
                    sizeof(*b->tokens), what, err));
    GPT_TRY(be->host_alloc(be, (size_t)blocks_bytes(&f->o), what, &b->blocks,
                           err));
    GPT_TRY(be->host_alloc(be, (size_t)loss_bytes(&f->o), what, &loss, err));
    b->loss = loss;
    GPT_TRY(batch_on_device(f, b, err));
    return gpt_new(&b->micro, (size_t)f->o.max_micro_batches, sizeof(*b->micro),
                   what, err);
}

int64_t gpt_feed_memory(const struct gpt_feed_options *o)
{
    return 2 *
           ((rows(o) + o->micro_batch) * (int64_t)sizeof(int32_t) +
            blocks_bytes(o) + loss_bytes(o) +
            o->max_micro_batches * (int64_t)sizeof(struct gpt_microbatch));
}

int64_t gpt_feed_device_memory(const struct gpt_feed_options *o)
{
    return o->be->host_memory ? 0 : 2 * blocks_bytes(o);
}

/* Turns a mask into weights: the mean over this microbatch, and over all
 * microbatches of the global batch. Summed in double: the sum of thousands of
 * small numbers decides the scale of every gradient. */
static void average(float *weight, int64_t n, int64_t micro_batches)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)weight[i];
    double scale = sum > 0 ? 1 / (sum * (double)micro_batches) : 0;
    for (int64_t i = 0; i < n; i++)
        weight[i] = (float)((double)weight[i] * scale);
}

/* Makes weights of a mask. The weights of a loss rule are those of a microbatch
 * alone, so the mean over all microbatches is made here. The divisor is
 * constant where the batch as a whole is averaged. */
static int weigh(const struct gpt_feed *f, struct batch *b,
                 const struct gpt_microbatch_block *at, const int32_t *tokens,
                 int64_t sample0)
{
    const int64_t n = rows(&f->o), micro_batches = b->n * f->o.dp_size;
    const struct gpt_loss_rows batch = {
        .samples = f->o.micro_batch,
        .length = f->o.seq_length,
        .first_sample = sample0,
        .input = at->input,
        .target = at->target,
        .weight = at->weight,
    };

    /* every data parallel rank has as many microbatches, so that each can make
     * its share of the mean alone */
    if (!b->own_weights && !f->o.per_token) {
        average(at->weight, n, micro_batches);
        return GPT_OK;
    }
    if (b->own_weights)
        GPT_TRY(gpt_loss_weigh(f->o.loss, &batch, tokens, &b->err));
    const float divisor =
        (float)(b->own_weights ? micro_batches : n * micro_batches);
    for (int64_t i = 0; i < n; i++)
        at->weight[i] /= divisor;
    return GPT_OK;
}

/* Makes microbatch i of the tokens of its samples. Masks are an argument, as
 * tokens that are given have other ones than those of a corpus. */
static int make_micro(const struct gpt_feed *f, struct batch *b, int64_t i,
                      const struct gpt_mask_options *masks,
                      const int32_t *tokens, int64_t sample0)
{
    const int64_t bytes = gpt_microbatch_bytes(rows(&f->o));
    struct gpt_microbatch_block at;

    gpt_microbatch_lay_out(&at, (char *)b->blocks + i * bytes, rows(&f->o));
    const struct gpt_batch_arrays to = {
        .input = at.input,
        .target = at.target,
        .position = at.position,
        .doc_start = at.doc_start,
        .weight = at.weight,
    };
    gpt_batch_masks(masks, tokens, f->o.micro_batch, f->o.seq_length, &to);
    GPT_TRY(weigh(f, b, &at, tokens, sample0));
    *at.sample0 = sample0;
    b->micro[i] = (struct gpt_microbatch){
        .input = at.input,
        .target = at.target,
        .position = at.position,
        .doc_start = at.doc_start,
        .weight = at.weight,
        .sample0 = sample0,
        .device = b->device ? (char *)b->device + i * bytes : NULL,
    };
    return GPT_OK;
}

/* Reads the tokens of microbatch i. The corpus begins anew at its end. */
static int fill_micro(const struct gpt_feed *f, struct batch *b, int64_t i)
{
    int64_t size = gpt_corpus_size(f->o.corpus, b->split);
    int64_t number = i * f->o.dp_size + f->o.dp_rank; /* see feed.h */
    int64_t sample0 = b->first + number * f->o.micro_batch;

    for (int64_t j = 0; j < f->o.micro_batch; j++)
        GPT_TRY(gpt_corpus_get(f->o.corpus, b->split, (sample0 + j) % size,
                               b->tokens + j * (f->o.seq_length + 1), &b->err));
    return make_micro(f, b, i, &f->o.masks, b->tokens, sample0);
}

/* The thread waits for its own copy here, so the caller finds the batch on the
 * device when the thread reports it as read. */
static int send_batch(const struct gpt_feed *f, struct batch *b)
{
    const int64_t bytes = b->n * gpt_microbatch_bytes(rows(&f->o));

    f->o.be->event_wait(f->sending, b->used);
    f->o.be->copy_in(f->sending, b->device, b->blocks, (size_t)bytes);
    return f->o.be->sync(f->sending, &b->err);
}

static void fill(const struct gpt_feed *f, struct batch *b)
{
    b->status = GPT_OK;
    /* losses of validation are plain, so that they compare to others */
    b->own_weights = b->split == GPT_TRAIN && gpt_loss_weighs(f->o.loss);
    for (int64_t i = 0; i < b->n && b->status == GPT_OK; i++)
        b->status = fill_micro(f, b, i);
    if (b->device && b->status == GPT_OK)
        b->status = send_batch(f, b);
}

/* `now` changes only while this thread is idle, so the index of the other batch
 * is stable from here to the end of the filling. */
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

/* Waits until the thread does not read: then both batches are the caller's. */
static void wait_for_reader(struct gpt_feed *f)
{
    pthread_mutex_lock(&f->mutex);
    while (f->ahead)
        pthread_cond_wait(&f->changed, &f->mutex);
    pthread_mutex_unlock(&f->mutex);
}

/* A filling that has begun is not interrupted: it uses memory that the caller
 * frees next. */
static void stop_reader(struct gpt_feed *f)
{
    if (!f->started)
        return;
    wait_for_reader(f);
    pthread_mutex_lock(&f->mutex);
    f->closing = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->mutex);
    gpt_thread_join(f->thread);
}

int gpt_feed_open(struct gpt_feed **feed,
                  const struct gpt_feed_options *options, struct gpt_err *err)
{
    struct gpt_feed *f = NULL;
    int status;

    *feed = NULL;
    GPT_TRY(gpt_new(&f, 1, sizeof(*f), "the data feed", err));
    f->o = *options;
    f->o.dp_size = gpt_max_i64(f->o.dp_size, 1);
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->changed, NULL);
    if (!f->o.be->host_memory)
        GPT_TRY_GOTO(status, f->o.be->queue_open(f->o.be, &f->sending, err),
                     fail);
    GPT_TRY_GOTO(status, batch_new(f, &f->batches[0], err), fail);
    GPT_TRY_GOTO(status, batch_new(f, &f->batches[1], err), fail);
    /* without a thread gpt_feed_read() reads everything itself */
    f->started =
        gpt_thread_start(&f->thread, "feed", reader, f, NULL) == GPT_OK;
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
    if (f->sending)
        f->o.be->queue_close(f->sending);
    batch_free(f->o.be, &f->batches[0]);
    batch_free(f->o.be, &f->batches[1]);
    gpt_free(f);
}

void gpt_feed_ahead(struct gpt_feed *f, enum gpt_split split, int64_t first,
                    int64_t n)
{
    struct batch *b = &f->batches[1 - f->now];

    if (!f->started) /* the next read does it */
        return;
    wait_for_reader(f);
    b->split = split;
    b->first = first;
    b->n = n;
    pthread_mutex_lock(&f->mutex);
    f->ahead = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->mutex);
}

/* Turns to the other batch, when the thread has left it, and notes what still
 * computes with the first one. */
static struct batch *next_batch(struct gpt_feed *f)
{
    const struct batch *b = &f->batches[f->now];

    wait_for_reader(f);
    if (b->device)
        f->o.be->event_record(f->o.q, b->used);
    f->now = 1 - f->now;
    return &f->batches[f->now];
}

int gpt_feed_read(struct gpt_feed *f, enum gpt_split split, int64_t first,
                  int64_t n, struct gpt_err *err)
{
    struct batch *b = next_batch(f);

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

/* Batches of both corpora have the same splits and numbers: a batch of the old
 * one must not pass for one of the new. */
void gpt_feed_use(struct gpt_feed *f, const struct gpt_corpus *corpus)
{
    wait_for_reader(f);
    f->o.corpus = corpus;
    f->batches[0].n = f->batches[1].n = 0;
}

/* The batch gets a split that no read asks for, so that none takes it for its
 * own. */
int gpt_feed_give(struct gpt_feed *f, const int32_t *tokens, int64_t n,
                  struct gpt_err *err)
{
    const struct gpt_mask_options plain = {.eod = -1};
    const int64_t micro = f->o.micro_batch * (f->o.seq_length + 1);
    struct batch *b = next_batch(f);

    assert(n > 0 && n <= f->o.max_micro_batches);
    b->split = GPT_N_SPLITS;
    b->first = -1;
    b->n = n;
    b->own_weights = false;
    b->status = GPT_OK;
    for (int64_t i = 0; i < n && b->status == GPT_OK; i++)
        b->status = make_micro(f, b, i, &plain, tokens + i * micro, 0);
    if (b->device && b->status == GPT_OK)
        b->status = send_batch(f, b);
    if (b->status == GPT_OK)
        return GPT_OK;
    b->n = 0;
    *err = b->err;
    return b->status;
}

const struct gpt_microbatch *gpt_feed_microbatch(const struct gpt_feed *f,
                                                 int64_t i)
{
    assert(i >= 0 && i < f->batches[f->now].n);
    return &f->batches[f->now].micro[i];
}

float *gpt_feed_losses(struct gpt_feed *f, int64_t i)
{
    return f->batches[f->now].loss + i * rows(&f->o);
}

/* The losses are added row by row in double, in the order of samples: the order
 * in which a schedule computes microbatches does not show in the log. */
double gpt_feed_loss(const struct gpt_feed *f, int64_t *counted)
{
    const struct batch *b = &f->batches[f->now];
    const int64_t n = rows(&f->o);
    double sum = 0;

    *counted = 0;
    for (int64_t i = 0; i < b->n * n; i++) {
        const float weight = b->micro[i / n].weight[i % n];

        if (b->own_weights && (weight > 0 || weight < 0)) {
            sum += (double)weight * (double)b->loss[i];
        } else if (!b->own_weights && weight > 0) {
            sum += (double)b->loss[i];
            (*counted)++;
        }
    }
    return sum;
}

/* The losses are added in the order of gpt_feed_loss(), so that the two agree
 * to the last bit where every token is text. */
double gpt_feed_text_loss(const struct gpt_feed *f, int64_t *bytes)
{
    const struct batch *b = &f->batches[f->now];
    const int64_t n = rows(&f->o);
    double sum = 0;

    *bytes = 0;
    for (int64_t i = 0; f->o.text && i < b->n * n; i++) {
        const struct gpt_microbatch *m = &b->micro[i / n];
        const int64_t text = gpt_token_text_bytes(
            f->o.text, m->input[i % n], m->target[i % n]);

        if (m->weight[i % n] > 0 && text > 0) {
            sum += (double)b->loss[i];
            *bytes += text;
        }
    }
    return sum;
}
