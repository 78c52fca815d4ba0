/* The tokens that may come next, in order of ids, and their weights
 * exp((logit - max) / T), of which the heaviest are 1: those that top-p and
 * min-p drop weigh nothing, and one is drawn. gpt_sample() calls it, and
 * sample.h says what the rules mean. */
#ifndef GPT_GENERATE_CANDIDATES_H
#define GPT_GENERATE_CANDIDATES_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct gpt_candidates;

/* Room for `most` candidates. */
int gpt_candidates_open(struct gpt_candidates **s, int64_t most,
                        struct gpt_err *err) GPT_MUST_USE;
void gpt_candidates_close(struct gpt_candidates *s);

/* Begins with logits (n), the largest of which is max. Minus infinity weighs
 * nothing. */
void gpt_candidates_weigh(struct gpt_candidates *s, const float *logits,
                          int64_t n, double max, double temperature);

/* Keeps the nucleus of p, in (0, 1); hf: its boundary and the order of equals
 * are Hugging Face's. O(n) where weights are of many sizes; else on average. */
void gpt_candidates_keep_top_p(struct gpt_candidates *s, double p, bool hf);

/* Keeps what weighs at least min_p, in (0, 1]. */
void gpt_candidates_keep_min_p(struct gpt_candidates *s, double min_p);

/* The place of the candidate that u in [0, 1) selects. */
int64_t gpt_candidates_draw(const struct gpt_candidates *s, double u);

#endif
