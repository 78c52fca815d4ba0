/* Batch sizes by samples; see batch_schedule.h. Start at
 * gpt_rampup_global_batch(). */
#include "train/batch_schedule.h"

#include "base/num.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- a schedule of steps ---- */

/* A number with a suffix, as Megatron-LM reads it: below 0, or beyond what an
 * integer of a file holds, is none. */
static bool parse_count(const char *text, size_t len, int64_t *out)
{
    static const struct {
        char letter;
        double times;
    } suffixes[] = {{'K', 1e3}, {'M', 1e6}, {'B', 1e9}, {'T', 1e12}};
    char word[40];
    double value, times = 1;

    for (size_t i = 0; i < GPT_COUNT(suffixes) && len > 0; i++)
        if ((text[len - 1] & ~0x20) == suffixes[i].letter) {
            times = suffixes[i].times;
            len--;
            break;
        }
    if (len == 0 || len >= sizeof(word))
        return false;
    memcpy(word, text, len);
    word[len] = '\0';
    if (!gpt_parse_real(word, &value) || !(value >= 0) ||
        value * times > (double)((int64_t)1 << 50))
        return false;
    *out = (int64_t)(value * times);
    return true;
}

static int add_step(struct gpt_rampup *r, const char *word, size_t len,
                    int64_t seq_length, const char *name, struct gpt_err *err)
{
    const char *colon = memchr(word, ':', len);
    const int shown = (int)(len < 60 ? len : 60);
    struct gpt_batch_step step;

    if (r->n_steps == GPT_BATCH_STEPS)
        return gpt_fail(err, GPT_EUSAGE, "%s has more than %d steps", name,
                        GPT_BATCH_STEPS);
    if (!colon ||
        !parse_count(word, (size_t)(colon - word), &step.first_sample) ||
        !parse_count(colon + 1, (size_t)(word + len - colon - 1),
                     &step.batch) ||
        step.batch < 1 || step.batch > GPT_BATCH_LARGEST) {
        gpt_fail(err, GPT_EUSAGE, "%s: '%.*s' is no step", name, shown, word);
        return gpt_hint(err, "a step is TOKENS:BATCH, as 0:768 or 250B:1536; "
                        "a batch has 1 to %d samples", GPT_BATCH_LARGEST);
    }
    step.first_sample /= seq_length;
    r->steps[r->n_steps++] = step;
    return GPT_OK;
}

int gpt_batch_steps_add(struct gpt_rampup *r, const char *text,
                        int64_t seq_length, const char *name,
                        struct gpt_err *err)
{
    static const char between[] = " ,\t\n";

    for (const char *at = text + strspn(text, between); *at;) {
        const size_t len = strcspn(at, between);

        GPT_TRY(add_step(r, at, len, seq_length, name, err));
        at += len;
        at += strspn(at, between);
    }
    return GPT_OK;
}

static int by_sample(const void *a, const void *b)
{
    const struct gpt_batch_step *x = a, *y = b;

    return (x->first_sample > y->first_sample) -
           (x->first_sample < y->first_sample);
}

int gpt_batch_steps_sort(struct gpt_rampup *r, const char *name,
                         struct gpt_err *err)
{
    if (r->n_steps == 0)
        return gpt_fail(err, GPT_EUSAGE, "%s has no step", name);
    qsort(r->steps, (size_t)r->n_steps, sizeof(r->steps[0]), by_sample);
    if (r->steps[0].first_sample != 0) {
        gpt_fail(err, GPT_EUSAGE, "%s: the first step begins at sample %" PRId64
                 ", not at 0", name, r->steps[0].first_sample);
        return gpt_hint(err, "add a step 0:BATCH");
    }
    r->global_batch = 0;
    for (int i = 0; i < r->n_steps; i++) {
        if (i > 0 && r->steps[i].first_sample == r->steps[i - 1].first_sample)
            return gpt_fail(err, GPT_EUSAGE,
                            "%s: two steps, of %" PRId64 " and of %" PRId64
                            ", begin at sample %" PRId64, name,
                            r->steps[i - 1].batch, r->steps[i].batch,
                            r->steps[i].first_sample);
        r->global_batch = gpt_max_i64(r->global_batch, r->steps[i].batch);
    }
    return GPT_OK;
}

static int check_steps(const struct gpt_rampup *r, int64_t multiple,
                       const char *name, struct gpt_err *err)
{
    for (int i = 0; i < r->n_steps; i++)
        if (r->steps[i].batch % multiple != 0)
            return gpt_fail(err, GPT_EUSAGE,
                            "%s: the batch of %" PRId64 " must be a multiple "
                            "of micro batch * data parallel size = %" PRId64,
                            name, r->steps[i].batch, multiple);
    return GPT_OK;
}

/* The step that a sample is in. */
static int step_of(const struct gpt_rampup *r, int64_t sample)
{
    int i = r->n_steps - 1;

    while (i > 0 && r->steps[i].first_sample > sample)
        i--;
    return i;
}

/* ---- a ramp-up ---- */

int gpt_rampup_check(const struct gpt_rampup *r, int64_t multiple,
                     const struct gpt_rampup_names *names,
                     struct gpt_err *err)
{
    const char *batch = names ? names->global_batch : "the global batch size";
    const char *rampup = names ? names->rampup : "the ramp-up of the batch";

    if (r->n_steps > 0)
        return check_steps(r, multiple,
                           names ? names->steps : "the schedule of the batch",
                           err);
    if (r->global_batch <= 0 || r->global_batch % multiple != 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "%s is %" PRId64
                        ", must be a multiple of micro batch * data parallel"
                        " size = %" PRId64, batch, r->global_batch, multiple);
    if (r->start == 0)
        return GPT_OK;
    if (r->start < 0 || r->increment <= 0 || r->samples < 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "%s is %" PRId64 " %" PRId64 " %" PRId64
                        ": start and increment must be > 0, samples >= 0",
                        rampup, r->start, r->increment, r->samples);
    if (r->start > r->global_batch ||
        (r->global_batch - r->start) % r->increment != 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "%s: steps of %" PRId64 " do not lead from %" PRId64
                        " to %s %" PRId64, rampup, r->increment, r->start,
                        batch, r->global_batch);
    /* Every size on the way must divide over the ranks, so the start and each
     * step must. */
    if (r->start % multiple != 0 || r->increment % multiple != 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "%s: start %" PRId64 " and increment %" PRId64
                        " must be multiples of micro batch * data parallel"
                        " size = %" PRId64, rampup, r->start, r->increment,
                        multiple);
    return GPT_OK;
}

/* Samples between two increments: a quotient that need not be whole. */
static double distance(const struct gpt_rampup *r)
{
    const int64_t n = (r->global_batch - r->start) / r->increment;

    return (double)r->samples / (double)n;
}

/* Increments so far. They are truncated after the division, as in the original,
 * so that the same sample begins a new batch size. */
static int64_t increments(const struct gpt_rampup *r, int64_t sample)
{
    return (int64_t)((double)sample / distance(r));
}

/* With `samples` 0 the distance would be 0 and the quotient undefined; the
 * ramp-up is then over before it begins. */
static bool is_over(const struct gpt_rampup *r, int64_t sample)
{
    return r->start == 0 || r->start == r->global_batch ||
           sample > r->samples || r->samples == 0;
}

int64_t gpt_rampup_global_batch(const struct gpt_rampup *r,
                                int64_t consumed_samples)
{
    if (r->n_steps > 0)
        return r->steps[step_of(r, consumed_samples)].batch;
    if (is_over(r, consumed_samples))
        return r->global_batch;
    const int64_t steps = increments(r, consumed_samples);
    return gpt_min_i64(r->start + steps * r->increment, r->global_batch);
}

/* ---- how many batches ---- */

/* The first sample after `sample` at which the size is another one, or may be;
 * INT64_MAX: there is none. The product is near the quotient's limit, which
 * alone decides. */
static int64_t next_change(const struct gpt_rampup *r, int64_t sample)
{
    if (r->n_steps > 0) {
        const int next = step_of(r, sample) + 1;

        return next < r->n_steps ? r->steps[next].first_sample : INT64_MAX;
    }
    if (is_over(r, sample))
        return INT64_MAX;
    const int64_t reached = increments(r, sample);
    int64_t at = (int64_t)((double)(reached + 1) * distance(r));

    at = gpt_max_i64(at, sample + 1);
    while (at > sample + 1 && increments(r, at - 1) > reached)
        at--;
    while (increments(r, at) == reached && at <= r->samples)
        at++;
    return gpt_min_i64(at, r->samples + 1);
}

int64_t gpt_rampup_count(const struct gpt_rampup *r, int64_t samples,
                         int64_t *consumed_samples)
{
    int64_t at = *consumed_samples, batches = 0;

    while (at < samples) {
        const int64_t batch = gpt_rampup_global_batch(r, at);
        const int64_t until = gpt_min_i64(next_change(r, at), samples);
        const int64_t n = gpt_min_i64((until - at - 1) / batch + 1,
                                      (samples - at) / batch);

        if (n == 0)
            break;
        at += n * batch;
        batches += n;
    }
    *consumed_samples = at;
    return batches;
}
