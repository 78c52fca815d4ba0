/* Valid lines and their strings; bad lines and the messages about them. */
#include "tests/lib/tap.h"
#include "text/jsonl.h"

/* The strings of field "text", each followed by '|'; NULs shown as '0'. */
static const char *strings(const struct gpt_jsonl *s)
{
    static char out[1024];
    const struct gpt_str *list;
    size_t n = gpt_jsonl_strings(s, 0, &list), len = 0;

    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < list[i].len; k++)
            out[len++] = list[i].data[k] ? list[i].data[k] : '0';
        out[len++] = '|';
    }
    out[len] = 0;
    return out;
}

static void test_good(struct gpt_jsonl *s)
{
    static const struct {
        const char *line, *want;
    } cases[] = {
        {"{\"text\":\"abc\"}", "abc|"},
        {" {\t\"text\" : \"abc\" } \r", "abc|"},
        {"{\"text\":\"\"}", "|"},
        {"{\"text\":[]}", ""},
        {"{\"text\":[\"a\",\"\",\"b c\"]}", "a||b c|"},
        {"{\"text\": [ \"a\" , \"b\" ] }", "a|b|"},
        {"{\"a\":1,\"text\":\"x\",\"b\":[{\"text\":\"no\"}]}", "x|"},
        {"{\"a\":{\"text\":\"no\"},\"text\":\"x\"}", "x|"},
        {"{\"text\":\"first\",\"text\":\"last\"}", "last|"},
        {"{\"text\":null,\"text\":\"last\"}", "last|"},
        {"{\"te\\u0078t\":\"x\"}", "x|"},
        {"{\"text\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t|"},
        {"{\"text\":\"\\u00e9\\u4E00\\u0041\"}", "\xC3\xA9\xE4\xB8\x80\x41|"},
        {"{\"text\":\"\\ud83d\\ude00\"}", "\xF0\x9F\x98\x80|"},
        {"{\"text\":\"\\ud83d\"}", "\xEF\xBF\xBD|"},
        {"{\"text\":\"\\ude00x\"}", "\xEF\xBF\xBDx|"},
        {"{\"text\":\"\\ud83d\\u0041\"}", "\xEF\xBF\xBD\x41|"},
        {"{\"text\":\"\\ud83d\\ud83d\\ude00\"}",
         "\xEF\xBF\xBD\xF0\x9F\x98\x80|"},
        {"{\"text\":\"a\\u0000b\"}", "a0b|"},
        {"{\"text\":\"\xC3\xA9\xF0\x9F\x98\x80 plain text after it\"}",
         "\xC3\xA9\xF0\x9F\x98\x80 plain text after it|"},
        {"{\"n\":[0,-1,1.5,2e10,3E-2,-0.5e+7,true,false,null,{},[]],"
         "\"text\":\"x\"}", "x|"},
        {"{\"n\":[NaN,Infinity,-Infinity],\"text\":\"x\"}", "x|"},
        {"{\"text\":[\"\\n\",\"plain\",\"\\u00e9\"]}", "\n|plain|\xC3\xA9|"},
        {"{\"text\":\"\x7F\"}", "\x7F|"},
    };
    struct gpt_err err = {0};

    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        int status = gpt_jsonl_scan(s, cases[i].line, strlen(cases[i].line),
                                    &err);

        if (!ok(status == GPT_OK, "line %zu is read", i))
            printf("# %s: %s\n", cases[i].line, err.text);
        is_str(strings(s), cases[i].want, "and holds this");
    }
}

static void test_bad(struct gpt_jsonl *s)
{
    static const struct {
        const char *line, *message;
    } cases[] = {
        {"", "blank line"},
        {"   \t\r", "blank line"},
        {"hello", "not JSON: 'h' at byte 1, where an object was expected"},
        {"[\"text\"]", "not JSON: '[' at byte 1"},
        {"\"text\"", "not JSON: '\"' at byte 1"},
        {"\xEF\xBB\xBF{\"text\":\"x\"}", "byte order mark at byte 1"},
        {"{", "truncated: ends at byte 1, before a key"},
        {"{\"text\"", "truncated: ends at byte 7, before ':'"},
        {"{\"text\":", "truncated"},
        {"{\"text\":\"abc", "truncated: ends at byte 12, before the "
         "end of a string"},
        {"{\"text\":\"abc\\", "truncated"},
        {"{\"text\":\"abc\\u12", "truncated"},
        {"{\"text\":\"abc\"", "truncated: ends at byte 13, before "
         "',' or '}'"},
        {"{\"text\":[\"abc\"", "truncated"},
        {"{\"text\":\"x\",\"a\":[1,{\"b\":2}", "truncated"},
        {"{\"text\":\"x\",\"a\":tru", "truncated"},
        {"{\"text\":\"x\",\"a\":1.", "truncated"},
        {"{\"text\":\"x\"}}", "not JSON: '}' at byte 13, where the end of the "
         "line was expected"},
        {"{\"text\":\"x\"} {\"text\":\"y\"}", "not JSON: '{' at byte 14"},
        {"{\"text\":\"x\",}", "not JSON: '}' at byte 13, where a key"},
        {"{,\"text\":\"x\"}", "where a key was expected"},
        {"{\"text\" \"x\"}", "where ':' was expected"},
        {"{\"text\":\"x\" \"a\":1}", "where ',' or '}' was expected"},
        {"{\"text\":[\"x\" \"y\"]}", "where ',' or ']' was expected"},
        {"{\"text\":[\"x\",]}", "where a value was expected"},
        {"{\"text\":\"x\",\"a\":[1,]}", "where a value was expected"},
        {"{\"text\":\"x\",\"a\":01}", "where ',' or '}' was expected"},
        {"{\"text\":\"x\",\"a\":+1}", "where a value was expected"},
        {"{\"text\":\"x\",\"a\":.5}", "where a value was expected"},
        {"{\"text\":\"x\",\"a\":1.e5}", "where a digit was expected"},
        {"{\"text\":\"x\",\"a\":-}", "where a digit was expected"},
        {"{\"text\":\"x\",\"a\":nul}", "where a value was expected"},
        {"{\"text\":\"x\",\"a\":'y'}", "where a value was expected"},
        {"{\"text\":\"x\",\"a\":[}]}", "where a value was expected"},
        {"{\"text\":\"x\",\"a\":{\"b\":1]}", "where ',' or '}' was expected"},
        {"{text:\"x\"}", "where a key was expected"},
        {"{\"text\":\"\\x41\"}", "bad escape at byte 10"},
        {"{\"text\":\"\\u12G4\"}", "bad escape at byte 10"},
        {"{\"text\":\"a\tb\"}", "raw control character 0x09 at byte 11"},
        {"{\"text\":\"x\",\"a\":\"\x1F\"}", "raw control character 0x1f"},
        {"{\"text\":\"x\"\x0B}", "raw control character 0x0b"},
        {"{\"text\":\"caf\xE9\"}", "invalid UTF-8: 0xe9 at byte 13"},
        {"{\"text\":\"\xC0\x80\"}", "invalid UTF-8: 0xc0 at byte 10"},
        {"{\"text\":\"\xED\xA0\x80\"}", "invalid UTF-8"},
        {"{\"a\":\"\xFF\",\"text\":\"x\"}", "invalid UTF-8: 0xff at byte 7"},
        {"{\"text\":\"x\"}\xC3\xA9", "not JSON: 0xc3 at byte 13"},
        {"{}", "no field 'text'"},
        {"{\"Text\":\"x\"}", "no field 'text'"},
        {"{\"a\":{\"text\":\"x\"}}", "no field 'text'"},
        {"{\"text\":null}", "field 'text' holds null, not a string"},
        {"{\"text\":12}", "field 'text' holds a number, not a string"},
        {"{\"text\":true}", "field 'text' holds a boolean, not a string"},
        {"{\"text\":{\"a\":1}}", "field 'text' holds an object"},
        {"{\"text\":[\"x\",[\"y\"]]}", "field 'text' holds a list"},
        {"{\"text\":[\"x\",3]}", "field 'text' holds a number"},
        {"{\"text\":\"x\",\"text\":3}", "field 'text' holds a number"},
    };
    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        struct gpt_err err = {0};
        int status = gpt_jsonl_scan(s, cases[i].line, strlen(cases[i].line),
                                    &err);

        is_int(status, GPT_EDATA, "bad line %zu is refused", i);
        if (!ok(strstr(err.text, cases[i].message), "says so"))
            printf("# %s: '%s', want '%s'\n", cases[i].line, err.text,
                   cases[i].message);
    }
}

/* What C strings cannot hold. */
static void test_nul_and_depth(struct gpt_jsonl *s)
{
    struct gpt_err err = {0};

    ok(gpt_jsonl_scan(s, "{\"text\":\"a\0b\"}", 14, &err) == GPT_EDATA &&
           strcmp(err.text, "NUL byte at byte 11") == 0, "NUL in a string");
    ok(gpt_jsonl_scan(s, "{\"text\":\"a\"\0}", 13, &err) == GPT_EDATA &&
           strcmp(err.text, "NUL byte at byte 12") == 0, "NUL elsewhere");
    for (int depth = GPT_JSON_MAX_DEPTH; depth < GPT_JSON_MAX_DEPTH + 2;
         depth++) {
        static char line[3 * GPT_JSON_MAX_DEPTH];
        int n = sprintf(line, "{\"text\":\"x\",\"a\":");

        memset(line + n, '[', (size_t)depth);
        memset(line + n + depth, ']', (size_t)depth);
        line[n + 2 * depth] = '}';
        int status = gpt_jsonl_scan(s, line, (size_t)(n + 2 * depth + 1),
                                    &err);
        is_int(status, depth > GPT_JSON_MAX_DEPTH ? GPT_EDATA : GPT_OK,
               "%d levels", depth);
    }
}

static void test_keys(void)
{
    static const char *const keys[] = {"title", "body"};
    const char *line = "{\"body\":\"b\\n\",\"x\":0,\"title\":\"t\"}";
    const struct gpt_str *list;
    struct gpt_jsonl *s;
    struct gpt_err err = {0};

    ok(gpt_jsonl_open(&s, keys, 2, &err) == GPT_OK, "two keys");
    ok(gpt_jsonl_scan(s, line, strlen(line), &err) == GPT_OK, "are found");
    ok(gpt_jsonl_strings(s, 0, &list) == 1 && list[0].len == 1 &&
           list[0].data[0] == 't', "title");
    ok(gpt_jsonl_strings(s, 1, &list) == 1 && list[0].len == 2 &&
           memcmp(list[0].data, "b\n", 2) == 0, "body");
    line = "{\"title\":\"t\"}";
    is_int(gpt_jsonl_scan(s, line, strlen(line), &err), GPT_EDATA, "one key");
    is_str(err.text, "no field 'body': it has 'title'", "the other is missed");
    gpt_jsonl_close(s);
}

int main(void)
{
    static const char *const keys[] = {"text"};
    struct gpt_jsonl *s;
    struct gpt_err err;

    ok(gpt_jsonl_open(&s, keys, 1, &err) == GPT_OK, "scanner");
    test_good(s);
    test_bad(s);
    test_nul_and_depth(s);
    gpt_jsonl_close(s);
    gpt_jsonl_close(NULL);
    test_keys();
    return tap_done();
}
