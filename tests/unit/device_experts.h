/* The cases of test_cuda.c for a feed-forward of experts: the router and its
 * backward, rows of the experts here, their products and gradients. Each case
 * routes first, as lists are what the other operations read. Start at
 * check_experts(). */
#ifndef GPT_TESTS_DEVICE_EXPERTS_H
#define GPT_TESTS_DEVICE_EXPERTS_H

#include "tests/unit/device.h"

enum { ROUTED = 7 }; /* operands of the router; those of the case follow */

struct experts_case {
    int64_t n, e, k, first, count;
    bool sigmoid, whole, bias;
    int64_t rows, columns; /* of a matrix, or of rows */
    bool tb, add;
};

/* The router's groups, in the cases that follow; 0: none. */
static int64_t groups, group_topk, group_best;

/* The router's operands, of which `logits` is the caller's. */
static void route_operands(struct operand *ops, const struct experts_case *k,
                           const float *logits, const float *bias)
{
    const int64_t pairs = k->n * k->k;
    const struct operand routed[ROUTED] = {
        {"logits", F32, k->n * k->e, logits, false, 0},
        {"bias", ACT, k->e, bias, false, 0},
        {"weight", F32, pairs, NULL, true, 0},
        {"expert", I32, pairs, NULL, true, 0},
        {"begin", I32, k->e + 1, NULL, true, 0},
        {"source", I32, pairs, NULL, true, 0},
        {"place", I32, pairs, NULL, true, 0}};

    memcpy(ops, routed, sizeof(routed));
}

static struct gpt_router route_of(const struct trial *t)
{
    const struct experts_case *k = t->params;

    return (struct gpt_router){
        .n = k->n, .e = k->e, .k = k->k, .groups = groups,
        .group_topk = group_topk, .group_best = group_best,
        .sigmoid = k->sigmoid,
        .whole = k->whole, .scaling = k->bias ? 2.5F : 1, .act = t->act,
        .logits = t->mem[0], .bias = k->bias ? t->mem[1] : NULL,
        .weight = t->mem[2], .expert = t->mem[3], .begin = t->mem[4],
        .source = t->mem[5], .place = t->mem[6]};
}

static struct gpt_expert_rows experts_rows(const struct trial *t)
{
    const struct experts_case *k = t->params;
    const struct gpt_router r = route_of(t);

    return (struct gpt_expert_rows){
        .n = k->n, .k = k->k, .first = k->first, .count = k->count,
        .act = t->act, .begin = r.begin,
        .source = r.source, .place = r.place, .weight = r.weight};
}

static void run_router(struct trial *t)
{
    const struct experts_case *k = t->params;
    const struct gpt_router op = route_of(t);
    const struct gpt_router_grad grad = {
        .dweight = t->mem[7], .dlogits = t->mem[8],
        .aux = k->n % 3 ? 0.7F : 0, .z = k->n % 3 ? 0.2F : 0,
        .weights = t->mem[11], .scale = k->n % 2 ? t->mem[10] : NULL,
        .losses = t->mem[9], .counts = k->bias ? t->mem[12] : NULL};
    const struct gpt_balance step = {
        .n = k->e, .p = t->mem[13], .counts = t->mem[12],
        .p_act = t->mem[14], .act = t->act,
        .mean = (double)(k->n * k->k) / (double)k->e, .rate = 0.125};

    t->be->route(t->q, &op);
    t->be->route_bwd(t->q, &op, &grad);
    t->be->balance(t->q, &step);
}

static void check_router(const struct experts_case *k, const float *logits,
                         const float *bias)
{
    static const float losses[2] = {0.5F, -1}, scale = 8;
    float *dweight = rnd_floats(k->n * k->k, 1);
    float *weights = rnd_floats(k->n, 1);
    float *counts = calloc((size_t)k->e, sizeof(*counts));
    struct operand ops[ROUTED + 8];

    route_operands(ops, k, logits, bias);
    ops[7] = (struct operand){"dweight", F32, k->n * k->k, dweight, false, 0};
    ops[8] = (struct operand){"dlogits", ACT, k->n * k->e, NULL, true, 0};
    ops[9] = (struct operand){"losses", F32, 2, losses, true, 0};
    ops[10] = (struct operand){"scale", F32, 1, &scale, false, 0};
    ops[11] = (struct operand){"weights", F32, k->n, weights, false, 0};
    ops[12] = (struct operand){"counts", F32, k->e, counts, true, 0};
    ops[13] = (struct operand){"p", F32, k->e, bias, true, 0};
    ops[14] = (struct operand){"copy", ACT, k->e, NULL, true, 0};
    compare(run_router, k, ops, GPT_COUNT(ops),
            "router of %lld tokens, %lld of %lld experts, %lld of %lld "
            "groups by %lld%s%s%s",
            (long long)k->n, (long long)k->k, (long long)k->e,
            (long long)group_topk, (long long)groups, (long long)group_best,
            k->sigmoid ? " sigmoid" : "", k->whole ? " whole" : "",
            k->bias ? " bias" : "");
    free(dweight), free(weights), free(counts);
}

static void run_expert_rows(struct trial *t)
{
    const struct experts_case *k = t->params;
    const struct gpt_router op = route_of(t);
    const struct gpt_expert_rows rows = experts_rows(t);

    t->be->route(t->q, &op);
    t->be->expert_pick(t->q, &rows, t->mem[7], t->mem[8], k->columns);
    t->be->expert_sum(t->q, &rows, t->mem[8], t->mem[9], k->columns, k->tb,
                      k->add);
    t->be->expert_weigh(t->q, &rows, t->mem[10], t->mem[11], k->columns,
                        t->mem[12]);
}

static void check_expert_rows(const struct experts_case *k,
                              const float *logits, const float *bias)
{
    const int64_t tokens = k->n * k->columns, all = tokens * k->k;
    float *x = rnd_floats(tokens, 1), *y = rnd_floats(tokens, 1);
    float *h = rnd_floats(all, 1), *dh = rnd_floats(all, 1);
    struct operand ops[ROUTED + 6];

    route_operands(ops, k, logits, bias);
    ops[7] = (struct operand){"x", ACT, tokens, x, false, 0};
    ops[8] = (struct operand){"picked", ACT, all, NULL, true, 0};
    ops[9] = (struct operand){"y", ACT, tokens, k->add ? y : NULL, true, 0};
    ops[10] = (struct operand){"h", ACT, all, h, true, 0};
    ops[11] = (struct operand){"dh", ACT, all, dh, true, 0};
    ops[12] = (struct operand){"dweight", F32, k->n * k->k, NULL, true, 0};
    compare(run_expert_rows, k, ops, GPT_COUNT(ops),
            "%lld experts' rows of %lld, from %lld", (long long)k->count,
            (long long)k->columns, (long long)k->first);
    free(x), free(y), free(h), free(dh);
}

static void run_expert_product(struct trial *t)
{
    const struct experts_case *k = t->params;
    const struct gpt_router op = route_of(t);
    const struct gpt_expert_rows rows = experts_rows(t);
    const struct gpt_expert_matmul product = {
        .rows = &rows, .n = k->columns, .k = k->rows, .tb = k->tb,
        .a = t->mem[7], .b = t->mem[8], .c = t->mem[9]};

    t->be->route(t->q, &op);
    t->be->expert_matmul(t->q, &product);
}

static void run_expert_gradient(struct trial *t)
{
    const struct experts_case *k = t->params;
    const struct gpt_router op = route_of(t);
    const struct gpt_expert_rows rows = experts_rows(t);
    const struct gpt_expert_matmul product = {
        .rows = &rows, .m = k->rows, .n = k->columns, .ta = true,
        .a = t->mem[7], .b = t->mem[8], .c = t->mem[9],
        .beta = k->add ? 1 : 0};

    t->be->route(t->q, &op);
    t->be->expert_matmul(t->q, &product);
}

/* In each type; or floats by TF32 alone, where `tf32` says what that costs. */
static void check_expert_products(const struct experts_case *k,
                                  const float *logits, const float *bias,
                                  const struct precision *tf32)
{
    const int64_t pairs = k->n * k->k, size = k->count * k->rows * k->columns;
    float *a = rnd_floats(pairs * k->rows, 1), *w = rnd_floats(size, 1);
    float *b = rnd_floats(pairs * k->columns, 1);
    struct operand ops[ROUTED + 3];
    char name[100];

    route_operands(ops, k, logits, bias);
    ops[7] = (struct operand){"a", ACT, pairs * k->rows, a, false, 0};
    ops[8] = (struct operand){"b", ACT, size, w, false, 0};
    ops[9] = (struct operand){"c", ACT, pairs * k->columns, NULL, true, 0};
    snprintf(name, sizeof(name), "products of %lld pairs, %lld experts, "
             "(%lld, %lld)%s%s", (long long)pairs, (long long)k->count,
             (long long)k->rows, (long long)k->columns, k->tb ? " tb" : "",
             tf32 ? " by TF32" : "");
    if (tf32)
        compare_type(run_expert_product, k, ops, GPT_COUNT(ops), tf32, name);
    else
        compare(run_expert_product, k, ops, GPT_COUNT(ops), "%s", name);
    ops[8] = (struct operand){"b", ACT, pairs * k->columns, b, false, 0};
    ops[9] = (struct operand){"c", F32, size, k->add ? w : NULL, true, 0};
    snprintf(name, sizeof(name), "gradients of %lld pairs, %lld experts, "
             "(%lld, %lld)%s%s", (long long)pairs, (long long)k->count,
             (long long)k->rows, (long long)k->columns, k->add ? " beta" : "",
             tf32 ? " by TF32" : "");
    if (tf32)
        compare_type(run_expert_gradient, k, ops, GPT_COUNT(ops), tf32, name);
    else
        compare(run_expert_gradient, k, ops, GPT_COUNT(ops), "%s", name);
    free(a), free(w), free(b);
}

/* A router of n tokens with k of e experts, of which `count` from `first` on
 * are here, and matrices (rows, columns). Some experts have no tokens. */
static void check_experts(struct experts_case k, const struct precision *tf32)
{
    float *logits = rnd_floats(k.n * k.e, 3), *bias = rnd_floats(k.e, 0.3);

    for (int64_t i = 0; i < k.n * k.e; i++)
        if (k.e > k.k && i % k.e % 3 == 1 && i % k.e < k.e - k.k)
            logits[i] -= 40;
    if (!tf32) {
        check_router(&k, logits, bias);
        check_expert_rows(&k, logits, bias);
    }
    check_expert_products(&k, logits, bias, tf32);
    free(logits), free(bias);
}

static void set_groups(int64_t all, int64_t topk, int64_t best)
{
    groups = all;
    group_topk = topk;
    group_best = best;
}

/* A router alone, of groups that are set, each of `size` experts. */
static void check_group_router(int64_t n, int64_t size, int64_t k,
                               bool sigmoid, bool bias)
{
    const struct experts_case c = {.n = n, .e = groups * size, .k = k,
                                   .sigmoid = sigmoid, .bias = bias};
    float *logits = rnd_floats(n * c.e, 3), *add = rnd_floats(c.e, 0.3);

    check_router(&c, logits, add);
    free(logits), free(add);
}

/* Logits that are equal, or no numbers: experts are those of the CPU. */
static void check_odd_logits(bool bias)
{
    struct experts_case k = {.n = 40, .e = 2 * 37, .k = 5, .count = 2 * 37,
                             .bias = bias, .rows = 3, .columns = 5};
    float *logits = rnd_floats(k.n * k.e, 1), *add = rnd_floats(k.e, 1);

    for (int64_t i = 0; i < k.n * k.e; i++)
        logits[i] = bias ? logits[i] : (float)rnd_int(-2, 2);
    for (int64_t e = 0; e < k.e; e++) {
        logits[3 * k.e + e] = NAN;
        logits[5 * k.e + e] = e % 2 ? NAN : 1;
    }
    logits[7 * k.e + 4] = INFINITY;
    logits[8 * k.e + 4] = -INFINITY;
    check_expert_rows(&k, logits, add);
    free(logits), free(add);
}

static void run_gates(struct trial *t)
{
    const struct experts_case *k = t->params;

    t->be->gate_rows(t->q, t->mem[0], t->mem[3], k->rows, k->columns, t->act);
    t->be->gate_rows_bwd(t->q, t->mem[1], t->mem[2], t->mem[3], t->mem[4],
                         k->rows, k->columns, t->act);
}

static void check_gates(int64_t n, int64_t f)
{
    const struct experts_case k = {.rows = n, .columns = f};
    float *x = rnd_floats(n * f, 1), *dx = rnd_floats(n * f, 1);
    float *gate = rnd_floats(n, 4);
    const struct operand ops[] = {{"x", ACT, n * f, x, true, 0},
                                  {"gated x", ACT, n * f, x, false, 0},
                                  {"dx", ACT, n * f, dx, true, 0},
                                  {"gate", F32, n, gate, false, 0},
                                  {"dgate", ACT, n, NULL, true, 0}};

    compare(run_gates, &k, ops, GPT_COUNT(ops), "gates of %lld rows of %lld",
            (long long)n, (long long)f);
    free(x), free(dx), free(gate);
}

#endif
