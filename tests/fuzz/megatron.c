/* Fuzz target: the file of a rank in a classic Megatron checkpoint. Of one that
 * is accepted every tensor is covered by its parts, and the last element of
 * each can be read. Input with the first key of distrib_optim.pt is both that
 * file and the one of the rank. */
#include "checkpoint/megatron/megatron.h"
#include "tests/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool contains(const uint8_t *data, size_t size, const char *text)
{
    const size_t n = strlen(text);

    for (size_t i = 0; i + n <= size; i++)
        if (memcmp(data + i, text, n) == 0)
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_megatron *m;
    struct gpt_err err = {0};
    char shards[160];

    fuzz_write("mp_rank_00/" GPT_MEGATRON_FILE, data, size);
    snprintf(shards, sizeof(shards), "%s/mp_rank_00/%s", fuzz_top,
             GPT_MEGATRON_SHARDS);
    unlink(shards);
    if (contains(data, size, "buckets_coalesced"))
        fuzz_write("mp_rank_00/" GPT_MEGATRON_SHARDS, data, size);
    int status = gpt_megatron_open(&m, fuzz_top, -1, true, &err);
    if (status != GPT_OK) {
        if ((status != GPT_EDATA && status != GPT_EUSAGE) || !err.text[0])
            abort();
        return 0;
    }
    for (int64_t i = 0; i < m->n; i++)
        if (gpt_tensor_check(&m->tensors[i], "fuzz", &err) != GPT_OK ||
            fuzz_read_last(&m->tensors[i], &err) != GPT_OK)
            abort();
    cJSON *state = cJSON_Duplicate(m->state, true);
    if (!state)
        abort();
    cJSON_Delete(state);
    gpt_megatron_close(m);
    return 0;
}
