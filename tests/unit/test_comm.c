/* Collectives between processes: sums have the bits of a sum in the order of
 * ranks, and who fails, leaves or hangs is named. */
#include "parallel/comm.h"

#include "tests/lib/tap.h"

#include "base/num.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* MAX_N floats are summed in slices, fewer by everybody. */
enum { MAX_RANKS = 4, MAX_N = 300007 };

struct member {
    struct gpt_store *store;
    struct gpt_backend *be;
    struct gpt_queue *q;
    struct gpt_comm *comm;
    int64_t rank, size;
    int wrong;
    const char *at; /* the first thing that was wrong */
};

static void expect_true(struct member *m, bool right, const char *what)
{
    if (right)
        return;
    if (m->wrong++ == 0)
        m->at = what;
}

/* Values that do not add up the same in another order. */
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

static float *floats(struct member *m, int64_t n)
{
    void *p;
    struct gpt_err err;

    if (m->be->alloc(m->be, (size_t)n * 4, "a test", &p, &err) != GPT_OK)
        exit(99);
    return p;
}

static void check_sums(struct member *m)
{
    static const int64_t sizes[] = {1, 2, 3, 7, 20011, MAX_N};
    float *x = floats(m, MAX_N * MAX_RANKS), *y = floats(m, MAX_N);

    for (size_t k = 0; k < GPT_COUNT(sizes); k++) {
        const int64_t n = sizes[k];
        for (int64_t i = 0; i < n; i++)
            x[i] = value(m->rank, i);
        stagger(m, (int64_t)k);
        gpt_comm_all_reduce(m->comm, m->q, x, n, GPT_F32, GPT_SUM);
        bool same = true;
        for (int64_t i = 0; i < n; i++)
            same = same && x[i] == sum_of(m, i);
        expect_true(m, same, "all-reduce: sum in the order of ranks");

        for (int64_t i = 0; i < n * m->size; i++)
            x[i] = value(m->rank, i);
        gpt_comm_reduce_scatter(m->comm, m->q, y, x, n, GPT_F32);
        same = true;
        for (int64_t i = 0; i < n; i++)
            same = same && y[i] == sum_of(m, m->rank * n + i);
        expect_true(m, same, "reduce-scatter");
        gpt_comm_reduce_scatter(m->comm, m->q, x + m->rank * n, x, n, GPT_F32);
        expect_true(m, memcmp(x + m->rank * n, y, (size_t)n * 4) == 0,
                    "reduce-scatter in place");
        gpt_comm_all_gather(m->comm, m->q, x, y, n, GPT_F32);
        same = true;
        for (int64_t i = 0; i < n * m->size; i++)
            same = same && x[i] == sum_of(m, i);
        expect_true(m, same, "all-gather");
        memset(x, 0, (size_t)(n * m->size) * 4);
        memcpy(x + m->rank * n, y, (size_t)n * 4);
        gpt_comm_all_gather(m->comm, m->q, x, x + m->rank * n, n, GPT_F32);
        for (int64_t i = 0; i < n * m->size; i++)
            same = same && x[i] == sum_of(m, i);
        expect_true(m, same, "all-gather in place");
    }
    m->be->free(m->be, x);
    m->be->free(m->be, y);
}

static void check_types(struct member *m)
{
    double d[3] = {1.5 + (double)m->rank, -1, 1e300};
    int64_t k[2] = {m->rank, INT64_MAX};
    float f[2] = {(float)m->rank, m->rank == 0 ? NAN : 1};
    uint16_t h[1] = {gpt_f32_to_bf16(1 + (float)m->rank / 64)};
    float sum = 0;

    gpt_comm_all_reduce(m->comm, m->q, d, 3, GPT_F64, GPT_SUM);
    expect_true(m,
                d[0] == 1.5 * (double)m->size +
                            (double)(m->size * (m->size - 1) / 2) &&
                    d[1] == -(double)m->size,
                "F64");
    gpt_comm_all_reduce(m->comm, m->q, k, 2, GPT_I64, GPT_MAX);
    expect_true(m, k[0] == m->size - 1 && k[1] == INT64_MAX, "I64, maximum");
    gpt_comm_all_reduce(m->comm, m->q, f, 2, GPT_F32, GPT_MAX);
    expect_true(m, f[0] == (float)(m->size - 1) && isnan(f[1]),
                "F32, maximum; NaN stays");
    for (int64_t r = 0; r < m->size; r++)
        sum += gpt_bf16_to_f32(gpt_f32_to_bf16(1 + (float)r / 64));
    gpt_comm_all_reduce(m->comm, m->q, h, 1, GPT_BF16, GPT_SUM);
    expect_true(m, h[0] == gpt_f32_to_bf16(sum), "BF16 is summed in float");
    int64_t root = m->size - 1, v = m->rank == root ? 77 : 0;
    gpt_comm_broadcast(m->comm, m->q, &v, 1, GPT_I64, root);
    expect_true(m, v == 77, "broadcast");
}

/* Around the ring in both directions at once, several messages each. */
static void check_exchange(struct member *m)
{
    const int64_t next = (m->rank + 1) % m->size;
    const int64_t last = (m->rank + m->size - 1) % m->size;
    int64_t out[4], in[4] = {0};
    int64_t bytes;
    double waited;

    for (int64_t round = 0; round < 20; round++) {
        for (int64_t i = 0; i < 4; i++)
            out[i] = round * 100 + m->rank * 10 + i;
        const struct gpt_transfer list[] = {
            {true, next, &out[0], 8}, {true, last, &out[1], 8},
            {true, next, &out[2], 8}, {false, next, &in[1], 8},
            {false, last, &in[0], 8}, {false, last, &in[2], 8},
        };
        stagger(m, round);
        if (m->size == 2) /* both neighbours are one: order counts */
            gpt_comm_exchange(m->comm, m->q,
                              (const struct gpt_transfer[]){list[0], list[1],
                                                            list[2], list[4],
                                                            list[3], list[5]},
                              6);
        else
            gpt_comm_exchange(m->comm, m->q, list, 6);
        expect_true(m,
                    in[0] == round * 100 + last * 10 &&
                        in[1] == round * 100 + next * 10 + 1 &&
                        in[2] == round * 100 + last * 10 + 2,
                    "exchange");
    }
    gpt_comm_barrier(m->comm, m->q);
    gpt_comm_counters(m->comm, &bytes, &waited);
    expect_true(m, bytes > 20 * 24 && waited > 0, "counters");
}

static void collectives(struct member *m)
{
    struct gpt_err err = {0};

    check_sums(m);
    check_types(m);
    check_exchange(m);
    expect_true(m, gpt_comm_check(m->comm, &err) == GPT_OK, "no failure");
}

/* ---- failures: rank 1 fails in different ways, the others must name it ----
 */

static void all_reduce_once(struct member *m)
{
    float x = 1;

    gpt_comm_all_reduce(m->comm, m->q, &x, 1, GPT_F32, GPT_SUM);
}

static void expect_failure(struct member *m, const char *says)
{
    struct gpt_err err = {0};
    float x = 5;

    all_reduce_once(m);
    int status = gpt_comm_check(m->comm, &err);
    bool right = status == GPT_EFAIL && strstr(err.text, says);
    if (!right)
        printf("# rank %lld: '%s'\n", (long long)m->rank, err.text);
    fflush(stdout);
    expect_true(m, right, says);
    gpt_comm_all_reduce(m->comm, m->q, &x, 1, GPT_F32, GPT_SUM);
    expect_true(m, x == 5, "later calls do nothing");
}

static void one_reports(struct member *m)
{
    struct gpt_err err = {0};

    all_reduce_once(m);
    if (m->rank == 1) {
        expect_true(
            m, gpt_store_post_failure(m->store, 1, "no memory", &err) == GPT_OK,
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
    expect_failure(m, "all-reduce 2 of group 'test.all': lost rank 1");
}

static void one_hangs(struct member *m)
{
    all_reduce_once(m);
    gpt_comm_set_timeout(m->comm, 2);
    if (m->rank == 1) {
        usleep(3200000);
        _exit(0);
    }
    expect_failure(m, "not arrived after 2 s: rank 1");
}

/* ---- processes ---- */

static int be_member(int64_t rank, int64_t size, int64_t port, bool staged,
                     void (*run)(struct member *))
{
    struct member m = {.rank = rank, .size = size};
    struct gpt_launch l = {.world_size = size + 1, /* always over the network */
                           .rank = rank,
                           .host = "127.0.0.1",
                           .port = port,
                           .agent_store = true,
                           .run_id = "test"};
    int64_t ranks[MAX_RANKS] = {0, 1, 2, 3};
    struct gpt_err err = {0};
    struct gpt_backend be;

    if (gpt_backend_cpu(&m.be, &err) != GPT_OK ||
        gpt_store_open(&m.store, &l, 10, &err) != GPT_OK)
        return 98;
    be = *m.be;
    be.host_memory = !staged;
    m.be = &be;
    if (be.queue_open(&be, &m.q, &err) != GPT_OK ||
        gpt_comm_open(&m.comm, m.store, &be, GPT_GLOO, "test.all", ranks, size, rank, 10,
                      &err) != GPT_OK) {
        printf("# %s\n", err.text);
        fflush(stdout);
        return 97;
    }
    run(&m);
    if (m.wrong)
        printf("# rank %lld: %s\n", (long long)rank, m.at);
    fflush(stdout);
    gpt_comm_close(m.comm);
    be.queue_close(m.q);
    gpt_store_close(m.store);
    return m.wrong;
}

/* Processes are made before this one has threads; they read the port of the
 * store from a pipe. killed: rank 1 dies of a signal. */
static void run_job(const char *what, int64_t size, bool staged,
                    void (*run)(struct member *), bool killed)
{
    pid_t pids[MAX_RANKS];
    int fds[2], status, wrong = 0;
    int64_t port = 0;
    struct gpt_store_server *v = NULL;
    struct gpt_err err = {0};

    fflush(stdout);
    if (pipe(fds) != 0)
        exit(1);
    for (int64_t r = 0; r < size; r++) {
        pids[r] = fork();
        if (pids[r] < 0)
            exit(1);
        if (pids[r] == 0) {
            alarm(60);
            if (read(fds[0], &port, sizeof port) != sizeof port)
                _exit(99);
            _exit(be_member(r, size, port, staged, run));
        }
    }
    if (gpt_store_server_open(&v, "127.0.0.1", 0, &err) == GPT_OK)
        port = gpt_store_server_port(v);
    for (int64_t r = 0; r < size; r++)
        if (write(fds[1], &port, sizeof port) != sizeof port)
            exit(1);
    for (int64_t r = 0; r < size; r++) {
        if (waitpid(pids[r], &status, 0) != pids[r])
            exit(1);
        bool dies = killed && r == 1;
        if (dies ? !WIFSIGNALED(status)
                 : !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            printf("# rank %lld: status %d\n", (long long)r, status);
            wrong++;
        }
    }
    gpt_store_server_close(v, 1);
    close(fds[0]);
    close(fds[1]);
    is_int(wrong, 0, "%s, %lld ranks", what, (long long)size);
}

static void test_one(void)
{
    struct gpt_backend *be;
    struct gpt_queue *q;
    struct gpt_comm *c;
    struct gpt_err err = {0};
    const int64_t ranks[1] = {3};
    float x = 2, y = 0, z = 0;

    if (gpt_backend_cpu(&be, &err) != GPT_OK ||
        be->queue_open(be, &q, &err) != GPT_OK)
        exit(1);
    is_int(gpt_comm_open(&c, NULL, be, GPT_GLOO, "alone", ranks, 1, 0, 1, &err), GPT_OK,
           "a group of one");
    gpt_comm_all_reduce(c, q, &x, 1, GPT_F32, GPT_SUM);
    gpt_comm_reduce_scatter(c, q, &y, &x, 1, GPT_F32);
    gpt_comm_all_gather(c, q, &z, &y, 1, GPT_F32);
    gpt_comm_broadcast(c, q, &z, 1, GPT_F32, 0);
    gpt_comm_barrier(c, q);
    ok(x == 2 && y == 2 && z == 2, "keeps what it has");
    ok(gpt_comm_size(c) == 1 && gpt_comm_rank(c) == 0, "size and place");
    is_int(gpt_comm_check(c, &err), GPT_OK, "no failure");
    gpt_comm_close(c);
    be->queue_close(q);
}

static void test_without(void)
{
    const int64_t ranks[2] = {0, 1};
    struct gpt_comm *c;
    struct gpt_err err = {0};

    ok(gpt_comm_open(&c, NULL, NULL, GPT_GLOO, "two", ranks, 2, 0, 1, &err) ==
               GPT_EUSAGE &&
           strstr(err.text, "needs Gloo"),
       "%s", err.text);
}

#ifdef GPT_HAVE_GLOO
static const bool has_gloo = true;
#else
static const bool has_gloo = false;
#endif

int main(void)
{
    static const struct {
        const char *what;
        int64_t size;
        bool staged;
        void (*run)(struct member *);
        bool killed;
    } jobs[] = {
        {"collectives", 2, false, collectives, false},
        {"collectives", 3, false, collectives, false},
        {"collectives", 4, false, collectives, false},
        {"collectives, staged", 3, true, collectives, false},
        {"a rank reports a failure", 3, false, one_reports, false},
        {"a rank is killed", 3, false, one_leaves, true},
        {"a rank hangs", 4, false, one_hangs, false},
    };

    for (size_t i = 0; i < GPT_COUNT(jobs); i++)
        if (has_gloo)
            run_job(jobs[i].what, jobs[i].size, jobs[i].staged, jobs[i].run,
                    jobs[i].killed);
        else
            skip("%s: built without Gloo", jobs[i].what);
    if (!has_gloo)
        test_without();
    test_one();
    return tap_done();
}
