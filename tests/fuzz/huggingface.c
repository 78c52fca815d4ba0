/* Fuzz target: the JSON files of a Hugging Face directory, with a NUL after
 * each, and tensors, which are those of tests/golden/hf where the input ends
 * before. Of a model that is accepted the last element of each tensor can be
 * read; a config.json that is accepted can be made again of what was read. */
#include "base/io.h"
#include "base/log.h"
#include "checkpoint/huggingface/huggingface.h"
#include "tests/fuzz/files.h"
#include "tokenizer/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const names[] = {
    GPT_HF_CONFIG, GPT_HF_GENERATION_CONFIG, GPT_HF_TOKENIZER_CONFIG,
    GPT_HF_INDEX, GPT_HF_CHAT_TEMPLATE, GPT_HF_WEIGHTS};

static struct gpt_tokenizer *open_tokenizer(void)
{
    const struct gpt_tokenizer_options o = {.type = "NullTokenizer",
                                            .vocab_size = 66};
    struct gpt_tokenizer *tok;
    struct gpt_err err = {0};

    if (gpt_tokenizer_open(&tok, &o, &err) != GPT_OK)
        abort();
    return tok;
}

static void write_tensors(void)
{
    static char *tensors;
    static size_t len;
    struct gpt_err err = {0};

    if (!tensors && gpt_read_file("tests/golden/hf/model.safetensors", 1 << 20,
                                  &tensors, &len, &err) != GPT_OK)
        abort();
    fuzz_write(GPT_HF_WEIGHTS, (const uint8_t *)tensors, len);
}

/* The family that a file names can say all that is read from the file. */
static void check_config(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, '\0', size) : NULL;
    struct gpt_config c;
    struct gpt_hf_extra extra;
    struct gpt_err err = {0};
    cJSON *json;

    if (gpt_json_parse(&json, (const char *)data,
                       nul ? (size_t)(nul - data) : size, "fuzz", &err))
        return;
    const int status = gpt_hf_config_parse(&c, &extra, json, "fuzz", &err);
    fuzz_check(status, &err);
    const struct gpt_hf_family *family = extra.family;
    if (status == GPT_OK &&
        (gpt_hf_choose_family(&c, &family, &err) || family != extra.family))
        abort();
    cJSON_Delete(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct gpt_source_options newest = {.iteration = -1};
    static struct gpt_tokenizer *tok;
    struct gpt_chat *chat = NULL;
    struct gpt_err err = {0};

    if (!tok) {
        tok = open_tokenizer();
        gpt_log_limit(GPT_LOG_WARNING);
    }
    check_config(data, size);
    fuzz_cut(names, GPT_COUNT(names), data, size);
    if (!gpt_path_holds(fuzz_top, GPT_HF_WEIGHTS))
        write_tensors();
    fuzz_check(gpt_chat_open(&chat, fuzz_top, NULL, tok, &err), &err);
    gpt_chat_close(chat);
    if (size == 0 || data[0] == '\0') /* without config.json it is none */
        return 0;
    fuzz_use_source(fuzz_top, &newest);
    return 0;
}
