/* The router of experts, against formulas in double: which experts tokens have,
 * of which groups, and the gradients of logits by differences of the losses.
 * Experts without tokens, ties, and logits that are no numbers are among the
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

static int falling(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

/* What groups are ordered by: the sums of their best candidates. The best alone
 * is that of the logits where there is no bias, as experts are. */
static void strengths_of(double *strength, const struct gpt_router *op,
                         const double *scores, const double *by)
{
    const int64_t size = op->e / op->groups;
    const double *of = op->bias || op->group_best == 1 ? by : scores;
    double *sorted = malloc((size_t)size * sizeof(*sorted));

    for (int64_t g = 0; g < op->groups; g++) {
        memcpy(sorted, of + g * size, (size_t)size * sizeof(*sorted));
        qsort(sorted, (size_t)size, sizeof(*sorted), falling);
        strength[g] = 0;
        for (int64_t i = 0; i < op->group_best; i++)
            strength[g] += sorted[i];
    }
    free(sorted);
}

/* Makes the candidates in `by` that are of other groups than the token's
 * -infinity. False where groups are so near each other that their order is that
 * of rounding; equal ones are not. */
static bool leave_groups(const struct gpt_router *op, const double *scores,
                         double *by)
{
    const int64_t size = op->e / op->groups;
    double *strength = malloc((size_t)op->groups * sizeof(*strength));
    double least = INFINITY, most = -INFINITY; /* of those taken, or not */

    strengths_of(strength, op, scores, by);
    for (int64_t g = 0; g < op->groups; g++) {
        int64_t before_it = 0;

        for (int64_t o = 0; o < op->groups; o++)
            before_it += strength[o] > strength[g] ||
                         (strength[o] == strength[g] && o < g);
        if (before_it < op->group_topk) {
            least = fmin(least, strength[g]);
            continue;
        }
        most = fmax(most, strength[g]);
        for (int64_t e = g * size; e < (g + 1) * size; e++)
            by[e] = -INFINITY;
    }
    free(strength);
    return least == most || least - most > 1e-6;
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
        if (op->groups > 1 && !leave_groups(op, scores, by))
            continue;
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

/* ---- groups ---- */

struct groups {
    int64_t groups, topk, best;
};

static void set_groups(struct layer *l, struct groups g)
{
    l->op.groups = g.groups;
    l->op.group_topk = g.topk;
    l->op.group_best = g.best;
}

/* Tokens that have other experts than `other` (N, K) says. */
static int64_t other_tokens(const struct layer *l, const int32_t *other)
{
    const int64_t k = l->op.k;
    int64_t n = 0;

    for (int64_t i = 0; i < l->op.n; i++)
        n += memcmp(l->op.expert + i * k, other + i * k,
                    (size_t)k * sizeof(*other)) != 0;
    return n;
}

/* With all groups taken nothing but the words of the router changes. */
static void check_groups(int64_t n, int64_t size, int64_t k, struct groups g,
                         bool sigmoid, bool bias, enum gpt_dtype act)
{
    const int64_t e = g.groups * size;
    struct layer l = new_layer(n, e, k, act);
    char what[80];

    l.op.sigmoid = sigmoid;
    l.bias = bias ? rnd_rows(e, 0.3, act) : NULL;
    l.op.bias = l.bias;
    run_route(&l);
    float *all = copied(l.out, l.words);
    set_groups(&l, (struct groups){g.groups, g.groups, g.best});
    run_route(&l);
    ok(memcmp(all, l.out, (size_t)l.words * sizeof(*all)) == 0,
       "%s: all of %lld groups are as none", setting, (long long)g.groups);
    set_groups(&l, g);
    snprintf(what, sizeof(what), " of %lld of %lld groups by %lld%s%s",
             (long long)g.topk, (long long)g.groups, (long long)g.best,
             sigmoid ? " sigmoid" : "", bias ? " bias" : "");
    check_route(&l, what);
    if (n >= 30 && g.topk <= g.groups / 2 && k > g.topk)
        ok(other_tokens(&l, ints(all + n * k)) > 0, "%s: groups count",
           setting);
    free(all);
    free_layer(&l);
}

/* Groups of equal sums, or of equal experts. */
static void check_group_ties(bool sigmoid, int64_t best)
{
    enum { N = 30, E = 24, K = 6 };
    struct layer l = new_layer(N, E, K, GPT_F32);

    l.op.sigmoid = sigmoid;
    set_groups(&l, (struct groups){6, 2, best});
    for (int64_t i = 0; i < N * E; i++)
        l.logits[i] = (float)(i / E == 8 ? 1 : rnd_int(-1, 1));
    check_route(&l, " with ties of groups");
    for (int64_t i = 0; i < K; i++)
        is_int(l.op.expert[8 * K + i], i, "%s: of equal groups the first",
               setting);
    free_layer(&l);
}

/* Logits that are no numbers: the experts of a token differ, and are of no more
 * groups than it may have. */
static void check_broken_groups(bool sigmoid, int64_t best)
{
    enum { N = 200, GROUPS = 4, SIZE = 3, E = GROUPS * SIZE, K = 5, TOPK = 2 };
    struct layer l = new_layer(N, E, K, GPT_F32);
    int64_t wrong = 0;

    l.op.sigmoid = sigmoid;
    set_groups(&l, (struct groups){GROUPS, TOPK, best});
    for (int64_t i = 0; i < N * E; i++)
        if (rnd() > (double)(i / E) / N)
            l.logits[i] = i % 7 == 1 ? INFINITY : i % 7 == 2 ? -INFINITY : NAN;
    run_route(&l);
    for (int64_t n = 0; n < N; n++) {
        int64_t of[GROUPS] = {0}, groups = 0;
        bool taken[E] = {false};

        for (int64_t i = 0; i < K; i++) {
            const int32_t e = l.op.expert[n * K + i];

            if (e < 0 || e >= E || taken[e]) {
                wrong++;
                continue;
            }
            taken[e] = true;
            groups += of[e / SIZE]++ == 0;
        }
        wrong += groups > TOPK;
    }
    is_int(wrong, 0, "%s: experts of broken groups by %lld%s", setting,
           (long long)best, sigmoid ? ", sigmoid" : "");
    free_layer(&l);
}

static void check_all_groups(void)
{
    check_groups(60, 32, 8, (struct groups){8, 4, 2}, true, true, GPT_BF16);
    check_groups(40, 20, 6, (struct groups){8, 3, 1}, false, false, GPT_F32);
    check_groups(40, 5, 10, (struct groups){4, 2, 2}, false, false, GPT_F32);
    check_groups(33, 1, 5, (struct groups){20, 7, 1}, true, false, GPT_F32);
    check_groups(33, 1, 7, (struct groups){20, 7, 1}, false, true, GPT_BF16);
    check_groups(9, 64, 64, (struct groups){2, 1, 64}, true, true, GPT_F32);
    check_groups(1, 2, 1, (struct groups){2, 1, 1}, false, false, GPT_F32);
    check_groups(0, 2, 1, (struct groups){2, 1, 1}, false, false, GPT_F32);
    for (int i = 0; i < 12; i++) {
        const int64_t groups = rnd_int(2, 12), topk = rnd_int(1, groups);
        const int64_t size = rnd_int(1, 12), most = topk * size;

        check_groups(rnd_int(1, 60), size,
                     i % 3 ? rnd_int(1, most < 64 ? most : 64)
                           : most < 64 ? most : 64,
                     (struct groups){groups, topk, rnd_int(1, size)}, i % 2,
                     i / 2 % 2, i / 4 % 2 ? GPT_BF16 : GPT_F32);
    }
    for (int i = 0; i < 4; i++) {
        check_group_ties(i % 2, 1 + i / 2);
        check_broken_groups(i % 2, 1 + i / 2);
    }
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

/* ---- all of it ---- */

static void check_shape(int64_t n, int64_t e, int64_t k, enum gpt_dtype act,
                        bool sigmoid, bool whole, bool bias)
{
    struct layer l = new_layer(n, e, k, act);

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
    check_all_groups();
    check_balance(GPT_F32);
    check_balance(GPT_BF16);
    check_refusals();
}

int main(void)
{
    each_setting(body);
    return tap_done();
}
