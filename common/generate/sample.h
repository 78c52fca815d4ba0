/* Choosing the next token. A pure function of (logits, rule, a number in
 * [0, 1)), and that number is a pure function of (seed, request, position): so
 * a text does not depend on its batch-mates, on threads, or on the order of
 * work.
 *
 * The rule, in this order, and all parts may be combined:
 *   adjustments  what the tokens before say about this one; see adjust.h
 *   temperature  logits / T. T = 0: greedy
 *   top-k        keep logits >= the k-th largest (ties with it survive).
 *                k = 0: off
 *   top-p        softmax of what is left, from the most probable down: keep a
 *                token iff the sum before it is <= p (Megatron) or < p (Hugging
 *                Face). The first is always kept, and the one that crosses p
 *                is. p = 0 or 1: off
 *   min-p        keep a token iff it is at least min_p times as probable as
 *                the most probable one. 0: off
 * Greedy takes the largest logit, of equal ones the lowest id.
 *
 * Two semantics differ in three places. Tokens of equal probability come by id
 * in top-p, with Megatron the lowest first and with Hugging Face the highest.
 * The boundary of top-p is as above. And k = 1 is greedy with Megatron, where
 * Hugging Face draws among the tokens that tie for the first place. Megatron
 * refuses k and p together and T = 0 (its
 * inference/text_generation/sampling.py). */
#ifndef GPT_GENERATE_SAMPLE_H
#define GPT_GENERATE_SAMPLE_H

#include "base/rng.h"
#include "base/status.h"

enum gpt_semantics { GPT_MEGATRON, GPT_HUGGING_FACE };

/* A token whose logit is changed: `add` may be minus infinity. */
struct gpt_bias {
    int32_t token;
    float add;
};

/* All zero but the temperature: draw from the model's probabilities. */
struct gpt_sampling {
    double temperature; /* >= 0 */
    int64_t top_k;      /* >= 0; more than the vocabulary: off */
    double top_p;       /* 0..1 */
    double min_p;       /* 0..1 */
    enum gpt_semantics semantics;
    /* After each token of a text its p becomes p * decay, but not less than
     * bound. decay = 0: off; bound = 0: none. */
    double top_p_decay, top_p_bound;
    /* See adjust.h. */
    double repetition_penalty; /* > 0, or 0: off */
    double presence_penalty, frequency_penalty;
    const struct gpt_bias *bias; /* (n_bias); borrowed */
    int64_t n_bias;
    bool after_colon; /* `newline` may not follow `colon` */
    int32_t colon, newline;
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
 * minus infinity take no part. GPT_EUSAGE when none takes part: the caller has
 * forbidden all. GPT_EDIVERGED when a logit is not a number or plus infinity:
 * the weights are useless. O(V). */
int gpt_sample(struct gpt_sampler *s, const float *logits, int64_t vocab,
               const struct gpt_sampling *rule, double u, int32_t *token,
               struct gpt_err *err) GPT_MUST_USE;

/* The p of the token that follows one chosen with p. */
double gpt_sampling_next_p(const struct gpt_sampling *rule, double p);

/* The random stream of a request: its number, and that of the sample when a
 * request is answered several times. */
struct gpt_rng gpt_sample_rng(uint64_t seed, uint64_t request, uint64_t sample);

/* The u, 53 bits, for the token that will be at `position`. */
double gpt_sample_uniform(struct gpt_rng rng, int64_t position);

#endif
