/* base/log.h and base/progress.h: the bytes on stderr, with a pipe and with a
 * terminal. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/signals.h"
#include "base/terminal.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* stderr goes to a pipe or a terminal whose other end is `from`. */
static int saved = -1, from = -1;

static bool capture(bool terminal)
{
    int ends[2] = {-1, -1};

    if (terminal) {
        ends[0] = posix_openpt(O_RDWR | O_NOCTTY);
        if (ends[0] < 0 || grantpt(ends[0]) || unlockpt(ends[0]))
            return false;
        ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY);
        struct winsize size = {.ws_row = 24, .ws_col = 40};
        if (ends[1] < 0 || ioctl(ends[1], TIOCSWINSZ, &size) != 0)
            return false;
    } else if (pipe(ends) != 0) {
        return false;
    }
    saved = dup(2);
    dup2(ends[1], 2);
    close(ends[1]);
    from = ends[0];
    fcntl(from, F_SETFL, O_NONBLOCK);
    return true;
}

/* What was written since. */
static const char *captured(void)
{
    static char buf[65536];
    ssize_t n = read(from, buf, sizeof(buf) - 1);

    buf[n > 0 ? n : 0] = '\0';
    return buf;
}

/* The same from a terminal, which turns \n into \r\n. The kernel passes bytes
 * on when it finds the time: this waits for as many as `want` has. */
static void terminal_has(const char *want, const char *what)
{
    char buf[4096];
    size_t n = 0;

    for (int tenths = 0; n < strlen(want) && tenths < 100;) {
        struct pollfd wait = {.fd = from, .events = POLLIN};

        if (poll(&wait, 1, 100) <= 0)
            tenths++;
        ssize_t got = read(from, buf + n, sizeof(buf) - 1 - n);
        n += got > 0 ? (size_t)got : 0;
    }
    buf[n] = '\0';
    is_str(buf, want, "%s", what);
}

static void release(void)
{
    dup2(saved, 2);
    close(saved);
    close(from);
}

static void setup(enum gpt_log_level level, bool json, bool color)
{
    struct gpt_log_options o = {"gpt-x", level, json, color};

    gpt_log_setup(&o);
}

static void test_once(void)
{
    setup(GPT_LOG_INFO, false, false);
    ok(!gpt_log_once(true), "at first all is told");
    gpt_warn("same %d", 1);
    gpt_warn("same %d", 1);
    gpt_warn("same %d", 2);
    gpt_log_line("same 1");
    is_str(captured(), "gpt-x: warning: same 1\ngpt-x: warning: same 2\n"
           "same 1\n", "a message is told once, a line always");
    ok(gpt_log_once(false), "it was on");
    gpt_warn("same 1");
    is_str(captured(), "gpt-x: warning: same 1\n", "and all is told again");
}

static void test_text(void)
{
    struct gpt_err err = {0};
    char longer[5000];

    setup(GPT_LOG_INFO, false, false);
    gpt_info("a %d", 1);
    is_str(captured(), "gpt-x: info: a 1\n", "a message");
    gpt_debug("b");
    is_str(captured(), "", "of too high a level");
    gpt_warn("bell \a, escape \033[2J, csi \xc2\x9b, del \x7f, bad \xff");
    is_str(captured(),
           "gpt-x: warning: bell \\x07, escape \\x1b[2J, csi \\xc2\\x9b, "
           "del \\x7f, bad \\xff\n",
           "control bytes are escaped");
    gpt_info("two\nlines \xc3\xa9\xc2\xa0");
    is_str(captured(), "gpt-x: info: two\\x0alines \xc3\xa9\xc2\xa0\n",
           "so are line ends");
    gpt_log_line("| a\tb | %s", "a\nname");
    is_str(captured(), "| a\tb | a\\x0aname\n", "also in a table");
    memset(longer, 'z', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    gpt_info("%s", longer);
    is_int(strlen(captured()), strlen("gpt-x: info: \n") + 4999, "long ones");
    gpt_fail(&err, GPT_EIO, "no");
    gpt_log_error(&err);
    is_str(captured(), "gpt-x: error: no\n", "an error");
    gpt_hint(&err, "do");
    gpt_log_error(&err);
    is_str(captured(), "gpt-x: error: no\nhint: do\n", "with a hint");
    err.text[0] = '\0';
    err.hint[0] = '\0';
    gpt_log_error(&err);
    is_str(captured(), "gpt-x: error: io\n", "without a text");
    setup(GPT_LOG_ERROR, false, true);
    gpt_warn("w");
    gpt_log_line("l");
    gpt_log_error(&err);
    is_str(captured(), "gpt-x: \033[1;31merror:\033[0m io\n", "in colour");
}

/* Lines that are made now, and written when a page has gone. */
static void test_prepared(void)
{
    const struct timespec moment = {0, 20 * 1000000L};
    struct gpt_buf b = {0};
    struct gpt_err err;
    char *end;

    gpt_fail(&err, GPT_EIO, "{\"t\":1.5 is gone");
    gpt_hint(&err, "cut");
    setup(GPT_LOG_INFO, false, false);
    is_int(gpt_log_prepare_error(&b, &err), GPT_OK, "lines are prepared");
    gpt_log_stamp(b.data);
    is_str(b.data, "gpt-x: error: {\"t\":1.5 is gone\nhint: cut\n",
           "and have no time in text");
    b.len = 0;
    setup(GPT_LOG_INFO, true, false);
    is_int(gpt_log_prepare_error(&b, &err), GPT_OK, "in JSON");
    nanosleep(&moment, NULL);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const double then = (double)now.tv_sec + (double)now.tv_nsec / 1e9 - 0.002;
    gpt_log_stamp(b.data);
    ok(strtod(b.data + 5, &end) >= then, "they get the time, %s", b.data);
    const char *second = strchr(end, '\n') + 1;
    ok(strtod(second + 5, NULL) >= then, "all of them");
    ok(strstr(end, "\"msg\":\"{\\\"t\\\":1.5 is gone\"}"), "and no text");
    gpt_buf_free(&b);
}

static void test_json(void)
{
    setup(GPT_LOG_DEBUG, true, true);
    gpt_debug("q\" b\\ \x01 \xc3\xa9 \xff \xc2\x85\xe2\x80\xa8");
    const char *text = captured();
    ok(strncmp(text, "{\"t\":", 5) == 0 && strtod(text + 5, NULL) > 1.6e9,
       "a time");
    ok(strstr(text, ",\"level\":\"debug\",\"program\":\"gpt-x\",\"msg\":"
                    "\"q\\\" b\\\\ \\u0001 \xc3\xa9 \\ufffd "
                    "\\u0085\\u2028\"}\n") != NULL,
       "the rest: %s", text);
    gpt_log_line("x");
    ok(strstr(captured(), "\"level\":\"info\"") != NULL, "lines are objects");
}

static void wait_for(double seconds)
{
    usleep((useconds_t)(1e6 * seconds));
}

static void test_plain_progress(void)
{
    setup(GPT_LOG_INFO, false, false);
    ok(!gpt_progress_open("never", "x", "B", 1), "never is NULL");
    gpt_progress_set(NULL, 1, NULL);
    gpt_progress_close(NULL);
    struct gpt_progress *p = gpt_progress_open("auto", "read", "B", 100);
    gpt_progress_set(p, 50, NULL);
    gpt_progress_close(p);
    is_str(captured(), "", "short work shows nothing");

    p = gpt_progress_open("always", "train", "step", 200);
    const double before = gpt_now();
    gpt_progress_set(p, 100, NULL); /* resumed half-way */
    const double begun = gpt_now();
    is_str(captured(), "", "nothing in the first second");
    wait_for(1.1);
    const double late = gpt_now();
    gpt_progress_set(p, 150, "loss 3.41");
    const double after = gpt_now();
    const char *text = captured();
    double rate = 0;
    int end = 0;
    ok(sscanf(text, "train 75.0%% step 150/200 %lf step/s loss 3.41%n", &rate,
              &end) == 1 && end > 0,
       "then a line: %s", text);
    ok(rate > 50 / (after - before) - 0.1 && rate < 50 / (late - begun) + 0.1,
       "with the rate since the start");
    gpt_progress_set(p, 151, NULL);
    is_str(captured(), "", "and no other at once");
    gpt_progress_set(p, 200, NULL);
    gpt_progress_close(p);
    ok(strstr(captured(), "train 100.0% step 200/200") != NULL,
       "the last one is complete");
    setup(GPT_LOG_WARNING, false, false);
    ok(!gpt_progress_open("always", "x", "B", 1), "quiet is NULL");
}

static void test_terminal(void)
{
    if (!capture(true)) {
        skip("no pseudo-terminal");
        return;
    }
    setup(GPT_LOG_INFO, false, false);
    /* This process is not in the foreground of the new terminal. */
    ok(!gpt_terminal_foreground(), "in the background");
    ok(!gpt_progress_open("auto", "x", "B", 1), "auto draws nothing then");
    gpt_terminal_draw("first");
    terminal_has("\r\033[Kfirst", "a line is drawn");
    gpt_info("note");
    terminal_has("\r\033[Kgpt-x: info: note\r\n",
                 "a message clears it first");
    gpt_info("more");
    terminal_has("gpt-x: info: more\r\n", "once");
    gpt_terminal_draw("0123456789012345678901234567890123456789xyz");
    terminal_has("\r\033[K012345678901234567890123456789012345678",
                 "lines are cut to the width");
    fflush(stdout);
    if (fork() == 0)
        gpt_signals_end("words\n", 4);
    wait(NULL);
    terminal_has("\r\033[Kwords\r\n", "so do words of a handler");
    gpt_terminal_keep();
    gpt_terminal_keep();
    terminal_has("\r\n", "the last line is kept");
    release();
}

int main(void)
{
    if (!capture(false)) {
        printf("Bail out! no pipe\n");
        return 1;
    }
    test_text();
    test_once();
    test_json();
    test_prepared();
    test_plain_progress();
    release();
    test_terminal();
    return tap_done();
}
