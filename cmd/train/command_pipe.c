/* The command beside a run; see command_pipe.h. Its input is a socket rather
 * than a pipe, since a write to a socket whose reader is gone can be told to
 * fail without a signal: SIGPIPE would end the run. Start at
 * gpt_command_pipe_line(). */
#include "cmd/train/command_pipe.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/signals.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MOST_WAITING = 1 << 20, /* bytes of lines that the command has not taken */
    PATIENCE = 30, /* seconds, at the end of the run */
    HASTE = 3,     /* ... where a signal asked for that end */
};

extern char **environ;

struct gpt_command_pipe {
    const char *command; /* borrowed */
    pid_t pid;
    int fd;               /* -1: the command does not read any more */
    struct gpt_buf waiting;
    bool lost;            /* lines, of which a warning has told */
};

/* The child's end becomes its standard input. exec() gives signals that this
 * program handles their default actions; those that it ignores, itself or for
 * Gloo, get them here. The mask is emptied, as the calling thread may have
 * blocked some. */
static int spawn(struct gpt_command_pipe *p, int input)
{
    char *const argv[] = {(char[]){"sh"}, (char[]){"-c"},
                          (char *)(uintptr_t)p->command, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, ignored;

    sigemptyset(&none);
    sigemptyset(&ignored);
    sigaddset(&ignored, SIGXFSZ);
    sigaddset(&ignored, SIGPIPE);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP |
                                        POSIX_SPAWN_SETSIGMASK |
                                        POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &ignored);
    int error = posix_spawn(&p->pid, "/bin/sh", &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

int gpt_command_pipe_open(struct gpt_command_pipe **pipe, const char *command,
                          struct gpt_err *err)
{
    struct gpt_command_pipe *p = NULL;
    int ends[2];

    *pipe = NULL;
    GPT_TRY(gpt_new(&p, 1, sizeof(*p), "a command", err));
    p->command = command;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        gpt_free(p);
        return gpt_fail_errno(err, GPT_EIO, "cannot make a socket for '%s'",
                              command);
    }
    /* The command only reads: what it would write goes nowhere. */
    shutdown(ends[0], SHUT_RD);
    p->fd = ends[0];
    errno = spawn(p, ends[1]);
    close(ends[1]);
    if (errno != 0) {
        int status =
            gpt_fail_errno(err, GPT_EIO, "cannot start '%s'", command);

        close(p->fd);
        gpt_free(p);
        return status;
    }
    *pipe = p;
    return GPT_OK;
}

/* Sends what waits, as much as the socket takes. */
static void send_waiting(struct gpt_command_pipe *p)
{
    while (p->fd >= 0 && p->waiting.len > 0) {
        ssize_t n = send(p->fd, p->waiting.data, p->waiting.len,
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n < 0) {
            gpt_warn("'%s' does not read metrics any more; the run continues "
                     "without it", p->command);
            close(p->fd);
            p->fd = -1;
            return;
        }
        p->waiting.len -= (size_t)n;
        memmove(p->waiting.data, p->waiting.data + n, p->waiting.len);
    }
}

/* The socket's own buffer takes some hundred lines before any wait here. */
void gpt_command_pipe_line(struct gpt_command_pipe *p, const char *line)
{
    if (p->fd < 0)
        return;
    if (p->waiting.len + strlen(line) < MOST_WAITING) {
        if (gpt_buf_printf(&p->waiting, "%s\n", line) != GPT_OK)
            return;
    } else if (!p->lost) {
        p->lost = true;
        gpt_warn("'%s' takes no metrics: lines are lost for it", p->command);
    }
    send_waiting(p);
}

/* True when the command has ended; *status is that of waitpid(2). */
static bool has_ended(const struct gpt_command_pipe *p, int *status)
{
    return waitpid(p->pid, status, WNOHANG) == p->pid;
}

/* An end is no failure of the run, which has its record in metrics.jsonl. */
static void report_end(const struct gpt_command_pipe *p, int status)
{
    if (WIFSIGNALED(status))
        gpt_warn("'%s' was ended by %s", p->command,
                 gpt_signal_name(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 0)
        gpt_warn("'%s' ended with status %d", p->command,
                 WEXITSTATUS(status));
}

/* A signal may be why the run ends: the last lines are sent all the same, and a
 * command that is at its end may finish. */
void gpt_command_pipe_close(struct gpt_command_pipe *p)
{
    const double begin = gpt_now();
    bool ended = false;
    int status = 0;

    if (!p)
        return;
    while (!(ended = has_ended(p, &status)) &&
           gpt_now() - begin < (gpt_signals_stop() ? HASTE : PATIENCE)) {
        send_waiting(p);
        if (p->fd >= 0 && p->waiting.len == 0) {
            close(p->fd); /* the end of its input */
            p->fd = -1;
        }
        usleep(10000);
    }
    if (p->fd >= 0)
        close(p->fd);
    if (ended)
        report_end(p, status);
    else
        gpt_warn("'%s' has not ended; it is left alone", p->command);
    gpt_buf_free(&p->waiting);
    gpt_free(p);
}
