/* The options of gpt-reshape by the names of accelerate's converter. */
#ifndef GPT_CMD_RESHAPE_FOREIGN_H
#define GPT_CMD_RESHAPE_FOREIGN_H

#include "base/options.h"

extern const struct gpt_foreign_option gpt_reshape_foreign[];
extern const size_t gpt_reshape_n_foreign;
/* More names, which are answered alone. */
extern const struct gpt_foreign_option gpt_reshape_hints[];
extern const size_t gpt_reshape_n_hints;

#endif
