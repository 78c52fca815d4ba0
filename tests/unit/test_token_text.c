/* Bytes of tokens: those of a text's tokens together are the bytes of the text,
 * in every family whose tokens keep the text as it is. Runs in the top folder
 * of the tree. */
#include "data/token_text.h"
#include "tests/lib/tap.h"

#define GOLDEN "tests/golden/families/"

static const struct {
    const char *type, *file;
} families[] = {
    {"ByteTokenizer", NULL},
    {"HuggingFaceTokenizer", GOLDEN "llama3.json"}, /* a BOS before each text */
    {"HuggingFaceTokenizer", GOLDEN "qwen2.json"},
    {"HuggingFaceTokenizer", GOLDEN "deepseek3.json"},
    {"HuggingFaceTokenizer", GOLDEN "starcoder.json"},
    {"SentencePieceTokenizer", GOLDEN "bpe.model"}, /* a space before it */
};

static const char *const texts[] = {
    "the cat sees", " a b  c", "x", "12 345", "The dog (and the cat) runs.\n",
};

/* Bytes of the tokens of a text, which follow the end of a document. */
static int64_t count(const struct gpt_token_text *t,
                     const struct gpt_tokenizer *tok, const char *text)
{
    struct gpt_encoder *enc = NULL;
    struct gpt_ids ids = {0};
    struct gpt_err err = {0};
    int32_t before = gpt_tokenizer_eod(tok);
    int64_t sum = 0;

    if (gpt_encoder_open(&enc, tok, &err) != GPT_OK ||
        gpt_encode(enc, text, strlen(text), &ids, &err) != GPT_OK)
        sum = -1;
    for (size_t i = 0; i < ids.len; i++) {
        sum += gpt_token_text_bytes(t, before, ids.data[i]);
        before = ids.data[i];
    }
    gpt_free(ids.data);
    gpt_encoder_close(enc);
    return sum;
}

static void test_family(const char *type, const char *file)
{
    const struct gpt_tokenizer_options o = {.type = type, .model = file};
    const int64_t others[] = {-1, 5};
    struct gpt_tokenizer *tok = NULL;
    struct gpt_token_text *t = NULL;
    struct gpt_err err = {0};

    if (!ok(gpt_tokenizer_open(&tok, &o, &err) == GPT_OK &&
                gpt_token_text_open(&t, tok, others, 0, &err) == GPT_OK,
            "%s %s", type, file ? file : ""))
        return;
    for (size_t i = 0; i < GPT_COUNT(texts); i++)
        is_int(count(t, tok, texts[i]), strlen(texts[i]), "'%s'", texts[i]);
    is_int(gpt_token_text_bytes(t, 7, gpt_tokenizer_eod(tok)), 0,
           "the end of a document is no text");
    is_int(gpt_token_text_bytes(t, 7, -1), 0, "nor is what is no token");
    is_int(gpt_token_text_bytes(t, 7, INT32_MAX), 0, "or past the vocabulary");
    gpt_token_text_close(t);
    if (ok(gpt_token_text_open(&t, tok, others, 2, &err) == GPT_OK, "others"))
        is_int(gpt_token_text_bytes(t, 7, 5), 0, "a token that is named");
    gpt_token_text_close(t);
    gpt_tokenizer_close(tok);
}

int main(void)
{
    for (size_t i = 0; i < GPT_COUNT(families); i++)
        test_family(families[i].type, families[i].file);
    return tap_done();
}
