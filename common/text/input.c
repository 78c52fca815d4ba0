/* Opening, recognising and plain reading of input.h; a compression is a file of
 * its own, input_*.c. Start at gpt_input_open_range().
 *
 * Bytes go from the file through read_raw(), which counts them, and through
 * the decoder to the caller. A plain file is read into the caller's
 * memory directly, past the raw buffer, but for the first bytes, which were
 * read to recognise the format. A decoder hands out all bytes that come before
 * damage, and the error at the next read: so a corpus that was cut off is used
 * up to where it ends, and the message names the place. */
#include "text/input_decoder.h"

#include "base/fault.h"
#include "base/memory.h"
#include "base/num.h"
#include "text/content.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    POLL_MS = 100,     /* how long a cancelled reader may still wait */
    LONGEST_MAGIC = 6, /* bytes that tell a format */
};

static int plain_read(struct gpt_input *in, void *dst, size_t cap, size_t *got,
                      struct gpt_err *err);

static const struct gpt_inflater decoder_plain = {
    .name = "plain",
    .magic = "",
    .read = plain_read,
};
/* Recognised only so that their bytes are not taken for text. */
static const struct gpt_inflater decoder_bzip2 = {
    .name = "bzip2", .magic = "BZh", .magic_len = 3};
static const struct gpt_inflater decoder_lz4 = {
    .name = "lz4", .magic = "\x04\x22\x4D\x18", .magic_len = 4};
static const struct gpt_inflater decoder_lzma = {
    .name = "lzma", .magic = "\x5D\0\0", .magic_len = 3};

/* In the order in which they are tried; the last one takes anything. */
static const struct gpt_inflater *const decoders[] = {
    &gpt_inflater_xz,        &gpt_inflater_gzip, &gpt_inflater_zstd,
    &gpt_inflater_zstd_skip, &decoder_bzip2,     &decoder_lz4,
    &decoder_lzma,           &decoder_plain,
};

/* A pipe may be silent for long. It is waited for in slices, between which the
 * flag is read that another thread sets to end the wait: closing the descriptor
 * under a reader would be a race. */
static int wait_readable(struct gpt_input *in, struct gpt_err *err)
{
    struct pollfd p = {.fd = in->fd, .events = POLLIN};
    int n = 0;

    while (n <= 0 && !atomic_load(&in->cancelled)) {
        n = poll(&p, 1, POLL_MS);
        if (n < 0 && errno != EINTR)
            return gpt_fail_errno(err, GPT_EIO, "%s: cannot wait", in->name);
    }
    return GPT_OK;
}

bool gpt_input_is_plain(const struct gpt_input *in)
{
    return in->decoder == &decoder_plain;
}

const char *gpt_input_packed(const struct gpt_input *in)
{
    return gpt_input_is_plain(in) ? NULL : in->decoder->name;
}

void gpt_input_digest(const struct gpt_input *in, struct gpt_xxh64 *digest)
{
    *digest = in->digest;
}

/* Reads from the file itself, at least one byte unless it ends. */
static int read_raw(struct gpt_input *in, void *dst, size_t cap, size_t *got,
                    struct gpt_err *err)
{
    ssize_t n;
    int64_t left = in->limit - gpt_input_consumed(in);

    /* a part of a file ends at its limit, which is a beginning of a line */
    *got = 0;
    in->at_end = in->at_end || left <= 0;
    if (in->at_end)
        return GPT_OK;
    if ((uint64_t)left < cap)
        cap = (size_t)left;
    do {
        if (!in->regular)
            GPT_TRY(wait_readable(in, err));
        if (atomic_load(&in->cancelled))
            return gpt_fail(err, GPT_EFAIL, "%s: reading was stopped",
                            in->name);
        /* EAGAIN: a pipe that its other end has made non-blocking */
        n = gpt_fault(GPT_FAULT_READ) ? -1 : read(in->fd, dst, cap);
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n < 0)
        return gpt_fail_errno(err, GPT_EIO, "%s: cannot read at offset %lld",
                              in->name, (long long)(in->begin +
                                                    gpt_input_consumed(in)));
    in->at_end = n == 0;
    *got = (size_t)n;
    /* what was read before the decoder is known is added by recognise_format()
     */
    if (in->decoder && !gpt_input_is_plain(in))
        gpt_xxh64_add(&in->digest, dst, *got);
    atomic_fetch_add(&in->consumed, (long long)n);
    return GPT_OK;
}

/* What was read, less what the decoder has not used yet. */
int64_t gpt_input_offset(const struct gpt_input *in)
{
    return gpt_input_consumed(in) - (int64_t)(in->len - in->pos);
}

int gpt_input_fill(struct gpt_input *in, struct gpt_err *err)
{
    assert(in->pos == in->len);
    in->pos = 0;
    return read_raw(in, in->raw, GPT_INPUT_RAW, &in->len, err);
}

static int plain_read(struct gpt_input *in, void *dst, size_t cap, size_t *got,
                      struct gpt_err *err)
{
    size_t left = in->len - in->pos;

    assert(in->pos <= in->len);
    if (left == 0)
        return read_raw(in, dst, cap, got, err);
    *got = left < cap ? left : cap;
    memcpy(dst, in->raw + in->pos, *got);
    in->pos += *got;
    return GPT_OK;
}

static bool begins_as(const struct gpt_input *in, const struct gpt_inflater *d)
{
    const uint8_t *magic = (const uint8_t *)d->magic;

    return d->magic_len == 0 ||
           (in->len >= d->magic_len &&
            (in->raw[0] | d->loose) == (magic[0] | d->loose) &&
            memcmp(in->raw + 1, magic + 1, d->magic_len - 1) == 0);
}

/* Finds the decoder by the first bytes, which stay in the raw buffer. */
static int recognise_format(struct gpt_input *in, struct gpt_err *err)
{
    while (in->len < LONGEST_MAGIC && !in->at_end) {
        size_t n;

        GPT_TRY(read_raw(in, in->raw + in->len, GPT_INPUT_RAW - in->len, &n,
                         err));
        in->len += n;
    }
    /* ends at the last row, whose magic is empty */
    size_t i = 0;
    while (!begins_as(in, decoders[i]))
        i++;
    in->decoder = decoders[i];
    if (!gpt_input_is_plain(in))
        gpt_xxh64_add(&in->digest, in->raw, in->len);
    else
        GPT_TRY(gpt_content_check(in->raw, in->len, in->name, err));
    if (in->decoder->open)
        return in->decoder->open(in, err);
    if (in->decoder->read)
        return GPT_OK;
    if (in->decoder->library)
        gpt_fail(err, GPT_EDATA, "%s: compressed with %s, and this program was "
                 "built without %s", in->name, in->decoder->name,
                 in->decoder->library);
    else
        gpt_fail(err, GPT_EDATA, "%s: compressed with %s, which this program "
                 "cannot read", in->name, in->decoder->name);
    return gpt_hint(err, "decompress it into a pipe and read standard input");
}

/* ---- parts ----
 *
 * The parts of a file must hold each line once, without talking to each other.
 * Both ends of a part are moved to the next beginning of a line by the same
 * rule, so that the end of a part is the beginning of the next. */

/* Moves *at to the first line that begins there or later: lines begin at 0 and
 * after newlines. The search starts one byte earlier, for a newline there means
 * that a line begins at *at itself. */
static int move_to_line(struct gpt_input *in, int64_t *at,
                        struct gpt_err *err)
{
    for (int64_t from = *at - 1; *at > 0 && *at < in->size;) {
        ssize_t n = gpt_fault(GPT_FAULT_READ)
                        ? -1
                        : pread(in->fd, in->raw, GPT_INPUT_RAW, from);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gpt_fail_errno(err, GPT_EIO, "%s: cannot read at offset "
                                  "%lld", in->name, (long long)from);
        /* nothing read: the file has become shorter since it was opened */
        const uint8_t *newline = memchr(in->raw, '\n', (size_t)n);
        if (newline || n == 0) {
            *at = newline ? from + (newline - in->raw) + 1 : in->size;
            break;
        }
        from += n;
    }
    *at = gpt_min_i64(*at, in->size);
    return GPT_OK;
}

static int seek_to(struct gpt_input *in, int64_t offset, struct gpt_err *err)
{
    if (lseek(in->fd, offset, SEEK_SET) < 0)
        return gpt_fail_errno(err, GPT_EIO, "%s: cannot seek to %lld", in->name,
                              (long long)offset);
    in->pos = in->len = 0; /* the raw buffer is of another place */
    in->at_end = false;
    return GPT_OK;
}

/* Makes the input end at once: what was read to recognise it is dropped. */
static void make_empty(struct gpt_input *in)
{
    if (in->decoder->close)
        in->decoder->close(in);
    in->state = NULL;
    in->decoder = &decoder_plain;
    in->pos = in->len = 0;
    in->size = in->limit = 0;
    in->at_end = true;
    atomic_store(&in->consumed, 0);
}

static int select_range(struct gpt_input *in,
                        const struct gpt_input_range *range,
                        struct gpt_err *err)
{
    int64_t begin = range->begin, end = range->end;

    if (end < 0)
        end = in->size;
    if (!gpt_input_is_plain(in)) {
        /* a compressed file cannot be entered in the middle: the part that has
         * its first byte has all of it */
        if (begin > 0)
            make_empty(in);
        return GPT_OK;
    }
    GPT_TRY(move_to_line(in, &begin, err));
    GPT_TRY(move_to_line(in, &end, err));
    assert(begin <= end);
    /* what was read to recognise the format is read again, if it is in the part
     */
    in->begin = begin;
    in->size = in->limit = end - begin;
    atomic_store(&in->consumed, 0);
    return seek_to(in, begin, err);
}

/* Fills in *in, whose owner closes it after a failure. */
static int open_file(struct gpt_input *in, const char *path,
                     struct gpt_err *err)
{
    struct stat st;
    bool is_stdin = strcmp(path, "-") == 0;

    in->path = strdup(path);
    in->raw = gpt_alloc(GPT_INPUT_RAW, 1);
    if (!in->path || !in->raw)
        return gpt_no_memory(err, "an input buffer");
    in->name = is_stdin ? "(standard input)" : in->path;
    in->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (in->fd < 0 || fstat(in->fd, &st) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", path);
    if (S_ISDIR(st.st_mode))
        return gpt_fail(err, GPT_EIO, "cannot read '%s': it is a directory",
                        path);
    /* only a regular file has a size, and can be read from the middle */
    in->regular = S_ISREG(st.st_mode);
    if (in->regular)
        in->size = st.st_size;
    return recognise_format(in, err);
}

int gpt_input_open(struct gpt_input **in, const char *path, int64_t threads,
                   struct gpt_err *err)
{
    const struct gpt_input_range whole = {path, 0, -1};

    return gpt_input_open_range(in, &whole, threads, err);
}

int gpt_input_open_range(struct gpt_input **out,
                         const struct gpt_input_range *range, int64_t threads,
                         struct gpt_err *err)
{
    struct gpt_input *in;
    int status;

    *out = NULL;
    GPT_TRY(gpt_new(&in, 1, sizeof(*in), "an input", err));
    in->fd = -1;
    in->size = -1;
    in->limit = INT64_MAX;
    in->threads = threads;
    GPT_TRY_GOTO(status, open_file(in, range->path, err), fail);
    if (range->begin > 0 || range->end >= 0)
        GPT_TRY_GOTO(status, select_range(in, range, err), fail);
    *out = in;
    return GPT_OK;
fail:
    gpt_input_close(in);
    return status;
}

void gpt_input_close(struct gpt_input *in)
{
    if (!in)
        return;
    if (in->decoder && in->decoder->close)
        in->decoder->close(in);
    if (in->fd > STDIN_FILENO) /* standard input belongs to the program */
        close(in->fd);
    gpt_free(in->raw);
    free(in->path);
    gpt_free(in);
}

int gpt_input_read(struct gpt_input *in, void *dst, size_t cap, size_t *got,
                   struct gpt_err *err)
{
    return in->decoder->read(in, dst, cap, got, err);
}

/* A compressed file is resumed by decompressing it from the beginning: the
 * place is one in the text, and nothing says where in the file it is. */
static int skip_by_reading(struct gpt_input *in, int64_t n,
                           struct gpt_err *err)
{
    void *piece;
    size_t got;
    int status = GPT_OK;

    GPT_TRY(gpt_new(&piece, GPT_INPUT_RAW, 1, "an input buffer", err));
    for (; n > 0; n -= (int64_t)got) {
        size_t cap = n < GPT_INPUT_RAW ? (size_t)n : GPT_INPUT_RAW;

        GPT_TRY_GOTO(status, gpt_input_read(in, piece, cap, &got, err), out);
        if (got == 0) {
            status = gpt_fail(err, GPT_EDATA, "%s: ends %lld bytes before the "
                              "place to resume at", in->name, (long long)n);
            goto out;
        }
    }
out:
    gpt_free(piece);
    return status;
}

int gpt_input_skip(struct gpt_input *in, int64_t n, struct gpt_err *err)
{
    /* a pipe has no other way */
    if (!gpt_input_is_plain(in) || !in->regular)
        return skip_by_reading(in, n, err);
    if (n > in->size)
        return gpt_fail(err, GPT_EDATA, "%s: has %lld bytes, the place to "
                        "resume at is %lld", in->name, (long long)in->size,
                        (long long)n);
    GPT_TRY(seek_to(in, in->begin + n, err));
    /* progress counts from the beginning, whatever was skipped */
    atomic_store(&in->consumed, n);
    return GPT_OK;
}

void gpt_input_cancel(struct gpt_input *in)
{
    atomic_store(&in->cancelled, true);
}

const char *gpt_input_name(const struct gpt_input *in)
{
    return in->name;
}

int64_t gpt_input_begin(const struct gpt_input *in)
{
    return in->begin;
}

int64_t gpt_input_size(const struct gpt_input *in)
{
    return in->size;
}

int64_t gpt_input_consumed(const struct gpt_input *in)
{
    return atomic_load(&in->consumed);
}
