/* The pipeline at its limits, which are lowered for files of kilobytes:
 * sequences and lines that are too long, long lines that are read alone,
 * reading ahead. */
#include "base/io.h"
#include "base/memory.h"
#include "cmd/preprocess/preprocess.h"
#include "tests/lib/tap.h"
#include "tests/lib/tree.h"

#include <unistd.h>

static char dir[] = "/tmp/gpt-limits.XXXXXX";
static char path[64], prefix[64], quarantine[64];
static struct gpt_tokenizer *tok;
static const char *const keys[] = {"text"};

static struct gpt_preprocess_options
options_for(const struct gpt_input_range *input)
{
    return (struct gpt_preprocess_options){
        .inputs = input,
        .n_inputs = 1,
        .keys = keys,
        .n_keys = 1,
        .output_prefix = prefix,
        .tokenizer = tok,
        .append_eod = true,
        .out_flags = GPT_OUT_NOSYNC,
        .workers = 2,
        .max_bad = -1,
    };
}

/* The file and its removal; NULL when it is not there. */
static char *take_file(const char *name, size_t *n)
{
    struct gpt_err err;
    char *data = NULL;

    if (gpt_read_file(name, 1 << 24, &data, n, &err) != GPT_OK)
        return NULL;
    unlink(name);
    return data;
}

static char *take_bin(size_t *n)
{
    char name[128];

    snprintf(name, sizeof(name), "%s_text_document.idx", prefix);
    unlink(name);
    snprintf(name, sizeof(name), "%s_text_document.bin", prefix);
    return take_file(name, n);
}

/* A line of n letters for each of a list that ends in 0. */
static void write_lines(const int *lengths)
{
    FILE *f = fopen(path, "w");

    for (; *lengths; lengths++) {
        fputs("{\"text\":\"", f);
        for (int i = 0; i < *lengths; i++)
            fputc('a' + (i * 7 + *lengths) % 26, f);
        fputs("\"}\n", f);
    }
    fclose(f);
}

/* ByteTokenizer: a letter is a token. */
static void test_sequences(void)
{
    static const int lengths[] = {3, 10, 11, 4, 12, 0};
    const struct gpt_input_range input = {path, 0, -1};
    struct gpt_preprocess_options o = options_for(&input);
    struct gpt_preprocess_stats stats;
    struct gpt_err err = {0};
    size_t n = 0;
    char want[128];

    write_lines(lengths);
    o.limits.sequence = 12;
    is_int(gpt_preprocess(&o, &stats, &err), GPT_OK, "as long as may be");
    gpt_free(take_bin(&n));
    is_int((int64_t)n, 2 * (3 + 10 + 11 + 4 + 12 + 5), "all tokens");
    o.limits.sequence = 10;
    is_int(gpt_preprocess(&o, &stats, &err), GPT_EDATA, "too long");
    snprintf(want, sizeof(want), "%s:3: a sequence has 11 tokens, must "
             "have at most 10", path);
    is_str(err.text, want, "told with file and line");
    o.skip_bad = true;
    o.quarantine = quarantine;
    is_int(gpt_preprocess(&o, &stats, &err), GPT_OK, "left out");
    is_int(stats.bad.of_kind[GPT_BAD_LONG], 2, "two lines of that kind");
    is_str(gpt_bad_word(GPT_BAD_LONG), "too long", "which has a word");
    gpt_free(take_bin(&n));
    is_int((int64_t)n, 2 * (3 + 10 + 4 + 3), "the others are there");
    gpt_free(take_file(quarantine, &n));
    is_int((int64_t)n, 11 + 12 + 2 * 12, "and these are kept");
}

/* From a pipe, which has no known length. */
static void test_lines(void)
{
    int fd[2];
    char name[32], text[6000];
    const struct gpt_input_range input = {name, 0, -1};
    struct gpt_preprocess_options o = options_for(&input);
    struct gpt_preprocess_stats stats;
    struct gpt_err err = {0};

    if (pipe(fd) != 0 || access("/proc/self/fd", R_OK) != 0) {
        skip("no /proc");
        return;
    }
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd[0]);
    memset(text, 'a', sizeof(text));
    memcpy(text, "{\"text\":\"", 9);
    ok(write(fd[1], text, sizeof(text)) == sizeof(text), "a line without end");
    close(fd[1]);
    o.limits.line = 5000;
    o.chunk_bytes = 1000;
    is_int(gpt_preprocess(&o, &stats, &err), GPT_EDATA, "too long");
    ok(strstr(err.text, "a line has 5000 bytes or more"), "said so");
    close(fd[0]);
}

/* Pages are given back under the longest of them. */
static void test_long_lines(void)
{
    static const int lengths[] = {30,   9000, 20, 60000, 50000, 700,
                                  4100, 4000, 1,  20000, 90,    0};
    const struct gpt_input_range input = {path, 0, -1};
    struct gpt_preprocess_options o = options_for(&input);
    struct gpt_preprocess_stats stats;
    struct gpt_err err = {0};
    size_t n = 0, n_got = 0;

    write_lines(lengths);
    is_int(gpt_preprocess(&o, &stats, &err), GPT_OK, "no line is long");
    char *want = take_bin(&n);
    o.limits.long_line = 5000;
    for (int i = 0; i < 6; i++) {
        o.workers = 1 + i % 3;
        o.chunk_bytes = i < 3 ? 100 : 7000;
        o.skip_bad = i % 2;
        o.quarantine = i % 2 ? quarantine : NULL;
        is_int(gpt_preprocess(&o, &stats, &err), GPT_OK,
               "%lld workers, chunks of %lld bytes", (long long)o.workers,
               (long long)o.chunk_bytes);
        char *got = take_bin(&n_got);
        ok(want && got && n_got == n && memcmp(got, want, n) == 0,
           "the same tokens");
        gpt_free(got);
        unlink(quarantine);
    }
    gpt_free(want);
}

static void test_begun(void)
{
    static const int lengths[] = {5, 6, 7, 8, 0};
    const struct gpt_input_range input = {path, 0, -1};
    struct gpt_preprocess_options o = options_for(&input);
    struct gpt_preprocess_stats stats;
    struct gpt_err err = {0};
    size_t n = 0;

    write_lines(lengths);
    o.chunk_bytes = 1;
    o.tokenizer = NULL;
    is_int(gpt_preprocess_begin(&o, &err), GPT_OK, "begun");
    o.tokenizer = tok;
    is_int(gpt_preprocess(&o, &stats, &err), GPT_OK, "gone on with");
    gpt_free(take_bin(&n));
    is_int((int64_t)n, 2 * (5 + 6 + 7 + 8 + 4), "from the first line on");
    ok(o.begun == NULL, "and used up");
    is_int(gpt_preprocess_begin(&o, &err), GPT_OK, "begun");
    gpt_preprocess_give_up(&o);
    ok(o.begun == NULL && !take_bin(&n), "given up: nothing is there");
    is_int(gpt_preprocess_begin(&o, &err), GPT_OK, "begun");
    o.append_eod = false;
    o.empty = GPT_EMPTY_EOD;
    is_int(gpt_preprocess(&o, &stats, &err), GPT_EUSAGE, "wrong options");
    ok(o.begun == NULL, "use it up, too");
}

int main(void)
{
    struct gpt_tokenizer_options o = {.type = "ByteTokenizer"};
    struct gpt_err err = {0};

    make_tree(dir);
    ok(gpt_tokenizer_open(&tok, &o, &err) == GPT_OK, "tokenizer");
    snprintf(path, sizeof(path), "%s/a.jsonl", dir);
    snprintf(prefix, sizeof(prefix), "%s/out", dir);
    snprintf(quarantine, sizeof(quarantine), "%s/bad", dir);
    test_sequences();
    test_lines();
    test_long_lines();
    test_begun();
    gpt_tokenizer_close(tok);
    unlink(path);
    ok(rmdir(dir) == 0, "nothing else is left");
    return tap_done();
}
