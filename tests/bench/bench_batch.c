/* 32 prompts with GPT-2 124M, fp32: one by one, and several at once, which have
 * the same texts to the bit; and a text alone, with guesses and without. The
 * floor of the first row is that of a step for each token; that of a row of
 * several is 10 times as many tokens as one by one. */
#include "tests/bench/bench.h"

#include "generate/generate.h"
#include "tests/lib/model.h"

enum { PROMPTS = 32, PROMPT = 40, TOKENS = 16 };

struct job {
    struct gpt_decoder *d;
    struct gpt_request requests[PROMPTS];
    int64_t n, guesses;
    struct gpt_speed speed;
};

static int take(void *user, int64_t request, const struct gpt_chosen *chosen,
                bool *stop, struct gpt_err *err)
{
    (void)user, (void)request, (void)chosen, (void)stop, (void)err;
    return GPT_OK;
}

static int end(void *user, int64_t request, enum gpt_finish finish,
               struct gpt_err *err)
{
    (void)user, (void)request, (void)finish, (void)err;
    return GPT_OK;
}

static void run(struct job *j)
{
    const struct gpt_sink sink = {take, end, NULL};
    struct gpt_err err = {0};

    must(gpt_generate(j->d, j->requests, j->n, j->guesses, &sink, &j->speed,
                      &err),
         &err);
}

/* Seconds of the faster of two runs, each of which takes seconds. */
static double time_run(struct job *j)
{
    double best = INFINITY;

    for (int i = 0; i < 2; i++) {
        const double begun = bench_clock();

        run(j);
        best = fmin(best, bench_clock() - begun);
    }
    return best;
}

int main(void)
{
    static int32_t prompts[PROMPTS][PROMPT];
    const struct gpt_choice choice = {
        .sampling = {.temperature = 0.8, .top_k = 40}};
    struct job j = {.n = 4};
    struct model m;

    open_model(&m, gpt_config_default());
    for (int i = 0; i < PROMPTS; i++) {
        for (int k = 0; k < PROMPT; k++)
            prompts[i][k] = (i * 131 + k * 97) % 50000;
        j.requests[i] = (struct gpt_request){.prompt = prompts[i],
                                             .n_prompt = PROMPT,
                                             .max_tokens = TOKENS,
                                             .stream = (uint64_t)i,
                                             .choice = &choice};
    }
    bench_head();
    j.d = decoder_of(&m, 1, PROMPT + TOKENS);
    const double read = (double)gpt_decoder_step_bytes(j.d);
    double seconds = time_run(&j), stream, copy;
    const double one = 4 * TOKENS / seconds;
    bench_bandwidth(&stream, &copy);
    bench_row("prompts one by one", one, "token/s", stream / read, -1);
    gpt_decoder_close(j.d);
    for (int64_t slots = 8; slots <= PROMPTS; slots *= 4) {
        char name[64];

        j.d = decoder_of(&m, slots, PROMPT + TOKENS);
        j.n = PROMPTS;
        seconds = time_run(&j);
        snprintf(name, sizeof(name), "32 prompts, %lld at once",
                 (long long)slots);
        bench_row(name, PROMPTS * TOKENS / seconds, "token/s", 10 * one, -1);
        gpt_decoder_close(j.d);
    }
    const struct gpt_choice greedy = {.n_ends = 0};
    j.requests[0].choice = &greedy;
    j.requests[0].max_tokens = 60;
    j.n = 1;
    j.d = decoder_of(&m, 1, 256);
    double plain = time_run(&j);
    const double steps = (double)j.speed.steps;
    bench_row("a text alone", 60 / plain, "token/s", stream / read, -1);
    j.guesses = GPT_MOST_GUESSES;
    seconds = time_run(&j);
    bench_row("  with guesses", 60 / seconds, "token/s",
              60 / plain * steps / (double)j.speed.steps, -1);
    gpt_decoder_close(j.d);
    return 0;
}
