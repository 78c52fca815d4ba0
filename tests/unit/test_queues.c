/* Order between queues of a device: work that waits for an event sees the work
 * before the event, and the host does not wait. Emulated queues delay their
 * work as long as they may (GPT_CUDA_EMU_STREAMS=late), so that a missing wait
 * gives other numbers; one test shows that. */
#include "device.h"

enum { N = 1000, ROUNDS = 3 };

static struct gpt_queue *other_q;
static struct gpt_event *events[2];
static float *here, *there, *host;

/* Two queues that pass a block: dev_q writes it, other_q adds it to a block of
 * its own; then dev_q may overwrite it. */
static void hand_over(bool waits, bool back)
{
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < N; i++)
            host[i] = (float)round;
        dev_be->copy_in(dev_q, here, host, N * sizeof(*host));
        dev_be->event_record(dev_q, events[0]);
        if (waits)
            dev_be->event_wait(other_q, events[0]);
        dev_be->bias_grad(other_q, there, here, 1, N, GPT_F32);
        dev_be->event_record(other_q, events[1]);
        if (back)
            dev_be->event_wait(dev_q, events[1]);
    }
}

/* The sum that the other queue has, or -1 when its elements differ. */
static float result(bool waits, bool back)
{
    struct gpt_err err;

    dev_be->zero(dev_q, here, N * sizeof(*here));
    dev_be->zero(dev_q, there, N * sizeof(*there));
    must(dev_be->sync(dev_q, &err), &err);
    hand_over(waits, back);
    must(dev_be->sync(dev_q, &err), &err);
    dev_be->copy_out(other_q, host, there, N * sizeof(*host));
    must(dev_be->sync(other_q, &err), &err);
    for (int i = 1; i < N; i++)
        if (host[i] != host[0])
            return -1;
    return host[0];
}

static void test_order(void)
{
    const float sum = ROUNDS * (ROUNDS + 1) / 2;

    ok(result(true, true) == sum, "a block is handed over");
    if (!emulated) {
        skip("missing waits: only the emulation shows them always");
        return;
    }
    ok(result(true, false) != sum, "without the wait back it is overwritten");
    ok(result(false, false) != sum, "... as it is without any wait");
}

/* A wait is for the event as it was last recorded when the wait was put on the
 * queue. An event that was never recorded, or whose queue is closed, does not
 * block. */
static void test_events(void)
{
    struct gpt_event *never = NULL;
    struct gpt_queue *gone;
    struct gpt_err err;

    must(dev_be->event_open(dev_be, &never, &err), &err);
    dev_be->event_wait(dev_q, never);
    is_int(dev_be->sync(dev_q, &err), GPT_OK, "an event never recorded");
    must(dev_be->queue_open(dev_be, &gone, &err), &err);
    for (int i = 0; i < N; i++)
        host[i] = 7;
    dev_be->copy_in(gone, here, host, N * sizeof(*host));
    dev_be->event_record(gone, never);
    must(dev_be->sync(gone, &err), &err);
    dev_be->queue_close(gone);
    dev_be->event_wait(dev_q, never);
    dev_be->copy_out(dev_q, host, here, N * sizeof(*host));
    is_int(dev_be->sync(dev_q, &err), GPT_OK, "an event of a queue that is "
           "closed");
    ok(host[N - 1] == 7, "... whose work was done");
    dev_be->event_close(never);
    dev_be->event_close(NULL);
}

int main(void)
{
    struct gpt_err err;
    void *a, *b;

    setenv("GPT_CUDA_EMU_STREAMS", "late", 1);
    if (!open_devices())
        return tap_done();
    must(dev_be->queue_open_beside(dev_be, &other_q, &err), &err);
    for (int i = 0; i < 2; i++)
        must(dev_be->event_open(dev_be, &events[i], &err), &err);
    must(dev_be->alloc(dev_be, N * sizeof(*here), "a block", &a, &err), &err);
    must(dev_be->alloc(dev_be, N * sizeof(*here), "a sum", &b, &err), &err);
    here = a;
    there = b;
    host = malloc(N * sizeof(*host));
    test_order();
    test_events();
    dev_be->free(dev_be, here);
    dev_be->free(dev_be, there);
    for (int i = 0; i < 2; i++)
        dev_be->event_close(events[i]);
    dev_be->queue_close(other_q);
    close_devices();
    free(host);
    return tap_done();
}
