/* The lowest loss; see best.h. There are two comparisons. A checkpoint is the
 * best one when its loss is lower by whatever little; a run goes on when the
 * loss is lower by the least difference that its user cares for. The second is
 * against the loss that was counted last, and not against the lowest, so that
 * many small steps down count together. */
#include "cmd/train/best.h"

#include <math.h>

/* A loss that is no number waits as one that is not lower. */
bool gpt_best_take(struct gpt_best *b, int64_t iteration, double loss,
                   double min_delta)
{
    const bool lowest =
        isfinite(loss) && (b->iteration == 0 || loss < b->loss);

    if (lowest) {
        b->iteration = iteration;
        b->loss = loss;
    }
    if (isfinite(loss) && (!b->counts || loss < b->counted - min_delta)) {
        b->counts = true;
        b->counted = loss;
        b->waited = 0;
    } else {
        b->waited++;
    }
    return lowest;
}

/* Numbers are printed with all digits: the comparison after a resume is that of
 * the same doubles. A loss that was not counted yet is 0 and not a NaN, which
 * JSON lacks. */
cJSON *gpt_best_to_json(const struct gpt_best *b)
{
    cJSON *json = cJSON_CreateObject();

    cJSON_AddNumberToObject(json, "iteration", (double)b->iteration);
    cJSON_AddNumberToObject(json, "loss", b->loss);
    cJSON_AddNumberToObject(json, "counted", b->counted);
    cJSON_AddBoolToObject(json, "counts", b->counts);
    cJSON_AddNumberToObject(json, "waited", (double)b->waited);
    return json;
}

/* A run that did not compare losses has nothing there, and begins now. */
int gpt_best_from_json(struct gpt_best *b, const cJSON *state, const char *what,
                       struct gpt_err *err)
{
    const cJSON *json = cJSON_GetObjectItemCaseSensitive(state, "best");

    *b = (struct gpt_best){.iteration = 0};
    if (!json)
        return GPT_OK;
    GPT_TRY(gpt_json_int(json, "iteration", 0, GPT_JSON_EXACT, &b->iteration,
                         what, err));
    GPT_TRY(gpt_json_real_or(json, "loss", 0, &b->loss, what, err));
    GPT_TRY(gpt_json_real_or(json, "counted", 0, &b->counted, what, err));
    GPT_TRY(gpt_json_bool_or(json, "counts", false, &b->counts, what, err));
    return gpt_json_int(json, "waited", 0, GPT_JSON_EXACT, &b->waited, what,
                        err);
}
