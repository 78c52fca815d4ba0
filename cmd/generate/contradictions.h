/* Options of choosing tokens that contradict each other. */
#ifndef GPT_CMD_GENERATE_CONTRADICTIONS_H
#define GPT_CMD_GENERATE_CONTRADICTIONS_H

#include "cmd/generate/options.h"

/* GPT_EUSAGE names an option that draws among several tokens beside --greedy.
 * Both must come from the same place: --greedy on the command line overrides
 * what a file sets. */
int gpt_contradictions_check(const struct gpt_generate_options *o,
                             const struct gpt_args *args,
                             struct gpt_err *err) GPT_MUST_USE;

#endif
