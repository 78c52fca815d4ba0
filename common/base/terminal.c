/* The owner of stderr: see terminal.h. */
#include "base/terminal.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool line_shown;

enum { LINE_BYTES = 1024 }; /* longest progress line */
static const char erase[] = "\r\033[K";

/* A failure of stderr cannot be reported anywhere. EAGAIN: another process that
 * shares the terminal may have made it non-blocking. */
static void write_all(const char *p, size_t n)
{
    while (n > 0) {
        ssize_t done = write(STDERR_FILENO, p, n);

        if (done < 0 && errno == EAGAIN) {
            struct pollfd wait = {.fd = STDERR_FILENO, .events = POLLOUT};

            poll(&wait, 1, -1);
        } else if (done < 0 && errno != EINTR) {
            return;
        }
        if (done > 0) {
            p += done;
            n -= (size_t)done;
        }
    }
}

void gpt_terminal_message(const char *text, size_t n)
{
    pthread_mutex_lock(&lock);
    if (line_shown)
        write_all(erase, sizeof(erase) - 1);
    line_shown = false;
    write_all(text, n);
    pthread_mutex_unlock(&lock);
}

/* Without the lock, which the thread that is interrupted may hold. */
void gpt_terminal_last_words(const char *text)
{
    if (line_shown)
        write_all(erase, sizeof(erase) - 1);
    write_all(text, strlen(text));
}

int gpt_terminal_columns(int fd)
{
    struct winsize size;

    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool gpt_terminal_obeys(int fd)
{
    const char *term = getenv("TERM");

    return isatty(fd) && !(term && strcmp(term, "dumb") == 0);
}

/* Asked at every line, so that no handler of SIGWINCH is needed. */
static size_t columns(void)
{
    const int known = gpt_terminal_columns(STDERR_FILENO);

    return known > 0 ? (size_t)known : 80;
}

/* Bytes of `text` that take at most `width` columns, one a code point. Counting
 * code points keeps the cut from falling into one. East Asian characters take
 * two columns; a line of ours holds none. */
static size_t cut(const char *text, size_t width)
{
    size_t n = 0;

    while (text[n]) {
        if (((unsigned char)text[n] & 0xc0) != 0x80 && width-- == 0)
            break;
        n++;
    }
    return n;
}

void gpt_terminal_draw(const char *text)
{
    char line[LINE_BYTES];
    size_t width = columns() - 1; /* the last column would wrap */

    if (width > LINE_BYTES / 8)
        width = LINE_BYTES / 8;
    int n = snprintf(line, sizeof(line), "%s%.*s", erase,
                     (int)cut(text, width), text);
    assert(n > 0 && n < LINE_BYTES);
    pthread_mutex_lock(&lock);
    write_all(line, (size_t)n);
    line_shown = true;
    pthread_mutex_unlock(&lock);
}

void gpt_terminal_keep(void)
{
    pthread_mutex_lock(&lock);
    if (line_shown)
        write_all("\n", 1);
    line_shown = false;
    pthread_mutex_unlock(&lock);
}

bool gpt_terminal_foreground(void)
{
    return isatty(STDERR_FILENO) && tcgetpgrp(STDERR_FILENO) == getpgrp();
}
