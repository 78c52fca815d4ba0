/* The safetensors reader with hostile files, one row for each rule of the
 * format (its README, attacks/README.md and tensor.rs), and with files that
 * must be accepted; then files of this project's writer. */
#include "checkpoint/fill.h"
#include "checkpoint/safetensors/safetensors.h"

#include "base/hash.h"
#include "base/num.h"
#include "tests/lib/tap.h"

#include <unistd.h>

static struct gpt_err err;

#define T8 "{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

/* A header, the bytes of data behind it, and a part of the error ("" = good).
 * The length field is right unless `length` is given. */
static const struct {
    const char *header;
    int data;
    const char *want;
    uint64_t length; /* 0: as it is */
} cases[] = {
    /* accepted */
    {"{}", 0, "", 0},
    {"{\"a\":" T8 "}", 8, "", 0},
    {"   {\"a\":" T8 "}   ", 8, "", 0},
    {"{\"a\":" T8 "}\n\t\r ", 8, "", 0},
    {"{\"__metadata__\":{},\"a\":" T8 "}", 8, "", 0},
    {"{\"__metadata__\":{\"format\":\"pt\"},\"a\":" T8 "}", 8, "", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, "",
     0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]}}", 0,
     "", 0},
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[4,7]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
     7, "", 0},
    {"{\"\\u0061\\n\\ud83d\\ude00\":" T8 "}", 8, "", 0},
    {"{\"data_offsets\":{\"data_offsets\":[0,1],\"shape\":[1],"
     "\"dtype\":\"BOOL\"}}",
     1, "", 0},
    /* length field */
    {"{}", 0, "limit 100000000", 100000001},
    {"{}", 0, "limit 100000000", UINT64_MAX},
    {"{}", 0, "the file has 10 bytes", 3},
    {"{}", 0, "the file has 10 bytes", 100000000},
    /* not the JSON that is wanted */
    {"", 0, "expected '{'", 0},
    {"[]", 0, "expected '{'", 0},
    {"{", 0, "expected", 0},
    {"{\"a\"", 0, "expected ':'", 0},
    {"{\"a", 0, "string without end", 0},
    {"{\"a\\", 0, "string without end", 0},
    {"{\"a\":" T8, 8, "expected ',' or '}'", 0},
    {"{\"a\":" T8 ",}", 8, "expected '\"'", 0},
    {"{\"a\":" T8 "}x", 8, "after the header's object", 0},
    {"{}{}", 0, "after the header's object", 0},
    {"{\"a\xff\":" T8 "}", 8, "not UTF-8", 0},
    {"{\"a\xc0\x80\":" T8 "}", 8, "not UTF-8", 0},
    {"{\"a\xed\xa0\x80\":" T8 "}", 8, "not UTF-8", 0},
    {"{\"a\xf5\x80\x80\x80\":" T8 "}", 8, "not UTF-8", 0},
    {"{\"a\x01\":" T8 "}", 8, "control byte", 0},
    {"{\"a\\u0000\":" T8 "}", 8, "\\u0000", 0},
    {"{\"a\\ud800\":" T8 "}", 8, "surrogate", 0},
    {"{\"a\\udc00\":" T8 "}", 8, "\\udc00", 0},
    {"{\"a\\x\":" T8 "}", 8, "bad escape", 0},
    {"{\"a\\u12g4\":" T8 "}", 8, "bad \\u escape", 0},
    {"{\"a\":7}", 0, "expected '{'", 0},
    {"{\"a\":{}}", 0, "expected '\"'", 0},
    {"{\"__metadata__\":{\"a\":1}}", 0, "expected '\"'", 0},
    {"{\"__metadata__\":[]}", 0, "expected '{'", 0},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice", 0},
    {"{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, "'a' twice", 0},
    /* fields of a tensor */
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "lacks", 0},
    {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "lacks", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2],"
     "\"data_offsets\":[0,8]}}",
     8, "twice the field 'dtype'", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],"
     "\"x\":1}}",
     8, "unknown field 'x'", 0},
    {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
     "dtype 'F33'", 0},
    {"{\"a\":{\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
     "dtype 'f32'", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8,
     "integer >= 0", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8,
     "expected ',' or ']'", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[02],\"data_offsets\":[0,8]}}", 8,
     "leading zero", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2e0],\"data_offsets\":[0,8]}}", 8,
     "expected ',' or ']'", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],"
     "\"data_offsets\":[0,8]}}",
     8, "more than 8", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8,
     "lacks", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}", 8,
     "more than 2", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775808],"
     "\"data_offsets\":[0,8]}}",
     8, "larger than 2^63", 0},
    /* sizes and offsets */
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,2],"
     "\"data_offsets\":[0,8]}}",
     8, "overflows", 0},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],"
     "\"data_offsets\":[0,8]}}",
     8, "overflows", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8,
     "needs 12 bytes", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12,
     "hole or overlap", 0},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8,
     "hole or overlap", 0},
    {"{\"a\":" T8 ",\"b\":" T8 "}", 8, "hole or overlap", 0},
    {"{\"a\":" T8 ",\"b\":{\"dtype\":\"F32\",\"shape\":[1],"
     "\"data_offsets\":[12,16]}}",
     16, "hole or overlap", 0},
    {"{\"a\":" T8 ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],"
     "\"data_offsets\":[4,12]}}",
     12, "hole or overlap", 0},
    {"{\"a\":" T8 "}", 7, "truncated", 0},
    {"{\"a\":" T8 "}", 0, "truncated", 0},
    {"{\"a\":" T8 "}", 9, "1 bytes after", 0},
    {"{}", 1, "1 bytes after", 0},
    {"{\"a\":" T8 ",\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
     "\"data_offsets\":[8,12]}}",
     12, "'a' twice", 0},
    {"{\"a\":" T8 ",\"\\u0061\":{\"dtype\":\"F32\",\"shape\":[1],"
     "\"data_offsets\":[8,12]}}",
     12, "'a' twice", 0},
};

static void test_rules(void)
{
    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        char file[1024] = {0};
        size_t n = strlen(cases[i].header);
        size_t len = 8 + n + (size_t)cases[i].data;
        struct gpt_safetensors st;

        gpt_put_u64(file, cases[i].length ? cases[i].length : n);
        memcpy(file + 8, cases[i].header, n);
        err.text[0] = '\0';
        /* a copy of exactly that size, so that ASan sees any step beyond */
        char *copy = malloc(len);
        memcpy(copy, file, len);
        int s = gpt_safetensors_parse(&st, copy, len, (int64_t)len, "FILE",
                                      &err);
        free(copy);
        if (*cases[i].want == '\0')
            is_int(s, GPT_OK, "accepts %s (%s)", cases[i].header, err.text);
        else
            ok(s == GPT_EDATA && strstr(err.text, cases[i].want) &&
                   strncmp(err.text, "FILE", 4) == 0,
               "refuses %.60s: %s", cases[i].header, err.text);
        if (s == GPT_OK)
            gpt_safetensors_close(&st);
    }
    for (int64_t n = 0; n < 8; n++) {
        struct gpt_safetensors st;

        is_int(gpt_safetensors_parse(&st, "\2\0\0\0\0\0\0\0", (size_t)n, n,
                                     "FILE", &err),
               GPT_EDATA, "%lld bytes: %s", (long long)n, err.text);
    }
}

/* Every prefix of a good file, and every byte of its header changed, is
 * refused or parses to something consistent. */
static void test_mutations(void)
{
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\"},\"a\":" T8 ",\"b\":{\"dtype\":"
        "\"BF16\",\"shape\":[2,1],\"data_offsets\":[8,12]}}";
    char file[400] = {0};
    size_t n = sizeof(header) - 1, len = 8 + n + 12, wrong = 0;
    struct gpt_safetensors st;

    gpt_put_u64(file, n);
    memcpy(file + 8, header, n);
    for (size_t cut = 0; cut < len; cut++)
        wrong += gpt_safetensors_parse(&st, file, cut, (int64_t)cut, "FILE",
                                       &err) != GPT_EDATA;
    is_int(wrong, 0, "no prefix is accepted");
    for (size_t at = 0; at < 8 + n; at++)
        for (int bit = 0; bit < 8; bit++) {
            file[at] ^= (char)(1 << bit);
            if (gpt_safetensors_parse(&st, file, len, (int64_t)len, "FILE",
                                      &err) == GPT_OK) {
                for (int64_t i = 0; i < st.n; i++)
                    wrong += st.tensors[i].end > (int64_t)len;
                gpt_safetensors_close(&st);
            }
            file[at] ^= (char)(1 << bit);
        }
    is_int(wrong, 0, "no changed bit reaches beyond the file");
}

static void test_writer(void)
{
    struct gpt_safetensor tensors[] = {
        {.name = "b", .dtype = GPT_U8, .ndim = 1, .shape = {3}},
        {.name = "z", .dtype = GPT_F32, .ndim = 2, .shape = {2, 2}},
        {.name = "a\"\\\n", .dtype = GPT_F32, .ndim = 0},
        {.name = "e", .dtype = GPT_I64, .ndim = 1, .shape = {0}},
    };
    struct gpt_safetensors_note notes[] = {{"key", "a \"v\""}};
    struct gpt_safetensors list = {
        .tensors = tensors, .n = 4, .notes = notes, .n_notes = 1};
    static const char *const want_order[] = {"e", "a\"\\\n", "z", "b"};
    char path[300], bytes[64] = "0123456789abcdefghijklmnopqrst";
    struct gpt_part parts[] = {
        {.data = bytes}, {.data = bytes + 3}, {.data = bytes + 19}, {0}};
    struct gpt_fill fill = {.threads = 2};
    struct gpt_safetensors_writer *w = NULL;
    struct gpt_safetensors st;
    int64_t size = 0, predicted = 0;
    uint32_t crc = 0;
    char *text = NULL;
    size_t len = 0;

    snprintf(path, sizeof(path), "%s/gpt-st-%d.safetensors",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    is_int(gpt_safetensors_create(&w, path, 0, &list, &err), GPT_OK,
           "create: %s", err.text);
    is_int(gpt_safetensors_fill(w, &fill, "x", parts, &err), GPT_OK, "data");
    is_int(gpt_safetensors_commit(w, &size, &crc, &err), GPT_OK, "commit");
    is_int(gpt_safetensors_size(&list, &predicted, &err), GPT_OK,
           "predicts");
    is_int(predicted, size, "the size");
    is_int(gpt_read_file(path, 1 << 20, &text, &len, &err), GPT_OK, "read");
    ok((int64_t)len == size && gpt_crc32c(0, text, len) == crc,
       "size and checksum");
    is_int(gpt_get_u64(text) % 4096, 4096 - 8, "data starts on a page");
    is_int(gpt_safetensors_open(&st, path, &err), GPT_OK, "open: %s",
           err.text);
    for (int k = 0; k < 4; k++)
        is_str(st.tensors[k].name, want_order[k], "order %d", k);
    ok(memcmp(text + st.tensors[2].begin, bytes + 3, 16) == 0, "its data");
    gpt_free(text);
    is_str(gpt_safetensors_note(&st, "format"), "pt", "format pt");
    is_str(gpt_safetensors_note(&st, "key"), "a \"v\"", "note");
    ok(!gpt_safetensors_note(&st, "no"), "no such note");
    const struct gpt_safetensor *t = gpt_safetensors_find(&st, "a\"\\\n");
    ok(t && t->ndim == 0 && t->end - t->begin == 4, "finds the odd name");
    ok(!gpt_safetensors_find(&st, "c"), "no such tensor");
    gpt_safetensors_close(&st);
    unlink(path);
    w = NULL;
    list.n_notes = 0;
    is_int(gpt_safetensors_create(&w, path, 0, &list, &err), GPT_OK,
           "create again");
    is_int(gpt_safetensors_commit(w, NULL, NULL, &err), GPT_EFAIL,
           "unfinished: %s", err.text);
    ok(access(path, F_OK) != 0, "and nothing is left");
    struct gpt_safetensor twice[] = {tensors[0], tensors[0]};
    list.tensors = twice;
    list.n = 2;
    is_int(gpt_safetensors_create(&w, path, 0, &list, &err), GPT_EDATA,
           "a doubled name: %s", err.text);
}

int main(void)
{
    test_rules();
    test_mutations();
    test_writer();
    return tap_done();
}
