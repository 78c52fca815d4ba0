/* Choosing the next token. Start at gpt_sample(): largest logit, candidates
 * (top-k), and what candidates.c does with them. Nothing is sorted: a heap of k
 * logits finds the threshold of top-k, and the candidates stay in order of ids
 * all the time. */
#include "generate/sample.h"

#include "base/exp.h"
#include "base/memory.h"
#include "base/num.h"
#include "generate/candidates.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Logits are looked at in blocks, whose largest ones tell which blocks hold
 * what is looked for: a token of a few candidates costs one pass over the
 * vocabulary. */
enum { BLOCK = GPT_EXP_BLOCK };

struct gpt_sampler {
    struct gpt_candidates *candidates; /* all tokens, or what top-k keeps */
    int64_t vocab;                     /* at most, in a call */
    int32_t *id; /* of the candidates, with top-k */
    bool listed; /* they are filled in; else a candidate's place is its id */
    float *heap; /* of top-k, and then the logits that it keeps */
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
    int status;

    GPT_TRY(gpt_new(&s, 1, sizeof(*s), "a sampler", err));
    s->vocab = vocab;
    GPT_TRY_GOTO(status, gpt_candidates_open(&s->candidates, vocab, err), fail);
    GPT_TRY_GOTO(status,
                 gpt_new(&s->id, (size_t)vocab, sizeof(*s->id),
                         "a sampler's candidates", err),
                 fail);
    GPT_TRY_GOTO(status,
                 gpt_new(&s->heap, (size_t)vocab, sizeof(*s->heap),
                         "a sampler's heap", err),
                 fail);
    GPT_TRY_GOTO(status,
                 gpt_new(&s->tops, (size_t)gpt_exp_blocks(vocab),
                         sizeof(*s->tops), "a sampler's blocks", err),
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
    gpt_candidates_close(s->candidates);
    gpt_free(s->id);
    gpt_free(s->heap);
    gpt_free(s->tops);
    gpt_free(s);
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
    const int64_t blocks = gpt_exp_blocks(vocab);
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
    for (int64_t b = 0; b < gpt_exp_blocks(vocab); b++) {
        if (!(tops[b] > heap[0]))
            continue;
        for (int64_t i = b * BLOCK; i < block_end(b, vocab); i++)
            if (logits[i] > heap[0])
                replace_root(heap, k, logits[i]);
    }
    return heap[0];
}

/* Lists the tokens whose logit is at least `least` and finite: their ids, and
 * their logits to s->heap. Returns how many there are. */
static int64_t list_from(struct gpt_sampler *s, const float *logits,
                         int64_t vocab, float least)
{
    int64_t n = 0;

    for (int64_t b = 0; b < gpt_exp_blocks(vocab); b++) {
        if (s->tops[b] < least)
            continue;
        for (int64_t i = b * BLOCK; i < block_end(b, vocab); i++) {
            s->heap[n] = logits[i];
            s->id[n] = (int32_t)i;
            n += logits[i] >= least && logits[i] > -INFINITY;
        }
    }
    return n;
}

/* Weighs the logits (V), the largest of which is max, or those that top-k
 * keeps. */
static void weigh(struct gpt_sampler *s, const float *logits, int64_t vocab,
                  const struct gpt_sampling *rule, float max)
{
    int64_t n = vocab;

    s->listed = rule->top_k > 0 && rule->top_k < vocab;
    if (s->listed) {
        n = list_from(s, logits, vocab,
                      kth_largest(s->heap, s->tops, logits, vocab,
                                  rule->top_k));
        logits = s->heap;
    }
    gpt_candidates_weigh(s->candidates, logits, n, (double)max,
                         rule->temperature);
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
    weigh(s, logits, vocab, rule, logits[best]);
    if (rule->top_p > 0 && rule->top_p < 1)
        gpt_candidates_keep_top_p(s->candidates, rule->top_p,
                                  rule->semantics == GPT_HUGGING_FACE);
    if (rule->min_p > 0)
        gpt_candidates_keep_min_p(s->candidates, rule->min_p);
    const int64_t at = gpt_candidates_draw(s->candidates, u);
    *token = s->listed ? s->id[at] : (int32_t)at;
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
