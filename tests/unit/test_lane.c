/* Collectives on a lane beside a queue that computes. Every result is there
 * after the join, even with operations before and after it on the queue, with
 * more jobs than the ring has places, and (emulated device) with queues that
 * delay their work until something waits for it. Values are small whole
 * numbers, so sums are exact. */
#include "../lib/ranks.h"
#include "../lib/tap.h"

#include "parallel/lane.h"
#include "parallel/world.h"

enum { N = 300, ROUNDS = 20, PLACES = 3 };

struct job {
    const char *name, *device;
    int64_t size;
};

struct member {
    const struct job *job;
    struct gpt_world *w;
    struct gpt_backend *be;
    struct gpt_queue *q;
    struct gpt_lane *lane;
    float *whole, *part, *sum; /* device: (size * N), (N), (N) */
    float *host;               /* (size * N) */
    int64_t size, rank;
};

static int open_member(struct member *m, struct gpt_err *err)
{
    struct gpt_comm *comm = NULL;
    float **const blocks[] = {&m->whole, &m->part, &m->sum};

    GPT_TRY(gpt_backend_open(&m->be, m->job->device, err));
    GPT_TRY(m->be->queue_open(m->be, &m->q, err));
    GPT_TRY(gpt_world_connect(m->w, m->be, err));
    comm = m->w->comm[GPT_GROUP_DP];
    m->size = gpt_comm_size(comm);
    m->rank = gpt_comm_rank(comm);
    m->host = calloc((size_t)m->size * N, sizeof(*m->host));
    for (size_t i = 0; i < GPT_COUNT(blocks); i++) {
        void *mem;

        GPT_TRY(m->be->alloc(m->be, (size_t)m->size * N * sizeof(*m->host),
                             "a block", &mem, err));
        *blocks[i] = mem;
    }
    return gpt_lane_open(&m->lane, m->be, comm, PLACES, err);
}

static void close_member(struct member *m)
{
    float *const blocks[] = {m->whole, m->part, m->sum};

    gpt_lane_close(m->lane);
    for (size_t i = 0; i < GPT_COUNT(blocks); i++)
        if (blocks[i])
            m->be->free(m->be, blocks[i]);
    if (m->q)
        m->be->queue_close(m->q);
    free(m->host);
}

/* What rank r has at i in some round. */
static float value(int64_t r, int64_t round, int64_t i)
{
    return (float)((r * 5 + round * 3 + i) % 11);
}

static float sum_at(const struct member *m, int64_t round, int64_t i)
{
    float sum = 0;

    for (int64_t r = 0; r < m->size; r++)
        sum += value(r, round, i);
    return sum;
}

static void put(struct member *m, float *to, int64_t n, int64_t round)
{
    for (int64_t i = 0; i < n; i++)
        m->host[i] = value(m->rank, round, i);
    m->be->copy_in(m->q, to, m->host, (size_t)n * sizeof(*to));
}

static int take(struct member *m, const float *from, int64_t n,
                struct gpt_err *err)
{
    m->be->copy_out(m->q, m->host, from, (size_t)n * sizeof(*from));
    return m->be->sync(m->q, err);
}

static int wrong(struct gpt_err *err, const char *what, int64_t round,
                 int64_t i, float got, float want)
{
    return gpt_fail(err, GPT_EFAIL, "%s, round %lld: [%lld] is %g, not %g",
                    what, (long long)round, (long long)i, (double)got,
                    (double)want);
}

/* Sums in place of values that the queue has just computed; the queue uses the
 * result at once. */
static int check_sums(struct member *m, struct gpt_err *err)
{
    for (int64_t round = 0; round < ROUNDS; round++) {
        const struct gpt_collective call = {.kind = GPT_ALL_REDUCE,
                                            .in = m->whole,
                                            .out = m->whole,
                                            .n = N,
                                            .type = GPT_F32};

        put(m, m->whole, N, round);
        const int64_t ticket = gpt_lane_begin(m->lane, m->q, &call, NULL);
        m->be->zero(m->q, m->sum, N * sizeof(*m->sum)); /* beside it */
        gpt_lane_join(m->lane, m->q, ticket);
        m->be->bias_grad(m->q, m->sum, m->whole, 1, N, GPT_F32);
        GPT_TRY(take(m, m->sum, N, err));
        for (int64_t i = 0; i < N; i++)
            if (m->host[i] != sum_at(m, round, i))
                return wrong(err, "sum", round, i, m->host[i],
                             sum_at(m, round, i));
    }
    return GPT_OK;
}

/* More jobs than there is room for, each adding its shard to one sum; only the
 * last is joined. The source is made anew when the one before is done with. */
static int check_added(struct member *m, struct gpt_err *err)
{
    int64_t ticket = 0;

    m->be->zero(m->q, m->sum, N * sizeof(*m->sum));
    for (int64_t round = 0; round < ROUNDS; round++) {
        const struct gpt_collective call = {.kind = GPT_REDUCE_SCATTER,
                                            .in = m->whole,
                                            .out = m->part,
                                            .n = N,
                                            .type = GPT_F32};

        if (round % 4 == 0) {
            gpt_lane_join(m->lane, m->q, ticket);
            put(m, m->whole, N * m->size, round);
        }
        ticket = gpt_lane_begin(m->lane, m->q, &call, m->sum);
    }
    gpt_lane_join(m->lane, m->q, ticket);
    gpt_lane_join(m->lane, m->q, 1); /* joined long ago */
    GPT_TRY(take(m, m->sum, N, err));
    for (int64_t i = 0; i < N; i++) {
        float want = 0;

        for (int64_t round = 0; round < ROUNDS; round++)
            want += sum_at(m, round / 4 * 4, m->rank * N + i);
        if (m->host[i] != want)
            return wrong(err, "added", ROUNDS, i, m->host[i], want);
    }
    return GPT_OK;
}

/* A part in its place is made whole; then the lane is left with a job. */
static int check_gathered(struct member *m, struct gpt_err *err)
{
    const struct gpt_collective call = {.kind = GPT_ALL_GATHER,
                                        .in = m->whole + m->rank * N,
                                        .out = m->whole,
                                        .n = N,
                                        .type = GPT_F32};

    put(m, m->whole + m->rank * N, N, 1);
    gpt_lane_join(m->lane, m->q, gpt_lane_begin(m->lane, m->q, &call, NULL));
    GPT_TRY(take(m, m->whole, N * m->size, err));
    for (int64_t i = 0; i < N * m->size; i++)
        if (m->host[i] != value(i / N, 1, i % N))
            return wrong(err, "gathered", 1, i, m->host[i],
                         value(i / N, 1, i % N));
    (void)gpt_lane_begin(m->lane, m->q, &call, NULL);
    return GPT_OK;
}

static int check_times(const struct member *m, struct gpt_err *err)
{
    const struct gpt_lane_times t = gpt_lane_times(m->lane);

    if (t.total > 0 && t.waited >= 0)
        return GPT_OK;
    return gpt_fail(err, GPT_EFAIL, "took %g s, waited %g s", t.total,
                    t.waited);
}

static int be_rank(int64_t rank, void *arg)
{
    const struct gpt_world_options o = {
        .size = {[GPT_TP] = 1, [GPT_PP] = 1},
        .chunks = 1,
        .timeout = 100,
        .timeout_later = 100,
    };
    struct member m = {.job = arg};
    struct gpt_err err = {0};

    int status = gpt_world_open(&m.w, &o, &err);
    if (status == GPT_OK)
        status = open_member(&m, &err);
    if (status == GPT_OK)
        status = check_sums(&m, &err);
    if (status == GPT_OK)
        status = check_added(&m, &err);
    if (status == GPT_OK)
        status = gpt_lane_check(m.lane, &err);
    if (status == GPT_OK)
        status = check_times(&m, &err);
    if (status == GPT_OK)
        status = check_gathered(&m, &err);
    close_member(&m);
    status = gpt_world_end(m.w, status, &err);
    gpt_world_close(m.w);
    if (status != GPT_OK)
        printf("# rank %lld: %s\n", (long long)rank, err.text);
    return status;
}

/* True when the device is built. A process of its own looks for it, because
 * ranks must be forked before this one has threads. */
static int device_opens(int64_t rank, void *arg)
{
    struct gpt_backend *be;
    struct gpt_err err;

    (void)rank;
    return gpt_backend_open(&be, arg, &err) != GPT_OK;
}

int main(void)
{
    static struct job jobs[] = {
        {"CPU, 2 ranks", "cpu", 2},
        {"CPU, 4 ranks", "cpu", 4},
        {"a device that works late, 2 ranks", "cuda-emu", 2},
        {"a device that works late, 3 ranks", "cuda-emu", 3},
    };
    const char *build = getenv("BUILD");

    setenv("GPT_PLUGIN_DIR", build ? build : "build", 0);
    setenv("GPT_CUDA_EMU_STREAMS", "late", 1);
    for (size_t i = 0; i < GPT_COUNT(jobs); i++) {
        char device[16];

        snprintf(device, sizeof(device), "%s", jobs[i].device);
        if (!ranks_possible)
            skip("%s: built without Gloo", jobs[i].name);
        else if (ranks_run(1, 1, 120, device_opens, device) != 0)
            skip("%s: %s is not built", jobs[i].name, device);
        else
            is_int(ranks_run(jobs[i].size, 1, 300, be_rank, &jobs[i]), 0, "%s",
                   jobs[i].name);
    }
    return tap_done();
}
