/* Text from tokens: however bytes are cut into tokens, the output is valid
 * UTF-8 at every moment, and the whole output is the same. */
#include "generate/stream.h"
#include "tests/lib/tap.h"

#define BAD "\xEF\xBF\xBD"

struct example {
    const char *what, *in, *want;
};

static const struct example examples[] = {
    {"empty", "", ""},
    {"ASCII", "hello", "hello"},
    {"two bytes", "\xC3\xA9", "\xC3\xA9"},
    {"three bytes", "\xE2\x82\xAC", "\xE2\x82\xAC"},
    {"four bytes", "\xF0\x9F\x98\x80", "\xF0\x9F\x98\x80"},
    {"mixed", "a\xC3\xA9" "b\xE2\x82\xAC" "c", "a\xC3\xA9" "b\xE2\x82\xAC" "c"},
    {"the last of all", "\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBF"},
    {"a lone continuation byte", "a\x80z", "a" BAD "z"},
    {"two of them", "\x80\xBF", BAD BAD},
    {"never a lead byte", "\xC0\xC1\xF5\xFF", BAD BAD BAD BAD},
    {"overlong slash", "\xC0\xAF", BAD BAD},
    {"overlong in three", "\xE0\x80\xAF", BAD BAD BAD},
    {"overlong in four", "\xF0\x8F\xBF\xBF", BAD BAD BAD BAD},
    {"a surrogate", "\xED\xA0\x80", BAD BAD BAD},
    {"past the end of Unicode", "\xF4\x90\x80\x80", BAD BAD BAD BAD},
    {"cut short by ASCII", "\xE2\x82" "a", BAD "a"},
    {"cut short by a character", "\xF0\x9F\xC3\xA9", BAD "\xC3\xA9"},
    {"cut short by the end", "a\xF0\x9F\x98", "a" BAD},
    {"Unicode's own example, table 3-11",
     "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64",
     "a" BAD BAD BAD "b" BAD "c" BAD BAD "d"},
};

/* The text of in, cut into tokens of `piece` bytes. */
static char *stream(const char *in, size_t piece, struct gpt_buf *out)
{
    struct gpt_stream s = {0};
    size_t n = strlen(in);
    int rc = gpt_buf_add(out, "", 0);

    for (size_t at = 0; at < n; at += piece)
        rc |= gpt_stream_add(&s, in + at, n - at < piece ? n - at : piece, out);
    rc |= gpt_stream_end(&s, out);
    return rc == GPT_OK && out->data ? out->data : NULL;
}

static void test_examples(void)
{
    for (size_t i = 0; i < GPT_COUNT(examples); i++)
        for (size_t piece = 1; piece <= 4; piece++) {
            struct gpt_buf out = {0};
            char *got = stream(examples[i].in, piece, &out);

            is_str(got ? got : "", examples[i].want, "%s, tokens of %zu",
                   examples[i].what, piece);
            gpt_buf_free(&out);
        }
}

static void test_holding(void)
{
    struct gpt_stream s = {0};
    struct gpt_buf out = {0};
    int rc = gpt_stream_add(&s, "x\xE2\x82", 3, &out);

    is_int(out.len, 1, "half a character is held back");
    rc |= gpt_stream_add(&s, "\xAC", 1, &out);
    is_int(out.len, 4, "and given out when it is complete");
    rc |= gpt_stream_add(&s, "\xE2", 1, &out);
    rc |= gpt_stream_add(&s, "(", 1, &out);
    is_int(out.len, 8, "what cannot be completed is known at once");
    rc |= gpt_stream_end(&s, &out);
    is_int(out.len, 8, "and nothing is left for the end");
    rc |= gpt_stream_add(&s, "a\0b", 3, &out);
    is_int(out.len, 11, "NUL is a character like others");
    is_int(rc, GPT_OK, "no call failed");
    gpt_buf_free(&out);
}

/* Every string of up to 4 bytes over the interesting bytes, in pieces of 1
 * and at once: the same. */
static void test_pieces_agree(void)
{
    static const char bytes[] = "a\x80\x9F\xA0\xBF\xC2\xE0\xED\xF0\xF4\xFF";
    int n = (int)sizeof(bytes) - 1, differ = 0;

    for (int code = 0; code < n * n * n * n; code++) {
        char in[5] = {bytes[code % n], bytes[code / n % n],
                      bytes[code / n / n % n], bytes[code / n / n / n], 0};
        struct gpt_buf a = {0}, b = {0};
        const char *x = stream(in, 1, &a), *y = stream(in, 4, &b);

        differ += !x || !y || strcmp(x, y) != 0;
        gpt_buf_free(&a);
        gpt_buf_free(&b);
    }
    is_int(differ, 0, "the result does not depend on the cut");
}

int main(void)
{
    test_examples();
    test_holding();
    test_pieces_agree();
    return tap_done();
}
