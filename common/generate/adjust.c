/* Penalties and bias; see adjust.h. Start at gpt_adjust(). A token that occurs
 * often is changed once: the first visit to it sets its count to zero, which
 * also leaves the counts clean for the next text. */
#include "generate/adjust.h"

#include <math.h>

bool gpt_adjusts(const struct gpt_sampling *rule)
{
    return rule->n_bias > 0 || rule->after_colon ||
           (rule->repetition_penalty > 0 && rule->repetition_penalty != 1) ||
           rule->presence_penalty != 0 || rule->frequency_penalty != 0;
}

/* The caller's history may come from a prompt of ids, and a bias from a user.
 */
static bool is_id(int32_t id, int64_t vocab)
{
    return id >= 0 && id < vocab;
}

static void count_ids(const int32_t *ids, int64_t n, int64_t vocab,
                      int32_t *counts)
{
    for (int64_t i = 0; i < n; i++)
        if (is_id(ids[i], vocab))
            counts[ids[i]]++;
}

/* float, as the libraries compute it: their tokens shall be ours. */
static void penalize_repetition(float *logits, int64_t vocab, float penalty,
                                const int32_t *ids, int64_t n, int32_t *counts)
{
    for (int64_t i = 0; i < n; i++) {
        if (!is_id(ids[i], vocab) || counts[ids[i]] == 0)
            continue;
        float *logit = &logits[ids[i]];

        counts[ids[i]] = 0;
        *logit = *logit > 0 ? *logit / penalty : *logit * penalty;
    }
}

/* The counts are those of the text alone: a prompt that repeats itself does
 * not forbid its own words. */
static void penalize_use(float *logits, int64_t vocab,
                         const struct gpt_sampling *rule, const int32_t *ids,
                         int64_t n, int32_t *counts)
{
    for (int64_t i = 0; i < n; i++) {
        if (!is_id(ids[i], vocab) || counts[ids[i]] == 0)
            continue;
        logits[ids[i]] -= (float)(rule->presence_penalty +
                                  rule->frequency_penalty * counts[ids[i]]);
        counts[ids[i]] = 0;
    }
}

/* The token before the one that is chosen; -1: none. */
static int32_t last_id(const struct gpt_history *h)
{
    if (h->n_text > 0)
        return h->text[h->n_text - 1];
    return h->n_prompt > 0 ? h->prompt[h->n_prompt - 1] : -1;
}

void gpt_adjust(float *logits, int64_t vocab, const struct gpt_sampling *rule,
                const struct gpt_history *h, int32_t *counts)
{
    for (int64_t i = 0; i < rule->n_bias; i++)
        if (is_id(rule->bias[i].token, vocab))
            logits[rule->bias[i].token] += rule->bias[i].add;
    if (rule->repetition_penalty > 0 && rule->repetition_penalty != 1) {
        const float penalty = (float)rule->repetition_penalty;

        count_ids(h->prompt, h->n_prompt, vocab, counts);
        count_ids(h->text, h->n_text, vocab, counts);
        penalize_repetition(logits, vocab, penalty, h->prompt, h->n_prompt,
                            counts);
        penalize_repetition(logits, vocab, penalty, h->text, h->n_text, counts);
    }
    if (rule->presence_penalty != 0 || rule->frequency_penalty != 0) {
        count_ids(h->text, h->n_text, vocab, counts);
        penalize_use(logits, vocab, rule, h->text, h->n_text, counts);
    }
    /* Megatron subtracts 1e10, which no sampling survives either. */
    if (rule->after_colon && last_id(h) == rule->colon &&
        is_id(rule->newline, vocab))
        logits[rule->newline] = -INFINITY;
}
