/* Feed and step: reading ahead changes nothing, splits begin again at their
 * end, weights are Megatron's averages, evaluation leaves the model alone, and
 * no step after the first allocates. */
#include "../lib/dataset.h"
#include "../lib/tap.h"

#include "train/step.h"

#include <stdatomic.h>
#include <unistd.h>

/* ---- every allocation of the process is counted ---- */

static atomic_long allocations;

#if !defined(__SANITIZE_ADDRESS__) && defined(__GLIBC__)
#define COUNTED 1
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    allocations++;
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    allocations++;
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    allocations++;
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    allocations++;
    return __libc_memalign(align, n);
}
#else
#define COUNTED 0
#endif

enum { T = 8, B = 2, MICRO = 3, BATCH = B * MICRO };

static struct gpt_backend *be;
static struct gpt_corpus *corpus;
static struct gpt_replica *replica;

static void need(int status, const struct gpt_err *err)
{
    if (status == GPT_OK)
        return;
    printf("Bail out! %s\n", err->text);
    exit(1);
}

static void open_all(const char *prefix)
{
    const char *const paths[] = {prefix};
    struct gpt_corpus_options data = {
        .data_path = paths,
        .n_data_path = 1,
        .split = "80,20,0",
        .seq_length = T,
        .seed = 5,
        .vocab_size = 50,
    };
    struct gpt_replica_options model = {
        .config = {.num_layers = 2,
                   .hidden_size = 16,
                   .num_attention_heads = 2,
                   .max_positions = T,
                   .vocab_size = 50,
                   .init_std = 0.02,
                   .norm_epsilon = 1e-5,
                   .hidden_dropout = 0.1,
                   .attention_dropout = 0.1,
                   .tied_embeddings = true},
        .micro_batch = B,
        .seq_length = T,
        .seed = 5,
        .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip_grad = 1},
    };
    struct gpt_err err;

    data.n_samples[GPT_TRAIN] = 40;
    data.n_samples[GPT_VALID] = 6;
    need(gpt_corpus_open(&corpus, &data, &err), &err);
    model.config.num_query_groups = 2;
    need(gpt_config_complete(&model.config, 8, 1, &err), &err);
    model.layout = GPT_LAYOUT_SINGLE(&model.config);
    need(gpt_backend_cpu(&be, &err), &err);
    need(gpt_replica_new(&replica, be, &model, &err), &err);
    need(gpt_replica_open(replica, &err), &err);
    need(gpt_replica_init(replica, &err), &err);
}

static struct gpt_feed *open_feed(bool mask)
{
    struct gpt_feed_options o = {
        .corpus = corpus,
        .masks = {.eod = 0, .eod_mask_loss = mask},
        .micro_batch = B,
        .seq_length = T,
        .max_micro_batches = MICRO,
    };
    struct gpt_feed *f;
    struct gpt_err err;
    need(gpt_feed_open(&f, &o, &err), &err);
    return f;
}

/* Do two feeds hold the same batch? */
static bool same_batch(const struct gpt_feed *a, const struct gpt_feed *b)
{
    for (int i = 0; i < MICRO; i++) {
        const struct gpt_microbatch *x = gpt_feed_microbatch(a, i);
        const struct gpt_microbatch *y = gpt_feed_microbatch(b, i);
        if (x->sample0 != y->sample0 ||
            memcmp(x->input, y->input, B * T * sizeof *x->input) ||
            memcmp(x->target, y->target, B * T * sizeof *x->target) ||
            memcmp(x->weight, y->weight, B * T * sizeof *x->weight))
            return false;
    }
    return true;
}

static void reading_ahead(void)
{
    struct gpt_feed *ahead = open_feed(true), *plain = open_feed(true);
    struct gpt_err err;
    bool same = true;

    for (int64_t first = 0; first < 5 * BATCH; first += BATCH) {
        need(gpt_feed_read(ahead, GPT_TRAIN, first, MICRO, &err), &err);
        gpt_feed_ahead(ahead, GPT_TRAIN, first + BATCH, MICRO);
        need(gpt_feed_read(plain, GPT_TRAIN, first, MICRO, &err), &err);
        same = same && same_batch(ahead, plain);
    }
    ok(same, "reading ahead gives the same batches");
    need(gpt_feed_read(ahead, GPT_VALID, 0, MICRO, &err), &err);
    need(gpt_feed_read(plain, GPT_VALID, 0, MICRO, &err), &err);
    ok(same_batch(ahead, plain), "also when something else is asked for");
    gpt_feed_ahead(ahead, GPT_TRAIN, 0, MICRO);
    gpt_feed_close(ahead); /* while the thread may be reading */

    int64_t size = gpt_corpus_size(corpus, GPT_VALID);
    need(gpt_feed_read(plain, GPT_VALID, size, MICRO, &err), &err);
    int32_t first[T];
    memcpy(first, gpt_feed_microbatch(plain, 0)->input, sizeof first);
    need(gpt_feed_read(plain, GPT_VALID, 0, MICRO, &err), &err);
    ok(memcmp(first, gpt_feed_microbatch(plain, 0)->input, sizeof first) == 0,
       "past its end a split begins again");
    gpt_feed_close(plain);
}

static void averages(void)
{
    struct gpt_feed *f = open_feed(true);
    struct gpt_err err;
    int masked = 0;

    need(gpt_feed_read(f, GPT_TRAIN, 0, MICRO, &err), &err);
    for (int i = 0; i < MICRO; i++) {
        const struct gpt_microbatch *mb = gpt_feed_microbatch(f, i);
        double sum = 0;
        for (int j = 0; j < B * T; j++) {
            sum += (double)mb->weight[j];
            masked += mb->weight[j] == 0;
            if ((mb->weight[j] == 0) != (mb->input[j] == 0))
                sum = NAN;
        }
        is_near(sum, 1.0 / MICRO, 1e-6, 0,
                "weights of microbatch %d sum to 1 / %d", i, MICRO);
    }
    ok(masked > 0, "ends of documents have no loss");
    gpt_feed_close(f);
}

static double train(struct gpt_feed *f, int64_t i)
{
    struct gpt_step step = {
        .first_sample = i * BATCH,
        .micro_batches = MICRO,
        .lr = 1e-2,
    };
    struct gpt_err err;

    need(gpt_feed_read(f, GPT_TRAIN, step.first_sample, MICRO, &err), &err);
    gpt_feed_ahead(f, GPT_TRAIN, step.first_sample + BATCH, MICRO);
    need(gpt_step_train(replica, f, &step, &err), &err);
    return step.loss;
}

static void steps(void)
{
    struct gpt_feed *f = open_feed(false);
    struct gpt_err err;
    double first = train(f, 0), last = 0, sum = 0, again = 0;
    int64_t rows = 0, updates;

    is_near(first, log(50), 0.05, 0, "the first loss is that of guessing");
    long before = allocations;
    for (int i = 1; i < 30; i++)
        last = train(f, i);
    if (COUNTED)
        is_int(allocations - before, 0, "no step after the first allocates");
    else
        skip("allocations are not counted under a sanitizer");
    ok(last < first - 0.3, "the loss falls: %g, %g", first, last);

    updates = replica->optimizer->step;
    need(gpt_feed_read(f, GPT_VALID, 0, MICRO, &err), &err);
    need(gpt_step_eval(replica, f, MICRO, &sum, &rows, &err), &err);
    is_int(rows, BATCH * T, "evaluation counts its tokens");
    need(gpt_step_eval(replica, f, MICRO, &again, &rows, &err), &err);
    ok(memcmp(&sum, &again, sizeof sum) == 0, "and gives the same twice");
    is_int(replica->optimizer->step, updates, "and updates nothing");

    replica->params[3] = NAN;
    struct gpt_step bad = {.micro_batches = MICRO, .lr = 1e-2};
    need(gpt_feed_read(f, GPT_TRAIN, 0, MICRO, &err), &err);
    need(gpt_step_train(replica, f, &bad, &err), &err);
    ok(bad.skipped, "a step whose loss is not finite is skipped");
    is_int(replica->optimizer->step, updates, "and updates nothing");
    gpt_feed_close(f);
}

int main(void)
{
    char dir[] = "/tmp/gpt-test-step.XXXXXX", path[64];
    struct gpt_err err;

    if (!mkdtemp(dir)) {
        printf("Bail out! no scratch directory\n");
        return 1;
    }
    snprintf(path, sizeof path, "%s/data", dir);
    need(make_dataset(path, &err), &err);
    open_all(path);
    reading_ahead();
    averages();
    steps();
    gpt_replica_close(replica);
    gpt_corpus_close(corpus);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/data.%s", dir, i ? "bin" : "idx");
        unlink(path);
    }
    rmdir(dir);
    return tap_done();
}
