/* Recomputation gives the same bits as keeping everything, and needs the
 * expected memory. */
#include "tests/unit/model_rig.h"

/* ---- recomputation on one rank: the same bits ---- */

static void recomputation(enum gpt_dtype act, enum variant variant)
{
    static const struct {
        enum gpt_recompute recompute;
        int64_t layers;
    } modes[] = {
        {GPT_RECOMPUTE_SELECTIVE, 0}, {GPT_RECOMPUTE_UNIFORM, 1},
        {GPT_RECOMPUTE_UNIFORM, 3},   {GPT_RECOMPUTE_UNIFORM, 9},
        {GPT_RECOMPUTE_BLOCK, 1},     {GPT_RECOMPUTE_BLOCK, 9},
    };
    struct gpt_config c = config(true, 4);
    static struct batch x, want;
    struct rig r, whole;
    struct gpt_stage_options o = {
        .layout = GPT_LAYOUT_SINGLE(&c),
        .exec.micro_batch = 2,
        .exec.seq_length = 9,
        .exec.act = act,
    };

    make_variant(&c, variant);
    batch_open(&x, 2, 9, c.padded_vocab_size);
    batch_open(&want, 2, 9, c.padded_vocab_size);
    rig_open(&whole, &c, o, false);
    run(&whole, &want, c.padded_vocab_size);
    for (size_t i = 0; i < GPT_COUNT(modes); i++) {
        o.exec.recompute = modes[i].recompute;
        o.exec.recompute_layers = modes[i].layers;
        rig_open(&r, &c, o, false);
        run(&r, &x, c.padded_vocab_size);
        ok(same_bits(&r, &x, &whole, &want), "%s, %s: recompute %s %lld: "
           "same bits", gpt_dtype_name(act), variant_names[variant],
           recompute_names[modes[i].recompute],
           (long long)modes[i].layers);
        rig_close(&r);
    }
    rig_close(&whole);
    gpt_free(x.logits);
    gpt_free(want.logits);
}

/* ---- memory: as predicted, and less of it ---- */

static int64_t allocated;
static struct gpt_backend *real;

static int counting_alloc(struct gpt_backend *b, size_t bytes, const char *what,
                          void **mem, struct gpt_err *err)
{
    (void)b;
    allocated += (int64_t)bytes;
    return real->alloc(real, bytes, what, mem, err);
}

/* Bytes of activations; what is opened is also as large as predicted. */
static int64_t activations(struct gpt_stage_options o,
                           const struct gpt_config *c)
{
    struct gpt_backend counting = *be;
    struct gpt_param_table table;
    struct gpt_flat flat;
    struct gpt_memory memory = {.bytes = {0}};
    struct gpt_stage *s;
    struct gpt_err err;
    int64_t predicted = 0;

    o.config = c;
    o.flat = &flat;
    o.training = true;
    real = be;
    counting.alloc = counting_alloc;
    must(gpt_params_build(&table, c, &err), &err);
    must(gpt_flat_build(&flat, &table, &o.layout, &err), &err);
    must(gpt_stage_memory(&memory, &counting, &o, &err), &err);
    for (int i = 0; i < GPT_N_MEMORY_KINDS; i++)
        predicted += memory.bytes[i];
    if (o.layout.size[GPT_TP] == 1) {
        float w = 0;

        allocated = 0;
        must(gpt_stage_open(&s, &counting, &o, &w, NULL, &err), &err);
        gpt_stage_close(s);
        is_int(allocated, predicted, "memory as predicted");
    }
    gpt_flat_free(&flat);
    gpt_params_free(&table);
    return memory.bytes[GPT_MEM_ACTIVATIONS];
}

/* In blocks of (rows, C) bf16: r, y, 3 of qkv, att, r, y, 4 of pre, 4 of gelu;
 * masks are computed again. */
static void memory(void)
{
    enum { LAYERS = 8, T = 512, C = 256, H = 4 };
    struct gpt_config c = gpt_config_default();
    struct gpt_err err;
    struct gpt_stage_options o = {
        .exec = {.micro_batch = 2, .seq_length = T, .act = GPT_BF16},
        .slots = {3},
    };
    const int64_t n = 2 * T, slots = 3;
    const int64_t stats = 4 * 4 * n; /* mean and rstd of two norms */

    c.num_layers = LAYERS;
    c.hidden_size = C;
    c.num_attention_heads = c.num_query_groups = H;
    c.head_size = C / H;
    c.ffn_hidden_size = 4 * C;
    must(gpt_config_complete(&c, 128, 1, &err), &err);
    o.layout = GPT_LAYOUT_SINGLE(&c);
    o.layout.has_embedding = o.layout.has_output = false;
    is_int(activations(o, &c),
           slots * LAYERS * (16 * 2 * n * C + stats + 4 * n * H),
           "no recomputation: 16 blocks a layer");
    o.exec.recompute = GPT_RECOMPUTE_SELECTIVE;
    is_int(activations(o, &c),
           slots * LAYERS * (9 * 2 * n * C + stats), "selective: 9");
    o.exec.recompute = GPT_RECOMPUTE_UNIFORM;
    o.exec.recompute_layers = 3;
    is_int(activations(o, &c), slots * 3 * 2 * n * C,
           "uniform: 1 a group");
    o.exec.recompute = GPT_RECOMPUTE_BLOCK;
    is_int(activations(o, &c),
           slots * (3 * 2 * n * C +
                    5 * (16 * 2 * n * C + stats + 4 * n * H)),
           "block: 1 for the first layers");
    o.exec.recompute = GPT_RECOMPUTE_NONE;
    o.layout.size[GPT_TP] = 4;
    o.exec.sequence_parallel = true;
    is_int(activations(o, &c),
           slots * LAYERS * (16 * 2 * n * C + stats + 4 * n * H) / 4,
           "sequence parallelism: a fourth");
    o.exec.sequence_parallel = false;
    is_int(activations(o, &c),
           slots * LAYERS * ((4 + 12 / 4) * 2 * n * C + stats + n * H),
           "tensor parallelism alone: what is between norms stays whole");
}

/* Variants keep other blocks: norms and rotations of heads in a second qkv,
 * nothing of a norm that is not there. */
static void variants(void)
{
    enum { T = 64, N = 2 * T, LAYERS = 4, C = 24, HEADS = 16 * 4, F = 40 };
    static const struct {
        enum variant variant;
        int64_t width; /* elements a row of a layer */
        int64_t norms;
    } cases[] = {
        {GPT2, 4 * C + HEADS + 8 * 4 + 2 * F, 2},
        {LLAMA, 4 * C + 2 * HEADS + 8 * 4 + 3 * F, 2},
        {NEOX, 3 * C + HEADS + 8 * 4 + 2 * F, 2},
        {FALCON, 2 * C + 2 * HEADS + 8 * 4 + 2 * F, 1},
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        struct gpt_config c = config(true, 4);
        struct gpt_stage_options o = {
            .exec = {.micro_batch = 2, .seq_length = T, .act = GPT_BF16},
            .slots = {1},
            .layout = GPT_LAYOUT_SINGLE(&c),
        };

        make_variant(&c, cases[i].variant);
        o.layout.has_embedding = o.layout.has_output = false;
        is_int(activations(o, &c),
               LAYERS * N * (2 * cases[i].width + 8 * cases[i].norms + 4 * 8),
               "%s: what a layer keeps", variant_names[cases[i].variant]);
        o.exec.recompute = GPT_RECOMPUTE_SELECTIVE;
        activations(o, &c);
    }
}

/* A stage that is not for training keeps one layer, and gives the same
 * losses. */
static void evaluation_only(void)
{
    struct gpt_config c = config(true, 4);
    static struct batch x, want;
    struct rig whole;
    struct gpt_stage_options o = {
        .config = &c,
        .layout = GPT_LAYOUT_SINGLE(&c),
        .exec = {.micro_batch = 2,
                 .seq_length = 9,
                 .documents = true,
                 .act = GPT_F32},
        .slots = {1},
    };
    struct gpt_stage *trains, *s;
    struct gpt_memory more = {.bytes = {0}}, less = {.bytes = {0}};
    struct gpt_err err;

    batch_open(&x, 2, 9, c.padded_vocab_size);
    batch_open(&want, 2, 9, c.padded_vocab_size);
    rig_open(&whole, &c, o, false);
    evaluate(&whole, &want);
    o.flat = &whole.flat;
    must(gpt_stage_open(&s, be, &o, whole.w, NULL, &err), &err);
    must(gpt_stage_memory(&less, be, &o, &err), &err);
    o.training = true;
    must(gpt_stage_memory(&more, be, &o, &err), &err);
    trains = whole.stage;
    whole.stage = s;
    evaluate(&whole, &x);
    whole.stage = trains;
    gpt_stage_close(s);
    ok(memcmp(x.loss, want.loss, sizeof(x.loss)) == 0 &&
           less.bytes[GPT_MEM_ACTIVATIONS] * 4 <
               more.bytes[GPT_MEM_ACTIVATIONS],
       "evaluation alone: same losses, less memory");
    rig_close(&whole);
    gpt_free(x.logits);
    gpt_free(want.logits);
}

static void refusals(void)
{
    struct gpt_config c = config(true, 8);
    struct gpt_memory memory_of;
    struct gpt_err err;
    struct gpt_stage_options o = {
        .config = &c,
        .layout = gpt_layout_even(&c, 4, 0, 1, 0),
        .exec.micro_batch = 1,
        .exec.seq_length = 10,
        .slots = {1},
        .training = true,
    };

    o.exec.sequence_parallel = true;
    is_int(gpt_stage_memory(&memory_of, be, &o, &err), GPT_EUSAGE, "%s",
           err.text);
    o.exec.sequence_parallel = false;
    o.exec.recompute = GPT_RECOMPUTE_BLOCK;
    is_int(gpt_stage_memory(&memory_of, be, &o, &err), GPT_EUSAGE, "%s",
           err.text);
}

int main(void)
{
    struct gpt_err err;

    must(gpt_backend_cpu(&be, &err), &err);
    for (int v = 0; v < N_VARIANTS; v++) {
        recomputation(GPT_F32, (enum variant)v);
        recomputation(GPT_BF16, (enum variant)v);
    }
    variants();
    memory();
    evaluation_only();
    refusals();
    return tap_done();
}
