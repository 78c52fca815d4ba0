/* Lines of several processes do not mix: they are passed on whole, each after
 * its rank. What one read has brought goes out in one write, so that lines of
 * one rank stay together, and other writers to the same terminal or pipe rarely
 * come between. A line without an end waits for it, up to LINE_MAX_BYTES. Start
 * at gpt_prefix_lines_pass(). */
#include "cmd/launch/prefix_lines.h"

#include "base/io.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10, LINE_MAX_BYTES = 1 << 20 };

/* The stream may be a pipe that takes less than it is given. Messages that have
 * no reader any more, or no room, do not end a job. */
static int write_all(struct gpt_prefix_lines *l, const char *p, size_t n,
                     struct gpt_err *err)
{
    if (gpt_write_all(l->to, p, n))
        return GPT_OK;
    l->lost = l->to == STDERR_FILENO;
    return l->lost ? GPT_OK
                   : gpt_fail_errno(err, GPT_EIO,
                                    "cannot write to standard output");
}

/* A line without its end. A log is text: bytes of zero are left out. */
static int log_line(struct gpt_append *log, const char *p, size_t n,
                    struct gpt_err *err)
{
    struct gpt_buf line = {0};
    int status = gpt_buf_reserve(&line, n + 1);

    for (size_t i = 0; i < n && status == GPT_OK; i++)
        if (p[i] != '\0')
            status = gpt_buf_add(&line, &p[i], 1);
    if (status != GPT_OK)
        status = gpt_no_memory(err, "a line");
    else
        status = gpt_append_line(log, line.len ? line.data : "", err);
    gpt_buf_free(&line);
    return status;
}

/* The log has lines as the rank wrote them: the name of the file is the prefix
 * there. */
static int add_line(struct gpt_prefix_lines *l, struct gpt_buf *out,
                    const char *p, size_t n, struct gpt_err *err)
{
    if (gpt_buf_add(out, l->prefix, strlen(l->prefix)) != GPT_OK ||
        gpt_buf_add(out, p, n) != GPT_OK || gpt_buf_add(out, "\n", 1) != GPT_OK)
        return gpt_no_memory(err, "a line");
    return l->log ? log_line(l->log, p, n, err) : GPT_OK;
}

/* Passes on whole lines; with `all` also a last line without an end. Lines that
 * the log has no room for still go to the stream. */
static int pass_lines(struct gpt_prefix_lines *l, bool all, struct gpt_err *err)
{
    struct gpt_buf out = {0};
    struct gpt_err ignored = {0};
    size_t at = 0;
    int status = GPT_OK, next;

    while (at < l->part.len) {
        const char *p = l->part.data + at;
        size_t left = l->part.len - at;
        const char *end = memchr(p, '\n', left);

        /* A rank that writes no line ends must not take up all memory: what has
         * come so far becomes a line. */
        if (!end && !all && left < LINE_MAX_BYTES)
            break;
        size_t n = end ? (size_t)(end - p) : left;
        next = add_line(l, &out, p, n, status == GPT_OK ? err : &ignored);
        status = status == GPT_OK ? next : status;
        at += n + (end != NULL);
    }
    if (at > 0)
        memmove(l->part.data, l->part.data + at, l->part.len - at);
    l->part.len -= at;
    next = write_all(l, out.data, out.len, status == GPT_OK ? err : &ignored);
    status = status == GPT_OK ? next : status;
    gpt_buf_free(&out);
    return status;
}

int gpt_prefix_lines_pass(struct gpt_prefix_lines *l, struct gpt_err *err)
{
    if (gpt_buf_reserve(&l->part, READ_BYTES) != GPT_OK)
        return gpt_no_memory(err, "a line");
    ssize_t n = read(l->from, l->part.data + l->part.len, READ_BYTES);
    /* Called after poll(), so that the read finds bytes or the end of the pipe.
     * A failed read is taken for the end. */
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return GPT_OK;
    if (n <= 0)
        return gpt_prefix_lines_end(l, err);
    l->part.len += (size_t)n;
    return pass_lines(l, false, err);
}

int gpt_prefix_lines_end(struct gpt_prefix_lines *l, struct gpt_err *err)
{
    int status = pass_lines(l, true, err);

    if (l->from >= 0)
        close(l->from);
    l->from = -1;
    gpt_buf_free(&l->part);
    return status;
}
