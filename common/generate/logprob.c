/* Log-probabilities; see logprob.h. */
#include "generate/logprob.h"

#include "base/exp.h"

#include <math.h>

/* The largest is subtracted first, so that no exponential overflows. */
double gpt_log_sum(const float *logits, int64_t vocab)
{
    const double max = (double)logits[gpt_most_probable(logits, vocab)];

    return max + log(gpt_exp_sum(logits, vocab, max));
}

int32_t gpt_most_probable(const float *logits, int64_t vocab)
{
    int64_t best = 0;

    for (int64_t i = 1; i < vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

/* Insertion into a sorted list: few tokens are wanted, and after the first ones
 * of a vocabulary hardly any id passes the first comparison. */
int64_t gpt_top_logprobs(const float *logits, int64_t vocab, double log_sum,
                         struct gpt_top *top, int64_t n)
{
    int64_t have = 0;

    for (int64_t i = 0; n > 0 && i < vocab; i++) {
        const double x = (double)logits[i] - log_sum;

        if (have == n && !(x > top[n - 1].logprob))
            continue;
        have += have < n;
        int64_t at = have - 1;
        for (; at > 0 && x > top[at - 1].logprob; at--)
            top[at] = top[at - 1];
        top[at] = (struct gpt_top){(int32_t)i, x};
    }
    return have;
}
