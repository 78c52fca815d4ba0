/* The kernels that are passes over memory, in bf16 with 64 x 1024 tokens of
 * width 768 (4 x 1600 = 6400 for those of the widest layer), beside a copy;
 * those that work row by row also with Llama's width and vocabulary, without
 * dropout. Bytes are the fewest that a pass can move: it reads each input once
 * and writes each output once. */
#include "tests/gpu/bench_case.h"

static int64_t n = 65536, c = 768, wide = 6400, weights = 124000000;
static int64_t v = 50304, logits = 50304; /* rows of a table; of a row */
static float drop_p = 0.1F;
static double copy_rate;

enum { T = 1024 }; /* tokens of a sample, rows compared */

static struct gpt_dropout dropout(const struct bench_place *p)
{
    return (struct gpt_dropout){.p = drop_p, .rng = gpt_rng_open(7, "bench"),
                                .sample0 = p->first / T, .t_local = T,
                                .t_global = T};
}

static struct gpt_norm norm_of(const struct bench_place *p)
{
    void *const *m = p->mem;

    return (struct gpt_norm){.kind = GPT_LAYERNORM, .n = p->rows, .c = c,
                             .eps = 1e-5F, .act = p->act, .resid_in = m[0],
                             .x = m[1], .resid_out = m[2], .y = m[3],
                             .w = m[4], .b = m[5], .mean = m[6], .rstd = m[7],
                             .dropout = dropout(p)};
}

static void run_norm(const struct bench_place *p)
{
    struct gpt_norm op = norm_of(p);

    p->be->norm_fwd(p->q, &op);
}

static void run_norm_bwd(const struct bench_place *p)
{
    struct gpt_norm op = norm_of(p);

    op.resid_out = p->mem[0];
    struct gpt_norm_grad grad = {.dy = p->mem[1], .dresid = p->mem[2],
                                 .dx = p->mem[3], .dw = p->mem[5],
                                 .db = (float *)p->mem[5] + c,
                                 .scratch = p->mem[8]};
    p->be->norm_bwd(p->q, &op, &grad);
}

static void run_bias_grad(const struct bench_place *p)
{
    p->be->bias_grad(p->q, p->mem[1], p->mem[0], p->rows, wide, p->act);
}

static void run_gelu(const struct bench_place *p)
{
    struct gpt_activate op = {.n = p->rows, .f = wide, .act = p->act,
                              .pre = p->mem[0], .out = p->mem[1]};

    p->be->activate(p->q, &op);
}

static void run_dropout(const struct bench_place *p)
{
    struct gpt_dropout d = dropout(p);

    p->be->dropout(p->q, p->mem[1], p->mem[0], p->rows, c, p->act, &d);
}

static struct gpt_embed embed_of(const struct bench_place *p)
{
    void *const *m = p->mem;

    return (struct gpt_embed){.n = p->rows, .c = c, .v_local = v, .t_max = T,
                              .act = p->act, .tokens = m[0],
                              .positions = m[1], .wte = m[2], .wpe = m[3],
                              .out = m[4], .dropout = dropout(p)};
}

static void run_embed(const struct bench_place *p)
{
    struct gpt_embed op = embed_of(p);

    p->be->embed_fwd(p->q, &op);
}

static void run_embed_bwd(const struct bench_place *p)
{
    struct gpt_embed op = embed_of(p);
    const struct gpt_embed_grad grad = {p->mem[5], p->mem[6], p->mem[7],
                                        p->mem[8]};

    p->be->embed_bwd(p->q, &op, &grad);
}

static void run_xent(const struct bench_place *p)
{
    struct gpt_xent op = {.n = p->rows, .v = logits, .v_real = logits - 47,
                          .act = p->act, .logits = p->mem[0],
                          .target = p->mem[1], .weight = p->mem[2],
                          .loss = p->mem[3], .grad = true};

    p->be->xent(p->q, &op);
}

static void run_adamw(const struct bench_place *p)
{
    void *const *m = p->mem;
    struct gpt_adamw op = {.n = p->rows, .p = m[0], .m = m[1], .v = m[2],
                           .g = m[3], .p_act = m[4], .act = p->act, .lr = 1e-3,
                           .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8,
                           .weight_decay = 0.1, .grad_scale = 1, .step = 3,
                           .segments = m[5], .n_segments = 1};

    p->be->adamw(p->q, &op);
}

static void run_sumsq(const struct bench_place *p)
{
    p->be->sumsq(p->q, p->mem[1], p->mem[0], p->rows);
}

static void run_cast(const struct bench_place *p)
{
    p->be->cast(p->q, p->mem[1], p->act, p->mem[0], GPT_F32, p->rows);
}

static void run_zero(const struct bench_place *p)
{
    p->be->zero(p->q, p->mem[0], (size_t)p->rows * 4);
}

/* Latent attention of DeepSeek-V2-Lite's heads. */
enum { HEADS = 16, NOPE = 128, TURNED = 64, VALUE = 128 };

static struct gpt_latent latent_of(const struct bench_place *p)
{
    return (struct gpt_latent){.n = p->rows, .h = HEADS, .nope = NOPE,
                               .turned = TURNED, .value = VALUE,
                               .act = p->act, .q = p->mem[0], .k = p->mem[1],
                               .kv = p->mem[2], .qkv = p->mem[3]};
}

static void run_latent_join(const struct bench_place *p)
{
    struct gpt_latent op = latent_of(p);

    p->be->latent_join(p->q, &op);
}

static void run_latent_split(const struct bench_place *p)
{
    struct gpt_latent op = latent_of(p);
    const struct gpt_latent_grad grad = {p->mem[3], p->mem[0], p->mem[1],
                                         p->mem[2]};

    p->be->latent_split(p->q, &op, &grad);
}

/* Attention's outputs, of which each head is as wide as its query. */
static void run_fit(const struct bench_place *p)
{
    p->be->fit_columns(p->q, p->mem[1], VALUE, p->mem[0], NOPE + TURNED,
                       p->rows * HEADS, p->act);
}

/* The number of different rows of wte that n random tokens use. */
static double words_met(void)
{
    const struct bench_operand tokens = {.kind = I32, .limit = v};
    int32_t *token = bench_image(&tokens, n);
    char *met = calloc((size_t)v, 1);
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        sum += !met[token[i]];
        met[token[i]] = 1;
    }
    free(token);
    free(met);
    return sum;
}

static void run_cases(const struct bench_case *cases, size_t n_cases,
                      const char *suffix)
{
    for (size_t i = 0; i < n_cases; i++) {
        struct bench_case k = cases[i];
        char name[64];

        snprintf(name, sizeof(name), "%s%s", k.name, suffix);
        k.name = name;
        k.unit = "GB/s";
        k.floor = copy_rate;
        bench_kernel(&k);
    }
}

/* Passes whose rows depend on each other's sums, or on tables. */
static void run_rows(const char *suffix)
{
    double block = 2 * (double)(n * c); /* bytes of n rows */
    int64_t few = tiny ? 16 : 64, words = n / 8;
    struct bench_operand act = {.kind = ACT, .row = c}, act_out = act;
    struct bench_operand act_w = {.kind = ACT, .whole = c};
    struct bench_operand stat = {.kind = F32, .row = 1, .positive = true};
    struct bench_operand stat_out = {.kind = F32, .row = 1, .checked = true};
    struct bench_operand token = {.kind = I32, .row = 1, .limit = v};
    struct bench_operand place = {.kind = I32, .row = 1, .limit = T};
    struct bench_operand wte = {.kind = ACT, .whole = v * c};
    struct bench_operand wpe = {.kind = ACT, .whole = T * c};
    struct bench_operand scratch = {
        .kind = RAW, .whole = (int64_t)dev->norm_scratch(n, c)};

    if ((int64_t)cpu->norm_scratch(n, c) > scratch.whole)
        scratch.whole = (int64_t)cpu->norm_scratch(n, c);
    act_out.checked = true;
    const struct bench_case cases[] = {
        {.name = "residual + norm", .run = run_norm, .rows = n, .check = T,
         .work = 4 * block,
         .ops = {act, act, act_out, act_out, act_w, act_w, stat_out,
                 stat_out}},
        {.name = "residual + norm backward", .run = run_norm_bwd, .rows = n,
         .check = T, .work = 5 * block,
         .ops = {act, act, act_out, act_out, act_w,
                 {.kind = F32, .whole = 2 * c}, stat, stat, scratch}},
        {.name = "embedding", .run = run_embed, .rows = n, .check = T,
         .work = block + 2 * words_met() * (double)c + 2 * (double)(T * c),
         .ops = {token, place, wte, wpe, act_out}},
        {.name = "embedding backward", .run = run_embed_bwd, .rows = n,
         .work = block + 8 * (words_met() + T) * (double)c,
         .ops = {token, place, wte, wpe, act, act,
                 {.kind = F32, .whole = v * c}, {.kind = F32, .whole = T * c},
                 {.kind = RAW,
                  .whole = (int64_t)dev->embed_scratch(n, c, true)}}},
        {.name = "cross-entropy + gradient", .run = run_xent, .rows = words,
         .check = few, .work = 4 * (double)(words * logits),
         .ops = {{.kind = ACT, .row = logits, .checked = true},
                 {.kind = I32, .row = 1, .limit = logits - 47}, stat,
                 stat_out}},
    };
    run_cases(cases, GPT_COUNT(cases), suffix);
}

static void run_flat(void)
{
    static const struct gpt_decay_segment decayed = {0, true};
    double block = 2 * (double)(n * c), broad = 2 * (double)(n * wide);
    double all = (double)weights;
    int64_t few = tiny ? 16 : 64;
    struct bench_operand act = {.kind = ACT, .row = c}, act_out = act;
    struct bench_operand stat_out = {.kind = F32, .row = 1, .checked = true};
    struct bench_operand broad_in = {.kind = ACT, .row = wide};
    struct bench_operand broad_out = broad_in, one = {.kind = F32, .row = 1};

    act_out.checked = broad_out.checked = true;
    const struct bench_case cases[] = {
        {.name = "dropout", .run = run_dropout, .rows = n, .check = T,
         .work = 2 * block, .ops = {act, act_out}},
        {.name = "bias gradient", .run = run_bias_grad, .rows = n,
         .work = broad,
         .ops = {broad_in, {.kind = F32, .whole = wide}}},
        {.name = "gelu", .run = run_gelu, .rows = n, .check = few,
         .work = 2 * broad, .ops = {broad_in, broad_out}},
        {.name = "AdamW", .run = run_adamw, .rows = weights, .check = T,
         .work = 30 * all,
         .ops = {stat_out, stat_out,
                 {.kind = F32, .row = 1, .positive = true, .checked = true},
                 one, {.kind = ACT, .row = 1, .checked = true},
                 {.kind = RAW, .whole = sizeof(decayed), .given = &decayed}}},
        {.name = "gradient norm", .run = run_sumsq, .rows = weights,
         .work = 4 * all, .ops = {one, {.kind = RAW, .whole = 8}}},
        {.name = "cast to bf16", .run = run_cast, .rows = weights, .check = T,
         .work = 6 * all,
         .ops = {one, {.kind = ACT, .row = 1, .checked = true}}},
        {.name = "zero", .run = run_zero, .rows = weights, .work = 4 * all,
         .ops = {one}},
    };
    run_cases(cases, GPT_COUNT(cases), "");
}

static void run_latent(void)
{
    const int64_t rows = tiny ? 16 : n / 4, d = NOPE + TURNED;
    const int64_t few = tiny ? 16 : T;
    const int64_t parts = HEADS * (d + NOPE + VALUE) + TURNED;
    struct bench_operand q = {.kind = ACT, .row = HEADS * d}, q_out = q;
    struct bench_operand k = {.kind = ACT, .row = TURNED}, k_out = k;
    struct bench_operand kv = {.kind = ACT, .row = HEADS * (NOPE + VALUE)};
    struct bench_operand qkv = {.kind = ACT, .row = 3 * HEADS * d};
    struct bench_operand kv_out = kv, qkv_out = qkv;
    struct bench_operand out = {.kind = ACT, .row = HEADS * VALUE,
                                .checked = true};

    q_out.checked = k_out.checked = kv_out.checked = qkv_out.checked = true;
    const struct bench_case cases[] = {
        {.name = "latent q, k, v joined", .run = run_latent_join, .rows = rows,
         .check = few, .work = 2 * (double)(rows * (parts + 3 * HEADS * d)),
         .ops = {q, k, kv, qkv_out}},
        {.name = "latent q, k, v split", .run = run_latent_split, .rows = rows,
         .check = few, .work = 4 * (double)(rows * parts) +
                             2 * (double)(rows * TURNED * (HEADS - 1)),
         .ops = {q_out, k_out, kv_out, qkv}},
        {.name = "heads cut to values", .run = run_fit, .rows = rows,
         .check = few, .work = 4 * (double)(rows * HEADS * VALUE),
         .ops = {q, out}},
    };
    run_cases(cases, GPT_COUNT(cases), "");
}

int main(void)
{
    bench_open();
    if (tiny) {
        n = 2 * T;
        c = 24;
        wide = 40;
        v = logits = 300;
        weights = 5000;
    }
    copy_rate = bench_copy_rate();
    bench_row("copy", copy_rate * 1e-9, "GB/s", copy_rate * 1e-9, -1);
    run_rows("");
    run_flat();
    run_latent();
    if (!tiny) {
        n /= 4;
        c = 4096;
        v = 32000;
        logits = 128256;
    }
    drop_p = 0;
    run_rows(", Llama's");
    bench_close();
    return 0;
}
