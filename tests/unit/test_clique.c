/* Collectives of a device's library with a single member, which need no second
 * GPU: on an emulated GPU or, in `make check-gpu`, on that of this machine. The
 * output of every call equals its input. */
#include "tests/unit/device.h"

#include "collectives.h"

#include <pthread.h>
#include <time.h>

enum { N = 1000, PATIENCE = 60 };

static struct gpt_clique *clique;
static float *in, *out;

static bool wait_ready(void)
{
    enum gpt_clique_state state = GPT_CLIQUE_BUSY;
    char why[300] = "";
    time_t begin = time(NULL);

    while (state == GPT_CLIQUE_BUSY && time(NULL) - begin < PATIENCE)
        state = dev_be->collectives->state(clique, why, sizeof(why));
    printf("# %s\n", why);
    return state == GPT_CLIQUE_READY;
}

static bool same(const float *x)
{
    struct gpt_err err;
    float got[N];

    dev_be->copy_out(dev_q, got, out, sizeof(got));
    must(dev_be->sync(dev_q, &err), &err);
    return memcmp(got, x, sizeof(got)) == 0;
}

static const struct {
    const char *name;
    enum gpt_collective_kind kind;
    enum gpt_reduce op;
} calls[] = {
    {"sum", GPT_ALL_REDUCE, GPT_SUM},
    {"maximum", GPT_ALL_REDUCE, GPT_MAX},
    {"reduce-scatter", GPT_REDUCE_SCATTER, GPT_SUM},
    {"all-gather", GPT_ALL_GATHER, GPT_SUM},
    {"broadcast", GPT_BROADCAST, GPT_SUM},
};

static void call_all(const float *x)
{
    struct gpt_err err;
    int64_t number = 0;

    for (size_t i = 0; i < GPT_COUNT(calls); i++) {
        struct gpt_collective call = {.kind = calls[i].kind, .in = in,
                                      .out = out, .n = N, .type = GPT_F32,
                                      .op = calls[i].op};

        dev_be->zero(dev_q, out, N * sizeof(*out));
        is_int(dev_be->collectives->put(clique, dev_q, &call, ++number, &err),
               GPT_OK, "%s is put on the queue", calls[i].name);
        ok(same(x), "%s gives what went in", calls[i].name);
    }
    is_int(dev_be->collectives->running(clique), 0, "no call is left");
}

static int put(enum gpt_collective_kind kind, enum gpt_dtype type,
               struct gpt_queue *q, struct gpt_err *err)
{
    static int64_t number = 100;
    const struct gpt_collective call = {.kind = kind, .in = in, .out = out,
                                        .n = N, .type = type, .op = GPT_SUM};

    return dev_be->collectives->put(clique, q, &call, ++number, err);
}

/* What has no result, and more calls than may be under way. */
static void call_often(void)
{
    struct gpt_err err;
    int status = put(GPT_BARRIER, GPT_F32, dev_q, &err);

    is_int(status, GPT_OK, "a barrier");
    for (int i = 0; i <= GPT_CLIQUE_CALLS && status == GPT_OK; i++)
        status = put(GPT_ALL_REDUCE, GPT_F32, dev_q, &err);
    is_int(status, GPT_OK, "%d calls, and none is asked about",
           GPT_CLIQUE_CALLS + 1);
    must(dev_be->sync(dev_q, &err), &err);
    is_int(dev_be->collectives->running(clique), 0, "all are over");
}

/* A call that NCCL has taken and that does not come to its stream, or in which
 * NCCL still is. */
static void *call_stuck(void *arg)
{
    struct gpt_err *err = arg;

    err->status = put(GPT_BARRIER, GPT_F32, dev_q, err);
    return NULL;
}

static void abort_call(const char *mode)
{
    const struct gpt_collectives *lib = dev_be->collectives;
    struct gpt_err err = {0};
    time_t begin = time(NULL);
    pthread_t thread;
    char why[300];

    setenv("GPT_CUDA_EMU_NCCL", mode, 1);
    pthread_create(&thread, NULL, call_stuck, &err);
    while (lib->state(clique, why, sizeof(why)) != GPT_CLIQUE_BUSY &&
           time(NULL) - begin < PATIENCE)
        continue;
    lib->abort(clique);
    pthread_join(thread, NULL);
    unsetenv("GPT_CUDA_EMU_NCCL");
    is_int(err.status, GPT_EFAIL, "a call that is %s", mode);
    ok(strstr(err.text, "given up"), "ends with the abort: %s", err.text);
}

/* Calls that are refused, and those after an abort. */
static void call_badly(void)
{
    struct gpt_queue *q;
    struct gpt_err err;

    is_int(put(GPT_ALL_REDUCE, GPT_I32, dev_q, &err), GPT_EFAIL,
           "a type that has no sum");
    ok(strstr(err.text, "NCCL: "), "by whom: %s", err.text);
    must(dev_be->queue_open(dev_be, &q, &err), &err);
    /* A queue keeps its first failure: here an address. */
    dev_be->amax(q, in, (char *)in + 2, 16);
    is_int(put(GPT_ALL_REDUCE, GPT_F32, q, &err), GPT_EDEVICE,
           "a queue that has failed");
    ok(strstr(err.text, "multiples of 16"), "says so again: %s", err.text);
    dev_be->queue_close(q);
    if (emulated)
        abort_call("stuck");
    dev_be->collectives->abort(clique); /* again: nothing happens */
    is_int(put(GPT_ALL_REDUCE, GPT_F32, dev_q, &err), GPT_EFAIL,
           "a call after the abort");
    ok(strstr(err.text, "given up"), "is given up: %s", err.text);
}

static int open_with(const char *name, const char *value, int64_t rank,
                     struct gpt_err *err)
{
    struct gpt_clique *other;
    char id[GPT_CLIQUE_ID] = "";

    setenv(name, value, 1);
    int status = dev_be->collectives->open(&other, id, "other", 1, rank, err);

    unsetenv(name);
    dev_be->collectives->close(other);
    return status;
}

/* A member that nobody joins: it ends, and a second one without waiting. */
static void close_alone(void)
{
    const struct gpt_collectives *lib = dev_be->collectives;
    struct gpt_clique *one;
    struct gpt_err err;
    char id[GPT_CLIQUE_ID], why[300];
    time_t begin = time(NULL);

    for (int i = 0; i < 2; i++) {
        must(lib->make_id(id, &err), &err);
        is_int(lib->open(&one, id, "half", 2, 0, &err), GPT_OK, "half a group");
        is_int(lib->state(one, why, sizeof(why)), GPT_CLIQUE_BUSY,
               "waits for the other half");
        lib->close(one);
    }
    ok(time(NULL) - begin < PATIENCE / 2, "and ends without it");
}

/* Beginnings that fail, which an emulated GPU can be made to. */
static void begin_badly(void)
{
    const struct gpt_collectives *lib = dev_be->collectives;
    char id[GPT_CLIQUE_ID], name[160];
    struct gpt_err err;

    is_int(open_with("GPT_CUDA_EMU_MEMORY", "1", 0, &err), GPT_EDEVICE,
           "no memory");
    ok(strstr(err.text, "group 'other': "), "for which: %s", err.text);
    is_int(open_with("GPT_CUDA_EMU_NCCL", "", 1, &err), GPT_EDEVICE,
           "a rank that the group does not have");
    is_int(open_with("GPT_CUDA_EMU_NCCL", "absent", 0, &err), GPT_EDEVICE,
           "no library");
    ok(strstr(err.text, "no usable emulated NCCL"), "is named: %s", err.text);
    setenv("GPT_CUDA_EMU_NCCL", "absent", 1);
    is_int(lib->make_id(id, &err), GPT_EDEVICE, "and there is no id");
    setenv("GPT_CUDA_EMU_NCCL", "no-id", 1);
    is_int(lib->make_id(id, &err), GPT_EDEVICE, "nor where it is refused");
    ok(strstr(err.text, "NCCL: no id: system error"), "why: %s", err.text);
    unsetenv("GPT_CUDA_EMU_NCCL");
    setenv("GPT_CUDA_EMU_DEVICES", "0", 1);
    is_int(lib->device(name, sizeof(name), &err), GPT_EDEVICE, "no GPU");
    unsetenv("GPT_CUDA_EMU_DEVICES");
    close_alone();
}

static void *device_memory(size_t bytes)
{
    struct gpt_err err;
    void *mem;

    must(dev_be->alloc(dev_be, bytes, "a test", &mem, &err), &err);
    return mem;
}

static void alone(void)
{
    const struct gpt_collectives *lib = dev_be->collectives;
    struct gpt_err err;
    char id[GPT_CLIQUE_ID], name[160];
    float *x = rnd_floats(N, 1);

    ok(lib->device(name, sizeof(name), &err) == GPT_OK && name[0],
       "the GPU has a name: %s", name);
    is_int(lib->make_id(id, &err), GPT_OK, "an id");
    is_int(lib->open(&clique, id, "alone", 1, 0, &err), GPT_OK, "opened");
    if (!ok(wait_ready(), "and ready")) {
        lib->abort(clique);
    } else {
        in = device_memory(N * sizeof(*in));
        out = device_memory(N * sizeof(*out));
        dev_be->copy_in(dev_q, in, x, N * sizeof(*in));
        call_all(x);
        call_often();
        call_badly();
        dev_be->free(dev_be, in);
        dev_be->free(dev_be, out);
    }
    lib->close(clique);
    free(x);
}

/* `clique` becomes another one of a single member. */
static void open_another(void)
{
    struct gpt_err err;
    char id[GPT_CLIQUE_ID];

    must(dev_be->collectives->make_id(id, &err), &err);
    is_int(dev_be->collectives->open(&clique, id, "alone", 1, 0, &err), GPT_OK,
           "another group");
    ok(wait_ready(), "is ready");
}

/* An abort waits until a thread has come out of NCCL. */
static void abort_inside(void)
{
    open_another();
    abort_call("stuck, inside=200");
    dev_be->collectives->close(clique);
}

/* An abort that gets no thread is as if it hung, but nobody waits for it; what
 * was made for the thread is freed, which LeakSanitizer sees. The process gives
 * up all streams, so that this comes last, and the clique stays. */
static void abort_without_thread(void)
{
    pthread_attr_t usual, huge;
    struct gpt_err err;

    open_another();
    /* No system has room for such a stack. */
    pthread_getattr_default_np(&usual);
    pthread_getattr_default_np(&huge);
    pthread_attr_setstacksize(&huge, (size_t)1 << 47);
    pthread_setattr_default_np(&huge);
    const time_t begin = time(NULL);
    dev_be->collectives->abort(clique);
    pthread_setattr_default_np(&usual);
    ok(time(NULL) - begin < 4, "an abort without a thread does not wait");
    in = out = NULL;
    is_int(put(GPT_ALL_REDUCE, GPT_F32, dev_q, &err), GPT_EFAIL, "a call");
    ok(strstr(err.text, "given up"), "is given up: %s", err.text);
    dev_be->collectives->close(clique);
}

int main(void)
{
    char text[160];

    if (!open_devices())
        return tap_done();
    if (!dev_be->collectives)
        skip("this build has no NCCL");
    else if (!dev_be->collectives->library(text, sizeof(text)))
        skip("%s", text);
    else
        alone();
    if (emulated && dev_be->collectives) {
        begin_badly();
        abort_inside();
        abort_without_thread();
    }
    close_devices();
    return tap_done();
}
