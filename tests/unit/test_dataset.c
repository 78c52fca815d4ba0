/* The parts of gpt-dataset below the command line: statistics compared with
 * sorting, findings compared with random damage, JSON text in pieces, copies
 * between files. */
#include "base/io.h"
#include "base/rng.h"
#include "cmd/dataset/json_text.h"
#include "cmd/dataset/statistics.h"
#include "cmd/dataset/verify.h"
#include "tests/lib/files.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"
#include "tests/lib/writer.h"

static char dir[] = "/tmp/gpt-test-dataset.XXXXXX";

static const char *at(const char *name)
{
    return path_in(dir, name);
}

/* ---- statistics ---- */

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* n documents whose lengths have very different sizes. */
static void write_lengths(const char *prefix, int64_t *lengths, int n,
                          uint64_t seed)
{
    struct gpt_rng r = gpt_rng_open(seed, "lengths");
    static uint16_t tokens[70000];
    struct gpt_indexed_writer *w;
    struct gpt_err err;
    int status = writer_open(&w, prefix, GPT_U16, GPT_OUT_FORCE,
                                         &err);

    for (int i = 0; i < n && status == GPT_OK; i++) {
        uint32_t x = gpt_rng_u32(r, (uint64_t)i);
        int32_t length = (int32_t)((x >> 8) % (1u << (x % 17)));

        lengths[i] = length;
        const struct gpt_indexed_block block = {
            tokens, length, &length, 1, (const int32_t[]){1}, 1};
        status = gpt_indexed_writer_add(w, &block, &err);
    }
    if (status == GPT_OK)
        status = writer_commit(w, &err);
    is_int(status, GPT_OK, "a set of %d documents", n);
}

static void test_stat(void)
{
    static const int sizes[] = {0, 1, 2, 3, 10, 99, 100, 101, 700};
    static int64_t lengths[700];

    for (size_t k = 0; k < GPT_COUNT(sizes); k++) {
        int n = sizes[k];
        struct gpt_indexed *set;
        struct gpt_stat s;
        struct gpt_err err;
        const struct gpt_stat_options o = {.tokens = true, .top = 3};

        write_lengths(at("s"), lengths, n, k);
        if (gpt_indexed_open(&set, at("s"), NULL, &err) != GPT_OK ||
            gpt_stat(&s, set, &o, &err) != GPT_OK) {
            ok(false, "statistics: %s", err.text);
            continue;
        }
        qsort(lengths, (size_t)n, sizeof(*lengths), by_value);
        int64_t tokens = 0, in_buckets = 0;
        for (int i = 0; i < n; i++)
            tokens += lengths[i];
        for (int b = 0; b < GPT_STAT_BUCKETS; b++)
            in_buckets += s.bucket[b];
        ok(s.tokens == tokens && s.documents == n && in_buckets == n,
           "%d documents: sums", n);
        is_int(s.min, n ? lengths[0] : 0, "shortest");
        is_int(s.max, n ? lengths[n - 1] : 0, "longest");
        is_int(s.median, n ? lengths[(n + 1) / 2 - 1] : 0, "median");
        is_int(s.p90, n ? lengths[(9 * n + 9) / 10 - 1] : 0, "90 %%");
        is_int(s.p99, n ? lengths[(99 * n + 99) / 100 - 1] : 0, "99 %%");
        ok(s.n_top == (tokens > 0) && s.distinct == (tokens > 0) &&
               (tokens == 0 || s.top[0].count == tokens),
           "one id takes all tokens");
        gpt_stat_free(&s);
        gpt_indexed_close(set);
    }
}

/* ---- findings ---- */

static void count_one(void *user, enum gpt_damage kind,
                      const struct gpt_err *err)
{
    int *told = user;

    told[kind]++;
    if (!err->text[0])
        told[GPT_DAMAGE_HEADER] = -100;
}

/* Wild tokens in a set of two types, each found, no more told than asked. */
static void test_tokens(void)
{
    enum { N = 500 };
    struct gpt_rng r = gpt_rng_open(1, "damage");
    static int32_t tokens[N];
    struct gpt_indexed_writer *w;
    struct gpt_err err;
    int64_t wild = 0, length = N;
    for (int i = 0; i < N; i++) {
        tokens[i] = (int32_t)(gpt_rng_u32(r, (uint64_t)i) % 1100) - 50;
        wild += tokens[i] < 0 || tokens[i] >= 1000;
    }
    const struct gpt_indexed_block block = {
        tokens, length, (const int32_t[]){200, 0, 299, 1}, 4,
        (const int32_t[]){2, 0, 1, 1}, 4};
    int status = writer_open(&w, at("t"), GPT_I32, 0, &err);
    if (status == GPT_OK)
        status = gpt_indexed_writer_add(w, &block, &err);
    if (status == GPT_OK)
        status = writer_commit(w, &err);
    is_int(status, GPT_OK, "a set with wild tokens");

    int told[GPT_N_DAMAGES] = {0};
    struct gpt_refusal refusal;
    struct gpt_damages all = {.most = 4, .found = count_one, .user = told};
    const struct gpt_verify_options o = {.vocab_size = 1000,
                                         .eod = tokens[N - 1]};
    is_int(gpt_verify(at("t"), &o, &all, &refusal, &err), GPT_OK,
           "can be verified");
    ok(!refusal.why, "the index needs no repair");
    is_int(all.count[GPT_DAMAGE_TOKEN], wild, "all are found");
    is_int(told[GPT_DAMAGE_TOKEN], 4, "four are told");
    /* The first document ends with an empty sequence, the third elsewhere. */
    is_int(all.count[GPT_DAMAGE_EOD], 1 + (tokens[498] != tokens[499]),
           "documents that end otherwise");
    is_int(gpt_damages_total(&all),
           wild + all.count[GPT_DAMAGE_EOD], "and nothing else");
    is_int(gpt_verify(at("absent"), &o, &all, &refusal, &err), GPT_EIO,
           "no such set");
}

/* ---- JSON text ---- */

static void test_json_text(void)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *want;
    } cases[] = {
        {"", 0, ""},
        {"plain", 5, "plain"},
        {"\"\\\n\t\x7f", 5, "\\\"\\\\\\n\\u0009\\u007f"},
        {"\0a", 2, "\\u0000a"},
        {"\xe2\x80\xa8-\xe2\x80\xa9-\xc2\x85", 10, /* end lines in Unicode */
         "\\u2028-\\u2029-\\u0085"},
        {"\xc3\xa9\xe4\xb8\x96\xf0\x9f\x98\x80", 9,
         "\xc3\xa9\xe4\xb8\x96\xf0\x9f\x98\x80"},
        {"\xc3", 1, "\xef\xbf\xbd"},
        {"\xf0\x9f\x98", 3, "\xef\xbf\xbd"},
        {"\xf0\x9f\x98x", 4, "\xef\xbf\xbdx"},
        {"\xe8" "a", 2, "\xef\xbf\xbd" "a"}, /* the end keeps a letter */
        {"\xff\xfe", 2, "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xe4\xc3\xa9", 3, "\xef\xbf\xbd\xc3\xa9"},
        {"\xc0\x80", 2, "\xef\xbf\xbd\xef\xbf\xbd"},
    };

    for (size_t k = 0; k < GPT_COUNT(cases); k++)
        for (size_t step = 1; step <= 4; step += 3) {
            struct gpt_stream t = {0};
            struct gpt_out *out;
            struct gpt_err err;
            char got[128] = {0};
            int status = gpt_out_open(&out, at("text"), GPT_OUT_FORCE, 0, &err);

            for (size_t i = 0; i < cases[k].n && status == GPT_OK; i += step)
                status = gpt_json_text_add(
                    &t, out, cases[k].bytes + i,
                    cases[k].n - i < step ? cases[k].n - i : step, &err);
            if (status == GPT_OK)
                status = gpt_json_text_end(&t, out, &err);
            if (status == GPT_OK)
                status = gpt_out_commit(out, &err);
            get_file(at("text"), got, sizeof(got) - 1);
            ok(status == GPT_OK && strcmp(got, cases[k].want) == 0,
               "text %zu in pieces of %zu", k, step);
        }
}

/* ---- copies ---- */

static void test_copy(void)
{
    enum { N = 700000 }; /* larger than the buffer */
    static char from[N], got[N + 16];
    struct gpt_err err;
    struct gpt_in *in;
    struct gpt_out *out;
    for (int i = 0; i < N; i++)
        from[i] = (char)(i * 31 >> 3);
    put_file(at("from"), from, N);
    if (gpt_in_open(&in, at("from"), &err) != GPT_OK ||
        gpt_out_open(&out, at("to"), 0, 0, &err) != GPT_OK) {
        ok(false, "opens: %s", err.text);
        return;
    }
    ok(gpt_out_write(out, "ab", 2, &err) == GPT_OK &&
           gpt_out_copy(out, in, 5, N - 5, &err) == GPT_OK &&
           gpt_out_write(out, "cd", 2, &err) == GPT_OK &&
           gpt_out_copy(out, in, 0, 3, &err) == GPT_OK &&
           gpt_out_copy(out, in, N, 0, &err) == GPT_OK,
       "copies between writes");
    is_int(gpt_out_tell(out), N + 2, "knows where it is");
    is_int(gpt_out_commit(out, &err), GPT_OK, "commits");
    is_int((long long)get_file(at("to"), got, sizeof(got)), N + 2, "size");
    ok(memcmp(got, "ab", 2) == 0 && memcmp(got + 2, from + 5, N - 5) == 0 &&
           memcmp(got + N - 3, "cd", 2) == 0 &&
           memcmp(got + N - 1, from, 3) == 0,
       "in order");
    if (gpt_out_open(&out, at("short"), 0, 0, &err) == GPT_OK) {
        is_int(gpt_out_copy(out, in, N - 5, 6, &err), GPT_EDATA,
               "not past the end: %s", err.text);
        gpt_out_abort(out);
    }
    if (gpt_out_open(&out, "/dev/full", 0, 0, &err) == GPT_OK) {
        is_int(gpt_out_copy(out, in, 0, 5, &err), GPT_EIO, "to a full device");
        gpt_out_abort(out);
    }
    gpt_in_close(in);
}

int main(void)
{
    make_tree(dir);
    test_stat();
    test_tokens();
    test_json_text();
    test_copy();
    remove_tree(dir);
    return tap_done();
}
