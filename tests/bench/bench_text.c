/* Speed of text to tokens on one thread: the scanner of JSON lines, the
 * pre-tokenizer, and the whole encoder with a warm and an empty cache. The text
 * is this project's own sources and manual pages, or GPT_BENCH_TEXT; the
 * vocabulary is GPT-2's in GPT2_VOCAB_DIR, or the small one of the tests. The
 * floor is the time to read the bytes at the bandwidth of this machine. */
#include "base/io.h"
#include "base/memory.h"
#include "tests/bench/bench.h"
#include "text/jsonl.h"
#include "tokenizer/pretok.h"
#include "tokenizer/tokenizer.h"

#include <glob.h>

struct bench {
    struct gpt_buf text, line; /* the text, and as a line of JSON */
    struct gpt_jsonl *scanner;
    struct gpt_tokenizer *tok;
    struct gpt_encoder *enc;
    struct gpt_ids ids;
    size_t pieces;
};

static void must(int status, const struct gpt_err *err)
{
    if (status == GPT_OK)
        return;
    fprintf(stderr, "bench: %s\n", err->text);
    exit(1);
}

static void add_files(struct gpt_buf *text, const char *pattern)
{
    glob_t found = {0};
    struct gpt_err err = {.text = "no such file"};

    must(glob(pattern, 0, NULL, &found) ? GPT_EIO : GPT_OK, &err);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *data;
        size_t len;

        must(gpt_read_file(found.gl_pathv[i], 1 << 30, &data, &len, &err),
             &err);
        must(gpt_buf_add(text, data, len), &err);
        gpt_free(data);
    }
    globfree(&found);
}

static void make_line(struct bench *b)
{
    struct gpt_err err = {.text = "out of memory"};

    must(gpt_buf_printf(&b->line, "{\"id\":1,\"text\":\""), &err);
    for (size_t i = 0; i < b->text.len; i++) {
        char c = b->text.data[i];

        if (c == '"' || c == '\\' || c == '\n')
            must(gpt_buf_printf(&b->line, "\\%c", c == '\n' ? 'n' : c), &err);
        else if (c >= 0 && c < 0x20)
            must(gpt_buf_printf(&b->line, "\\u%04x", (unsigned)c), &err);
        else
            must(gpt_buf_add(&b->line, &c, 1), &err);
    }
    must(gpt_buf_printf(&b->line, "\"}"), &err);
}

static void scan(void *ctx)
{
    struct bench *b = ctx;
    struct gpt_err err;

    must(gpt_jsonl_scan(b->scanner, b->line.data, b->line.len, &err), &err);
}

static size_t cut_some(const char *text, size_t len, struct gpt_stretch *s,
                       size_t room)
{
    gpt_cut_fn *fast = gpt_cut_like(gpt_pretok_gpt2);

    if (fast)
        return fast(text, len, s, room);
    s[0].begins = 1;
    s[1].at = gpt_pretok_gpt2(text, len);
    return 1;
}

static void cut(void *ctx)
{
    struct bench *b = ctx;
    struct gpt_stretch s[17];

    b->pieces = 0;
    for (size_t i = 0; i < b->text.len;) {
        size_t n = cut_some(b->text.data + i, b->text.len - i, s,
                            GPT_COUNT(s) - 1);

        for (size_t k = 0; k < n; k++)
            b->pieces += __builtin_popcountll(s[k].begins);
        i += s[n].at;
    }
}

static void encode(void *ctx)
{
    struct bench *b = ctx;
    struct gpt_err err;

    b->ids.len = 0;
    must(gpt_encode(b->enc, b->text.data, b->text.len, &b->ids, &err), &err);
}

static void encode_cold(void *ctx)
{
    struct bench *b = ctx;
    struct gpt_err err;

    gpt_encoder_close(b->enc);
    must(gpt_encoder_open(&b->enc, b->tok, &err), &err);
    encode(ctx);
}

static void open_all(struct bench *b)
{
    static const char *const keys[] = {"text"};
    const char *text = getenv("GPT_BENCH_TEXT");
    const char *dir = getenv("GPT2_VOCAB_DIR");
    char vocab[1024], merges[1024];
    struct gpt_err err;
    struct gpt_tokenizer_options o = {.type = "GPT2BPETokenizer",
                                      .vocab_file = vocab,
                                      .merge_file = merges};

    dir = dir ? dir : "tests/golden/gpt2";
    snprintf(vocab, sizeof(vocab), "%s/vocab.json", dir);
    snprintf(merges, sizeof(merges), "%s/merges.txt", dir);
    if (text) {
        add_files(&b->text, text);
    } else {
        add_files(&b->text, "man/*.[157]");
        add_files(&b->text, "common/*/*.[ch]");
    }
    make_line(b);
    must(gpt_jsonl_open(&b->scanner, keys, 1, &err), &err);
    must(gpt_tokenizer_open(&b->tok, &o, &err), &err);
    must(gpt_encoder_open(&b->enc, b->tok, &err), &err);
}

int main(void)
{
    static struct bench b;
    double read, copy, bytes;

    omp_set_num_threads(1);
    open_all(&b);
    bench_bandwidth(&read, &copy);
    bytes = (double)b.text.len / 1e6;
    read /= 1e6;
    printf("# %.2f MB of text\n", bytes);
    bench_row("JSON line, unescaped",
              (double)b.line.len / 1e6 / bench_time(scan, &b, 1), "MB/s", read,
              -1);
    bench_row("pre-tokenizer", bytes / bench_time(cut, &b, 1), "MB/s", read,
              -1);
    bench_row("encoder, cache warm", bytes / bench_time(encode, &b, 1), "MB/s",
              read, -1);
    bench_row("encoder, cache empty", bytes / bench_time(encode_cold, &b, 1),
              "MB/s", read, -1);
    printf("# %.2f bytes a piece, %.2f bytes a token\n",
           (double)b.text.len / (double)b.pieces,
           (double)b.text.len / (double)b.ids.len);
    gpt_free(b.ids.data);
    gpt_encoder_close(b.enc);
    gpt_tokenizer_close(b.tok);
    gpt_jsonl_close(b.scanner);
    gpt_buf_free(&b.text);
    gpt_buf_free(&b.line);
    return 0;
}
