/* Fuzz target: a vocab.json and a merges.txt, with a NUL between them. A
 * vocabulary that is accepted must encode all bytes and decode them again. */
#include "base/memory.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int write_memory(const char *name, const uint8_t *p, size_t n,
                        char path[32])
{
    int fd = memfd_create(name, 0);

    if (fd < 0 || write(fd, p, n) != (ssize_t)n)
        exit(1);
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

static void use(struct gpt_tokenizer *tok)
{
    struct gpt_encoder *enc;
    struct gpt_err err;
    struct gpt_ids ids = {0};
    char text[1024];
    size_t at = 0, n;

    for (int i = 0; i < 1024; i++)
        text[i] = (char)(i < 256 ? i : i % 7 + 'a');
    if (gpt_encoder_open(&enc, tok, &err) != GPT_OK ||
        gpt_encode(enc, text, sizeof(text), &ids, &err) != GPT_OK)
        abort();
    for (size_t i = 0; i < ids.len; i++, at += n) {
        const char *bytes = gpt_token_bytes(tok, ids.data[i], &n);

        if (at + n > sizeof(text) || memcmp(bytes, text + at, n) != 0)
            abort();
    }
    if (at != sizeof(text))
        abort();
    gpt_free(ids.data);
    gpt_encoder_close(enc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char vocab[32], merges[32];
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size;
    int fd = write_memory("vocab", data, n, vocab);
    int fd2 = write_memory("merges", data + n + (nul != NULL),
                           size - n - (nul != NULL), merges);
    struct gpt_tokenizer_options o = {.type = "GPT2BPETokenizer",
                                      .vocab_file = vocab,
                                      .merge_file = merges};
    struct gpt_tokenizer *tok;
    struct gpt_err err = {0};
    int status = gpt_tokenizer_open(&tok, &o, &err);

    if (status == GPT_OK) {
        use(tok);
        gpt_tokenizer_close(tok);
    } else if (status != GPT_EDATA || !err.text[0]) {
        abort();
    }
    close(fd);
    close(fd2);
    return 0;
}
