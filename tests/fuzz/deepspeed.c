/* Fuzz target: a checkpoint of DeepSpeed: the file of the model and that of the
 * one rank. */
#include "tests/fuzz/deepspeed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {
    "mp_rank_00_model_states.pt",
    "zero_pp_rank_0_mp_rank_00_optim_states.pt",
    "config.json",
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_deepspeed(names, GPT_COUNT(names), data, size);
    return 0;
}
