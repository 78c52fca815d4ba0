/* Compares the model with float64 PyTorch (tests/golden/make_model.py), with
 * finite differences, and with itself: other microbatches, threads, pipeline
 * stages. */
#include "model_case.h"

#include "tests/lib/must.h"

#include <omp.h>

static struct gpt_backend *be;

static struct gpt_replica *open_replica(const struct gpt_config *c, int64_t b,
                                        int64_t t, int64_t pp, int64_t rank,
                                        const struct model_case *k)
{
    struct gpt_err err;
    struct gpt_replica *r;
    struct gpt_replica_options o = {
        .config = *c,
        .layout = gpt_layout_even(c, 1, 0, pp, rank),
        .exec.act = GPT_F32,
        .exec.micro_batch = b,
        .exec.seq_length = t,
        .exec.documents = true,
        .exec.seed = 7,
        .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
    };

    if (k)
        o.optimizer = (struct gpt_optimizer_options){.beta1 = k->beta1,
                                                     .beta2 = k->beta2,
                                                     .eps = k->eps,
                                                     .clip_grad = k->clip_grad};
    must(gpt_replica_new(&r, be, &o, &err), &err);
    must(gpt_replica_open(r, &err), &err);
    case_fill(r);
    return r;
}

/* ---- a batch in memory: n microbatches of (B, T) ---- */

struct batch {
    int64_t b, t, n;
    const int32_t *input, *target, *position, *doc_start;
    float *weight, *loss, *logits;
};

/* Megatron's averaging; rows of micro-batches of another size keep order. */
static void weigh(struct batch *x, const float *mask)
{
    int64_t rows = x->b * x->t;

    for (int64_t i = 0; i < x->n; i++) {
        double sum = 0;

        for (int64_t j = 0; j < rows; j++)
            sum += (double)mask[i * rows + j];
        for (int64_t j = 0; j < rows; j++)
            x->weight[i * rows + j] =
                (float)((double)mask[i * rows + j] / sum / (double)x->n);
    }
}

static struct batch batch_of(const struct model_case *k)
{
    int64_t rows = k->n * k->b * k->t;
    struct batch x = {
        .b = k->b,
        .t = k->t,
        .n = k->n,
        .input = k->input,
        .target = k->target,
        .position = k->position,
        .doc_start = k->doc_start,
        .weight = gpt_alloc((size_t)rows, sizeof(float)),
        .loss = gpt_alloc((size_t)rows, sizeof(float)),
        .logits = gpt_alloc((size_t)(rows * k->config.padded_vocab_size),
                            sizeof(float)),
    };

    weigh(&x, k->mask);
    return x;
}

static void batch_free(struct batch *x)
{
    gpt_free(x->weight);
    gpt_free(x->loss);
    gpt_free(x->logits);
}

static struct gpt_microbatch micro_of(const struct batch *x, int64_t i)
{
    int64_t at = i * x->b * x->t;

    return (struct gpt_microbatch){
        .input = x->input + at,
        .target = x->target + at,
        .position = x->position + at,
        .doc_start = x->doc_start + at,
        .weight = x->weight + at,
        .sample0 = 1000 + i * x->b,
    };
}

/* Without ZeRO-2 all buckets are one block. */
static float *flat_gradients(const struct gpt_replica *r)
{
    return gpt_reducer_buckets(r->reducer)[0];
}

/* Gradients of the batch; returns its weighted loss. */
static double gradients(struct gpt_replica *r, struct batch *x,
                        enum gpt_stage_mode mode)
{
    struct gpt_err err;
    double loss = 0;
    int64_t rows = x->n * x->b * x->t;

    if (mode != GPT_STAGE_EVAL)
        gpt_stage_begin(r->stage, r->q);
    for (int64_t i = 0; i < x->n; i++) {
        struct gpt_microbatch mb = micro_of(x, i);
        int64_t at = i * x->b * x->t;
        struct gpt_stage_result result = {
            .loss = x->loss + at,
            .logits = x->logits ? x->logits + at * r->o.config.padded_vocab_size
                                : NULL,
        };

        gpt_stage_forward(r->stage, r->q, 0, 0, mode, &mb, NULL, &result);
        if (mode != GPT_STAGE_EVAL)
            gpt_stage_backward(r->stage, r->q, 0, 0, NULL);
    }
    if (be->sync(r->q, &err) != GPT_OK)
        return (double)NAN;
    for (int64_t i = 0; i < rows; i++)
        loss += (double)x->loss[i] * (double)x->weight[i];
    return loss;
}

/* Largest difference over largest wanted value. */
static double error_of(const float *got, const float *want, int64_t n)
{
    double worst = 0, largest = 1e-30;

    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]);

        worst = d <= worst ? worst : d; /* NaN is the worst */
        largest = fmax(largest, fabs((double)want[i]));
    }
    return worst / largest;
}

/* Worst error over parameters; prints which. `want` is tight, table order. */
static double params_error(const struct gpt_replica *r, const float *flat,
                           const float *want)
{
    double worst = 0;
    const char *name = "";

    for (int64_t i = 0; i < r->flat.n; i++) {
        const struct gpt_slice *s = &r->flat.slices[i];
        double e = error_of(flat + s->offset, want, s->count);

        if (!(e <= worst)) {
            worst = e;
            name = s->param->name;
        }
        want += s->count;
    }
    printf("# worst %.2g in %s\n", worst, name);
    return worst;
}

static int64_t count_of(const struct gpt_replica *r)
{
    return r->flat.count;
}

/* ---- against PyTorch ---- */

static void ten_steps(const struct model_case *k, struct gpt_replica *r,
                      struct batch *x, const char *name)
{
    struct gpt_err err;
    double worst = 0, worst_norm = 0;

    case_fill(r);
    for (int64_t i = 0; i < k->steps; i++) {
        struct gpt_update update = {
            .params = r->params,
            .loss_scale = 1,
            .gradients = gpt_reducer_shards(r->reducer),
            .act = GPT_F32,
            .rates = {.lr = k->lr, .weight_decay = k->weight_decay},
        };
        double loss = gradients(r, x, GPT_STAGE_GRADIENT);

        worst = fmax(worst, fabs(loss - k->losses[i]) / k->losses[i]);
        if (gpt_optimizer_squares(r->optimizer, r->q, update.gradients,
                                  &update.norm, &err) != GPT_OK)
            worst = (double)NAN;
        update.norm = sqrt(update.norm);
        worst_norm =
            fmax(worst_norm, fabs(update.norm - k->norms[i]) / k->norms[i]);
        gpt_optimizer_update(r->optimizer, r->q, &update);
    }
    ok(worst <= 1e-4, "%s: losses of %lld AdamW steps, error %.2g", name,
       (long long)k->steps, worst);
    ok(worst_norm <= 1e-3, "%s: gradient norms, error %.2g", name, worst_norm);
    ok(params_error(r, r->params, k->after + count_of(r)) <= 1e-3,
       "%s: parameters after the steps", name);
}

/* Pairs of tokens and experts stand where biases of routers have no gradient:
 * so many in each layer. They are taken out, as PyTorch has none. */
static void check_counts(const struct gpt_replica *r, int64_t pairs,
                         const char *name)
{
    for (int64_t i = 0; i < r->flat.n; i++) {
        const struct gpt_slice *s = &r->flat.slices[i];
        float *counts = flat_gradients(r) + s->offset;
        double sum = 0;

        for (int64_t e = 0; s->param->counts && e < s->count; e++) {
            sum += (double)counts[e];
            counts[e] = 0;
        }
        if (s->param->counts)
            is_int((int64_t)sum, pairs, "%s: tokens of experts", name);
    }
}

static void against_pytorch(const char *name)
{
    struct model_case k = {.b = 0};

    if (!case_read(&k, name))
        return;
    struct gpt_replica *r = open_replica(&k.config, k.b, k.t, 1, 0, &k);
    struct batch x = batch_of(&k);
    int64_t rows = k.n * k.b * k.t;

    double loss = gradients(r, &x, GPT_STAGE_GRADIENT);
    is_near(loss, k.loss, 1e-5, 0, "%s: loss", name);
    double e = error_of(x.logits, k.logits, rows * k.config.padded_vocab_size);
    ok(e <= 1e-4, "%s: logits, error %.2g", name, e);
    check_counts(r, rows * k.config.moe_router_topk, name);
    ok(params_error(r, flat_gradients(r), k.after) <= 1e-4,
       "%s: every gradient",
       name);
    is_near(gradients(r, &x, GPT_STAGE_EVAL), k.loss, 1e-5, 0,
            "%s: loss in evaluation", name);
    ten_steps(&k, r, &x, name);
    batch_free(&x);
    gpt_replica_close(r);
    case_free(&k);
}

/* ---- against itself ---- */

enum { SAMPLES = 8, TIME = 12, ROWS = SAMPLES * TIME };

static struct gpt_config small(double dropout)
{
    return (struct gpt_config){
        .num_layers = 4,
        .hidden_size = 12,
        .num_attention_heads = 4,
        .num_query_groups = 2,
        .head_size = 3,
        .ffn_hidden_size = 40,
        .max_positions = TIME,
        .vocab_size = 29,
        .padded_vocab_size = 32,
        .norm_epsilon = 1e-5,
        .init_std = 0.02,
        .hidden_dropout = dropout,
        .attention_dropout = dropout,
        .tied_embeddings = true,
    };
}

/* Eight samples, cut into microbatches of b. */
static struct batch samples(int64_t b)
{
    static int32_t input[ROWS], target[ROWS], position[ROWS], start[ROWS];
    static float mask[ROWS];

    for (int i = 0; i < ROWS; i++) {
        input[i] = (int32_t)(case_mix((uint32_t)i) % 29);
        target[i] = (int32_t)(case_mix((uint32_t)i + 1) % 29);
        position[i] = i % TIME;
        start[i] = i % TIME > 6 ? 4 : 0;
        mask[i] = 1;
    }
    struct batch x = {
        .b = b,
        .t = TIME,
        .n = SAMPLES / b,
        .input = input,
        .target = target,
        .position = position,
        .doc_start = start,
        .weight = gpt_alloc(ROWS, sizeof(float)),
        .loss = gpt_alloc(ROWS, sizeof(float)),
    };
    weigh(&x, mask);
    return x;
}

static double norm_of(const struct gpt_replica *r)
{
    double sum = 0;

    for (int64_t i = 0; i < r->flat.elements; i++)
        sum += (double)flat_gradients(r)[i] * (double)flat_gradients(r)[i];
    return sqrt(sum);
}

/* (L(w + h d) - L(w - h d)) / 2h against g.d, for d = g / |g| and for signs
 * by hash. With dropout, whose masks are the same in all three. */
static void finite_differences(double dropout, enum gpt_stage_mode mode)
{
    struct gpt_config c = small(dropout);
    struct gpt_replica *r = open_replica(&c, SAMPLES, TIME, 1, 0, NULL);
    struct batch x = samples(SAMPLES);
    int64_t n = r->flat.elements;
    float *w = gpt_alloc((size_t)n, sizeof(*w));
    double *d = gpt_alloc((size_t)n, sizeof(*d));

    memcpy(w, r->params, (size_t)n * sizeof(*w));
    for (int round = 0; round < 3; round++) {
        double want = 0, loss[2], h = 1e-2;

        memcpy(r->params, w, (size_t)n * sizeof(*w));
        gradients(r, &x, mode);
        double norm = norm_of(r);
        for (int64_t i = 0; i < n; i++) {
            bool minus = case_mix((uint32_t)(i * 3 + round)) & 1;

            d[i] = round == 0 ? (double)flat_gradients(r)[i] / norm
                              : (minus ? -1.0 : 1.0) / sqrt((double)n);
            want += d[i] * (double)flat_gradients(r)[i];
        }
        for (int s = 0; s < 2; s++) {
            for (int64_t i = 0; i < n; i++)
                r->params[i] = (float)((double)w[i] + (s ? h : -h) * d[i]);
            loss[s] = gradients(r, &x, mode);
        }
        is_near((loss[1] - loss[0]) / (2 * h), want, 1e-3, 1e-3 * norm,
                "finite differences, dropout %g, direction %d", dropout, round);
    }
    gpt_free(w);
    gpt_free(d);
    batch_free(&x);
    gpt_replica_close(r);
}

static void microbatches(double dropout)
{
    struct gpt_config c = small(dropout);
    struct gpt_replica *whole = open_replica(&c, SAMPLES, TIME, 1, 0, NULL);
    struct batch x = samples(SAMPLES);
    double want = gradients(whole, &x, GPT_STAGE_TRAIN);

    for (int64_t b = 1; b < SAMPLES; b *= 2) {
        struct gpt_replica *r = open_replica(&c, b, TIME, 1, 0, NULL);
        struct batch y = samples(b);

        is_near(gradients(r, &y, GPT_STAGE_TRAIN), want, 1e-6, 0,
                "%lld microbatches of %lld: loss, dropout %g",
                (long long)(SAMPLES / b), (long long)b, dropout);
        double e = error_of(flat_gradients(r), flat_gradients(whole),
                            r->flat.elements);
        ok(e <= 1e-5, "and gradients, error %.2g", e);
        batch_free(&y);
        gpt_replica_close(r);
    }
    batch_free(&x);
    gpt_replica_close(whole);
}

static void threads(void)
{
    struct gpt_config c = small(0.2);
    struct gpt_replica *r = open_replica(&c, SAMPLES, TIME, 1, 0, NULL);
    struct batch x = samples(SAMPLES);
    size_t bytes = (size_t)r->flat.elements * sizeof(float);
    float *want = gpt_alloc(bytes, 1);
    int most = omp_get_max_threads();

    omp_set_num_threads(1);
    double loss = gradients(r, &x, GPT_STAGE_TRAIN);
    memcpy(want, flat_gradients(r), bytes);
    for (int n = 2; n <= 5; n++) {
        omp_set_num_threads(n);
        double again = gradients(r, &x, GPT_STAGE_TRAIN);
        ok(memcmp(&again, &loss, sizeof(loss)) == 0 &&
               memcmp(want, flat_gradients(r), bytes) == 0,
           "%d threads: the same bits", n);
    }
    omp_set_num_threads(most);
    gpt_free(want);
    batch_free(&x);
    gpt_replica_close(r);
}

/* Steps with other samples have other masks, the same samples have the same
 * masks; evaluation has none. */
static void dropout_keys(void)
{
    struct gpt_config c = small(0.5);
    struct gpt_replica *r = open_replica(&c, SAMPLES, TIME, 1, 0, NULL);
    struct batch x = samples(SAMPLES);
    float first[ROWS], again[ROWS], other[ROWS];
    struct gpt_err err;

    for (int i = 0; i < 3; i++) {
        struct gpt_microbatch mb = micro_of(&x, 0);
        struct gpt_stage_result result = {
            .loss = i == 0   ? first
                    : i == 1 ? again
                             : other,
        };

        mb.sample0 += i == 2 ? SAMPLES : 0;
        gpt_stage_forward(r->stage, r->q, 0, 0, GPT_STAGE_TRAIN, &mb, NULL,
                          &result);
        ok(be->sync(r->q, &err) == GPT_OK, "forward with dropout");
    }
    ok(memcmp(first, again, sizeof(first)) == 0, "same samples, same masks");
    int same = 0;
    for (int i = 0; i < ROWS; i++)
        same += first[i] == other[i];
    ok(same < ROWS / 10, "other samples, other masks");
    batch_free(&x);
    gpt_replica_close(r);
}

/* ---- two pipeline stages against one ---- */

static void pipeline(void)
{
    struct gpt_config c = small(0.1);
    struct gpt_replica *whole = open_replica(&c, SAMPLES, TIME, 1, 0, NULL);
    struct gpt_replica *stage[2];
    struct batch x = samples(SAMPLES);
    struct gpt_microbatch mb = micro_of(&x, 0);
    struct gpt_stage_result result = {.loss = x.loss};
    double want = gradients(whole, &x, GPT_STAGE_TRAIN), loss = 0;

    for (int i = 0; i < 2; i++) {
        stage[i] = open_replica(&c, SAMPLES, TIME, 2, i, NULL);
        gpt_stage_begin(stage[i]->stage, stage[i]->q);
    }
    const void *mid = gpt_stage_forward(stage[0]->stage, stage[0]->q, 0, 0,
                                        GPT_STAGE_TRAIN, &mb, NULL, NULL);
    ok(mid != NULL, "the first stage has an output");
    ok(gpt_stage_forward(stage[1]->stage, stage[1]->q, 0, 0, GPT_STAGE_TRAIN,
                         &mb, mid, &result) == NULL,
       "the last stage has none");
    const void *dmid =
        gpt_stage_backward(stage[1]->stage, stage[1]->q, 0, 0, NULL);
    gpt_stage_backward(stage[0]->stage, stage[0]->q, 0, 0, dmid);
    for (int i = 0; i < ROWS; i++)
        loss += (double)x.loss[i] * (double)x.weight[i];
    is_near(loss, want, 1e-6, 0, "two stages: loss");

    double worst = 0;
    for (int i = 0; i < 2; i++) {
        for (int64_t j = 0; j < stage[i]->flat.n; j++) {
            const struct gpt_slice *s = &stage[i]->flat.slices[j];
            const struct gpt_slice *w =
                gpt_flat_find(&whole->flat, s->param->role, s->param->layer);
            float *got = flat_gradients(stage[i]) + s->offset;

            if (s->copy)
                continue; /* added to the first stage's below */
            if (s->param->role == GPT_WORD_EMBEDDING) {
                const struct gpt_slice *copy =
                    gpt_flat_find(&stage[1]->flat, GPT_WORD_EMBEDDING, -1);

                for (int64_t e = 0; e < s->count; e++)
                    got[e] += flat_gradients(stage[1])[copy->offset + e];
            }
            worst = fmax(worst,
                         error_of(got, flat_gradients(whole) + w->offset,
                                  s->count));
        }
    }
    ok(worst <= 1e-5, "two stages: gradients, error %.2g", worst);
    for (int i = 0; i < 2; i++)
        gpt_replica_close(stage[i]);
    batch_free(&x);
    gpt_replica_close(whole);
}

/* ---- memory ---- */

static int64_t allocated, allocations;

static int counting_alloc(struct gpt_backend *b, size_t bytes, const char *what,
                          void **mem, struct gpt_err *err)
{
    allocated += (int64_t)bytes;
    allocations++;
    return be->alloc(b, bytes, what, mem, err);
}

static void memory(void)
{
    struct gpt_config c = small(0.1);
    struct gpt_backend counting = *be;
    struct gpt_err err;
    struct gpt_memory predicted;
    struct gpt_replica *r;
    struct gpt_replica_options o = {
        .config = c,
        .layout = GPT_LAYOUT_SINGLE(&c),
        .exec.act = GPT_F32,
        .exec.micro_batch = SAMPLES,
        .exec.seq_length = TIME,
        .exec.documents = true,
        .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
    };
    int64_t sum = 0;

    counting.alloc = counting_alloc;
    ok(gpt_replica_new(&r, &counting, &o, &err) == GPT_OK &&
           gpt_replica_memory(r, &predicted, &err) == GPT_OK,
       "memory is predicted");
    is_int(allocated, 0, "prediction allocates nothing");
    for (int i = 0; i < GPT_N_MEMORY_KINDS; i++)
        sum += predicted.bytes[i];
    ok(gpt_replica_open(r, &err) == GPT_OK, "and allocated");
    is_int(allocated, sum, "as predicted, to the byte");
    is_int(allocations, 7, "one block a kind");
    case_fill(r);
    struct batch x = samples(SAMPLES);
    gradients(r, &x, GPT_STAGE_TRAIN);
    is_int(allocations, 7, "a step allocates nothing of the device");
    batch_free(&x);
    gpt_replica_close(r);
}

int main(void)
{
    static const char *const names[] = {
        "plain",      "one",   "odd",   "groups", "multiquery",
        "wide_heads", "masks", "micro", "untied", "long",
        "rope",       "rope_part", "alibi", "nowhere",
        "llama",      "llama_biases", "qwen2", "qwen3", "llama3", "yarn",
        "longrope",   "ministral3", "hunyuan",
        "gpt_neo",
        "linear",     "dynamic", "neox", "falcon", "gemma", "squared", "relu",
        "window", "window_long", "gemma1", "gemma2", "cap_alibi", "olmo2",
        "bloom", "opt", "gptj", "cohere", "granite", "gemma3",
        "mixtral", "qwen2_moe", "glm4_moe", "experts_plain",
        "latent", "deepseek_v2", "deepseek_v3",
    };
    struct gpt_err err;

    must(gpt_backend_cpu(&be, &err), &err);
    for (size_t i = 0; i < GPT_COUNT(names); i++)
        against_pytorch(names[i]);
    finite_differences(0, GPT_STAGE_GRADIENT);
    finite_differences(0.3, GPT_STAGE_TRAIN);
    microbatches(0);
    microbatches(0.3);
    threads();
    dropout_keys();
    pipeline();
    memory();
    return tap_done();
}
