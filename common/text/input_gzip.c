/* gzip through zlib: concatenated members, and zero bytes after a member, which
 * tapes leave and gzip(1) passes over. Memory is zlib's window of 32 KiB. zlib
 * decodes one member and stops; the state between members is therefore ours.
 * A stream of bits cannot be entered in the middle, so there is one thread.
 * Start at gzip_read(). */
#include "text/input_decoder.h"

#define GZIP_NAME "gzip"
#define GZIP_MAGIC "\x1F\x8B"

#ifdef GPT_HAVE_ZLIB

#include "base/memory.h"

#include <assert.h>
#include <zlib.h>

enum {
    GZIP_WINDOW = 15 + 16, /* the largest; + 16: gzip's header, no other */
    GZIP_GARBAGE = 100,    /* beside zlib's codes: what follows is no member */
};

struct gzip {
    z_stream stream;
    int pending;  /* Z_OK, or the end or error that follows the bytes handed
                   * out last */
    bool between; /* members, or before the first */
};

static int gzip_open(struct gpt_input *in, struct gpt_err *err)
{
    struct gzip *gz;

    GPT_TRY(gpt_new(&gz, 1, sizeof(*gz), "the gzip decoder", err));
    if (inflateInit2(&gz->stream, GZIP_WINDOW) != Z_OK) {
        gpt_free(gz);
        return gpt_fail(err, GPT_EFAIL, "%s: cannot start the gzip decoder",
                        in->name);
    }
    gz->between = true;
    in->state = gz;
    return GPT_OK;
}

static void gzip_close(struct gpt_input *in)
{
    struct gzip *gz = in->state;

    if (gz)
        inflateEnd(&gz->stream);
    gpt_free(gz);
}

static int gzip_error(struct gpt_input *in, struct gpt_err *err)
{
    struct gzip *gz = in->state;

    long long at = gpt_input_offset(in);
    switch (gz->pending) {
    case Z_BUF_ERROR:
        return gpt_fail(err, GPT_EDATA, "%s: gzip data truncated: the file "
                        "ends at offset %lld, inside a member", in->name, at);
    case Z_DATA_ERROR:
        return gpt_fail(err, GPT_EDATA, "%s: gzip data damaged near offset "
                        "%lld: %s", in->name, at,
                        gz->stream.msg ? gz->stream.msg : "no reason given");
    case GZIP_GARBAGE:
        return gpt_fail(err, GPT_EDATA, "%s: something else follows the gzip "
                        "data near offset %lld", in->name, at);
    case Z_MEM_ERROR:
        return gpt_fail(err, GPT_EFAIL, "%s: out of memory in the gzip decoder",
                        in->name);
    default:
        return gpt_fail(err, GPT_EFAIL, "%s: gzip decoder failed with code %d "
                        "near offset %lld", in->name, gz->pending, at);
    }
}

/* Passes over zeros to the next member; at the end of the file that is
 * Z_STREAM_END. */
static void find_member(struct gpt_input *in, struct gzip *gz)
{
    while (in->pos < in->len && in->raw[in->pos] == 0)
        in->pos++;
    if (in->pos == in->len) {
        gz->pending = in->at_end ? Z_STREAM_END : Z_OK;
    } else if (in->raw[in->pos] != (uint8_t)GZIP_MAGIC[0]) {
        gz->pending = GZIP_GARBAGE;
    } else {
        /* total_in begins anew, by which inflate_member() knows garbage */
        gz->between = false;
        gz->pending = inflateReset(&gz->stream);
    }
}

/* Decodes what is in the raw buffer, up to the end of a member. Codes of zlib
 * that only mean "more input" or "more room" are no errors here. */
static void inflate_member(struct gpt_input *in, struct gzip *gz)
{
    z_stream *s = &gz->stream;

    s->next_in = in->raw + in->pos;
    s->avail_in = (uInt)(in->len - in->pos);
    gz->pending = inflate(s, Z_NO_FLUSH);
    in->pos = in->len - s->avail_in;
    assert(in->pos <= in->len);
    if (gz->pending == Z_STREAM_END) {
        gz->between = true;
        gz->pending = Z_OK;
    } else if (gz->pending == Z_BUF_ERROR && !in->at_end) {
        gz->pending = Z_OK; /* there is more to read */
    } else if (gz->pending == Z_DATA_ERROR && s->total_in <= 2) {
        gz->pending = GZIP_GARBAGE; /* not even its first two bytes */
    } else if (gz->pending == Z_NEED_DICT) { /* gzip has no dictionaries */
        gz->pending = Z_DATA_ERROR;
    }
}

static int gzip_read(struct gpt_input *in, void *dst, size_t cap, size_t *got,
                     struct gpt_err *err)
{
    struct gzip *gz = in->state;
    uInt room = cap < INT32_MAX ? (uInt)cap : INT32_MAX;

    assert(cap > 0);
    gz->stream.next_out = dst;
    gz->stream.avail_out = room;
    while (gz->stream.avail_out == room && gz->pending == Z_OK) {
        if (in->pos == in->len && !in->at_end)
            GPT_TRY(gpt_input_fill(in, err));
        if (gz->between)
            find_member(in, gz);
        else
            inflate_member(in, gz);
    }
    *got = room - gz->stream.avail_out;
    /* an error waits until all bytes before it have been handed out */
    if (*got || gz->pending == Z_STREAM_END)
        return GPT_OK;
    return gzip_error(in, err);
}

const struct gpt_inflater gpt_inflater_gzip = {
    .name = GZIP_NAME,
    .magic = GZIP_MAGIC,
    .magic_len = 2,
    .open = gzip_open,
    .read = gzip_read,
    .close = gzip_close,
};

#else

const struct gpt_inflater gpt_inflater_gzip = {
    .name = GZIP_NAME,
    .magic = GZIP_MAGIC,
    .magic_len = 2,
    .library = "zlib",
};

#endif
