/* What both targets of DeepSpeed's checkpoints do: the same bytes are every
 * file, since a seed has the keys of all. What is accepted is covered by its
 * parts, and the last element of each tensor can be read. */
#ifndef GPT_TESTS_FUZZ_DEEPSPEED_H
#define GPT_TESTS_FUZZ_DEEPSPEED_H

#include "checkpoint/deepspeed/deepspeed.h"
#include "tests/fuzz/files.h"

static void fuzz_deepspeed(const char *const *names, size_t n,
                           const uint8_t *data, size_t size)
{
    struct gpt_deepspeed d = {0};
    struct gpt_err err = {0};

    for (size_t i = 0; i < n; i++)
        fuzz_write(names[i], data, size);
    if (!gpt_deepspeed_find(&d, fuzz_top))
        abort();
    const int status = gpt_deepspeed_open(&d, true, &err);
    fuzz_check(status, &err);
    for (int64_t i = 0; status == GPT_OK && i < d.n; i++)
        for (int k = 0; k < GPT_N_ADAM_KINDS; k++)
            if (d.params[i].kinds[k].n &&
                fuzz_read_last(&d.params[i].kinds[k], &err) != GPT_OK)
                abort();
    gpt_deepspeed_close(&d);
}

#endif
