/* Finds options with which a run fits that needs too much memory. */
#ifndef GPT_CMD_TRAIN_ADVISE_H
#define GPT_CMD_TRAIN_ADVISE_H

#include "cmd/train/plan.h"

/* What the user has to add for more ranks. Ranks on one CPU share its memory:
 * more of them have no more memory together. */
enum gpt_more_ranks {
    GPT_MORE_PLANNED,  /* a number */
    GPT_MORE_GPUS,     /* a GPU each */
    GPT_MORE_MACHINES, /* machines with as many ranks as this one */
};

struct gpt_advice_options {
    struct gpt_backend *be;
    double limit; /* bytes of memory that each rank has, of the device */
    enum gpt_more_ranks more;
    int64_t local_ranks; /* on this machine */
    bool starts;         /* ranks are started; else --world-size plans them */
};

/* Writes a sentence for gpt_hint() about the cheapest change of options, on as
 * few ranks as possible, with which every rank needs at most the limit: changes
 * that only take time, then another cut over the ranks that there are, then
 * more ranks. What is named can be added to the command line as it is. Where
 * nothing fits the sentence says so, with the least that a rank needs. `args`:
 * those that gpt_train_plan() had. */
void gpt_advise(const struct gpt_train_plan *plan, const struct gpt_args *args,
                const struct gpt_advice_options *options, char *text,
                size_t cap);

#endif
