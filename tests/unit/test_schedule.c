/* Compares learning rate, weight decay and batch size with Megatron's;
 * refusals. */
#include "train/batch_schedule.h"
#include "train/lr_schedule.h"

#include "tests/unit/golden.h"

static void test_schedules(void)
{
    FILE *f = golden_open("tests/golden/schedule.txt");
    char line[512], style[32], wsd[32], wd[32];
    int cases = 0;

    while (golden_next(f, "schedule", line, sizeof(line))) {
        struct gpt_lr_schedule s;
        struct gpt_err err = {0};
        double at[GOLDEN_MAX], lr[GOLDEN_MAX], decay[GOLDEN_MAX];

        long long warmup, all, tail, incr;
        double worst = 0;
        if (sscanf(line, "%31s %lf %lf %lf %lld %lld %lld %31s %lf %lf %lld"
                         " %31s",
                   style, &s.max_lr, &s.min_lr, &s.init_lr, &warmup, &all,
                   &tail, wsd, &s.start_wd, &s.end_wd, &incr, wd) != 12)
            exit(1);
        s.warmup_samples = (double)warmup;
        s.decay_samples = all;
        s.wsd_decay_samples = tail;
        s.wd_incr_samples = incr;
        cases++;
        ok(gpt_lr_style_parse(style, &s.style) &&
               gpt_wsd_style_parse(wsd, &s.wsd_style) &&
               gpt_wd_style_parse(wd, &s.wd_style) &&
               gpt_lr_schedule_check(&s, NULL, &err) == GPT_OK,
           "schedule%.*s", (int)strcspn(line, "\n"), line);
        int n = golden_array(f, "samples", at);
        golden_array(f, "lr", lr);
        golden_array(f, "wd", decay);
        for (int i = 0; i < n; i++) {
            int64_t k = (int64_t)at[i];
            double a = fabs(gpt_lr_schedule_value(&s, k) - lr[i]) / s.max_lr;
            double b = fabs(gpt_lr_schedule_weight_decay(&s, k) - decay[i]);

            worst = fmax(worst, fmax(a, b));
        }
        ok(worst <= 1e-16, "%d values, worst difference %g", n, worst);
    }
    fclose(f);
    ok(cases >= 20, "%d schedules", cases);
}

/* Steps of 12 samples: a rate depends on the number of the step alone. */
static void test_warmups(void)
{
    FILE *f = golden_open("tests/golden/warmup.txt");
    char line[256], style[32], warmup[32];
    int cases = 0;

    while (golden_next(f, "warmup", line, sizeof(line))) {
        struct gpt_lr_schedule s = {.max_lr = 6e-4, .decay_samples = 40 * 12,
                                    .step_samples = 12};
        struct gpt_err err = {0};
        double want[GOLDEN_MAX], worst = 0;
        long long steps;

        if (sscanf(line, "%31s %lld %31s %lf", style, &steps, warmup,
                   &s.init_lr) != 4)
            exit(1);
        s.warmup_samples = (double)(12 * steps);
        ok(gpt_lr_style_parse(style, &s.style) &&
               gpt_lr_warmup_parse(warmup, &s.warmup) &&
               gpt_lr_schedule_check(&s, NULL, &err) == GPT_OK,
           "warm-up%.*s", (int)strcspn(line, "\n"), line);
        const int n = golden_array(f, "lr", want);
        for (int i = 0; i < n; i++)
            for (int k = 0; k < 12; k += 11)
                worst = fmax(worst,
                             fabs(gpt_lr_schedule_value(&s, 12 * i + k) -
                                  want[i]) / s.max_lr);
        ok(worst <= 4e-16, "%d values, worst difference %g", n, worst);
        cases++;
    }
    fclose(f);
    is_int(cases, 24, "warm-ups");
}

/* A tenth of 36 samples, as Megatron-LM multiplies: it does not round. */
static void test_share(void)
{
    const struct gpt_lr_schedule s = {.style = GPT_LR_LINEAR, .max_lr = 1,
                                      .warmup_samples = 0.1 * 36,
                                      .decay_samples = 36};

    ok(fabs(gpt_lr_schedule_value(&s, 3) - 3 / 3.6) < 1e-15, "before its end");
    ok(fabs(gpt_lr_schedule_value(&s, 4) - 32 / 32.4) < 1e-15, "after it");
}

/* Batches are counted as if one by one, also from inside the ramp-up. */
static void test_count(const struct gpt_rampup *r, int64_t samples)
{
    int64_t steps = 0, at = 0, wrong = 0;

    for (;; steps++) {
        const int64_t now = gpt_rampup_global_batch(r, at);

        if (at + now > samples)
            break;
        at += now;
    }
    for (int64_t from = 0, done = 0; done <= steps; done++) {
        int64_t end = from;

        wrong += gpt_rampup_count(r, samples, &end) != steps - done ||
                 end != at;
        from += gpt_rampup_global_batch(r, from);
    }
    is_int(wrong, 0, "%lld batches", (long long)steps);
}

/* What Megatron-LM's class makes of these, of 2048 tokens a sample. */
static void test_steps(void)
{
    struct gpt_rampup r = {0};
    struct gpt_err err = {0};
    static const int64_t rows[][2] = {
        {0, 24}, {732, 24}, {733, 8}, {488280, 8}, {488281, 48},
        {976561, 48}, {976562, 24}, {INT64_MAX, 24},
    };
    static const char *const wrong[] = {
        "2048:8", "0", "0:", ":8", "0:8x", "0:8 2047:8", "-1:8", "0:0", "0:nan",
        "0:1e30", "0:8:8", "0:0.5", "",
    };

    is_int(gpt_batch_steps_add(&r, " 1b:48,0:24 ", 2048, "S", &err), GPT_OK,
           "steps in any order");
    is_int(gpt_batch_steps_add(&r, "1.5023M:8\t2B:2.4e1", 2048, "S", &err),
           GPT_OK, "and of several words");
    is_int(gpt_batch_steps_sort(&r, "S", &err), GPT_OK, "sorted");
    is_int(r.global_batch, 48, "the largest");
    for (size_t i = 0; i < GPT_COUNT(rows); i++)
        is_int(gpt_rampup_global_batch(&r, rows[i][0]), rows[i][1],
               "after %lld samples", (long long)rows[i][0]);
    is_int(gpt_rampup_check(&r, 8, NULL, &err), GPT_OK, "multiples of 8");
    is_int(gpt_rampup_check(&r, 16, NULL, &err), GPT_EUSAGE, "not of 16");
    test_count(&r, 1000000);
    for (size_t i = 0; i < GPT_COUNT(wrong); i++) {
        r = (struct gpt_rampup){0};
        int status = gpt_batch_steps_add(&r, wrong[i], 2048, "S", &err);

        if (status == GPT_OK)
            status = gpt_batch_steps_sort(&r, "S", &err);
        is_int(status, GPT_EUSAGE, "'%s' is refused", wrong[i]);
    }
}

/* The time does not grow with the samples. */
static void test_long_rampup(void)
{
    const struct gpt_rampup r = {.start = 1, .increment = 1,
                                 .samples = (int64_t)1 << 50,
                                 .global_batch = 4};
    int64_t end = 0;

    ok(gpt_rampup_count(&r, (int64_t)1 << 50, &end) > (int64_t)1 << 48 &&
           end <= (int64_t)1 << 50,
       "a ramp-up of 2^50 samples");
}

static void test_rampups(void)
{
    FILE *f = golden_open("tests/golden/schedule.txt");
    char line[256];
    int cases = 0;

    while (golden_next(f, "rampup", line, sizeof(line))) {
        double at[GOLDEN_MAX], want[GOLDEN_MAX];

        long long start, increment, samples, full;
        struct gpt_err err = {0};
        int wrong = 0;
        if (sscanf(line, "%lld %lld %lld %lld", &start, &increment, &samples,
                   &full) != 4)
            exit(1);
        const struct gpt_rampup r = {start, increment, samples, full, 0, {{0}}};
        is_int(gpt_rampup_check(&r, 1, NULL, &err), GPT_OK,
               "ramp-up %lld to %lld", start, full);
        int n = golden_array(f, "consumed", at);
        golden_array(f, "batch", want);
        for (int i = 0; i < n; i++)
            wrong += gpt_rampup_global_batch(&r, (int64_t)at[i]) !=
                     (int64_t)want[i];
        is_int(wrong, 0, "%d values", n);
        test_count(&r, samples + 5 * full);
        cases++;
    }
    fclose(f);
    is_int(cases, 4, "ramp-ups");

    const struct gpt_rampup none = {.global_batch = 64};
    const struct gpt_rampup at_once = {
        .start = 8, .increment = 8, .global_batch = 64};
    is_int(gpt_rampup_global_batch(&none, 0), 64, "no ramp-up");
    is_int(gpt_rampup_global_batch(&at_once, 0), 64, "over no samples");
}

static void test_refused(void)
{
    static const struct gpt_lr_schedule fine = {
        .style = GPT_LR_COSINE, .max_lr = 1e-3, .min_lr = 1e-4,
        .warmup_samples = 10, .decay_samples = 100, .start_wd = 0.1,
        .end_wd = 0.1};
    struct gpt_lr_schedule s;
    struct gpt_err err = {0};

#define REFUSED(field, value)                               \
    do {                                                    \
        s = fine;                                           \
        s.field = (value);                                  \
        is_int(gpt_lr_schedule_check(&s, NULL, &err), GPT_EUSAGE, \
               "refused: " #field " " #value);              \
    } while (0)
    s = fine;
    is_int(gpt_lr_schedule_check(&s, NULL, &err), GPT_OK, "a fine schedule");
    REFUSED(min_lr, -1);
    REFUSED(min_lr, 2e-3);
    REFUSED(max_lr, (double)NAN);
    REFUSED(init_lr, 1);
    REFUSED(init_lr, -1);
    REFUSED(warmup_samples, 100);
    REFUSED(warmup_samples, -1);
    REFUSED(warmup_samples, (double)NAN);
    REFUSED(decay_samples, 0);
    REFUSED(style, GPT_LR_WSD); /* without a tail */
    REFUSED(start_wd, -1);
    REFUSED(end_wd, 0.05);
    REFUSED(end_wd, 0.2); /* constant, but not */
    REFUSED(wd_style, GPT_WD_LINEAR); /* over no samples */
#undef REFUSED

    static const struct {
        int64_t r[4];
        int64_t multiple;
        int status;
    } rows[] = {
        {{16, 8, 100, 64}, 8, GPT_OK},     {{0, 0, 0, 64}, 8, GPT_OK},
        {{0, 0, 0, 60}, 8, GPT_EUSAGE},    {{16, 9, 100, 64}, 1, GPT_EUSAGE},
        {{65, 1, 100, 64}, 1, GPT_EUSAGE}, {{16, 4, 100, 64}, 8, GPT_EUSAGE},
        {{12, 4, 100, 64}, 8, GPT_EUSAGE}, {{-8, 8, 100, 64}, 8, GPT_EUSAGE},
        {{16, 0, 100, 64}, 8, GPT_EUSAGE}, {{16, 8, -1, 64}, 8, GPT_EUSAGE},
        {{0, 0, 0, 0}, 8, GPT_EUSAGE},
    };
    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        const struct gpt_rampup r = {
            .start = rows[i].r[0], .increment = rows[i].r[1],
            .samples = rows[i].r[2], .global_batch = rows[i].r[3],
        };

        is_int(gpt_rampup_check(&r, rows[i].multiple, NULL, &err),
               rows[i].status, "ramp-up row %zu", i);
    }

    enum gpt_lr_style a;
    enum gpt_wsd_style b;
    enum gpt_wd_style c;
    ok(!gpt_lr_style_parse("wsd", &a) && !gpt_wsd_style_parse("sqrt", &b) &&
           !gpt_wd_style_parse("", &c),
       "unknown styles");
}

int main(void)
{
    test_schedules();
    test_warmups();
    test_share();
    test_rampups();
    test_steps();
    test_long_rampup();
    test_refused();
    return tap_done();
}
