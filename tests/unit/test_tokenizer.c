/* Compares ids with those of tiktoken and Hugging Face tokenizers
 * (tests/golden/make_gpt2_ids.py); decoding, long pieces, and vocabularies that
 * are refused. Runs in the top folder of the tree. */
#include "base/io.h"
#include "base/memory.h"
#include "tests/lib/tap.h"
#include "tokenizer/bytelevel.h"
#include "tokenizer/tokenizer.h"

#include <time.h>
#include <unistd.h>

#define GOLDEN "tests/golden/gpt2/"

static struct gpt_tokenizer *open_gpt2(const char *dir)
{
    char vocab[512], merges[512];

    snprintf(vocab, sizeof(vocab), "%s/vocab.json", dir);
    snprintf(merges, sizeof(merges), "%s/merges.txt", dir);
    if (access(vocab, R_OK) != 0)
        return NULL;
    struct gpt_tokenizer_options o = {.type = "GPT2BPETokenizer",
                                      .vocab_file = vocab,
                                      .merge_file = merges};
    struct gpt_tokenizer *tok = NULL;
    struct gpt_err err = {0};
    if (gpt_tokenizer_open(&tok, &o, &err) != GPT_OK)
        printf("# %s\n", err.text);
    return tok;
}

/* ---- goldens ---- */

static size_t unhex(const char *hex, char *out)
{
    size_t n = 0;
    unsigned byte;

    while (hex[2 * n] != ' ' && sscanf(hex + 2 * n, "%2x", &byte) == 1)
        out[n++] = (char)byte;
    return n;
}

static bool same_ids(const struct gpt_ids *ids, char *numbers)
{
    size_t n = 0;

    for (char *word = strtok(numbers, " \n"); word;
         word = strtok(NULL, " \n"), n++)
        if (n >= ids->len || ids->data[n] != atoi(word))
            return false;
    return n == ids->len;
}

/* The tokens of ids, joined, are text again. */
static bool decodes_to(const struct gpt_tokenizer *tok,
                       const struct gpt_ids *ids, const char *text, size_t len)
{
    size_t at = 0, n;

    for (size_t i = 0; i < ids->len; i++, at += n) {
        const char *bytes = gpt_token_bytes(tok, ids->data[i], &n);

        if (at + n > len || memcmp(bytes, text + at, n) != 0)
            return false;
    }
    return at == len;
}

static void test_golden(const char *dir, const char *file)
{
    struct gpt_tokenizer *tok = open_gpt2(dir);

    if (!tok) {
        skip("no vocabulary in %s (set GPT2_VOCAB_DIR)", dir);
        return;
    }
    FILE *f = fopen(file, "r");
    char line[65536], text[32768];
    struct gpt_err err;
    struct gpt_encoder *enc = NULL;
    long lines = 0, wrong = 0, undecoded = 0;
    ok(f && gpt_encoder_open(&enc, tok, &err) == GPT_OK, "opens %s", file);
    /* twice: the second time out of the cache */
    for (int round = 0; f && enc && round < 2; round++, rewind(f)) {
        while (fgets(line, sizeof(line), f)) {
            char *numbers = line + strcspn(line, " \n");
            size_t len = line[0] == '-' ? 0 : unhex(line, text);
            struct gpt_ids ids = {0};

            lines++;
            if (gpt_encode(enc, text, len, &ids, &err) != GPT_OK)
                wrong++;
            undecoded += !decodes_to(tok, &ids, text, len);
            wrong += !same_ids(&ids, numbers);
            gpt_free(ids.data);
        }
    }
    ok(lines > 1600, "%ld lines of %s", lines, file);
    is_int(wrong, 0, "the oracles' ids");
    is_int(undecoded, 0, "which decode to the text");
    if (f)
        fclose(f);
    gpt_encoder_close(enc);
    gpt_tokenizer_close(tok);
}

/* ---- properties ---- */

static void test_facts(void)
{
    struct gpt_tokenizer *tok = open_gpt2(GOLDEN);
    size_t len;

    ok(tok != NULL, "opens the small vocabulary");
    is_int(gpt_tokenizer_vocab_size(tok), 601, "its size");
    is_int(gpt_tokenizer_eod(tok), 600, "its end of document");
    is_str(gpt_token_bytes(tok, 600, &len), "<|endoftext|>", "its name");
    gpt_token_bytes(tok, 601, &len);
    is_int(len, 0, "an id beyond the vocabulary has no bytes");
    gpt_token_bytes(tok, -1, &len);
    is_int(len, 0, "nor has a negative one");
    gpt_tokenizer_close(tok);
}

/* A piece of n equal letters, then the same in parts: merging must not take
 * time that grows with n * n, nor depend on the algorithm for its length. */
static void test_long_piece(void)
{
    enum { N = 1000000 };
    struct gpt_tokenizer *tok = open_gpt2(GOLDEN);
    struct gpt_encoder *enc = NULL;
    struct gpt_err err;
    struct gpt_ids ids = {0};
    char *text = malloc(N);
    memset(text, 'a', N);
    ok(gpt_encoder_open(&enc, tok, &err) == GPT_OK, "encoder");
    clock_t start = clock();
    ok(gpt_encode(enc, text, N, &ids, &err) == GPT_OK, "a million letters");
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    ok(seconds < 10, "in seconds (%.2f)", seconds);
    ok(decodes_to(tok, &ids, text, N), "and back");
    gpt_free(ids.data);
    gpt_encoder_close(enc);
    gpt_tokenizer_close(tok);
    free(text);
}

static void test_bytes_tokenizer(void)
{
    struct gpt_tokenizer_options o = {.type = "ByteTokenizer"};
    struct gpt_tokenizer *tok = NULL;
    struct gpt_encoder *enc = NULL;
    struct gpt_err err;
    struct gpt_ids ids = {0};
    char text[256];
    bool same = true;

    for (int i = 0; i < 256; i++)
        text[i] = (char)i;
    ok(gpt_tokenizer_open(&tok, &o, &err) == GPT_OK, "ByteTokenizer");
    is_int(gpt_tokenizer_vocab_size(tok), 257, "its size");
    is_int(gpt_tokenizer_eod(tok), 256, "its end of document");
    ok(gpt_encoder_open(&enc, tok, &err) == GPT_OK &&
           gpt_encode(enc, text, 256, &ids, &err) == GPT_OK,
       "encodes all bytes");
    for (int i = 0; i < 256; i++)
        same &= ids.data[i] == i;
    ok(same && ids.len == 256, "as themselves");
    ok(decodes_to(tok, &ids, text, 256), "and back");
    gpt_free(ids.data);
    gpt_encoder_close(enc);
    gpt_tokenizer_close(tok);
    o.type = "NoTokenizer";
    is_int(gpt_tokenizer_open(&tok, &o, &err), GPT_EUSAGE, "unknown type");
}

static void test_letters(void)
{
    bool back = true;
    char text[512], bytes[256], out[256];
    size_t len, n = 0;

    for (int b = 0; b < 256; b++) {
        back &= gpt_letter_byte(gpt_byte_letter((uint8_t)b)) == b;
        bytes[b] = (char)gpt_byte_of_rank(b);
    }
    ok(back, "every byte has its letter");
    is_int(gpt_byte_letter(' '), 0x120, "space");
    is_int(gpt_byte_letter(0xAD), 0x143, "soft hyphen");
    is_int(gpt_letter_byte(0x144), -1, "U+0144 is no letter");
    is_int(gpt_letter_byte(' '), -1, "nor is space");
    is_int((uint8_t)bytes[0], '!', "the first byte of a vocabulary");
    is_int((uint8_t)bytes[220], ' ', "space is its 221st");
    len = gpt_bytelevel_encode(bytes, 256, text);
    ok(gpt_bytelevel_decode(text, len, out, &n) && n == 256 &&
           memcmp(bytes, out, 256) == 0,
       "texts go there and back");
}

/* ---- vocabularies that are wrong ---- */

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    fputs(text, f);
    fclose(f);
}

/* The small vocabulary with `from` replaced by `to` (nothing replaced when
 * NULL), or the text `to` alone when from is "". */
static void spoil(const char *path, const char *from, const char *to,
                  const char *golden)
{
    struct gpt_err err;
    char *text;
    size_t len;

    if (gpt_read_file(golden, 1 << 20, &text, &len, &err) != GPT_OK)
        return;
    char *at = from && *from ? strstr(text, from) : NULL;
    if (from && !*from) {
        write_text(path, to);
    } else if (at) {
        FILE *f = fopen(path, "w");

        fprintf(f, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
        fclose(f);
    } else {
        write_text(path, text);
    }
    gpt_free(text);
}

/* What is changed in good files. */
static const struct {
    const char *what, *vocab_from, *vocab_to, *merges_from, *merges_to;
    int status;
    const char *message;
} spoilt[] = {
    {"nothing wrong", NULL, NULL, NULL, NULL, GPT_OK, NULL},
    {"a byte order mark", "{", "\xEF\xBB\xBF{", NULL, NULL, GPT_EDATA,
     "vocab.json: not JSON: byte order mark at byte 1"},
    {"no final newline", NULL, NULL, "", "#version: 0.2\n\xC4\xA0 t",
     GPT_OK, NULL},
    {"CRLF", NULL, NULL, "", "#version: 0.2\r\n\xC4\xA0 t\r\n", GPT_OK,
     NULL},
    {"an empty merge list", NULL, NULL, "", "", GPT_OK, NULL},
    {"no JSON", "", "hello", NULL, NULL, GPT_EDATA, "vocab.json"},
    {"half a file", "}", "", NULL, NULL, GPT_EDATA, "vocab.json"},
    {"a list", "", "[1,2]", NULL, NULL, GPT_EDATA, "not an object"},
    {"an empty object", "", "{}", NULL, NULL, GPT_EDATA, "no token for"},
    {"a string for an id", "\"he\":257", "\"he\":\"257\"", NULL, NULL,
     GPT_EDATA, "'he' has no integer id"},
    {"half an id", "\"he\":257", "\"he\":257.5", NULL, NULL, GPT_EDATA,
     "'he' has no integer id"},
    {"a negative id", "\"he\":257", "\"he\":-1", NULL, NULL, GPT_EDATA,
     "id -1"},
    {"an id too large", "\"he\":257", "\"he\":70000", NULL, NULL,
     GPT_EDATA, "'he' has id 70000; 601 tokens have the ids 0 to 600"},
    {"an id twice", "\"he\":257", "\"he\":258", NULL, NULL, GPT_EDATA,
     "are both id 258"},
    {"a key twice", "\"he\":257", "\"!\":257", NULL, NULL, GPT_EDATA,
     "vocab.json"},
    {"a byte missing", "\"!\":0", "\"!!!\":0", NULL, NULL, GPT_EDATA,
     "no token for byte 0x21"},
    {"one token", NULL, NULL, "h e\n", "he\n", GPT_EDATA,
     "merges.txt:3: not two tokens"},
    {"three tokens", NULL, NULL, "h e\n", "h e e\n", GPT_EDATA,
     "merges.txt:3: not two tokens"},
    {"an empty token", NULL, NULL, "h e\n", "h \n", GPT_EDATA,
     "merges.txt:3: not two tokens"},
    {"a blank line", NULL, NULL, "h e\n", "\n", GPT_EDATA,
     "merges.txt:3: not two tokens"},
    {"an unknown left part", NULL, NULL, "h e\n", "hhh e\n", GPT_EDATA,
     "merges.txt:3: 'hhh' is not in"},
    {"an unknown right part", NULL, NULL, "h e\n", "h eee\n", GPT_EDATA,
     "merges.txt:3: 'eee' is not in"},
    {"an unknown result", NULL, NULL, "h e\n", "h q\n", GPT_EDATA,
     "merges.txt:3: 'hq' is not in"},
    {"a merge twice", NULL, NULL, "h e\n", "h e\nh e\n", GPT_EDATA,
     "merges number 2 and 3 are the same"},
};

static void test_bad_vocabularies(void)
{
    char dir[] = "/tmp/gpt-vocab.XXXXXX", vocab[64], merges[64];

    ok(mkdtemp(dir) != NULL, "scratch directory");
    snprintf(vocab, sizeof(vocab), "%s/vocab.json", dir);
    snprintf(merges, sizeof(merges), "%s/merges.txt", dir);
    for (size_t i = 0; i < GPT_COUNT(spoilt); i++) {
        struct gpt_tokenizer_options o = {.type = "GPT2BPETokenizer",
                                          .vocab_file = vocab,
                                          .merge_file = merges};
        struct gpt_tokenizer *tok = NULL;
        struct gpt_err err = {0};

        spoil(vocab, spoilt[i].vocab_from, spoilt[i].vocab_to,
              GOLDEN "vocab.json");
        spoil(merges, spoilt[i].merges_from, spoilt[i].merges_to,
              GOLDEN "merges.txt");
        int status = gpt_tokenizer_open(&tok, &o, &err);
        is_int(status, spoilt[i].status, "%s", spoilt[i].what);
        if (status == GPT_OK)
            gpt_tokenizer_close(tok);
        else if (!ok(strstr(err.text, spoilt[i].message), "says so"))
            printf("# %s\n", err.text);
    }
    unlink(vocab);
    struct gpt_tokenizer_options o = {.type = "GPT2BPETokenizer",
                                      .vocab_file = vocab,
                                      .merge_file = merges};
    struct gpt_tokenizer *tok;
    struct gpt_err err;
    is_int(gpt_tokenizer_open(&tok, &o, &err), GPT_EIO, "no vocab.json");
    o.merge_file = NULL;
    is_int(gpt_tokenizer_open(&tok, &o, &err), GPT_EUSAGE, "no merges named");
    unlink(merges);
    rmdir(dir);
}

int main(void)
{
    const char *dir = getenv("GPT2_VOCAB_DIR");

    test_letters();
    test_facts();
    test_golden("tests/golden/gpt2", GOLDEN "small.ids");
    test_golden(dir ? dir : "../shared/data/gpt2", GOLDEN "real.ids");
    test_long_piece();
    test_bytes_tokenizer();
    test_bad_vocabularies();
    return tap_done();
}
