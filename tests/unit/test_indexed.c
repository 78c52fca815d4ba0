/* Indexed data sets: bytes written, bytes read, and .idx files with false
 * data. */
#include "data/indexed.h"

#include "base/io.h"
#include "tests/lib/files.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"
#include "tests/lib/writer.h"

#include <string.h>
#include <unistd.h>

static char dir[] = "/tmp/gpt-test-indexed.XXXXXX";

static const char *at(const char *name)
{
    return path_in(dir, name);
}

/* Sequences 1 2 3 | 4, two documents, 16 bits: made by Megatron itself. */
static const uint8_t golden_idx[82] = {
    0x4d, 0x4d, 0x49, 0x44, 0x49, 0x44, 0x58, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8,
    2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
static const uint16_t golden_tokens[] = {1, 2, 3, 4};

static int write_set(const char *prefix, enum gpt_dtype dtype,
                     const struct gpt_indexed_block *blocks, int n,
                     unsigned flags, struct gpt_err *err)
{
    struct gpt_indexed_writer *w;

    GPT_TRY(writer_open(&w, prefix, dtype, flags, err));
    for (int i = 0; i < n; i++) {
        int status = gpt_indexed_writer_add(w, &blocks[i], err);

        if (status != GPT_OK) {
            gpt_indexed_writer_abort(w);
            return status;
        }
    }
    return writer_commit(w, err);
}

static const struct gpt_indexed_block golden_block = {
    golden_tokens, 4, (const int32_t[]){3, 1}, 2, (const int32_t[]){1, 1}, 2};

static void test_writer(void)
{
    struct gpt_err err = {0};
    uint8_t bytes[256];
    const char *prefix = at("golden");

    is_int(write_set(prefix, GPT_U16, &golden_block, 1, 0, &err), GPT_OK,
           "writes a set");
    is_int(get_file(at("golden.idx"), bytes, sizeof(bytes)), 82, "82 bytes");
    ok(memcmp(bytes, golden_idx, 82) == 0, "the .idx is Megatron's");
    is_int(get_file(at("golden.bin"), bytes, sizeof(bytes)), 8, "8 bytes");
    ok(memcmp(bytes, golden_tokens, 8) == 0, "the .bin is Megatron's");

    is_int(write_set(prefix, GPT_U16, &golden_block, 1, 0, &err), GPT_EEXIST,
           "does not overwrite");
    is_int(write_set(prefix, GPT_U16, &golden_block, 1, GPT_OUT_FORCE, &err),
           GPT_OK, "overwrites when forced");
    ok(access(at("golden.lengths"), F_OK) != 0 &&
           access(at("golden.documents"), F_OK) != 0,
       "leaves no scratch file");

    is_int(write_set(at("float"), GPT_F32, &golden_block, 1, 0, &err),
           GPT_EUSAGE, "no floating tokens");
    ok(access(at("float.bin"), F_OK) != 0, "nothing is left of a failed set");

    struct gpt_indexed_block bad = golden_block;
    bad.n_tokens = 3;
    is_int(write_set(at("bad"), GPT_U16, &bad, 1, 0, &err), GPT_EFAIL,
           "tokens and lengths must agree");
    bad = golden_block;
    bad.n_documents = 1;
    is_int(write_set(at("bad"), GPT_U16, &bad, 1, 0, &err), GPT_EFAIL,
           "every sequence is in a document");
    bad.n_documents = 2;
    bad.document_sequences = (const int32_t[]){1, 2};
    is_int(write_set(at("bad"), GPT_U16, &bad, 1, 0, &err), GPT_EFAIL,
           "no document has more sequences than there are");
    ok(access(at("bad.bin"), F_OK) != 0 && access(at("bad.idx"), F_OK) != 0,
       "nothing is published then");

    ok(gpt_indexed_best_dtype(65499) == GPT_U16 &&
           gpt_indexed_best_dtype(65500) == GPT_I32,
       "16 bits below 65500 ids");
}

/* Documents that cross blocks, empty ones, and an empty set. */
static void test_read(void)
{
    static const char *const impls[] = {NULL, "infer", "mmap", "cached",
                                        "lazy"};
    static const int32_t tokens[] = {5, 70000, 7, 8, 9, 10};
    const struct gpt_indexed_block blocks[] = {
        {tokens, 3, (const int32_t[]){1, 2}, 2, (const int32_t[]){0, 1}, 2},
        {tokens + 3, 3, (const int32_t[]){0, 3}, 2, (const int32_t[]){3, 0},
         2}};
    struct gpt_err err = {0};

    is_int(write_set(at("two"), GPT_I32, blocks, 2, 0, &err), GPT_OK,
           "writes two blocks");
    for (size_t k = 0; k < GPT_COUNT(impls); k++) {
        const char *name = impls[k] ? impls[k] : "default";
        struct gpt_indexed *set;
        int32_t got[4] = {0};

        is_int(gpt_indexed_open(&set, at("two"), impls[k], &err), GPT_OK,
               "%s: opens", name);
        if (!set)
            continue;
        ok(gpt_indexed_n_sequences(set) == 4 &&
               gpt_indexed_n_documents(set) == 4 &&
               gpt_indexed_n_tokens(set) == 6 &&
               gpt_indexed_dtype(set) == GPT_I32,
           "%s: counts", name);
        ok(gpt_indexed_document(set, 0) == 0 &&
               gpt_indexed_document(set, 1) == 0 &&
               gpt_indexed_document(set, 2) == 1 &&
               gpt_indexed_document(set, 3) == 4 &&
               gpt_indexed_document(set, 4) == 4,
           "%s: documents", name);
        is_int(gpt_indexed_read(set, 1, 0, 2, got, &err), GPT_OK, "%s: reads",
               name);
        ok(got[0] == 70000 && got[1] == 7, "%s: tokens", name);
        is_int(gpt_indexed_read(set, 3, 1, 2, got, &err), GPT_OK,
               "%s: reads inside of a sequence", name);
        ok(got[0] == 9 && got[1] == 10, "%s: tokens", name);
        is_int(gpt_indexed_read(set, 2, 0, 0, got, &err), GPT_OK,
               "%s: reads nothing", name);
        is_int(gpt_indexed_read(set, 3, 2, 2, got, &err), GPT_EFAIL,
               "%s: not past a sequence", name);
        is_int(gpt_indexed_read(set, 4, 0, 0, got, &err), GPT_EFAIL,
               "%s: not past the set", name);
        gpt_indexed_close(set);
    }

    struct gpt_indexed *set;
    is_int(write_set(at("empty"), GPT_U16, NULL, 0, 0, &err), GPT_OK,
           "writes an empty set");
    is_int(gpt_indexed_open(&set, at("empty"), NULL, &err), GPT_OK,
           "reads an empty set");
    if (set)
        is_int(gpt_indexed_n_sequences(set), 0, "it is empty");
    gpt_indexed_close(set);
    is_int(gpt_indexed_open(&set, at("two"), "tape", &err), GPT_EUSAGE,
           "unknown implementation");
    is_int(gpt_indexed_open(&set, at("absent"), NULL, &err), GPT_EIO,
           "no such set");
    is_int(gpt_indexed_open(&set, at("two.bin"), NULL, &err), GPT_EIO,
           "a file name is no prefix");
    ok(strstr(err.hint, "without .bin") != NULL, "and the hint says so");
}

/* All integer types, and pieces larger than the lazy reader's buffer. */
static void test_types(void)
{
    static const struct {
        enum gpt_dtype dtype;
        int32_t token;
    } types[] = {{GPT_U8, 200},    {GPT_I8, -3},       {GPT_I16, -300},
                 {GPT_U16, 65535}, {GPT_I32, 1 << 30}, {GPT_I64, 1 << 30}};

    enum { N = 20000 };
    static uint8_t bytes[N * 8];
    static int32_t got[N];
    struct gpt_err err = {0};

    for (size_t k = 0; k < GPT_COUNT(types); k++) {
        const char *name = gpt_dtype_name(types[k].dtype);
        size_t item = gpt_dtype_bytes(types[k].dtype);
        int64_t v = types[k].token;
        struct gpt_indexed *set;

        for (size_t i = 0; i < N; i++) {
            int64_t token = v - (int64_t)(i % 97);

            memcpy(bytes + i * item, &token, item);
        }
        const struct gpt_indexed_block block = {
            bytes, N, (const int32_t[]){N}, 1, (const int32_t[]){1}, 1};
        is_int(write_set(at(name), types[k].dtype, &block, 1, 0, &err),
               GPT_OK, "%s: writes", name);
        for (int how = 0; how < 3; how++) {
            memset(got, 0, sizeof(got));
            is_int(gpt_indexed_open(&set, at(name), how ? "mmap" : "lazy",
                                    &err), GPT_OK, "%s: opens", name);
            if (set && how == 2)
                gpt_indexed_read_randomly(set);
            is_int(set ? gpt_indexed_read(set, 0, 1, N - 1, got, &err) : -1,
                   GPT_OK, "%s: reads", name);
            int wrong = got[N - 1] != 0;
            for (int i = 0; i < N - 1; i++)
                wrong += got[i] != v - (i + 1) % 97;
            is_int(wrong, 0, "%s: tokens", name);
            gpt_indexed_close(set);
        }
    }
    const int64_t big[] = {1, INT64_C(1) << 31};
    const struct gpt_indexed_block block = {
        big, 2, (const int32_t[]){2}, 1, (const int32_t[]){1}, 1};
    struct gpt_indexed *set;
    is_int(write_set(at("big"), GPT_I64, &block, 1, 0, &err), GPT_OK,
           "writes a 64-bit id");
    is_int(gpt_indexed_open(&set, at("big"), NULL, &err), GPT_OK, "opens it");
    is_int(set ? gpt_indexed_read(set, 0, 0, 2, got, &err) : -1, GPT_EDATA,
           "refuses it when read");
    ok(strstr(err.text, "token 1 of sequence 0 is 2147483648") != NULL,
       "naming it: %s", err.text);
    gpt_indexed_close(set);
}

/* One field of the golden file is replaced; the message names the field. */
static void test_hostile(void)
{
    static const struct {
        const char *what;
        int offset;
        int bytes; /* of value; 0: the file ends at `offset` instead, or has
                      `value` more bytes */
        int64_t value;
        const char *says;
    } lies[] = {
        {"magic", 0, 1, 'X', "magic"},
        {"last byte of the magic", 8, 1, 1, "magic"},
        {"version 0", 9, 8, 0, ":9: version is 0"},
        {"version 2", 9, 8, 2, ":9: version is 2"},
        {"version huge", 9, 8, -1, "version is 18446744073709551615"},
        {"dtype 0", 17, 1, 0, ":17: dtype code is 0"},
        {"dtype 9", 17, 1, 9, "dtype code is 9"},
        {"dtype float", 17, 1, 6, "floating"},
        {"dtype double", 17, 1, 7, "floating"},
        {"dtype of another size", 17, 1, 4, "length of sequence 0 is 3"},
        {"dtype larger than the .bin", 17, 1, 5, "length of sequence 0"},
        {"fewer sequences", 18, 8, 1, "size is 82"},
        {"no sequences", 18, 8, 0, "size is 82"},
        {"more sequences", 18, 8, 3, "number of document indices is 3"},
        {"too many sequences", 18, 8, 5, ":18: number of sequences is 5"},
        {"2^61 sequences", 18, 8, INT64_C(1) << 61, "number of sequences"},
        {"-1 sequences", 18, 8, -1, "number of sequences"},
        {"no documents", 26, 8, 0, ":26: number of document indices is 0"},
        {"fewer documents", 26, 8, 2, "size is 82"},
        {"more documents", 26, 8, 4, "number of document indices is 4"},
        {"2^61 documents", 26, 8, INT64_C(1) << 61, "document indices"},
        {"2^63 documents", 26, 8, INT64_MIN, "document indices"},
        {"negative length", 34, 4, -1, ":34: length of sequence 0 is -1"},
        {"length too small", 34, 4, 2, "pointer of sequence 1 is 6"},
        {"length too large", 34, 4, INT32_MAX, "has room for 4"},
        {"last length too small", 38, 4, 0, "size of the .bin is 8"},
        {"last length too large", 38, 4, 2, ":38: length of sequence 1"},
        {"first pointer", 42, 8, 2, ":42: pointer of sequence 0 is 2"},
        {"negative pointer", 50, 8, -6, "pointer of sequence 1 is -6"},
        {"pointer past the .bin", 50, 8, INT64_MAX, "pointer of sequence 1"},
        {"first document", 58, 8, 1, ":58: document index 0 is 1"},
        {"documents fall", 66, 8, 3, "less than the one before"},
        {"document negative", 66, 8, -1, ":66: document index 1 is -1"},
        {"last document", 74, 8, 1, "last document index is 1"},
        {"last document too large", 74, 8, 3, "last document index is 3"},
        {"empty file", 0, 0, 0, "truncated"},
        {"half a header", 20, 0, 0, "truncated"},
        {"the header alone", 34, 0, 0, "number of sequences is 2"},
        {"cut in the lengths", 40, 0, 0, "number of sequences is 2"},
        {"cut in the documents", 81, 0, 0, "document indices is 3"},
        {"modes of a multimodal set", 82, 0, 2, "multimodal"},
        {"trailing bytes", 82, 0, 1, "1 more than"},
    };
    uint8_t idx[96];

    put_file(at("lie.bin"), golden_tokens, 8);
    for (size_t i = 0; i < GPT_COUNT(lies); i++) {
        struct gpt_indexed *set;
        struct gpt_err err = {0};
        size_t size = sizeof(golden_idx);

        memset(idx, 0, sizeof(idx));
        memcpy(idx, golden_idx, size);
        if (lies[i].bytes)
            memcpy(idx + lies[i].offset, &lies[i].value,
                   (size_t)lies[i].bytes);
        else
            size = (size_t)(lies[i].offset + lies[i].value);
        put_file(at("lie.idx"), idx, size);
        is_int(gpt_indexed_open(&set, at("lie"), NULL, &err), GPT_EDATA,
               "refused: %s", lies[i].what);
        ok(strstr(err.text, lies[i].says) && strstr(err.text, "lie.idx"),
           "says '%s': %s", lies[i].says, err.text);
        gpt_indexed_close(set);
    }
}

static void test_quirks(void)
{
    struct gpt_indexed *set;
    struct gpt_err err = {0};
    uint8_t idx[82];

    put_file(at("quirk.bin"), golden_tokens, 7);
    put_file(at("quirk.idx"), golden_idx, 82);
    is_int(gpt_indexed_open(&set, at("quirk"), NULL, &err), GPT_EDATA,
           "a .bin that is cut");
    put_file(at("quirk.bin"), "123456789", 9);
    is_int(gpt_indexed_open(&set, at("quirk"), NULL, &err), GPT_EDATA,
           "a .bin with a byte more");
    ok(strstr(err.text, "size of the .bin is 9") != NULL, "%s", err.text);

    put_file(at("quirk.idx"), "TNTIDX\0\0\1\0\0\0\0\0\0\0", 16);
    is_int(gpt_indexed_open(&set, at("quirk"), NULL, &err), GPT_EDATA,
           "legacy TNTIDX");
    ok(strstr(err.text, "truncated: size is 16 bytes"),
       "named: %s", err.text);

    put_file(at("quirk.bin"), golden_tokens, 8);
    memcpy(idx, golden_idx, 82);
    memset(idx + 54, 0xff, 4); /* as if summed in 32 bits */
    put_file(at("quirk.idx"), idx, 82);
    is_int(gpt_indexed_open(&set, at("quirk"), NULL, &err), GPT_EDATA,
           "pointers summed in 32 bits");
    ok(strstr(err.hint, "32 bits") != NULL, "hint: %s", err.hint);
}

/* Documents count up to their end, of which only the length differs. */
static void test_mock(void)
{
    enum { IDS = 7, END = 3, LONGEST = 4095 };
    struct gpt_indexed *set;
    struct gpt_err err;
    int32_t tokens[LONGEST];
    int64_t sum = 0, wrong = 0, longest = 0;

    is_int(gpt_indexed_mock(&set, "mock", IDS, END, &err), GPT_OK, "made up");
    for (int64_t i = 0; i < gpt_indexed_n_sequences(set); i++) {
        const int64_t n = gpt_indexed_length(set, i);

        sum += n;
        longest = n > longest ? n : longest;
        if (i % 997 != 0)
            continue;
        wrong += n < 1 || n > LONGEST ||
                 gpt_indexed_read(set, i, 0, n, tokens, &err) != GPT_OK ||
                 tokens[n - 1] != END;
        for (int64_t k = 0; k + 1 < n; k++)
            wrong += tokens[k] < 1 || tokens[k] >= IDS ||
                     (k > 0 && tokens[k] != tokens[k - 1] % (IDS - 1) + 1);
    }
    ok(wrong == 0 && sum == gpt_indexed_n_tokens(set) && longest == LONGEST,
       "its documents");
    is_int(gpt_indexed_n_documents(set), 100000, "as many as it says");
    gpt_indexed_close(set);
    is_int(gpt_indexed_mock(&set, "mock", 1, -1, &err), GPT_OK, "of one token");
    is_int(gpt_indexed_read(set, 0, 0, 1, tokens, &err), GPT_OK, "is read");
    is_int(tokens[0], 0, "which is 0");
    gpt_indexed_close(set);
}

/* The .bin is cut while it is open: by page faults or by reads that is an error
 * and no end by a signal. */
static void test_cut(void)
{
    enum { N = 64 << 10 };
    static int32_t tokens[N];
    const struct gpt_indexed_block block = {
        tokens, N, (const int32_t[]){N}, 1, (const int32_t[]){1}, 1};
    struct gpt_err err = {0};

    for (int i = 0; i < N; i++)
        tokens[i] = 70000;
    for (int lazy = 0; lazy < 2; lazy++) {
        const char *prefix = at(lazy ? "cut-read" : "cut-mapped");
        const char *impl = lazy ? "lazy" : "mmap";
        struct gpt_indexed *set;
        char bin[300];
        int32_t got;

        is_int(write_set(prefix, GPT_I32, &block, 1, 0, &err), GPT_OK,
               "writes many pages");
        is_int(gpt_indexed_open(&set, prefix, impl, &err), GPT_OK, "opens");
        is_int(gpt_indexed_read(set, 0, N - 1, 1, &got, &err), GPT_OK, "reads");
        ok(got == 70000, "%s: the last token", impl);
        snprintf(bin, sizeof(bin), "%s.bin", prefix);
        is_int(truncate(bin, 8), 0, "another process cuts it");
        is_int(gpt_indexed_read(set, 0, N - 1, 1, &got, &err),
               lazy ? GPT_EDATA : GPT_EIO, "%s: reports it", impl);
        ok(strstr(err.text, bin) != NULL, "%s: by its name", impl);
        gpt_indexed_close(set);
    }
}

int main(void)
{
    test_mock();
    make_tree(dir);
    test_writer();
    test_read();
    test_types();
    test_hostile();
    test_quirks();
    test_cut();
    remove_tree(dir);
    return tap_done();
}
