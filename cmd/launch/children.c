/* Processes. This process has threads (the store's server), and after a fork
 * the child has only one of them: locks that others held stay locked for ever.
 * So between fork and exec only functions that signal handlers may call are
 * used. Start at gpt_child_start(). */
#include "cmd/launch/children.h"

#include "base/io.h"
#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* A group in the background that reads from the terminal is stopped, and so is
 * one that takes the terminal, unless it ignores the signal. */
static void take_terminal(void)
{
    signal(SIGTTOU, SIG_IGN);
    (void)!tcsetpgrp(STDIN_FILENO, getpgrp());
    signal(SIGTTOU, SIG_DFL);
}

/* In the child. A successful exec closes `report` and the parent reads its end;
 * a failed one writes errno to it, so "no such program" is an error of the
 * launcher and not an exit status of a rank.
 *
 * The child dies with its parent, also when that is killed by SIGKILL. The
 * parent may have died before prctl() took effect, so the child asks for it
 * afterwards. */
__attribute__((noreturn)) static void become(const struct gpt_child *c,
                                             char *const *command, char **env,
                                             const int pipes[2], int null,
                                             int report, pid_t parent)
{
    sigset_t none;

    sigemptyset(&none);
    setpgid(0, 0);
    if (c->foreground)
        take_terminal();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        raise(SIGKILL);
    gpt_signals_for_child(); /* exec keeps what is ignored */
    /* exec keeps the mask, and a rank must not begin with signals blocked. */
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(null, 0) >= 0 && dup2(pipes[0], 1) >= 0 && dup2(pipes[1], 2) >= 0)
        execvpe(command[0], command, env);
    int code = errno;
    while (write(report, &code, sizeof(code)) < 0 && errno == EINTR)
        ;
    /* The parent has the error. No exit handlers of the launcher may run in its
     * child, and an exit status would look like one of a rank. */
    for (;;)
        raise(SIGKILL);
}

/* A name without a directory is looked for on PATH, where a build folder is
 * not by itself. */
static void hint_at_path(const char *name, struct gpt_err *err)
{
    char dir[GPT_PATH_BYTES], path[GPT_PATH_BYTES];

    if (gpt_path_program(dir) &&
        gpt_path_join(path, sizeof(path), dir, name, NULL) == GPT_OK &&
        gpt_path_exists(path))
        gpt_hint(err, "it is beside gpt-launch: PATH=%.200s:$PATH finds it",
                 dir);
    else
        gpt_hint(err, "no directory of PATH holds it; one in this directory is "
                      "./%.200s", name);
}

/* Returns when the child has become the command or could not: reading the
 * report blocks until exec closes the other end. */
static int fork_child(struct gpt_child *c, char *const *command, char **env,
                      const int out[2], const int report[2], int null,
                      struct gpt_err *err)
{
    const pid_t parent = getpid();
    int code = 0;
    ssize_t n;

    c->pid = fork();
    if (c->pid < 0) {
        c->pid = 0;
        return gpt_fail_errno(err, GPT_EFAIL, "cannot start a process");
    }
    if (c->pid == 0)
        become(c, command, env, out, null, report[1], parent);
    setpgid(c->pid, c->pid); /* in both processes: a signal to the group must
                              * find it, whichever of the two runs first */
    /* The parent's own end would keep the pipe open, and the read below would
     * never see its end. */
    close(report[1]);
    do
        n = read(report[0], &code, sizeof(code));
    while (n < 0 && errno == EINTR);
    close(report[0]);
    if (n <= 0)
        return GPT_OK;
    /* The failed child is about to kill itself; it must not be left as a
     * zombie, nor be reaped later as a rank that failed. */
    waitpid(c->pid, NULL, 0);
    c->pid = 0;
    errno = code;
    int status = gpt_fail_errno(err, GPT_EIO, "cannot run '%.300s'",
                                command[0]);
    if (gpt_path_ends_in(command[0], ".py"))
        gpt_hint(err, "programs are started as they are: gpt-train; a script "
                 "needs python3 in front");
    else if (code == ENOENT && !strchr(command[0], '/'))
        hint_at_path(command[0], err);
    return status;
}

/* With the launcher's own output, the first pipe carries nothing, and is at its
 * end at once. */
int gpt_child_start(struct gpt_child *c, char *const *command, char **env,
                    struct gpt_err *err)
{
    int pipes[2][2] = {{-1, -1}, {-1, -1}}, report[2] = {-1, -1};
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC), status = GPT_OK;

    /* Every end has O_CLOEXEC: a rank that inherited the pipe of another would
     * keep it open after that one has ended. dup2() clears it for the child's
     * own two. */
    if (null < 0 || pipe2(pipes[0], O_CLOEXEC) != 0 ||
        pipe2(pipes[1], O_CLOEXEC) != 0 || pipe2(report, O_CLOEXEC) != 0)
        status = gpt_fail_errno(err, GPT_EFAIL, "cannot start a process");
    if (status == GPT_OK) {
        const int out[2] = {c->stdio ? STDOUT_FILENO : pipes[0][1],
                            pipes[1][1]};

        c->foreground = c->stdio && tcgetpgrp(STDIN_FILENO) == getpgrp();
        status = fork_child(c, command, env, out, report,
                            c->stdio ? STDIN_FILENO : null, err);
    } else if (report[0] >= 0) {
        close(report[0]);
        close(report[1]);
    }
    for (int i = 0; i < 2; i++) {
        c->lines[i].from = status == GPT_OK ? pipes[i][0] : -1;
        if (pipes[i][1] >= 0)
            close(pipes[i][1]);
        if (pipes[i][0] >= 0 && status != GPT_OK)
            close(pipes[i][0]);
    }
    if (null >= 0)
        close(null);
    return status;
}

void gpt_child_end_stdio(struct gpt_child *c)
{
    if (c->foreground)
        take_terminal();
    c->foreground = false;
}

/* The negative pid names the group: children of the rank get the signal,
 * too. */
void gpt_child_signal(const struct gpt_child *c, int sig)
{
    if (c->pid > 0)
        kill(-c->pid, sig);
}

bool gpt_child_reap(struct gpt_child *c)
{
    /* The group is killed right after its leader was reaped: its number may be
     * used again once the group is empty. */
    if (c->pid <= 0 || waitpid(c->pid, &c->status, WNOHANG) != c->pid)
        return false;
    kill(-c->pid, SIGKILL); /* processes that it has left behind */
    c->pid = 0;
    return true;
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");

    return strncmp(a, b, n) == 0 && b[n] == '=';
}

char **gpt_child_environment(char *const *variables, size_t n)
{
    size_t old = 0, at = 0;

    while (environ[old])
        old++;
    char **env = gpt_alloc(old + n + 1, sizeof(*env));
    if (!env)
        return NULL;
    for (size_t i = 0; i < old; i++) {
        bool replaced = false;

        for (size_t k = 0; k < n; k++)
            replaced = replaced || same_name(variables[k], environ[i]);
        if (!replaced)
            env[at++] = environ[i];
    }
    for (size_t k = 0; k < n; k++)
        env[at++] = variables[k];
    return env;
}
