/* Slow ranks, told from times that are given: of two stages of a hundred ranks,
 * which take turns in the sums of a step. */
#include "cmd/train/stragglers.h"

#include "tests/lib/tap.h"

#include <unistd.h>

enum { RANKS = 200, STAGE = 100 };

static char path[] = "/tmp/gpt-test-stragglers.XXXXXX";

/* What was logged since the last call. */
static const char *logged(void)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    const size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

    text[n] = '\0';
    if (f)
        fclose(f);
    if (truncate(path, 0) != 0)
        exit(1);
    rewind(stderr);
    return text;
}

static int count(const char *text, const char *word)
{
    int n = 0;

    for (const char *at = text; (at = strstr(at, word)); at++)
        n++;
    return n;
}

/* Stages have other work: the second computes twice as long. */
static double seconds_of(int64_t rank, int64_t slow, double factor)
{
    return (rank < STAGE ? 0.1 : 0.2) * (rank == slow ? factor : 1);
}

/* Steps in which the ranks take turns, as step.c has it. */
static void make_steps(struct gpt_stragglers *s, int n, int64_t slow,
                       double factor)
{
    static int64_t turn;

    for (int i = 0; i < n; i++) {
        struct gpt_step_ranks ranks = {.n = GPT_REPLICA_TURN};

        ranks.first = turn++ * ranks.n % RANKS;
        for (int64_t k = 0; k < ranks.n; k++)
            ranks.busy[k] =
                seconds_of((ranks.first + k) % RANKS, slow, factor);
        gpt_stragglers_add(s, &ranks);
    }
}

int main(void)
{
    struct gpt_world world = {.launch = {.world_size = 1}};
    struct gpt_err err = {0};
    struct gpt_stragglers *s;
    const int fd = mkstemp(path);

    world.topology = (struct gpt_topology){
        .world_size = RANKS, .size = {4, STAGE / 4, 2}, .chunks = 1};
    if (fd < 0 || dup2(fd, 2) < 0)
        return 1;
    is_int(gpt_stragglers_open(&s, &world, &err), GPT_OK, "watches 200 ranks");
    make_steps(s, 20, 130, 1.5);
    gpt_stragglers_report(s);
    is_int(count(logged(), "straggler"), 0, "no rank is judged by a few steps");
    make_steps(s, 20, 130, 1.5);
    gpt_stragglers_report(s);
    const char *text = logged();
    ok(strstr(text, "straggler: rank 130 on ? computes 300.0 ms a step, 50 % "
                    "more than the median of the 100 ranks of its stage, "
                    "200.0 ms; over 39 steps") != NULL,
       "the slow one of the second stage: %s", text);
    is_int(count(text, "straggler"), 1, "and no other");
    make_steps(s, 40, 7, 1.09);
    gpt_stragglers_report(s);
    is_int(count(logged(), "straggler"), 0, "less than a tenth is no matter");
    make_steps(s, 40, 7, 1.11);
    gpt_stragglers_report(s);
    is_int(count(logged(), "straggler: rank 7 on"), 1, "more than that is");
    gpt_stragglers_close(s);

    world.topology = (struct gpt_topology){
        .world_size = 4, .size = {1, 1, 4}, .chunks = 1};
    is_int(gpt_stragglers_open(&s, &world, &err), GPT_OK, "a pipeline alone");
    ok(!s, "has no ranks with the same work");
    gpt_stragglers_report(s);
    gpt_stragglers_close(s);
    unlink(path);
    return tap_done();
}
