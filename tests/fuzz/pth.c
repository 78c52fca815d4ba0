/* Fuzz target: what says which model the files of nanoGPT, LitGPT and Meta's
 * code have. The input is a text, a NUL, and a file of torch.save(); each front
 * end gets the text as its configuration, and the file as its weights. Where
 * the text begins with a blank, two ranks of Meta's have that file. Of a model
 * that is accepted the last element of each tensor can be read. */
#include "base/log.h"
#include "checkpoint/pth/pth.h"
#include "tests/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const configs[] = {"meta/" GPT_META_PARAMS,
                                      "litgpt/" GPT_LITGPT_CONFIG};
static const char *const weights[] = {
    "meta/" GPT_META_FIRST_FILE, "litgpt/" GPT_LITGPT_WEIGHTS,
    "nanogpt/ckpt.pt", "meta/consolidated.01.pth"};

static void open_one(const char *dir)
{
    const struct gpt_source_options options = {
        .iteration = -1, .verify = true, .optimizer = true};
    char path[GPT_PATH_BYTES];

    snprintf(path, sizeof(path), "%s/%s", fuzz_top, dir);
    fuzz_use_source(path, &options);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, '\0', size) : NULL;
    const size_t text = nul ? (size_t)(nul - data) : size;
    const size_t rest = nul ? text + 1 : size;
    const bool two = size && data[0] == ' ';

    gpt_log_limit(GPT_LOG_ERROR);
    for (size_t i = 0; i < GPT_COUNT(configs); i++)
        fuzz_write(configs[i], data, text);
    for (size_t i = 0; i < GPT_COUNT(weights); i++)
        if (i < 3 || two)
            fuzz_write(weights[i], data + rest, size - rest);
        else
            fuzz_write_some(weights[i], data, 0);
    open_one("meta");
    open_one("litgpt");
    open_one("nanogpt");
    return 0;
}
