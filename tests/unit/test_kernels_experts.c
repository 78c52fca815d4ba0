/* The router of experts, against formulas in double: which experts tokens have,
 * the gradients of logits by differences of the losses; and rows of the experts
 * of a rank, which are picked, summed and weighed. Tokens without experts here,
 * experts without tokens, ties, and logits that are no numbers are among the
 * cases. Start at check_shape(). */
#include "tests/unit/experts.h"

enum { LOSSES = 2 };

/* ---- the router ---- */

/* Scores (E) of a token in double. */
static void scores_of(double *scores, const struct gpt_router *op,
                      const double *logits)
{
    double sum = 0, most = -INFINITY;

    for (int64_t e = 0; e < op->e; e++)
        most = fmax(most, logits[e]);
    for (int64_t e = 0; e < op->e; e++) {
        scores[e] = op->sigmoid ? 1 / (1 + exp(-logits[e]))
                                : exp(logits[e] - most);
        sum += scores[e];
    }
    for (int64_t e = 0; e < op->e && !op->sigmoid; e++)
        scores[e] /= sum;
}

/* The weight of a token's place i, given its scores. */
static double weight_of(const struct gpt_router *op, const double *scores,
                        const int32_t *expert, int64_t i)
{
    double sum = op->sigmoid ? (double)GPT_ROUTER_LEAST : 0;

    for (int64_t j = 0; j < op->k; j++)
        sum += scores[expert[j]];
    return scores[expert[i]] / (op->whole ? 1 : sum) * (double)op->scaling;
}

/* True when a goes before b by the numbers given; `near`: they may be off by so
 * much. */
static bool before(const double *by, int64_t a, int64_t b, double near)
{
    return by[a] > by[b] - near;
}

/* Whether a token's experts are not the K best, by falling number; of equal
 * ones the smaller. */
static bool chosen_wrongly(const struct gpt_router *op, const double *by,
                           const int32_t *expert, double near)
{
    bool wrong = false;
    char *taken = calloc((size_t)op->e, 1);

    for (int64_t i = 0; i < op->k; i++) {
        if (expert[i] < 0 || expert[i] >= op->e || taken[expert[i]]) {
            free(taken);
            return true;
        }
        taken[expert[i]] = 1;
        if (i > 0 && near > 0)
            wrong |= !before(by, expert[i - 1], expert[i], near);
        else if (i > 0)
            wrong |= by[expert[i]] > by[expert[i - 1]] ||
                     (by[expert[i]] == by[expert[i - 1]] &&
                      expert[i] < expert[i - 1]);
    }
    const int64_t last = expert[op->k - 1];
    for (int64_t e = 0; e < op->e; e++)
        if (!taken[e])
            wrong |= near > 0 ? !before(by, last, e, near)
                              : by[e] > by[last] || (by[e] == by[last] &&
                                                     e < last);
    free(taken);
    return wrong;
}

/* Tokens whose experts or weights are wrong. Without a bias logits say which
 * experts are the best, exactly. */
static int64_t wrong_tokens(const struct layer *l)
{
    const struct gpt_router *op = &l->op;
    double *scores = malloc((size_t)op->e * sizeof(*scores));
    double *by = malloc((size_t)op->e * sizeof(*by));
    double *logits = malloc((size_t)op->e * sizeof(*logits));
    int64_t wrong = 0;

    for (int64_t n = 0; n < op->n; n++) {
        const int32_t *expert = op->expert + n * op->k;
        bool bad;

        for (int64_t e = 0; e < op->e; e++)
            logits[e] = (double)op->logits[n * op->e + e];
        scores_of(scores, op, logits);
        for (int64_t e = 0; e < op->e; e++)
            by[e] = op->bias ? scores[e] + at(op->bias, e, op->act) : logits[e];
        bad = chosen_wrongly(op, by, expert, op->bias ? 1e-6 : 0);
        for (int64_t i = 0; i < op->k && !bad; i++) {
            const double want = weight_of(op, scores, expert, i);

            bad |= !(fabs((double)op->weight[n * op->k + i] - want) <=
                     1e-5 * fabs(want) + 1e-36);
        }
        wrong += bad;
    }
    free(scores), free(by), free(logits);
    return wrong;
}

/* Pairs that are not where the order of experts and tokens has them. */
static int64_t wrong_pairs(const struct layer *l)
{
    const struct gpt_router *op = &l->op;
    int64_t wrong = op->begin[0] != 0, p = 0;

    for (int64_t e = 0; e < op->e; e++) {
        for (int64_t i = 0; i < op->n * op->k; i++)
            if (op->expert[i] == e) {
                wrong += op->source[p] != i || op->place[i] != p;
                p++;
            }
        wrong += op->begin[e + 1] != p;
    }
    return wrong;
}

static void check_route(struct layer *l, const char *what)
{
    const struct gpt_router *op = &l->op;
    const bool same = same_bytes(run_route, l, l->out, l->words);

    is_int(wrong_tokens(l), 0, "%s: %lld tokens, %lld of %lld experts, %s%s: "
           "wrong tokens", setting, (long long)op->n, (long long)op->k,
           (long long)op->e, name_of(op->act), what);
    is_int(wrong_pairs(l), 0, "%s: wrong pairs", setting);
    ok(same, "%s: equal for 1, 2, 3 threads", setting);
}

/* Tokens whose logits, or scores, are equal. */
static void check_ties(void)
{
    struct layer l = new_layer(9, 20, 5, GPT_F32);

    for (int64_t i = 0; i < 9 * 20; i++)
        l.logits[i] = (float)(i / 20 == 8 ? 1 : rnd_int(-1, 1));
    check_route(&l, " with ties");
    ok(l.op.expert[8 * 5] == 0 && l.op.expert[8 * 5 + 4] == 4,
       "%s: of equal experts the first are taken", setting);
    free_layer(&l);
    /* one expert's score is all there is: the others' are zeros */
    l = new_layer(1, 6, 4, GPT_F32);
    for (int64_t i = 0; i < 6; i++)
        l.logits[i] = (float)(i * (i % 2 ? 200 : -200));
    check_route(&l, " far apart");
    free_layer(&l);
}

/* A token with logits that are no numbers has experts all the same, and leaves
 * other tokens alone. */
static void check_no_numbers(bool sigmoid, bool with_bias)
{
    enum { N = 6, E = 7, K = 3 };
    struct layer l = new_layer(N, E, K, GPT_F32);
    int64_t pairs[E] = {0}, wrong = 0, finite = 0;

    l.op.sigmoid = sigmoid;
    l.bias = with_bias ? rnd_rows(E, 1, GPT_F32) : NULL;
    l.op.bias = l.bias;
    l.logits[1 * E + 2] = NAN;
    for (int64_t e = 0; e < E; e++)
        l.logits[3 * E + e] = NAN;
    l.logits[4 * E + 1] = INFINITY;
    l.logits[5 * E + 5] = -INFINITY;
    run_route(&l);
    for (int64_t i = 0; i < N * K; i++) {
        const int32_t e = l.op.expert[i];

        wrong += e < 0 || e >= E;
        for (int64_t j = i / K * K; j < i; j++)
            wrong += l.op.expert[j] == e;
        if (e >= 0 && e < E)
            pairs[e]++;
    }
    for (int64_t e = 0; e < E; e++)
        wrong += l.op.begin[e + 1] - l.op.begin[e] != pairs[e];
    for (int64_t i = 0; i < K; i++) {
        finite += isfinite(l.op.weight[i]) != 0;
        finite += isfinite(l.op.weight[2 * K + i]) != 0;
        finite += isfinite(l.op.weight[5 * K + i]) != 0;
    }
    is_int(wrong, 0, "%s: experts of logits that are no numbers%s%s", setting,
           sigmoid ? ", sigmoid" : "", with_bias ? ", bias" : "");
    is_int(finite, 3 * K, "%s: other tokens' weights", setting);
    if (!with_bias)
        ok(l.op.expert[1 * K] != 2 && l.op.expert[1 * K + 1] != 2 &&
           l.op.expert[1 * K + 2] != 2, "%s: NaN is not chosen", setting);
    free_layer(&l);
}

/* Scores of the logistic function that are all too small for a float. */
static void check_no_scores(void)
{
    struct layer l = new_layer(1, 4, 2, GPT_F32);
    float dweight[2] = {1, -2}, dlogits[4], losses[LOSSES] = {0};
    struct gpt_router_grad grad = {.dweight = dweight, .dlogits = dlogits,
                                  .aux = 1, .weights = dweight,
                                  .losses = losses};
    int64_t finite = 0;

    l.op.sigmoid = true;
    for (int64_t e = 0; e < 4; e++)
        l.logits[e] = (float)(-200 - e);
    run_route(&l);
    be->route_bwd(q, &l.op, &grad);
    for (int64_t i = 0; i < 2; i++)
        finite += isfinite(l.op.weight[i]) != 0;
    for (int64_t e = 0; e < 4; e++)
        finite += isfinite(dlogits[e]) != 0;
    is_int(finite, 6, "%s: scores of zero leave no NaN", setting);
    free_layer(&l);
}

/* ---- the router's backward ---- */

struct back {
    struct layer *l;
    struct gpt_router_grad grad;
    float *out; /* dlogits, then the losses */
    int64_t words;
};

static void run_back(void *ctx)
{
    struct back *k = ctx;

    spoil(k->out, k->words - LOSSES);
    if (k->grad.losses) {
        k->grad.losses[0] = 2;
        k->grad.losses[1] = -3;
    }
    be->route_bwd(q, &k->l->op, &k->grad);
}

/* How much the tokens' losses count together. */
static double share_of(const struct back *k)
{
    double sum = 0;

    for (int64_t n = 0; n < k->l->op.n && k->grad.weights; n++)
        sum += (double)k->grad.weights[n];
    return sum;
}

/* What a token with these logits adds to the two losses. */
static void losses_of(double losses[LOSSES], const struct back *k,
                      const double *logits, const double *scores)
{
    const struct gpt_router *op = &k->l->op;
    const double n = (double)op->n;
    double sum = op->sigmoid ? (double)GPT_ROUTER_LEAST : 0, cost = 0;
    double most = -INFINITY, all = 0;

    for (int64_t e = 0; e < op->e; e++) {
        sum += scores[e];
        cost += scores[e] * (op->begin[e + 1] - op->begin[e]);
        most = fmax(most, logits[e]);
    }
    for (int64_t e = 0; e < op->e; e++)
        all += exp(logits[e] - most);
    losses[0] = share_of(k) * (double)k->grad.aux * (double)op->e * cost / sum /
                ((double)op->k * n * n);
    losses[1] = share_of(k) * (double)k->grad.z / n *
                pow(most + log(all), 2);
}

/* What is differentiated: of a token. */
static double value_of(const struct back *k, int64_t n, const double *logits)
{
    const struct gpt_router *op = &k->l->op;
    const double by = k->grad.scale ? (double)*k->grad.scale : 1;
    double *scores = malloc((size_t)op->e * sizeof(*scores));
    double losses[LOSSES], value = 0;

    scores_of(scores, op, logits);
    losses_of(losses, k, logits, scores);
    for (int64_t i = 0; i < op->k; i++)
        value += (double)k->grad.dweight[n * op->k + i] *
                 weight_of(op, scores, op->expert + n * op->k, i);
    free(scores);
    return value + by * (losses[0] + losses[1]);
}

/* dlogits (N, E) by differences, and the losses of all tokens. */
static void differences(double *want, double losses[LOSSES],
                        const struct back *k)
{
    const struct gpt_router *op = &k->l->op;
    double *x = malloc((size_t)op->e * sizeof(*x)), one[LOSSES];
    double *scores = malloc((size_t)op->e * sizeof(*scores));
    const double step = 1e-5;

    for (int64_t n = 0; n < op->n; n++) {
        for (int64_t e = 0; e < op->e; e++)
            x[e] = (double)op->logits[n * op->e + e];
        scores_of(scores, op, x);
        losses_of(one, k, x, scores);
        losses[0] += one[0];
        losses[1] += one[1];
        for (int64_t e = 0; e < op->e; e++) {
            const double keep = x[e];

            x[e] = keep + step;
            want[n * op->e + e] = value_of(k, n, x);
            x[e] = keep - step;
            want[n * op->e + e] -= value_of(k, n, x);
            want[n * op->e + e] /= 2 * step;
            x[e] = keep;
        }
    }
    free(x), free(scores);
}

static void check_route_bwd(struct layer *l, float aux, float z)
{
    const struct gpt_router *op = &l->op;
    const int64_t n = op->n * op->e, words = words_of(n, op->act);
    const float scale = 8;
    float *dweight = rnd_floats(op->n * op->k, 1);
    float *weights = rnd_floats(op->n, 0.5), *out = poisoned(words + LOSSES);
    double *want = malloc((size_t)(n + 1) * sizeof(*want));
    double losses[LOSSES] = {2, -3};
    struct back k = {.l = l, .out = out, .words = words + LOSSES,
                     .grad = {.dweight = dweight, .dlogits = out, .aux = aux,
                              .z = z, .weights = weights,
                              .scale = op->n % 2 ? &scale : NULL,
                              .losses = out + words}};

    for (int64_t i = 0; i < op->n * op->k; i++)
        dweight[i] = i % 5 == 3 ? 0 : dweight[i]; /* of another rank */
    for (int64_t i = 0; i < op->n; i++)
        weights[i] = i % 7 == 5 ? 0 : (weights[i] + 0.5F) / (float)op->n;
    if (aux == 0 && z == 0) /* neither is looked at */
        k.grad.weights = k.grad.losses = NULL;
    const bool same = same_bytes(run_back, &k, out, k.words);
    differences(want, losses, &k);
    double worst = 0, top = 0.1;
    for (int64_t i = 0; i < n; i++) {
        const double e = fabs(at(out, i, op->act) - want[i]);

        top = fmax(top, fabs(want[i]));
        worst = e < 1e300 ? fmax(worst, e) : (double)INFINITY;
    }
    ok(worst <= (op->act == GPT_BF16 ? 4e-3 : 3e-6) * top,
       "%s: dlogits of %lld tokens, %lld of %lld experts, %s%s%s: %.2g of %.2g",
       setting, (long long)op->n, (long long)op->k, (long long)op->e,
       name_of(op->act), op->sigmoid ? " sigmoid" : "",
       op->whole ? " whole" : "", worst, top);
    if (k.grad.losses)
        close_to(k.grad.losses, losses, LOSSES, 2e-6, "%s: losses", setting);
    ok(same, "%s: equal for 1, 2, 3 threads", setting);
    free(dweight), free(weights), free(out), free(want);
}

/* How many tokens each expert has is added to what is there. */
static void check_counts(struct layer *l)
{
    const struct gpt_router *op = &l->op;
    const int64_t n = op->n * op->e;
    float *dweight = rnd_floats(op->n * op->k, 1);
    float *counts = malloc((size_t)op->e * sizeof(*counts));
    float *dlogits = poisoned(words_of(n, op->act));
    const struct gpt_router_grad grad = {
        .dweight = dweight, .dlogits = dlogits, .counts = counts};
    int64_t right = 0;

    for (int64_t e = 0; e < op->e; e++)
        counts[e] = (float)(100 * e);
    be->route_bwd(q, op, &grad);
    for (int64_t e = 0; e < op->e; e++) {
        int64_t want = 100 * e;

        for (int64_t i = 0; i < op->n * op->k; i++)
            want += op->expert[i] == e;
        right += counts[e] == (float)want;
    }
    is_int(right, op->e, "%s: tokens of %lld experts", setting,
           (long long)op->e);
    free(dweight), free(counts), free(dlogits);
}

/* Exact sums, as the rate is a power of two; what follows stays. */
static void check_balance(enum gpt_dtype act)
{
    static const float counts[] = {0, 3, 2, 16777216, 2.5F};
    float p[] = {1, -1, 0.5F, 0, 2, 7}, copy[6] = {0};
    static const float want[] = {1.25F, -1.25F, 0.25F, -0.25F, 1.75F, 7};
    struct gpt_balance op = {.n = 5, .p = p, .counts = counts, .act = act,
                             .p_act = copy, .mean = 1.75, .rate = 0.25};
    float wide[6] = {0};

    be->balance(q, &op);
    ok(memcmp(p, want, sizeof(p)) == 0, "%s: biases move against counts",
       setting);
    gpt_convert(wide, GPT_F32, copy, act, 5);
    ok(memcmp(wide, want, 5 * sizeof(*want)) == 0 && wide[5] == 0,
       "%s: and so does their copy, %s", setting, name_of(act));
    op.mean = 2;
    op.p_act = NULL;
    be->balance(q, &op);
    ok(p[2] == want[2] && p[0] == 1.5F, "%s: the mean moves nothing", setting);
}

/* ---- rows ---- */

struct rows_case {
    struct gpt_expert_rows rows;
    const void *x, *y0;
    int64_t c;
    bool weighed, add;
    float *out; /* picked rows; y; h, dh, dweight */
    int64_t picked, summed, weighs, words;
};

static void run_rows(void *ctx)
{
    struct rows_case *k = ctx;
    const struct gpt_expert_rows *r = &k->rows;
    float *y = k->out + k->picked, *h = y + k->summed, *dh = h + k->picked;
    const size_t all = bytes_of(r->n * r->k * k->c, r->act);

    spoil(k->out, k->words);
    be->expert_pick(q, r, k->x, k->out, k->c);
    if (k->add)
        memcpy(y, k->y0, bytes_of(r->n * k->c, r->act));
    be->expert_sum(q, r, k->out, y, k->c, k->weighed, k->add);
    memcpy(h, k->out, all);
    memcpy(dh, k->x, bytes_of(r->n * k->c, r->act));
    for (int64_t i = 0; i < r->n * r->k * k->c; i++) /* other numbers than h */
        if (r->act == GPT_BF16)
            ((uint16_t *)(void *)dh)[i] =
                ((const uint16_t *)k->x)[i * 7 % (r->n * k->c)];
        else
            dh[i] = ((const float *)k->x)[i * 7 % (r->n * k->c)];
    be->expert_weigh(q, r, h, dh, k->c, dh + k->picked);
}

/* The row here of pair (n, i), or -1. */
static int64_t row_of(const struct gpt_expert_rows *r, int64_t n, int64_t i)
{
    const int64_t row = r->place[n * r->k + i] - r->begin[r->first];

    return row < here(r) ? (row < 0 ? -1 : row) : -1;
}

static int64_t wrong_picks(const struct rows_case *k)
{
    const struct gpt_expert_rows *r = &k->rows;
    const size_t row = bytes_of(k->c, r->act);
    int64_t wrong = 0, seen = 0;

    for (int64_t i = 0; i < r->n * r->k; i++) {
        const int64_t p = row_of(r, i / r->k, i % r->k);

        if (p < 0)
            continue;
        seen++;
        wrong += memcmp((const char *)(void *)k->out + (size_t)p * row,
                        (const char *)k->x + (size_t)(i / r->k) * row,
                        row) != 0;
    }
    /* what is past the rows here is not written */
    for (int64_t i = here(r) * k->c; i < r->n * r->k * k->c; i++)
        wrong += !isnan(at(k->out, i, r->act));
    return wrong + (seen != here(r));
}

static int64_t wrong_sums(const struct rows_case *k)
{
    const struct gpt_expert_rows *r = &k->rows;
    double *want = calloc((size_t)k->c, sizeof(*want));
    double *size = calloc((size_t)k->c, sizeof(*size));
    int64_t wrong = 0;

    for (int64_t n = 0; n < r->n; n++) {
        for (int64_t j = 0; j < k->c; j++) {
            want[j] = k->add ? at(k->y0, n * k->c + j, r->act) : 0;
            size[j] = fabs(want[j]);
        }
        for (int64_t i = 0; i < r->k; i++) {
            const int64_t p = row_of(r, n, i);
            const double w =
                k->weighed ? (double)r->weight[n * r->k + i] : 1;

            for (int64_t j = 0; p >= 0 && j < k->c; j++) {
                const double x = w * at(k->out, p * k->c + j, r->act);

                want[j] += x;
                size[j] += fabs(x);
            }
        }
        wrong += wrong_by((const char *)(k->out + k->picked) +
                              bytes_of(n * k->c, r->act),
                          want, size, k->c, r->k, r->act);
    }
    free(want), free(size);
    return wrong;
}

/* h has the rows that were picked, dh those of x from 7 times their place on:
 * both times weights; and dweight their dots. */
static int64_t wrong_weights(const struct rows_case *k)
{
    const struct gpt_expert_rows *r = &k->rows;
    const float *h = k->out + k->picked + k->summed, *dh = h + k->picked;
    const float *dweight = dh + k->picked;
    int64_t wrong = 0;

    for (int64_t i = 0; i < r->n * r->k; i++) {
        const int64_t p = row_of(r, i / r->k, i % r->k);
        double dot = 0, size = 0;

        for (int64_t j = 0; p >= 0 && j < k->c; j++) {
            const int64_t e = p * k->c + j;
            const double w = (double)r->weight[i];
            const double a = at(k->out, e, r->act);
            const double b = at(k->x, e * 7 % (r->n * k->c), r->act);
            const double want[2] = {a * w, b * w};
            const double sizes[2] = {fabs(a * w), fabs(b * w)};

            dot += a * b;
            size += fabs(a * b);
            wrong += wrong_by((const char *)h + bytes_of(e, r->act), want,
                              sizes, 1, 1, r->act);
            wrong += wrong_by((const char *)dh + bytes_of(e, r->act), want + 1,
                              sizes + 1, 1, 1, r->act);
        }
        wrong += wrong_by(dweight + i, &dot, &size, 1, k->c, GPT_F32);
    }
    return wrong;
}

static void check_rows(const struct layer *l, int64_t first, int64_t count,
                       int64_t c, bool weighed, bool add)
{
    const int64_t n = l->op.n, pairs = n * l->op.k;
    void *x = rnd_rows(n * c, 1, l->act), *y0 = rnd_rows(n * c, 1, l->act);
    struct rows_case k = {.rows = rows_of(l, first, count), .x = x, .y0 = y0,
                          .c = c, .weighed = weighed, .add = add,
                          .picked = words_of(pairs * c, l->act),
                          .summed = words_of(n * c, l->act)};

    k.words = 3 * k.picked + k.summed + pairs;
    k.out = poisoned(k.words);
    const bool same = same_bytes(run_rows, &k, k.out, k.words);
    is_int(wrong_picks(&k), 0, "%s: %lld experts from %lld, rows of %lld, %s: "
           "wrong picks", setting, (long long)count, (long long)first,
           (long long)c, name_of(l->act));
    is_int(wrong_sums(&k), 0, "%s: wrong sums%s%s", setting,
           weighed ? ", weighed" : "", add ? ", added" : "");
    is_int(wrong_weights(&k), 0, "%s: wrong weighed rows", setting);
    ok(same, "%s: equal for 1, 2, 3 threads", setting);
    free(x), free(y0), free(k.out);
}

struct gate_case {
    int64_t n, f;
    enum gpt_dtype act;
    const void *x0, *dx0;
    const float *gate;
    float *out; /* x after gate_rows(); dx, dgate of the backward */
    int64_t words, all;
};

static void run_gates(void *ctx)
{
    struct gate_case *k = ctx;
    const size_t bytes = bytes_of(k->n * k->f, k->act);
    float *dx = k->out + k->words;

    spoil(k->out, k->all);
    memcpy(k->out, k->x0, bytes);
    memcpy(dx, k->dx0, bytes);
    be->gate_rows(q, k->out, k->gate, k->n, k->f, k->act);
    be->gate_rows_bwd(q, k->out, dx, k->gate, dx + k->words, k->n, k->f,
                      k->act);
}

static void check_gates(int64_t n, int64_t f, enum gpt_dtype act)
{
    void *x0 = rnd_rows(n * f, 1, act), *dx0 = rnd_rows(n * f, 1, act);
    float *gate = rnd_floats(n, 5);
    struct gate_case k = {.n = n, .f = f, .act = act, .x0 = x0, .dx0 = dx0,
                          .gate = gate, .words = words_of(n * f, act)};
    int64_t wrong = 0;

    k.all = 2 * k.words + words_of(n, act);
    k.out = poisoned(k.all);
    const bool same = same_bytes(run_gates, &k, k.out, k.all);
    for (int64_t i = 0; i < n; i++) {
        const double s = 1 / (1 + exp(-(double)gate[i]));
        double dot = 0, size = 0;

        for (int64_t j = i * f; j < (i + 1) * f; j++) {
            const double x = at(x0, j, act) * s, dx = at(dx0, j, act) * s;
            const double xs = fabs(x), dxs = fabs(dx);
            const char *out = (const char *)k.out + bytes_of(j, act);
            const double term = at(k.out, j, act) * at(dx0, j, act);

            dot += term * (1 - s);
            size += fabs(term); /* 1 - s cancels */
            wrong += wrong_by(out, &x, &xs, 1, 4, act);
            out += (size_t)k.words * sizeof(float);
            wrong += wrong_by(out, &dx, &dxs, 1, 4, act);
        }
        wrong += wrong_by((const char *)(k.out + 2 * k.words) +
                              bytes_of(i, act),
                          &dot, &size, 1, f + 4, act);
    }
    is_int(wrong, 0, "%s: gates of %lld rows of %lld, %s: wrong elements",
           setting, (long long)n, (long long)f, name_of(act));
    ok(same, "%s: equal for 1, 2, 3 threads", setting);
    free(x0), free(dx0), free(gate), free(k.out);
}

/* ---- all of it ---- */

/* What the operations do with the tokens of a router. */
static void check_shape(int64_t n, int64_t e, int64_t k, enum gpt_dtype act,
                        bool sigmoid, bool whole, bool bias)
{
    struct layer l = new_layer(n, e, k, act);
    const int64_t first = rnd_int(0, e - 1), count = rnd_int(1, e - first);

    l.op.sigmoid = sigmoid;
    l.op.whole = whole;
    l.op.scaling = bias ? 2.5F : 1;
    l.bias = bias ? rnd_rows(e, 0.3, act) : NULL;
    l.op.bias = l.bias;
    leave_out(&l);
    check_route(&l, bias ? " bias" : "");
    check_route_bwd(&l, n % 3 ? 0.7F : 0, n % 4 ? 0.2F : 0);
    check_route_bwd(&l, 0, 0);
    check_counts(&l);
    check_rows(&l, 0, e, rnd_int(1, 70), true, false);
    check_rows(&l, first, count, rnd_int(1, 70), n % 2, true);
    check_gates(n, rnd_int(1, 70), act);
    free_layer(&l);
}

/* Types that the CPU does not compute in, by name. */
static void check_refusals(void)
{
    struct layer l = new_layer(2, 3, 1, GPT_F16);
    struct gpt_queue *other;
    struct gpt_err err = {0};

    if (be->queue_open(be, &other, &err) != GPT_OK)
        return;
    be->route(other, &l.op);
    is_int(be->sync(other, &err), GPT_EDEVICE, "fp16 is refused");
    ok(strstr(err.text, "route") && strstr(err.text, "F16"),
       "the message names operation and type: %s", err.text);
    be->queue_close(other);
    free_layer(&l);
}

static void body(void)
{
    for (size_t i = 0; i < GPT_COUNT(experts_shapes); i++)
        for (int t = 0; t < 2; t++)
            check_shape(experts_shapes[i][0], experts_shapes[i][1],
                        experts_shapes[i][2], t ? GPT_BF16 : GPT_F32,
                        i / 2 % 2, i % 3 == 1, (i + (size_t)t) % 2);
    for (int i = 0; i < 12; i++) {
        const int64_t e = rnd_int(1, 20);

        check_shape(rnd_int(1, 60), e, rnd_int(1, e < 9 ? e : 9),
                    i % 2 ? GPT_BF16 : GPT_F32, i / 2 % 2, i / 4 % 2,
                    i % 3 == 0);
    }
    check_ties();
    for (int i = 0; i < 4; i++)
        check_no_numbers(i & 1, i & 2);
    check_no_scores();
    check_balance(GPT_F32);
    check_balance(GPT_BF16);
    check_refusals();
}

int main(void)
{
    each_setting(body);
    return tap_done();
}
