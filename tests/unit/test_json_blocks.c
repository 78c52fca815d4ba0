/* The meaning of JSON strings of all lengths against a reader that takes one
 * byte at a time, with strings that end, break off and are wrong at every place
 * of a block. */
#include "tests/lib/tap.h"
#include "text/json_blocks.h"
#include "text/json_scan.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 400 };

static uint64_t state = 1;

static unsigned dice(unsigned n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

static int digit(uint8_t c)
{
    const char *all = "0123456789abcdef", *at;

    if (c >= 'A' && c <= 'F')
        c += 32;
    at = c ? strchr(all, c) : NULL;
    return at ? (int)(at - all) : -1;
}

static long hex(const uint8_t *p, const uint8_t *end)
{
    long v = 0;

    for (int i = 0; i < 4; i++) {
        if (p + i >= end || digit(p[i]) < 0)
            return -1;
        v = v * 16 + digit(p[i]);
    }
    return v;
}

/* Bytes written for the string at p, after its quote; -1: it is wrong. */
static long naive(const uint8_t *p, const uint8_t *end, char *out)
{
    char *to = out;

    while (p < end && *p != '"') {
        uint32_t cp;

        if (*p == '\\' && p + 1 < end && p[1] == 'u') {
            long a = hex(p + 2, end), b;

            if (a < 0)
                return -1;
            p += 6;
            b = end - p >= 6 && p[0] == '\\' && p[1] == 'u' ? hex(p + 2, end)
                                                            : -1;
            if (a >= 0xD800 && a < 0xDC00 && b >= 0xDC00 && b < 0xE000) {
                a = 0x10000 + (a - 0xD800) * 1024 + (b - 0xDC00);
                p += 6;
            }
            to += gpt_utf8_encode(a >= 0xD800 && a < 0xE000 ? 0xFFFD
                                                            : (uint32_t)a, to);
        } else if (*p == '\\') {
            if (p + 1 == end || !gpt_json_escapes[p[1]])
                return -1;
            *to++ = gpt_json_escapes[p[1]];
            p += 2;
        } else {
            int n = *p < 0x20 ? 0 : gpt_utf8_decode(p, (size_t)(end - p), &cp);

            if (n == 0)
                return -1;
            memcpy(to, p, (size_t)n);
            to += n;
            p += n;
        }
    }
    return p < end ? to - out : -1;
}

static const char *const parts[] = {
    "a", "the quick brown ", "\\n", "\\\"", "\\\\", "\\\\\\\\", "\\/\\b\\f\\r",
    "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\uDC00", "\xC3\xA9",
    "\\u0000\\u007F\\u0080", "\\u07ff\\u0800", "\\ud7ff\\ue000\\uFFFF",
    "\\uD800\\udc00\\uDbFf\\uDFFf", "\\ud83d\\ud83d\\ude00",
    "\xE4\xBD\xA0\xE5\xA5\xBD", "\xED\x9F\xBF", "\xF0\x9F\x98\x80", "\x7F",
    "\xE0\xA0\x80", "\xF4\x8F\xBF\xBF", "\xDF\xBF",
    /* wrong ones, from here on */
    "\\x", "\\u12g4", "\\u00@0", "\\ud83d\\u123", "\\u`000",
    "\x1F", "\n", "\x80", "\xC0\xAF", "\xC1\xBF", "\xC3",
    "\xE4\xBD", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
    "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xBF\xBF", "\\",
    "\\\xC3\xA9", "\"",
};
enum { GOOD = 24 };

static size_t add_hex(uint8_t *text)
{
    unsigned bits = 1 + dice(16); /* as many code points of each length */

    return (size_t)(dice(2)
                        ? sprintf((char *)text, "\\u%04x", dice(1u << bits))
                        : sprintf((char *)text, "\\u%04X", dice(1u << bits)));
}

/* A string, mostly of letters; `wrong`: with one part of any kind in it. */
static size_t make(uint8_t *text, bool wrong)
{
    size_t len = 0, want = dice(MOST - 40), at = dice((unsigned)want + 1);
    unsigned letters = dice(30), hex = dice(30);

    text[len++] = '"';
    while (len < want) {
        const char *part = dice(30) < letters ? "x" : parts[dice(GOOD)];

        if (wrong && len >= at) {
            part = parts[dice(GPT_COUNT(parts))];
            wrong = false;
        } else if (dice(30) < hex) {
            len += add_hex(text + len);
            continue;
        }
        memcpy(text + len, part, strlen(part));
        len += strlen(part);
    }
    if (dice(20))
        text[len++] = '"';
    for (unsigned n = dice(80); n; n--)
        text[len++] = (uint8_t)dice(256);
    return len;
}

/* What came of a text: its meaning, or what is wrong and where. */
struct reading {
    int status;
    size_t len, at;
    char text[2 * MOST + GPT_SCAN_SLACK];
    struct gpt_err err;
};

static void read_text(struct reading *r, struct gpt_str text,
                      gpt_json_blocks_fn *blocks)
{
    struct gpt_scan s = gpt_scan_of(text, &r->err);

    s.blocks = blocks;
    r->err.text[0] = '\0';
    r->status = gpt_scan_text(&s, r->text, &r->len);
    r->at = (size_t)((const char *)s.p - text.data);
}

/* The text ends where memory does that can be read. It is read with blocks and
 * without, and passed over. */
static bool same(uint8_t *memory_end, bool wrong)
{
    static struct reading by[2];
    uint8_t made[2 * MOST];
    char want[2 * MOST];
    size_t len = make(made, wrong);
    uint8_t *text = memory_end - len;
    struct gpt_err err;
    struct gpt_str all = {memcpy(text, made, len), len};
    struct gpt_scan skip = gpt_scan_of(all, &err);
    long expected = naive(text + 1, memory_end, want);
    int status = gpt_scan_skip(&skip);

    read_text(&by[0], all, NULL);
    read_text(&by[1], all, gpt_json_blocks());
    for (int i = 0; i < 2; i++)
        if (by[i].status != status ||
            status != (expected < 0 ? GPT_EDATA : GPT_OK) ||
            strcmp(by[i].err.text, by[0].err.text) != 0 ||
            (status == GPT_OK &&
             (by[i].at != (size_t)((const char *)skip.p - all.data) ||
              by[i].len != (size_t)expected ||
              memcmp(by[i].text, want, by[i].len) != 0)))
            return false;
    return status == GPT_OK || by[0].err.text[0] != '\0';
}

/* The end of a page with none behind it. */
static uint8_t *end_of_memory(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED || mprotect(p + page, page, PROT_NONE) != 0)
        exit(1);
    return p + page;
}

int main(void)
{
    uint8_t *end = end_of_memory();
    size_t right = 0, wrong = 0;

    for (int i = 0; i < 50000; i++) {
        right += same(end, false);
        wrong += same(end, true);
    }
    ok(right == 50000, "strings mean what a reader of bytes finds in them");
    ok(wrong == 50000, "wrong strings are refused, and no others, and what is "
       "said of them does not depend on blocks");
    return tap_done();
}
