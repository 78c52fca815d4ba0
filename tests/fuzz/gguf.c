/* Fuzz target: a GGUF file. Of one that is accepted every tensor of the source
 * can be read to its last element, and its vocabulary is a file that the
 * tokenizers take or refuse. */
#include "base/memory.h"
#include "checkpoint/format.h"
#include "tokenizer/gguf_tokens.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int status, const struct gpt_err *err)
{
    if (status != GPT_OK && (status != GPT_EDATA || !err->text[0]))
        abort();
}

/* The last element of each, as whatever type it is. */
static void read_ends(const struct gpt_source *s)
{
    struct gpt_err err = {0};
    uint8_t element[8];

    for (int64_t i = 0; i < s->n_tensors; i++) {
        const struct gpt_tensor *t = &s->tensors[i];
        int64_t begin[GPT_TENSOR_DIMS] = {0}, one[GPT_TENSOR_DIMS] = {0};

        for (int d = 0; d < t->ndim; d++) {
            begin[d] = t->shape[d] - 1;
            one[d] = 1;
        }
        check(gpt_tensor_gather(t, begin, one, t->dtype, element, &err), &err);
    }
}

static void read_vocabulary(const char *path)
{
    struct gpt_tokenizer_options o = {.model = path};
    struct gpt_tokenizer *tok;
    struct gpt_err err = {0};
    int32_t end;

    check(gpt_gguf_end_token(path, &end, &err), &err);
    check(gpt_gguf_tokenizer_type(&o.type, path, &err), &err);
    if (!o.type)
        return;
    int status = gpt_tokenizer_open(&tok, &o, &err);
    check(status, &err);
    if (status == GPT_OK)
        gpt_tokenizer_close(tok);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_source_options newest = {.iteration = -1};
    struct gpt_source s;
    struct gpt_gguf g;
    struct gpt_err err = {0};
    char path[32];
    int fd = memfd_create("gguf", 0);

    if (fd < 0 || (size && write(fd, data, size) < 0))
        exit(1);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int status = gpt_gguf_open(&g, path, &err);
    check(status, &err);
    if (status == GPT_OK) {
        gpt_gguf_close(&g);
        read_vocabulary(path);
        status = gpt_source_open(&s, path, &newest, &err);
        check(status, &err);
        if (status == GPT_OK) {
            read_ends(&s);
            gpt_source_close(&s);
        }
    }
    close(fd);
    return 0;
}
