/* Generation with GPT-2 124M, fp32: one text at a time, with the bandwidth of
 * memory for all bytes of weights as floor; eight at a time; prompts, with the
 * speed of sgemm as floor. test_decode measures the error. */
#include "tests/bench/bench.h"

#include "generate/sample.h"
#include "tests/lib/model.h"

#define RULE(t, k, p) {.temperature = (t), .top_k = (k), .top_p = (p)}

struct job {
    struct gpt_decoder *d;
    struct gpt_sampler *sampler;
    int64_t vocab, n;
    int32_t slots[8], next[8], prompt[256];
    float *logits;
    struct gpt_sampling rule;
};

/* A step and its choices, at positions 128..255 again and again. */
static void step(void *ctx)
{
    struct job *j = ctx;
    struct gpt_err err = {0};

    for (int64_t i = 0; i < j->n; i++)
        if (gpt_decoder_length(j->d, i) == 256)
            gpt_decoder_truncate(j->d, i, 128);
    must(gpt_decoder_step(j->d, j->slots, j->next, j->n, j->logits, &err),
         &err);
    for (int64_t i = 0; i < j->n; i++)
        must(gpt_sample(j->sampler, j->logits + i * j->vocab, j->vocab,
                        &j->rule, 0.5, &j->next[i], &err),
             &err);
}

static void prefill(void *ctx)
{
    struct job *j = ctx;
    struct gpt_err err = {0};

    gpt_decoder_truncate(j->d, 0, 0);
    must(gpt_decoder_append(j->d, 0, j->prompt, 256, GPT_LOGITS_LAST,
                            j->logits, &err),
         &err);
}

/* One choice from logits as they are. */
static void choose(void *ctx)
{
    struct job *j = ctx;
    struct gpt_err err = {0};

    must(gpt_sample(j->sampler, j->logits, j->vocab, &j->rule, 0.5, &j->next[0],
                    &err),
         &err);
}

static void bench_choice(struct job *j)
{
    static const struct {
        const char *name;
        struct gpt_sampling rule;
    } rules[] = {
        {"choice, greedy", RULE(0, 0, 0)},
        {"choice, all tokens", RULE(1, 0, 0)},
        {"choice, top-k 40", RULE(1, 40, 0)},
        {"choice, top-p 0.9", RULE(1, 0, 0.9)},
    };

    for (size_t i = 0; i < GPT_COUNT(rules); i++) {
        j->rule = rules[i].rule;
        bench_row(rules[i].name, 1e6 * bench_time(choose, j, 0.2), "us", 0, -1);
    }
}

int main(void)
{
    struct model m;
    struct gpt_err err = {0};

    open_model(&m, gpt_config_default());
    struct job j = {.vocab = m.c.vocab_size, .rule = RULE(0.8, 40, 0)};
    j.d = decoder_of(&m, 8, 256);
    must(gpt_sampler_open(&j.sampler, j.vocab, &err), &err);
    j.logits = gpt_alloc((size_t)(8 * j.vocab), sizeof(*j.logits));
    for (int i = 0; i < 256; i++)
        j.prompt[i] = i * 97 % 50000;
    for (int i = 0; i < 8; i++) {
        j.slots[i] = i;
        must(gpt_decoder_append(j.d, i, j.prompt, 128, GPT_LOGITS_LAST,
                                j.logits, &err),
             &err);
    }

    /* the floor before and after: a busy machine changes */
    double read, again, copy, bytes = (double)gpt_decoder_step_bytes(j.d);
    bench_bandwidth(&read, &copy);
    bench_head();
    j.n = 1;
    double seconds = bench_time(step, &j, 2);
    bench_bandwidth(&again, &copy);
    read = read > again ? read : again;
    bench_row("decode 124M fp32, 1 text", 1 / seconds, "token/s", read / bytes,
              -1);
    bench_row("  bytes of weights a second", bytes / seconds / 1e9, "GB/s",
              read / 1e9, -1);
    j.n = 8;
    seconds = bench_time(step, &j, 2);
    bench_row("decode 124M fp32, 8 texts", 8 / seconds, "token/s",
              8 * read / bytes, -1);
    double flops = 2 * bytes / 4 * 256; /* the output layer once, not 256 x */
    flops -= 2.0 * 255 * (double)(m.c.vocab_size * m.c.hidden_size);
    seconds = bench_time(prefill, &j, 2);
    bench_row("prompt of 256 tokens", 256 / seconds, "token/s",
              256 * bench_sgemm_ceiling() / flops, -1);
    bench_choice(&j);
    return 0;
}
