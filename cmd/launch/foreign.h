/* The options of gpt-launch by the names of torchrun, accelerate and others. */
#ifndef GPT_CMD_LAUNCH_FOREIGN_H
#define GPT_CMD_LAUNCH_FOREIGN_H

#include "base/options.h"

extern const struct gpt_foreign_option gpt_launch_foreign[];
extern const size_t gpt_launch_n_foreign;
/* More names, which are answered alone. */
extern const struct gpt_foreign_option gpt_launch_hints[];
extern const size_t gpt_launch_n_hints;

#endif
