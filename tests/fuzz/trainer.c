/* Fuzz target: the state of an optimizer, optimizer.pt, beside the model of
 * tests/golden/trainer/numbers. Of what is accepted the last element of each
 * tensor can be read. */
#include "base/io.h"
#include "base/log.h"
#include "checkpoint/huggingface/huggingface.h"
#include "tests/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void copy(const char *name)
{
    struct gpt_err err = {0};
    char path[GPT_PATH_BYTES], *text;
    size_t len;

    snprintf(path, sizeof(path), "tests/golden/trainer/numbers/%s", name);
    if (gpt_read_file(path, 1 << 20, &text, &len, &err) != GPT_OK)
        abort();
    fuzz_write(name, (const uint8_t *)text, len);
    gpt_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct gpt_source_options options = {.iteration = -1,
                                               .optimizer = true};

    gpt_log_limit(GPT_LOG_ERROR);
    copy(GPT_HF_CONFIG);
    copy(GPT_HF_WEIGHTS);
    fuzz_write("optimizer.pt", data, size);
    fuzz_use_source(fuzz_top, &options);
    return 0;
}
