/* Fuzz target: a checkpoint of torch.distributed.checkpoint. Input is the
 * length of `.metadata` in four bytes, that file, and after it __0_0.distcp.
 * What is accepted is covered by its parts, and the last element of each tensor
 * can be read. Then it is opened as one of a model. */
#include "base/log.h"
#include "base/num.h"
#include "checkpoint/dcp/dcp.h"
#include "checkpoint/source.h"
#include "tests/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of one layer, in the tensors of make_dcp.py. */
static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 3, \"hidden_size\": 2, "
    "\"intermediate_size\": 2, \"num_hidden_layers\": 1, "
    "\"num_attention_heads\": 1, \"max_position_embeddings\": 4, "
    "\"tie_word_embeddings\": true}";

static void open_model(void)
{
    const struct gpt_source_options options = {.iteration = -1,
                                               .optimizer = true};
    struct gpt_source s;
    struct gpt_err err = {0};

    fuzz_write("config.json", (const uint8_t *)config, sizeof(config) - 1);
    gpt_log_limit(GPT_LOG_ERROR);
    const int status = gpt_source_open(&s, fuzz_top, &options, &err);
    fuzz_check(status, &err);
    for (int64_t i = 0; status == GPT_OK && i < s.n_tensors; i++)
        if (fuzz_read_last(&s.tensors[i], &err) != GPT_OK)
            abort();
    gpt_source_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_err err = {0};
    struct gpt_dcp *d;

    if (size < 4)
        return 0;
    const size_t n = (size_t)gpt_min_i64((int64_t)gpt_get_u32(data),
                                         (int64_t)size - 4);
    fuzz_write(GPT_DCP_METADATA, data + 4, n);
    fuzz_write("__0_0.distcp", data + 4 + n, size - 4 - n);
    int status = gpt_dcp_open(&d, fuzz_top, &err);
    if (status != GPT_OK) {
        if (status != GPT_EDATA || !err.text[0])
            abort();
        return 0;
    }
    /* parts may be of types that do not convert */
    for (int64_t i = 0; i < d->n; i++)
        if (gpt_tensor_check(&d->tensors[i], "fuzz", &err) != GPT_OK ||
            (fuzz_read_last(&d->tensors[i], &err) != GPT_OK && !err.text[0]))
            abort();
    gpt_dcp_close(d);
    open_model();
    return 0;
}
