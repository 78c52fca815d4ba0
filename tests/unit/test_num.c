/* base/num.h: texts that are numbers, and texts that are not. */
#include "base/num.h"
#include "tests/lib/tap.h"

static void test_int(void)
{
    static const struct {
        const char *text;
        bool good;
        int64_t value;
    } rows[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"+7", true, 7},
        {"007", true, 7},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"99999999999999999999999", false, 0},
        {"2K", true, 2000},
        {"-3M", true, -3000000},
        {"4G", true, 4000000000},
        {"1Ki", true, 1024},
        {"5Mi", true, 5 << 20},
        {"3Gi", true, (int64_t)3 << 30},
        {"9223372036854775807K", false, 0},
        {"", false, 0},
        {"-", false, 0},
        {"K", false, 0},
        {"1k", false, 0},
        {"1KB", false, 0},
        {"1 ", false, 0},
        {" 1", false, 0},
        {"1.0", true, 1},
        {"1e3", true, 1000},
        {"1.5K", true, 1500},
        {"-2.5e3", true, -2500},
        {"300B", true, 300000000000},
        {"2T", true, 2000000000000},
        {"1200e-2", true, 12},
        {"0e99", true, 0},
        {"1.5", false, 0},
        {"1e-1", false, 0},
        {"1e19", false, 0},
        {"1e", false, 0},
        {".", false, 0},
        {"1e3K3", false, 0},
        {"0x10", false, 0},
        {"--1", false, 0},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        int64_t v = 42;
        bool good = gpt_parse_int(rows[i].text, &v);

        ok(good == rows[i].good && v == (good ? rows[i].value : 42),
           "integer '%s'", rows[i].text);
    }
}

static void test_real(void)
{
    static const struct {
        const char *text;
        bool good;
        double value;
    } rows[] = {
        {"0", true, 0},         {"1e-4", true, 1e-4},  {"-0.5", true, -0.5},
        {".5", true, 0.5},      {"5.", true, 5},       {"+3E+2", true, 300},
        {"1e308", true, 1e308}, {"1e309", false, 0},   {"", false, 0},
        {".", false, 0},        {"e5", false, 0},      {"1e", false, 0},
        {"nan", false, 0},      {"inf", false, 0},     {"0x1p3", false, 0},
        {" 1", false, 0},       {"1 ", false, 0},      {"1,5", false, 0},
        {"1.2.3", false, 0},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        double v = 42;
        bool good = gpt_parse_real(rows[i].text, &v);

        ok(good == rows[i].good &&
               !(v < (good ? rows[i].value : 42)) &&
               !(v > (good ? rows[i].value : 42)),
           "real '%s'", rows[i].text);
    }
}

static void test_bytes(void)
{
    static const struct {
        const char *text;
        bool good;
        int64_t value;
    } rows[] = {
        {"17", true, 17},
        {"5GB", true, 5000000000},
        {"10MB", true, 10000000},
        {"1TB", true, 1000000000000},
        {"1KB", true, 1000},
        {"2KiB", true, 2048},
        {"1MiB", true, 1 << 20},
        {"1GiB", true, 1 << 30},
        {"1TiB", true, (int64_t)1 << 40},
        {"5Gb", false, 0},
        {"5gb", false, 0},
        {"5G", true, 5000000000},
        {"1.5Gi", true, (int64_t)3 << 29},
        {"1e9", true, 1000000000},
        {"64B", true, 64},
        {"-1", false, 0},
        {"+1", false, 0},
        {"", false, 0},
        {"GB", false, 0},
        {"9999999TiB", false, 0},
    };

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        int64_t v = 42;
        bool good = gpt_parse_bytes(rows[i].text, &v);

        ok(good == rows[i].good && v == (good ? rows[i].value : 42),
           "size '%s'", rows[i].text);
    }
}

static void test_text(void)
{
    static const struct {
        double v;
        const char *si, *bytes, *duration;
    } rows[] = {
        {0, "0", "0 B", "0 s"},
        {12.4, "12.4", "12 B", "12 s"},
        {59.6, "59.6", "60 B", "1 min 0 s"},
        {150, "150", "150 B", "2 min 30 s"},
        {999.7, "1.00 k", "1000 B", "16 min"},
        {1024, "1.02 k", "1.0 KiB", "17 min"},
        {11400, "11.4 k", "11.1 KiB", "3 h 10 min"},
        {86400, "86.4 k", "84.4 KiB", "1 d 0 h"},
        {999900, "1.00 M", "976.5 KiB", "11 d 13 h"},
        {1210000, "1.21 M", "1.2 MiB", "14 d 0 h"},
        {3.65e9, "3.65 G", "3.4 GiB", "years"},
    };
    char buf[32];

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        is_str(gpt_text_si(buf, rows[i].v), rows[i].si, "si %g", rows[i].v);
        is_str(gpt_text_bytes(buf, rows[i].v), rows[i].bytes, "bytes %g",
               rows[i].v);
        is_str(gpt_text_duration(buf, rows[i].v), rows[i].duration,
               "duration %g", rows[i].v);
    }
    is_str(gpt_text_duration(buf, (double)INFINITY), "years", "for ever");
    is_str(gpt_text_duration(buf, -1), "0 s", "the past");
}

int main(void)
{
    uint8_t b[8];
    int64_t v = 5;

    test_int();
    test_real();
    test_bytes();
    test_text();

    gpt_put_u64(b, 0x0123456789abcdef);
    ok(b[0] == 0xef && b[7] == 0x01, "fields are little-endian");
    ok(gpt_get_u64(b) == 0x0123456789abcdef, "u64 comes back");
    ok(gpt_get_u32(b) == 0x89abcdef, "u32 is its first half");
    ok(gpt_get_u16(b + 1) == 0xabcd, "u16 at an odd address");
    gpt_put_u32(b, 0xdeadbeef);
    gpt_put_u16(b + 4, 0xfeed);
    ok(gpt_get_u32(b) == 0xdeadbeef && gpt_get_u16(b + 4) == 0xfeed,
       "u32 and u16 come back");

    ok(!gpt_mul(INT64_MAX, 2, &v) && v == 5, "product overflow is seen");
    ok(!gpt_add(INT64_MAX, 1, &v) && v == 5, "sum overflow is seen");
    ok(gpt_mul(-3, 4, &v) && v == -12, "product");
    is_int(gpt_ceil_div(7, 2), 4, "7 / 2 up");
    is_int(gpt_ceil_div(8, 2), 4, "8 / 2 up");
    is_int(gpt_ceil_div(-1, 2), 0, "-1 / 2 up");
    is_int(gpt_round_up(-40, 32), -32, "-40, a multiple of 32");
    is_int(gpt_round_up(129, 128), 256, "round up");
    is_int(gpt_round_up(128, 128), 128, "round up, nothing to do");

    double four[] = {8, -1, 3, 2}, three[] = {5, 9, -7};
    ok(gpt_median(four, 4) == 2.5, "the median of four");
    ok(gpt_median(three, 3) == 5, "the median of three");
    ok(isnan(gpt_median(three, 0)), "the median of none");
    return tap_done();
}
