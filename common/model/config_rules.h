/* What completes and checks a struct gpt_config, for the files that read it. */
#ifndef GPT_MODEL_CONFIG_RULES_H
#define GPT_MODEL_CONFIG_RULES_H

#include "model/config.h"

/* Every field is within its range; GPT_EUSAGE names field, value and limits. */
int gpt_config_check_ranges(const struct gpt_config *c,
                            struct gpt_err *err) GPT_MUST_USE;

/* Sets what changes nothing to 0, so that one model has one description. */
void gpt_config_settle(struct gpt_config *c);

/* The rules between fields, whose ranges hold already. Fails with `status`; the
 * message names `what`, the fields and the rule. */
int gpt_config_check(const struct gpt_config *c, int status, const char *what,
                     struct gpt_err *err) GPT_MUST_USE;

#endif
