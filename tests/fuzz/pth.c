/* Fuzz target: a model as nanoGPT, Meta's code or LitGPT saves it. The first
 * byte chooses: n ckpt.pt; m params.json, a NUL, and consolidated.00.pth; l
 * model_config.yaml, a NUL, and lit_model.pth. Of one that is accepted the last
 * element of each tensor can be read, or is refused. */
#include "base/log.h"
#include "tests/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct kind {
    char letter;
    size_t n;
    const char *names[2];
} kinds[] = {
    {'n', 1, {"ckpt.pt"}},
    {'m', 2, {"params.json", "consolidated.00.pth"}},
    {'l', 2, {"model_config.yaml", "lit_model.pth"}},
};

static const struct kind *write_files(const uint8_t *data, size_t size)
{
    const struct kind *found = NULL;

    for (size_t i = 0; i < GPT_COUNT(kinds); i++) {
        const bool is = size > 0 && data[0] == kinds[i].letter;

        fuzz_cut(kinds[i].names, kinds[i].n, data + is, is ? size - 1 : 0);
        if (is)
            found = &kinds[i];
    }
    return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct gpt_source_options newest = {.iteration = -1,
                                              .optimizer = true};
    struct gpt_source s;
    struct gpt_err err = {0};

    gpt_log_limit(GPT_LOG_ERROR);
    if (!write_files(data, size))
        return 0;
    const int status = gpt_source_open(&s, fuzz_top, &newest, &err);
    fuzz_check(status, &err);
    if (status != GPT_OK)
        return 0;
    fuzz_read_tensors(&s, &err);
    gpt_source_close(&s);
    return 0;
}
