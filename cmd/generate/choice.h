/* Options that say how tokens are chosen, and contradict each other. */
#ifndef GPT_CMD_GENERATE_CHOICE_H
#define GPT_CMD_GENERATE_CHOICE_H

#include "base/options.h"

/* What the options of these names have. */
struct gpt_choice {
    bool greedy;
    int64_t top_k;
    double top_p, temperature;
};

/* GPT_EUSAGE names an option that draws among several tokens beside --greedy.
 * Both must come from the same place: --greedy on the command line overrides
 * what a file sets. */
int gpt_choice_check(const struct gpt_choice *choice,
                     const struct gpt_args *args,
                     struct gpt_err *err) GPT_MUST_USE;

#endif
