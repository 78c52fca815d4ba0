/* The lowest validation loss of a run, and for how long the loss has not fallen
 * below it: for --save-best and --early-stopping-patience. Both follow from the
 * losses alone and are part of the state of a checkpoint, so that a resumed run
 * decides as if it had not been stopped. */
#ifndef GPT_CMD_TRAIN_BEST_H
#define GPT_CMD_TRAIN_BEST_H

#include "base/json.h"

struct gpt_best {
    int64_t iteration; /* of the lowest loss, 0: none yet */
    double loss;
    /* The loss that counts for stopping, which a lower one must be below by the
     * least difference, and the validations since it was. */
    bool counts;
    double counted;
    int64_t waited;
};

/* Takes a loss; a NaN is no lower one. True when it is the lowest yet. */
bool gpt_best_take(struct gpt_best *best, int64_t iteration, double loss,
                   double min_delta);

cJSON *gpt_best_to_json(const struct gpt_best *best);
/* From a checkpoint's state, which may have none. */
int gpt_best_from_json(struct gpt_best *best, const cJSON *state,
                       const char *what, struct gpt_err *err) GPT_MUST_USE;

#endif
