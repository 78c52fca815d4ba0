/* Collectives between processes, through Gloo and through (emulated) NCCL. Sums
 * equal a sum in the order of ranks, bit for bit or nearly. A rank that fails,
 * ends or hangs is named. */
#include "parallel/comm.h"

#include "tests/lib/possible.h"
#include "tests/lib/tap.h"

#include "base/clock.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* MAX_N floats are summed in slices, fewer by everybody. */
enum { MAX_RANKS = 4, MAX_N = 300007 };

/* Staged: as if on a device. Emulated: what only an emulation of NCCL does. */
enum way { GLOO, STAGED, NCCL, EMULATED };

struct member {
    enum way way;
    struct gpt_store *store;
    struct gpt_backend *be;
    struct gpt_queue *q;
    struct gpt_comm *comm;
    int64_t rank, size;
    int wrong;
    const char *at; /* the first thing that was wrong */
};

/* Collectives that the library makes by their description. */
static void reduce_scatter(struct gpt_comm *c, struct gpt_queue *q, void *out,
                           const void *in, int64_t n, enum gpt_dtype type)
{
    gpt_comm_call(
        c, q,
        &(struct gpt_collective){.kind = GPT_REDUCE_SCATTER,
                                 .in = in,
                                 .out = out,
                                 .n = n,
                                 .type = type,
                                 .op = GPT_SUM});
}

static void broadcast(struct gpt_comm *c, struct gpt_queue *q, void *buf,
                      int64_t n, enum gpt_dtype type, int64_t root)
{
    gpt_comm_call(
        c, q,
        &(struct gpt_collective){.kind = GPT_BROADCAST,
                                 .in = buf,
                                 .out = buf,
                                 .n = n,
                                 .type = type,
                                 .root = root});
}

static void barrier(struct gpt_comm *c, struct gpt_queue *q)
{
    gpt_comm_call(c, q, &(struct gpt_collective){.kind = GPT_BARRIER});
}

static void expect_true(struct member *m, bool right, const char *what)
{
    if (right)
        return;
    if (m->wrong++ == 0)
        m->at = what;
}

/* Values whose sum depends on the order. */
static float value(int64_t rank, int64_t i)
{
    uint64_t bits = (uint64_t)(i * MAX_RANKS + rank + 1);

    bits *= UINT64_C(0x9E3779B97F4A7C15);
    bits = (bits ^ bits >> 31) * UINT64_C(0xBF58476D1CE4E5B9);
    float x = (float)(bits >> 40) * 0x1p-23f - 1;

    return i % 3 == rank % 3 ? x * 1e7f : x;
}

static float sum_of(const struct member *m, int64_t i)
{
    float sum = value(0, i);

    for (int64_t r = 1; r < m->size; r++)
        sum += value(r, i);
    return sum;
}

static void stagger(const struct member *m, int64_t round)
{
    usleep((useconds_t)((m->rank * 7 + round * 5) % 4 * 3000));
}

static void must(int status, const struct gpt_err *err)
{
    if (status == GPT_OK)
        return;
    printf("# %s\n", err->text);
    fflush(stdout);
    _exit(99);
}

/* Memory of the backend. */
static void *room(struct member *m, int64_t bytes)
{
    struct gpt_err err;
    void *p;

    must(m->be->alloc(m->be, (size_t)bytes, "a test", &p, &err), &err);
    return p;
}

static void fill(struct member *m, void *p, const void *host, int64_t bytes)
{
    m->be->copy_in(m->q, p, host, (size_t)bytes);
}

/* ... and that the queue has done all, or failed. */
static void look_at(struct member *m, void *host, const void *p, int64_t bytes)
{
    struct gpt_err err;

    m->be->copy_out(m->q, host, p, (size_t)bytes);
    must(m->be->sync(m->q, &err), &err);
}

static void all_reduce(struct member *m, void *host, int64_t n,
                       enum gpt_dtype type, enum gpt_reduce op)
{
    const int64_t bytes = n * (int64_t)gpt_dtype_bytes(type);
    void *p = room(m, bytes);

    fill(m, p, host, bytes);
    gpt_comm_all_reduce(m->comm, m->q, p, n, type, op);
    look_at(m, host, p, bytes);
    m->be->free(m->be, p);
}

/* Are these n sums, from element `first` on? NCCL adds up in other orders. */
static bool are_sums(const struct member *m, const float *x, int64_t first,
                     int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float want = sum_of(m, first + i);
        const double off = fabs((double)x[i] - (double)want);

        if (m->way == NCCL ? off > 1e7 * 0x1p-22 * (double)m->size
                           : x[i] != want)
            return false;
    }
    return true;
}

struct buffers { /* of the host, and of the backend */
    float *x, *y;
    void *a, *b;
};

static void set_values(struct member *m, const struct buffers *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        v->x[i] = value(m->rank, i);
    fill(m, v->a, v->x, n * 4);
}

static void check_reduce_scatter(struct member *m, const struct buffers *v,
                                 int64_t n)
{
    char *own = (char *)v->a + m->rank * n * 4;

    set_values(m, v, n * m->size);
    reduce_scatter(m->comm, m->q, v->b, v->a, n, GPT_F32);
    look_at(m, v->y, v->b, n * 4);
    expect_true(m, are_sums(m, v->y, m->rank * n, n), "reduce-scatter");
    reduce_scatter(m->comm, m->q, own, v->a, n, GPT_F32);
    look_at(m, v->x, own, n * 4);
    expect_true(m, memcmp(v->x, v->y, (size_t)n * 4) == 0,
                "reduce-scatter in place");
}

/* Of what reduce-scatter has left in b. */
static void check_all_gather(struct member *m, const struct buffers *v,
                             int64_t n)
{
    char *own = (char *)v->a + m->rank * n * 4;

    gpt_comm_all_gather(m->comm, m->q, v->a, v->b, n, GPT_F32);
    look_at(m, v->x, v->a, n * m->size * 4);
    expect_true(m, are_sums(m, v->x, 0, n * m->size), "all-gather");
    m->be->zero(m->q, v->a, (size_t)(n * m->size) * 4);
    m->be->copy(m->q, own, v->b, (size_t)n * 4);
    gpt_comm_all_gather(m->comm, m->q, v->a, own, n, GPT_F32);
    look_at(m, v->x, v->a, n * m->size * 4);
    expect_true(m, are_sums(m, v->x, 0, n * m->size), "all-gather in place");
}

static void check_sums(struct member *m)
{
    static const int64_t sizes[] = {1, 2, 3, 7, 20011, MAX_N};
    const int64_t bytes = (int64_t)MAX_N * 4;
    const struct buffers v = {malloc(MAX_N * MAX_RANKS * 4),
                              malloc(MAX_N * 4), room(m, bytes * MAX_RANKS),
                              room(m, bytes)};

    for (size_t k = 0; k < GPT_COUNT(sizes); k++) {
        const int64_t n = sizes[k];

        stagger(m, (int64_t)k);
        set_values(m, &v, n);
        gpt_comm_all_reduce(m->comm, m->q, v.a, n, GPT_F32, GPT_SUM);
        look_at(m, v.x, v.a, n * 4);
        expect_true(m, are_sums(m, v.x, 0, n), "all-reduce");
        check_reduce_scatter(m, &v, n);
        check_all_gather(m, &v, n);
    }
    m->be->free(m->be, v.a);
    m->be->free(m->be, v.b);
    free(v.x);
    free(v.y);
}

static void check_types(struct member *m)
{
    const int64_t sum_of_ranks = m->size * (m->size - 1) / 2;
    double d[3] = {1.5 + (double)m->rank, -1, 1e300};
    int64_t k[2] = {m->rank, INT64_MAX};
    float f[2] = {(float)m->rank, m->rank == 0 ? NAN : 1};
    uint16_t b = gpt_f32_to_bf16(1 + (float)m->rank / 64);
    uint16_t h = gpt_f32_to_f16(1 + (float)m->rank / 512);

    all_reduce(m, d, 3, GPT_F64, GPT_SUM);
    expect_true(m,
                d[0] == 1.5 * (double)m->size + (double)sum_of_ranks &&
                    d[1] == -(double)m->size,
                "F64");
    all_reduce(m, k, 2, GPT_I64, GPT_MAX);
    expect_true(m, k[0] == m->size - 1 && k[1] == INT64_MAX, "I64, maximum");
    k[0] = m->rank;
    all_reduce(m, k, 1, GPT_I64, GPT_SUM);
    expect_true(m, k[0] == sum_of_ranks, "I64, sum");
    all_reduce(m, f, 2, GPT_F32, GPT_MAX);
    expect_true(m, f[0] == (float)(m->size - 1), "F32, maximum");
    expect_true(m, m->way == NCCL || isnan(f[1]), "NaN stays");
    /* sums of so few bits are exact in float, and rounded to 8 or 11 of them */
    const float exact = (float)m->size + (float)sum_of_ranks / 64;
    const float finer = (float)m->size + (float)sum_of_ranks / 512;
    const float step = m->way == NCCL ? 0x1p-6f : 0;
    all_reduce(m, &b, 1, GPT_BF16, GPT_SUM);
    float got = gpt_bf16_to_f32(b);
    expect_true(m,
                fabsf(got - gpt_bf16_to_f32(gpt_f32_to_bf16(exact))) <=
                    step * (float)m->size,
                "BF16");
    all_reduce(m, &h, 1, GPT_F16, GPT_SUM);
    got = gpt_f16_to_f32(h);
    expect_true(m,
                fabsf(got - gpt_f16_to_f32(gpt_f32_to_f16(finer))) <=
                    step / 8 * (float)m->size,
                "F16");
}

static void check_broadcast(struct member *m)
{
    const int64_t root = m->size - 1;
    int64_t v = m->rank == root ? 77 : 0;
    void *p = room(m, 8);

    fill(m, p, &v, 8);
    broadcast(m->comm, m->q, p, 1, GPT_I64, root);
    look_at(m, &v, p, 8);
    expect_true(m, v == 77, "broadcast");
    m->be->free(m->be, p);
}

/* Around the ring in both directions at once, several messages each. */
static void check_exchange(struct member *m)
{
    const int64_t next = (m->rank + 1) % m->size;
    const int64_t last = (m->rank + m->size - 1) % m->size;
    int64_t *out = room(m, 24), *in = room(m, 24), sent[3], got[3];
    int64_t bytes;
    double waited;

    for (int64_t round = 0; round < 20; round++) {
        for (int64_t i = 0; i < 3; i++)
            sent[i] = round * 100 + m->rank * 10 + i;
        fill(m, out, sent, 24);
        /* two ranks: both neighbours are one, and order counts */
        const int one = m->size == 2 ? 0 : 1, two = 1 - one;
        const struct gpt_transfer list[] = {
            {true, next, &out[0], 8},
            {true, last, &out[1], 8},
            {true, next, &out[2], 8},
            {false, one ? next : last, &in[one], 8},
            {false, two ? next : last, &in[two], 8},
            {false, last, &in[2], 8},
        };
        stagger(m, round);
        gpt_comm_exchange(m->comm, m->q, list, 6);
        look_at(m, got, in, 24);
        expect_true(m,
                    got[0] == round * 100 + last * 10 &&
                        got[1] == round * 100 + next * 10 + 1 &&
                        got[2] == round * 100 + last * 10 + 2,
                    "exchange");
    }
    barrier(m->comm, m->q);
    gpt_comm_counters(m->comm, &bytes, &waited);
    expect_true(m, bytes > 20 * 24 && waited > 0, "counters");
    m->be->free(m->be, out);
    m->be->free(m->be, in);
}

static void collectives(struct member *m)
{
    struct gpt_err err = {0};

    check_sums(m);
    check_types(m);
    check_broadcast(m);
    check_exchange(m);
    expect_true(m, gpt_comm_check(m->comm, &err) == GPT_OK, "no failure");
}

/* Rank 1 waits until all others have come so far. */
static void gather(struct member *m)
{
    struct gpt_err err = {0};
    int64_t n = 0;

    must(gpt_store_add(m->store, "come", m->rank != 1, &n, &err), &err);
    while (m->rank == 1 && n < m->size - 1) {
        usleep(20000);
        must(gpt_store_add(m->store, "come", 0, &n, &err), &err);
    }
}

/* Many more calls than may be on a queue at once, from ranks of different
 * speed; the host waits only for the last. */
static void many_calls(struct member *m)
{
    enum { FEW = 8 };
    const int64_t calls = 3 * GPT_CLIQUE_CALLS / 2;
    float x = 1;
    void *p = room(m, 4);
    struct gpt_err err;

    fill(m, p, &x, 4);
    gpt_comm_all_reduce(m->comm, m->q, p, 1, GPT_F32, GPT_SUM);
    must(m->be->sync(m->q, &err), &err); /* connected */
    /* rank 1 comes when the calls of the others have returned */
    if (m->rank == 1) {
        gather(m);
        usleep(300000);
    }
    for (int64_t i = 0; i < FEW; i++)
        gpt_comm_all_reduce(m->comm, m->q, p, 1, GPT_F32, GPT_MAX);
    const double returned = gpt_now();
    if (m->rank != 1)
        gather(m);
    for (int64_t i = FEW; i < calls; i++)
        gpt_comm_all_reduce(m->comm, m->q, p, 1, GPT_F32, GPT_MAX);
    look_at(m, &x, p, 4);
    expect_true(m, m->rank == 1 || gpt_now() - returned > 0.25,
                "results do not return at once");
    expect_true(m, x == (float)m->size, "their sum");
    m->be->free(m->be, p);
}

/* ---- failures: rank 1 fails in different ways, the others must name it ----
 */

static void all_reduce_once(struct member *m)
{
    float x = 1;

    all_reduce(m, &x, 1, GPT_F32, GPT_SUM);
}

static void expect_report(struct member *m, const char *says)
{
    struct gpt_err err = {0};

    int status = gpt_comm_check(m->comm, &err);
    bool right = status == GPT_EFAIL && strstr(err.text, says);
    if (!right)
        printf("# rank %lld: '%s'\n", (long long)m->rank, err.text);
    fflush(stdout);
    expect_true(m, right, says);
}

static void expect_failure(struct member *m, const char *says)
{
    float x = 5;

    all_reduce_once(m);
    expect_report(m, says);
    all_reduce(m, &x, 1, GPT_F32, GPT_SUM);
    expect_true(m, x == 5, "later calls do nothing");
}

static void one_reports(struct member *m)
{
    const struct gpt_err failure = {GPT_EFAIL, 1, "no memory", ""};
    struct gpt_err err = {0};

    all_reduce_once(m);
    if (m->rank == 1) {
        expect_true(
            m, gpt_store_post_failure(m->store, &failure, &err) == GPT_OK,
            "posted");
        _exit(m->wrong);
    }
    expect_failure(m, "all-reduce 2 of group 'test.all': rank 1: no memory");
}

static void one_leaves(struct member *m)
{
    all_reduce_once(m);
    if (m->rank == 1)
        kill(getpid(), SIGKILL);
    expect_failure(m, m->way == NCCL
                          ? "all-reduce 2 of group 'test.all': NCCL: remote "
                            "error: the connection to rank 1 "
                          : "all-reduce 2 of group 'test.all': lost rank 1");
}

/* The rank is silent, like one that hangs. */
static void one_vanishes(struct member *m)
{
    all_reduce_once(m);
    gpt_comm_set_timeout(m->comm, 1.5);
    if (m->rank == 1)
        kill(getpid(), SIGKILL);
    expect_failure(m, "not arrived after 1.5 s: rank 1");
}

static void hang(struct member *m)
{
    gather(m);
    _exit(0);
}

static void one_hangs(struct member *m)
{
    all_reduce_once(m);
    gpt_comm_set_timeout(m->comm, 2);
    if (m->rank == 1)
        hang(m);
    expect_failure(m, "not arrived after 2 s: rank 1");
    gather(m);
}

/* The message names the first of many calls on the queue, not the last. */
static void one_is_behind(struct member *m)
{
    void *p = room(m, 4);
    struct gpt_err err;

    all_reduce_once(m);
    gpt_comm_set_timeout(m->comm, 1.5);
    if (m->rank == 1)
        hang(m);
    for (int i = 0; i < 5; i++)
        gpt_comm_all_reduce(m->comm, m->q, p, 1, GPT_F32, GPT_MAX);
    must(m->be->sync(m->q, &err), &err);
    expect_report(m, "all-reduce 2 of group 'test.all': not arrived after 1.5 "
                     "s: rank 1");
    gather(m);
    m->be->free(m->be, p);
}

/* Members that make different calls. */
static void one_differs(struct member *m)
{
    struct gpt_err err;
    void *p = room(m, 64);

    if (m->rank == 1)
        broadcast(m->comm, m->q, p, 3, GPT_F32, 0);
    else
        gpt_comm_all_reduce(m->comm, m->q, p, 3, GPT_F32, GPT_SUM);
    must(m->be->sync(m->q, &err), &err);
    expect_report(m, "of group 'test.all': ");
    m->be->free(m->be, p);
}

/* A message that is shorter than its receiver expects. */
static void sizes_differ(struct member *m)
{
    struct gpt_err err;
    void *p = room(m, 64);
    const struct gpt_transfer t = {m->rank == 0, 1 - m->rank, p,
                                   m->rank == 0 ? 8 : 16};

    gpt_comm_exchange(m->comm, m->q, &t, 1);
    must(m->be->sync(m->q, &err), &err);
    if (m->rank == 1) /* the other's part is over */
        expect_report(m, "exchange 1 of group 'test.all': NCCL: invalid usage: "
                         "rank 0 of the group makes another call");
    m->be->free(m->be, p);
}

/* Something goes wrong in rank 1's library. */
static void one_breaks(struct member *m)
{
    char says[80];

    all_reduce_once(m);
    snprintf(says, sizeof(says), "all-reduce 2 of group 'test.all': %s",
             m->rank == 1 ? "NCCL: internal error: forced" : "rank 1: ");
    expect_failure(m, says);
}

/* A library whose calls cannot be ended: its stream is not used any more. */
static void abort_hangs(struct member *m)
{
    struct gpt_err err = {0};
    void *p = room(m, 4);

    all_reduce_once(m);
    gpt_comm_set_timeout(m->comm, 1.5);
    if (m->rank == 1)
        hang(m);
    setenv("GPT_CUDA_EMU_NCCL", "hang-abort", 1);
    gpt_comm_all_reduce(m->comm, m->q, p, 1, GPT_F32, GPT_SUM);
    expect_true(m, m->be->sync(m->q, &err) == GPT_EDEVICE &&
                       strstr(err.text, "NCCL does not end a collective"),
                "the queue says why it is left alone");
    expect_report(m, "not arrived after 1.5 s: rank 1");
    gather(m);
    m->be->free(m->be, p);
}

/* ---- processes ---- */

static bool emulated(void)
{
    const char *device = getenv("GPT_TEST_DEVICE");

    return !device || strcmp(device, "cuda-emu") == 0;
}

static void set_plugins(void)
{
    const char *build = getenv("BUILD");

    setenv("GPT_PLUGIN_DIR", build ? build : "build", 0);
}

/* The CPU, also as if its memory were a device's; or a device. */
static int open_backend(struct member *m, struct gpt_backend *copy,
                        struct gpt_err *err)
{
    if (m->way == NCCL) {
        set_plugins();
        return gpt_backend_open_rank(
            &m->be, emulated() ? "cuda-emu" : "cuda", m->rank, err);
    }
    GPT_TRY(gpt_backend_cpu(&m->be, err));
    *copy = *m->be;
    copy->host_memory = m->way == GLOO;
    m->be = copy;
    return GPT_OK;
}

static int be_member(int64_t rank, int64_t size, int64_t port, enum way way,
                     void (*run)(struct member *))
{
    struct member m = {.rank = rank,
                       .size = size,
                       .way = way == EMULATED ? NCCL : way};
    struct gpt_launch_env l = {.world_size =
                                   size + 1, /* always over the network */
                               .rank = rank,
                               .host = "127.0.0.1",
                               .port = port,
                               .agent_store = true,
                               .run_id = "test"};
    int64_t ranks[MAX_RANKS] = {0, 1, 2, 3};
    struct gpt_err err = {0};
    struct gpt_backend copy;

    if (run == one_breaks && rank == 1)
        setenv("GPT_CUDA_EMU_NCCL", "fail=2", 1);
    if (run == one_vanishes)
        setenv("GPT_CUDA_EMU_NCCL", "silent", 1);
    must(open_backend(&m, &copy, &err), &err);
    must(gpt_store_open(&m.store, &l, 60, &err), &err);
    must(m.be->queue_open(m.be, &m.q, &err), &err);
    const struct gpt_comm_options o = {
        .store = m.store, .be = m.be, .name = "test.all", .timeout = 60,
        .carrier = m.way == NCCL ? GPT_NCCL : GPT_GLOO,
        .ranks = ranks, .n = size, .index = rank};
    must(gpt_comm_open(&m.comm, &o, &err), &err);
    run(&m);
    if (m.wrong)
        printf("# rank %lld: %s\n", (long long)rank, m.at);
    fflush(stdout);
    gpt_comm_close(m.comm);
    m.be->queue_close(m.q);
    gpt_store_close(m.store);
    return m.wrong;
}

struct job {
    const char *what;
    int64_t size;
    enum way way;
    void (*run)(struct member *);
    bool killed; /* rank 1 dies of a signal */

    pid_t pids[MAX_RANKS];
    int fds[2];
    struct gpt_store_server *server;
};

/* Processes are made before this one has threads; they read the port of the
 * store from a pipe. */
static void fork_job(struct job *j)
{
    int64_t port;

    fflush(stdout);
    if (pipe(j->fds) != 0)
        exit(1);
    for (int64_t r = 0; r < j->size; r++) {
        j->pids[r] = fork();
        if (j->pids[r] < 0)
            exit(1);
        if (j->pids[r] == 0) {
            alarm(300);
            if (read(j->fds[0], &port, sizeof(port)) != sizeof(port))
                _exit(99);
            _exit(be_member(r, j->size, port, j->way, j->run));
        }
    }
}

static void serve_job(struct job *j)
{
    struct gpt_err err = {0};
    int64_t port = 0;

    if (gpt_store_server_open(&j->server, "127.0.0.1", 0, &err) == GPT_OK)
        port = gpt_store_server_port(j->server);
    for (int64_t r = 0; r < j->size; r++)
        if (write(j->fds[1], &port, sizeof(port)) != sizeof(port))
            exit(1);
}

static void await_job(struct job *j)
{
    int status, wrong = 0;

    for (int64_t r = 0; r < j->size; r++) {
        if (waitpid(j->pids[r], &status, 0) != j->pids[r])
            exit(1);
        bool dies = j->killed && r == 1;
        if (dies ? !WIFSIGNALED(status)
                 : !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            printf("# rank %lld: status %d\n", (long long)r, status);
            wrong++;
        }
    }
    gpt_store_server_close(j->server, 1);
    close(j->fds[0]);
    close(j->fds[1]);
    is_int(wrong, 0, "%s%s, %lld ranks", j->way >= NCCL ? "NCCL: " : "",
           j->what, (long long)j->size);
}

/* Jobs that mostly wait run at the same time. */
static void run_jobs(struct job *jobs, size_t n, const bool can[])
{
    for (size_t i = 0; i < n; i++)
        if (can[jobs[i].way])
            fork_job(&jobs[i]);
    for (size_t i = 0; i < n; i++)
        if (can[jobs[i].way])
            serve_job(&jobs[i]);
    for (size_t i = 0; i < n; i++)
        if (can[jobs[i].way])
            await_job(&jobs[i]);
        else
            skip("%s: %s", jobs[i].what,
                 jobs[i].way >= NCCL ? "no device with NCCL for each rank"
                                     : "built without Gloo");
}

static void test_one(void)
{
    struct gpt_backend *be;
    struct gpt_queue *q;
    struct gpt_comm *c;
    struct gpt_err err = {0};
    struct gpt_comm_options o = {
        .name = "alone", .ranks = (const int64_t[]){3}, .n = 1, .timeout = 1};
    float x = 2, y = 0, z = 0;

    if (gpt_backend_cpu(&be, &err) != GPT_OK ||
        be->queue_open(be, &q, &err) != GPT_OK)
        exit(1);
    o.be = be;
    is_int(gpt_comm_open(&c, &o, &err), GPT_OK, "a group of one");
    gpt_comm_all_reduce(c, q, &x, 1, GPT_F32, GPT_SUM);
    reduce_scatter(c, q, &y, &x, 1, GPT_F32);
    gpt_comm_all_gather(c, q, &z, &y, 1, GPT_F32);
    broadcast(c, q, &z, 1, GPT_F32, 0);
    barrier(c, q);
    ok(x == 2 && y == 2 && z == 2, "keeps what it has");
    ok(gpt_comm_size(c) == 1 && gpt_comm_rank(c) == 0, "size and place");
    is_int(gpt_comm_check(c, &err), GPT_OK, "no failure");
    gpt_comm_close(c);
    be->queue_close(q);
}

static void test_without(void)
{
    const struct gpt_comm_options o = {
        .name = "two", .ranks = (const int64_t[]){0, 1}, .n = 2, .timeout = 1};
    struct gpt_comm *c;
    struct gpt_err err = {0};

    ok(gpt_comm_open(&c, &o, &err) == GPT_EUSAGE &&
           strstr(err.text, "needs Gloo"),
       "%s", err.text);
}

/* True when there are so many GPUs, or the emulation of them. Another process
 * looks for them, because processes that are forked later cannot use an open
 * device. */
static bool has_devices(int64_t ranks)
{
    struct gpt_backend *be;
    struct gpt_err err;
    char text[200];
    int status;

    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        set_plugins();
        snprintf(text, sizeof(text), "cuda:%lld", (long long)ranks - 1);
        _exit(gpt_backend_open(&be, emulated() ? "cuda-emu" : text, &err) !=
                  GPT_OK ||
              !be->collectives ||
              !be->collectives->library(text, sizeof(text)));
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

int main(void)
{
    static struct job working[] = {
        {"collectives", 2, GLOO, collectives, .killed = false},
        {"collectives", 3, GLOO, collectives, .killed = false},
        {"collectives", 4, GLOO, collectives, .killed = false},
        {"collectives, staged", 3, STAGED, collectives, .killed = false},
        {"collectives", 2, NCCL, collectives, .killed = false},
        {"collectives", 3, NCCL, collectives, .killed = false},
        {"collectives", 4, NCCL, collectives, .killed = false},
        {"the host does not wait", 3, NCCL, many_calls, .killed = false},
    };
    static struct job failing[] = {
        {"a rank reports a failure", 3, GLOO, one_reports, .killed = false},
        {"a rank is killed", 3, GLOO, one_leaves, .killed = true},
        {"a rank hangs", 4, GLOO, one_hangs, .killed = false},
        {"a rank reports a failure", 3, NCCL, one_reports, .killed = false},
        {"a rank is killed", 3, EMULATED, one_leaves, .killed = true},
        {"its end is not noticed", 3, EMULATED, one_vanishes, .killed = true},
        {"a rank hangs", 4, NCCL, one_hangs, .killed = false},
        {"a rank is behind", 2, NCCL, one_is_behind, .killed = false},
        {"a rank calls otherwise", 2, EMULATED, one_differs, .killed = false},
        {"a message is shorter", 2, EMULATED, sizes_differ, .killed = false},
        {"an error on the way", 3, EMULATED, one_breaks, .killed = false},
        {"an abort that hangs", 2, EMULATED, abort_hangs, .killed = false},
    };
    const bool can[] = {[GLOO] = ranks_possible,
                        [STAGED] = ranks_possible,
                        [NCCL] = has_devices(MAX_RANKS),
                        [EMULATED] = emulated() && has_devices(MAX_RANKS)};

    for (size_t i = 0; i < GPT_COUNT(working); i++)
        run_jobs(&working[i], 1, can);
    run_jobs(failing, GPT_COUNT(failing), can);
    if (!ranks_possible)
        test_without();
    test_one();
    return tap_done();
}
