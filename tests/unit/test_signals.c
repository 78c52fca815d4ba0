/* base/signals.h, in child processes: the flags that they see, and how they
 * end. */
#include "base/io.h"
#include "base/signals.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int result_of(int (*body)(void))
{
    int result = -1;

    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(120);
        _exit(body());
    }
    waitpid(child, &result, 0);
    return result;
}

static int asks_to_stop(void)
{
    gpt_signals_setup();
    if (gpt_signals_stop() != 0)
        return 1;
    raise(SIGTERM);
    return gpt_signals_stop() == SIGTERM ? 0 : 2;
}

static int asks_to_save(void)
{
    gpt_signals_setup();
    if (gpt_signals_take_save())
        return 1;
    raise(SIGUSR1);
    raise(SIGUSR1);
    if (!gpt_signals_take_save())
        return 2;
    return gpt_signals_take_save() || gpt_signals_stop() ? 3 : 0;
}

static int respects_ignored(void)
{
    signal(SIGHUP, SIG_IGN);
    gpt_signals_setup();
    raise(SIGHUP);
    return gpt_signals_stop();
}

static int survives_file_size_limit(void)
{
    gpt_signals_setup();
    raise(SIGXFSZ);
    return 0;
}

static int dies_of_sigterm(void)
{
    gpt_signals_setup();
    raise(SIGTERM);
    gpt_signals_reraise(gpt_signals_stop());
    return 0;
}

static bool begin_file(void)
{
    struct gpt_out *out;
    struct gpt_err err;

    gpt_signals_setup();
    return gpt_out_open(&out, "half", 0, 0, &err) == GPT_OK &&
           gpt_out_write(out, "x", 1, &err) == GPT_OK;
}

static int second_sigint(void)
{
    if (!begin_file())
        return 1;
    raise(SIGINT);
    raise(SIGINT);
    return 2;
}

static int broken_pipe(void)
{
    int ends[2];

    if (!begin_file() || pipe(ends) != 0)
        return 1;
    close(ends[0]);
    return write(ends[1], "x", 1) == 1 ? 2 : 3;
}

static int interrupted_read(void)
{
    int ends[2];
    struct gpt_err err;
    char *data;
    size_t len;

    gpt_signals_setup();
    if (pipe(ends) != 0)
        return 1;
    dup2(ends[0], 0);
    pid_t self = getpid();
    if (fork() == 0) {
        /* more than once: the first may come before the read begins */
        do
            usleep(100000);
        while (getppid() == self && kill(self, SIGTERM) == 0);
        _exit(0);
    }
    /* The write end stays open: only the signal ends the read. */
    return gpt_read_file("-", 100, &data, &len, &err) == GPT_EIO ? 0 : 2;
}

/* A file of many gigabytes is not summed to its end first. */
static int interrupted_sum(void)
{
    struct gpt_in *in;
    struct gpt_err err;
    uint32_t crc;

    gpt_signals_setup();
    if (gpt_in_open(&in, "/proc/self/exe", &err) != GPT_OK)
        return 1;
    raise(SIGTERM);
    const int status = gpt_in_sum_all(in, &crc, &err);
    gpt_in_close(in);
    return status == GPT_EFAIL && strstr(err.text, "SIGTERM") ? 0 : 2;
}

/* A shell's background jobs ignore signals, and a parent may block some. */
static void take_signals(void)
{
    static const int used[] = {SIGINT,  SIGTERM, SIGHUP,
                               SIGUSR1, SIGXFSZ, SIGPIPE};
    sigset_t none;

    for (size_t i = 0; i < GPT_COUNT(used); i++)
        signal(used[i], SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void *end(void *begin)
{
    pthread_barrier_wait(begin);
    gpt_signals_end("words\n", 4);
}

/* Threads that meet one page that has gone: all wait to write to a full pipe
 * until it is read. */
static int end_in_threads(void)
{
    enum { THREADS = 32 };
    static char full[1 << 16];
    pthread_barrier_t begin;
    pthread_t thread;

    while (write(STDERR_FILENO, full, sizeof(full)) == sizeof(full))
        ;
    fcntl(STDERR_FILENO, F_SETFL, 0);
    pthread_barrier_init(&begin, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread, NULL, end, &begin) != 0)
            return 1;
    for (;;)
        pause();
}

/* Reads what a child writes to stderr after the zeros, up to its end. */
static int read_words(pid_t child, int from, char *words, size_t cap)
{
    const struct timespec moment = {0, 200 * 1000000L};
    int result = -1;
    static char some[1 << 16];
    size_t n = 0;
    ssize_t got;

    nanosleep(&moment, NULL); /* threads that are late find the same end */
    while ((got = read(from, some, sizeof(some))) > 0)
        for (ssize_t i = 0; i < got; i++)
            if (some[i] && n + 1 < cap)
                words[n++] = some[i];
    words[n] = '\0';
    waitpid(child, &result, 0);
    return result;
}

static void ends_once(void)
{
    char words[100];
    int pipes[2];

    if (pipe(pipes) != 0 || fcntl(pipes[1], F_SETFL, O_NONBLOCK) != 0) {
        ok(false, "a pipe");
        return;
    }
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm(120);
        dup2(pipes[1], STDERR_FILENO);
        _exit(end_in_threads());
    }
    close(pipes[1]);
    const int result = read_words(child, pipes[0], words, sizeof(words));
    close(pipes[0]);
    ok(WIFEXITED(result) && WEXITSTATUS(result) == 4, "an end in a handler");
    is_str(words, "words\n", "is told once, whatever threads meet it");
}

int main(void)
{
    take_signals();
    char dir[] = "/tmp/gpt-signals-XXXXXX";

    make_tree(dir);
    if (chdir(dir) != 0)
        return 1;
    is_int(result_of(asks_to_stop), 0, "SIGTERM asks to stop");
    is_int(result_of(asks_to_save), 0, "SIGUSR1 asks to save, once");
    is_int(result_of(respects_ignored), 0, "an ignored signal stays ignored");
    is_int(result_of(survives_file_size_limit), 0, "SIGXFSZ is ignored");
    int result = result_of(dies_of_sigterm);
    ok(WIFSIGNALED(result) && WTERMSIG(result) == SIGTERM,
       "a stopped program dies of its signal");
    result = result_of(second_sigint);
    ok(WIFSIGNALED(result) && WTERMSIG(result) == SIGINT,
       "a second SIGINT kills at once");
    result = result_of(broken_pipe);
    ok(WIFSIGNALED(result) && WTERMSIG(result) == SIGPIPE,
       "so does a pipe whose reader has gone");
    is_int(rmdir(dir), 0, "and neither leaves a temporary file");
    is_int(result_of(interrupted_read), 0, "a waiting read is interrupted");
    is_int(result_of(interrupted_sum), 0, "a checksum is interrupted");
    ends_once();
    is_str(gpt_signal_name(SIGTERM), "SIGTERM", "names");
    is_str(gpt_signal_name(0), "signal", "of others");
    return tap_done();
}
