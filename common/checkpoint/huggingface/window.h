/* Windows of attention in config.json: one number, and which layers have it. */
#ifndef GPT_CHECKPOINT_HF_WINDOW_H
#define GPT_CHECKPOINT_HF_WINDOW_H

#include "base/json.h"
#include "checkpoint/huggingface/family.h"

/* GPT_EDATA unless "layer_types" is a list of what can be read. */
int gpt_hf_check_layer_types(const cJSON *list, const char *what,
                             struct gpt_err *err) GPT_MUST_USE;
/* GPT_EDATA unless it is a list of "attention", or of its newer name: a layer
 * of another kind is one of a hybrid model. */
int gpt_hf_check_attention(const cJSON *list, const char *key,
                           const char *what, struct gpt_err *err) GPT_MUST_USE;
/* Makes such a list, the caller's, of [[["global", "local"], 6], ...], where
 * each entry is names and how often they follow each other. */
int gpt_hf_expand_pattern(cJSON **list, const cJSON *pattern, const char *key,
                          const char *what, struct gpt_err *err) GPT_MUST_USE;
/* Sets the window's fields, and those of layers that turn by it. window:
 * tokens, one's own included, 0: none; layer_types NULL: the layers are those
 * that the fields say already. */
int gpt_hf_settle_window(struct gpt_config *c,
                         const struct gpt_hf_family *family, int64_t window,
                         const cJSON *layer_types, const char *what,
                         struct gpt_err *err) GPT_MUST_USE;

/* Layers (model/layer_list.h) from a number, or unchanged from a text or null;
 * and no_rope_freq from a list with 1 for each layer that turns. */
int gpt_hf_read_every(int64_t *layers, const cJSON *item, const char *key,
                      const char *what, struct gpt_err *err) GPT_MUST_USE;
int gpt_hf_read_turns(struct gpt_config *c, const cJSON *list, const char *key,
                      const char *what, struct gpt_err *err) GPT_MUST_USE;

/* What is written: "sliding_window", and "layer_types" or NULL. */
cJSON *gpt_hf_window_value(const struct gpt_config *c,
                           const struct gpt_hf_family *family);
cJSON *gpt_hf_layer_types_value(const struct gpt_config *c,
                                const struct gpt_hf_family *family);
/* The reverse of gpt_hf_expand_pattern(). */
cJSON *gpt_hf_pattern_value(const struct gpt_config *c);
/* NULL for a list of layers, which has no number. */
cJSON *gpt_hf_every_value(int64_t layers);
cJSON *gpt_hf_turns_value(const struct gpt_config *c);

#endif
