/* Each optimizer against PyTorch in float64 (tests/golden/make_optimizers.py):
 * parameters after five updates of a small model. In bf16 the weights are the
 * parameters, rounded. What an optimizer keeps, and the memory that it says. */
#include "tests/lib/must.h"
#include "tests/lib/tap.h"

#include "base/memory.h"
#include "train/noise.h"
#include "train/optimizer.h"

#include <math.h>

enum { STEPS = 5 };

static struct gpt_backend *be;
static struct gpt_queue *q;
static struct gpt_param_table table;
static struct gpt_flat flat;

static const struct gpt_config model = {
    .num_layers = 1,
    .hidden_size = 12,
    .num_attention_heads = 4,
    .num_query_groups = 2,
    .ffn_hidden_size = 20,
    .max_positions = 8,
    .vocab_size = 10,
    .init_std = 0.02,
    .norm_epsilon = 1e-5,
    .tied_embeddings = true,
    .gated = true,
};

#define ADAM .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-4, .clip_grad = 1
#define MUON .kind = GPT_MUON, ADAM, .momentum = 0.9

static const struct trial {
    const char *name;
    struct gpt_optimizer_options o;
    double tolerance;
} trials[] = {
    {"adamw", {.kind = GPT_ADAM, ADAM}, 1e-6},
    {"adam", {.kind = GPT_ADAM, ADAM, .coupled = true}, 1e-6},
    {"sgd", {.kind = GPT_SGD, .momentum = 0.9, .clip_grad = 1}, 1e-6},
    {"descent", {.kind = GPT_SGD, .clip_grad = 1}, 1e-6},
    {"muon",
     {MUON, .muon = {.split_qkv = true, .steps = 5,
                     .coefficients = GPT_MUON_QUINTIC, .extra_scale = 1}},
     1e-5},
    {"muon nesterov",
     {.kind = GPT_MUON, ADAM, .momentum = 0.95,
      .muon = {.nesterov = true, .steps = 5,
               .coefficients = GPT_MUON_SIMPLE,
               .scale = GPT_MUON_SHAPE_SCALING, .extra_scale = 1}},
     1e-5},
    {"muon coupled",
     {MUON, .coupled = true,
      .muon = {.nesterov = true, .split_qkv = true, .steps = 3,
               .coefficients = GPT_MUON_POLAR_EXPRESS,
               .scale = GPT_MUON_UNIT_RMS_NORM, .extra_scale = 0.2}},
     1e-5},
};

static uint32_t mix(uint32_t x)
{
    x = (x ^ x >> 16) * 0x7FEB352DU;
    x = (x ^ x >> 15) * 0x846CA68BU;
    return x ^ x >> 16;
}

/* As value() of make_model.py. */
static void fill(float *x, int64_t n, int64_t number)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = ((float)(mix((uint32_t)(i + number * 1000003)) >> 16) - 32768) /
               65536;
}

static void fill_all(float *buffer, int64_t number)
{
    for (int64_t i = 0; i < flat.n; i++)
        fill(buffer + flat.slices[i].offset, flat.slices[i].count, number + i);
}

static void open_model(void)
{
    struct gpt_config c = model;
    struct gpt_layout layout;
    struct gpt_err err;

    must(gpt_backend_cpu(&be, &err), &err);
    must(be->queue_open(be, &q, &err), &err);
    must(gpt_config_complete(&c, 1, 1, &err), &err);
    layout = GPT_LAYOUT_SINGLE(&c);
    must(gpt_params_build(&table, &c, &err), &err);
    must(gpt_flat_build(&flat, &table, &layout, &err), &err);
}

/* Largest difference to the golden, relative to the largest parameter. */
static double compare(FILE *golden, const float *p)
{
    double worst = 0, top = 0;

    for (int64_t i = 0; i < flat.n; i++)
        for (int64_t j = 0; j < flat.slices[i].count; j++) {
            float want;

            if (fread(&want, sizeof(want), 1, golden) != 1)
                return (double)INFINITY;
            worst = fmax(worst, fabs((double)p[flat.slices[i].offset + j] -
                                     (double)want));
            top = fmax(top, fabs((double)want));
        }
    return worst / top;
}

/* Five updates of `p`, in place; weights: their copy in bf16, or NULL. */
static void update_at(const struct gpt_optimizer_options *options, float *p,
                      void *weights, double lr, double decoupled_lr)
{
    const size_t bytes = (size_t)flat.elements * sizeof(float);
    struct gpt_optimizer *o;
    struct gpt_err err = {0};
    float *g = calloc(1, bytes);

    memset(p, 0, bytes);
    fill_all(p, 0);
    must(gpt_optimizer_open(&o, be, q, &flat, 0, options, &err), &err);
    for (int i = 0; i < STEPS; i++) {
        double squares;

        fill_all(g, 100 + 50 * i);
        must(gpt_optimizer_squares(o, q, &g, &squares, &err), &err);
        const struct gpt_update u = {
            .params = p,
            .compact = true, /* all is one shard */
            .weights = weights,
            .act = weights ? GPT_BF16 : GPT_F32,
            .gradients = &g,
            .loss_scale = 1,
            .norm = sqrt(squares),
            .rates = {lr, 0.1, decoupled_lr > 0, decoupled_lr},
        };
        gpt_optimizer_update(o, q, &u);
        must(be->sync(q, &err), &err);
    }
    gpt_optimizer_close(o);
    free(g);
}

static void update(const struct trial *t, float *p, void *weights)
{
    update_at(&t->o, p, weights, 0.02, 0);
}

/* Word embedding and output layer with a rate of their own are what they are
 * where all have that rate, and the others what they are without. */
static void check_decoupled(const struct trial *t)
{
    const size_t bytes = (size_t)flat.elements * sizeof(float);
    float *both = malloc(bytes), *slow = malloc(bytes), *fast = malloc(bytes);
    bool same = true, differs = false;

    update(t, slow, NULL);
    update_at(&t->o, fast, NULL, 0.05, 0);
    update_at(&t->o, both, NULL, 0.02, 0.05);
    for (int64_t i = 0; i < flat.n; i++) {
        const struct gpt_slice *s = &flat.slices[i];
        const bool ends = strstr(s->param->name, "word_embeddings") ||
                          strstr(s->param->name, "output_layer");
        const size_t n = (size_t)s->count * sizeof(float);

        same = same && memcmp(both + s->offset,
                              (ends ? fast : slow) + s->offset, n) == 0;
        differs = differs || (ends && memcmp(both + s->offset,
                                             slow + s->offset, n) != 0);
    }
    ok(same && differs, "%s: word embedding at a rate of its own", t->name);
    free(both), free(slow), free(fast);
}

static void check_golden(const struct trial *t, FILE *golden)
{
    float *p = malloc((size_t)flat.elements * sizeof(*p));
    uint16_t *weights = calloc((size_t)flat.elements, sizeof(*weights));
    char line[80];
    int64_t wrong = 0;

    if (!fgets(line, sizeof(line), golden))
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    ok(strcmp(line, t->name) == 0, "golden of %s", t->name);
    update(t, p, weights);
    const double difference = compare(golden, p);
    ok(difference <= t->tolerance, "%s: parameters as PyTorch's, %.2g", t->name,
       difference);
    for (int64_t i = 0; i < flat.n; i++)
        for (int64_t j = 0; j < flat.slices[i].count; j++) {
            uint16_t want;

            gpt_convert(&want, GPT_BF16, p + flat.slices[i].offset + j, GPT_F32,
                        1);
            wrong += want != weights[flat.slices[i].offset + j];
        }
    is_int(wrong, 0, "%s: weights are the parameters in bf16", t->name);
    free(p), free(weights);
}

/* Which kinds of state there are, of all parameters and of a matrix. */
static void check_states(void)
{
    static const struct {
        int trial;
        bool avg, square, momentum; /* of any parameter */
        bool matrix_square, matrix_momentum;
    } want[] = {
        {0, true, true, false, true, false},
        {2, false, false, true, false, true},
        {3, false, false, false, false, false},
        {4, true, true, true, false, true},
    };
    const struct gpt_param *qkv = gpt_params_find(
        &table, "decoder.layers.0.self_attention.linear_qkv.weight");

    for (size_t i = 0; i < GPT_COUNT(want); i++) {
        const struct gpt_optimizer_options *o = &trials[want[i].trial].o;

        ok(gpt_optimizer_has(o, GPT_KIND_EXP_AVG, &flat) == want[i].avg &&
               gpt_optimizer_has(o, GPT_KIND_EXP_AVG_SQ, &flat) ==
                   want[i].square &&
               gpt_optimizer_has(o, GPT_KIND_MOMENTUM, &flat) ==
                   want[i].momentum &&
               gpt_optimizer_keeps(o, GPT_KIND_EXP_AVG_SQ, qkv) ==
                   want[i].matrix_square &&
               gpt_optimizer_keeps(o, GPT_KIND_MOMENTUM, qkv) ==
                   want[i].matrix_momentum,
           "states of %s", trials[want[i].trial].name);
    }
    ok(gpt_optimizer_memory(&trials[3].o, &flat) <
               gpt_optimizer_memory(&trials[2].o, &flat) &&
           gpt_optimizer_memory(&trials[2].o, &flat) <
               gpt_optimizer_memory(&trials[0].o, &flat),
       "descent takes the least memory, momentum less than AdamW");
}

/* Gradients of |G|^2 = 4 and noise of tr(S) = 12: means over n samples have
 * squares of 4 + 12 / n. */
static void check_noise_scale(void)
{
    is_near(gpt_noise_scale(10, 6, 2, 6), 3, 1e-12, 0, "a noise scale");
    is_near(gpt_noise_scale(10 * 5, 6 * 5, 2, 6), 3, 1e-12, 0,
            "of sums over five steps");
    ok(isnan(gpt_noise_scale(12, 2, 2, 6)), "none where noise is all there is");
}

/* Boxes of a kind do not overlap in its buffer, and lie within it. */
static void check_boxes(void)
{
    const struct gpt_optimizer_options *o = &trials[4].o; /* muon */
    struct gpt_ownership boxes;
    struct gpt_err err = {0};
    int64_t at = 0, elements = 0;
    bool ordered = true;

    must(gpt_ownership_build(&boxes, &flat, true, NULL, &err), &err);
    must(gpt_optimizer_select(o, &flat, GPT_KIND_EXP_AVG_SQ, &boxes, &err),
         &err);
    for (size_t i = 0; i < boxes.n; i++) {
        ordered = ordered && boxes.items[i].at >= at &&
                  !gpt_muon_updates(boxes.items[i].slice->param);
        at = boxes.items[i].at + boxes.items[i].count;
        elements += boxes.items[i].count;
    }
    ok(ordered && boxes.n > 0, "places of second states ascend");
    is_int(boxes.elements, elements, "and their elements are counted");
    gpt_ownership_free(&boxes);
}

/* Shards cut parameters anywhere: the boxes of all of them are each element
 * once, in the order of the elements. */
static void check_cuts(void)
{
    enum { SHARDS = 3 };
    struct gpt_layout layout = GPT_LAYOUT_SINGLE(&model);
    uint8_t *seen = calloc((size_t)flat.elements, 1);
    struct gpt_err err = {0};
    int64_t wrong = seen ? 0 : 1, elements = 0;

    layout.shards = SHARDS;
    for (; seen && layout.shard < SHARDS; layout.shard++) {
        struct gpt_ownership boxes;
        struct gpt_flat part;
        int64_t at = 0;

        must(gpt_flat_build(&part, &table, &layout, &err), &err);
        must(gpt_ownership_build(&boxes, &part, true, NULL, &err), &err);
        for (size_t i = 0; i < boxes.n; i++) {
            const struct gpt_owned_box *b = &boxes.items[i];
            const struct gpt_slice *s =
                &flat.slices[b->slice - part.slices];
            const int64_t width = s->shape[1];
            const int64_t first = b->begin[0] * width + b->begin[1];

            wrong += b->at < at || b->begin[1] + b->shape[1] > width ||
                     first + b->count > s->count ||
                     (b->shape[0] > 1 && b->shape[1] != width);
            at = b->at + b->count;
            for (int64_t k = first; k < first + b->count && !wrong; k++)
                wrong += seen[s->offset + k]++;
        }
        elements += boxes.elements;
        gpt_ownership_free(&boxes);
        gpt_flat_free(&part);
    }
    for (int64_t i = 0; i < flat.n; i++)
        elements -= flat.slices[i].count;
    ok(wrong == 0 && elements == 0, "shards own each element once");
    free(seen);
}

int main(void)
{
    FILE *golden = fopen("tests/golden/optimizers.golden", "rb");

    open_model();
    if (!golden)
        return 1;
    for (size_t i = 0; i < GPT_COUNT(trials); i++)
        check_golden(&trials[i], golden);
    fclose(golden);
    for (size_t i = 0; i < GPT_COUNT(trials); i++)
        check_decoupled(&trials[i]);
    check_states();
    check_noise_scale();
    check_boxes();
    check_cuts();
    be->queue_close(q);
    gpt_flat_free(&flat);
    gpt_params_free(&table);
    return tap_done();
}
