/* Schedules as pictures: text exactly, the SVG by its parts. */
#include "parallel/timeline.h"

#include "tests/lib/must.h"
#include "tests/lib/tap.h"

struct drawn {
    struct gpt_pipeline_plan plans[8];
    struct gpt_interval *times[8];
    struct gpt_timeline t;
};

static void simulate(struct drawn *d, int64_t stages, int64_t chunks, int64_t m,
                     double forward, double backward, double transfer)
{
    struct gpt_err err;
    struct gpt_pipeline_plan_result result;

    for (int64_t s = 0; s < stages; s++) {
        must(gpt_pipeline_plan_build(&d->plans[s], stages, chunks, m, s, &err),
             &err);
        must(gpt_new(&d->times[s], (size_t)d->plans[s].n, sizeof(**d->times),
                     "intervals", &err),
             &err);
    }
    d->t = (struct gpt_timeline){
        .plans = d->plans,
        .times = (const struct gpt_interval *const *)d->times,
        .stages = stages,
        .chunks = chunks,
        .microbatches = m,
        .column = 1,
    };
    const struct gpt_pipeline_plan_costs costs = {
        .forward = forward, .backward = backward, .transfer = transfer};
    must(gpt_pipeline_plan_simulate(d->plans, stages, &costs, d->times, &result,
                                    &err),
         &err);
    d->t.total = result.total;
}

static void release(struct drawn *d)
{
    for (int64_t s = 0; s < d->t.stages; s++) {
        gpt_free(d->times[s]);
        gpt_pipeline_plan_free(&d->plans[s]);
    }
}

static void text_is(int64_t stages, int64_t chunks, int64_t m, double forward,
                    double backward, double transfer, const char *want)
{
    struct gpt_buf out = {0};
    struct drawn d;

    simulate(&d, stages, chunks, m, forward, backward, transfer);
    ok(gpt_timeline_text(&d.t, &out), "%lld stages, %lld chunks, %lld "
       "microbatches", (long long)stages, (long long)chunks, (long long)m);
    is_str(out.data, want, "... as text");
    gpt_buf_free(&out);
    release(&d);
}

static int count(const char *text, const char *part)
{
    int n = 0;

    for (; (text = strstr(text, part)); text++)
        n++;
    return n;
}

static void svg(void)
{
    struct gpt_buf out = {0};
    struct drawn d;

    simulate(&d, 4, 2, 8, 1, 2, 0.1);
    ok(gpt_timeline_svg(&d.t, &out), "a picture");
    is_int(count(out.data, "<g>"), 4 * 2 * 8 * 2, "every forward and backward");
    is_int(count(out.data, "hsl(215"), 4 * 2 * 8, "half of them forward");
    is_int(count(out.data, ">stage "), 4 + 4 * 2 * 8 * 2, "stages named");
    ok(count(out.data, "<svg") == 1 && count(out.data, "</svg>") == 1 &&
           count(out.data, "<g>") == count(out.data, "</g>") &&
           count(out.data, "<rect") == 4 * 2 * 8 * 2 + 1,
       "well-formed");
    ok(!strstr(out.data, "nan") && !strstr(out.data, "inf"), "finite");
    gpt_buf_free(&out);
    release(&d);
}

int main(void)
{
    text_is(1, 1, 2, 3, 6, 0,
            "stage 0  |0>>0<<<<<1>>1<<<<<|\n");
    text_is(2, 1, 2, 3, 6, 0,
            "stage 0  |0>>1>>......0<<<<<...1<<<<<|\n"
            "stage 1  |...0>>0<<<<<1>>1<<<<<......|\n");
    text_is(2, 1, 2, 3, 6, 1,
            "stage 0  |0>>.1>>.......0<<<<<....1<<<<<|\n"
            "stage 1  |....0>>0<<<<<.1>>1<<<<<.......|\n");
    text_is(2, 2, 2, 3, 3, 0,
            "stage 0  |0a>1a>0b>1b>...0b<...1b<0a<1a<|\n"
            "stage 1  |...0a>1a>0b>0b<1b>1b<0a<1a<...|\n");
    svg();
    return tap_done();
}
