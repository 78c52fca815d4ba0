/* A loss plug-in (gpt_loss.h): the focal loss (1 - p)^G * nll of Lin et al. 2017,
 * where p = exp(-nll) is the probability of the token. Tokens that the model
 * knows count less. --loss-plugin-args G, 2 by default. */
#include "gpt_loss.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int focal_open(void **state, const char *args, char *message,
                      size_t room)
{
    double *gamma = malloc(sizeof(*gamma));
    char *end;

    if (!gamma) {
        snprintf(message, room, "out of memory");
        return 1;
    }
    *gamma = *args ? strtod(args, &end) : 2;
    if (*args && (*end || !(*gamma >= 0))) {
        snprintf(message, room, "'%s' is not a number >= 0", args);
        free(gamma);
        return 1;
    }
    *state = gamma;
    return 0;
}

static void focal_close(void *state)
{
    free(state);
}

static int focal_losses(void *state, const struct gpt_loss_tokens *t,
                        char *message, size_t room)
{
    const double gamma = *(const double *)state;

    (void)message;
    (void)room;
    for (int64_t i = 0; i < t->n; i++) {
        const double nll = t->nll[i], rest = -expm1(-nll); /* 1 - p */
        const double factor = pow(rest, gamma);

        t->loss[i] = (float)(factor * nll);
        /* d/dnll of (1 - exp(-nll))^G nll; 0 / 0 where p is 1 */
        t->slope[i] = (float)(factor +
                              (rest > 0 ? gamma * factor / rest * (1 - rest) *
                                              nll
                                        : 0));
    }
    return 0;
}

const struct gpt_loss *gpt_loss_plugin(void)
{
    static const struct gpt_loss focal = {
        .abi = GPT_LOSS_ABI,
        .name = "focal loss",
        .open = focal_open,
        .close = focal_close,
        .losses = focal_losses,
    };

    return &focal;
}
