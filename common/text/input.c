/* Opening, recognising and plain reading of input.h; a compression is a
 * file of its own, input_*.c. */
#include "text/input_decoder.h"

#include "base/fault.h"
#include "base/memory.h"
#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { POLL_MS = 100 };

static int plain_read(struct gpt_input *in, void *dst, size_t cap, size_t *got,
                      struct gpt_err *err);

static const struct gpt_inflater decoder_plain = {
    .name = "plain",
    .magic = "",
    .read = plain_read,
};
static const struct gpt_inflater decoder_bzip2 = {
    .name = "bzip2", .magic = "BZh", .magic_len = 3};

/* In the order in which they are tried; the last one takes anything. */
static const struct gpt_inflater *const decoders[] = {
    &gpt_inflater_xz,        &gpt_inflater_gzip, &gpt_inflater_zstd,
    &gpt_inflater_zstd_skip, &decoder_bzip2,    &decoder_plain,
};

/* A pipe may be silent for long: wait for it in slices, so that somebody else
 * can end the waiting. */
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

void gpt_input_digest(const struct gpt_input *in, struct gpt_xxh64 *digest)
{
    *digest = in->digest;
}

int gpt_input_raw(struct gpt_input *in, void *dst, size_t cap, size_t *got,
                  struct gpt_err *err)
{
    ssize_t n;
    int64_t left = in->limit - gpt_input_consumed(in);

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
        n = gpt_fault(GPT_FAULT_READ) ? -1 : read(in->fd, dst, cap);
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n < 0)
        return gpt_fail_errno(err, GPT_EIO, "%s: cannot read at offset %lld",
                              in->name, (long long)(in->begin +
                                                    gpt_input_consumed(in)));
    in->at_end = n == 0;
    *got = (size_t)n;
    if (in->decoder && !gpt_input_is_plain(in))
        gpt_xxh64_add(&in->digest, dst, *got);
    atomic_fetch_add(&in->consumed, (long long)n);
    return GPT_OK;
}

int64_t gpt_input_offset(const struct gpt_input *in)
{
    return gpt_input_consumed(in) - (int64_t)(in->len - in->pos);
}

int gpt_input_fill(struct gpt_input *in, struct gpt_err *err)
{
    in->pos = 0;
    return gpt_input_raw(in, in->raw, GPT_INPUT_RAW, &in->len, err);
}

static int plain_read(struct gpt_input *in, void *dst, size_t cap, size_t *got,
                      struct gpt_err *err)
{
    size_t left = in->len - in->pos;

    if (left == 0)
        return gpt_input_raw(in, dst, cap, got, err);
    *got = left < cap ? left : cap;
    memcpy(dst, in->raw + in->pos, *got);
    in->pos += *got;
    return GPT_OK;
}

/* Looks at the first bytes, which stay in the raw buffer. */
static int recognise(struct gpt_input *in, struct gpt_err *err)
{
    while (in->len < 6 && !in->at_end) {
        size_t n;

        GPT_TRY(gpt_input_raw(in, in->raw + in->len, GPT_INPUT_RAW - in->len,
                              &n, err));
        in->len += n;
    }
    size_t i = 0;
    while (in->len < decoders[i]->magic_len ||
           memcmp(in->raw, decoders[i]->magic, decoders[i]->magic_len) != 0)
        i++;
    in->decoder = decoders[i];
    if (!gpt_input_is_plain(in))
        gpt_xxh64_add(&in->digest, in->raw, in->len);
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
    return gpt_hint(err, "decompress it into a pipe and read standard input "
                    "with --input -");
}

/* ---- parts ---- */

/* Moves *at to the first line that begins there or behind: lines begin at 0 and
 * behind newlines. */
static int align(struct gpt_input *in, int64_t *at, struct gpt_err *err)
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

static int go_to(struct gpt_input *in, int64_t offset, struct gpt_err *err)
{
    if (lseek(in->fd, offset, SEEK_SET) < 0)
        return gpt_fail_errno(err, GPT_EIO, "%s: cannot seek to %lld", in->name,
                              (long long)offset);
    in->pos = in->len = 0;
    in->at_end = false;
    return GPT_OK;
}

/* What was read to recognise it is forgotten. */
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

static int take_part(struct gpt_input *in, const struct gpt_input_range *span,
                     struct gpt_err *err)
{
    int64_t begin = span->begin, end = span->end < 0 ? in->size : span->end;

    if (!gpt_input_is_plain(in)) {
        if (begin > 0)
            make_empty(in);
        return GPT_OK;
    }
    GPT_TRY(align(in, &begin, err));
    GPT_TRY(align(in, &end, err));
    in->begin = begin;
    in->size = in->limit = end - begin;
    atomic_store(&in->consumed, 0);
    return go_to(in, begin, err);
}

static int open_file(struct gpt_input *in, const char *path,
                     struct gpt_err *err)
{
    struct stat st;
    bool is_stdin = strcmp(path, "-") == 0;

    in->path = strdup(path);
    in->raw = gpt_alloc(GPT_INPUT_RAW, 1);
    if (!in->path || !in->raw)
        return gpt_fail(err, GPT_EFAIL, "cannot allocate an input buffer");
    in->name = is_stdin ? "(standard input)" : in->path;
    in->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (in->fd < 0 || fstat(in->fd, &st) != 0)
        return gpt_fail_errno(err, GPT_EIO, "cannot open '%s'", path);
    if (S_ISDIR(st.st_mode))
        return gpt_fail(err, GPT_EIO, "cannot read '%s': it is a directory",
                        path);
    in->regular = S_ISREG(st.st_mode);
    if (in->regular)
        in->size = st.st_size;
    return recognise(in, err);
}

int gpt_input_open(struct gpt_input **in, const char *path, int64_t threads,
                   struct gpt_err *err)
{
    const struct gpt_input_range whole = {path, 0, -1};

    return gpt_input_open_span(in, &whole, threads, err);
}

int gpt_input_open_span(struct gpt_input **out,
                        const struct gpt_input_range *span, int64_t threads,
                        struct gpt_err *err)
{
    struct gpt_input *in;

    GPT_TRY(gpt_new(&in, 1, sizeof(*in), "an input", err));
    in->fd = -1;
    in->size = -1;
    in->limit = INT64_MAX;
    in->threads = threads;
    int status = open_file(in, span->path, err);
    if (status == GPT_OK && (span->begin > 0 || span->end >= 0))
        status = take_part(in, span, err);
    if (status != GPT_OK) {
        gpt_input_close(in);
        return status;
    }
    *out = in;
    return GPT_OK;
}

void gpt_input_close(struct gpt_input *in)
{
    if (!in)
        return;
    if (in->decoder && in->decoder->close)
        in->decoder->close(in);
    if (in->fd > STDIN_FILENO)
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

static int skip_by_reading(struct gpt_input *in, int64_t n,
                           struct gpt_err *err)
{
    void *piece;

    GPT_TRY(gpt_new(&piece, GPT_INPUT_RAW, 1, "an input buffer", err));
    int status = GPT_OK;
    while (n > 0 && status == GPT_OK) {
        size_t cap = n < GPT_INPUT_RAW ? (size_t)n : GPT_INPUT_RAW, got = 0;

        status = gpt_input_read(in, piece, cap, &got, err);
        if (status == GPT_OK && got == 0)
            status = gpt_fail(err, GPT_EDATA, "%s: ends %lld bytes before the "
                              "place to go on from", in->name, (long long)n);
        n -= (int64_t)got;
    }
    gpt_free(piece);
    return status;
}

int gpt_input_skip(struct gpt_input *in, int64_t n, struct gpt_err *err)
{
    if (!gpt_input_is_plain(in) || !in->regular)
        return skip_by_reading(in, n, err);
    if (n > in->size)
        return gpt_fail(err, GPT_EDATA, "%s: has %lld bytes, the place to go "
                        "on from is %lld", in->name, (long long)in->size,
                        (long long)n);
    GPT_TRY(go_to(in, in->begin + n, err));
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
