/* The cases of test_cuda.c for latent attention: queries, keys and values as
 * attention takes them, their gradients, and rows of fewer or more columns. */
#ifndef GPT_TESTS_DEVICE_LATENT_H
#define GPT_TESTS_DEVICE_LATENT_H

#include "tests/unit/device.h"

static void run_latent(struct trial *t)
{
    struct gpt_latent op = *(const struct gpt_latent *)t->params;
    const struct gpt_latent_grad grad = {t->mem[4], t->mem[5], t->mem[6],
                                         t->mem[7]};

    op.act = t->act;
    op.q = t->mem[0];
    op.k = t->mem[1];
    op.kv = t->mem[2];
    op.qkv = t->mem[3];
    t->be->latent_join(t->q, &op);
    t->be->latent_split(t->q, &op, &grad);
}

static void check_latent(int64_t n, int64_t h, int64_t nope, int64_t turned,
                         int64_t value)
{
    const struct gpt_latent op = {.n = n, .h = h, .nope = nope,
                                  .turned = turned, .value = value};
    const int64_t d = nope + turned, heads = n * h;
    const int64_t q = heads * d, k = n * turned, kv = heads * (nope + value);
    float *x = rnd_floats(q + k + kv, 1), *dqkv = rnd_floats(3 * q, 1);

    for (int64_t i = 0; i < 3 * q; i++) /* what is behind values is not read */
        if (i % (3 * d) >= 2 * d + value)
            dqkv[i] = NAN;
    const struct operand ops[] = {{"q", ACT, q, x, false, 0},
                                  {"k", ACT, k, x + q, false, 0},
                                  {"kv", ACT, kv, x + q + k, false, 0},
                                  {"qkv", ACT, 3 * q, NULL, true, 0},
                                  {"dqkv", ACT, 3 * q, dqkv, false, 0},
                                  {"dq", ACT, q, NULL, true, 0},
                                  {"dk", ACT, k, NULL, true, 0},
                                  {"dkv", ACT, kv, NULL, true, 0}};

    compare(run_latent, &op, ops, GPT_COUNT(ops),
            "latent %lld tokens, %lld heads of %lld + %lld, %lld",
            (long long)n, (long long)h, (long long)nope, (long long)turned,
            (long long)value);
    free(x), free(dqkv);
}

struct fit_case {
    int64_t to, from, n;
};

static void run_fit(struct trial *t)
{
    const struct fit_case *k = t->params;

    t->be->fit_columns(t->q, t->mem[1], k->to, t->mem[0], k->from, k->n,
                       t->act);
}

static void check_fit(int64_t to, int64_t from, int64_t n)
{
    const struct fit_case k = {to, from, n};
    float *x = rnd_floats(n * from, 1);
    const struct operand ops[] = {{"x", ACT, n * from, x, false, 0},
                                  {"y", ACT, n * to, NULL, true, 0}};

    compare(run_fit, &k, ops, GPT_COUNT(ops), "%lld rows of %lld as %lld",
            (long long)n, (long long)from, (long long)to);
    free(x);
}

#endif
