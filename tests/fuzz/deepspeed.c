/* Fuzz target: a checkpoint of DeepSpeed. The same bytes are the file of the
 * model and that of the one rank, since a seed has the keys of both. What is
 * accepted is covered by its parts, and the last element of each tensor can be
 * read. */
#include "checkpoint/deepspeed.h"
#include "tests/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {
    "mp_rank_00_model_states.pt",
    "zero_pp_rank_0_mp_rank_00_optim_states.pt",
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
    int status = gpt_deepspeed_open(&d, true, &err);
    if (status != GPT_OK && (status != GPT_EDATA || !err.text[0]))
        abort();
    for (int64_t i = 0; status == GPT_OK && i < d.n; i++)
        for (int k = 0; k < GPT_N_ADAM_KINDS; k++)
            if (d.params[i].kinds[k].n &&
                fuzz_read_last(&d.params[i].kinds[k], &err) != GPT_OK)
                abort();
    gpt_deepspeed_close(&d);
    return 0;
}
