/* Compares every family of tokenizers with the library of its files
 * (make_families.py, make_unigram.py, make_words.py and make_user_defined.py of
 * tests/golden);
 * ids to text, normalization, added tokens, and files that are refused. Runs in
 * the top folder of the tree. */
#include "base/hash.h"
#include "base/io.h"
#include "base/json.h"
#include "base/memory.h"
#include "tests/lib/tap.h"
#include "tokenizer/needle.h"
#include "tokenizer/pretok.h"
#include "tokenizer/text_steps.h"
#include "tokenizer/tokenizer.h"
#include "text/unicode_nfc.h"

#include <stdlib.h>
#include <unistd.h>

#define GOLDEN "tests/golden/families/"

static const cJSON *get(const cJSON *o, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(o, key);
}

static const char *text_of(const cJSON *o, const char *key)
{
    const cJSON *item = get(o, key);

    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static int open_file(struct gpt_tokenizer **tok, const char *type,
                     const char *path, struct gpt_err *err)
{
    struct gpt_tokenizer_options o = {.type = type, .model = path,
                                      .tiktoken_pattern = "cl100k"};

    *tok = NULL;
    return gpt_tokenizer_open(tok, &o, err);
}

/* ---- goldens ---- */

static bool same_ids(const struct gpt_ids *ids, const cJSON *want)
{
    size_t n = 0;

    for (const cJSON *i = want->child; i; i = i->next, n++)
        if (n >= ids->len || ids->data[n] != i->valueint)
            return false;
    return n == ids->len;
}

static bool decodes_to(const struct gpt_tokenizer *tok,
                       const struct gpt_ids *ids, const char *want)
{
    struct gpt_buf b = {0};
    bool begins = true;

    for (size_t i = 0; i < ids->len; i++) {
        size_t n;
        const char *bytes = gpt_next_bytes(tok, ids->data[i], &begins, &n);

        if (gpt_buf_add(&b, bytes, n) != GPT_OK)
            abort();
    }
    bool same = strcmp(b.data ? b.data : "", want) == 0;
    gpt_buf_free(&b);
    return same;
}

static void check_texts(const struct gpt_tokenizer *tok, const cJSON *texts,
                        const cJSON *c, const char *name)
{
    struct gpt_encoder *enc;
    struct gpt_err err = {0};
    const cJSON *want = get(c, "ids")->child;
    const cJSON *decoded = get(c, "decoded") ? get(c, "decoded")->child : NULL;

    ok(gpt_encoder_open(&enc, tok, &err) == GPT_OK, "%s: an encoder", name);
    int number = 0;
    for (const cJSON *t = texts->child; t;
         t = t->next, want = want->next, number++) {
        const char *text = t->valuestring;
        struct gpt_ids ids = {0};

        for (int again = 0; again < 2; again++) { /* from the caches */
            ids.len = 0;
            ok(gpt_encode(enc, text, strlen(text), &ids, &err) == GPT_OK &&
                   same_ids(&ids, want),
               "%s: ids of text %d", name, number);
        }
        if (decoded) {
            ok(decodes_to(tok, &ids, decoded->valuestring), "and back");
            decoded = decoded->next;
        }
        gpt_free(ids.data);
    }
    gpt_encoder_close(enc);
}

static void check_case(const cJSON *texts, const cJSON *c)
{
    char path[256], name[256];
    const char *tokens[8];
    const cJSON *list = get(c, "tokens");
    struct gpt_tokenizer_options o = {.type = text_of(c, "type"),
                                      .model = path,
                                      .special = text_of(c, "special"),
                                      .tiktoken_pattern =
                                          text_of(c, "pattern"),
                                      .special_tokens = {tokens, 0}};
    struct gpt_tokenizer *tok = NULL;
    struct gpt_err err = {0};

    snprintf(path, sizeof(path), GOLDEN "%s", text_of(c, "file"));
    snprintf(name, sizeof(name), "%s, %s", text_of(c, "file"), o.special);
    for (const cJSON *i = list ? list->child : NULL; i; i = i->next)
        tokens[o.special_tokens.n++] = i->valuestring;
    if (!ok(gpt_tokenizer_open(&tok, &o, &err) == GPT_OK, "%s", name)) {
        printf("# %s\n", err.text);
        return;
    }
    check_texts(tok, texts, c, name);
    gpt_tokenizer_close(tok);
}

static void test_golden(const char *path)
{
    cJSON *root;
    struct gpt_err err = {0};

    if (!ok(gpt_json_read(&root, path, 1 << 24, &err) == GPT_OK, "%s", path)) {
        printf("# %s\n", err.text);
        return;
    }
    for (const cJSON *c = get(root, "cases")->child; c; c = c->next)
        check_case(get(root, "texts"), c);
    cJSON_Delete(root);
}

static void test_goldens(void)
{
    test_golden(GOLDEN "cases.json");
    test_golden(GOLDEN "unigram.json");
    test_golden(GOLDEN "words.json");
}

/* Pieces that encoding never makes one after the other, as a model writes them;
 * what sentencepiece 0.2.3 prints for them. */
static void test_first_spaces(void)
{
    static const struct {
        const char *file;
        int32_t ids[3];
        size_t n;
        const char *text;
    } cases[] = {
        {"bpe.model", {323, 323}, 2, " "},
        {"unigram.model", {4, 4}, 2, ""},
        {"unigram.model", {4, 4, 6}, 3, "the"},
        {"unigram.model", {4, 6, 6}, 3, "the the"},
        {"unigram.model", {6, 4, 6}, 3, "the  the"},
        {"unigram.model", {4, 0, 6}, 3, " \xE2\x81\x87  the"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char path[256];
        const struct gpt_tokenizer_options o = {
            .type = "SentencePieceTokenizer", .model = path};
        struct gpt_tokenizer *tok = NULL;
        struct gpt_ids ids = {0};
        struct gpt_err err = {0};

        snprintf(path, sizeof(path), GOLDEN "%s", cases[i].file);
        if (gpt_tokenizer_open(&tok, &o, &err) != GPT_OK ||
            gpt_ids_add(&ids, cases[i].ids, cases[i].n, &err) != GPT_OK)
            abort();
        ok(decodes_to(tok, &ids, cases[i].text), "%s: first spaces, case %zu",
           cases[i].file, i);
        gpt_free(ids.data);
        gpt_tokenizer_close(tok);
    }
}

/* The first token of a text shows its prefix, and no mark of English has lost a
 * space; a token may have no text. Tokenizers 0.23.3 prints these. */
static void test_first_words(void)
{
    static const struct {
        int32_t ids[4];
        size_t n;
        const char *text;
    } cases[] = {
        {{49, 49, 5}, 3, "##inging hello"},
        {{5, 29, 5}, 3, "hello. hello"},
        {{29, 29}, 2, ".."},              {{62, 62}, 2, "do not don't"},
        {{5, 48, 48, 49}, 4, "helloing"}, {{33, 9, 45, 5}, 4, "' itn't hello"},
    };
    struct gpt_tokenizer *tok;
    struct gpt_err err = {0};

    is_int(open_file(&tok, "HuggingFaceTokenizer", GOLDEN "wordpiece.json",
                     &err), GPT_OK, "wordpiece.json");
    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        struct gpt_ids ids = {0};

        if (gpt_ids_add(&ids, cases[i].ids, cases[i].n, &err) != GPT_OK)
            abort();
        ok(decodes_to(tok, &ids, cases[i].text), "first words, case %zu", i);
        gpt_free(ids.data);
    }
    ok(gpt_token_exists(tok, 48) && !gpt_token_exists(tok, 999),
       "a token without text is one");
    is_int(gpt_special_token(tok, "[SEP]", 5), 3, "a special token's name");
    gpt_tokenizer_close(tok);
}

/* ---- user-defined pieces ---- */

/* The document of a case, made by the generator that make_user_defined.py
 * describes. */
static void make_document(struct gpt_buf *b, const cJSON *fragments,
                          uint32_t state, int length)
{
    const uint32_t n = (uint32_t)cJSON_GetArraySize(fragments);
    const char *texts[64];
    uint32_t i = 0;

    for (const cJSON *f = fragments->child; f; f = f->next)
        texts[i++] = f->valuestring;
    for (int k = 0; k < length; k++) {
        state = (state * 1103515245u + 12345u) & 0x7FFFFFFFu;
        const char *text = texts[(state >> 16) % n];

        if (gpt_buf_add(b, text, strlen(text)) != GPT_OK)
            abort();
    }
}

/* The SHA-256 of the ids, each in decimal with a line end. */
static void digest_ids(char hex[65], const struct gpt_ids *ids)
{
    struct gpt_buf b = {0};

    for (size_t i = 0; i < ids->len; i++)
        if (gpt_buf_printf(&b, "%d\n", (int)ids->data[i]) != GPT_OK)
            abort();
    gpt_sha256(hex, b.data ? b.data : "", b.len);
    gpt_buf_free(&b);
}

static void check_document(struct gpt_encoder *enc, const cJSON *fragments,
                           const cJSON *c)
{
    struct gpt_buf text = {0};
    struct gpt_ids ids = {0};
    struct gpt_err err = {0};
    char hex[65];
    int length = get(c, "length")->valueint;

    make_document(&text, fragments, (uint32_t)get(c, "seed")->valueint,
                  length);
    is_int(gpt_encode(enc, text.data, text.len, &ids, &err), GPT_OK,
           "%d fragments", length);
    digest_ids(hex, &ids);
    is_int((int64_t)ids.len, get(c, "tokens")->valueint, "tokens of %s",
           text_of(c, "file"));
    ok(strcmp(hex, text_of(c, "sha256")) == 0, "which are SentencePiece's");
    gpt_free(ids.data);
    gpt_buf_free(&text);
}

/* Unigram models whose user-defined pieces overlap each other and normal ones,
 * on documents of up to 20000 fragments: long ones show how such a piece is
 * scored, as the scores of all pieces add up. */
static void test_user_defined(void)
{
    cJSON *root;
    struct gpt_err err = {0};

    if (!ok(gpt_json_read(&root, GOLDEN "user_defined.json", 1 << 24, &err) ==
                GPT_OK,
            "user_defined.json")) {
        printf("# %s\n", err.text);
        return;
    }
    for (const cJSON *c = get(root, "cases")->child; c; c = c->next) {
        struct gpt_tokenizer *tok;
        struct gpt_encoder *enc;
        char path[256];

        snprintf(path, sizeof(path), GOLDEN "%s", text_of(c, "file"));
        if (!ok(open_file(&tok, "SentencePieceTokenizer", path, &err) ==
                        GPT_OK &&
                    gpt_encoder_open(&enc, tok, &err) == GPT_OK,
                "%s", path))
            break;
        check_document(enc, get(root, "fragments"), c);
        gpt_encoder_close(enc);
        gpt_tokenizer_close(tok);
    }
    cJSON_Delete(root);
}

/* The first token of a text drops the U+2581 before the text, and no space that
 * a user has defined. Texts are those of SentencePiece 0.2.1. */
static void test_kept_spaces(void)
{
    static const char model[] = "\x0A\x09\x0A\x05<unk>\x18\x02"
                                "\x0A\x06\x0A\x02 a\x18\x04"
                                "\x0A\x0B\x0A\x04\xE2\x96\x81" "a\x15"
                                "\0\0\x80\xBF"
                                "\x0A\x0A\x0A\x03\xE2\x96\x81\x15\0\0\x80\xBF";
    static const struct {
        int32_t ids[2];
        const char *want;
    } cases[] = {{{1, 2}, " a a"}, {{2, 1}, "a a"}, {{2, 2}, "a a"},
                 {{3, 1}, " a"}, {{3, 2}, "a"}};
    char path[] = "/tmp/gpt-families.XXXXXX";
    struct gpt_tokenizer *tok;
    struct gpt_err err = {0};
    int fd = mkstemp(path);

    ok(fd >= 0 && write(fd, model, sizeof(model) - 1) == sizeof(model) - 1 &&
           close(fd) == 0,
       "a model");
    if (!ok(open_file(&tok, "SentencePieceTokenizer", path, &err) == GPT_OK,
            "is read %s", err.text))
        return;
    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        int32_t two[2] = {cases[i].ids[0], cases[i].ids[1]};
        const struct gpt_ids ids = {.data = two, .len = 2};

        ok(decodes_to(tok, &ids, cases[i].want), "case %zu: '%s'", i,
           cases[i].want);
    }
    gpt_tokenizer_close(tok);
    unlink(path);
}

/* ---- the null tokenizer ---- */

static void test_null(void)
{
    static const struct {
        const char *text;
        int status;
        size_t n;
    } cases[] = {
        {"", GPT_OK, 0},          {"7", GPT_OK, 1},
        {"0 99 100", GPT_OK, 3},  {"101", GPT_EDATA, 0},
        {"1  2", GPT_EDATA, 1},   {"1 ", GPT_EDATA, 0},
        {" 1", GPT_EDATA, 0},     {"-1", GPT_EDATA, 0},
        {"1x", GPT_EDATA, 0},     {"99999999999999999999", GPT_EDATA, 0},
    };
    struct gpt_tokenizer_options o = {.type = "NullTokenizer",
                                      .vocab_size = 100};
    struct gpt_tokenizer *tok = NULL;
    struct gpt_encoder *enc;
    struct gpt_err err = {0};
    struct gpt_ids ids = {0};

    ok(gpt_tokenizer_open(&tok, &o, &err) == GPT_OK &&
           gpt_encoder_open(&enc, tok, &err) == GPT_OK, "NullTokenizer");
    is_int(gpt_tokenizer_vocab_size(tok), 101, "its size");
    is_int(gpt_tokenizer_eod(tok), 100, "its end of document");
    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        ids.len = 0;
        int status = gpt_encode(enc, cases[i].text, strlen(cases[i].text),
                                &ids, &err);
        is_int(status, cases[i].status, "'%s'", cases[i].text);
        is_int((int64_t)ids.len, (int64_t)cases[i].n, "its ids");
        if (status == GPT_OK)
            ok(decodes_to(tok, &ids, cases[i].text), "and back");
    }
    gpt_free(ids.data);
    gpt_encoder_close(enc);
    gpt_tokenizer_close(tok);
    o.vocab_size = 0;
    is_int(gpt_tokenizer_open(&tok, &o, &err), GPT_EUSAGE, "without a size");
}

/* ---- files that are wrong ---- */

/* Copies `from_path` to `path` and replaces the first `from` by `to`. */
static void spoil(const char *path, const char *from, const char *to,
                  const char *from_path)
{
    char *text;
    size_t len;
    struct gpt_err err = {0};
    FILE *f = fopen(path, "wb");

    if (!f || gpt_read_file(from_path, 1 << 24, &text, &len, &err) != GPT_OK)
        abort();
    char *at = from ? memmem(text, len, from, strlen(from)) : text + len;
    if (!at) {
        printf("# '%s' is not in %s\n", from, from_path);
        abort();
    }
    fwrite(text, 1, (size_t)(at - text), f);
    fwrite(to, 1, strlen(to), f);
    at += from ? strlen(from) : 0;
    fwrite(at, 1, len - (size_t)(at - text), f);
    fclose(f);
    gpt_free(text);
}

/* A good file, and what is changed in it. */
#define HF "HuggingFaceTokenizer"
#define A16 "aaaaaaaaaaaaaaaa"
/* Steps that are one more than there may be. */
#define TWICE(step) step "," step ","
#define NFC "{\"type\":\"NFC\"}"
#define NFC_4 TWICE(NFC) TWICE(NFC)
#define DIGITS "{\"type\":\"Digits\"}"
#define DIGITS_4 TWICE(DIGITS) TWICE(DIGITS)
#define GROW                                                                   \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}," A_FOR_A
#define A_FOR_A "\"content\":\"" A16 A16 A16 A16 "\"},"
#define SP "SentencePieceTokenizer"
static const struct {
    const char *what, *type, *file, *from, *to, *message;
} bad_files[] = {
    {"not JSON", HF, "qwen2.json", "{", "[", "not JSON"},
    {"an end too soon", HF, "qwen2.json", "\"merges\":[[\"h\",\"e\"]",
     "\"merges\":[[\"h\",\"e\"]}", "where ',' or ']' was expected"},
    {"a vocabulary that is a list", HF, "qwen2.json", "\"vocab\":{\"!\":0",
     "\"vocab\":[0],\"other\":{\"!\":0",
     "model.vocab: not an object of tokens and ids"},
    {"a vocabulary twice", HF, "qwen2.json", "\"vocab\":{\"!\":0",
     "\"vocab\":0,\"vocab\":{\"!\":0", "duplicate key 'vocab'"},
    {"a token twice", HF, "qwen2.json", "\"#\":2", "\"!\":2",
     "token '!' comes twice"},
    {"an id that is no number", HF, "qwen2.json", "\"#\":2", "\"#\":[2]",
     "token '#' has no integer id"},
    {"an id far away", HF, "qwen2.json", "\"#\":2", "\"#\":99999999999",
     "token '#' has id"},
    {"no merges", HF, "qwen2.json", "\"merges\":", "\"margins\":",
     "model.merges: not an array"},
    {"merges in an object", HF, "qwen2.json", "\"merges\":[[\"h\",\"e\"]",
     "\"merges\":{},\"other\":[[\"h\",\"e\"]",
     "model.merges: not an array"},
    {"a merge of three", HF, "qwen2.json", "[\"h\",\"e\"]",
     "[\"h\",\"e\",\"e\"]", "merges: merge number 1 is not a pair of tokens"},
    {"a merge of one", HF, "qwen2.json", "[\"h\",\"e\"]", "[\"h\"]",
     "merges: merge number 1 is not a pair of tokens"},
    {"a merge of numbers", HF, "qwen2.json", "[\"h\",\"e\"]", "[1,2]",
     "merges: merge number 1 is not a pair of tokens"},
    {"a merge that is a number", HF, "qwen2.json", "[\"h\",\"e\"]", "12",
     "merges: merge number 1 is not a pair of tokens"},
    {"a merge in a string", HF, "qwen2.json", "[\"t\",\"he\"]",
     "\"t he e\"", "model.merges:3: not two tokens"},
    {"another model", HF, "qwen2.json", "\"type\":\"BPE\"",
     "\"type\":\"WordPieces\"", "model.type: 'WordPieces' is not supported"},
    {"words without an unknown one", HF, "wordpiece.json", "\"unk_token\"",
     "\"no_token\"", "unk_token"},
    {"parts without a prefix", HF, "wordpiece.json",
     "\"continuing_subword_prefix\"", "\"prefix\"",
     "continuing_subword_prefix"},
    {"words of no length", HF, "wordpiece.json",
     "\"max_input_chars_per_word\":100", "\"max_input_chars_per_word\":-1",
     "max_input_chars_per_word"},
    {"a word far away", HF, "wordpiece.json", "\"hello\":5",
     "\"hello\":500000", "model.vocab: token 'hello' has id 500000"},
    {"words in a list", HF, "wordlevel.json", "\"vocab\":{",
     "\"vocab\":[],\"x\":{", "model.vocab: not an object of tokens and ids"},
    {"no words", HF, "wordlevel.json", "\"vocab\":{",
     "\"vocab\":{},\"x\":{", "model.vocab has no tokens"},
    {"WordPiece after another decoder", HF, "wordpiece.json",
     "\"decoder\":{\"type\"",
     "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},"
     "{\"type\":\"WordPiece\",\"prefix\":\"##\"}],\"x\"",
     "decoder.decoders[1].type after another: 'WordPiece'"},
    {"a decoder without its prefix", HF, "wordpiece.json", "\"prefix\"",
     "\"x\"", "decoder.prefix: 'no text' is not supported"},
    {"dropout", HF, "qwen2.json", "\"dropout\":null", "\"dropout\":0.1",
     "model.dropout"},
    {"a suffix", HF, "qwen2.json", "\"end_of_word_suffix\":null",
     "\"end_of_word_suffix\":\"</w>\"", "'</w>' is not supported"},
    {"another normalizer", HF, "qwen2.json", "\"type\":\"NFC\"",
     "\"type\":\"NFKC\"", "normalizer.type: 'NFKC' is not supported"},
    {"an unknown pattern", HF, "qwen2.json", "\\\\p{N}|", "\\\\p{N}{2}|",
     "pre_tokenizer.pattern"},
    {"another behaviour", HF, "qwen2.json", "\"Isolated\"",
     "\"MergedWithNext\"", "MergedWithNext"},
    {"another pre-tokenizer", HF, "space.json", "\"ByteLevel\"",
     "\"Metaspace\"", "pre_tokenizer.replacement: '' is not supported"},
    {"another decoder", HF, "space.json", "\"decoder\":{\"type\":\"Byte",
     "\"decoder\":{\"type\":\"Bite", "decoder.type: 'BiteLevel'"},
    {"another post-processor", HF, "llama3.json", "\"TemplateProcessing\"",
     "\"AnyProcessing\"", "post_processor.type: 'AnyProcessing'"},
    {"a post-processor without its tokens", HF, "llama3.json",
     "\"TemplateProcessing\"", "\"BertProcessing\"",
     "post_processor.cls: no list of a text and an id"},
    {"another version", HF, "qwen2.json", "\"version\":\"1.0\"",
     "\"version\":\"2.0\"", "version '2.0' is not supported, only 1.0"},
    {"a version that is a number", HF, "qwen2.json", "\"version\":\"1.0\"",
     "\"version\":1.0", "version is no string"},
    {"a member that there is not", HF, "qwen2.json", "\"truncation\"",
     "\"truncations\"", "'truncations' is no member of a tokenizer.json"},
    {"an unknown template", HF, "llama3.json", "\"ids\":[300]",
     "\"ids\":[9999]", "post_processor: token id is 9999"},
    {"an added token at another's id", HF, "qwen2.json", "{\"id\":300",
     "{\"id\":5", "another token has id 5"},
    {"an added token after a gap", HF, "qwen2.json", "{\"id\":304",
     "{\"id\":306", "has id 306, but Hugging Face's library would give it 304"},
    {"added tokens in disorder", HF, "qwen2.json", "{\"id\":300",
     "{\"id\":301", "has id 301, but Hugging Face's library would give it 300"},
    {"an added token far away", HF, "qwen2.json", "{\"id\":300",
     "{\"id\":30000000", "out of range"},
    {"an added token twice", HF, "qwen2.json", "<|im_start|>",
     "<|endoftext|>", "are both '<|endoftext|>'"},
    {"a byte without a token", HF, "chars-first.json", "<0xF0>", "<0xf0>",
     "model.vocab: no token '<0xF0>'"},
    {"a space without a token", HF, "chars-first.json", "\"\u2581\":",
     "\"_\u2581\":", "model.vocab: no token '\u2581'"},
    {"a merge with a byte", HF, "chars-first.json", "[\"h\",\"e\"]",
     "[\"<0x41>\",\"e\"]", "merges:1: '<0x41>e' is not in"},
    {"no bytes to fall back to", HF, "chars-first.json",
     "\"byte_fallback\":true", "\"byte_fallback\":false",
     "model.byte_fallback: 'false' is not supported"},
    {"whole texts as tokens", HF, "chars-first.json",
     "\"ignore_merges\":false", "\"ignore_merges\":true",
     "model.ignore_merges: 'true' is not supported"},
    {"words split apart", HF, "chars-first.json", "\"split\":false",
     "\"split\":true", "pre_tokenizer.split: 'true' is not supported"},
    {"another scheme", HF, "chars-first.json", "\"first\"", "\"last\"",
     "pre_tokenizer.prepend_scheme: 'last' is not supported"},
    {"another replacement", HF, "chars-first.json",
     "\"replacement\":\"\u2581\"", "\"replacement\":\"_\"",
     "pre_tokenizer.replacement: '_' is not supported"},
    {"a decoder that drops more", HF, "chars-first.json", "\"start\":1",
     "\"start\":2", "decoder.decoders[3].start: 'not 1' is not supported"},
    {"a decoder without bytes", HF, "chars-first.json",
     "{\"type\":\"ByteFallback\"},", "",
     "decoder.decoders[1].type: 'Fuse' is not supported"},
    {"a decoder of one step", HF, "chars-never.json",
     ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}", "",
     "less than Replace, ByteFallback and Fuse"},
    {"another text before", HF, "chars-prepend.json",
     "\"prepend\":\"\u2581\"", "\"prepend\":\"_\"",
     "normalizer.normalizers[0].prepend: '_' is not supported"},
    {"Prepend alone", HF, "chars-prepend.json", "\"type\":\"Replace\"",
     "\"type\":\"Prepend\",\"prepend\":\"\u2581\"", "a second Prepend"},
    {"another Replace", HF, "chars-replace.json", "\"String\":\" \"",
     "\"String\":\"x\"", "normalizer.content: '\u2581' is not supported"},
    {"another step after Replace", HF, "chars-replace.json", "\"Split\"",
     "\"ByteLevel\"", "type after U+2581 for spaces: 'ByteLevel'"},
    {"white space around a normalized token", HF, "chars-replace.json",
     "\"rstrip\":false,\"normalized\":true",
     "\"rstrip\":true,\"normalized\":true",
     "rstrip with normalized is not supported"},
    {"an added token at another's id", HF, "chars-first.json",
     "\"id\":0,\"content\":\"<unk>\"", "\"id\":3,\"content\":\"<unk>\"",
     "in model.vocab it has id 0"},
    {"an object for a list of scores", HF, "unigram-t5.json", "\"vocab\":[",
     "\"vocab\":{},\"x\":[", "where a list of tokens and scores"},
    {"a score that is a text", HF, "unigram-t5.json", "[\"<unk>\",0.0]",
     "[\"<unk>\",\"0\"]", "where a score was expected"},
    {"a score that is no number", HF, "unigram-t5.json", "[\"<unk>\",0.0]",
     "[\"<unk>\",NaN]", "where a score was expected"},
    {"a score too large", HF, "unigram-t5.json", "[\"<unk>\",0.0]",
     "[\"<unk>\",-1e309]", "the score of token 0 is too large"},
    {"a token without a score", HF, "unigram-t5.json", "[\"<unk>\",0.0]",
     "[\"<unk>\"]", "where a comma was expected"},
    {"an unknown token far away", HF, "unigram-t5.json", "\"unk_id\":0",
     "\"unk_id\":99999", "unk_id"},
    {"a map that is no base64", HF, "unigram-t5.json",
     "\"precompiled_charsmap\":\"", "\"precompiled_charsmap\":\"*",
     "precompiled_charsmap is not base64"},
    {"a map without rules", HF, "unigram-t5.json",
     "\"precompiled_charsmap\":\"",
     "\"precompiled_charsmap\":\"AAAA\",\"x\":\"", "is malformed"},
    {"another normalizer of a unigram", HF, "unigram-t5.json", "\"Strip\"",
     "\"ByteLevel\"",
     "normalizer.normalizers[1].type: 'ByteLevel' is not supported"},
    {"another expression", HF, "unigram-t5.json", " {2,}", " {2,3}",
     "normalizer.normalizers[2].pattern: ' {2,3}' is not supported"},
    {"another pre-tokenizer of a unigram", HF, "unigram-albert.json",
     "\"WhitespaceSplit\"", "\"UnicodeScripts\"",
     "pre_tokenizer.pretokenizers[0].type: 'UnicodeScripts'"},
    {"a scheme that is none", HF, "unigram-albert.json", "\"first\"",
     "\"last\"", "prepend_scheme: 'last' is not supported"},
    {"another behaviour of a unigram", HF, "unigram-albert.json",
     "\"Isolated\"", "\"Apart\"", "behavior: 'Apart' is not supported"},
    {"another decoder of a unigram", HF, "unigram-bytes.json", "\"Fuse\"",
     "\"CTC\"", "decoder.decoders[2].type: 'CTC' is not supported"},
    {"a decoder that strips each token", HF, "unigram-bytes.json",
     "{\"type\":\"Fuse\"},", "", "Strip without Fuse before it"},
    {"a normalizer that makes much of little", HF, "unigram-albert.json",
     "\"normalizers\":[", "\"normalizers\":[" GROW GROW GROW GROW,
     "the normalizer makes more than 1049856 bytes of a text"},
    {"a decoder that makes much of little", HF, "unigram-bytes.json",
     "\"decoders\":[", "\"decoders\":[" GROW GROW GROW,
     "the decoder makes more than 65536 bytes of a token"},
    {"a normalizer of too many steps", HF, "unigram-albert.json",
     "\"normalizers\":[",
     "\"normalizers\":[" NFC_4 NFC_4 NFC_4 NFC_4 NFC_4 NFC_4,
     "normalizer.normalizers[24].type: 'more than 24 steps' is not supported"},
    {"a pre-tokenizer of too many steps", HF, "unigram-albert.json",
     "\"pretokenizers\":[", "\"pretokenizers\":[" DIGITS_4 DIGITS_4,
     "pre_tokenizer.pretokenizers[8].type: 'more than 8 steps' is not"},
    {"a decoder of too many steps", HF, "unigram-bytes.json",
     "\"decoders\":[", "\"decoders\":[" GROW GROW GROW GROW,
     "decoder.decoders[4].type: 'more than 4 of Replace' is not supported"},
    {"no base64", "TikTokenizer", "small.tiktoken", "AA== 0", "A*== 0",
     ":1: the token is not base64"},
    {"no rank", "TikTokenizer", "small.tiktoken", "AQ== 1", "AQ==",
     ":2: not a token"},
    {"a rank twice", "TikTokenizer", "small.tiktoken", "AQ== 1", "AQ== 0",
     ":2: the rank is there twice"},
    {"a rank too high", "TikTokenizer", "small.tiktoken", "AQ== 1",
     "AQ== 99999999", ":2: the rank is out of range"},
    {"a token twice", "TikTokenizer", "small.tiktoken", "AQ== 1", "AA== 1",
     "ranks 0 and 1 are the same token"},
    {"a byte missing", "TikTokenizer", "small.tiktoken", "AQ== 1\n", "",
     "no token for byte 0x01"},
    {"no model", SP, "small.tiktoken", "AA== 0", "\xff\xff\xff",
     "not a SentencePiece model"},
    {"a piece cut short", SP, "bpe.model", "\n", "\n\x7f\x7f",
     "not a SentencePiece model"},
    {"no bytes", SP, "bpe.model", "<0x41>", "<0x42>", "there twice"},
    {"no unknown piece", SP, "bpe.model", "<unk>\x15", "<unk>\x0f",
     "not a SentencePiece model"},
};

static void test_bad_files(void)
{
    char dir[] = "/tmp/gpt-families.XXXXXX", path[64], from[256];

    ok(mkdtemp(dir) != NULL, "scratch directory");
    snprintf(path, sizeof(path), "%s/file", dir);
    for (size_t i = 0; i < GPT_COUNT(bad_files); i++) {
        struct gpt_tokenizer *tok;
        struct gpt_err err = {0};

        snprintf(from, sizeof(from), GOLDEN "%s", bad_files[i].file);
        spoil(path, bad_files[i].from, bad_files[i].to, from);
        int status = open_file(&tok, bad_files[i].type, path, &err);
        is_int(status, GPT_EDATA, "%s", bad_files[i].what);
        if (status == GPT_OK)
            gpt_tokenizer_close(tok);
        if (!ok(strstr(err.text, bad_files[i].message), "says so"))
            printf("# %s\n", err.text);
    }
    unlink(path);
    struct gpt_tokenizer *tok;
    struct gpt_err err;
    is_int(open_file(&tok, HF, path, &err), GPT_EIO, "no file");
    is_int(open_file(&tok, HF, NULL, &err), GPT_EUSAGE, "none named");
    rmdir(dir);
}

/* A token of a byte more than there may be. */
static void test_long_tokens(void)
{
    enum { LONG = 65537, BASE64 = (LONG + 2) / 3 * 4 };
    static const struct {
        const char *type, *file, *from, *before, *after, *message;
        int letters;
    } rows[] = {
        {"TikTokenizer", "small.tiktoken", "AQ== 1\n", "", "= 1\n",
         ":2: the token has 65537 bytes, must have at most 65536", BASE64 - 1},
        {HF, "qwen2.json", "\"<|im_start|>\"", "\"", "\"",
         "has 65537 bytes, must have at most 65536", LONG},
        {HF, "qwen2.json", "\"vocab\":{", "\"vocab\":{\"", "\":999,",
         "token 999 has 65537 bytes, must have at most 65536", LONG},
        {HF, "wordpiece.json", "\"vocab\":{", "\"vocab\":{\"", "\":999,",
         "token 999 has 65537 bytes, must have at most 65536", LONG},
        {SP, "bpe.model", NULL, "\n\x85\x80\x04\n\x81\x80\x04", "",
         "a piece of more than 65536 bytes", LONG},
    };
    static char path[] = "/tmp/gpt-families.XXXXXX", to[BASE64 + 32];
    char from[256];
    const int fd = mkstemp(path);

    ok(fd >= 0 && close(fd) == 0, "scratch file");
    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        struct gpt_tokenizer *tok;
        struct gpt_err err = {0};
        const int n = sprintf(to, "%s", rows[i].before);

        memset(to + n, 'A', (size_t)rows[i].letters);
        strcpy(to + n + rows[i].letters, rows[i].after);
        snprintf(from, sizeof(from), GOLDEN "%s", rows[i].file);
        spoil(path, rows[i].from, to, from);
        is_int(open_file(&tok, rows[i].type, path, &err), GPT_EDATA,
               "a token too long: %s", rows[i].file);
        if (!ok(strstr(err.text, rows[i].message), "says so"))
            printf("# %s\n", err.text);
    }
    unlink(path);
}

/* Without an unknown token only a text that needs one is bad, as in the
 * library. */
static void test_no_unknown_token(void)
{
    char path[] = "/tmp/gpt-families.XXXXXX";
    struct gpt_tokenizer *tok;
    struct gpt_encoder *enc;
    struct gpt_ids ids = {0};
    struct gpt_err err = {0};
    int fd = mkstemp(path);

    ok(fd >= 0 && close(fd) == 0, "scratch file");
    spoil(path, "\"unk_id\":0", "\"unk_id\":null", GOLDEN "unigram-t5.json");
    if (ok(open_file(&tok, HF, path, &err) == GPT_OK &&
               gpt_encoder_open(&enc, tok, &err) == GPT_OK,
           "a model without an unknown token")) {
        ok(gpt_encode(enc, "the", 3, &ids, &err) == GPT_OK && ids.len > 0,
           "reads what it knows");
        is_int(gpt_encode(enc, "the \xE6\xBC\xA2", 7, &ids, &err), GPT_EDATA,
               "and nothing else");
        ok(strstr(err.text, "no token for '\xE6\xBC\xA2'"), "%s", err.text);
        gpt_encoder_close(enc);
        gpt_tokenizer_close(tok);
    }
    gpt_free(ids.data);
    unlink(path);
}

/* ---- changed copies of qwen2.json ---- */

/* Compares a text's ids with the library's, and closes the tokenizer. */
static void check_ids(struct gpt_tokenizer *tok, const char *text,
                      const cJSON *want)
{
    struct gpt_encoder *enc;
    struct gpt_ids ids = {0};
    struct gpt_err err = {0};

    ok(gpt_encoder_open(&enc, tok, &err) == GPT_OK &&
           gpt_encode(enc, text, strlen(text), &ids, &err) == GPT_OK &&
           same_ids(&ids, want),
       "the library's ids");
    gpt_free(ids.data);
    gpt_encoder_close(enc);
    gpt_tokenizer_close(tok);
}

/* Ids of words may leave gaps, as the library's trainer makes them. */
static void test_word_gap(void)
{
    char path[] = "/tmp/gpt-families.XXXXXX";
    struct gpt_tokenizer *tok;
    struct gpt_err err = {0};
    cJSON *want = cJSON_Parse("[2,63,3]");
    size_t n = 9;
    int fd = mkstemp(path);

    ok(fd >= 0 && close(fd) == 0, "scratch file");
    spoil(path, "\"hello\":5", "\"hello\":63", GOLDEN "wordpiece.json");
    if (ok(open_file(&tok, HF, path, &err) == GPT_OK, "a gap: %s", err.text)) {
        ok(!gpt_token_exists(tok, 5) && gpt_token_exists(tok, 63), "is none");
        ok(gpt_first_bytes(tok, 5, &n) && n == 0, "without text");
        check_ids(tok, "Hello", want);
    }
    cJSON_Delete(want);
    unlink(path);
}

/* Old files do not say which model they have; tokenizers 0.23.3 finds it. */
static void test_word_types(void)
{
    static const struct {
        const char *file, *type, *ids;
    } cases[] = {
        {GOLDEN "wordpiece.json", "\"type\":\"WordPiece\",\"unk",
         "[2,8,49,3]"},
        {GOLDEN "wordlevel.json", "\"type\":\"WordLevel\",\"vocab", "[1]"},
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        char path[] = "/tmp/gpt-families.XXXXXX";
        struct gpt_tokenizer *tok;
        struct gpt_err err = {0};
        cJSON *want = cJSON_Parse(cases[i].ids);
        int fd = mkstemp(path);

        ok(fd >= 0 && close(fd) == 0, "scratch file");
        spoil(path, cases[i].type, strrchr(cases[i].type, ',') + 1,
              cases[i].file);
        if (ok(open_file(&tok, HF, path, &err) == GPT_OK,
               "%s without a type: %s", cases[i].file, err.text))
            check_ids(tok, "lowing", want);
        cJSON_Delete(want);
        unlink(path);
    }
}

/* Calls `check` with the cases of a golden file; at `path` it makes a copy for
 * each. */
static void each_case(const char *golden,
                      void (*check)(const char *path, const cJSON *root,
                                    const cJSON *c))
{
    char path[] = "/tmp/gpt-families.XXXXXX";
    struct gpt_err err = {0};
    cJSON *root;
    int fd = mkstemp(path);

    ok(fd >= 0 && close(fd) == 0, "scratch file");
    if (!ok(gpt_json_read(&root, golden, 1 << 24, &err) == GPT_OK, "%s",
            golden))
        return;
    for (const cJSON *c = get(root, "cases")->child; c; c = c->next)
        check(path, root, c);
    cJSON_Delete(root);
    unlink(path);
}

/* The ids are the library's; none mean that it fails, or that the text is not
 * in the template once, which is refused here. */
static void check_template(const char *path, const cJSON *root, const cJSON *c)
{
    char *processor = cJSON_PrintUnformatted(get(c, "post_processor"));
    struct gpt_buf member = {0};
    struct gpt_tokenizer *tok;
    struct gpt_err err = {0};

    if (!processor ||
        gpt_buf_printf(&member, "\"post_processor\":%s", processor) != GPT_OK)
        abort();
    spoil(path, "\"post_processor\":null", member.data, GOLDEN "qwen2.json");
    bool refused = cJSON_IsNull(get(c, "ids"));
    is_int(open_file(&tok, HF, path, &err), refused ? GPT_EDATA : GPT_OK,
           "%.160s", processor);
    if (tok)
        check_ids(tok, text_of(root, "text"), get(c, "ids"));
    gpt_buf_free(&member);
    cJSON_free(processor);
}

/* More added tokens after those of qwen2.json. White space with flags above
 * all: one token may take another's (tests/golden/make_added.py). */
static void check_added(const char *path, const cJSON *root, const cJSON *c)
{
    char *added = cJSON_PrintUnformatted(get(c, "added"));
    struct gpt_buf members = {0};
    struct gpt_tokenizer *tok;
    struct gpt_err err = {0};

    (void)root;
    if (!added || gpt_buf_printf(&members, ",%s,\"normalizer\"", added + 1) !=
                      GPT_OK)
        abort();
    spoil(path, "],\"normalizer\"", members.data, GOLDEN "qwen2.json");
    if (ok(open_file(&tok, HF, path, &err) == GPT_OK, "tokens %.160s", added))
        check_ids(tok, text_of(c, "text"), get(c, "ids"));
    gpt_buf_free(&members);
    cJSON_free(added);
}

/* An added token that is one of the vocabulary, in letters of bytes that are no
 * UTF-8: merges make it in other texts, as they do without it. */
static void test_added_bytes(void)
{
    static const char quote[] = "\xE2\x80\x99 \xE2\x80\xA6";
    char path[] = "/tmp/gpt-families.XXXXXX";
    struct gpt_ids ids[2] = {{0}, {0}};
    int fd = mkstemp(path);

    ok(fd >= 0 && close(fd) == 0, "scratch file");
    spoil(path, "\"added_tokens\":[",
          "\"added_tokens\":[{\"id\":288,\"content\":\"\u00e2\u0122\"},",
          GOLDEN "qwen2.json");
    for (int i = 0; i < 2; i++) {
        struct gpt_tokenizer *tok;
        struct gpt_encoder *enc;
        struct gpt_err err = {0};

        if (!ok(open_file(&tok, HF, i ? path : GOLDEN "qwen2.json", &err) ==
                        GPT_OK &&
                    gpt_encoder_open(&enc, tok, &err) == GPT_OK,
                "file %d", i))
            return;
        ok(gpt_encode(enc, quote, strlen(quote), &ids[i], &err) == GPT_OK,
           "encodes");
        gpt_encoder_close(enc);
        gpt_tokenizer_close(tok);
    }
    ok(ids[0].len == ids[1].len &&
           memcmp(ids[0].data, ids[1].data,
                  ids[0].len * sizeof(*ids[0].data)) == 0,
       "the same ids");
    gpt_free(ids[0].data);
    gpt_free(ids[1].data);
    unlink(path);
}

/* A token that is found in normalized text is printed in that form, but for
 * the name of a special one. */
static void test_printed_form(void)
{
    static const struct {
        const char *special, *want;
    } cases[] = {{"false", "\xC3\x85"}, {"true", "\xE2\x84\xAB"}};
    char path[] = "/tmp/gpt-families.XXXXXX", member[160];
    int fd = mkstemp(path);

    ok(fd >= 0 && close(fd) == 0, "scratch file");
    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        struct gpt_tokenizer *tok;
        struct gpt_err err = {0};
        int32_t id = 305;
        const struct gpt_ids ids = {.data = &id, .len = 1};

        snprintf(member, sizeof(member), ",{\"id\":305,\"content\":\"\u212b\","
                 "\"normalized\":true,\"special\":%s}],\"normalizer\"",
                 cases[i].special);
        spoil(path, "],\"normalizer\"", member, GOLDEN "qwen2.json");
        if (!ok(open_file(&tok, HF, path, &err) == GPT_OK, "an angstrom sign"))
            continue;
        ok(decodes_to(tok, &ids, cases[i].want), "special is %s",
           cases[i].special);
        gpt_tokenizer_close(tok);
    }
    unlink(path);
}

/* A merge as a string, a letter by its number: the same tokenizer. */
static void test_other_forms(void)
{
    static const char *const forms[][2] = {
        {NULL, ""},
        {"[\"h\",\"e\"]", "\"h e\""},
        {"[\"t\",\"he\"]", " [ \"\\u0074\" ,\n\"he\" ] "},
        {"\"#\":2", "\"\\u0023\" : 2"},
    };
    static const char text[] = "the end of them all # her";
    char path[] = "/tmp/gpt-families.XXXXXX";
    struct gpt_ids want = {0};
    int fd = mkstemp(path);

    ok(fd >= 0, "scratch file");
    close(fd);
    for (size_t i = 0; i < GPT_COUNT(forms); i++) {
        struct gpt_tokenizer *tok;
        struct gpt_encoder *enc;
        struct gpt_ids ids = {0};
        struct gpt_err err = {0};

        spoil(path, forms[i][0], forms[i][1], GOLDEN "qwen2.json");
        if (!ok(open_file(&tok, HF, path, &err) == GPT_OK, "form %zu", i)) {
            printf("# %s\n", err.text);
            continue;
        }
        ok(gpt_encoder_open(&enc, tok, &err) == GPT_OK &&
               gpt_encode(enc, text, strlen(text), &ids, &err) == GPT_OK,
           "encodes");
        if (i == 0)
            want = ids;
        ok(ids.len == want.len &&
               memcmp(ids.data, want.data, ids.len * sizeof(*ids.data)) == 0,
           "to the same ids");
        if (i > 0)
            gpt_free(ids.data);
        gpt_encoder_close(enc);
        gpt_tokenizer_close(tok);
    }
    gpt_free(want.data);
    unlink(path);
}

/* ---- patterns ---- */

/* Texts between bars, as transformers writes pieces that a user has defined.
 * Expected places are those of Python's re. */
static void test_lists(void)
{
    static const struct {
        const char *regex, *text;
        int begin, end; /* of the first match; -1: none, -2: refused */
    } cases[] = {
        {"ab|a\\.|\\|", "xa|", 2, 3},
        {"ab|a\\.|\\|", "xa.b", 1, 3},
        {"a|ab", "xab", 1, 2},
        {"ab|a", "xab", 1, 3},
        {"abcd|bc", "abcx", 1, 3},
        {"\\\n\\\n|\\\n", "a\n\nb", 1, 3},
        {"\\n\\n|\\ \\-", "a -", 1, 3},
        {"\xE2\x96\x81\xE2\x96\x81|<s>", "\xE2\x96\x81<s>", 3, 6},
        {"ab|c", "acc", 1, 2},
        {"ab|c", "ax", -1, 0},
        {"a\\.b", "a.b", 0, 3},
        {"a||b", "", -2, 0},
        {"a|", "", -2, 0},
        {"a|b+", "", -2, 0},
        {"a|\\d", "", -2, 0},
        {"a|\\", "", -2, 0},
        {"a|(b)", "", -2, 0},
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        struct gpt_arena arena = {0};
        struct gpt_needle needle;
        const char *shown;
        size_t begin = 0, end = 0;
        cJSON *item = cJSON_CreateObject();

        cJSON_AddStringToObject(item, "Regex", cases[i].regex);
        bool known = gpt_needle_read(&needle, item, &arena, &shown);
        is_int(known, cases[i].begin != -2, "'%s' is known", cases[i].regex);
        if (known) {
            bool found = gpt_needle_find(&needle, cases[i].text,
                                         strlen(cases[i].text), 0, &begin,
                                         &end);

            is_int(found, cases[i].begin != -1, "is it there");
            ok(!found || ((int)begin == cases[i].begin &&
                          (int)end == cases[i].end),
               "at its place: %zu to %zu", begin, end);
        }
        cJSON_Delete(item);
        gpt_arena_free(&arena);
    }
}

/* ---- normalization ---- */

static void test_nfc(void)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"e\u0301", "\u00e9"},
        {"\u212b", "\u00c5"},                        /* one to one */
        {"\u1100\u1161\u11a8", "\uac01"},            /* Hangul */
        {"\uac00\u11a8", "\uac01"},
        {"q\u0307\u0323", "q\u0323\u0307"},          /* order of marks */
        {"\u0958", "\u0915\u093c"},                  /* never composed */
        {"a\u0315\u0300", "\u00e0\u0315"},           /* over another mark */
        {"\xff" "e\u0301\xff", "\xff\u00e9\xff"},    /* stray bytes */
        {"\u0301x", "\u0301x"},
        /* newer than the library's tables: marks keep their place, and join
         * nothing */
        {"a\u0345\u1abf", "a\u0345\u1abf"},
        {"a\u08d3\u05b0", "a\u08d3\u05b0"},
        {"\U00011935\U00011930", "\U00011935\U00011930"},
        {"\U000105d2\u0307", "\U000105d2\u0307"},
        {"a\u0345\u1abd", "a\u1abd\u0345"}, /* of 7.0 */
    };

    for (size_t i = 0; i < GPT_COUNT(cases); i++) {
        struct gpt_buf b = {0};
        struct gpt_err err;
        const char *text = cases[i].text;

        ok(gpt_nfc(&b, text, strlen(text), &err) == GPT_OK &&
               strcmp(b.data ? b.data : "", cases[i].want) == 0,
           "form C of text %zu", i);
        bool same = strcmp(text, cases[i].want) == 0;
        ok(same || gpt_nfc_stable(text, strlen(text)) < strlen(text),
           "and whether it had to change");
        gpt_buf_free(&b);
    }
}

/* A vocabulary of characters has a token for each byte, so that also a text
 * that is not UTF-8 comes back; beginnings of characters are no tokens. */
static void test_broken_chars(void)
{
    static const char text[] = "\xff\xe4\xb8 \xf0\x9f\x98\x81"
                               "a\xe4\xb8\xad\xb8\xe4";
    struct gpt_tokenizer *tok;
    struct gpt_encoder *enc;
    struct gpt_ids ids = {0};
    struct gpt_err err = {0};

    if (!ok(open_file(&tok, HF, GOLDEN "chars-never.json", &err) == GPT_OK &&
                gpt_encoder_open(&enc, tok, &err) == GPT_OK, "characters"))
        abort();
    ok(gpt_encode(enc, text, strlen(text), &ids, &err) == GPT_OK,
       "a text that is not UTF-8");
    bool tokens = ids.len > 0;
    for (size_t i = 0; i < ids.len; i++)
        tokens = tokens && ids.data[i] < gpt_tokenizer_vocab_size(tok);
    ok(tokens, "its ids are tokens");
    ok(ids.len > 1 && ids.data[0] == 1, "behind the one that begins a text");
    memmove(ids.data, ids.data + 1, --ids.len * sizeof(*ids.data));
    ok(decodes_to(tok, &ids, text), "and back");
    gpt_free(ids.data);
    gpt_encoder_close(enc);
    gpt_tokenizer_close(tok);
}

/* tiktoken's spelling of cl100k in a tokenizer.json: {1,3}+ repeats there, and
 * an option's name means tiktoken's reading of it. */
static void test_cl100k_spelling(void)
{
    static const char *const spelled[] = {
        "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+|"
        " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"};
    const struct gpt_pretok *in_file = gpt_pretok_by_regex(spelled, 1);

    ok(in_file, "tiktoken's spelling of cl100k is known");
    is_int((int64_t)in_file->cut("1234567 8", 9), 7,
           "in a file it keeps numbers whole");
    is_int((int64_t)gpt_pretok_by_name("cl100k")->cut("1234567 8", 9), 3,
           "by name it cuts them");
}

/* Every row of the table is found by its expressions and cuts to the end. */
static void test_table(void)
{
    static const char text[] = " It's 12345\n\n \u4e2d\u6587ABCdef!? \xff\n ";

    for (size_t i = 0; gpt_pretok_row(i); i++) {
        const struct gpt_pretok *row = gpt_pretok_row(i);
        size_t n = 0, at = 0, len = sizeof(text) - 1;

        while (n < GPT_PRETOK_STAGES && row->regex[n])
            n++;
        ok(gpt_pretok_by_regex(row->regex, n) == row, "%s is found",
           row->name);
        ok(!gpt_pretok_by_regex(row->regex, n - 1), "not by less");
        while (at < len) {
            size_t piece = row->cut(text + at, len - at);

            if (piece == 0 || piece > len - at)
                break;
            at += piece;
        }
        is_int((int64_t)at, (int64_t)len, "it cuts all of a text");
    }
    for (size_t i = 0; gpt_pretok_names[i]; i++)
        ok(gpt_pretok_by_name(gpt_pretok_names[i]), "%s has a row",
           gpt_pretok_names[i]);
}

/* White space goes where the step says. Of the bytes that stand for the first
 * character those are left that are not stripped; what replaces a text counts
 * as the text it was. */
static void test_steps(void)
{
    static const struct {
        bool left, right;
        const char *want;
        size_t first;
    } rows[] = {{true, false, "a ", 1}, {false, true, "  a", 3},
                {true, true, "a", 1}, {false, false, "  a ", 3}};
    struct gpt_text_step swap = {.kind = GPT_STEP_REPLACE,
                                 .pattern = {.text = {"b", 1}},
                                 .content = {"xyz", 3}};
    struct gpt_buf buffers[2] = {{0}};
    struct gpt_err err = {0};

    for (size_t i = 0; i < GPT_COUNT(rows); i++) {
        const struct gpt_text_step step = {.kind = GPT_STEP_STRIP,
                                           .left = rows[i].left,
                                           .right = rows[i].right};
        struct gpt_step_text text = {.s = {"  a ", 4}, .first = 3};

        ok(gpt_text_steps_run(&step, 1, buffers, &text, &err) == GPT_OK &&
               gpt_str_equal(text.s, rows[i].want, strlen(rows[i].want)) &&
               text.first == rows[i].first,
           "stripped: '%.*s', %zu", (int)text.s.len, text.s.data, text.first);
    }
    struct gpt_step_text text = {.s = {"acbdb", 5}, .first = 4};
    ok(gpt_text_steps_run(&swap, 1, buffers, &text, &err) == GPT_OK &&
           gpt_str_equal(text.s, "acxyzdxyz", 9) && text.first == 6,
       "replaced: '%.*s', %zu", (int)text.s.len, text.s.data, text.first);
    gpt_buf_free(&buffers[0]);
    gpt_buf_free(&buffers[1]);
}

int main(void)
{
    test_steps();
    test_goldens();
    test_first_spaces();
    test_first_words();
    test_user_defined();
    test_kept_spaces();
    test_null();
    test_bad_files();
    test_no_unknown_token();
    test_word_gap();
    test_word_types();
    test_long_tokens();
    each_case(GOLDEN "templates.json", check_template);
    each_case(GOLDEN "added.json", check_added);
    test_other_forms();
    test_added_bytes();
    test_printed_form();
    test_lists();
    test_nfc();
    test_broken_chars();
    test_table();
    test_cl100k_spelling();
    return tap_done();
}
