/* Causal attention, forward and backward, in bf16 with 16384 tokens, beside the
 * library's plain product of 8192 x 8192 x 8192. Only operations of the causal
 * half count: 2 B H T^2 D forward, 2.5 times that backward. The shapes are
 * those of peers.py, whose lines bench.sh prints beside these.
 *
 *     bench_attention [B,T,H,D,P]...   P: dropout */
#include "tests/gpu/bench_case.h"

struct shape {
    int64_t b, t, h, d;
    double p;
};

static const struct shape shapes[] = {
    {16, 1024, 12, 64, 0},  {16, 1024, 25, 64, 0},  {16, 1024, 12, 64, 0.1},
    {4, 4096, 12, 64, 0},   {16, 1024, 16, 128, 0}, {4, 4096, 16, 128, 0},
    {2, 8192, 16, 128, 0},  {8, 2048, 16, 80, 0},   {8, 2048, 16, 96, 0},
};

static struct gpt_attn attn_of(const struct bench_place *p)
{
    const struct shape *s = p->of->shape;

    return (struct gpt_attn){.b = p->rows, .t = s->t, .h = s->h, .g = s->h,
                             .d = s->d, .h_global = s->h,
                             .scale = 1 / sqrtf((float)s->d), .act = p->act,
                             .qkv = p->mem[0], .out = p->mem[1],
                             .lse = p->mem[2],
                             .dropout = {.p = (float)s->p,
                                         .rng = gpt_rng_open(7, "bench"),
                                         .sample0 = p->first}};
}

static void run_forward(const struct bench_place *p)
{
    struct gpt_attn op = attn_of(p);

    p->be->attn_fwd(p->q, &op);
}

static void run_backward(const struct bench_place *p)
{
    struct gpt_attn op = attn_of(p);
    struct gpt_attn_grad grad = {p->mem[3], p->mem[4], p->mem[5]};

    p->be->attn_bwd(p->q, &op, &grad);
}

static int64_t scratch_bytes(const struct shape *s)
{
    struct gpt_attn op = {.b = s->b, .t = s->t, .h = s->h, .g = s->h,
                          .d = s->d, .act = GPT_BF16};
    size_t most = dev->attn_scratch(&op);

    op.act = GPT_F32;
    op.b = 1;
    return (int64_t)(cpu->attn_scratch(&op) > most ? cpu->attn_scratch(&op)
                                                   : most);
}

static void run_shape(const struct shape *s, double floor)
{
    double flop = 2 * (double)(s->b * s->h * s->t * s->t * s->d);
    struct bench_operand qkv = {.kind = ACT, .row = 3 * s->t * s->h * s->d};
    struct bench_operand out = {.kind = ACT, .row = s->t * s->h * s->d};
    struct bench_operand lse = {.kind = F32, .row = s->h * s->t};
    char name[2][64];
    struct bench_case k = {.name = name[0], .unit = "TFLOP/s",
                           .run = run_forward, .rows = s->b,
                           .check = s->t <= 4096, .shape = s, .work = flop,
                           .floor = floor, .ops = {qkv, out, lse}};

    for (int i = 0; i < 2; i++)
        snprintf(name[i], sizeof(name[i]), "%s B%d T%d H%d D%d p%g",
                 i ? "bwd" : "fwd", (int)s->b, (int)s->t, (int)s->h,
                 (int)s->d, s->p);
    k.ops[1].checked = true;
    bench_kernel(&k);
    k.ops[1].checked = false;
    k.name = name[1];
    k.prepare = run_forward;
    k.run = run_backward;
    k.work = 2.5 * flop;
    k.ops[3] = out;
    k.ops[4] = qkv;
    k.ops[4].checked = true;
    k.ops[5] = (struct bench_operand){.kind = RAW, .whole = scratch_bytes(s)};
    bench_kernel(&k);
}

int main(int argc, char **argv)
{
    bench_open();
    double rate = bench_product_rate();
    bench_row("plain 8192 x 8192 x 8192", rate * 1e-12, "TFLOP/s",
              rate * 1e-12, -1);
    for (int i = 1; i < argc; i++) {
        struct shape s;

        if (sscanf(argv[i], "%ld,%ld,%ld,%ld,%lf", &s.b, &s.t, &s.h, &s.d,
                   &s.p) != 5) {
            fprintf(stderr, "usage: bench_attention [B,T,H,D,P]...\n");
            return 2;
        }
        run_shape(&s, rate);
    }
    for (size_t i = 0; argc == 1 && i < GPT_COUNT(shapes); i++) {
        struct shape s = shapes[i];

        s.b = tiny ? 2 : s.b;
        s.t = tiny ? 33 : s.t;
        s.h = tiny ? 2 : s.h;
        run_shape(&s, rate);
    }
    bench_close();
    return 0;
}
