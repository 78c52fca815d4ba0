/* Choosing the next token. A pure function of (logits, rule, a number in
 * [0, 1)), and that number is a pure function of (seed, request, position): so
 * a text does not depend on its batch-mates, on threads, or on the order of
 * work.
 *
 * The rule, in this order, and all parts may be combined:
 *   temperature  logits / T. T = 0: greedy
 *   top-k        keep logits >= the k-th largest (ties with it survive).
 *                k = 0: off; k = 1: greedy
 *   top-p        softmax of what is left, from the most probable down (equal
 *                ones by id): keep a token iff the sum before it is <= p. So
 *                the first is always kept, and the one that crosses p is. p = 0
 *                or 1: off
 * Greedy takes the largest logit, of equal ones the lowest id. Megatron has
 * the same top-k and top-p, but refuses both together and T = 0 (its
 * inference/text_generation/sampling.py). Hugging Face's top-p differs where a
 * sum equals p exactly: it drops the next token, here that is kept. */
#ifndef GPT_GENERATE_SAMPLE_H
#define GPT_GENERATE_SAMPLE_H

#include "base/rng.h"
#include "base/status.h"

struct gpt_sampling {
    double temperature; /* >= 0 */
    int64_t top_k;      /* >= 0; more than the vocabulary: off */
    double top_p;       /* 0..1 */
};

/* True when the choice is free of chance. */
bool gpt_sampling_is_greedy(const struct gpt_sampling *rule);

/* Scratch for one thread, for vocabularies of up to `vocab` ids. */
struct gpt_sampler;
int gpt_sampler_open(struct gpt_sampler **s, int64_t vocab,
                     struct gpt_err *err) GPT_MUST_USE;
void gpt_sampler_close(struct gpt_sampler *s);

/* Chooses from logits (V) float, host. u in [0, 1) selects by inverse of the
 * cumulative distribution in order of ids; greedy does not read it. Logits of
 * minus infinity take no part. GPT_EDIVERGED when a logit is not a number or
 * plus infinity, or when all take no part: the weights are useless. O(V). */
int gpt_sample(struct gpt_sampler *s, const float *logits, int64_t vocab,
               const struct gpt_sampling *rule, double u, int32_t *token,
               struct gpt_err *err) GPT_MUST_USE;

/* The random stream of a request: its number, and that of the sample when a
 * request is answered several times. */
struct gpt_rng gpt_sample_rng(uint64_t seed, uint64_t request,
                              uint64_t sample);

/* The u, 53 bits, for the token that will be at `position`. */
double gpt_sample_uniform(struct gpt_rng rng, int64_t position);

#endif
