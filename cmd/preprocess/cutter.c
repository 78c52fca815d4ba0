/* Cuts inputs at line ends; see cutter.h. What follows the last newline of a
 * chunk is carried over to the next one. Start at gpt_cutter_next(), at the
 * end. */
#include "cmd/preprocess/cutter.h"

#include "base/memory.h"
#include "base/num.h"

#include <assert.h>
#include <string.h>

/* Returns true when these bytes can begin a good line. Input that is no JSON at
 * all, as an archive, may have no newline for gigabytes; it is refused before
 * all of them are in memory. */
static bool may_be_object(const char *p, size_t len)
{
    size_t i = 0;

    while (i < len && (p[i] == ' ' || p[i] == '\t' || p[i] == '\r'))
        i++;
    return i == len || p[i] == '{';
}

/* A line may be as long as its file: such memory the file's own size justifies.
 * A longer one has a limit, as a few kilobytes of compressed data can become
 * any number of bytes. */
static int check_line(struct gpt_cutter *cut, const struct gpt_line_chunk *c)
{
    int64_t limit =
        gpt_max_i64(cut->max_line, gpt_input_size(cut->in) + 1);

    if ((int64_t)c->len >= limit)
        return gpt_fail(&cut->err, GPT_EDATA, "%s: a line has %lld bytes or "
                        "more: more than is read as one line",
                        gpt_input_name(cut->in), (long long)limit);
    if ((int64_t)c->len >= cut->long_line)
        cut->wait_alone(cut->user);
    return GPT_OK;
}

/* Reads until c holds chunk_bytes and a newline, at most chunk_bytes after it;
 * *lines is the length of the whole lines among them. The last line of an input
 * need not have a newline. */
static int read_lines(struct gpt_cutter *cut, struct gpt_line_chunk *c,
                      size_t *lines)
{
    size_t want = (size_t)cut->chunk_bytes;

    *lines = 0;
    do {
        size_t room = c->len < want ? want : c->len + want, got;

        if (!*lines)
            GPT_TRY(check_line(cut, c));
        GPT_TRY(gpt_grow(&c->data, &c->cap, room, 1, "a line", &cut->err));
        GPT_TRY(gpt_input_read(cut->in, c->data + c->len, room - c->len, &got,
                               &cut->err));
        const char *newline = memrchr(c->data + c->len, '\n', got);
        if (newline)
            *lines = (size_t)(newline - c->data) + 1;
        c->len += got;
        if (got == 0) {
            cut->at_end = true;
            *lines = c->len;
        }
    } while (!cut->at_end && (c->len < want || !*lines) &&
             (*lines || c->len < want || cut->whole_lines ||
              may_be_object(c->data, c->len)));
    return GPT_OK;
}

/* Carried-over bytes, then new ones; the rest is carried over in turn. *lines
 * is right also after a failure: the lines before it are good. */
static int cut_lines(struct gpt_cutter *cut, struct gpt_line_chunk *c,
                     size_t *lines)
{
    GPT_TRY(gpt_grow(&c->data, &c->cap, cut->rest_len, 1, "a line",
                     &cut->err));
    if (cut->rest_len)
        memcpy(c->data, cut->rest, cut->rest_len);
    c->len = cut->rest_len;
    GPT_TRY(read_lines(cut, c, lines));
    if (*lines == 0)
        *lines = c->len; /* cannot be JSON: the scanner refuses it as it is */
    assert(*lines <= c->len);
    cut->rest_len = c->len - *lines;
    GPT_TRY(gpt_grow(&cut->rest, &cut->rest_cap, cut->rest_len, 1, "a line",
                     &cut->err));
    if (cut->rest_len)
        memcpy(cut->rest, c->data + *lines, cut->rest_len);
    return GPT_OK;
}

void gpt_cutter_next(struct gpt_cutter *cut, struct gpt_line_chunk *c)
{
    size_t lines = 0;

    c->len = 0;
    c->status = cut->status;
    c->err = cut->err;
    c->in_line = false;
    if (cut->status != GPT_OK || cut->at_end)
        return;
    cut->status = cut_lines(cut, c, &lines);
    c->len = lines;
    cut->offset += (int64_t)lines;
    c->end = cut->offset;
    /* After good lines a failure waits for the next call, so that they are
     * written, and it is found at the same place for any size of chunks. */
    if (lines == 0) {
        c->status = cut->status;
        c->err = cut->err;
    }
}
