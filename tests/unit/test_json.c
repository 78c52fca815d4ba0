/* base/json.h: refusals, fields with their ranges, exact printing. */
#include "base/json.h"
#include "tests/lib/tap.h"

static void test_accepts(void)
{
    static const char *const good[] = {
        "{}", "[]", " [1, 2] \n", "{\"a\":{\"b\":[]},\"b\":1}", "\"\xc3\xa9\"",
        "{\"\\\"\":1,\"\\\\\":2}", "{\"a\":\"[[{{\"}", "\"\\u00e9\"", "3",
    };
    struct gpt_err err = {0};

    for (size_t i = 0; i < GPT_COUNT(good); i++) {
        cJSON *root;

        is_int(gpt_json_parse(&root, good[i], strlen(good[i]), "f", &err),
               GPT_OK, "takes %s", good[i]);
        cJSON_Delete(root);
    }
}

#define TEXT(s) s, sizeof(s) - 1

static void test_refuses(void)
{
    static const struct {
        const char *text;
        size_t len;
        const char *says;
    } rows[] = {
        {TEXT(""), "offset 0"},
        {TEXT("{"), "cut short"},
        {TEXT("{\"a\":1"), "cut short"},
        {TEXT("{\"a\" 1}"), "offset 5: not valid JSON"},
        {TEXT("{} x"), "offset 3: something follows"},
        {TEXT("{}{}"), "offset 2: something follows"},
        {TEXT("{\"a\":1,\"b\":2,\"a\":3}"), "duplicate key 'a'"},
        {TEXT("[{\"x\":{\"k\":1,\"k\":1}}]"), "duplicate key 'k'"},
        {TEXT("{\"\\u0061\":1,\"a\":3}"), "duplicate key 'a'"},
        {TEXT("[1,\0]"), "offset 3: NUL byte"},
        {TEXT("[\"a\\u0000b\"]"), "offset 3: NUL character"},
        {TEXT("[\"\xff\"]"), "offset 2: invalid UTF-8"},
        {TEXT("[\"\xc0\x80\"]"), "offset 2: invalid UTF-8"},
        {TEXT("[\"\xed\xa0\x80\"]"), "offset 2: invalid UTF-8"},
        {TEXT("[\"\xf4\x90\x80\x80\"]"), "offset 2: invalid UTF-8"},
        {TEXT("[\"\xe2\x82"), "offset 2: invalid UTF-8"},
        {TEXT("nul"), "not valid JSON"},
    };
    struct gpt_err err = {0};

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        cJSON *root = NULL;

        is_int(gpt_json_parse(&root, rows[i].text, rows[i].len, "f", &err),
               GPT_EDATA, "refuses row %zu", i);
        ok(!root, "and gives no tree");
        ok(strncmp(err.text, "f: ", 3) == 0 && strstr(err.text, rows[i].says),
           "saying '%s'", rows[i].says);
        if (!strstr(err.text, rows[i].says))
            printf("# got '%s'\n", err.text);
    }
    char deep[200];
    cJSON *root;
    memset(deep, '[', 65);
    memset(deep + 65, ']', 65);
    is_int(gpt_json_parse(&root, deep, 130, "f", &err), GPT_EDATA,
           "65 levels are refused");
    is_int(gpt_json_parse(&root, deep + 1, 128, "f", &err), GPT_OK,
           "64 levels are not");
    cJSON_Delete(root);
}

static void test_ints(void)
{
    static const struct {
        const char *text;
        int status;
        int64_t value;
    } rows[] = {
        {"{\"n\":7}", GPT_OK, 7},
        {"{\"n\":-5}", GPT_OK, -5},
        {"{\"n\":3.0}", GPT_OK, 3},
        {"{\"n\":9007199254740992}", GPT_OK, 9007199254740992},
        {"{\"n\":9007199254740994}", GPT_EDATA, 0},
        {"{\"n\":1e300}", GPT_EDATA, 0},
        {"{\"n\":1e999}", GPT_EDATA, 0},
        {"{\"n\":1.5}", GPT_EDATA, 0},
        {"{\"n\":-6}", GPT_EDATA, 0},
        {"{\"n\":\"7\"}", GPT_EDATA, 0},
        {"{\"n\":null}", GPT_EDATA, 0},
        {"{\"N\":7}", GPT_EDATA, 0},
    };
    struct gpt_err err = {0};

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        cJSON *root;
        int64_t v = 0;

        if (gpt_json_parse(&root, rows[i].text, strlen(rows[i].text), "f",
                           &err) != GPT_OK)
            continue;
        is_int(gpt_json_int(root, "n", -5, INT64_MAX, &v, "f", &err),
               rows[i].status, "integer of %s", rows[i].text);
        is_int(v, rows[i].value, "its value");
        cJSON_Delete(root);
    }
}

static void test_numbers(void)
{
    static const char text[] = "[1.0, {\"2\\\"3\": -4e0, \"\\\\\": 05},"
                               "\n[\"-6\", 12345678901234567890], 7]";
    static const char *const want[] = {"1.0", "-4e0", "05",
                                       "12345678901234567890", "7"};
    struct gpt_err err = {0};
    cJSON *root;

    is_int(gpt_json_parse(&root, text, strlen(text), "f", &err), GPT_OK, "ok");
    gpt_json_keep_numbers(root, text);
    const cJSON *object = cJSON_GetArrayItem(root, 1);
    const cJSON *got[] = {
        cJSON_GetArrayItem(root, 0), object->child, object->child->next,
        cJSON_GetArrayItem(cJSON_GetArrayItem(root, 2), 1),
        cJSON_GetArrayItem(root, 3)};
    for (size_t i = 0; i < GPT_COUNT(want); i++)
        ok(got[i]->valuestring && strcmp(got[i]->valuestring, want[i]) == 0,
           "%s is kept", want[i]);
    cJSON *copy = cJSON_Duplicate(root, true);
    ok(strcmp(copy->child->valuestring, "1.0") == 0, "in a copy, too");
    cJSON_Delete(copy);
    cJSON_Delete(root);
}

static void test_fields(void)
{
    static const char text[] = "{\"b\":true,\"r\":0.5,\"s\":\"x\",\"n\":3}";
    struct gpt_err err = {0};
    cJSON *root;
    bool b;
    double r;
    int64_t n;
    const char *s;

    is_int(gpt_json_parse(&root, text, strlen(text), "f", &err), GPT_OK, "ok");
    is_int(gpt_json_bool_or(root, "b", false, &b, "f", &err), GPT_OK, "bool");
    ok(b, "is true");
    is_int(gpt_json_bool_or(root, "c", true, &b, "f", &err), GPT_OK, "absent");
    ok(b, "is its default");
    is_int(gpt_json_bool_or(root, "n", true, &b, "f", &err), GPT_EDATA,
           "3 is no bool");
    is_int(gpt_json_real_or(root, "r", 0, &r, "f", &err), GPT_OK, "real");
    is_near(r, 0.5, 0, 0, "is 0.5");
    is_int(gpt_json_real_or(root, "s", 0, &r, "f", &err), GPT_EDATA,
           "a string is no real");
    is_int(gpt_json_int_or(root, "m", 9, 0, 1, &n, "f", &err), GPT_OK,
           "absent");
    is_int(n, 9, "is its default");
    is_int(gpt_json_int_or(root, "n", 9, 0, 2, &n, "f", &err), GPT_EDATA,
           "3 is past 2");
    is_str(err.text, "f: 'n' is 3, out of range (0 to 2)", "and says so");
    is_int(gpt_json_string(root, "s", &s, "f", &err), GPT_OK, "string");
    is_str(s, "x", "is x");
    is_int(gpt_json_string(root, "t", &s, "f", &err), GPT_EDATA, "absent");
    is_str(err.text, "f: no field 't'", "names the field");
    cJSON_Delete(root);
}

static void test_print(void)
{
    cJSON *root = cJSON_CreateObject();

    cJSON_AddNumberToObject(root, "a", 9007199254740991.0);
    cJSON_AddNumberToObject(root, "b", 0.1 + 0.2);
    cJSON_AddNumberToObject(root, "c", 3e9);
    cJSON_AddNumberToObject(root, "d", -12);
    cJSON_AddNumberToObject(root, "e", 0.1);
    cJSON_AddNumberToObject(root, "f", (double)NAN);
    cJSON_AddStringToObject(root, "g", "\"\n\xc2\x85\xe2\x80\xa9\xe2\x80\xaa");
    cJSON_AddStringToObject(root, "h", "a\xff\xe2\x80");
    char *text = gpt_json_print(root, false);
    is_str(text,
           "{\"a\":9007199254740991,\"b\":0.30000000000000004,"
           "\"c\":3000000000,\"d\":-12,\"e\":0.1,\"f\":null,"
           "\"g\":\"\\\"\\n\\u0085\\u2029\xe2\x80\xaa\","
           "\"h\":\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"}",
           "numbers print exactly");
    cJSON_free(text);
    text = gpt_json_print(root, true);
    ok(text && strchr(text, '\n') && strstr(text, "9007199254740991"),
       "pretty, too");
    cJSON_free(text);
    cJSON_Delete(root);
}

/* A member that found no memory is not left out in silence. */
static void test_out_of_memory(void)
{
#ifdef __SANITIZE_ADDRESS__
    skip("AddressSanitizer ends a program that asks for this much");
#else
    cJSON *root = cJSON_CreateObject();

    cJSON_AddNumberToObject(root, "a", 1);
    ok(!gpt_json_out_of_memory(), "no failure, no memory of one");
    ok(!cJSON_malloc(SIZE_MAX / 2), "memory is out");
    ok(!gpt_json_print(root, false), "a tree with a failure is not printed");
    char *text = gpt_json_print(root, false);
    is_str(text, "{\"a\":1}", "the next one is");
    cJSON_free(text);
    ok(!cJSON_malloc(SIZE_MAX / 2), "memory is out again");
    ok(gpt_json_out_of_memory(), "which can be asked for");
    ok(!gpt_json_out_of_memory(), "once");
    ok(!gpt_json_add(NULL, "b", cJSON_CreateNumber(2)), "no parent");
    cJSON_Delete(root);
#endif
}

int main(void)
{
    test_accepts();
    test_refuses();
    test_ints();
    test_numbers();
    test_fields();
    test_print();
    test_out_of_memory();
    return tap_done();
}
