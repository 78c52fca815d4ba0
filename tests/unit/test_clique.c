/* Collectives of a device's library with a single member, which need no second
 * GPU: on an emulated GPU or, in `make check-gpu`, on that of this machine. The
 * output of every call equals its input. */
#include "tests/unit/device.h"

#include "collectives.h"

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
    need(dev_be->sync(dev_q, &err), &err);
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

static void *device_memory(size_t bytes)
{
    struct gpt_err err;
    void *mem;

    need(dev_be->alloc(dev_be, bytes, "a test", &mem, &err), &err);
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
        dev_be->free(dev_be, in);
        dev_be->free(dev_be, out);
    }
    lib->close(clique);
    free(x);
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
    close_devices();
    return tap_done();
}
