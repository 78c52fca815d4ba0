/* A context and its continuation as ids: what a tokenizer puts around a text is
 * no part of a continuation, and a context without tokens is the beginning of a
 * text. Runs in the top folder of the tree. */
#include "generate/pair.h"
#include "base/io.h"
#include "tests/lib/tap.h"

#include <unistd.h>

#define GOLDEN "tests/golden/families/"
#define HF "HuggingFaceTokenizer"
#define SP "SentencePieceTokenizer"

enum { BEGIN = 2 }; /* the caller's token, where a tokenizer puts none */

/* llama3.json with its token, 300, behind a text in place of before it. */
static bool write_ending(const char *path)
{
    static const char token[] = "{\"SpecialToken\":{\"id\":"
                                "\"<|endoftext|>\",\"type_id\":0}},";
    static const char part[] = "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}";
    const size_t n = strlen(token), m = strlen(part);
    struct gpt_err err = {0};
    char *text = NULL;
    size_t len;

    if (gpt_read_file(GOLDEN "llama3.json", 1 << 20, &text, &len, &err) !=
        GPT_OK)
        return false;
    const char *at = strstr(text, token);
    FILE *f = at ? fopen(path, "w") : NULL;
    if (f)
        fprintf(f, "%.*s%s,%.*s%s", (int)(at - text), text, part, (int)n - 1,
                token, at + n + m);
    gpt_free(text);
    return f && fclose(f) == 0;
}

/* "2 300|88": a bar is behind the context. */
static void print_ids(const struct gpt_ids *ids, int64_t first, char *text,
                      size_t cap)
{
    size_t n = 0;

    *text = '\0';
    for (size_t i = 0; i < ids->len && n < cap; i++)
        n += (size_t)snprintf(text + n, cap - n, "%s%d",
                              i == 0                  ? ""
                              : (int64_t)i == first ? "|"
                                                      : " ",
                              ids->data[i]);
}

static void test_pair(const char *type, const char *file, const char *context,
                      const char *continuation, bool begins, const char *want)
{
    const struct gpt_tokenizer_options o = {.type = type, .model = file};
    const struct gpt_pair pair = {context, continuation, strlen(context),
                                  strlen(continuation)};
    struct gpt_pair_encoder e = {.begin = BEGIN, .begins = begins};
    struct gpt_tokenizer *tok = NULL;
    struct gpt_err err = {0};
    int64_t first = 0;
    char got[256] = "";

    if (gpt_tokenizer_open(&tok, &o, &err) == GPT_OK &&
        gpt_encoder_open(&e.encoder, tok, &err) == GPT_OK &&
        gpt_pair_encode(&e, &pair, &first, &err) == GPT_OK)
        print_ids(&e.ids, first, got, sizeof(got));
    is_str(got, want, "'%s' and '%s' with %s", context, continuation, file);
    if (*err.text)
        printf("# %s\n", err.text);
    gpt_encoder_close(e.encoder);
    gpt_pair_encoder_free(&e);
    gpt_tokenizer_close(tok);
}

int main(void)
{
    static const char before[] = GOLDEN "llama3.json";
    static const char none[] = GOLDEN "qwen2.json";
    static const char drops[] = GOLDEN "unigram.model"; /* U+0001 */
    char after[] = "/tmp/gpt-pair-XXXXXX";
    const int fd = mkstemp(after);

    if (!ok(fd >= 0 && write_ending(after), "a tokenizer of an end"))
        return tap_done();
    test_pair(HF, before, "x", "y", false, "300 87|88");
    test_pair(HF, before, "", "y", false, "300|88");
    test_pair(HF, before, "x", "y", true, "2 300 87|88");
    test_pair(HF, after, "x", "y", false, "87|88");
    test_pair(HF, after, "", "y", false, "2|88");
    test_pair(HF, none, "x", "y", false, "87|88");
    test_pair(HF, none, "  ", "y", false, "2|220 220 88");
    /* white space of any script goes to the continuation, and only what ends a
     * character that is whole */
    test_pair(HF, none, "x \u3000", "y", false, "87|220 159 222 222 88");
    test_pair(HF, none, "x\u00a0\x1f\u2003\xc2\x85", "y", false,
              "87|126 254 219 288 225 126 227 88");
    test_pair(HF, none, "x\x80", "y", false, "87 222|88");
    /* a token over the seam, 'or': the context keeps its own 'o' */
    test_pair(HF, none, "lo", "rx", false, "75 78|87");
    test_pair(SP, drops, "\x01", "the", false, "2|6");
    test_pair(SP, drops, "\x01", "the", true, "2|6");
    close(fd);
    unlink(after);
    return tap_done();
}
