/* Recorded operations: they run again with the current contents of memory, in
 * the order of the queue; they are refused if they refer to the host, and
 * reported as stale when their work space has moved. */
#include "device.h"

enum { N = 512 };

static float *x, *sum, *host;

static void add_x(void)
{
    dev_be->bias_grad(dev_q, sum, x, 1, N, GPT_F32); /* sum += x */
}

static void fill(float *to, float value)
{
    for (int i = 0; i < N; i++)
        host[i] = value;
    dev_be->copy_in(dev_q, to, host, N * sizeof(*host));
}

/* The number that all of `sum` has, or -1. */
static float result(void)
{
    struct gpt_err err;

    dev_be->copy_out(dev_q, host, sum, N * sizeof(*host));
    must(dev_be->sync(dev_q, &err), &err);
    for (int i = 1; i < N; i++)
        if (host[i] != host[0])
            return -1;
    return host[0];
}

static struct gpt_recording *record(void (*work)(void))
{
    struct gpt_recording *r;
    struct gpt_err err;

    must(dev_be->record_begin(dev_q, &err), &err);
    work();
    must(dev_be->record_end(dev_q, &r, &err), &err);
    return r;
}

static void test_replay(void)
{
    fill(sum, 0);
    fill(x, 1);
    add_x();
    struct gpt_recording *r = record(add_x);
    ok(result() == 1, "recording runs nothing");
    fill(x, 10);
    ok(dev_be->replay(dev_q, r) && dev_be->replay(dev_q, r), "replayed twice");
    fill(x, 100);
    ok(dev_be->replay(dev_q, r), "and with other memory");
    const double got = (double)result();
    ok(got == 121, "memory is read when it runs: %g", got);
    dev_be->recording_close(r);
}

static void test_refused(void)
{
    struct gpt_recording *r;
    struct gpt_err err;

    if (!emulated) {
        skip("a GPU records some copies");
        return;
    }
    must(dev_be->record_begin(dev_q, &err), &err);
    dev_be->copy_in(dev_q, x, host, N * sizeof(*host));
    is_int(dev_be->record_end(dev_q, &r, &err), GPT_EDEVICE,
           "a copy from the host is refused: %s", err.text);
    ok(r == NULL, "and leaves nothing");
    fill(sum, 3);
    ok(result() == 3, "the queue goes on");
}

/* Work space of the queue grows: kernels of a recording have the old one. A GPU
 * may find the larger one at the same place, where they stay right. */
static void test_stale(void)
{
    enum { ROWS = 2000 };
    struct gpt_err err;
    void *large;

    add_x();
    struct gpt_recording *r = record(add_x);
    must(dev_be->alloc(dev_be, ROWS * N * sizeof(*x), "rows", &large, &err),
         &err);
    dev_be->bias_grad(dev_q, sum, large, ROWS, N, GPT_F32);
    fill(sum, 5);
    fill(x, 1);
    bool again = dev_be->replay(dev_q, r);
    ok(emulated ? !again : !again || result() == 6,
       "a recording whose work space is gone");
    dev_be->recording_close(r);
    fill(sum, 5);
    fill(x, 1);
    r = record(add_x);
    ok(dev_be->replay(dev_q, r) && result() == 6, "recorded anew");
    dev_be->recording_close(r);
    dev_be->free(dev_be, large);
}

/* Which rows an expert has is known on the device alone: a recording of experts
 * goes by the logits of its replay. */
enum { TOKENS = 6, EXPERTS = 3 };

static void run_experts(void)
{
    /* x: logits (TOKENS, EXPERTS), rows (TOKENS), matrices (EXPERTS); sum: what
     * the router writes, then y (TOKENS) */
    int32_t *lists = (int32_t *)(void *)(sum + TOKENS);
    float *rows = x + TOKENS * EXPERTS, *y = sum + 6 * TOKENS;
    const struct gpt_router route = {
        .n = TOKENS, .e = EXPERTS, .k = 1, .scaling = 1, .act = GPT_F32,
        .logits = x, .weight = sum, .expert = lists, .source = lists + TOKENS,
        .place = lists + 2 * TOKENS, .begin = lists + 3 * TOKENS};
    const struct gpt_expert_rows here = {
        .n = TOKENS, .k = 1, .count = EXPERTS, .act = GPT_F32,
        .begin = route.begin, .source = route.source,
        .place = route.place, .weight = sum};
    const struct gpt_expert_matmul product = {
        .rows = &here, .n = 1, .k = 1, .a = y + TOKENS,
        .b = rows + TOKENS, .c = y + 2 * TOKENS};

    dev_be->route(dev_q, &route);
    dev_be->expert_pick(dev_q, &here, rows, y + TOKENS, 1);
    dev_be->expert_matmul(dev_q, &product);
    dev_be->expert_sum(dev_q, &here, y + 2 * TOKENS, y, 1, true, false);
}

/* Token i is number i + 1, expert e multiplies by 10^e, and token i goes to
 * expert (i + by) % EXPERTS. */
static void fill_experts(int by)
{
    memset(host, 0, N * sizeof(*host));
    for (int i = 0; i < TOKENS; i++) {
        host[i * EXPERTS + (i + by) % EXPERTS] = 1;
        host[TOKENS * EXPERTS + i] = (float)(i + 1);
    }
    for (int e = 0; e < EXPERTS; e++)
        host[TOKENS * EXPERTS + TOKENS + e] = e == 0 ? 1 : e == 1 ? 10 : 100;
    dev_be->copy_in(dev_q, x, host, N * sizeof(*host));
}

static int wrong_experts(int by)
{
    struct gpt_err err;
    int wrong = 0;

    dev_be->copy_out(dev_q, host, sum, N * sizeof(*host));
    must(dev_be->sync(dev_q, &err), &err);
    for (int i = 0; i < TOKENS; i++) {
        const int e = (i + by) % EXPERTS;

        wrong += host[6 * TOKENS + i] !=
                 (float)(i + 1) * (e == 0 ? 1 : e == 1 ? 10 : 100);
    }
    return wrong;
}

static void test_experts(void)
{
    fill_experts(0);
    run_experts();
    is_int(wrong_experts(0), 0, "experts, unrecorded");
    struct gpt_recording *r = record(run_experts);
    fill_experts(1);
    ok(dev_be->replay(dev_q, r), "experts are replayed");
    is_int(wrong_experts(1), 0, "by the logits of the replay");
    dev_be->recording_close(r);
}

static void all(void)
{
    struct gpt_err err;
    void *mem;

    must(dev_be->alloc(dev_be, N * sizeof(*x), "x", &mem, &err), &err);
    x = mem;
    must(dev_be->alloc(dev_be, N * sizeof(*sum), "sum", &mem, &err), &err);
    sum = mem;
    host = malloc(N * sizeof(*host));
    test_replay();
    test_refused();
    test_stale();
    test_experts();
    free(host);
    dev_be->free(dev_be, x);
    dev_be->free(dev_be, sum);
}

int main(void)
{
    if (!open_devices())
        return tap_done();
    all();
    reopen("GPT_CUDA_EMU_STREAMS", "late");
    all();
    close_devices();
    return tap_done();
}
