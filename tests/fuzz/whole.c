/* Fuzz target: a checkpoint of DeepSpeed without ZeRO: one file. */
#include "tests/fuzz/deepspeed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {
    "mp_rank_00_model_states.pt",
    "config.json",
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_deepspeed(names, GPT_COUNT(names), data, size);
    return 0;
}
