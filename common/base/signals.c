/* Signals as flags. Handlers do nothing else, and are set without SA_RESTART,
 * so that a read which waits for a person or a pipe comes back. */
#include "base/signals.h"

#include "base/io.h"
#include "base/terminal.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static volatile sig_atomic_t stop_signal, save_asked;

/* Safe in a handler. */
static void die_of(int sig)
{
    struct sigaction def = {.sa_handler = SIG_DFL};
    sigset_t one;

    /* The default action, unblocked, on the process itself: the parent then
     * sees death by the signal and not an exit status. */
    sigaction(sig, &def, NULL);
    sigemptyset(&one);
    sigaddset(&one, sig);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    raise(sig);
    _exit(128 + sig); /* not reached, unless sig is ignored by default */
}

/* The first signal asks for an orderly end, which may take the rest of a step
 * and a checkpoint. A second ^C means that the user does not want to wait for
 * that: files are removed and the process dies at once. SIGTERM is not counted,
 * because launchers repeat it. */
static void on_stop(int sig)
{
    if (stop_signal && sig == SIGINT) {
        gpt_out_cleanup();
        die_of(sig);
    }
    stop_signal = sig;
}

/* The reader of this program's output or messages has gone. */
static void on_broken_pipe(int sig)
{
    gpt_out_cleanup();
    die_of(sig);
}

void gpt_signals_end(const char *words, int status)
{
    static atomic_flag ended = ATOMIC_FLAG_INIT;

    while (atomic_flag_test_and_set(&ended))
        pause();
    gpt_out_cleanup();
    gpt_terminal_last_words(words);
    _exit(status);
}

static void on_save(int sig)
{
    (void)sig;
    save_asked = 1;
}

/* nohup and shells' background jobs ignore some signals on purpose. */
static void catch_signal(int sig, void (*handler)(int))
{
    struct sigaction action;

    /* Catching them would make a job stop at the hang-up that nohup protects it
     * from. */
    if (sigaction(sig, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
        return;
    action = (struct sigaction){.sa_handler = handler};
    /* No handler interrupts another: both may walk the registry of temporary
     * files. */
    sigfillset(&action.sa_mask);
    sigaction(sig, &action, NULL);
}

const int gpt_stop_signals[GPT_STOP_SIGNALS] = {SIGTERM, SIGINT, SIGHUP,
                                                 SIGXCPU, SIGUSR2};

void gpt_signals_setup(void)
{
    for (size_t i = 0; i < GPT_STOP_SIGNALS; i++)
        catch_signal(gpt_stop_signals[i], on_stop);
    catch_signal(SIGUSR1, on_save);
    catch_signal(SIGPIPE, on_broken_pipe);
    signal(SIGXFSZ, SIG_IGN); /* the write fails with EFBIG and says so */
    /* Where a parent has ignored it, children leave without a status, and
     * waitpid(2) never finds one. */
    signal(SIGCHLD, SIG_DFL);
}

/* By this process and not by its parent, whose choice children get. */
static bool pipes_ignored;

void gpt_signals_ignore_pipes(void)
{
    pipes_ignored = signal(SIGPIPE, SIG_IGN) != SIG_IGN || pipes_ignored;
}

void gpt_signals_for_child(void)
{
    /* not looked at before: gpt_signals_setup() ignores it in any case */
    signal(SIGXFSZ, SIG_DFL);
    if (pipes_ignored)
        signal(SIGPIPE, SIG_DFL);
}

int gpt_signals_stop(void)
{
    return stop_signal;
}

void gpt_signals_adopt(int sig)
{
    if (!stop_signal)
        stop_signal = sig;
}

int gpt_signals_check(struct gpt_err *err)
{
    return stop_signal ? gpt_fail(err, GPT_EFAIL, "stopped by %s",
                                  gpt_signal_name(stop_signal))
                       : GPT_OK;
}

bool gpt_signals_take_save(void)
{
    /* A signal between the two lines is not lost: it sets the flag again after
     * it was cleared, or is answered by the same save. */
    bool asked = save_asked;

    if (asked)
        save_asked = 0;
    return asked;
}

const char *gpt_signal_name(int sig)
{
    static const struct {
        int sig;
        const char *name;
    } names[] = {
        {SIGINT, "SIGINT"},   {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"},
        {SIGXCPU, "SIGXCPU"}, {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"},
        {SIGKILL, "SIGKILL"}, {SIGQUIT, "SIGQUIT"}, {SIGSEGV, "SIGSEGV"},
        {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGPIPE, "SIGPIPE"},
        {SIGFPE, "SIGFPE"},   {SIGILL, "SIGILL"},
    };

    for (size_t i = 0; i < GPT_COUNT(names); i++)
        if (names[i].sig == sig)
            return names[i].name;
    return "signal";
}

#ifdef __SANITIZE_ADDRESS__
int __lsan_do_recoverable_leak_check(void);
#endif

void gpt_signals_reraise(int sig)
{
    gpt_out_cleanup();
#ifdef __SANITIZE_ADDRESS__
    /* at the end of a process by a signal, the sanitizer does not look */
    __lsan_do_recoverable_leak_check();
#endif
    die_of(sig);
}
