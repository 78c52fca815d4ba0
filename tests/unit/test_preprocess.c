/* The pipeline with chunks of every size and several workers gives the same
 * files and the same errors as with one worker and one chunk. Also an input
 * that is cancelled. */
#include "base/io.h"
#include "base/memory.h"
#include "cmd/preprocess/preprocess.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"
#include "text/input.h"

#include <pthread.h>
#include <unistd.h>

static char dir[] = "/tmp/gpt-preprocess.XXXXXX";
static char path_a[64], path_b[64], prefix[64];
static struct gpt_tokenizer *tok;

static void write_lines(const char *path, int n, const char *last)
{
    FILE *f = fopen(path, "w");

    for (int i = 0; i < n; i++)
        if (i % 7 == 3)
            fprintf(f, "{\"text\":[\"a%d\",\"\",\"b\"]}\n", i);
        else
            fprintf(f, "{\"text\":\"%.*s\"}\n", i * i % 90,
                    "It is a truth universally acknowledged, that a single "
                    "man in possession of a good fortune");
    fputs(last, f);
    fclose(f);
}

/* .bin and .idx of the run one after the other; false when one is missing. */
static bool take_result(struct gpt_buf *all)
{
    *all = (struct gpt_buf){0};
    static const char *const ext[] = {".bin", ".idx"};
    for (int i = 0; i < 2; i++) {
        char path[128], *part;
        size_t n;
        struct gpt_err err;

        snprintf(path, sizeof(path), "%s_text_document%s", prefix, ext[i]);
        if (gpt_read_file(path, 1 << 24, &part, &n, &err) != GPT_OK)
            return false;
        int status = gpt_buf_add(all, part, n);
        gpt_free(part);
        unlink(path);
        if (status != GPT_OK)
            return false;
    }
    return true;
}

/* Both files, one key. */
static struct gpt_preprocess_options options_of(int64_t workers,
                                                int64_t chunk_bytes)
{
    static const struct gpt_input_range inputs[] = {{path_a, 0, -1},
                                                    {path_b, 0, -1}};
    static const char *const keys[] = {"text"};

    return (struct gpt_preprocess_options){
        .inputs = inputs,
        .n_inputs = GPT_COUNT(inputs),
        .keys = keys,
        .n_keys = GPT_COUNT(keys),
        .output_prefix = prefix,
        .tokenizer = tok,
        .out_flags = GPT_OUT_NOSYNC,
        .workers = workers,
        .chunk_bytes = chunk_bytes,
    };
}

static int run(int64_t workers, int64_t chunk_bytes,
               struct gpt_preprocess_stats *stats, struct gpt_err *err)
{
    struct gpt_preprocess_options o = options_of(workers, chunk_bytes);

    o.append_eod = true;
    return gpt_preprocess(&o, stats, err);
}

static const int64_t chunks[] = {1, 2, 13, 100, 1000, 100000};

static void test_same_files(void)
{
    struct gpt_preprocess_stats want, got;
    struct gpt_err err = {0};
    struct gpt_buf reference, r;

    write_lines(path_a, 500, "{\"text\":\"no newline\"}");
    write_lines(path_b, 300, "");
    is_int(run(1, 0, &want, &err), GPT_OK, "one worker, one chunk");
    bool there = take_result(&reference);
    is_int(want.documents, 801, "documents");
    for (size_t i = 0; there && i < GPT_COUNT(chunks); i++) {
        int64_t workers = 1 + (int64_t)i % 5;

        is_int(run(workers, chunks[i], &got, &err), GPT_OK,
               "%lld workers, chunks of %lld bytes", (long long)workers,
               (long long)chunks[i]);
        ok(take_result(&r) && r.len == reference.len &&
               memcmp(r.data, reference.data, r.len) == 0,
           "same files");
        ok(got.documents == want.documents && got.tokens == want.tokens &&
               got.text_bytes == want.text_bytes &&
               got.line_bytes == want.line_bytes,
           "same counts");
        gpt_buf_free(&r);
    }
    gpt_buf_free(&reference);
}

static void test_same_error(void)
{
    static const struct {
        const char *line, *want;
    } cases[] = {
        {"{\"text\":\"cut", "truncated"},
        {"no JSON, and long enough to be seen before its end\n{}\n",
         "not JSON: 'n' at byte 1"},
        {"\n{}\n", "blank line"},
        {"{\"text\":7}\n{\"text\":8}\n", "field 'text' holds a number"},
    };

    for (size_t k = 0; k < GPT_COUNT(cases); k++) {
        char want[256];

        write_lines(path_a, 50, "");
        write_lines(path_b, 200, cases[k].line);
        snprintf(want, sizeof(want), "%s:201: %s", path_b, cases[k].want);
        for (size_t i = 0; i < GPT_COUNT(chunks); i++) {
            struct gpt_preprocess_stats stats;
            struct gpt_err err = {0};
            struct gpt_buf r;

            is_int(run(3, chunks[i], &stats, &err), GPT_EDATA,
                   "a bad line in chunks of %lld bytes", (long long)chunks[i]);
            if (!ok(strncmp(err.text, want, strlen(want)) == 0, "%s", want))
                printf("# %s\n", err.text);
            ok(!take_result(&r) && !r.data, "no files");
        }
    }
}

/* ---- bad lines left out ---- */

static int run_skipping(int64_t chunk_bytes, int64_t max_bad,
                        const char *quarantine,
                        struct gpt_preprocess_stats *stats,
                        struct gpt_err *err)
{
    struct gpt_preprocess_options o =
        options_of(1 + chunk_bytes % 4, chunk_bytes);

    o.skip_bad = true;
    o.max_bad = max_bad;
    o.quarantine = quarantine;
    return gpt_preprocess(&o, stats, err);
}

static void check_report(const struct gpt_bad_report *bad)
{
    char want[256];

    snprintf(want, sizeof(want), "%s:201: not JSON: 'n' at byte 1, where an "
             "object was expected", path_b);
    is_int(bad->n, 4, "four bad lines");
    ok(bad->of_kind[GPT_BAD_SYNTAX] == 1 && bad->of_kind[GPT_BAD_BLANK] == 1 &&
           bad->of_kind[GPT_BAD_TRUNCATED] == 2,
       "their kinds");
    is_int(bad->n_named, 4, "all are named");
    is_str(bad->named[1].text, want, "with file and line");
}

static void test_skip(void)
{
    static const char bad_a[] = "{\"text\":\"no end";
    static const char bad_b[] = "no JSON, and long enough to be seen before "
                                "its end\n\n{\"text\":\"cut";
    char quarantine[80];
    struct gpt_preprocess_stats stats;
    struct gpt_err err = {0};
    struct gpt_buf want = {0}, got = {0};

    snprintf(quarantine, sizeof(quarantine), "%s/bad", dir);
    write_lines(path_a, 100, "");
    write_lines(path_b, 200, "");
    is_int(run_skipping(100000, 0, NULL, &stats, &err), GPT_OK, "good lines");
    is_int(stats.bad.n, 0, "none is bad");
    ok(take_result(&want), "data set of the good lines");
    write_lines(path_a, 100, bad_a);
    write_lines(path_b, 200, bad_b);
    for (size_t i = 0; i < GPT_COUNT(chunks); i++) {
        char *raw = NULL;
        size_t n = 0;

        is_int(run_skipping(chunks[i], 4, quarantine, &stats, &err), GPT_OK,
               "skipped in chunks of %lld bytes", (long long)chunks[i]);
        ok(take_result(&got) && got.len == want.len &&
               memcmp(got.data, want.data, got.len) == 0,
           "the data set of the good lines");
        is_int(stats.documents, 300, "documents");
        check_report(&stats.bad);
        is_int(gpt_read_file(quarantine, 1 << 20, &raw, &n, &err), GPT_OK,
               "quarantine");
        ok(raw && n == sizeof(bad_a) + sizeof(bad_b) &&
               memcmp(raw, bad_a, sizeof(bad_a) - 1) == 0 &&
               raw[sizeof(bad_a) - 1] == '\n' &&
               memcmp(raw + sizeof(bad_a), bad_b, sizeof(bad_b) - 1) == 0,
           "holds the bad lines as they are");
        gpt_free(raw);
        gpt_buf_free(&got);
        unlink(quarantine);
        is_int(run_skipping(chunks[i], 3, quarantine, &stats, &err), GPT_EDATA,
               "one more than the limit");
        ok(strstr(err.text, ":203: bad line number 4: --max-errors allows 3"),
           "said so");
        ok(!take_result(&got) && !gpt_path_exists(quarantine), "no files");
    }
    gpt_buf_free(&want);
}

/* ---- a pipe that stays silent ---- */

static void *cancel_later(void *in)
{
    usleep(50000);
    gpt_input_cancel(in);
    return NULL;
}

static void test_cancel(void)
{
    struct gpt_input *in = NULL;
    struct gpt_err err = {0};
    pthread_t thread;
    int fd[2];
    char text[16], path[32];
    size_t got = 0;

    ok(pipe(fd) == 0 && write(fd[1], "{\"text\"", 7) == 7, "a pipe");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd[0]);
    if (access(path, R_OK) != 0) {
        skip("no /proc");
        return;
    }
    is_int(gpt_input_open(&in, path, 1, &err), GPT_OK, "opened");
    is_int(gpt_input_size(in), -1, "of unknown size");
    ok(gpt_input_read(in, text, sizeof(text), &got, &err) == GPT_OK &&
           got == 7, "what is there is read");
    pthread_create(&thread, NULL, cancel_later, in);
    is_int(gpt_input_read(in, text, sizeof(text), &got, &err), GPT_EFAIL,
           "waiting for more is given up");
    pthread_join(thread, NULL);
    gpt_input_close(in);
    close(fd[0]);
    close(fd[1]);
}

int main(void)
{
    struct gpt_tokenizer_options o = {
        .type = "GPT2BPETokenizer",
        .vocab_file = "tests/golden/gpt2/vocab.json",
        .merge_file = "tests/golden/gpt2/merges.txt",
    };
    struct gpt_err err = {0};

    make_tree(dir);
    ok(gpt_tokenizer_open(&tok, &o, &err) == GPT_OK, "vocabulary");
    snprintf(path_a, sizeof(path_a), "%s/a.jsonl", dir);
    snprintf(path_b, sizeof(path_b), "%s/b.jsonl", dir);
    snprintf(prefix, sizeof(prefix), "%s/out", dir);
    test_same_files();
    test_same_error();
    test_skip();
    test_cancel();
    gpt_tokenizer_close(tok);
    unlink(path_a);
    unlink(path_b);
    ok(rmdir(dir) == 0, "nothing else is left");
    return tap_done();
}
