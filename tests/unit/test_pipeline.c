/* Pipeline schedules: the order is Megatron's, the checker accepts all plans
 * and refuses plans with a mistake, slots and bubbles are those of the
 * papers. */
#include "parallel/schedule.h"

#include "tests/unit/golden.h"
#include "tests/unit/schedule_check.h"

#include "base/num.h"

enum { MAX_P = 16, MAX_V = 4, MAX_M = 64 };

static struct gpt_pipeline_plan plans[MAX_P];

static void build_all(int64_t P, int64_t V, int64_t m)
{
    struct gpt_err err = {0};

    for (int64_t p = 0; p < P; p++)
        if (gpt_pipeline_plan_build(&plans[p], P, V, m, p, &err) != GPT_OK) {
            printf("# %s\n", err.text);
            exit(1);
        }
}

static void free_all(int64_t P)
{
    for (int64_t p = 0; p < P; p++)
        gpt_pipeline_plan_free(&plans[p]);
}

/* Forwards as 1 + id, backwards as -1 - id, id = microbatch + m * chunk. */
static int order_of(const struct gpt_pipeline_plan *p, int64_t m,
                    int64_t *order)
{
    int n = 0;

    for (int64_t i = 0; i < p->n; i++) {
        const struct gpt_action *a = &p->actions[i];
        int64_t id = a->microbatch + m * a->chunk;

        if (a->kind == GPT_ACT_FORWARD)
            order[n++] = 1 + id;
        if (a->kind == GPT_ACT_BACKWARD)
            order[n++] = -1 - id;
    }
    return n;
}

static void test_order(void)
{
    FILE *f = golden_open("tests/golden/parallel.txt");
    char line[256];
    int cases = 0;

    while (golden_next(f, "schedule", line, sizeof(line))) {
        long long P, V, m;

        if (sscanf(line, "%lld %lld %lld", &P, &V, &m) != 3)
            exit(1);
        build_all(P, V, m);
        for (int64_t p = 0; p < P; p++) {
            double warmup[GOLDEN_MAX];
            int64_t order[GOLDEN_MAX], forwards = 0;
            int n = order_of(&plans[p], m, order);

            golden_array(f, "warmup", warmup);
            while (forwards < n && order[forwards] > 0)
                forwards++;
            /* the first steady forward follows on the warm-up */
            ok(forwards == (int64_t)warmup[0] + (warmup[0] < (double)(V * m)),
               "P %lld V %lld m %lld stage %lld: warm-up", P, V, m,
               (long long)p);
            GOLDEN_IS(f, "order", order, n, "order");
        }
        free_all(P);
        cases++;
    }
    fclose(f);
    is_int(cases, 12, "schedules");
}

/* 1F1B keeps min(P - p, m); interleaved one more than its warm-up. */
static int64_t live_bound(int64_t P, int64_t V, int64_t m, int64_t p)
{
    if (V == 1)
        return gpt_min_i64(P - p, m);
    return gpt_min_i64((P - 1 - p) * 2 + (V - 1) * P + 1, V * m);
}

static void test_all_plans(void)
{
    for (int64_t V = 1; V <= MAX_V; V++) {
        int64_t checked = 0, failed = 0, slots = 0, bubbles = 0;
        struct gpt_err err = {0};

        for (int64_t P = V == 1 ? 1 : 2; P <= MAX_P; P++)
            for (int64_t m = V == 1 ? 1 : P; m <= MAX_M; m += V == 1 ? 1 : P) {
                const struct gpt_pipeline_plan_costs costs = {.forward = 1,
                                                              .backward = 2};
                struct gpt_pipeline_plan_result result = {.bubble = -1};

                build_all(P, V, m);
                checked++;
                if (plan_check(plans, P, V, m, &err) != GPT_OK &&
                    failed++ == 0)
                    printf("# P %lld V %lld m %lld: %s\n", (long long)P,
                           (long long)V, (long long)m, err.text);
                for (int64_t p = 0; p < P; p++)
                    slots += plans[p].live != live_bound(P, V, m, p);
                if (gpt_pipeline_plan_simulate(plans, P, &costs, NULL, &result,
                                               &err) != GPT_OK ||
                    fabs(result.bubble - (double)(P - 1) / (double)(V * m)) >
                        1e-12) {
                    if (bubbles++ == 0)
                        printf("# P %lld V %lld m %lld: bubble %g\n",
                               (long long)P, (long long)V, (long long)m,
                               result.bubble);
                }
                free_all(P);
            }
        is_int(failed, 0, "chunks %lld: %lld schedules pass the checker",
               (long long)V, (long long)checked);
        is_int(slots, 0, "activations kept are as few as can be");
        is_int(bubbles, 0, "the bubble is (P - 1) / (V m)");
    }
}

static void build_forward(int64_t P, int64_t V, int64_t m)
{
    struct gpt_err err = {0};

    for (int64_t p = 0; p < P; p++)
        if (gpt_pipeline_plan_build_forward(&plans[p], P, V, m, p, &err) !=
            GPT_OK) {
            printf("# %s\n", err.text);
            exit(1);
        }
}

/* Evaluation: one slot a chunk is enough, and the pipeline fills once. */
static void test_forward_only(void)
{
    static const int64_t stages[] = {1, 2, 3, 4, 7, 16};
    struct gpt_err err = {0};
    int64_t checked = 0, failed = 0, wrong = 0;
    const struct gpt_pipeline_plan_costs costs = {.forward = 1, .backward = 2};
    struct gpt_pipeline_plan_result result = {.total = -1};

    for (int64_t V = 1; V <= MAX_V; V++)
        for (size_t i = V == 1 ? 0 : 1; i < GPT_COUNT(stages); i++) {
            const int64_t P = stages[i], step = V == 1 ? 1 : P;

            for (int64_t m = step; m <= MAX_M; m += step) {
                build_forward(P, V, m);
                checked++;
                if (plan_check(plans, P, V, m, &err) != GPT_OK &&
                    failed++ == 0)
                    printf("# P %lld V %lld m %lld: %s\n", (long long)P,
                           (long long)V, (long long)m, err.text);
                for (int64_t p = 0; p < P; p++)
                    wrong += plans[p].live != 1 || plans[p].slots[V - 1] != 1;
                wrong += gpt_pipeline_plan_simulate(plans, P, &costs, NULL,
                                                    &result, &err) != GPT_OK ||
                         result.total != (double)(V * m + P - 1);
                free_all(P);
            }
        }
    is_int(failed, 0, "%lld forward only schedules pass the checker",
           (long long)checked);
    is_int(wrong, 0, "they keep one slot and take V m + P - 1 forwards");
    build_forward(1, 1, 4);
    plans[0].n--;
    ok(plan_check(plans, 1, 1, 4, &err) == GPT_EFAIL &&
           strstr(err.text, "microbatch 3 never went through chunk 0"),
       "refused: %s", err.text);
    free_all(1);
}

static void test_slots(void)
{
    build_all(4, 1, 8);
    ok(plans[0].slots[0] == 4 && plans[1].slots[0] == 3 &&
           plans[2].slots[0] == 2 && plans[3].slots[0] == 1,
       "1F1B: 4, 3, 2, 1 slots");
    free_all(4);
    build_all(1, 1, 8);
    is_int(plans[0].slots[0], 1, "accumulation: one slot");
    is_int(plans[0].n, 16, "accumulation: forward and backward");
    free_all(1);
}

static void test_simulated(void)
{
    struct gpt_interval spans[2][64], *times[2] = {spans[0], spans[1]};
    struct gpt_err err = {0};
    const struct gpt_pipeline_plan_costs late = {
        .forward = 1, .backward = 2, .transfer = 0.5};
    struct gpt_pipeline_plan_result result = {.total = 0};

    /* 2 stages, 2 microbatches, forward 1, backward 2, transfer 0.5: F0 1,
     * over at 1.5, F0 there to 2.5 and B0 to 4.5, back at 5, B0 here to 7;
     * there B1, from 5 (F1 to 6) to 8, back at 8.5, B1 here to 10.5 */
    build_all(2, 1, 2);
    is_int(gpt_pipeline_plan_simulate(plans, 2, &late, times, &result, &err),
           GPT_OK, "simulated");
    is_near(result.total, 10.5, 0, 1e-12, "length of the step");
    is_near(result.bubble, 4.5 / 6, 0, 1e-12, "idle share");
    is_near(result.weights, 0, 0, 0, "no wait for weights");
    double computing = 0;
    for (int64_t i = 0; i < plans[1].n; i++)
        if (plans[1].actions[i].kind == GPT_ACT_FORWARD ||
            plans[1].actions[i].kind == GPT_ACT_BACKWARD)
            computing += spans[1][i].end - spans[1][i].begin;
    is_near(computing, 6, 0, 1e-12, "spans of the second stage");
    is_near(spans[0][plans[0].n - 1].end, 10.5, 0, 1e-12,
            "the last backward ends the step");
    bool moves = true;
    for (int64_t i = 0; i < plans[0].n; i++)
        if (plans[0].actions[i].kind == GPT_ACT_SEND_FORWARD)
            moves = moves && spans[0][i].end > spans[0][i].begin + 0.49 &&
                    spans[0][i].end < spans[0][i].begin + 0.51;
    ok(moves, "a transfer takes its time");
    free_all(2);
    /* 2 layers whose weights come in 6: the first forward begins with those of
     * the first, at 3, but ends no earlier than they allow: 6 - 1 / 2 = 5.5 */
    const struct gpt_pipeline_plan_costs gathered = {
        .forward = 1, .backward = 2, .weights = 6, .layers = 2};
    build_all(1, 1, 2);
    is_int(gpt_pipeline_plan_simulate(plans, 1, &gathered, times, &result,
                                      &err), GPT_OK, "weights to wait for");
    is_near(result.total, 11.5, 0, 1e-12, "it waits for them once");
    is_near(result.weights, 5.5, 0, 1e-12, "so long");
    free_all(1);
}

/* ---- plans with a mistake ---- */

static int64_t find(int64_t p, enum gpt_action_kind kind, int nth)
{
    for (int64_t i = 0; i < plans[p].n; i++)
        if (plans[p].actions[i].kind == kind && nth-- == 0)
            return i;
    printf("# no such action\n");
    exit(1);
}

static void swap(int64_t p, int64_t i, int64_t j)
{
    struct gpt_action a = plans[p].actions[i];

    plans[p].actions[i] = plans[p].actions[j];
    plans[p].actions[j] = a;
}

static void drop(int64_t p, int64_t i)
{
    struct gpt_action *a = plans[p].actions;

    memmove(a + i, a + i + 1, (size_t)(plans[p].n - i - 1) * sizeof(*a));
    plans[p].n--;
}

static void twice(int64_t p, int64_t i)
{
    plans[p].actions[plans[p].n] = plans[p].actions[i];
    plans[p].n++;
}

/* The plans of 4 stages, 8 microbatches; V 1 or 2. */
#define MISTAKE(V, says, ...)                                         \
    do {                                                              \
        struct gpt_err e_ = {0};                                      \
        build_all(4, (V), 8);                                         \
        if (plan_check(plans, 4, (V), 8, &e_) != GPT_OK)          \
            exit(1);                                                  \
        __VA_ARGS__;                                                  \
        int s_ = plan_check(plans, 4, (V), 8, &e_);               \
        ok(s_ == GPT_EFAIL && strstr(e_.text, (says)), "refused: %s", \
           e_.text);                                                  \
        free_all(4);                                                  \
    } while (0)

#define ACTION(p, kind, nth) plans[p].actions[find((p), GPT_ACT_##kind, (nth))]

static void ungroup_all(void)
{
    for (int64_t p = 0; p < 4; p++)
        for (int64_t i = 0; i < plans[p].n; i++)
            plans[p].actions[i].group = 0;
}

/* One at a time, and gradients are sent before activations are received. */
static void send_first(void)
{
    ungroup_all();
    for (int64_t i = 1; i < plans[2].n; i++)
        if (plans[2].actions[i].kind == GPT_ACT_SEND_BACKWARD &&
            plans[2].actions[i - 1].kind == GPT_ACT_RECV_FORWARD)
            swap(2, i, i - 1);
}

static void test_mistakes(void)
{
    MISTAKE(1, "waits for ever", drop(2, find(2, GPT_ACT_SEND_FORWARD, 7)));
    MISTAKE(1, "waits for ever", send_first());
    MISTAKE(1, "its input is not there", ACTION(1, FORWARD, 0).slot = 1);
    MISTAKE(1, "its gradient is not there",
            drop(3, find(3, GPT_ACT_SEND_BACKWARD, 7));
            drop(2, find(2, GPT_ACT_RECV_BACKWARD, 7)));
    MISTAKE(1, "7 of 8 backwards", drop(0, find(0, GPT_ACT_BACKWARD, 7)));
    MISTAKE(1, "gradients would be summed in another order",
            swap(0, find(0, GPT_ACT_BACKWARD, 6),
                 find(0, GPT_ACT_BACKWARD, 7)));
    MISTAKE(1, "its activations are not there",
            twice(0, find(0, GPT_ACT_BACKWARD, 7)));
    MISTAKE(1, "wrongly marked", ACTION(0, BACKWARD, 6).last = true);
    MISTAKE(1, "its slot is in use", ACTION(0, FORWARD, 1).slot = 0);
    MISTAKE(1, "its slot is in use", ACTION(1, RECV_FORWARD, 1).slot = 0);
    MISTAKE(1, "no such slot", plans[0].slots[0]--);
    MISTAKE(1, "no such slot", ACTION(2, BACKWARD, 0).slot = -1);
    MISTAKE(1, "no such chunk", ACTION(2, BACKWARD, 0).chunk = 1);
    MISTAKE(1, "no such microbatch", ACTION(2, FORWARD, 0).microbatch = 8);
    MISTAKE(1, "its peer is no stage", ACTION(2, SEND_FORWARD, 0).peer = 4);
    MISTAKE(1, "meets", ACTION(2, RECV_FORWARD, 1).microbatch = 0);
    MISTAKE(1, "wrongly marked", ACTION(1, BACKWARD, 7).last = false);
    MISTAKE(1, "unknown kind", ACTION(1, BACKWARD, 7).kind = GPT_N_ACTIONS);
    MISTAKE(1, "its activations are not there",
            ACTION(3, BACKWARD, 0).microbatch = 1);
    MISTAKE(
        1, "the output before it was not sent",
        swap(0, find(0, GPT_ACT_SEND_FORWARD, 0), find(0, GPT_ACT_FORWARD, 1)));
    MISTAKE(2, "waits for ever", ungroup_all());
    MISTAKE(2, "meets", ACTION(0, RECV_FORWARD, 0).chunk = 0);
    MISTAKE(2, "waits for ever", ACTION(0, RECV_FORWARD, 0).peer = 1);
    MISTAKE(2, "the buffer holds something else",
            ACTION(0, SEND_FORWARD, 0).chunk = 1;
            ACTION(1, RECV_FORWARD, 0).chunk = 1);
}

/* No action can be left out. */
static void test_left_out(void)
{
    int refused = 0, accepted = 0;
    struct gpt_err err = {0};

    for (int64_t V = 1; V <= 2; V++)
        for (int64_t p = 0; p < 4; p++)
            for (int64_t i = 0;; i++) {
                build_all(4, V, 8);
                bool end = i == plans[p].n;
                if (!end) {
                    drop(p, i);
                    if (plan_check(plans, 4, V, 8, &err) ==
                        GPT_EFAIL)
                        refused++;
                    else
                        accepted++;
                }
                free_all(4);
                if (end)
                    break;
            }
    ok(accepted == 0 && refused > 500, "%d plans without one action: refused",
       refused);
}

static void test_refused(void)
{
    static const struct {
        int64_t stages, chunks, microbatches, stage;
        const char *says;
    } rows[] = {
        {4, 2, 6, 0, "6 microbatches are not a multiple of 4"},
        {1, 2, 4, 0, "at least 2 pipeline stages"},
        {4, 1, 0, 0, "0 microbatches"},
        {4, 1, INT64_MAX, 0, "microbatches, must have"},
        {4, 1, 8, 4, "stage 4 of 4"},
        {4, 1, 8, -1, "stage -1"},
        {0, 1, 8, 0, "of 0"},
        {4, 0, 8, 0, "0 chunks"},
        {4, 65, 8, 0, "65 chunks"},
        {5000, 1, 8, 0, "4096 stages"},
    };
    struct gpt_pipeline_plan p;
    struct gpt_err err = {0};

    for (size_t i = 0; i < GPT_COUNT(rows); i++)
        ok(gpt_pipeline_plan_build(&p, rows[i].stages, rows[i].chunks,
                                   rows[i].microbatches, rows[i].stage,
                                   &err) == GPT_EUSAGE &&
               strstr(err.text, rows[i].says) && p.actions == NULL,
           "refused: %s", err.text);
}

int main(void)
{
    test_order();
    test_all_plans();
    test_forward_only();
    test_slots();
    test_simulated();
    test_mistakes();
    test_left_out();
    test_refused();
    return tap_done();
}
