/* Compares the class table with the counts of Unicode 16.0 and known
 * characters; the decoder refuses every form that UTF-8 forbids. */
#include "tests/lib/tap.h"
#include "base/utf8.h"
#include "text/unicode.h"

static void test_counts(void)
{
    long letters = 0, numbers = 0, spaces = 0;

    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        enum gpt_unicode_class c = gpt_unicode_class(cp);

        letters += c >= GPT_UC_LO;
        numbers += c == GPT_UC_N;
        spaces += c == GPT_UC_SPACE;
    }
    is_int(letters, 141028, "letters");
    is_int(numbers, 1911, "numbers");
    is_int(spaces, 25, "white space");
}

static void test_classes(void)
{
    static const struct {
        uint32_t cp;
        enum gpt_unicode_class want;
        const char *what;
    } cases[] = {
        {'a', GPT_UC_LL, "a"},
        {'Z', GPT_UC_LU, "Z"},
        {'_', GPT_UC_P, "_"},
        {'$', GPT_UC_S, "$"},
        {0x1C, GPT_UC_OTHER, "U+001C, no space here"},
        {0x85, GPT_UC_SPACE, "U+0085"},
        {0xA0, GPT_UC_SPACE, "U+00A0"},
        {0xB2, GPT_UC_N, "superscript two"},
        {0x1C5, GPT_UC_LT, "a title case letter"},
        {0x2B0, GPT_UC_LO, "a modifier letter"},
        {0x301, GPT_UC_M, "a combining accent"},
        {0x663, GPT_UC_N, "an Arabic digit"},
        {0x180E, GPT_UC_OTHER, "U+180E, no space since Unicode 6.3"},
        {0x200B, GPT_UC_OTHER, "U+200B"},
        {0x2028, GPT_UC_SPACE, "U+2028"},
        {0x3000, GPT_UC_SPACE, "U+3000"},
        {0x4E00, GPT_UC_LO, "a Chinese character"},
        {0xD800, GPT_UC_OTHER, "a surrogate"},
        {0x10D40, GPT_UC_N, "a digit that is new in Unicode 16"},
        {0x323AF, GPT_UC_LO, "the last letter"},
        {0xE0100, GPT_UC_M, "a variation selector"},
        {0x10FFFF, GPT_UC_OTHER, "the last code point"},
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        is_int(gpt_unicode_class(cases[i].cp), cases[i].want, "%s",
               cases[i].what);
}

static void test_round_trip(void)
{
    long bad = 0;

    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        char text[4] = {0};
        uint32_t back = 0;
        int n = gpt_utf8_encode(cp, text);
        bool surrogate = cp >= 0xD800 && cp < 0xE000;
        int m = gpt_utf8_decode((uint8_t *)text, (size_t)n, &back);

        bad += surrogate ? m != 0 : (m != n || back != cp);
        if (n > 1)
            bad += gpt_utf8_decode((uint8_t *)text, (size_t)n - 1, &back) != 0;
    }
    is_int(bad, 0, "every scalar value and no surrogate comes back");
}

static void test_valid(void)
{
    static const struct {
        const char *text;
        size_t len, valid;
    } cases[] = {
        {"", 0, 0},
        {"plain text of more than eight bytes", 35, 35},
        {"12345678\xC3\xA9", 10, 10},
        {"abc\x80", 4, 3},
        {"abcdefghijkl\xC3", 13, 12},
        {"\xC0\x80", 2, 0},
        {"\xC1\xBF", 2, 0},
        {"a\xE0\x9F\xBF", 4, 1},
        {"\xED\xA0\x80", 3, 0},
        {"\xED\x9F\xBF", 3, 3},
        {"\xF0\x8F\xBF\xBF", 4, 0},
        {"\xF4\x8F\xBF\xBF", 4, 4},
        {"\xF4\x90\x80\x80", 4, 0},
        {"\xF5\x80\x80\x80", 4, 0},
        {"\xFF", 1, 0},
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++)
        is_int(gpt_utf8_valid(cases[i].text, cases[i].len), cases[i].valid,
               "valid part of text %zu", i);
}

int main(void)
{
    test_counts();
    test_classes();
    test_round_trip();
    test_valid();
    return tap_done();
}
