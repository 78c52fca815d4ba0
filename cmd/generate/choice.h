/* How tokens are chosen, and where a text ends: the options, for a model and
 * its tokenizer. */
#ifndef GPT_CMD_GENERATE_CHOICE_H
#define GPT_CMD_GENERATE_CHOICE_H

#include "cmd/generate/loaded_model.h"

struct gpt_chosen_rules {
    struct gpt_choice choice;
    uint64_t seed;
    /* what the choice borrows */
    int32_t ends[GPT_LOADED_ENDS];
    struct gpt_bias *bias; /* freed with gpt_free() */
};

/* GPT_EUSAGE for options that contradict each other or name a token that the
 * model does not have. The model outlives the rules, which must not move. */
int gpt_choose_rules(struct gpt_chosen_rules *rules, const struct gpt_loaded *m,
                     struct gpt_err *err) GPT_MUST_USE;

#endif
