/* Feed and step: reading ahead changes no result, splits begin again at their
 * end, weights of losses are Megatron's averages, evaluation does not change
 * the model, and no step after the first allocates. */
#include "../lib/dataset.h"
#include "../lib/must.h"
#include "../lib/tap.h"
#include "../lib/tree.h"

#include "train/step.h"

#include <stdatomic.h>

/* ---- every allocation of the process is counted ---- */
/* But LLVM's OpenMP allocates in each loop that it shares out as it runs. */

static atomic_long allocations;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__clang__) && defined(__GLIBC__)
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

static void open_data(const char *prefix)
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
    struct gpt_err err;

    data.n_samples[GPT_TRAIN] = 40;
    data.n_samples[GPT_VALID] = 6;
    must(gpt_corpus_open(&corpus, &data, &err), &err);
}

static struct gpt_replica *open_replica(enum gpt_dtype act, double scale)
{
    struct gpt_replica_options model = {
        .config = {.num_layers = 2,
                   .hidden_size = 16,
                   .num_attention_heads = 2,
                   .num_query_groups = 2,
                   .max_positions = T,
                   .vocab_size = 50,
                   .init_std = 0.02,
                   .norm_epsilon = 1e-5,
                   .hidden_dropout = 0.1,
                   .attention_dropout = 0.1,
                   .tied_embeddings = true},
        .exec.act = act,
        .loss_scale = {.initial = scale, .min = 1, .window = 3,
                       .hysteresis = 2},
        .exec.micro_batch = B,
        .exec.seq_length = T,
        .exec.seed = 5,
        .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip_grad = 1},
    };
    struct gpt_replica *r;
    struct gpt_err err;

    must(gpt_config_complete(&model.config, 8, 1, &err), &err);
    model.layout = GPT_LAYOUT_SINGLE(&model.config);
    must(gpt_replica_new(&r, be, &model, &err), &err);
    must(gpt_replica_open(r, &err), &err);
    must(gpt_replica_init(r, &err), &err);
    return r;
}

/* For steps of a replica. */
static struct gpt_feed *open_feed(struct gpt_replica *r, bool mask)
{
    struct gpt_feed_options o = {
        .corpus = corpus,
        .masks = {.eod = 0, .eod_mask_loss = mask},
        .micro_batch = B,
        .seq_length = T,
        .max_micro_batches = MICRO,
        .be = be,
        .q = r->q,
    };
    struct gpt_feed *f;
    struct gpt_err err;

    must(gpt_feed_open(&f, &o, &err), &err);
    return f;
}

/* Do two feeds hold the same batch? */
static bool same_batch(const struct gpt_feed *a, const struct gpt_feed *b)
{
    for (int i = 0; i < MICRO; i++) {
        const struct gpt_microbatch *x = gpt_feed_microbatch(a, i);
        const struct gpt_microbatch *y = gpt_feed_microbatch(b, i);

        if (x->sample0 != y->sample0 ||
            memcmp(x->input, y->input, B * T * sizeof(*x->input)) ||
            memcmp(x->target, y->target, B * T * sizeof(*x->target)) ||
            memcmp(x->weight, y->weight, B * T * sizeof(*x->weight)))
            return false;
    }
    return true;
}

static void reading_ahead(void)
{
    struct gpt_feed *ahead = open_feed(replica, true);
    struct gpt_feed *plain = open_feed(replica, true);
    struct gpt_err err;
    bool same = true;

    for (int64_t first = 0; first < 5 * BATCH; first += BATCH) {
        must(gpt_feed_read(ahead, GPT_TRAIN, first, MICRO, &err), &err);
        gpt_feed_ahead(ahead, GPT_TRAIN, first + BATCH, MICRO);
        must(gpt_feed_read(plain, GPT_TRAIN, first, MICRO, &err), &err);
        same = same && same_batch(ahead, plain);
    }
    ok(same, "reading ahead gives the same batches");
    must(gpt_feed_read(ahead, GPT_VALID, 0, MICRO, &err), &err);
    must(gpt_feed_read(plain, GPT_VALID, 0, MICRO, &err), &err);
    ok(same_batch(ahead, plain), "also when something else is asked for");
    gpt_feed_ahead(ahead, GPT_TRAIN, 0, MICRO);
    gpt_feed_close(ahead); /* while the thread may be reading */

    int64_t size = gpt_corpus_size(corpus, GPT_VALID);
    must(gpt_feed_read(plain, GPT_VALID, size, MICRO, &err), &err);
    int32_t first[T];
    memcpy(first, gpt_feed_microbatch(plain, 0)->input, sizeof(first));
    must(gpt_feed_read(plain, GPT_VALID, 0, MICRO, &err), &err);
    ok(memcmp(first, gpt_feed_microbatch(plain, 0)->input, sizeof(first)) == 0,
       "past its end a split begins again");
    gpt_feed_close(plain);
}

static void averages(void)
{
    struct gpt_feed *f = open_feed(replica, true);
    struct gpt_err err;
    int masked = 0;

    must(gpt_feed_read(f, GPT_TRAIN, 0, MICRO, &err), &err);
    for (int i = 0; i < MICRO; i++) {
        const struct gpt_microbatch *mb = gpt_feed_microbatch(f, i);
        double sum = 0;

        for (int j = 0; j < B * T; j++) {
            sum += (double)mb->weight[j];
            masked += mb->weight[j] == 0;
            if ((mb->weight[j] == 0) != (mb->input[j] == 0))
                sum = (double)NAN;
        }
        is_near(sum, 1.0 / MICRO, 1e-6, 0,
                "weights of microbatch %d sum to 1 / %d", i, MICRO);
    }
    ok(masked > 0, "ends of documents have no loss");
    gpt_feed_close(f);
}

static struct gpt_step one_step(struct gpt_replica *r, struct gpt_feed *f,
                                int64_t i)
{
    struct gpt_step step = {
        .micro_batches = MICRO,
        .rates.lr = 1e-2,
    };
    struct gpt_err err;

    must(gpt_feed_read(f, GPT_TRAIN, i * BATCH, MICRO, &err), &err);
    gpt_feed_ahead(f, GPT_TRAIN, (i + 1) * BATCH, MICRO);
    must(gpt_step_train(r, f, &step, &err), &err);
    return step;
}

static double train(struct gpt_feed *f, int64_t i)
{
    return one_step(replica, f, i).loss;
}

static void steps(void)
{
    struct gpt_feed *f = open_feed(replica, false);
    struct gpt_err err;
    double first = train(f, 0), last = 0;
    struct gpt_evaluation sum = {0}, again = {0};
    int64_t updates;

    is_near(first, log(50), 0.05, 0, "the first loss is that of guessing");
    long before = allocations;
    for (int i = 1; i < 30; i++)
        last = train(f, i);
    if (COUNTED)
        is_int(allocations - before, 0, "no step after the first allocates");
    else
        skip("allocations are counted without sanitizers, with GCC's OpenMP");
    ok(last < first - 0.3, "the loss falls: %g, %g", first, last);

    updates = *gpt_optimizer_updates(replica->optimizer);
    must(gpt_feed_read(f, GPT_VALID, 0, MICRO, &err), &err);
    must(gpt_step_eval(replica, f, MICRO, &sum, &err), &err);
    is_int(sum.rows, BATCH * T, "evaluation counts its tokens");
    must(gpt_step_eval(replica, f, MICRO, &again, &err), &err);
    ok(memcmp(&sum, &again, sizeof(sum)) == 0, "and gives the same twice");
    is_int(*gpt_optimizer_updates(replica->optimizer), updates,
           "and updates nothing");

    replica->params[3] = NAN;
    struct gpt_step bad = {.micro_batches = MICRO, .rates.lr = 1e-2};
    must(gpt_feed_read(f, GPT_TRAIN, 0, MICRO, &err), &err);
    must(gpt_step_train(replica, f, &bad, &err), &err);
    ok(bad.skipped, "a step whose loss is not finite is skipped");
    is_int(*gpt_optimizer_updates(replica->optimizer), updates,
           "and updates nothing");
    gpt_feed_close(f);
}

/* Trains two replicas on the same batches. */
static void compare(struct gpt_replica *a, struct gpt_replica *b, double rel,
                    const char *what)
{
    struct gpt_feed *f = open_feed(a, false), *g = open_feed(b, false);
    double worst = 0, norms = 0;

    for (int i = 0; i < 10; i++) {
        struct gpt_step x = one_step(a, f, i), y = one_step(b, g, i);

        worst = fmax(worst, fabs(x.loss - y.loss) / x.loss);
        norms = fmax(norms, fabs(x.grad_norm - y.grad_norm) / x.grad_norm);
    }
    ok(worst <= rel && norms <= 10 * rel, "%s: losses within %g, norms %g",
       what, worst, norms);
    gpt_feed_close(f);
    gpt_feed_close(g);
}

/* A power of two changes exponents only. */
static void loss_scale(void)
{
    struct gpt_replica *plain = open_replica(GPT_F32, 0);
    struct gpt_replica *scaled = open_replica(GPT_F32, 1024);

    compare(plain, scaled, 0, "a loss scale of 1024 to 8192");
    ok(memcmp(plain->params, scaled->params,
              (size_t)plain->flat.elements * sizeof(*plain->params)) == 0,
       "and the same parameters, bit for bit");
    ok(scaled->scale.scale == 1024 * 8, "it was doubled every three steps");
    gpt_replica_close(plain);
    gpt_replica_close(scaled);
}

/* A scale that is far too large: steps are skipped until it fits. */
static void overflow(void)
{
    struct gpt_replica *r = open_replica(GPT_F32, 0x1p126);
    struct gpt_feed *f = open_feed(r, false);
    struct gpt_step step = {.micro_batches = 0};
    const struct gpt_slice *norm =
        gpt_flat_find(&r->flat, GPT_FINAL_NORM_WEIGHT, -1);
    int skipped = 0;

    for (int64_t i = 0; i < norm->count; i++) /* for large gradients */
        r->params[norm->offset + i] = 1000;
    for (int i = 0; i < 40 && *gpt_optimizer_updates(r->optimizer) == 0; i++) {
        step = one_step(r, f, i);
        skipped += step.skipped && step.overflow;
    }
    ok(skipped >= 2 && !step.skipped && r->scale.scale < 0x1p126F,
       "%d steps are left out, then the scale is %g", skipped,
       (double)r->scale.scale);
    r->params[3] = NAN;
    step = one_step(r, f, 0);
    ok(step.skipped && !step.overflow, "no scale helps a loss that is NaN");
    gpt_feed_close(f);
    gpt_replica_close(r);
}

/* Weights in bf16 are the parameters, rounded. */
static void narrow(void)
{
    struct gpt_replica *wide = open_replica(GPT_F32, 0);
    struct gpt_replica *narrow = open_replica(GPT_BF16, 0);
    const uint16_t *weights = narrow->weights;
    struct gpt_memory memory[2];
    struct gpt_err err;
    int wrong = 0;

    ok(memcmp(wide->params, narrow->params,
              (size_t)wide->flat.elements * sizeof(*wide->params)) == 0,
       "bf16: the same initial values");
    compare(wide, narrow, 1e-2, "bf16 against float");
    for (int64_t i = 0; i < narrow->flat.elements; i++)
        wrong += weights[i] != gpt_f32_to_bf16(narrow->params[i]);
    is_int(wrong, 0, "its weights are its parameters, rounded");
    must(gpt_replica_memory(wide, &memory[0], &err), &err);
    must(gpt_replica_memory(narrow, &memory[1], &err), &err);
    is_int(memory[1].bytes[GPT_MEM_PARAMETERS] * 2,
           memory[0].bytes[GPT_MEM_PARAMETERS], "half the memory for weights");
    ok(memory[1].bytes[GPT_MEM_ACTIVATIONS] <
           0.6 * (double)memory[0].bytes[GPT_MEM_ACTIVATIONS],
       "about half for activations");
    gpt_replica_close(wide);
    gpt_replica_close(narrow);
}

int main(void)
{
    char dir[] = "/tmp/gpt-test-step.XXXXXX", path[64];
    struct gpt_err err;

    make_tree(dir);
    snprintf(path, sizeof(path), "%s/data", dir);
    must(make_dataset(path, &err), &err);
    open_data(path);
    must(gpt_backend_cpu(&be, &err), &err);
    replica = open_replica(GPT_F32, 0);
    reading_ahead();
    averages();
    steps();
    gpt_replica_close(replica);
    loss_scale();
    overflow();
    narrow();
    gpt_corpus_close(corpus);
    remove_tree(dir);
    return tap_done();
}
