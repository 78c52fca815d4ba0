/* Outputs of GPT_OUT_DIRECT: their blocks go from a buffer straight to the
 * disk. For the kernel to copy a large file into its cache takes a tenth of the
 * time in which gpt-preprocess makes it, and pushes other files out.
 *
 * Only whole blocks at a block's place are written so, on local file systems:
 * elsewhere a write that is not kept by the kernel may wait for a network. The
 * rest is written as other outputs are. Start at gpt_direct_write(). */
#include "base/io_internal.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum {
    BLOCK = 2 << 20,   /* bytes that are written at once */
    ALIGNMENT = 4096,  /* of their places in memory and file */
};

#ifdef __SSE2__
#include <emmintrin.h>

/* Copies past the processor's caches: the next reader is the disk. */
static void copy_past(char *to, const char *from, size_t n)
{
    const size_t head = -(size_t)to & 15;

    if (n < 256) {
        memcpy(to, from, n);
        return;
    }
    memcpy(to, from, head);
    to += head;
    from += head;
    n -= head;
    for (; n >= 64; n -= 64, to += 64, from += 64)
        for (int i = 0; i < 64; i += 16)
            _mm_stream_si128(
                (__m128i *)(void *)(to + i),
                _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
    _mm_sfence();
    memcpy(to, from, n);
}
#else
#define copy_past memcpy
#endif

/* Returns false where the descriptor stays as it was. */
static bool set_direct(struct gpt_out *out, bool on)
{
    static const uint32_t kinds[] = {GPT_FS_EXT, GPT_FS_XFS};

    if (out->direct == on)
        return true;
    if (on && !gpt_raw_is_in(out->fd, kinds, GPT_COUNT(kinds)))
        return false;
    const int flags = fcntl(out->fd, F_GETFL);
    if (flags < 0 || fcntl(out->fd, F_SETFL,
                           on ? flags | O_DIRECT : flags & ~O_DIRECT) != 0)
        return false;
    out->direct = on;
    return true;
}

/* Makes the descriptor ready for what is in the buffer. */
static bool prepare(struct gpt_out *out)
{
    const bool whole =
        out->fill == BLOCK && out->flushed % ALIGNMENT == 0;

    if (whole && !out->never_direct && set_direct(out, true))
        return true;
    out->never_direct |= whole;
    return set_direct(out, false);
}

static int write_buffer(struct gpt_out *out, struct gpt_err *err)
{
    const size_t n = out->fill;
    int status = prepare(out) ? gpt_raw_write(out->fd, out->buffer, n,
                                              out->flushed)
                              : -1;

    /* a disk whose blocks are larger */
    if (status != 0 && errno == EINVAL && out->direct) {
        out->never_direct = true;
        if (set_direct(out, false))
            status = gpt_raw_write(out->fd, out->buffer, n, out->flushed);
    }
    out->fill = 0; /* whatever happens: see gpt_out_flush() */
    if (status != 0)
        return gpt_out_cannot_write(out, n, out->flushed, err);
    gpt_out_flushed(out, n);
    return GPT_OK;
}

/* A block that does not begin where one may, as after a flush, is shorter: the
 * next one begins right. */
int gpt_direct_write(struct gpt_out *out, const void *p, size_t n,
                     struct gpt_err *err)
{
    const char *from = p;

    if (!out->buffer)
        GPT_TRY(gpt_new_large_pages(&out->memory, &out->buffer, BLOCK,
                                    "a write buffer", err));
    while (n > 0) {
        const size_t room =
            BLOCK - (size_t)(out->flushed % ALIGNMENT) - out->fill;
        const size_t some = n < room ? n : room;

        copy_past(out->buffer + out->fill, from, some);
        out->fill += some;
        from += some;
        n -= some;
        if (some == room)
            GPT_TRY(write_buffer(out, err));
    }
    return GPT_OK;
}

/* Afterwards the descriptor may be used at any place. */
int gpt_direct_flush(struct gpt_out *out, struct gpt_err *err)
{
    if (out->fill > 0)
        GPT_TRY(write_buffer(out, err));
    return set_direct(out, false)
               ? GPT_OK
               : gpt_out_cannot_write(out, 0, out->flushed, err);
}
