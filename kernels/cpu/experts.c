/* A feed-forward of experts: which experts a token has, rows of tokens side by
 * side for each expert, and products of these rows. See struct gpt_router for
 * the order of things; start at cpu_route(). Rows may be float or bf16; what is
 * summed is summed in float and rounded once. Tokens, and rows, are independent
 * of each other, so that no result depends on the number of threads. */
#include "cpu/cpu.h"

#include "base/num.h"

#include <assert.h>
#include <math.h>
#include <omp.h>
#include <string.h>

/* True where a row is bf16; else it is float. */
static bool is_narrow(enum gpt_dtype act)
{
    return act == GPT_BF16;
}

/* The CPU computes in both: any other type is a failure of the queue. */
static bool ready(struct gpt_queue *q, const char *what, enum gpt_dtype act)
{
    return cpu_ready(q, what, is_narrow(act) ? GPT_F32 : act);
}

static size_t row_bytes(int64_t c, enum gpt_dtype act)
{
    return (size_t)c * (is_narrow(act) ? sizeof(uint16_t) : sizeof(float));
}

/* ---- the router ---- */

static float logistic(float x)
{
    return 1 / (1 + expf(-x));
}

/* Scores (E) of a token. Those of the softmax keep the largest logit out of the
 * exponential. */
static void score(float *scores, const float *logits, int64_t e, bool sigmoid)
{
    float most = -INFINITY, sum = 0;

    for (int64_t i = 0; i < e; i++)
        most = fmaxf(most, logits[i]);
    for (int64_t i = 0; i < e; i++) {
        scores[i] = sigmoid ? logistic(logits[i]) : expf(logits[i] - most);
        sum += scores[i];
    }
    for (int64_t i = 0; i < e && !sigmoid; i++)
        scores[i] /= sum;
}

static float bias_of(const struct gpt_router *op, int64_t e)
{
    if (!op->bias)
        return 0;
    return is_narrow(op->act)
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

/* Chooses the experts of a token: K places, which experts are sorted into. */
static void choose(const struct gpt_router *op, const float *by,
                   int32_t *expert)
{
    int64_t held = 0;

    for (int64_t e = 0; e < op->e; e++) {
        int64_t at = held;

        while (at > 0 && goes_before(by, e, expert[at - 1]))
            at--;
        if (at == op->k)
            continue;
        held = gpt_min_i64(held + 1, op->k);
        memmove(&expert[at + 1], &expert[at],
                (size_t)(held - 1 - at) * sizeof(*expert));
        expert[at] = (int32_t)e;
    }
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

/* room: 2 E floats. */
static void route_token(const struct gpt_router *op, int64_t n, float *room)
{
    const float *logits = op->logits + n * op->e;
    int32_t *expert = op->expert + n * op->k;
    float *scores = room, *by = room + op->e;

    score(scores, logits, op->e, op->sigmoid);
    for (int64_t e = 0; e < op->e; e++)
        by[e] = op->bias ? scores[e] + bias_of(op, e) : logits[e];
    choose(op, by, expert);
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

void cpu_route(struct gpt_queue *q, const struct gpt_router *op)
{
    const int64_t each = 2 * op->e;
    float *room = NULL;

    assert(op->k >= 1 && op->k <= op->e && op->k <= GPT_ROUTER_MOST);
    if (!ready(q, "route", op->act) ||
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
    losses[0] = spread_back(op, by->aux, scores, d);
    scores_back(op, scores, d);
    losses[1] = logits_back(op, by->z, logits, d);
    cpu_convert((char *)grad->dlogits + (size_t)n * row_bytes(op->e, op->act),
                op->act, d, GPT_F32, op->e);
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
    if (!ready(q, "route_bwd", op->act) ||
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
    if (!losses || blocks == 0)
        return;
    for (int64_t i = 1; i < blocks; i++) {
        sums[0][0] += sums[i][0];
        sums[0][1] += sums[i][1];
    }
    grad->losses[0] += share * aux * (float)sums[0][0];
    grad->losses[1] += share * grad->z / (float)op->n * (float)sums[0][1];
}

/* ---- rows ---- */

static int64_t first_pair(const struct gpt_expert_rows *rows)
{
    return rows->begin[rows->first];
}

static int64_t end_pair(const struct gpt_expert_rows *rows)
{
    return rows->begin[rows->first + rows->count];
}

void cpu_expert_pick(struct gpt_queue *q, const struct gpt_expert_rows *rows,
                     const void *x, void *out, int64_t c)
{
    const size_t bytes = row_bytes(c, rows->act);

    if (!ready(q, "expert_pick", rows->act))
        return;
    const int64_t first = first_pair(rows), end = end_pair(rows);
#pragma omp parallel for schedule(static) \
    if (cpu_worth_threads((end - first) * c / 4))
    for (int64_t p = first; p < end; p++)
        memcpy((char *)out + (size_t)(p - first) * bytes,
               (const char *)x + (size_t)(rows->source[p] / rows->k) * bytes,
               bytes);
}

/* A row as floats: itself, or widened to `room`. */
static const float *floats_of(const void *x, int64_t row, int64_t c,
                              enum gpt_dtype act, float *room)
{
    if (!is_narrow(act))
        return (const float *)x + row * c;
    cpu_isa->widen(room, (const uint16_t *)x + row * c, c);
    return room;
}

/* room: 2 C floats. */
static void sum_token(const struct gpt_expert_rows *rows, const void *x,
                      void *y, int64_t c, int64_t n, bool weighed, bool add,
                      float *room)
{
    const int64_t first = first_pair(rows), end = end_pair(rows);
    float *sum = room;

    if (add)
        memcpy(sum, floats_of(y, n, c, rows->act, room),
               (size_t)c * sizeof(*sum));
    else
        memset(sum, 0, (size_t)c * sizeof(*sum));
    for (int64_t i = n * rows->k; i < (n + 1) * rows->k; i++) {
        const int64_t p = rows->place[i];

        if (p < first || p >= end)
            continue;
        const float w = weighed ? rows->weight[i] : 1;
        const float *row = floats_of(x, p - first, c, rows->act, room + c);

        cpu_isa->combine(sum, &w, row, c, c, 1);
    }
    cpu_convert((char *)y + (size_t)n * row_bytes(c, rows->act), rows->act,
                sum, GPT_F32, c);
}

void cpu_expert_sum(struct gpt_queue *q, const struct gpt_expert_rows *rows,
                    const void *x, void *y, int64_t c, bool weighed, bool add)
{
    float *room;

    if (!ready(q, "expert_sum", rows->act) ||
        !(room = cpu_work(q, (size_t)(2 * c * omp_get_max_threads()))))
        return;
#pragma omp parallel for schedule(static) \
    if (cpu_worth_threads(rows->n * rows->k * c / 4))
    for (int64_t n = 0; n < rows->n; n++)
        sum_token(rows, x, y, c, n, weighed, add,
                  room + omp_get_thread_num() * 2 * c);
}

/* Two rows (F) of one pair, or token; h and dh are multiplied by w. Returns
 * their dot before. room: 2 F floats. */
static float weigh_rows(void *h, void *dh, int64_t row, int64_t f, float w,
                        enum gpt_dtype act, float *room)
{
    float *x = is_narrow(act) ? room : (float *)h + row * f;
    float *dx = is_narrow(act) ? room + f : (float *)dh + row * f;

    floats_of(h, row, f, act, x);
    floats_of(dh, row, f, act, dx);
    const float dot = cpu_isa->dot(x, dx, f);
    cpu_isa->scale(x, f, w);
    cpu_isa->scale(dx, f, w);
    if (is_narrow(act)) {
        cpu_isa->narrow((uint16_t *)h + row * f, x, f);
        cpu_isa->narrow((uint16_t *)dh + row * f, dx, f);
    }
    return dot;
}

void cpu_expert_weigh(struct gpt_queue *q, const struct gpt_expert_rows *rows,
                      void *h, void *dh, int64_t f, float *dweight)
{
    float *room;

    if (!ready(q, "expert_weigh", rows->act) ||
        !(room = cpu_work(q, (size_t)(2 * f * omp_get_max_threads()))))
        return;
    const int64_t first = first_pair(rows), end = end_pair(rows);
    memset(dweight, 0, (size_t)(rows->n * rows->k) * sizeof(*dweight));
#pragma omp parallel for schedule(static) \
    if (cpu_worth_threads((end - first) * f / 2))
    for (int64_t p = first; p < end; p++) {
        const int32_t at = rows->source[p];

        dweight[at] = weigh_rows(h, dh, p - first, f, rows->weight[at],
                                 rows->act,
                                 room + omp_get_thread_num() * 2 * f);
    }
}

void cpu_gate_rows(struct gpt_queue *q, void *x, const float *gate, int64_t n,
                   int64_t f, enum gpt_dtype act)
{
    float *room;

    if (!ready(q, "gate_rows", act) ||
        !(room = cpu_work(q, (size_t)(f * omp_get_max_threads()))))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(n * f / 4))
    for (int64_t i = 0; i < n; i++) {
        float *row = is_narrow(act) ? room + omp_get_thread_num() * f
                                    : (float *)x + i * f;

        floats_of(x, i, f, act, row);
        cpu_isa->scale(row, f, logistic(gate[i]));
        if (is_narrow(act))
            cpu_isa->narrow((uint16_t *)x + i * f, row, f);
    }
}

void cpu_gate_rows_bwd(struct gpt_queue *q, const void *x, void *dx,
                       const float *gate, void *dgate, int64_t n, int64_t f,
                       enum gpt_dtype act)
{
    float *room;

    if (!ready(q, "gate_rows_bwd", act) ||
        !(room = cpu_work(q, (size_t)(2 * f * omp_get_max_threads()))))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(n * f / 2))
    for (int64_t i = 0; i < n; i++) {
        float *mine = room + omp_get_thread_num() * 2 * f;
        const float s = logistic(gate[i]);
        const float *row = floats_of(x, i, f, act, mine);
        float *drow = is_narrow(act) ? mine + f : (float *)dx + i * f;

        floats_of(dx, i, f, act, drow);
        const float d = (1 - s) * cpu_isa->dot(row, drow, f);
        cpu_isa->scale(drow, f, s);
        if (is_narrow(act))
            cpu_isa->narrow((uint16_t *)dx + i * f, drow, f);
        cpu_convert((char *)dgate + (size_t)i * row_bytes(1, act), act, &d,
                    GPT_F32, 1);
    }
}

/* ---- products ---- */

/* The matrix of expert e in fewer bits, of all of them. */
static struct gpt_quant quant_of(const struct gpt_expert_matmul *op, int64_t e)
{
    struct gpt_quant w = *op->quant;
    const int64_t before = e * op->n;
    const int64_t groups = w.group ? gpt_ceil_div(op->k, w.group) : 1;
    const size_t bytes =
        w.arranged ? cpu_quant_bytes(&w, before, op->k)
                   : (size_t)(before * op->k) * gpt_dtype_bytes(w.type);

    assert(!w.arranged || op->n % 32 == 0);
    w.values = (const char *)w.values + bytes;
    if (w.scales)
        w.scales += before * groups;
    return w;
}

/* The product of an expert's rows, which are [begin, begin + m) of all rows
 * here. */
static void multiply(struct gpt_queue *q, const struct gpt_expert_matmul *op,
                     int64_t e, int64_t begin, int64_t m)
{
    const enum gpt_dtype act = op->rows->act;
    struct gpt_quant quant;
    struct gpt_matmul one = {
        .m = m,
        .n = op->n,
        .k = op->k,
        .tb = op->tb,
        .a = (const char *)op->a + (size_t)begin * row_bytes(op->k, act),
        .b = (const char *)op->b + (size_t)e * row_bytes(op->n * op->k, act),
        .c = (char *)op->c + (size_t)begin * row_bytes(op->n, act),
        .act = act,
        .c_type = act,
        .sums = op->sums,
    };

    if (m == 0)
        return;
    if (op->quant) {
        quant = quant_of(op, e);
        one.quant = &quant;
        one.b = quant.values;
    }
    cpu_matmul(q, &one);
}

/* The gradient of an expert's matrix. */
static void multiply_back(struct gpt_queue *q,
                          const struct gpt_expert_matmul *op, int64_t e,
                          int64_t begin, int64_t m)
{
    const enum gpt_dtype act = op->rows->act;
    const struct gpt_matmul one = {
        .m = op->m,
        .n = op->n,
        .k = m,
        .ta = true,
        .a = (const char *)op->a + (size_t)begin * row_bytes(op->m, act),
        .b = (const char *)op->b + (size_t)begin * row_bytes(op->n, act),
        .c = (float *)op->c + e * op->m * op->n,
        .act = act,
        .c_type = GPT_F32,
        .beta = op->beta,
    };

    if (m > 0)
        cpu_matmul(q, &one);
    else if (op->beta == 0)
        memset(one.c, 0, (size_t)(op->m * op->n) * sizeof(float));
}

/* Experts one after the other: the threads share each product. */
void cpu_expert_matmul(struct gpt_queue *q, const struct gpt_expert_matmul *op)
{
    const struct gpt_expert_rows *rows = op->rows;

    if (!ready(q, "expert_matmul", rows->act))
        return;
    for (int64_t e = 0; e < rows->count; e++) {
        const int32_t *begin = rows->begin + rows->first + e;
        const int64_t at = begin[0] - first_pair(rows);

        if (op->ta)
            multiply_back(q, op, e, at, begin[1] - begin[0]);
        else
            multiply(q, op, e, at, begin[1] - begin[0]);
    }
}
