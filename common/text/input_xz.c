/* xz through liblzma: concatenated streams with zeros between them, several
 * threads where a stream has several blocks and liblzma can do that (5.4 and
 * later). liblzma would pass from stream to stream by itself, but then what
 * follows the last one is no error of its own; the state between streams is
 * therefore ours. Start at xz_read().
 *
 * Blocks of an xz file are compressed apart from each other and say how long
 * they are, so that liblzma's threads decode several at once and hand them out
 * in order; they are started and joined inside the library, and this file sees
 * one stream. A thread holds a whole block decompressed, which is why the
 * memory for threads has a limit: beyond it liblzma goes back to fewer threads,
 * and fails only where a single one needs more than STOP_MIB. */
#include "text/input_decoder.h"

#define XZ_NAME "xz"
#define XZ_MAGIC "\xFD"                                                        \
                 "7zXZ"

#ifdef GPT_HAVE_LZMA

#include "base/memory.h"
#include "base/num.h"

#include <assert.h>
#include <lzma.h>

enum {
    MIB = 1 << 20,
    THREADS_MIB = 512,
    STOP_MIB = 1024,
    MAX_THREADS = 64,
    XZ_GARBAGE = -1, /* beside liblzma's codes: what follows is no stream */
    XZ_PADDING = 4,  /* zeros between streams come in fours */
    PIECE = 8192, /* bytes of a read by one thread: they are copied out of the
                   * dictionary while the first cache still holds them */
};

struct xz {
    lzma_stream stream;
    int pending;  /* LZMA_OK, or the end or error that follows the bytes handed
                   * out last */
    bool between; /* streams, or before the first */
    int zeros;    /* between streams, modulo XZ_PADDING */
};

/* The decoder of several threads costs more than it gains for one. */
static lzma_ret start_decoder(lzma_stream *stream, int64_t threads)
{
#if LZMA_VERSION >= 50040002
    lzma_mt mt = {
        .threads = (uint32_t)gpt_min_i64(threads, MAX_THREADS),
        .memlimit_threading = (uint64_t)THREADS_MIB * MIB,
        .memlimit_stop = (uint64_t)STOP_MIB * MIB,
    };
    if (threads > 1)
        return lzma_stream_decoder_mt(stream, &mt);
#endif
    (void)threads;
    return lzma_stream_decoder(stream, (uint64_t)STOP_MIB * MIB, 0);
}

static int xz_open(struct gpt_input *in, struct gpt_err *err)
{
    struct xz *xz;

    GPT_TRY(gpt_new(&xz, 1, sizeof(*xz), "the xz decoder", err));
    in->state = xz;
    /* before anything can fail: xz_close() ends it in any case */
    xz->stream = (lzma_stream)LZMA_STREAM_INIT;
    xz->between = true;
    return GPT_OK;
}

static void xz_close(struct gpt_input *in)
{
    struct xz *xz = in->state;

    if (xz)
        lzma_end(&xz->stream);
    gpt_free(xz);
}

static int xz_error(struct gpt_input *in, struct gpt_err *err)
{
    struct xz *xz = in->state;

    /* with threads the decoder has read ahead: the place is near the damage */
    long long at = gpt_input_offset(in);
    switch (xz->pending) {
    case LZMA_BUF_ERROR:
        return gpt_fail(err, GPT_EDATA, "%s: xz data truncated: the file ends "
                        "at offset %lld, inside a stream", in->name, at);
    case LZMA_DATA_ERROR:
        return gpt_fail(err, GPT_EDATA, "%s: xz data damaged near offset %lld",
                        in->name, at);
    case LZMA_FORMAT_ERROR:
    case XZ_GARBAGE:
        return gpt_fail(err, GPT_EDATA,
                        "%s: something else follows the xz data near offset "
                        "%lld", in->name, at);
    case LZMA_OPTIONS_ERROR:
        return gpt_fail(err, GPT_EDATA, "%s: xz data near offset %lld uses "
                        "options that liblzma does not know", in->name, at);
    case LZMA_MEMLIMIT_ERROR:
        return gpt_fail(err, GPT_EDATA, "%s: xz data needs %llu MiB to decode, "
                        "limit %d", in->name, (unsigned long long)
                        lzma_memusage(&xz->stream) / MIB, STOP_MIB);
    case LZMA_MEM_ERROR:
        return gpt_fail(err, GPT_EFAIL, "%s: out of memory in the xz decoder",
                        in->name);
    default:
        return gpt_fail(err, GPT_EFAIL, "%s: xz decoder failed with code %d "
                        "near offset %lld", in->name, xz->pending, at);
    }
}

/* Passes over zeros to the next stream; at the end of the file that is
 * LZMA_STREAM_END. */
static void find_stream(struct gpt_input *in, struct xz *xz)
{
    for (; in->pos < in->len && in->raw[in->pos] == 0; in->pos++)
        xz->zeros = (xz->zeros + 1) % XZ_PADDING;
    if (in->pos == in->len && !in->at_end)
        return;
    if (xz->zeros != 0) {
        xz->pending = LZMA_DATA_ERROR;
    } else if (in->pos == in->len) {
        xz->pending = LZMA_STREAM_END;
    } else if (in->raw[in->pos] != (uint8_t)XZ_MAGIC[0]) {
        xz->pending = XZ_GARBAGE;
    } else {
        xz->between = false;
        xz->pending = start_decoder(&xz->stream, in->threads);
    }
}

/* Decodes what is in the raw buffer, up to the end of a stream. */
static void decode_stream(struct gpt_input *in, struct xz *xz)
{
    lzma_stream *s = &xz->stream;

    s->next_in = in->raw + in->pos;
    s->avail_in = in->len - in->pos;
    /* LZMA_FINISH makes the end of the file inside a stream an error */
    xz->pending = lzma_code(s, in->at_end ? LZMA_FINISH : LZMA_RUN);
    in->pos = in->len - s->avail_in;
    if (xz->pending == LZMA_STREAM_END) {
        xz->between = true;
        xz->pending = LZMA_OK;
    }
}

static int xz_read(struct gpt_input *in, void *dst, size_t cap, size_t *got,
                   struct gpt_err *err)
{
    struct xz *xz = in->state;
    lzma_stream *s = &xz->stream;

    assert(cap > 0);
    if (in->threads <= 1 && cap > PIECE)
        cap = PIECE;
    s->next_out = dst;
    s->avail_out = cap;
    while (s->avail_out == cap && xz->pending == LZMA_OK) {
        if (in->pos == in->len && !in->at_end)
            GPT_TRY(gpt_input_fill(in, err));
        if (xz->between)
            find_stream(in, xz);
        else
            decode_stream(in, xz);
    }
    *got = cap - s->avail_out;
    /* an error waits until all bytes before it have been handed out */
    if (*got || xz->pending == LZMA_STREAM_END)
        return GPT_OK;
    return xz_error(in, err);
}

const struct gpt_inflater gpt_inflater_xz = {
    .name = XZ_NAME,
    .magic = XZ_MAGIC,
    .magic_len = 6,
    .open = xz_open,
    .read = xz_read,
    .close = xz_close,
};

#else

const struct gpt_inflater gpt_inflater_xz = {
    .name = XZ_NAME,
    .magic = XZ_MAGIC,
    .magic_len = 6,
    .library = "liblzma",
};

#endif
