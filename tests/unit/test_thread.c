/* base/thread.h: a thread has its name, leaves signals to main, and a failure
 * says which thread could not be started. */
#include "base/thread.h"
#include "tests/lib/tap.h"

#include <signal.h>
#include <unistd.h>

struct seen {
    char name[16];
    sigset_t blocked;
};

static void *look_around(void *arg)
{
    struct seen *seen = arg;

    /* Named by the starter, perhaps after this began. */
    for (int i = 0; i < 60000; i++) {
        pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
        if (strcmp(seen->name, "reader") == 0)
            break;
        usleep(1000);
    }
    pthread_sigmask(SIG_SETMASK, NULL, &seen->blocked);
    return NULL;
}

static void *do_nothing(void *arg)
{
    return arg;
}

static void test_start(void)
{
    struct gpt_err err = {0};
    struct seen seen = {0};
    pthread_t thread;
    sigset_t before, after;

    pthread_sigmask(SIG_SETMASK, NULL, &before);
    is_int(gpt_thread_start(&thread, "reader", look_around, &seen, &err),
           GPT_OK, "a thread starts");
    gpt_thread_join(thread);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    is_str(seen.name, "reader", "it has its name");
    ok(sigismember(&seen.blocked, SIGINT) &&
           sigismember(&seen.blocked, SIGTERM) &&
           sigismember(&seen.blocked, SIGUSR1) &&
           sigismember(&seen.blocked, SIGPIPE),
       "signals are left to main");
    ok(!sigismember(&seen.blocked, SIGSEGV) &&
           !sigismember(&seen.blocked, SIGABRT),
       "those of its own faults are not");
    ok(sigismember(&after, SIGTERM) == sigismember(&before, SIGTERM),
       "main's mask is as it was");
}

/* A stack larger than any address space: pthread_create() fails. */
static void test_no_room(void)
{
    struct gpt_err err = {0};
    pthread_t thread;
    pthread_attr_t attr;

    pthread_getattr_default_np(&attr);
    pthread_attr_setstacksize(&attr, (size_t)1 << 47);
    pthread_setattr_default_np(&attr);
    is_int(gpt_thread_start(&thread, "too large", do_nothing, NULL, &err),
           GPT_EFAIL, "no room for a stack");
    ok(strstr(err.text, "cannot start the thread 'too large': ") == err.text,
       "is said: %s", err.text);
    pthread_attr_destroy(&attr);
}

/* A library may have as many bytes for each thread. */
static _Thread_local char wide[128 << 10];

static void test_count(void)
{
    *(volatile char *)wide = 1;
    is_int(gpt_thread_room(5), 5, "five threads can be started");
    is_int(gpt_thread_room(0), 0, "of none, none");
}

int main(void)
{
    test_start();
    test_count();
    test_no_room();
    return tap_done();
}
