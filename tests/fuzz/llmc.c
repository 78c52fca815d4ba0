/* Fuzz target: a model of llm.c and the state of its one rank. Input is the
 * length of the model in four bytes, the model, and the state, if there is one.
 * Of what is accepted the last element of each tensor can be read. */
#include "base/num.h"
#include "checkpoint/source.h"
#include "tests/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(bool optimizer)
{
    const struct gpt_source_options o = {.iteration = -1,
                                         .optimizer = optimizer};
    char path[160];

    snprintf(path, sizeof(path), "%s/model_00000003.bin", fuzz_top);
    fuzz_use_source(path, &o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    const size_t n = (size_t)gpt_min_i64((int64_t)gpt_get_u32(data),
                                         (int64_t)size - 4);
    fuzz_write("model_00000003.bin", data + 4, n);
    fuzz_write_some("state_00000003_00000.bin", data + 4 + n, size - 4 - n);
    use(false);
    use(true);
    return 0;
}
