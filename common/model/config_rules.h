/* Rules between the fields of struct gpt_config, whose ranges hold already. */
#ifndef GPT_MODEL_CONFIG_RULES_H
#define GPT_MODEL_CONFIG_RULES_H

#include "model/config.h"

/* Fails with `status`; the message names `what`, the fields and the rule. */
int gpt_config_check(const struct gpt_config *c, int status, const char *what,
                     struct gpt_err *err) GPT_MUST_USE;

#endif
