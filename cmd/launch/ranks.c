/* A job on this node: a store that outlives its ranks (on the first node), the
 * ranks, and one loop until the last of them has ended. Start at watch_ranks().
 *
 * The first rank that fails decides what the job returns. It is named on stderr
 * and in the store, where ranks that wait for it find the reason; then the
 * others get SIGTERM and, after the grace period, SIGKILL. Ranks mostly end by
 * themselves before that, with the same reason: the grace is for those that
 * hang. Launchers of other nodes see the report in the store and do the same.
 *
 * Signals: those that ask to stop are passed on and are no failure, so a rank
 * that ends by the very signal that was passed on, or with status 0 after it
 * has saved, has ended well. A second, different one is passed on as well.
 * SIGUSR1 asks the ranks to save. Each rank is the leader of a process group of
 * its own, so that a Ctrl-C at the terminal reaches it once, through this
 * process, and not a second time from the terminal; and so that children of a
 * rank (sh -c) get the signal, too. A launcher that is killed takes its ranks
 * along: see become() in children.c. */
#include "cmd/launch/ranks.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/signals.h"
#include "cmd/launch/children.h"
#include "cmd/launch/join.h"
#include "parallel/store.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 50, DRAIN_SECONDS = 1 };

struct job {
    const struct gpt_launcher_options *o;
    struct gpt_child *children;
    struct pollfd *polls;            /* two a child */
    struct gpt_store_server *server; /* on node 0 */
    struct gpt_store *store;         /* with several ranks */
    struct gpt_launch_env launch;
    struct gpt_arena texts;
    int passed;      /* the signal to stop that was passed on last */
    bool failing;    /* a rank has failed; the others are being ended */
    double kill_at;  /* by SIGKILL from then on */
    double ended_at; /* all children ended */
    double check_at; /* the time of the next look at the store */
    int status;      /* of the job */
    struct gpt_err why;
};

/* ---- the store ---- */

/* The run's name is the one that ranks make of their environment
 * (parallel/launch_env.c), so that launcher and ranks use the same keys. */
static int open_store(struct job *j, struct gpt_err *err)
{
    const struct gpt_launcher_options *o = j->o;

    j->launch = (struct gpt_launch_env){.launcher = "torchrun",
                                        .world_size = o->nproc * o->nnodes,
                                        .rank = -1, /* none of the ranks */
                                        .agent_store = true,
                                        .port = o->master_port,
                                        .run_id = "gpt-launch.0.0"};
    if (strlen(o->master_addr) >= sizeof(j->launch.host))
        return gpt_fail(err, GPT_EUSAGE, "--master-addr has %zu bytes, must "
                        "have less than %zu", strlen(o->master_addr),
                        sizeof(j->launch.host));
    snprintf(j->launch.host, sizeof(j->launch.host), "%s", o->master_addr);
    /* The store is open before any rank is started: ranks of other nodes wait
     * for it, and rank 0 need not serve it. It outlives them, so that the
     * reason of a failure can be read until the end. */
    if (o->node_rank == 0) {
        int status = gpt_store_server_open(&j->server, o->master_addr,
                                           o->master_port, err);

        if (status == GPT_EIO && o->master_port != 0)
            gpt_hint(err, o->nnodes == 1
                              ? "--standalone takes a free port"
                              : "another job may use it: give all nodes "
                                "another --master-port");
        GPT_TRY(status);
        j->launch.port = gpt_store_server_port(j->server);
    }
    return gpt_launch_join(&j->store, &j->launch, o, err);
}

/* ---- starting ---- */

/* A rank's part of the cores that this process may use. */
static int64_t threads_of(const struct gpt_launcher_options *o)
{
    cpu_set_t cores;
    int64_t n;

    if (o->threads > 0)
        return o->threads;
    /* A container or a batch system may allow fewer cores than the machine has.
     * The call fails on a machine with more cores than a cpu_set_t holds. */
    n = sched_getaffinity(0, sizeof(cores), &cores) == 0
            ? CPU_COUNT(&cores)
            : (int64_t)sysconf(_SC_NPROCESSORS_ONLN);
    return n > o->nproc ? n / o->nproc : 1;
}

/* The environment's value stays, unless --threads was given. */
static bool keeps_variable(const struct gpt_launcher_options *o,
                           const char *name)
{
    const char *value = getenv(name);

    return !o->force_threads && value && *value;
}

/* With torchrun's variables, so that a program need not know which of the two
 * has started it. The last two rows, of threads, give way to the
 * environment. */
static int start_child(struct job *j, int64_t local, struct gpt_err *err)
{
    const struct gpt_launcher_options *o = j->o;
    const int64_t rank = o->node_rank * o->nproc + local;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        {"RANK", rank},
        {"LOCAL_RANK", local},
        {"WORLD_SIZE", o->nproc * o->nnodes},
        {"LOCAL_WORLD_SIZE", o->nproc},
        {"GROUP_RANK", o->node_rank},
        {"GROUP_WORLD_SIZE", o->nnodes},
        {"MASTER_PORT", j->launch.port},
        {"TORCHELASTIC_RESTART_COUNT", 0},
        {"TORCHELASTIC_MAX_RESTARTS", 0},
        {"OMP_NUM_THREADS", threads_of(o)},
        {"GPT_THREADS", threads_of(o)},
    };
    char *set[GPT_COUNT(numbers) + 3], **env;
    size_t n = 0;

    set[n++] = gpt_arena_printf(&j->texts, "MASTER_ADDR=%s", o->master_addr);
    set[n++] = gpt_arena_strdup(&j->texts, "TORCHELASTIC_RUN_ID=gpt-launch");
    set[n++] = gpt_arena_strdup(&j->texts, "TORCHELASTIC_USE_AGENT_STORE=True");
    for (size_t i = 0; i < GPT_COUNT(numbers); i++)
        if (i + 2 < GPT_COUNT(numbers) || !keeps_variable(o, numbers[i].name))
            set[n++] = gpt_arena_printf(&j->texts, "%s=%lld", numbers[i].name,
                                        (long long)numbers[i].value);
    for (size_t i = 0; i < n; i++)
        if (!set[i])
            return gpt_no_memory(err, "a name");
    env = gpt_child_environment(set, n);
    if (!env)
        return gpt_no_memory(err, "a name");
    int status = gpt_child_start(&j->children[local], o->command, env, err);
    gpt_free(env);
    return status;
}

static int write_start(struct gpt_append *log, struct gpt_err *err)
{
    const time_t now = time(NULL);
    struct tm utc;
    char line[80];

    gmtime_r(&now, &utc);
    strftime(line, sizeof(line), "==== started again at %Y-%m-%dT%H:%M:%SZ",
             &utc);
    return gpt_append_line(log, line, err);
}

/* A job that is started again by the same line appends to its logs, after a
 * line that says when. A log that is to be replaced gets a new file: a reader
 * of the old one keeps what it reads. Both streams of a rank share the log, in
 * the order in which they were read. */
static int open_log(struct job *j, struct gpt_child *c, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES], name[32];

    if (!j->o->log_dir)
        return GPT_OK;
    snprintf(name, sizeof(name), "rank-%lld.log", (long long)c->rank);
    GPT_TRY(gpt_path_join(path, sizeof(path), j->o->log_dir, name, err));
    if (j->o->force && unlink(path) != 0 && errno != ENOENT)
        return gpt_fail_errno(err, GPT_EIO, "cannot replace '%s'", path);
    const bool again = gpt_path_exists(path);
    GPT_TRY(gpt_append_open(&c->lines[0].log, path, err));
    c->lines[1].log = c->lines[0].log;
    return again ? write_start(c->lines[0].log, err) : GPT_OK;
}

/* All logs are opened before any rank starts: a log that cannot be written
 * refuses the job without having begun it. */
static int start_all(struct job *j, struct gpt_err *err)
{
    const struct gpt_launcher_options *o = j->o;

    if (o->log_dir)
        GPT_TRY(gpt_path_mkdirs(o->log_dir, err));
    for (int64_t i = 0; i < o->nproc; i++) {
        struct gpt_child *c = &j->children[i];

        /* Ranks are numbered node by node, so that tensor parallel ranks, which
         * are neighbours, share a node. */
        c->rank = o->node_rank * o->nproc + i;
        c->stdio = o->stdio && c->rank == 0;
        for (int k = 0; k < 2; k++) {
            c->lines[k] = (struct gpt_prefix_lines){.from = -1, .to = 1 + k};
            snprintf(c->lines[k].prefix, sizeof(c->lines[k].prefix),
                     "[rank %lld] ", (long long)c->rank);
        }
        GPT_TRY(open_log(j, c, err));
    }
    for (int64_t i = 0; i < o->nproc; i++)
        GPT_TRY(start_child(j, i, err));
    return GPT_OK;
}

/* Other nodes, which wait for ranks that cannot start here, get the reason. */
static int start_ranks(struct job *j, struct gpt_err *err)
{
    const int status = start_all(j, err);

    if (status != GPT_OK && j->store) {
        struct gpt_err failure = *err, ignored = {0};

        gpt_fail_on_rank(&failure, j->o->node_rank * j->o->nproc);
        (void)gpt_store_post_failure(j->store, &failure, &ignored);
    }
    return status;
}

/* ---- ends ---- */

static void signal_all(struct job *j, int sig)
{
    for (int64_t i = 0; i < j->o->nproc; i++)
        gpt_child_signal(&j->children[i], sig);
}

/* Ranks that wait in a collective find the failure in the store and end with
 * its reason; SIGTERM is for those that compute or hang. */
static void end_others(struct job *j)
{
    j->failing = true;
    j->kill_at = gpt_now() + j->o->grace;
    signal_all(j, SIGTERM);
}

/* The first failure decides what the job returns; it is printed and posted. */
static void report_first_failure(struct job *j, const struct gpt_child *c)
{
    const bool killed = WIFSIGNALED(c->status);
    const int code = killed ? WTERMSIG(c->status) : WEXITSTATUS(c->status);
    struct gpt_err ignored = {0}, failure;

    if (killed)
        gpt_fail(&failure, GPT_OK, "was killed by %s (%d)",
                 gpt_signal_name(code), code);
    else
        gpt_fail(&failure, GPT_OK, "ended with status %d (%s)", code,
                 gpt_status_word(code));
    gpt_fail_on_rank(&failure, c->rank);
    /* As a shell reports it. The text for the store leaves out the rank, which
     * readers of the store name themselves. */
    j->status = killed ? 128 + code : code;
    gpt_fail(&j->why, j->status, "rank %lld %s", (long long)c->rank,
             failure.text);
    if (killed && code == SIGKILL)
        gpt_hint(&j->why, "the system kills with SIGKILL when memory is out");
    if (j->store)
        (void)gpt_store_post_failure(j->store, &failure, &ignored);
    gpt_warn("%s; ending the others", j->why.text);
    end_others(j);
}

/* What ranks write cannot be passed on: they are asked to end, and may save. */
static void report_lost_output(struct job *j, const struct gpt_err *err)
{
    struct gpt_err failure = *err, ignored = {0};

    j->why = *err;
    j->status = err->status;
    gpt_fail_on_rank(&failure, j->o->node_rank * j->o->nproc);
    if (j->store)
        (void)gpt_store_post_failure(j->store, &failure, &ignored);
    gpt_warn("%s; ending the ranks", err->text);
    end_others(j);
}

/* True when the way a rank ended is a failure. */
static bool has_failed(const struct job *j, const struct gpt_child *c)
{
    if (WIFEXITED(c->status))
        return WEXITSTATUS(c->status) != 0;
    return !(j->passed && WTERMSIG(c->status) == j->passed);
}

/* Failures after the first one are its consequence and are not reported. */
static void reap_ranks(struct job *j)
{
    for (int64_t i = 0; i < j->o->nproc; i++) {
        struct gpt_child *c = &j->children[i];

        if (gpt_child_reap(c) && !j->failing && has_failed(j, c))
            report_first_failure(j, c);
    }
}

/* Ends the ranks of this node when one of another node has failed. */
static void check_store(struct job *j)
{
    struct gpt_err failure;

    if (!j->store || j->o->nnodes == 1 || j->failing || gpt_now() < j->check_at)
        return;
    /* Once a second is soon enough: the ranks of this node look at the store,
     * too, while they wait. */
    j->check_at = gpt_now() + 1;
    if (!gpt_store_failed(j->store, &failure))
        return;
    gpt_fail(&j->why, GPT_EFAIL, "%s", failure.text);
    if (failure.rank >= 0 && failure.status == GPT_OK) /* "was killed by" */
        gpt_fail(&j->why, GPT_EFAIL, "rank %lld %s", (long long)failure.rank,
                 failure.text);
    else if (failure.rank >= 0)
        gpt_context(&j->why, "rank %lld %s", (long long)failure.rank,
                    gpt_status_word(failure.status));
    j->status = GPT_EFAIL;
    gpt_warn("%s; ending the ranks of this node", j->why.text);
    end_others(j);
}

static void pass_signals(struct job *j)
{
    int stop = gpt_signals_stop();

    if (stop && stop != j->passed) {
        j->passed = stop;
        gpt_info("%s is passed on to the ranks", gpt_signal_name(stop));
        signal_all(j, stop);
    }
    if (gpt_signals_take_save())
        signal_all(j, SIGUSR1);
    /* This repeats in each turn until all have ended, which is harmless: a rank
     * that is gone gets no signal. */
    if (j->failing && gpt_now() >= j->kill_at)
        signal_all(j, SIGKILL);
}

/* ---- the loop ---- */

static bool all_ended(const struct job *j)
{
    for (int64_t i = 0; i < j->o->nproc; i++)
        if (j->children[i].pid > 0)
            return false;
    return true;
}

/* A pipe at its end has descriptor -1, which poll() skips. */
static void pass_output(struct job *j, bool *open)
{
    const int64_t n = 2 * j->o->nproc;
    struct gpt_err err = {0};

    *open = false;
    for (int64_t i = 0; i < n; i++) {
        j->polls[i] =
            (struct pollfd){j->children[i / 2].lines[i % 2].from, POLLIN, 0};
        *open = *open || j->polls[i].fd >= 0;
    }
    const int ready = poll(j->polls, (nfds_t)n, TICK_MS);
    for (int64_t i = 0; i < n && ready > 0; i++)
        if (j->polls[i].revents &&
            gpt_prefix_lines_pass(&j->children[i / 2].lines[i % 2], &err) &&
            !j->failing)
            report_lost_output(j, &err);
}

/* One thread, a turn every 50 ms at least: nothing in a turn waits for a rank,
 * so no rank can keep the output or the end of another from being seen. */
static void watch_ranks(struct job *j)
{
    bool open = true;

    for (;;) {
        pass_output(j, &open);
        reap_ranks(j);
        check_store(j);
        pass_signals(j);
        if (!all_ended(j))
            continue;
        if (j->ended_at == 0)
            j->ended_at = gpt_now();
        /* a process that a rank has left behind may hold the pipes open */
        if (!open || gpt_now() > j->ended_at + DRAIN_SECONDS)
            return;
    }
}

/* Leaves no process behind, whatever has happened before. */
static void end_all(struct job *j)
{
    struct gpt_err ignored = {0};

    for (int64_t i = 0; j->children && i < j->o->nproc; i++) {
        struct gpt_child *c = &j->children[i];

        gpt_child_signal(c, SIGKILL);
        if (c->pid > 0)
            waitpid(c->pid, NULL, 0);
        gpt_child_end_stdio(c);
        for (int k = 0; k < 2; k++)
            if (gpt_prefix_lines_end(&c->lines[k], &ignored) != GPT_OK)
                gpt_warn("%s", ignored.text);
        if (c->lines[1].lost)
            gpt_warn("messages of rank %lld are lost: standard error could not "
                     "be written", (long long)c->rank);
        (void)gpt_append_close(c->lines[0].log, &ignored);
    }
}

/* Rank 0 reports for a whole job: on the other nodes these two lines are all
 * that is seen when nothing goes wrong. */
static void report_start(const struct job *j)
{
    const struct gpt_launcher_options *o = j->o;
    const int64_t first = o->node_rank * o->nproc;

    if (o->nnodes > 1)
        gpt_info("node %lld of %lld: ranks %lld to %lld are started; the store "
                 "is at %s:%lld",
                 (long long)o->node_rank, (long long)o->nnodes,
                 (long long)first, (long long)(first + o->nproc - 1),
                 o->master_addr, (long long)j->launch.port);
}

static void report_end(const struct job *j, double seconds)
{
    const struct gpt_launcher_options *o = j->o;

    if (o->nnodes > 1 && j->status == GPT_OK)
        gpt_info("node %lld of %lld: its ranks have ended%s%s, after %.0f s",
                 (long long)o->node_rank, (long long)o->nnodes,
                 j->passed ? " on " : "",
                 j->passed ? gpt_signal_name(j->passed) : "", seconds);
}

int gpt_launcher_run(const struct gpt_launcher_options *o, struct gpt_err *err)
{
    const double begun = gpt_now();
    struct job j = {.o = o};
    int status;

    gpt_signals_ignore_pipes();
    GPT_TRY(gpt_new(&j.children, (size_t)o->nproc, sizeof(*j.children),
                    "processes", err));
    for (int64_t i = 0; i < o->nproc; i++)
        j.children[i].lines[0].from = j.children[i].lines[1].from = -1;
    GPT_TRY_GOTO(status,
                 gpt_new(&j.polls, (size_t)o->nproc * 2, sizeof(*j.polls),
                         "processes", err),
                 out);
    GPT_TRY_GOTO(status, open_store(&j, err), out);
    GPT_TRY_GOTO(status, start_ranks(&j, err), out);
    report_start(&j);
    watch_ranks(&j);
    report_end(&j, gpt_now() - begun);
    status = j.status;
    if (status != GPT_OK) {
        gpt_fail(err, status, "%s", j.why.text);
        if (*j.why.hint)
            gpt_hint(err, "%s", j.why.hint);
    }
out:
    end_all(&j);
    gpt_store_close(j.store);
    /* other nodes may still read why the job ends */
    gpt_store_server_close(j.server, o->nnodes > 1 ? 5 : 0);
    gpt_arena_free(&j.texts);
    gpt_free(j.polls);
    gpt_free(j.children);
    return status;
}
