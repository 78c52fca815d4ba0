/* Fuzz target: files of tokenizers. The first byte chooses the family, the
 * rest is the file: h HuggingFaceTokenizer, t TikTokenizer, s SentencePiece.
 * A tokenizer that is accepted must encode all bytes into ids of its
 * vocabulary, or say that it has no token for some of them, and no unknown
 * one. */
#include "base/memory.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A Hugging Face file may name no unknown token, or one that it does not
 * have. */
static bool lacks_unknown(int status, const struct gpt_err *err)
{
    return status == GPT_EDATA && strstr(err->text, "none for unknown ");
}

static void use(struct gpt_tokenizer *tok)
{
    struct gpt_encoder *enc;
    struct gpt_err err = {0};
    struct gpt_ids ids = {0};
    char text[1024];
    size_t n;

    for (int i = 0; i < 1024; i++)
        text[i] = (char)(i < 256 ? i : i < 512 ? ' ' + i % 3 : i % 7 + 'a');
    memcpy(text + 600, "<|endoftext|>e\xCC\x81 \xE4\xB8\xAD</s>", 24);
    if (gpt_encoder_open(&enc, tok, &err) != GPT_OK)
        abort();
    const int status = gpt_encode(enc, text, sizeof(text), &ids, &err);
    if (status != GPT_OK && !lacks_unknown(status, &err))
        abort();
    for (size_t i = 0; i < ids.len; i++) {
        if (ids.data[i] < 0 || ids.data[i] >= gpt_tokenizer_vocab_size(tok))
            abort();
        const char *bytes = gpt_token_bytes(tok, ids.data[i], &n);
        if (n && bytes[n - 1] == 'x')
            (void)gpt_first_bytes(tok, ids.data[i], &n);
    }
    gpt_free(ids.data);
    gpt_encoder_close(enc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct {
        char letter;
        const char *type;
    } families[] = {
        {'h', "HuggingFaceTokenizer"},
        {'t', "TikTokenizer"},
        {'s', "SentencePieceTokenizer"},
    };
    char path[32];
    int fd = memfd_create("model", 0);

    if (fd < 0 || (size && write(fd, data + 1, size - 1) < 0))
        exit(1);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    for (size_t i = 0; size && i < GPT_COUNT(families); i++) {
        struct gpt_tokenizer_options o = {.type = families[i].type,
                                          .model = path,
                                          .special = "parse",
                                          .tiktoken_pattern = "o200k"};
        struct gpt_tokenizer *tok;
        struct gpt_err err = {0};

        if (data[0] != families[i].letter)
            continue;
        int status = gpt_tokenizer_open(&tok, &o, &err);
        if (status == GPT_OK) {
            use(tok);
            gpt_tokenizer_close(tok);
        } else if ((status != GPT_EDATA && status != GPT_EUSAGE) ||
                   !err.text[0]) {
            abort();
        }
    }
    close(fd);
    return 0;
}
