/* A world of several processes that meet through the environment: groups,
 * agreement, and the first failure, which every rank reports. */
#include "parallel/world.h"

#include "tests/lib/port.h"
#include "tests/lib/possible.h"
#include "tests/lib/tap.h"

#include "base/clock.h"

#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_RANKS = 8 };

struct member {
    struct gpt_world *w;
    struct gpt_backend *be;
    struct gpt_queue *q;
    int64_t rank;
    int wrong;
};

static void expect(struct member *m, bool right, const char *what,
                   const char *got)
{
    if (right)
        return;
    printf("# rank %lld: %s: %s\n", (long long)m->rank, what, got);
    fflush(stdout);
    m->wrong++;
}

static void expect_says(struct member *m, const struct gpt_err *err,
                        const char *says)
{
    expect(m, strstr(err->text, says) != NULL, says, err->text);
}

/* ---- what the ranks do; they return how they end ---- */

/* TP 2, PP 2, DP 2: sums of world ranks show the members of each group. */
static int groups(struct member *m, struct gpt_err *err)
{
    const struct gpt_topology *t = &m->w->topology;
    int64_t ranks[MAX_RANKS], index;

    for (int i = 0; i < GPT_N_GROUPS; i++) {
        float got = (float)m->rank, want = 0;
        int64_t n =
            gpt_topology_group(t, (enum gpt_group)i, ranks, &index);

        for (int64_t k = 0; k < n; k++)
            want += (float)ranks[k];
        if (!m->w->comm[i]) {
            expect(m, n < 2 || index < 0, "missing", gpt_group_name(i));
            continue;
        }
        expect(m, gpt_comm_size(m->w->comm[i]) == n &&
                      gpt_comm_rank(m->w->comm[i]) == index,
               "size or place", gpt_group_name(i));
        gpt_comm_all_reduce(m->w->comm[i], m->q, &got, 1, GPT_F32, GPT_SUM);
        expect(m, got == want, "sum", gpt_group_name(i));
    }
    float one = 1;
    gpt_comm_all_reduce(m->w->reduce, m->q, &one, 1, GPT_F32, GPT_SUM);
    expect(m, one == (float)t->size[GPT_DP], "sum", "reduce");
    gpt_world_shorten_timeout(m->w);
    return gpt_world_check(m->w, err);
}

static int agree(struct member *m, struct gpt_err *err)
{
    int64_t cores = 0;

    GPT_TRY(gpt_world_agree(m->w, "options", "a = 1\nb = 2\n", err));
    GPT_TRY(gpt_world_cores(m->w, &cores, err));
    expect(m, cores >= 1 && (int)cores <= omp_get_num_procs(), "cores", "");
    return gpt_world_agree(m->w, "data set", "digest 12", err);
}

static int differ(struct member *m, struct gpt_err *err)
{
    const char *text = m->rank == 1   ? "a = 1\nb = 3\nc = 4\n"
                       : m->rank == 2 ? "a = 1\nb = 2\n"
                                      : "a = 1\nb = 2\nc = 4\n";

    int status = gpt_world_agree(m->w, "options", text, err);
    expect(m, status == GPT_EUSAGE, "status", err->text);
    expect_says(m, err, "options: ranks 1, 2 differ from rank 0");
    expect_says(m, err, "the first of them: 'b = 3', rank 0 has 'b = 2'");
    return status;
}

/* Rank 1 has bad data, while the others wait for it in a sum. */
static int one_fails(struct member *m, struct gpt_err *err)
{
    float x = 1;

    if (m->rank == 1)
        return gpt_fail(err, GPT_EDATA, "x.idx: truncated");
    gpt_comm_all_reduce(m->w->comm[GPT_GROUP_WORLD], m->q, &x, 1, GPT_F32,
                        GPT_SUM);
    return gpt_world_check(m->w, err);
}

static int one_dies(struct member *m, struct gpt_err *err)
{
    float x = 1;

    gpt_comm_all_reduce(m->w->comm[GPT_GROUP_WORLD], m->q, &x, 1, GPT_F32,
                        GPT_SUM);
    if (m->rank == 1)
        raise(SIGKILL);
    gpt_comm_all_reduce(m->w->comm[GPT_GROUP_WORLD], m->q, &x, 1, GPT_F32,
                        GPT_SUM);
    return gpt_world_check(m->w, err);
}

/* Before it has said anything in any group. */
static int one_dies_early(struct member *m, struct gpt_err *err)
{
    if (m->rank == 1)
        raise(SIGKILL);
    return gpt_world_agree(m->w, "options", "a = 1\n", err);
}

/* The others are complete; rank 1 is not, and fails. */
static int last_fails(struct member *m, struct gpt_err *err)
{
    if (m->rank != 1)
        return GPT_OK;
    usleep(300000);
    return gpt_fail(err, GPT_EIO, "no space");
}

static int well(struct member *m, struct gpt_err *err)
{
    (void)m;
    (void)err;
    return GPT_OK;
}

/* ---- jobs ---- */

struct job {
    const char *what;
    int64_t size, tp_size, pp_size;
    int (*run)(struct member *, struct gpt_err *);
    int status;       /* of all ranks */
    const char *says; /* the last line of all ranks */
    bool killed;      /* rank 1 */
};

static const struct job jobs[] = {
    {"alone", 1, 1, 1, agree, GPT_OK, "", false},
    {"groups", 8, 2, 2, groups, GPT_OK, "", false},
    {"the same on all", 2, 1, 1, agree, GPT_OK, "", false},
    {"other options", 3, 1, 1, differ, GPT_EUSAGE, "rank", false},
    {"bad data on one", 3, 1, 1, one_fails, GPT_EDATA,
     "rank 1: x.idx: truncated", false},
    {"one is killed", 3, 1, 1, one_dies, GPT_EFAIL,
     "rank 1: ended without a word", true},
    {"one is killed early", 3, 1, 1, one_dies_early, GPT_EFAIL,
     "rank 1: ended without a word", true},
    {"the last one fails", 2, 1, 1, last_fails, GPT_EIO, "rank 1: no space",
     false},
    {"sizes do not fit", 3, 2, 1, well, GPT_EUSAGE,
     "3 ranks are not a multiple of the parallel sizes tensor 2 x", false},
};

static void set_number(const char *name, int64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%lld", (long long)value);
    setenv(name, text, 1);
}

static int be_rank(const struct job *j, int64_t rank, int64_t port)
{
    const struct gpt_world_options o = {
        .size = {[GPT_TP] = j->tp_size, [GPT_PP] = j->pp_size},
        .chunks = 1,
        .timeout = 100,
        .timeout_later = 100,
    };
    struct member m = {.rank = rank};
    struct gpt_err err = {0};

    set_number("RANK", rank);
    set_number("WORLD_SIZE", j->size);
    set_number("MASTER_PORT", port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    unsetenv("TORCHELASTIC_RUN_ID");
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    if (gpt_backend_cpu(&m.be, &err) != GPT_OK ||
        m.be->queue_open(m.be, &m.q, &err) != GPT_OK)
        return 98;
    int status = gpt_world_open(&m.w, &o, &err);
    if (status == GPT_OK)
        status = gpt_world_connect(m.w, m.be, &err);
    if (status == GPT_OK)
        status = j->run(&m, &err);
    status = gpt_world_end(m.w, status, &err);
    gpt_world_close(m.w);
    expect(&m, status == j->status, "ends with", gpt_status_word(status));
    expect_says(&m, &err, j->says);
    m.be->queue_close(m.q);
    return m.wrong;
}

static void run_job(const struct job *j)
{
    const int64_t port = free_port();
    const double begun = gpt_now();
    pid_t pids[MAX_RANKS];
    int status, wrong = 0;

    fflush(stdout);
    for (int64_t r = 0; r < j->size; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            alarm(300);
            _exit(be_rank(j, r, port));
        }
    }
    for (int64_t r = 0; r < j->size; r++) {
        bool dies = j->killed && r == 1;

        if (pids[r] < 0 || waitpid(pids[r], &status, 0) != pids[r])
            exit(1);
        if (dies ? !WIFSIGNALED(status)
                 : !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            printf("# rank %lld: status %d\n", (long long)r, status);
            wrong++;
        }
    }
    is_int(wrong, 0, "%s, %lld ranks", j->what, (long long)j->size);
    ok(gpt_now() - begun < 60, "%s: before a timeout", j->what);
}

int main(void)
{
    for (size_t i = 0; i < GPT_COUNT(jobs); i++)
        if (ranks_possible || jobs[i].size == 1)
            run_job(&jobs[i]);
        else
            skip("%s: built without Gloo", jobs[i].what);
    return tap_done();
}
