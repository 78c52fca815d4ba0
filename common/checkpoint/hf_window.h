/* Windows of attention in config.json: one number, and which layers have it. */
#ifndef GPT_CHECKPOINT_HF_WINDOW_H
#define GPT_CHECKPOINT_HF_WINDOW_H

#include "base/json.h"
#include "checkpoint/hf_family.h"

/* GPT_EDATA unless "layer_types" is a list of what can be read. */
int gpt_hf_check_layer_types(const cJSON *list, const char *what,
                             struct gpt_err *err) GPT_MUST_USE;
/* Sets the window's fields. window: tokens, one's own included, 0: none;
 * layer_types NULL: the layers are those that the fields say already. */
int gpt_hf_settle_window(struct gpt_config *c, int64_t window,
                         const cJSON *layer_types, const char *what,
                         struct gpt_err *err) GPT_MUST_USE;

/* What is written: "sliding_window", and "layer_types" or NULL. */
cJSON *gpt_hf_window_value(const struct gpt_config *c,
                           const struct gpt_hf_family *family);
cJSON *gpt_hf_layer_types_value(const struct gpt_config *c);

#endif
