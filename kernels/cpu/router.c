/* Which experts a token has; see struct gpt_router for the order of things, and
 * experts.c for what is done with the tokens. Start at cpu_route(). Tokens are
 * independent of each other, and their pairs are sorted by one thread, so that
 * no result depends on the number of threads. */
#include "cpu/cpu.h"

#include "base/num.h"

#include <assert.h>
#include <math.h>
#include <omp.h>
#include <string.h>

/* Scores (E) of a token. Those of the softmax keep the largest logit out of the
 * exponential. */
static void score(float *scores, const float *logits, int64_t e, bool sigmoid)
{
    float most = -INFINITY, sum = 0;

    for (int64_t i = 0; i < e; i++)
        most = fmaxf(most, logits[i]);
    for (int64_t i = 0; i < e; i++) {
        scores[i] = sigmoid ? cpu_logistic(logits[i]) : expf(logits[i] - most);
        sum += scores[i];
    }
    for (int64_t i = 0; i < e && !sigmoid; i++)
        scores[i] /= sum;
}

static float bias_of(const struct gpt_router *op, int64_t e)
{
    if (!op->bias)
        return 0;
    return op->act == GPT_BF16
               ? gpt_bf16_to_f32(((const uint16_t *)op->bias)[e])
               : ((const float *)op->bias)[e];
}

/* True when expert a goes before b. Softmax without a bias is compared by
 * logits: scores of far smaller ones are equal, though they are not. NaN goes
 * last, so that a broken step chooses something. */
static bool goes_before(const float *by, int64_t a, int64_t b)
{
    if (by[a] > by[b] || (by[b] != by[b] && by[a] == by[a]))
        return true;
    return !(by[a] < by[b]) && (by[a] == by[a]) == (by[b] == by[b]) && a < b;
}

/* Adds the candidates [first, end) to the `held` ones that are chosen, which
 * stay sorted and at most `most`; returns how many there are then. */
static int64_t choose(const float *by, int64_t first, int64_t end,
                      int32_t *chosen, int64_t held, int64_t most)
{
    for (int64_t e = first; e < end; e++) {
        int64_t at = held;

        while (at > 0 && goes_before(by, e, chosen[at - 1]))
            at--;
        if (at == most)
            continue;
        held = gpt_min_i64(held + 1, most);
        memmove(&chosen[at + 1], &chosen[at],
                (size_t)(held - 1 - at) * sizeof(*chosen));
        chosen[at] = (int32_t)e;
    }
    return held;
}

/* Chooses the groups of a token. strength: (groups) floats of room. */
static void choose_groups(const struct gpt_router *op, const float *scores,
                          const float *by, float *strength, int32_t *group)
{
    const int64_t size = op->e / op->groups;
    /* one alone is compared by what experts are; sums are of scores */
    const float *of = op->bias || op->group_best == 1 ? by : scores;
    int32_t best[GPT_ROUTER_MOST];

    for (int64_t g = 0; g < op->groups; g++) {
        choose(of, g * size, (g + 1) * size, best, 0, op->group_best);
        strength[g] = 0;
        for (int64_t i = 0; i < op->group_best; i++)
            strength[g] += of[best[i]];
    }
    choose(strength, 0, op->groups, group, 0, op->group_topk);
}

/* Chooses the experts of a token, of its groups alone where there are any.
 * room: 2 floats a group. */
static void choose_experts(const struct gpt_router *op, const float *scores,
                           const float *by, int32_t *expert, float *room)
{
    if (op->groups <= 1) {
        choose(by, 0, op->e, expert, 0, op->k);
        return;
    }
    const int64_t size = op->e / op->groups;
    int32_t *group = (int32_t *)(void *)(room + op->groups);
    int64_t held = 0;

    choose_groups(op, scores, by, room, group);
    for (int64_t i = 0; i < op->group_topk; i++)
        held = choose(by, group[i] * size, (group[i] + 1) * size, expert, held,
                      op->k);
}

/* What the scores of a token's experts are divided by: that of the logistic
 * function is no zero where all scores are. */
static float sum_of(const struct gpt_router *op, const float *scores,
                    const int32_t *expert)
{
    float sum = 0;

    for (int64_t i = 0; i < op->k; i++)
        sum += scores[expert[i]];
    return op->whole ? 1 : op->sigmoid ? sum + GPT_ROUTER_LEAST : sum;
}

/* room: 2 E floats, and 2 a group. */
static void route_token(const struct gpt_router *op, int64_t n, float *room)
{
    const float *logits = op->logits + n * op->e;
    int32_t *expert = op->expert + n * op->k;
    float *scores = room, *by = room + op->e;

    score(scores, logits, op->e, op->sigmoid);
    for (int64_t e = 0; e < op->e; e++)
        by[e] = op->bias ? scores[e] + bias_of(op, e) : logits[e];
    choose_experts(op, scores, by, expert, by + op->e);
    const float sum = sum_of(op, scores, expert);
    for (int64_t i = 0; i < op->k; i++)
        op->weight[n * op->k + i] = scores[expert[i]] / sum * op->scaling;
}

/* Sorts pairs by expert: counts, then places. */
static void sort_pairs(const struct gpt_router *op)
{
    const int64_t pairs = op->n * op->k;

    memset(op->begin, 0, (size_t)(op->e + 1) * sizeof(*op->begin));
    for (int64_t i = 0; i < pairs; i++)
        op->begin[op->expert[i] + 1]++;
    for (int64_t e = 0; e < op->e; e++)
        op->begin[e + 1] += op->begin[e];
    /* begin[e] moves to where e + 1 begins, and is moved back */
    for (int64_t i = 0; i < pairs; i++) {
        op->place[i] = op->begin[op->expert[i]]++;
        op->source[op->place[i]] = (int32_t)i;
    }
    memmove(op->begin + 1, op->begin, (size_t)op->e * sizeof(*op->begin));
    op->begin[0] = 0;
}

/* Whether as many experts may be chosen as are asked for. */
static bool is_possible(const struct gpt_router *op)
{
    if (op->k < 1 || op->k > op->e || op->k > GPT_ROUTER_MOST)
        return false;
    if (op->groups <= 1)
        return true;
    const int64_t size = op->e / op->groups;
    return op->e % op->groups == 0 && op->group_topk >= 1 &&
           op->group_topk <= op->groups && op->k <= op->group_topk * size &&
           op->group_best >= 1 && op->group_best <= size &&
           op->group_best <= GPT_ROUTER_MOST;
}

void cpu_route(struct gpt_queue *q, const struct gpt_router *op)
{
    const int64_t each = 2 * (op->e + (op->groups > 1 ? op->groups : 0));
    float *room = NULL;

    assert(is_possible(op));
    if (!cpu_ready_narrow(q, "route", op->act) ||
        !(room = cpu_work(q, (size_t)(each * omp_get_max_threads()))))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(op->n * each))
    for (int64_t n = 0; n < op->n; n++)
        route_token(op, n, room + omp_get_thread_num() * each);
    sort_pairs(op);
}

/* What a token's backward needs beside the forward's: of the losses. */
struct loss_of_tokens {
    float aux, z; /* times what a token adds to a loss */
};

/* Adds the gradient of the weights to dscores (E) float. With w = s / S, the
 * sum S of the token's scores, dS = -sum dw w / S. */
static void weights_back(const struct gpt_router *op, const float *dweight,
                         const float *scores, const int32_t *expert,
                         float *dscores)
{
    const float sum = sum_of(op, scores, expert);
    float dot = 0;

    for (int64_t i = 0; i < op->k && !op->whole; i++)
        dot += dweight[i] * scores[expert[i]] / sum;
    for (int64_t i = 0; i < op->k; i++)
        dscores[expert[i]] += op->scaling * (dweight[i] - dot) / sum;
}

/* The same of the loss that spreads tokens: each share of an expert costs how
 * many pairs the expert has. Scores of the logistic function are divided by
 * their sum first. */
static double spread_back(const struct gpt_router *op, float by,
                          const float *scores, float *dscores)
{
    double sum = op->sigmoid ? (double)GPT_ROUTER_LEAST : 0, cost = 0;

    for (int64_t e = 0; e < op->e; e++) {
        sum += (double)scores[e];
        cost += (double)scores[e] * (op->begin[e + 1] - op->begin[e]);
    }
    for (int64_t e = 0; e < op->e && by != 0; e++)
        dscores[e] += (float)((double)by *
                              (op->begin[e + 1] - op->begin[e] - cost / sum) /
                              sum);
    return cost / sum;
}

/* From scores to logits, in place. */
static void scores_back(const struct gpt_router *op, const float *scores,
                        float *d)
{
    float dot = 0;

    for (int64_t e = 0; e < op->e; e++)
        dot += d[e] * scores[e];
    for (int64_t e = 0; e < op->e; e++)
        d[e] = op->sigmoid ? d[e] * scores[e] * (1 - scores[e])
                           : (d[e] - dot) * scores[e];
}

/* Adds the gradient of the loss of large logits; returns a token's part. */
static double logits_back(const struct gpt_router *op, float by,
                          const float *logits, float *d)
{
    float most = -INFINITY, sum = 0;

    for (int64_t e = 0; e < op->e; e++)
        most = fmaxf(most, logits[e]);
    for (int64_t e = 0; e < op->e; e++)
        sum += expf(logits[e] - most);
    const float lse = most + logf(sum);
    for (int64_t e = 0; e < op->e && by != 0; e++)
        d[e] += by * 2 * lse * expf(logits[e] - lse);
    return (double)lse * (double)lse;
}

/* room: 2 E floats. losses (2): what the token adds to them. */
static void route_token_back(const struct gpt_router *op,
                             const struct gpt_router_grad *grad,
                             const struct loss_of_tokens *by, int64_t n,
                             float *room, double losses[2])
{
    const float *logits = op->logits + n * op->e;
    float *scores = room, *d = room + op->e;

    memset(d, 0, (size_t)op->e * sizeof(*d));
    score(scores, logits, op->e, op->sigmoid);
    weights_back(op, grad->dweight + n * op->k, scores,
                 op->expert + n * op->k, d);
    /* exponentials of all experts again, for nothing without such a loss */
    losses[0] = grad->aux != 0 ? spread_back(op, by->aux, scores, d) : 0;
    scores_back(op, scores, d);
    losses[1] = grad->z != 0 ? logits_back(op, by->z, logits, d) : 0;
    cpu_convert((char *)grad->dlogits +
                    (size_t)(n * op->e) * gpt_dtype_bytes(op->act),
                op->act, d, GPT_F32, op->e);
}

static void add_counts(const struct gpt_router *op, float *counts)
{
    for (int64_t e = 0; e < op->e; e++)
        counts[e] += (float)(op->begin[e + 1] - op->begin[e]);
}

/* How much the tokens' losses count together. */
static float weight_of(const struct gpt_router *op,
                       const struct gpt_router_grad *grad)
{
    double sum = 0;

    for (int64_t n = 0; n < op->n; n++)
        sum += (double)grad->weights[n];
    return (float)sum;
}

void cpu_route_bwd(struct gpt_queue *q, const struct gpt_router *op,
                   const struct gpt_router_grad *grad)
{
    const int64_t each = 2 * op->e, blocks = cpu_row_blocks(op->n);
    const bool losses = grad->aux != 0 || grad->z != 0;
    const float share = losses ? weight_of(op, grad) : 0;
    const float by = share * (grad->scale ? *grad->scale : 1);
    const float aux = grad->aux * (float)op->e / (float)op->k /
                      (float)op->n / (float)op->n;
    const struct loss_of_tokens of = {by * aux,
                                      by * grad->z / (float)op->n};
    double sums[64][2] = {{0}};
    float *room = NULL;

    assert(blocks <= 64);
    if (!cpu_ready_narrow(q, "route_bwd", op->act) ||
        !(room = cpu_work(q, (size_t)(each * omp_get_max_threads()))))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(op->n * each))
    for (int64_t i = 0; i < blocks; i++)
        for (int64_t n = cpu_cut(op->n, blocks, i);
             n < cpu_cut(op->n, blocks, i + 1); n++) {
            double parts[2];

            route_token_back(op, grad, &of, n,
                             room + omp_get_thread_num() * each, parts);
            sums[i][0] += parts[0];
            sums[i][1] += parts[1];
        }
    if (grad->counts)
        add_counts(op, grad->counts);
    if (!losses || blocks == 0)
        return;
    for (int64_t i = 1; i < blocks; i++) {
        sums[0][0] += sums[i][0];
        sums[0][1] += sums[i][1];
    }
    grad->losses[0] += share * aux * (float)sums[0][0];
    grad->losses[1] += share * grad->z / (float)op->n * (float)sums[0][1];
}

void cpu_balance(struct gpt_queue *q, const struct gpt_balance *op)
{
    const bool narrow = op->p_act && op->act == GPT_BF16;
    const float rate = (float)op->rate;

    if (!cpu_ready(q, "balance", op->p_act && !narrow ? op->act : GPT_F32))
        return;
    for (int64_t i = 0; i < op->n; i++) {
        const double above = op->mean - (double)op->counts[i];

        op->p[i] += above > 0 ? rate : above < 0 ? -rate : 0;
    }
    if (op->p_act && op->p_act != op->p)
        cpu_convert(op->p_act, op->act, op->p, GPT_F32, op->n);
}
