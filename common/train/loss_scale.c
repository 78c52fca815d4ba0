/* Dynamic loss scale; see loss_scale.h. Start at gpt_loss_scale_update().
 *
 * A scale that is a power of two changes exponents only, so scaling and
 * dividing again loses nothing; hence factors of 2 and 1/2. `largest` keeps a
 * scale that grows in every window from becoming infinite itself. */
#include "train/loss_scale.h"

#include <math.h>

static const float growth = 2, backoff = 0.5F, largest = 0x1p126F;

static const struct gpt_loss_scale_names plain_names = {
    .constant = "the loss scale",
    .initial = "the initial loss scale",
    .min = "the least loss scale",
    .window = "the window of the loss scale",
    .hysteresis = "the hysteresis of the loss scale",
};

int gpt_loss_scale_check(const struct gpt_loss_scale_options *o,
                         const struct gpt_loss_scale_names *names,
                         struct gpt_err *err)
{
    const struct gpt_loss_scale_names *of = names ? names : &plain_names;

    if (!isfinite(o->initial) || o->initial <= 0 || o->initial > 0x1p126)
        return gpt_fail(err, GPT_EUSAGE,
                        "%s %g is not above 0 and at most 2^126",
                        o->constant ? of->constant : of->initial, o->initial);
    if (o->constant)
        return GPT_OK;
    if (!(o->min > 0) || o->min > o->initial)
        return gpt_fail(err, GPT_EUSAGE,
                        "%s %g is not above 0 and at most %s %g", of->min,
                        o->min, of->initial, o->initial);
    if (o->window < 1)
        return gpt_fail(err, GPT_EUSAGE, "%s %lld is below 1", of->window,
                        (long long)o->window);
    if (o->hysteresis < 1)
        return gpt_fail(err, GPT_EUSAGE, "%s %lld is below 1", of->hysteresis,
                        (long long)o->hysteresis);
    return GPT_OK;
}

struct gpt_loss_scale gpt_loss_scale_new(const struct gpt_loss_scale_options *o)
{
    return (struct gpt_loss_scale){
        .o = *o,
        .scale = (float)o->initial,
        .left = o->hysteresis,
    };
}

bool gpt_loss_scale_update(struct gpt_loss_scale *s, bool finite)
{
    const float before = s->scale;

    if (s->o.constant)
        return false;
    if (!finite) {
        /* once `left` is used up every further bad step halves the scale, as in
         * the original: it is filled up only when the scale has grown again */
        s->good = 0;
        s->left--;
        if (s->left <= 0)
            s->scale = fmaxf(s->scale * backoff, (float)s->o.min);
        return s->left > 0 || s->scale < before;
    }
    s->good++;
    if (s->good < s->o.window)
        return false;
    s->good = 0;
    s->left = s->o.hysteresis;
    s->scale = fminf(s->scale * growth, largest);
    return false;
}
