/* Choosing the next token. Start at gpt_sample(): largest logit, candidates
 * (top-k), weights, nucleus (top-p), min-p, draw.
 *
 * Nothing is sorted: a heap of k logits finds the threshold of top-k,
 * quickselect the token that crosses p, and the candidates stay in order of
 * ids all the time. */
#include "generate/sample.h"

#include "base/memory.h"
#include "base/num.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A token and its weight, exp((logit - max) / T). */
struct candidate {
    double weight;
    int32_t id;
};

/* Logits are looked at in blocks, whose largest ones tell which blocks hold
 * what is looked for: a token of a few candidates costs one pass over the
 * vocabulary. */
enum { BLOCK = 64 };

static int64_t blocks_of(int64_t vocab)
{
    return (vocab + BLOCK - 1) / BLOCK;
}

struct gpt_sampler {
    int64_t vocab; /* at most, in a call */
    struct candidate *list;    /* in order of ids */
    struct candidate *scratch; /* in whatever order quickselect leaves */
    float *heap;
    float *tops; /* (blocks of the vocabulary) */
};

bool gpt_sampling_is_greedy(const struct gpt_sampling *rule)
{
    return rule->temperature == 0 ||
           (rule->top_k == 1 && rule->semantics == GPT_MEGATRON);
}

/* Megatron looks at the bound only where there is a decay. */
double gpt_sampling_next_p(const struct gpt_sampling *rule, double p)
{
    if (p <= 0 || rule->top_p_decay <= 0)
        return p;
    p *= rule->top_p_decay;
    return rule->top_p_bound > 0 && p < rule->top_p_bound ? rule->top_p_bound
                                                          : p;
}

int gpt_sampler_open(struct gpt_sampler **out, int64_t vocab,
                     struct gpt_err *err)
{
    struct gpt_sampler *s = NULL;

    GPT_TRY(gpt_new(&s, 1, sizeof(*s), "a sampler", err));
    s->vocab = vocab;
    int status;
    GPT_TRY_GOTO(status,
                 gpt_new(&s->list, (size_t)vocab, sizeof(*s->list),
                         "a sampler's candidates", err),
                 fail);
    GPT_TRY_GOTO(status,
                 gpt_new(&s->scratch, (size_t)vocab, sizeof(*s->scratch),
                         "a sampler's candidates", err),
                 fail);
    GPT_TRY_GOTO(status,
                 gpt_new(&s->heap, (size_t)vocab, sizeof(*s->heap),
                         "a sampler's heap", err),
                 fail);
    GPT_TRY_GOTO(status,
                 gpt_new(&s->tops, (size_t)blocks_of(vocab), sizeof(*s->tops),
                         "a sampler's blocks", err),
                 fail);
    *out = s;
    return GPT_OK;
fail:
    gpt_sampler_close(s);
    return status;
}

void gpt_sampler_close(struct gpt_sampler *s)
{
    if (!s)
        return;
    gpt_free(s->list);
    gpt_free(s->scratch);
    gpt_free(s->heap);
    gpt_free(s->tops);
    gpt_free(s);
}

/* ---- the nucleus ---- */

/* The order of tokens: larger weights first, equal ones by id; with Hugging
 * Face, which sorts from the least probable up, by id from above. Total, so
 * that quickselect's result does not depend on its pivots. */
static bool before(const struct candidate *a, const struct candidate *b,
                   bool hf)
{
    return a->weight > b->weight ||
           (a->weight == b->weight && (hf ? a->id > b->id : a->id < b->id));
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate t = *a;

    *a = *b;
    *b = t;
}

/* Puts the median of first, middle and last of a[0..n) at a[0]. */
static void choose_pivot(struct candidate *a, int64_t n, bool hf)
{
    struct candidate *mid = a + n / 2, *last = a + n - 1;

    if (before(mid, a, hf))
        swap(mid, a);
    if (before(last, a, hf))
        swap(last, a);
    if (before(last, mid, hf))
        swap(last, mid);
    swap(a, mid);
}

/* Hoare's partition around a[0]: returns the pivot's place; all before it
 * are earlier in the order, all after it later. n >= 1. */
static int64_t partition(struct candidate *a, int64_t n, bool hf)
{
    choose_pivot(a, n, hf);
    struct candidate pivot = a[0];
    int64_t i = 0, j = n;
    for (;;) {
        do
            i++;
        while (i < n && before(&a[i], &pivot, hf));
        do
            j--;
        while (before(&pivot, &a[j], hf));
        if (i >= j)
            break;
        swap(&a[i], &a[j]);
    }
    swap(&a[0], &a[j]);
    return j;
}

/* True when a candidate is dropped because of what is before it. */
static bool is_full(double ahead, double limit, bool hf)
{
    return hf ? ahead >= limit : ahead > limit;
}

/* Returns the last candidate that is kept: in the order above, the last one
 * whose predecessors do not fill `limit` together. Reorders a. Quickselect
 * goes into one side only, so this is O(n) where sorting is not; each
 * partition's head is summed once. */
static struct candidate nucleus_end(struct candidate *a, int64_t n,
                                    double limit, bool hf)
{
    double ahead = 0; /* the weight of what is before a[0] */

    for (;;) {
        int64_t p = partition(a, n, hf);
        double head = ahead;

        for (int64_t i = 0; i < p; i++)
            head += a[i].weight;
        if (head > 0 &&
            is_full(head, limit, hf)) { /* the pivot is dropped already */
            n = p;
            continue;
        }
        ahead = head + a[p].weight;
        if (is_full(ahead, limit, hf) || p + 1 == n)
            return a[p];
        a += p + 1;
        n -= p + 1;
    }
}

/* Copies to scratch the candidates that can be in the nucleus at all. The
 * nucleus leaves out a share of 1 - p. If a candidate is followed by at most n
 * others, none heavier, and all of these together would weigh less than that
 * share, the candidate is left out as well. On a peaked distribution this drops
 * nearly all of the vocabulary before any partition; 0.999 allows for
 * rounding. */
static int64_t contenders(struct gpt_sampler *s, int64_t n, double p,
                          double total)
{
    double least = 0.999 * (1 - p) * total / (double)n;
    int64_t m = 0;

    for (int64_t i = 0; i < n; i++) {
        s->scratch[m] = s->list[i];
        m += s->list[i].weight >= least || s->list[i].weight >= 1;
    }
    return m;
}

/* Keeps the nucleus of list[0..n), which weighs `total`; the heaviest weigh
 * 1. */
static int64_t keep_top_p(struct gpt_sampler *s, int64_t n, double p,
                          double total, bool hf)
{
    int64_t m = contenders(s, n, p, total), kept = 0;
    struct candidate last = nucleus_end(s->scratch, m, p * total, hf);

    for (int64_t i = 0; i < n; i++)
        if (!before(&last, &s->list[i], hf))
            s->list[kept++] = s->list[i];
    return kept;
}

/* The heaviest weigh 1, so that min_p is a weight. */
static int64_t keep_min_p(struct candidate *list, int64_t n, double min_p)
{
    int64_t kept = 0;

    for (int64_t i = 0; i < n; i++)
        if (list[i].weight >= min_p)
            list[kept++] = list[i];
    return kept;
}

/* ---- logits ---- */

static int64_t block_end(int64_t block, int64_t vocab)
{
    return gpt_min_i64((block + 1) * BLOCK, vocab);
}

typedef float quad __attribute__((vector_size(16)));
typedef int32_t mask __attribute__((vector_size(16)));

/* Lane by lane; a `y` that is not a number is passed over. */
static inline quad larger(quad x, quad y)
{
    const mask take = y > x;

    return (quad)((take & (mask)y) | (~take & (mask)x));
}

/* The largest of a whole block. *sane becomes false when one is not a number or
 * plus infinity. */
static float largest_of_block(const float *x, bool *sane)
{
    enum { N = 4 }; /* that many comparisons do not wait for each other */
    const quad low = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, high = -low;
    quad top[N] = {low, low, low, low};
    mask fine = ~(mask){0};

    for (int i = 0; i < BLOCK / 4; i += N)
        for (int l = 0; l < N; l++) {
            quad v;

            memcpy(&v, x + 4 * (i + l), sizeof(v));
            fine &= v < high; /* not of NaN, either */
            top[l] = larger(top[l], v);
        }
    const quad t = larger(larger(top[0], top[1]), larger(top[2], top[3]));
    *sane &= fine[0] && fine[1] && fine[2] && fine[3];
    return fmaxf(fmaxf(t[0], t[1]), fmaxf(t[2], t[3]));
}

/* The largest logit, of equal ones the lowest id; -1 when none takes part or
 * one is not a number or plus infinity. Fills tops (blocks). */
static int32_t largest(float *tops, const float *logits, int64_t vocab)
{
    const int64_t blocks = blocks_of(vocab);
    int64_t best = 0;
    bool sane = true;

    for (int64_t b = 0; b < blocks; b++) {
        const float *x = logits + b * BLOCK;
        float last[BLOCK];

        if ((b + 1) * BLOCK > vocab) {
            for (int64_t i = 0; i < BLOCK; i++)
                last[i] = b * BLOCK + i < vocab ? x[i] : -INFINITY;
            x = last;
        }
        tops[b] = largest_of_block(x, &sane);
        if (tops[b] > tops[best])
            best = b;
    }
    if (!sane || !(tops[best] > -INFINITY))
        return -1;
    for (best *= BLOCK; logits[best] < tops[best / BLOCK];)
        best++;
    return (int32_t)best;
}

/* Puts x in place of the root of a heap whose root is the smallest. */
static void replace_root(float *heap, int64_t n, float x)
{
    int64_t at = 0;

    for (int64_t child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (!(heap[child] < x))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = x;
}

/* The k-th largest of logits (V), 1 <= k <= V. */
static float kth_largest(float *heap, const float *tops, const float *logits,
                         int64_t vocab, int64_t k)
{
    for (int64_t i = 0; i < k; i++)
        heap[i] = -INFINITY; /* a heap of k equals */
    for (int64_t b = 0; b < blocks_of(vocab); b++) {
        if (!(tops[b] > heap[0]))
            continue;
        for (int64_t i = b * BLOCK; i < block_end(b, vocab); i++)
            if (logits[i] > heap[0])
                replace_root(heap, k, logits[i]);
    }
    return heap[0];
}

/* Lists the candidates whose logit is at least `least` and finite; their
 * weights are still the logits. */
static int64_t list_from(struct candidate *list, const float *tops,
                         const float *logits, int64_t vocab, float least)
{
    int64_t n = 0;

    for (int64_t b = 0; b < blocks_of(vocab); b++) {
        if (tops[b] < least)
            continue;
        for (int64_t i = b * BLOCK; i < block_end(b, vocab); i++) {
            list[n] = (struct candidate){(double)logits[i], (int32_t)i};
            n += logits[i] >= least && logits[i] > -INFINITY;
        }
    }
    return n;
}

/* From logits to weights, in place. */
static void weigh(struct candidate *list, int64_t n, double max,
                  double temperature)
{
    for (int64_t i = 0; i < n; i++)
        list[i].weight = exp((list[i].weight - max) / temperature);
}

static double sum_of_weights(const struct candidate *list, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += list[i].weight;
    return sum;
}

/* The first candidate at which the running sum passes u * total. Rounding may
 * leave the sum short of it: then the last that has any weight. */
static int32_t draw(const struct candidate *list, int64_t n, double u)
{
    double goal = u * sum_of_weights(list, n), sum = 0;
    int32_t token = list[0].id;

    for (int64_t i = 0; i < n; i++) {
        if (list[i].weight > 0)
            token = list[i].id;
        sum += list[i].weight;
        if (sum > goal)
            break;
    }
    return token;
}

/* A model gives no logit of minus infinity: where all are, a caller has
 * forbidden them. */
static int fail_at_logits(const float *logits, int64_t vocab,
                          struct gpt_err *err)
{
    int64_t forbidden = 0;

    for (int64_t i = 0; i < vocab; i++)
        forbidden += logits[i] == -INFINITY;
    return forbidden == vocab
               ? gpt_fail(err, GPT_EUSAGE, "no token is left to choose: all "
                          "are forbidden, by biases and by what else limits "
                          "the choice")
               : gpt_fail(err, GPT_EDIVERGED,
                          "the model's logits are not finite numbers");
}

int gpt_sample(struct gpt_sampler *s, const float *logits, int64_t vocab,
               const struct gpt_sampling *rule, double u, int32_t *token,
               struct gpt_err *err)
{
    assert(vocab <= s->vocab);
    int32_t best = largest(s->tops, logits, vocab);

    if (best < 0)
        return fail_at_logits(logits, vocab, err);
    if (gpt_sampling_is_greedy(rule)) {
        *token = best;
        return GPT_OK;
    }
    struct candidate *list = s->list;
    float least = -INFINITY;
    if (rule->top_k > 0 && rule->top_k < vocab)
        least = kth_largest(s->heap, s->tops, logits, vocab, rule->top_k);
    int64_t n = list_from(list, s->tops, logits, vocab, least);
    weigh(list, n, (double)logits[best], rule->temperature);
    if (rule->top_p > 0 && rule->top_p < 1)
        n = keep_top_p(s, n, rule->top_p, sum_of_weights(list, n),
                       rule->semantics == GPT_HUGGING_FACE);
    n = keep_min_p(list, n, rule->min_p);
    *token = draw(list, n, u);
    return GPT_OK;
}

struct gpt_rng gpt_sample_rng(uint64_t seed, uint64_t request, uint64_t sample)
{
    char name[64];

    snprintf(name, sizeof(name), "sample/%llu/%llu",
             (unsigned long long)request, (unsigned long long)sample);
    return gpt_rng_open(seed, name);
}

double gpt_sample_uniform(struct gpt_rng rng, int64_t position)
{
    uint64_t at = (uint64_t)position * 2;
    uint64_t bits = (uint64_t)gpt_rng_u32(rng, at) << 32;

    bits |= gpt_rng_u32(rng, at + 1);
    return (double)(bits >> 11) * 0x1p-53;
}
