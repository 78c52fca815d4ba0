/* Fuzz target: adapter_config.json, a NUL, and adapter_model.safetensors, of an
 * adapter for the model of tests/golden/hf. Of one that is merged the last
 * element of each tensor can be read, or is refused. */
#include "checkpoint/adapter/adapter.h"
#include "tests/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {"adapter_config.json", GPT_ADAPTER_WEIGHTS};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *dir = fuzz_top;
    const struct gpt_list adapters = {&dir, 1};
    struct gpt_source s;
    struct gpt_err err = {0};

    fuzz_cut(names, GPT_COUNT(names), data, size);
    if (size == 0 || data[0] == '\0') /* without its configuration it is none */
        return 0;
    const int status = gpt_source_open_merged(&s, "tests/golden/hf", NULL,
                                              &adapters, &err);
    fuzz_check(status, &err);
    if (status != GPT_OK)
        return 0;
    fuzz_read_tensors(&s, &err);
    gpt_source_close(&s);
    return 0;
}
