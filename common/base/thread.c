/* Starting threads, and holding signals, in one place. A thread inherits the
 * signal mask of the one that starts it, so signals are held around
 * pthread_create(): a thread that blocked signals itself could get one before
 * it did. */
#include "base/thread.h"

#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 16 }; /* of a thread in Linux, the NUL included */

/* A signal of this kind is the thread's own doing. Blocked, it would kill the
 * process without the handler of a debugger or sanitizer. SIGPIPE is not one of
 * them: a thread that serves sockets wants EPIPE. */
static const int synchronous[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                                  SIGTRAP, SIGABRT, SIGSYS};

/* What the thread holds already stays held, so that one hold may lie within
 * another: each release restores the mask that its own hold found. A signal to
 * the process goes to another thread meanwhile, if one lets it in. */
void gpt_thread_hold_signals(sigset_t *old)
{
    sigset_t held;

    sigfillset(&held);
    for (size_t i = 0; i < GPT_COUNT(synchronous); i++)
        sigdelset(&held, synchronous[i]);
    pthread_sigmask(SIG_BLOCK, &held, old);
}

void gpt_thread_release_signals(const sigset_t *old)
{
    pthread_sigmask(SIG_SETMASK, old, NULL);
}

int gpt_thread_start(pthread_t *thread, const char *name,
                     void *(*function)(void *), void *arg, struct gpt_err *err)
{
    sigset_t old;

    assert(strlen(name) < NAME_BYTES);
    gpt_thread_hold_signals(&old);
    int code = pthread_create(thread, NULL, function, arg);
    gpt_thread_release_signals(&old);
    if (code != 0) {
        /* pthread functions return the error instead of setting errno. */
        errno = code;
        return gpt_fail_errno(err, GPT_EFAIL, "cannot start the thread '%s'",
                              name);
    }
    /* A name is a help for people; a thread without one works as well. */
    (void)pthread_setname_np(*thread, name);
    return GPT_OK;
}

static void *pass_gate(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* The gate is closed until all are there, so that they are counted together. */
int gpt_thread_room(int n)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *threads = calloc((size_t)n, sizeof(*threads));
    sigset_t old;
    int started = 0, code = 0;

    if (!threads)
        return n;
    gpt_thread_hold_signals(&old);
    pthread_mutex_lock(&gate);
    while (started < n && code == 0) {
        code = pthread_create(&threads[started], NULL, pass_gate, &gate);
        started += code == 0;
    }
    pthread_mutex_unlock(&gate);
    gpt_thread_release_signals(&old);
    for (int i = 0; i < started; i++)
        gpt_thread_join(threads[i]);
    free(threads);
    return started;
}

/* OpenMP ends a program whose threads cannot be started, by words of its own:
 * it is asked for no more than there are. A result does not depend on them. */
void gpt_thread_fit(void)
{
    enum { OTHERS = 8 }; /* that programs start beside those of OpenMP */
    const int threads = omp_get_max_threads(), all = threads - 1 + OTHERS;

    if (threads == 1)
        return;
    const int room = gpt_thread_room(all);
    if (room == all)
        return;
    const int fit = room > OTHERS ? room - OTHERS + 1 : 1;
    omp_set_num_threads(fit);
    gpt_warn("%d of %d threads compute: the system starts no more than %d "
             "(ulimit -u or -v, or the limit of a container)",
             fit, threads, room);
}

void gpt_thread_join(pthread_t thread)
{
    int code = pthread_join(thread, NULL);

    assert(code == 0); /* joined once, and never by itself */
    (void)code;
}

void gpt_thread_cond_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

struct timespec gpt_thread_after(double seconds)
{
    const int64_t ns = (int64_t)(seconds * 1e9), second = 1000000000;
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += ns % second;
    at.tv_sec += ns / second + at.tv_nsec / second;
    at.tv_nsec %= second;
    return at;
}
