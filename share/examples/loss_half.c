/* A loss plug-in (gpt_loss.h) that chooses weights: the first N tokens of a row
 * count half, as they have little to go by. --loss-plugin-args N, 8 by default.
 * Weights that sum to 1 make a mean. */
#include "gpt_loss.h"

#include <stdlib.h>

static int64_t first = 8;

static int half_open(void **state, const char *args, char *message, size_t room)
{
    (void)message;
    (void)room;
    *state = NULL;
    if (*args)
        first = strtoll(args, NULL, 10);
    return 0;
}

static int half_weigh(void *state, const struct gpt_loss_rows *rows,
                      char *message, size_t room)
{
    double sum = 0;

    (void)state;
    (void)message;
    (void)room;
    for (int64_t i = 0; i < rows->samples * rows->length; i++) {
        if (i % rows->length < first)
            rows->weight[i] *= 0.5F;
        sum += rows->weight[i];
    }
    for (int64_t i = 0; sum > 0 && i < rows->samples * rows->length; i++)
        rows->weight[i] = (float)(rows->weight[i] / sum);
    return 0;
}

const struct gpt_loss *gpt_loss_plugin(void)
{
    static const struct gpt_loss half = {
        .abi = GPT_LOSS_ABI,
        .name = "half of the first tokens",
        .open = half_open,
        .weigh = half_weigh,
    };

    return &half;
}
