/* Validation sets with names (--valid-set, --multiple-validation-sets): corpora
 * beside that of the run, with its rules of samples. */
#ifndef GPT_CMD_TRAIN_VALID_SETS_H
#define GPT_CMD_TRAIN_VALID_SETS_H

#include "base/memory.h"
#include "cmd/train/plan.h"

struct gpt_valid_set {
    const char *name;
    struct gpt_corpus *corpus; /* its GPT_VALID split is the set */
};

struct gpt_valid_sets { /* start with all zero */
    struct gpt_valid_set *items; /* (n) */
    int64_t n;
    struct gpt_arena arena;
};

/* Bytes of memory that follow from the plan alone, before they are opened:
 * gpt_corpus_predict() of all of them. */
int gpt_valid_sets_predict(int64_t *bytes, const struct gpt_train_plan *plan,
                           struct gpt_err *err) GPT_MUST_USE;

/* Opens them; none without a validation. `first`: this rank reports. Errors are
 * those of the other data sets, and name the set. */
int gpt_valid_sets_open(struct gpt_valid_sets *sets,
                        const struct gpt_train_plan *plan, bool first,
                        struct gpt_err *err) GPT_MUST_USE;
void gpt_valid_sets_close(struct gpt_valid_sets *sets);

#endif
