/* What a model asks of a backend that not every one computes. Both ways into a
 * model, stage.h and decode.h, ask here before they take memory. */
#ifndef GPT_MODEL_ABILITIES_H
#define GPT_MODEL_ABILITIES_H

#include "backend.h"
#include "model/config.h"

/* What the model's positions add to scores. */
enum gpt_alibi gpt_alibi_of(const struct gpt_config *c);

/* GPT_EDEVICE names the first field of the model that the backend does not
 * compute, in texts of `length` tokens. */
int gpt_abilities_check(const struct gpt_config *c, int64_t length,
                        const struct gpt_backend *be,
                        struct gpt_err *err) GPT_MUST_USE;

/* Warns, with the reason, when the attention of the model runs far below what
 * the device can do. No error: the result is right, and a small model may well
 * be trained so. */
void gpt_abilities_warn(const struct gpt_config *c, enum gpt_dtype act,
                        const struct gpt_backend *be);

#endif
