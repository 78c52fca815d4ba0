/* Generation with GPT-2 124M, weights in every form: one text at a time, with
 * the bandwidth of memory for all bytes of weights as floor; 8 and 32 at a
 * time; prompts, with the speed of sgemm as floor. test_decode measures the
 * error.
 *
 * A step reads the weights, and the keys and values of every text, and
 * multiplies each weight with every text. Its floor is what takes longer, the
 * bytes at the speed of streaming or two operations for each weight and text at
 * the peak of fused multiplications, or of VDPBF16PS or VPDPBUSD where inputs
 * are rounded; its name says which. Tiles and products of bytes may be faster
 * than fused multiplications.
 *
 *     build/tests/bench/bench_decode [FORM [steps [TEXTS]]]
 *     build/tests/bench/bench_decode streaming
 *     build/tests/bench/bench_decode FORM parts TEXTS
 *     build/tests/bench/bench_decode choice [VOCABULARY]
 *
 * "parts" has clocks around each operation of a step, and gives the medians of
 * what they take in a step. "choice" has no model: it chooses tokens from
 * random logits, flat ones and such as a trained model has.
 *
 * FORM is fp32, bf16, int8 or int8-32, or one of the latter three with -rounded
 * behind it; TEXTS is 1, 8 or 32 alone. Keys and values are bf16 where inputs
 * are rounded, as gpt-generate has them, or what BENCH_CACHE says: fp32, bf16.
 */
#include "tests/bench/peak.h"

#include "generate/logprob.h"
#include "generate/sample.h"
#include "tests/lib/model.h"

#define RULE(t, k, p) {.temperature = (t), .top_k = (k), .top_p = (p)}

enum { PROMPT = 512, TEXTS = 32, MOST_THREADS = 64 };

struct job {
    struct gpt_decoder *d;
    struct gpt_sampler *sampler[MOST_THREADS];
    int64_t vocab, n;
    int32_t slots[TEXTS], next[TEXTS], prompt[PROMPT];
    float *logits;
    struct gpt_sampling rule;
    double sum;
};

/* Threads share the texts, as in generate/batch.c. */
static void choose_all(struct job *j)
{
#pragma omp parallel for schedule(dynamic) if (j->n > 1)
    for (int64_t i = 0; i < j->n; i++) {
        struct gpt_err err = {0};

        must(gpt_sample(j->sampler[omp_get_thread_num()],
                        j->logits + i * j->vocab, j->vocab, &j->rule, 0.5,
                        &j->next[i], &err),
             &err);
    }
}

static void back_to_128(struct job *j)
{
    for (int64_t i = 0; i < j->n; i++)
        if (gpt_decoder_length(j->d, i) == 256)
            gpt_decoder_truncate(j->d, i, 128);
}

/* A step and its choices, at positions 128..255 again and again. */
static void step(void *ctx)
{
    struct job *j = ctx;
    struct gpt_err err = {0};

    back_to_128(j);
    must(gpt_decoder_step(j->d, j->slots, j->next, j->n, j->logits, &err),
         &err);
    choose_all(j);
}

static void prefill(void *ctx)
{
    struct job *j = ctx;
    struct gpt_err err = {0};

    gpt_decoder_truncate(j->d, 0, 0);
    must(gpt_decoder_append(j->d, 0, j->prompt, PROMPT, GPT_LOGITS_LAST,
                            j->logits, &err),
         &err);
}

/* One choice from logits as they are. */
static void choose(void *ctx)
{
    struct job *j = ctx;
    struct gpt_err err = {0};

    must(gpt_sample(j->sampler[0], j->logits, j->vocab, &j->rule, 0.5,
                    &j->next[0], &err),
         &err);
}

static void log_sum(void *ctx)
{
    struct job *j = ctx;

    j->sum = gpt_log_sum(j->logits, j->vocab);
}

static void bench_choice(struct job *j, const char *what)
{
    static const struct {
        const char *name;
        struct gpt_sampling rule;
    } rules[] = {
        {"greedy", RULE(0, 0, 0)},
        {"all tokens", RULE(1, 0, 0)},
        {"min-p 0.05", {.temperature = 1, .min_p = 0.05}},
        {"top-k 40", RULE(1, 40, 0)},
        {"top-p 0.9", RULE(1, 0, 0.9)},
        {"top-p 0.99", RULE(1, 0, 0.99)},
    };
    char name[64];

    for (size_t i = 0; i < GPT_COUNT(rules); i++) {
        j->rule = rules[i].rule;
        snprintf(name, sizeof(name), "choice%s, %s", what, rules[i].name);
        bench_row(name, 1e6 * bench_time(choose, j, 0.2), "us", 0, -1);
    }
    snprintf(name, sizeof(name), "log-probability%s", what);
    bench_row(name, 1e6 * bench_time(log_sum, j, 0.2), "us", 0, -1);
}

/* Logits without a model: their deviation is that of a model at its beginning,
 * then of a trained one, whose best token has a probability of about a half. */
static void bench_choices(int64_t vocab)
{
    static const struct {
        const char *name;
        float deviation;
    } kinds[] = {{" flat", 0.3f}, {" peaked", 3.0f}};
    struct job j = {.vocab = vocab};
    struct gpt_rng rng = gpt_rng_open(1, "logits");
    struct gpt_err err = {0};

    must(gpt_sampler_open(&j.sampler[0], vocab, &err), &err);
    j.logits = gpt_alloc((size_t)vocab, sizeof(*j.logits));
    for (size_t k = 0; k < GPT_COUNT(kinds); k++) {
        for (int64_t i = 0; i < vocab; i++)
            j.logits[i] =
                kinds[k].deviation * gpt_rng_normal(rng, (uint64_t)i);
        j.logits[vocab / 3] = kinds[k].deviation * 7;
        bench_choice(&j, kinds[k].name);
    }
    gpt_sampler_close(j.sampler[0]);
    gpt_free(j.logits);
}

/* Weights in a form. */
static const struct form {
    const char *name;
    struct gpt_quant_form form;
} forms[] = {{"fp32", {GPT_F32, 0, false}},
             {"bf16", {GPT_BF16, 0, false}},
             {"int8", {GPT_I8, 0, false}},
             {"int8-32", {GPT_I8, 32, false}},
             {"bf16-rounded", {GPT_BF16, 0, true}},
             {"int8-rounded", {GPT_I8, 0, true}},
             {"int8-32-rounded", {GPT_I8, 32, true}}};

static struct gpt_quant_store *store_of(struct model *m,
                                        struct gpt_quant_form form)
{
    struct gpt_quant_store *store = NULL;
    struct gpt_err err = {0};

    if (!gpt_quant_store_wanted(m->be, form))
        return NULL;
    must(gpt_quant_store_open(&store, m->be, &m->flat, form, &err), &err);
    for (int64_t i = 0; i < m->flat.n; i++)
        must(gpt_quant_store_put(store, i, m->w + m->flat.slices[i].offset,
                                 &err),
             &err);
    return store;
}

static void open_job(struct job *j, struct model *m, const struct form *f,
                     const struct gpt_quant_store *store)
{
    const char *cache = getenv("BENCH_CACHE");
    const struct gpt_decoder_options o = {.config = &m->c,
                                          .flat = &m->flat,
                                          .act = GPT_F32,
                                          .slots = TEXTS,
                                          .positions = 512,
                                          .narrow_cache =
                                              cache ? strcmp(cache, "bf16") == 0
                                                    : f->form.round_inputs,
                                          .quant = store};
    struct gpt_err err = {0};

    must(gpt_decoder_open(&j->d, m->be, &o, m->device, &err), &err);
    for (int i = 0; i < TEXTS; i++) {
        j->slots[i] = i;
        must(gpt_decoder_append(j->d, i, j->prompt, 128, GPT_LOGITS_LAST,
                                j->logits, &err),
             &err);
    }
}

/* Bytes that a step reads of the cache: positions are 128 to 255. */
static double cache_bytes(const struct model *m, const struct gpt_decoder *d,
                          int64_t texts)
{
    const struct gpt_config *c = &m->c;
    const enum gpt_dtype type = gpt_decoder_cache_type(gpt_decoder_shape(d));

    return 2.0 * (double)gpt_dtype_bytes(type) * 192 *
           (double)(texts * c->num_layers * c->num_query_groups * c->head_size);
}

/* Weights that a text meets: all but the table of positions. */
static double multiplied(const struct model *m)
{
    return (double)(m->flat.count -
                    m->c.max_positions * m->c.hidden_size);
}

/* ---- parts of a step ---- */

enum part { QKV, PROJ, FC1, FC2, HEAD, ATTENTION, NORM, EMBED, COPIES, CHOICE,
            STEP, PARTS };
enum { MOST_STEPS = 4000 };

/* The backend's own operations, and the seconds of each part in each step. */
static struct {
    const struct gpt_backend *own;
    int64_t width;
    int n;
    double seconds[PARTS][MOST_STEPS];
} clocks;

#define TIMED(part, call)                                                     \
    do {                                                                      \
        const double begin_ = bench_now();                                    \
        call;                                                                 \
        clocks.seconds[part][clocks.n] += bench_now() - begin_;               \
    } while (0)

/* A layer's products are told apart by their shapes: n of qkv is 3 k. */
static enum part part_of(const struct gpt_matmul *op)
{
    const int64_t c = clocks.width;

    return op->n == 3 * c ? QKV : op->n == 4 * c ? FC1 : op->n > 4 * c ? HEAD
           : op->k == c   ? PROJ : FC2;
}

static void timed_matmul(struct gpt_queue *q, const struct gpt_matmul *op)
{
    TIMED(part_of(op), clocks.own->matmul(q, op));
}

static void timed_attention(struct gpt_queue *q,
                            const struct gpt_attn_cached *op)
{
    TIMED(ATTENTION, clocks.own->attn_cached(q, op));
}

static void timed_norm(struct gpt_queue *q, const struct gpt_norm *op)
{
    TIMED(NORM, clocks.own->norm_fwd(q, op));
}

static void timed_embed(struct gpt_queue *q, const struct gpt_embed *op)
{
    TIMED(EMBED, clocks.own->embed_fwd(q, op));
}

static void timed_copy_out(struct gpt_queue *q, void *host, const void *from,
                           size_t bytes)
{
    TIMED(COPIES, clocks.own->copy_out(q, host, from, bytes));
}

/* Between steps the clocks go to the next row. */
static void timed_step(struct job *j)
{
    const double begin = bench_now();
    struct gpt_err err = {0};

    must(gpt_decoder_step(j->d, j->slots, j->next, j->n, j->logits, &err),
         &err);
    TIMED(CHOICE, choose_all(j));
    clocks.seconds[STEP][clocks.n++] = bench_now() - begin;
}

static void bench_parts(struct model *m, struct job *j, const struct form *f,
                        int64_t texts)
{
    static const char *const names[] = {
        "qkv", "proj", "fc1, GELU", "fc2", "head", "attention", "norms",
        "embedding", "copies of logits", "choice of tokens", "step"};
    struct gpt_backend timed = *m->be;
    struct gpt_quant_store *store = store_of(m, f->form);
    struct gpt_backend *own = m->be;
    double rest = 0;

    clocks.own = own;
    clocks.width = m->c.hidden_size;
    timed.matmul = timed_matmul;
    timed.attn_cached = timed_attention;
    timed.norm_fwd = timed_norm;
    timed.embed_fwd = timed_embed;
    timed.copy_out = timed_copy_out;
    m->be = &timed;
    open_job(j, m, f, store);
    j->n = texts;
    for (int64_t n = 0; n < 2 * (256 - 128); n++) {
        back_to_128(j);
        timed_step(j);
    }
    for (int p = 0; p < PARTS; p++) {
        const double ms = 1e3 * bench_median(clocks.seconds[p], clocks.n);

        rest += p == STEP ? ms : -ms;
        printf("%s\t%.3f\tms\n", names[p], ms);
    }
    printf("rest\t%.3f\tms\n", rest);
    m->be = own;
    gpt_decoder_close(j->d);
    gpt_quant_store_close(store);
}

/* ---- */

/* only: so many texts, or 0 for all numbers of them. */
static void bench_form(struct model *m, struct job *j, const struct form *f,
                       bool prompts, int64_t only)
{
    static const int64_t texts[] = {1, 8, TEXTS};
    static const char *const peaks[] = {[PEAK_FMA] = "FMA",
                                        [PEAK_PAIRS] = "VDPBF16PS",
                                        [PEAK_BYTES] = "VPDPBUSD"};
    const enum peak_kind kind = !f->form.round_inputs      ? PEAK_FMA
                                : f->form.type == GPT_BF16 ? PEAK_PAIRS
                                                           : PEAK_BYTES;
    struct gpt_quant_store *store = store_of(m, f->form);
    char name[64];

    open_job(j, m, f, store);
    /* the floor before and after: a busy machine changes */
    double read, again, copy, weights = (double)gpt_decoder_step_bytes(j->d);
    bench_bandwidth(&read, &copy);
    for (size_t i = 0; i < GPT_COUNT(texts); i++) {
        if (only > 0 && only != texts[i])
            continue;
        j->n = texts[i];
        double seconds = bench_time(step, j, 2);
        double bytes = weights + cache_bytes(m, j->d, j->n);

        bench_bandwidth(&again, &copy);
        read = read > again ? read : again;
        double peak = peak_rate(kind, omp_get_max_threads(), 50);
        double memory = (double)j->n * read / bytes;
        double products = peak / 2 / multiplied(m);
        bool bound = peak > 0 && products < memory;

        snprintf(name, sizeof(name), "decode 124M %s, %d text%s, %s", f->name,
                 (int)j->n, j->n > 1 ? "s" : "",
                 bound ? peaks[kind] : "memory");
        bench_row(name, (double)j->n / seconds, "token/s",
                  bound ? products : memory, -1);
        snprintf(name, sizeof(name), "  bytes a second");
        bench_row(name, bytes / seconds / 1e9, "GB/s", read / 1e9, -1);
    }
    double flops = 2.0 * (double)(m->flat.count - m->c.vocab_size *
                                  m->c.hidden_size) * PROMPT;
    if (prompts) {
        double seconds = bench_time(prefill, j, 2);

        snprintf(name, sizeof(name), "prompt of %d tokens, %s", PROMPT,
                 f->name);
        bench_row(name, PROMPT / seconds, "token/s",
                  PROMPT * bench_sgemm_ceiling() / flops, -1);
    }
    gpt_decoder_close(j->d);
    gpt_quant_store_close(store);
}

int main(int argc, char **argv)
{
    struct model m;
    struct gpt_err err = {0};

    bench_head();
    if (argc > 1 && strcmp(argv[1], "streaming") == 0) {
        double read, copy;

        bench_bandwidth(&read, &copy);
        bench_row("streaming", read / 1e9, "GB/s", read / 1e9, -1);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "choice") == 0) {
        bench_choices(argc > 2 ? atoi(argv[2]) : 50257);
        return 0;
    }
    const bool prompts = argc < 3; /* and choices alone */
    open_model(&m, gpt_config_default());
    struct job j = {.vocab = m.c.vocab_size, .rule = RULE(0.8, 40, 0)};
    for (int i = 0; i < omp_get_max_threads() && i < MOST_THREADS; i++)
        must(gpt_sampler_open(&j.sampler[i], j.vocab, &err), &err);
    j.logits = gpt_alloc((size_t)(TEXTS * j.vocab), sizeof(*j.logits));
    for (int i = 0; i < PROMPT; i++)
        j.prompt[i] = i * 97 % 50000;
    for (size_t i = 0; i < GPT_COUNT(forms); i++)
        if (argc > 3 && strcmp(argv[1], forms[i].name) == 0 &&
            strcmp(argv[2], "parts") == 0)
            bench_parts(&m, &j, &forms[i], atoi(argv[3]));
        else if (argc < 2 || strcmp(argv[1], forms[i].name) == 0)
            bench_form(&m, &j, &forms[i], prompts,
                       argc > 3 ? atoi(argv[3]) : 0);
    if (prompts)
        bench_choice(&j, "");
    return 0;
}
