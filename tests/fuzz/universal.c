/* Fuzz target: a universal checkpoint of DeepSpeed with one parameter: the file
 * of the model, the weights, both moments and the step. */
#include "tests/fuzz/deepspeed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {
    "mp_rank_00_model_states.pt",
    "zero/w/fp32.pt",
    "zero/w/exp_avg.pt",
    "zero/w/exp_avg_sq.pt",
    "zero/w/step.pt",
    "config.json",
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_deepspeed(names, GPT_COUNT(names), data, size);
    return 0;
}
