/* Log-probabilities from logits: natural logarithms, in double, of the model's
 * own distribution, before temperature, penalties and filters. Dummy rows of a
 * padded vocabulary have no logits and so no probability. */
#ifndef GPT_GENERATE_LOGPROB_H
#define GPT_GENERATE_LOGPROB_H

#include "base/status.h"

struct gpt_top {
    int32_t id;
    double logprob;
};

/* log(sum(exp(logits))) of logits (V): subtracted from a logit, it leaves the
 * log-probability. */
double gpt_log_sum(const float *logits, int64_t vocab);

/* The n most probable of logits (V), in that order, equal ones by id. Returns
 * how many there are: min(n, V). `log_sum` is that of the logits. O(V) but for
 * logits that come in rising order. */
int64_t gpt_top_logprobs(const float *logits, int64_t vocab, double log_sum,
                         struct gpt_top *top, int64_t n);

/* The most probable id, of equal ones the lowest. */
int32_t gpt_most_probable(const float *logits, int64_t vocab);

#endif
