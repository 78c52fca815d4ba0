/* Compares the pieces of texts with lists written by hand, and with a matcher
 * that follows the pattern literally; then the vector forms with the portable
 * one. */
#include "tests/lib/tap.h"
#include "base/utf8.h"
#include "tokenizer/pretok_gpt2.h"
#include "tokenizer/pretok_rules.h"
#include "text/unicode.h"

/* Cuts text and joins the pieces with '|'. */
static const char *pieces(const char *text, size_t len)
{
    static char out[1024];
    size_t n = 0;

    while (len) {
        size_t piece = gpt_pretok_gpt2(text, len);

        if (n)
            out[n++] = '|';
        memcpy(out + n, text, piece);
        n += piece;
        text += piece;
        len -= piece;
    }
    out[n] = 0;
    return out;
}

static void test_pieces(void)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"a", "a"},
        {"hello world", "hello| world"},
        {"it's", "it|'s"},
        {"they're we've he'll I'm I'd can't",
         "they|'re| we|'ve| he|'ll| I|'m| I|'d| can|'t"},
        {"IT'S", "IT|'|S"},
        {"''s", "''|s"},
        {" 's", " '|s"},
        {"'sun", "'s|un"},
        {"'r 'l 'v", "'|r| '|l| '|v"},
        {"x12y", "x|12|y"},
        {" 12 ab !?", " 12| ab| !?"},
        {"a  b", "a| | b"},
        {"a   b", "a|  | b"},
        {"a\nb", "a|\n|b"},
        {"a\n\nb", "a|\n|\n|b"},
        {"a \nb", "a| |\n|b"},
        {"a\n b", "a|\n| b"},
        {"a  ", "a|  "},
        {" ", " "},
        {"a \t", "a| \t"},
        {"caf\xC3\xA9!", "caf\xC3\xA9|!"},
        {"e\xCC\x81", "e|\xCC\x81"},
        {"\xC2\xA0x", "\xC2\xA0|x"},
        {" \xC2\xA0x", " |\xC2\xA0|x"},
        {"\xE3\x80\x80\xE3\x80\x80x", "\xE3\x80\x80|\xE3\x80\x80|x"},
        {"\xE4\xBD\xA0\xE5\xA5\xBD", "\xE4\xBD\xA0\xE5\xA5\xBD"},
        {"\xD9\xA3\x31", "\xD9\xA3\x31"},
        {"a\xFF\xFE", "a|\xFF\xFE"},
        {" \xFFz", " \xFF|z"},
        {"\xE4\xBDz", "\xE4\xBD|z"},
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        is_str(pieces(cases[i].text, strlen(cases[i].text)), cases[i].want,
               "pieces of text %zu", i);
}

/* ---- the pattern, alternative by alternative, on classes ---- */

static int class_at(const char *text, size_t len, size_t i, size_t *n)
{
    uint32_t cp;
    int used = gpt_utf8_decode((const uint8_t *)text + i, len - i, &cp);

    *n = used ? (size_t)used : 1;
    enum gpt_unicode_class c = used ? gpt_unicode_class(cp) : GPT_UC_OTHER;
    return c >= GPT_UC_LO ? 'L' : c == GPT_UC_N ? 'N' : c == GPT_UC_SPACE
                                                            ? ' ' : 'o';
}

static size_t slow_run(const char *text, size_t len, size_t i, int class)
{
    size_t n;

    while (i < len && class_at(text, len, i, &n) == class)
        i += n;
    return i;
}

static size_t slow_piece(const char *text, size_t len)
{
    static const char *const contractions[] = {"'s", "'t", "'re", "'ve",
                                               "'m", "'ll", "'d"};

    for (size_t i = 0; i < GPT_COUNT(contractions); i++) {
        size_t n = strlen(contractions[i]);

        if (len >= n && memcmp(text, contractions[i], n) == 0)
            return n;
    }
    static const char classes[] = "LNo";
    for (const char *c = classes; *c; c++)
        for (size_t prefix = 2; prefix-- > 0;) {
            if (prefix && text[0] != ' ')
                continue;
            size_t end = slow_run(text, len, prefix, *c);
            if (end > prefix)
                return end;
        }
    size_t end = slow_run(text, len, 0, ' '), last = 0, n;
    if (end == len)
        return end;
    for (size_t i = 0; i < end; i += n) {
        last = i;
        class_at(text, len, i, &n);
    }
    return last ? last : end; /* \s+(?!\S), or \s+ for a single one */
}

static void test_random(void)
{
    static const char *const bits[] = {
        "a", "B", " ", " ", "\n", "\t", "'", "'s", "re", "ll", "7", "!",
        "\xC3\xA9", "\xC2\xA0", "\xCC\x81", "\xD9\xA3", "\xE2\x80\x83",
        "\xE4\xB8\x80", "\xF0\x9F\x98\x80", "\xFF", "\xE4\xB8", "\xC3",
    };
    uint32_t seed = 1;
    long bad = 0;

    for (int round = 0; round < 200000; round++) {
        char text[64];
        size_t len = 0;

        for (int k = 0; k < 10; k++) {
            seed = seed * 1664525 + 1013904223;
            const char *bit = bits[(seed >> 16) % GPT_COUNT(bits)];
            memcpy(text + len, bit, strlen(bit));
            len += strlen(bit);
        }
        for (size_t i = 0; i < len;) {
            size_t n = gpt_pretok_gpt2(text + i, len - i);

            bad += n != slow_piece(text + i, len - i);
            i += n;
        }
    }
    is_int(bad, 0, "200,000 random texts cut as the pattern says");
}

/* ---- the vector forms, against the portable one ---- */

/* True when `cut` finds the pieces of text[0..len), also with little room. */
static bool cuts_alike(gpt_cut_fn *cut, gpt_pretok_fn *pretok,
                       const char *text, size_t len)
{
    struct gpt_stretch s[5];
    size_t ends[4 * GPT_STRETCH + 3], n = 0, i = 0, base = 0, room = 0;

    for (size_t at = 0; at < len; i++) {
        if (i == n) {
            base = at;
            room = room % 4 + 1;
            n = cut(text + at, len - at, s, room);
            if (n > room)
                return false;
            n = gpt_stretch_ends(s, n, ends);
            i = 0;
            if (n == 0)
                return false;
        }
        at += pretok(text + at, len - at);
        if (base + ends[i] != at)
            return false;
    }
    return i == n;
}

/* Texts of `parts` random bits, in a block of their own so that a sanitizer
 * sees what is read beyond the end. */
static long count_unlike(gpt_cut_fn *cut, gpt_pretok_fn *pretok,
                         const char *const *bits, size_t n_bits, int parts,
                         int rounds)
{
    uint32_t seed = 7;
    long unlike = 0;

    for (int round = 0; round < rounds; round++) {
        char text[8192];
        size_t len = 0;

        for (int k = 0; k < parts; k++) {
            seed = seed * 1664525 + 1013904223;
            const char *bit = bits[(seed >> 16) % n_bits];
            memcpy(text + len, bit, strlen(bit));
            len += strlen(bit);
        }
        char *exact = malloc(len);
        memcpy(exact, text, len);
        unlike += !cuts_alike(cut, pretok, exact, len);
        free(exact);
    }
    return unlike;
}

static void test_vectors(void)
{
    static const char *const isas[] = {"avx2", "avx512"};
    static const char *const prose[] = {
        "a", "b", "the", " of", " and ", "'s", "'re", "'ll", "'", " '", "7",
        "\n", "  ", ".", ", ", "\"", "It", "\xC3\xA9", "\xE2\x80\x99",
        "\xC2\xA0",
    };
    static const char *const hard[] = {
        "'", "s", "l", "re", " ", "\t", "\xC2\xA0", "\xE3\x80\x80", "x", "1",
        "\xE2\x80\x83", "\xF0\x9F\x98\x80", "\xFF", "\xE4\xB8", "\xC2",
        "\xCC\x81", "\xE4\xB8\x80", "\xD9\xA3",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "                                                                     ",
    };

    for (size_t i = 0; i < GPT_COUNT(isas); i++) {
        gpt_cut_fn *cut = gpt_cut_gpt2_of(gpt_pretok_gpt2, isas[i]);

        if (!cut) {
            skip("no %s here", isas[i]);
            continue;
        }
        is_int(count_unlike(cut, gpt_pretok_gpt2, prose, GPT_COUNT(prose), 60,
                            20000),
               0, "%s: prose", isas[i]);
        is_int(count_unlike(cut, gpt_pretok_gpt2, hard, GPT_COUNT(hard), 25,
                            20000),
               0, "%s: hard texts", isas[i]);
        is_int(count_unlike(cut, gpt_pretok_gpt2, hard, 8, 90, 5000), 0,
               "%s: signs and spaces", isas[i]);
    }
}

static void test_families(const char *isa)
{
    static const char *const prose[] = {
        "a", "b", "the", " of", " and ", "'s", "'RE", "'ll", "'", " '", "7",
        "1234", "\n", "  ", ".", ", ", "\"", "It", "HTTP", "\xC3\xA9", "(",
        "\xE2\x80\x99", "\xC2\xA0", ".\n", "/", "\xC3\x89"};
    static const char *const signs[] = {
        "'", "s", "L", "l", " ", "\t", "\n", "\r\n", ".", "/", "1", "\xC5\xBF",
        "(", "  "};
    static const char *const hard[] = {
        "'", "S", "l", "re", " ", "\t", "\n", ".", "/", "\x01", "\xC2\xA0",
        "\xE3\x83\xBB", "\xE3\x81\x82", "\xE3\x82\x99", "\xE3\x81\x80",
        "\xE3\x80\x80", "x", "1", "\xE2\x80\x83", "\xF0\x9F\x98\x80", "\xFF",
        "\xE4\xB8", "\xC2", "\xCC\x81", "\xE4\xB8\x80", "\xD9\xA3", "\xC7\x85",
        "\xC3\xA9", "\xC3\x89", "\xCA\xB0", "\xF0\x90\x90\x80", "\xE2\x80\xA8",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "                                                                     ",
        "12345678901234567890123456789012345678901234567890123456789012345678"};
    const struct gpt_pretok *row;

    for (size_t i = 0; (row = gpt_pretok_row(i)); i++) {
        gpt_cut_fn *cut = gpt_cut_words_of(row->cut, isa);

        if (!cut)
            cut = gpt_cut_gpt2_of(row->cut, isa);
        if (!cut) {
            skip("no %s for %s", isa, row->name);
            continue;
        }
#define UNLIKE(bits, parts, rounds)                                            \
    is_int(count_unlike(cut, row->cut, bits, GPT_COUNT(bits), parts, rounds),  \
           0, "%s, %s: " #bits, row->name, isa)
        UNLIKE(prose, 60, 6000);
        UNLIKE(signs, 90, 6000);
        UNLIKE(signs, 20, 20000);
        UNLIKE(hard, 25, 12000);
    }
}

int main(void)
{
    test_pieces();
    test_random();
    test_vectors();
    test_families("avx2");
    test_families("avx512");
    return tap_done();
}
