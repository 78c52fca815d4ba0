/* Fuzz target: a universal checkpoint of DeepSpeed with one parameter. The same
 * bytes are the file of the model, the weights, both moments and the step,
 * since a seed has the keys of all. What is accepted is covered by its parts,
 * and the last element of each tensor can be read. */
#include "checkpoint/deepspeed.h"
#include "tests/fuzz/files.h"

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
    struct gpt_deepspeed d = {0};
    struct gpt_err err = {0};

    for (size_t i = 0; i < GPT_COUNT(names); i++)
        fuzz_write(names[i], data, size);
    if (!gpt_deepspeed_find(&d, fuzz_top))
        abort();
    const int status = gpt_deepspeed_open(&d, true, &err);
    fuzz_check(status, &err);
    for (int64_t i = 0; status == GPT_OK && i < d.n; i++)
        for (int k = 0; k < GPT_N_ADAM_KINDS; k++)
            if (d.params[i].kinds[k].n)
                fuzz_check(fuzz_read_last(&d.params[i].kinds[k], &err), &err);
    gpt_deepspeed_close(&d);
    return 0;
}
