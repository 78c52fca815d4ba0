/* Fuzz target: a checkpoint of torch.distributed.checkpoint. Input is the
 * length of `.metadata` in four bytes, that file, and after it __0_0.distcp.
 * What is accepted is covered by its parts, and the last element of each tensor
 * can be read. */
#include "base/num.h"
#include "checkpoint/dcp.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char top[64], list[96], parts[96];

static void remove_files(void)
{
    unlink(list);
    unlink(parts);
    rmdir(top);
}

static void make_directory(void)
{
    snprintf(top, sizeof(top), "/tmp/fuzz-dcp.%d", (int)getpid());
    snprintf(list, sizeof(list), "%s/%s", top, GPT_DCP_METADATA);
    snprintf(parts, sizeof(parts), "%s/__0_0.distcp", top);
    if (mkdir(top, 0700) != 0)
        exit(1);
    atexit(remove_files);
}

static void write_file(const char *path, const uint8_t *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (fd < 0 || (size && write(fd, data, size) < 0))
        exit(1);
    close(fd);
}

static void check_tensor(const struct gpt_tensor *t, struct gpt_err *err)
{
    int64_t begin[GPT_TENSOR_DIMS] = {0}, shape[GPT_TENSOR_DIMS] = {1, 1, 1, 1};
    uint8_t element[8];

    if (gpt_tensor_check(t, "fuzz", err) != GPT_OK)
        abort();
    for (int d = 0; d < t->ndim; d++)
        if ((begin[d] = t->shape[d] - 1) < 0)
            return;
    if (gpt_tensor_gather(t, begin, shape, t->dtype, element, err) != GPT_OK &&
        !err->text[0]) /* parts of types that do not convert */
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_err err = {0};
    struct gpt_dcp *d;

    if (!*top)
        make_directory();
    if (size < 4)
        return 0;
    const size_t n = (size_t)gpt_min_i64((int64_t)gpt_get_u32(data),
                                         (int64_t)size - 4);
    write_file(list, data + 4, n);
    write_file(parts, data + 4 + n, size - 4 - n);
    int status = gpt_dcp_open(&d, top, &err);
    if (status != GPT_OK) {
        if (status != GPT_EDATA || !err.text[0])
            abort();
        return 0;
    }
    for (int64_t i = 0; i < d->n; i++)
        check_tensor(&d->tensors[i], &err);
    gpt_dcp_close(d);
    return 0;
}
