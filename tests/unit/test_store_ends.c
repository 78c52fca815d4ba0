/* The store where one of the two sides is silent, is stopped, or ends: clients
 * that say nothing, servers that do not answer, signals, and wills. */
#include "parallel/store.h"

#include "tests/lib/tap.h"

#include "base/clock.h"
#include "base/signals.h"
#include "parallel/net.h"
#include "tests/unit/store_rig.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- silent clients ---- */

/* Starts a process of 100 connections that say nothing. It connects when
 * `start` ends, so that it inherits none that the server has accepted; it then
 * writes to `ready`, and ends when it can read from `go`. */
static pid_t fork_silent(struct gpt_store_server *v, const int start[2],
                         const int ready[2], const int go[2])
{
    const pid_t pid = fork();
    char byte;

    if (pid != 0)
        return pid;
    close(start[1]);
    (void)!read(start[0], &byte, 1);
    for (int i = 0; i < 100; i++)
        raw_connect(gpt_store_server_port(v));
    (void)!write(ready[1], "r", 1);
    (void)!read(go[0], &byte, 1);
    _exit(0);
}

/* Connections that say nothing leave descriptors to the process that serves,
 * here with 128 of them, and room for ranks. Those who connect run in another
 * process, which has descriptors of its own. */
static int serve_among_silent(void)
{
    const struct rlimit few = {128, 128};
    struct gpt_err err = {0};
    int64_t n = 0;
    char byte;
    int start[2], ready[2], go[2];

    if (setrlimit(RLIMIT_NOFILE, &few) != 0)
        return 1;
    struct gpt_store_server *v = serve();
    if (pipe(start) != 0 || pipe(ready) != 0 || pipe(go) != 0)
        return 1;
    pid_t silent = fork_silent(v, start, ready, go);
    pid_t more = fork_silent(v, start, ready, go);
    close(start[1]);
    alarm(100); /* one that has failed is then no wait without end */
    if (read(ready[0], &byte, 1) != 1 || read(ready[0], &byte, 1) != 1)
        return 2;
    usleep(200000);
    int own = 0, fds[40];
    while (own < 40 && (fds[own] = open("/dev/null", O_RDONLY)) >= 0)
        own++;
    const bool left = own == 40;
    for (int i = 0; i < own; i++)
        close(fds[i]);
    struct gpt_store *s = join(v, 2, 1);
    const bool served =
        gpt_store_add(s, "n", 1, &n, &err) == GPT_OK && n == 1;
    gpt_store_close(s);
    (void)!write(go[1], "gg", 2);
    waitpid(silent, NULL, 0);
    waitpid(more, NULL, 0);
    gpt_store_server_close(v, 0);
    return !left ? 3 : !served ? 4 : 0;
}

/* A server in a process of its own, which can be stopped. */
static pid_t serve_apart(int64_t *port_out)
{
    int ports[2];
    int64_t port;
    pid_t pid;

    fflush(stdout);
    if (pipe(ports) != 0 || (pid = fork()) < 0)
        exit(1);
    if (pid == 0) {
        port = gpt_store_server_port(serve());
        if (write(ports[1], &port, sizeof(port)) == sizeof(port))
            pause();
        _exit(1);
    }
    if (read(ports[0], &port, sizeof(port)) != sizeof(port))
        exit(1);
    close(ports[0]);
    close(ports[1]);
    *port_out = port;
    return pid;
}

/* Returns when it has stopped: a busy machine lets it run for a while. */
static void stop_process(pid_t pid)
{
    int status;

    if (kill(pid, SIGSTOP) != 0 || waitpid(pid, &status, WUNTRACED) != pid)
        exit(1);
}

/* One that is stopped with a client that has connected and not yet sent
 * anything. */
static pid_t stop_server(int *fd)
{
    int64_t port;
    pid_t pid = serve_apart(&port);

    *fd = raw_connect(port);
    usleep(200000); /* until it is accepted */
    stop_process(pid);
    return pid;
}

/* A job that was stopped as a whole has no client that is late. */
static void continue_server(pid_t pid, int fd)
{
    static const char ping[] = VALID "\x0d" "abcd";
    char answer[4];

    kill(pid, SIGCONT);
    usleep(200000); /* the server has its turn before the client's bytes */
    ok(send(fd, ping, sizeof(ping) - 1, MSG_NOSIGNAL) > 0 &&
           recv(fd, answer, 4, MSG_WAITALL) == 4 &&
           memcmp(answer, "abcd", 4) == 0,
       "a server that was stopped keeps its silent clients");
    close(fd);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void test_silent_clients(void)
{
    int status = -1;
    char byte;

    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(serve_among_silent());
    waitpid(pid, &status, 0);
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
       "200 silent clients leave descriptors: %d", WEXITSTATUS(status));

    int stopped_fd;
    pid_t stopped = stop_server(&stopped_fd);
    struct gpt_store_server *v = serve();
    const double begun = gpt_now();
    int fd = raw_connect(gpt_store_server_port(v));
    const bool ended = recv(fd, &byte, 1, 0) == 0;
    const double waited = gpt_now() - begun;
    ok(ended && waited > 4, "a silent client is dropped after %.1f s", waited);
    continue_server(stopped, stopped_fd);
    close(fd);
    gpt_store_server_close(v, 0);
}

/* ---- signals ---- */

/* A rank that has got a signal when it joins. 0: it sees the failure that was
 * posted before; 1: it only knows of the signal. */
static pid_t fork_signalled(int64_t port)
{
    const struct gpt_launch_env l = launch(2, 1, port, true);
    struct gpt_store *s;
    struct gpt_err err = {0};
    const pid_t pid = fork();

    if (pid != 0)
        return pid;
    gpt_signals_setup();
    raise(SIGTERM);
    if (gpt_store_open(&s, &l, 60, &err) != GPT_OK)
        _exit(strstr(err.text, "was stopped by SIGTERM") ? 1 : 2);
    _exit(gpt_store_check_wait(s, &err) == GPT_EFAIL &&
                  strcmp(err.text, "rank 0 failed: ended with status 9") == 0
              ? 0
              : 3);
}

static int status_of(pid_t pid)
{
    int status = -1;

    return waitpid(pid, &status, 0) == pid && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : -1;
}

/* A launcher that has seen a rank fail posts that and then sends a signal to
 * the others. The store of a busy machine answers them late. */
static void test_signals(void)
{
    int64_t port;
    const pid_t server = serve_apart(&port);
    const struct gpt_launch_env l = launch(2, 0, port, true);
    struct gpt_err failure = {0}, err = {0};
    struct gpt_store *s;

    gpt_fail(&failure, GPT_OK, "ended with status 9");
    gpt_fail_on_rank(&failure, 0);
    ok(gpt_store_open(&s, &l, 60, &err) == GPT_OK &&
           gpt_store_post_failure(s, &failure, &err) == GPT_OK,
       "a failure is posted");
    stop_process(server);
    pid_t rank = fork_signalled(port);
    usleep(300000);
    kill(server, SIGCONT);
    is_int(status_of(rank), 0, "a rank with a signal waits to see it");
    gpt_store_close(s);
    stop_process(server);
    const double begun = gpt_now();
    is_int(status_of(fork_signalled(port)), 1, "and ends without an answer");
    ok(gpt_now() - begun < 30, "before its timeout");
    kill(server, SIGKILL);
    is_int(status_of(server), -1, "the server is killed");
}

/* ---- who does not answer ---- */

static void *answer_nonsense(void *arg)
{
    int fd = accept(*(int *)arg, NULL, NULL);

    if (send(fd, "nonsense", 8, MSG_NOSIGNAL) != 8)
        exit(1);
    usleep(100000);
    close(fd);
    return NULL;
}

/* A byte of an answer is none. */
static void *answer_in_part(void *arg)
{
    int fd = accept(*(int *)arg, NULL, NULL);
    char byte;

    if (send(fd, "n", 1, MSG_NOSIGNAL) != 1)
        exit(1);
    while (recv(fd, &byte, 1, 0) > 0)
        continue;
    close(fd);
    return NULL;
}

static void test_unreachable(void)
{
    struct gpt_launch_env l = launch(2, 1, free_port(), false);
    struct gpt_store *s;
    struct gpt_store_server *v = serve(), *second;
    struct gpt_err err = {0};
    pthread_t thread;

    is_int(gpt_store_open(&s, &l, 0.05, &err), GPT_EIO, "nobody listens");
    ok(strstr(err.text, "cannot reach the store of rank 0 at 127.0.0.1:") &&
           strstr(err.text, "within 0.05 s: Connection refused"),
       "%s", err.text);
    ok(gpt_store_server_open(&second, "127.0.0.1", gpt_store_server_port(v),
                             &err) == GPT_EIO &&
           strstr(err.text, "Address already in use") &&
           strstr(err.hint, "MASTER_PORT"),
       "%s", err.text);
    gpt_store_server_close(v, 0);

    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        exit(1);
    pthread_create(&thread, NULL, answer_nonsense, &fd);
    l.port = ntohs(at.sin_port);
    ok(gpt_store_open(&s, &l, 1, &err) == GPT_EIO &&
           strstr(err.text, "does not speak the protocol"),
       "%s", err.text);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, answer_in_part, &fd);
    ok(gpt_store_open(&s, &l, 0.3, &err) == GPT_EIO &&
           strstr(err.text, "does not answer within 0.3 s"),
       "%s", err.text);
    pthread_join(thread, NULL);
    /* nobody accepts: the connection waits in the kernel */
    const double begun = gpt_now();
    ok(gpt_store_open(&s, &l, 0.3, &err) == GPT_EIO &&
           strstr(err.text, "does not answer within 0.3 s"),
       "%s", err.text);
    ok(gpt_now() - begun < 30, "it is not asked again");
    close(fd);
}

/* A process that joins as rank 2 and is gone, with a will or without. */
static void come_and_go(const struct gpt_store_server *v, bool will)
{
    const struct gpt_launch_env l =
        launch(3, 2, gpt_store_server_port(v), false);
    struct gpt_store *s;
    struct gpt_err err;
    const pid_t pid = fork();

    if (pid == 0) {
        int status = gpt_store_open(&s, &l, 60, &err);

        if (status == GPT_OK && will)
            status = gpt_store_leave_will(s, &err);
        _exit(status);
    }
    int status = -1;
    ok(waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0,
       "a process comes and goes");
}

static void test_wills(void)
{
    struct gpt_store_server *v = serve();
    struct gpt_store *s = join(v, 3, 1);
    struct gpt_err failure = {.rank = -1};
    bool failed = false;

    come_and_go(v, false);
    usleep(100000);
    ok(!gpt_store_failed(s, &failure),
       "whose place is not known to be its own");
    come_and_go(v, true);
    for (int i = 0; i < 1200 && !failed; i++) {
        usleep(50000);
        failed = gpt_store_failed(s, &failure);
    }
    ok(failed && failure.rank == 2 &&
           strstr(failure.text, "ended without a word"),
       "with a will: %s", failure.text);
    gpt_store_close(s);
    gpt_store_server_close(v, 0);
}
/* The ports that the kernel gives out to connections: the first, the last. */
static bool given_ports(int64_t *first, int64_t *last)
{
    FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
    char line[64] = "";
    long long from = 0, to = 0;

    if (f) {
        if (fgets(line, sizeof(line), f)) {
            char *end;

            from = strtoll(line, &end, 10);
            to = strtoll(end, NULL, 10);
        }
        fclose(f);
    }
    *first = from;
    *last = to;
    return from > 0 && to > from + 1000;
}

/* False where another program listens at the port. */
static bool is_own_end(int fd, int64_t port)
{
    struct sockaddr_in here;
    socklen_t n = sizeof(here);

    return getsockname(fd, (struct sockaddr *)&here, &n) == 0 &&
           ntohs(here.sin_port) == port;
}

/* A rank whose store is not there yet, on a port that the kernel gives out:
 * some attempt gets that port for its own end, where TCP connects it to itself.
 * The kernel goes through every second port, from a random one on. */
static void test_own_end(void)
{
    int64_t first, last, port;
    char why[100] = "";
    int64_t n = 0;
    int fd = -1;

    if (!given_ports(&first, &last)) {
        skip("the kernel does not tell its ports");
        return;
    }
    port = first + (int64_t)getpid() % 400 * 2;
    while (fd < 0 && ++n < 2 * (last - first))
        fd = gpt_net_connect("127.0.0.1", port, 1, why, sizeof(why));
    ok(fd < 0 || !is_own_end(fd, port),
       "no connection to itself, in %lld attempts (%s)", (long long)n, why);
    if (fd >= 0)
        close(fd);
}

int main(void)
{
    test_wills();
    test_own_end();
    test_silent_clients();
    test_signals();
    test_unreachable();
    return tap_done();
}
