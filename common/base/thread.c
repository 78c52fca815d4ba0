/* Starting threads, and holding signals, in one place. A thread inherits the
 * signal mask of the one that starts it, so signals are held around
 * pthread_create(): a thread that blocked signals itself could get one before
 * it did. */
#include "base/thread.h"

#include <assert.h>
#include <errno.h>
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

/* The gate is closed until all are there, so that they are counted together.
 * Their stacks are small, as the limit of memory is not what is asked for, but
 * have room for the thread-local data of libraries, which lie in them. */
int gpt_thread_room(int n)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *threads = calloc((size_t)n, sizeof(*threads));
    pthread_attr_t attr;
    sigset_t old;
    int started = 0;

    if (!threads)
        return 0;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, (size_t)PTHREAD_STACK_MIN + (256 << 10));
    gpt_thread_hold_signals(&old);
    pthread_mutex_lock(&gate);
    while (started < n && pthread_create(&threads[started], &attr, pass_gate,
                                         &gate) == 0)
        started++;
    pthread_mutex_unlock(&gate);
    gpt_thread_release_signals(&old);
    for (int i = 0; i < started; i++)
        gpt_thread_join(threads[i]);
    pthread_attr_destroy(&attr);
    free(threads);
    return started;
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
