/* Zstandard through libzstd: concatenated frames, skippable frames among them
 * (RFC 8878). The window, which the decoder must keep, is as large as a frame's
 * header asks, up to a limit, so that a small file cannot ask for gigabytes.
 * Start at zstd_read(). */
#include "text/input_decoder.h"

#define ZSTD_NAME "zstd"
#define ZSTD_MAGIC "\x28\xB5\x2F\xFD"
#define ZSTD_MAGIC_SKIP "\x50\x2A\x4D\x18" /* ... to "\x5F\x2A\x4D\x18" */

#ifdef GPT_HAVE_ZSTD

#include "base/memory.h"

#include <assert.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { ZSTD_WINDOW_LOG = 27 }; /* 128 MiB, the limit of zstd(1), too */

struct zstd {
    ZSTD_DCtx *ctx;
    bool inside;    /* a frame has begun and not ended */
    bool truncated; /* the file ended there */
    size_t failed;  /* libzstd's error code, reported after the bytes before */
};

static int zstd_open(struct gpt_input *in, struct gpt_err *err)
{
    struct zstd *z;

    GPT_TRY(gpt_new(&z, 1, sizeof(*z), "the zstd decoder", err));
    in->state = z;
    z->ctx = ZSTD_createDCtx();
    if (!z->ctx ||
        ZSTD_isError(ZSTD_DCtx_setParameter(z->ctx, ZSTD_d_windowLogMax,
                                            ZSTD_WINDOW_LOG)))
        return gpt_fail(err, GPT_EFAIL, "%s: cannot start the zstd decoder",
                        in->name);
    return GPT_OK;
}

static void zstd_close(struct gpt_input *in)
{
    struct zstd *z = in->state;

    if (z)
        ZSTD_freeDCtx(z->ctx);
    gpt_free(z);
}

static int zstd_error(struct gpt_input *in, struct gpt_err *err)
{
    struct zstd *z = in->state;

    long long at = gpt_input_offset(in);
    if (z->truncated)
        return gpt_fail(err, GPT_EDATA, "%s: zstd data truncated: the file "
                        "ends at offset %lld, inside a frame", in->name, at);
    switch (ZSTD_getErrorCode(z->failed)) {
    case ZSTD_error_prefix_unknown:
        return gpt_fail(err, GPT_EDATA, "%s: something else follows the zstd "
                        "data near offset %lld", in->name, at);
    case ZSTD_error_frameParameter_windowTooLarge:
        gpt_fail(err, GPT_EDATA, "%s: zstd frame near offset %lld needs a "
                 "larger window than the limit of %d MiB", in->name, at,
                 1 << (ZSTD_WINDOW_LOG - 20));
        return gpt_hint(err, "decompress it into a pipe by 'zstd -dc' with its "
                        "option long=31, and read standard input");
    case ZSTD_error_memory_allocation:
        return gpt_fail(err, GPT_EFAIL, "%s: out of memory in the zstd decoder",
                        in->name);
    default:
        return gpt_fail(err, GPT_EDATA, "%s: zstd data damaged near offset "
                        "%lld: %s", in->name, at, ZSTD_getErrorName(z->failed));
    }
}

/* Decodes what is in the raw buffer. False when no more comes: the end, or a
 * failure, which is now in *z. */
static bool decode_frames(struct gpt_input *in, struct zstd *z,
                          ZSTD_outBuffer *out)
{
    ZSTD_inBuffer src = {in->raw + in->pos, in->len - in->pos, 0};

    assert(in->pos <= in->len);
    bool ended = in->at_end && src.size == 0;

    if (ended && !z->inside) /* the end, between two frames */
        return false;
    size_t left = ZSTD_decompressStream(z->ctx, out, &src);
    in->pos += src.pos;
    /* 0 means that a frame is complete; else a guess of what it still needs */
    if (ZSTD_isError(left)) {
        z->failed = left;
        return false;
    }
    z->inside = left != 0;
    /* without input it can only give out what it still holds */
    z->truncated = ended && z->inside && out->pos == 0;
    return !z->truncated;
}

static int zstd_read(struct gpt_input *in, void *dst, size_t cap, size_t *got,
                     struct gpt_err *err)
{
    struct zstd *z = in->state;
    ZSTD_outBuffer out = {dst, cap, 0};
    bool more = !z->failed && !z->truncated;

    while (more && out.pos == 0) {
        if (in->pos == in->len && !in->at_end)
            GPT_TRY(gpt_input_fill(in, err));
        more = decode_frames(in, z, &out);
    }
    /* an error waits until all bytes before it have been handed out */
    *got = out.pos;
    if (*got || (!z->failed && !z->truncated))
        return GPT_OK;
    return zstd_error(in, err);
}

/* Both rows of the table decode: pzstd begins its files with a frame to skip.
 */
#define ZSTD_CALLS .open = zstd_open, .read = zstd_read, .close = zstd_close

#else

#define ZSTD_CALLS .library = "libzstd"

#endif

const struct gpt_inflater gpt_inflater_zstd = {
    .name = ZSTD_NAME,
    .magic = ZSTD_MAGIC,
    .magic_len = 4,
    ZSTD_CALLS,
};

const struct gpt_inflater gpt_inflater_zstd_skip = {
    .name = ZSTD_NAME,
    .magic = ZSTD_MAGIC_SKIP,
    .magic_len = 4,
    .loose = 0x0F,
    ZSTD_CALLS,
};
