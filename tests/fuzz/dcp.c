/* Fuzz target: a checkpoint of torch.distributed.checkpoint. Input is the
 * length of `.metadata` in four bytes, that file, and after it __0_0.distcp.
 * What is accepted is covered by its parts, and the last element of each tensor
 * can be read. */
#include "base/num.h"
#include "checkpoint/dcp.h"
#include "tests/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_err err = {0};
    struct gpt_dcp *d;

    if (size < 4)
        return 0;
    const size_t n = (size_t)gpt_min_i64((int64_t)gpt_get_u32(data),
                                         (int64_t)size - 4);
    fuzz_write(GPT_DCP_METADATA, data + 4, n);
    fuzz_write("__0_0.distcp", data + 4 + n, size - 4 - n);
    int status = gpt_dcp_open(&d, fuzz_top, &err);
    if (status != GPT_OK) {
        if (status != GPT_EDATA || !err.text[0])
            abort();
        return 0;
    }
    /* parts may be of types that do not convert */
    for (int64_t i = 0; i < d->n; i++)
        if (gpt_tensor_check(&d->tensors[i], "fuzz", &err) != GPT_OK ||
            (fuzz_read_last(&d->tensors[i], &err) != GPT_OK && !err.text[0]))
            abort();
    gpt_dcp_close(d);
    return 0;
}
