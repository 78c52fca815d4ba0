/* Compares loss scales with Megatron's; refusals. */
#include "train/loss_scale.h"

#include "tests/unit/golden.h"

static void golden(void)
{
    FILE *f = golden_open("tests/golden/loss_scale.txt");
    char line[256];
    int cases = 0;

    while (golden_next(f, "scaler", line, sizeof(line))) {
        struct gpt_loss_scale_options o = {.constant = false};
        struct gpt_err err;
        double bad[GOLDEN_MAX], want[GOLDEN_MAX];

        long long window, hysteresis;
        int wrong = 0;
        if (sscanf(line, "%lf %lf %lld %lld", &o.initial, &o.min, &window,
                   &hysteresis) != 4)
            exit(1);
        o.window = window;
        o.hysteresis = hysteresis;
        is_int(gpt_loss_scale_check(&o, NULL, &err), GPT_OK, "scaler%.*s",
               (int)strcspn(line, "\n"), line);
        struct gpt_loss_scale s = gpt_loss_scale_new(&o);
        int n = golden_array(f, "bad", bad);
        golden_array(f, "scale", want);
        for (int i = 0; i < n; i++) {
            gpt_loss_scale_update(&s, bad[i] == 0);
            wrong += (double)s.scale != want[i];
        }
        is_int(wrong, 0, "%d steps", n);
        cases++;
    }
    fclose(f);
    is_int(cases, 7, "scalers");
}

static void refused(void)
{
    static const struct {
        struct gpt_loss_scale_options o;
        const char *names;
    } rows[] = {
        {{0, 1, 1000, 2, false}, "--initial-loss-scale 0"},
        {{-1, 1, 1000, 2, true}, "--loss-scale -1"},
        {{1e300, 1, 1000, 2, false}, "--initial-loss-scale 1e+300"},
        {{16, 0, 1000, 2, false}, "--min-loss-scale 0"},
        {{16, 32, 1000, 2, false}, "--min-loss-scale 32"},
        {{16, 1, 0, 2, false}, "--loss-scale-window 0"},
        {{16, 1, 1000, 0, false}, "--hysteresis 0"},
    };

    static const struct gpt_loss_scale_names names = {
        .constant = "--loss-scale",
        .initial = "--initial-loss-scale",
        .min = "--min-loss-scale",
        .window = "--loss-scale-window",
        .hysteresis = "--hysteresis",
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        struct gpt_err err;

        ok(gpt_loss_scale_check(&rows[i].o, &names, &err) == GPT_EUSAGE &&
               strstr(err.text, rows[i].names),
           "refused: %s", rows[i].names);
    }
}

static void constant(void)
{
    struct gpt_loss_scale_options o = {.initial = 128, .constant = true};
    struct gpt_err err;

    is_int(gpt_loss_scale_check(&o, NULL, &err), GPT_OK, "a constant scale");
    struct gpt_loss_scale s = gpt_loss_scale_new(&o);
    int blamed = 0;
    for (int i = 0; i < 5000; i++)
        blamed += gpt_loss_scale_update(&s, i % 2 == 0);
    ok(s.scale == 128, "stays");
    is_int(blamed, 0, "and is not why gradients are not finite");
}

/* A bad step is the scale's as long as it can still fall. */
static void blame(void)
{
    const struct gpt_loss_scale_options o = {4, 2, 1000, 2, false};
    static const bool blamed[] = {true, true, false, false};
    struct gpt_loss_scale s = gpt_loss_scale_new(&o);

    ok(!gpt_loss_scale_update(&s, true), "a good step needs no reason");
    for (size_t i = 0; i < GPT_COUNT(blamed); i++)
        is_int(gpt_loss_scale_update(&s, false), blamed[i],
               "bad step %zu, scale %g", i, (double)s.scale);
}

int main(void)
{
    golden();
    refused();
    constant();
    blame();
    return tap_done();
}
