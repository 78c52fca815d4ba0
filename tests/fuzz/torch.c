/* Fuzz target: a file of torch.save(), of any container. Of one that is
 * accepted every tensor must lie in the file, the ends of each can be read, and
 * every value can be printed. */
#include "base/memory.h"
#include "checkpoint/torch/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int visit(void *context, const char *path,
                 const struct gpt_pickle_value *v,
                 const struct gpt_torch_tensor *tensor, struct gpt_err *err)
{
    const struct gpt_torch *t = context;
    struct gpt_buf text = {0};
    uint8_t byte;
    double real;

    (void)path;
    if (gpt_pickle_print(&text, v, 3, 8) != GPT_OK)
        abort();
    (void)gpt_pickle_real(v, &real);
    (void)gpt_pickle_find(v, "a");
    gpt_buf_free(&text);
    if (!tensor)
        return GPT_OK;
    if (tensor->begin < 0 || tensor->end < tensor->begin ||
        tensor->end > gpt_in_size(t->in))
        abort();
    if (tensor->end > tensor->begin &&
        gpt_in_read(t->in, &byte, tensor->end - 1, 1, err) != GPT_OK)
        abort();
    return GPT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_torch t;
    struct gpt_safetensors st;
    struct gpt_err err = {0};
    char path[32];
    int fd = memfd_create("torch", 0);

    if (fd < 0 || (size && write(fd, data, size) < 0))
        exit(1);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int status = gpt_torch_open(&t, path, &err);
    if (status == GPT_OK) {
        status = gpt_torch_walk(&t, t.root, visit, &t, &err);
        gpt_torch_close(&t);
    }
    if (status != GPT_OK && (status != GPT_EDATA || !err.text[0]))
        abort();
    if (gpt_torch_open_tensors(&st, path, &err) == GPT_OK)
        gpt_safetensors_close(&st);
    close(fd);
    return 0;
}
