/* Softmax cross-entropy and its gradient, in place, one row at a time: of a
 * whole vocabulary, or of the part of one that a rank holds. */
#include "cpu/cpu.h"

#include <math.h>
#include <omp.h>
#include <string.h>

static float *logits_of(const struct gpt_xent *op, int64_t i)
{
    return (float *)op->logits + i * (op->ld ? op->ld : op->v);
}

/* How many of this rank's columns are words and no dummies. */
static int64_t real_columns(const struct gpt_xent *op)
{
    int64_t real = op->v_real - op->v_begin;

    return real < 0 ? 0 : real < op->v ? real : op->v;
}

/* The weight of row i times the loss scale, which is in device memory, since it
 * changes without the host. */
static float weight_of(const struct gpt_xent *op, int64_t i)
{
    return op->scale ? op->weight[i] * *op->scale : op->weight[i];
}

/* The part of the probability that smoothing spreads over each column. */
static float spread_of(const struct gpt_xent *op)
{
    return op->smoothing / (float)op->v_real;
}

/* Computes the loss of a row. lse is the logarithm of the sum of exponentials,
 * `sum` the sum of the logits. Without smoothing and z-loss it is lse - target,
 * to the bit. */
static float loss_of(const struct gpt_xent *op, float lse, float target,
                     float sum)
{
    float loss = lse - target;

    if (op->smoothing > 0)
        loss += op->smoothing * target - spread_of(op) * sum;
    return op->z_loss > 0 ? loss + op->z_loss * lse * lse : loss;
}

/* Turns the exponentials of row i into its gradient: factor makes weighted
 * probabilities of them, lse is as above. */
static void gradient(const struct gpt_xent *op, int64_t i, float factor,
                     float lse)
{
    float *x = logits_of(op, i), weight = weight_of(op, i);
    int64_t real = real_columns(op), at = op->target[i] - op->v_begin;

    /* A row that is masked out has no gradient even when its logits are not
     * finite: 0 * NaN would be NaN. */
    if (weight == 0) {
        memset(x, 0, (size_t)op->v * sizeof(*x));
        return;
    }
    if (op->z_loss > 0)
        factor *= 1 + 2 * op->z_loss * lse;
    cpu_isa->scale(x, real, factor);
    for (int64_t j = 0; op->smoothing > 0 && j < real; j++)
        x[j] -= weight * spread_of(op);
    if (at >= 0 && at < real)
        /* softmax - 1 at the target, both times the weight */
        x[at] -= weight * (1 - op->smoothing);
    /* Dummy columns pad the vocabulary: no probability, no gradient. */
    memset(x + real, 0, (size_t)(op->v - real) * sizeof(*x));
}

/* Sums exponentials of the logits less the largest one, so that none overflows.
 * Where no gradient is wanted the logits stay, and the pass writes nothing. */
static float exponentials(const struct gpt_xent *op, float *x, float max)
{
    int64_t real = real_columns(op);

    return op->grad ? cpu_isa->exp_sum(x, real, 1, max)
                    : cpu_isa->sum_exp(x, real, max);
}

/* Sums the logits before exponentials take their place; only smoothing needs
 * the sum. */
static float sum_logits(const struct gpt_xent *op, const float *x, int64_t n)
{
    return op->smoothing > 0 ? (float)cpu_isa->sum_plain(x, n) : 0;
}

/* Computes loss and gradient of a row that lies on one rank. The target's logit
 * is read before exponentials take its place. */
static void whole_row(const struct gpt_xent *op, int64_t i)
{
    float *x = logits_of(op, i);
    float max = cpu_isa->max(x, op->v_real), target = x[op->target[i]];
    float logits = sum_logits(op, x, op->v_real);
    float sum = exponentials(op, x, max), lse = logf(sum) + max;

    op->loss[i] = loss_of(op, lse, target, logits);
    if (op->grad)
        gradient(op, i, weight_of(op, i) / sum, lse);
}

static bool targets_ready(struct gpt_queue *q, const char *what,
                          const struct gpt_xent *op)
{
    bool narrow = op->act == GPT_BF16;

    if (!cpu_ready(q, what, narrow ? GPT_F32 : op->act))
        return false;
    for (int64_t i = 0; i < op->n; i++)
        /* Checked before any row is touched: a wrong target is an error of the
         * data, and logits in the middle of a pass would tell nothing. */
        if (op->target[i] < 0 || op->target[i] >= op->v_real) {
            cpu_fail(q, "%s: row %lld: target %d is not in 0..%lld", what,
                     (long long)i, op->target[i], (long long)op->v_real - 1);
            return false;
        }
    return true;
}

/* Does what whole_row() does for a row of bf16, by way of floats in `room`,
 * which stay in the second cache. */
static void narrow_row(const struct gpt_xent *op, int64_t i, float *room)
{
    uint16_t *x = (uint16_t *)op->logits + i * (op->ld ? op->ld : op->v);
    struct gpt_xent row = *op;

    row.logits = room;
    row.target += i;
    row.weight += i;
    row.loss += i;
    cpu_isa->widen(room, x, op->v);
    whole_row(&row, 0);
    if (op->grad)
        cpu_isa->narrow(x, room, op->v);
}

void cpu_xent(struct gpt_queue *q, const struct gpt_xent *op)
{
    bool narrow = op->act == GPT_BF16;
    int64_t each = narrow ? (op->v + 15) / 16 * 16 : 0;
    float *room = NULL;

    if (!targets_ready(q, "xent", op) ||
        (narrow &&
         !(room = cpu_work(q, (size_t)(each * omp_get_max_threads())))))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(op->n * op->v))
    for (int64_t i = 0; i < op->n; i++) {
        if (narrow)
            narrow_row(op, i, room + omp_get_thread_num() * each);
        else
            whole_row(op, i);
    }
}

/* Which statistics of a row ranks exchange. */
enum { LARGEST, SUM, TARGET, LOGITS };

/* Computes what this rank's columns contribute, relative to its own largest
 * logit. */
static void partial_row(const struct gpt_xent *op, int64_t i, float *stats)
{
    float *x = logits_of(op, i);
    int64_t real = real_columns(op), at = op->target[i] - op->v_begin;

    stats[LARGEST] = real > 0 ? cpu_isa->max(x, real) : -INFINITY;
    stats[TARGET] = at >= 0 && at < real ? x[at] : 0;
    stats[LOGITS] = sum_logits(op, x, real);
    stats[SUM] = real > 0 ? exponentials(op, x, stats[LARGEST]) : 0;
}

void cpu_xent_partial(struct gpt_queue *q, const struct gpt_xent *op,
                      float *stats)
{
    if (!targets_ready(q, "xent_partial", op))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(op->n * op->v))
    for (int64_t i = 0; i < op->n; i++)
        partial_row(op, i, stats + i * GPT_XENT_STATS);
}

/* Finishes row i. stats are those of the row, `next` floats from rank to
 * rank. */
static void finish_row(const struct gpt_xent *op, int64_t i, const float *stats,
                       int64_t next, int64_t ranks, int64_t rank)
{
    float max = -INFINITY, sum = 0, target = 0, logits = 0;

    for (int64_t r = 0; r < ranks; r++)
        max = fmaxf(max, stats[r * next + LARGEST]);
    /* Every rank combines the statistics of all in the order of ranks, so that
     * all have the same loss bit for bit without another message. */
    for (int64_t r = 0; r < ranks; r++) {
        const float *of = stats + r * next;

        sum += of[SUM] * expf(of[LARGEST] - max); /* NaN stays */
        target += of[TARGET];
        logits += of[LOGITS];
    }
    const float lse = logf(sum) + max;
    op->loss[i] = loss_of(op, lse, target, logits);
    /* The exponentials here are relative to this rank's maximum; the factor
     * makes them relative to the common one. */
    if (op->grad)
        gradient(op, i,
                 weight_of(op, i) * expf(stats[rank * next + LARGEST] - max) /
                     sum,
                 lse);
}

void cpu_xent_finish(struct gpt_queue *q, const struct gpt_xent *op,
                     const float *stats, int64_t ranks, int64_t rank)
{
    if (!cpu_ready(q, "xent_finish", op->act))
        return;
#pragma omp parallel for schedule(static) if (cpu_worth_threads(op->n * op->v))
    for (int64_t i = 0; i < op->n; i++)
        finish_row(op, i, stats + i * GPT_XENT_STATS, op->n * GPT_XENT_STATS,
                   ranks, rank);
}
