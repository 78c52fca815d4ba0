/* Text from tokens, piece by piece. Start at gpt_stream_add(): bytes go one by
 * one into `held` until they are a character, or cannot become one. */
#include "generate/stream.h"

/* Bytes of the character that `lead` opens; 0 when it opens none. */
static int char_length(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead >= 0xC2 && lead <= 0xDF)
        return 2;
    if (lead >= 0xE0 && lead <= 0xEF)
        return 3;
    return lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
}

/* True when `b` may follow held[0..n), n >= 1. Only the second byte's range
 * depends on the first: no overlong forms, no surrogates, nothing past
 * U+10FFFF. */
static bool may_follow(const unsigned char *held, int n, unsigned char b)
{
    if (b < 0x80 || b > 0xBF)
        return false;
    if (n > 1)
        return true;
    switch (held[0]) {
    case 0xE0:
        return b >= 0xA0;
    case 0xED:
        return b <= 0x9F;
    case 0xF0:
        return b >= 0x90;
    case 0xF4:
        return b <= 0x8F;
    default:
        return true;
    }
}

static int add_replacement(struct gpt_buf *out)
{
    return gpt_buf_add(out, "\xEF\xBF\xBD", 3);
}

int gpt_stream_end(struct gpt_stream *s, struct gpt_buf *out)
{
    int held = s->n_held;

    s->n_held = 0;
    return held ? add_replacement(out) : GPT_OK;
}

/* A byte that cannot follow ends what is held, which becomes one U+FFFD, and is
 * looked at anew: it may begin a character. */
static int add_byte(struct gpt_stream *s, unsigned char b, struct gpt_buf *out)
{
    if (s->n_held && !may_follow(s->held, s->n_held, b))
        GPT_TRY(gpt_stream_end(s, out)); /* and b starts afresh */
    if (!s->n_held) {
        if (char_length(b) == 0)
            return add_replacement(out);
        if (char_length(b) == 1)
            return gpt_buf_add(out, &b, 1);
    } else if (s->n_held + 1 == char_length(s->held[0])) {
        GPT_TRY(gpt_buf_add(out, s->held, (size_t)s->n_held));
        s->n_held = 0;
        return gpt_buf_add(out, &b, 1);
    }
    s->held[s->n_held++] = b;
    return GPT_OK;
}

int gpt_stream_add(struct gpt_stream *s, const char *bytes, size_t n,
                   struct gpt_buf *out)
{
    for (size_t i = 0; i < n; i++)
        GPT_TRY(add_byte(s, (unsigned char)bytes[i], out));
    return GPT_OK;
}
