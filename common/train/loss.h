/* What a training minimises besides cross-entropy with Megatron's averages:
 * weights of tokens from a file, and plug-ins (gpt_loss.h). One rule a run,
 * opened on every rank. */
#ifndef GPT_TRAIN_LOSS_H
#define GPT_TRAIN_LOSS_H

#include "base/memory.h"
#include "model/gpt_loss.h"
#include "model/stage.h"

struct gpt_loss_rule;

struct gpt_loss_options {
    const char *token_weights; /* a file, or NULL */
    const char *plugin;        /* a shared library, or NULL */
    const char *plugin_args;   /* or NULL */
    int64_t vocab_size;
};

/* *rule is NULL where options ask for nothing. The file has lines of a token's
 * id and a number; '#' begins a comment. GPT_EDATA names line and field,
 * GPT_EUSAGE what is wrong with a plug-in. */
int gpt_loss_open(struct gpt_loss_rule **rule,
                  const struct gpt_loss_options *options,
                  struct gpt_err *err) GPT_MUST_USE;
void gpt_loss_close(struct gpt_loss_rule *rule); /* NULL is fine */

/* For messages: the plug-in's name, or NULL. */
const char *gpt_loss_name(const struct gpt_loss_rule *rule);

/* Appends lines of what is to be the same on all ranks: a digest of the file's
 * numbers, and the plug-in's name. NULL: a training without a rule. */
int gpt_loss_digest(const struct gpt_loss_rule *rule,
                    struct gpt_buf *lines) GPT_MUST_USE;

/* True when the rule has weights of its own. The objective is then no mean over
 * tokens, and is reported itself. */
bool gpt_loss_weighs(const struct gpt_loss_rule *rule);

/* Turns a microbatch's mask, 0 or 1 in rows->weight, into weights whose losses
 * sum to its objective. With a file: a sample counts 1 plus the numbers of its
 * input tokens, times the mean of its own unmasked losses; the objective is the
 * mean over samples. Then the plug-in may change weights. tokens (B, T+1): what
 * the rows were made of, padding is below 0. GPT_EFAIL: the plug-in reports a
 * failure, or a weight is not finite. */
int gpt_loss_weigh(const struct gpt_loss_rule *rule,
                   const struct gpt_loss_rows *rows, const int32_t *tokens,
                   struct gpt_err *err) GPT_MUST_USE;

/* For gpt_execution; NULL: the loss of a token is its cross-entropy. */
const struct gpt_token_loss *gpt_loss_of_tokens(struct gpt_loss_rule *rule);

#endif
