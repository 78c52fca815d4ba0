/* Fuzz target: bodies of requests to the server. The first byte chooses: 't'
 * /tokenize, 'd' /detokenize, 'c' a chat, any other a completion. A call that
 * is accepted keeps the limits; one that is refused is told why. */
#include "cmd/generate/serve.h"
#include "cmd/generate/serve_info.h"
#include "tests/fuzz/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB = 601, POSITIONS = 64, MOST_TEXTS = 1024 };

static const struct gpt_generate_options options = {.request_timeout = 60};
static const struct gpt_config config = {.vocab_size = VOCAB,
                                         .max_positions = POSITIONS};
static struct gpt_loaded model = {.o = &options, .config = &config};
static struct gpt_server server = {.m = &model, .model = "fuzz"};

static void must(int status)
{
    if (status != GPT_OK)
        exit(1);
}

static void begin(void)
{
    static const char template[] =
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ m.tool_calls }}"
        "{% endfor %}{{ tools }}";
    const struct gpt_tokenizer_options o = {
        .type = "GPT2BPETokenizer",
        .vocab_file = "tests/golden/gpt2/vocab.json",
        .merge_file = "tests/golden/gpt2/merges.txt"};
    struct gpt_err err;

    fuzz_write("chat_template.jinja", (const uint8_t *)template,
               sizeof(template) - 1);
    must(gpt_tokenizer_open(&model.tokenizer, &o, &err));
    must(gpt_encoder_open(&server.encoder, model.tokenizer, &err));
    must(gpt_encoder_open(&server.chat_encoder, model.tokenizer, &err));
    must(gpt_chat_open(&model.chat, fuzz_top, NULL, model.tokenizer, &err));
    if (gpt_tokenizer_vocab_size(model.tokenizer) > VOCAB)
        abort();
}

static void check_call(const struct gpt_call *call)
{
    const struct gpt_choice *c = &call->choice;

    if (call->wanted < 1 || call->wanted > MOST_TEXTS ||
        call->wanted != call->n * call->n_prompts || call->max_tokens < 0 ||
        !(c->sampling.temperature >= 0) || !(c->sampling.top_p >= 0) ||
        c->n_top < 0)
        abort();
    for (int64_t i = 0; i < call->n_prompts; i++) {
        const struct gpt_ids *ids = &call->prompts[i].ids;

        if (ids->len < 1 || ids->len > POSITIONS)
            abort();
        for (size_t k = 0; k < ids->len; k++)
            if (ids->data[k] < 0 || ids->data[k] >= VOCAB)
                abort();
    }
}

/* A request for another model is refused as well. */
static void check_refusal(int status, const struct gpt_err *err)
{
    fuzz_check(status == GPT_EUSAGE ? GPT_EDATA : status, err);
}

static void inform(gpt_informer *answer, const uint8_t *data, size_t size)
{
    struct gpt_buf body = {0}, out = {0};
    struct gpt_err err = {0};
    cJSON *json;

    must(gpt_buf_add(&body, data, size));
    const int status = answer(&server, &body, &out, &err);
    check_refusal(status, &err);
    if (status == GPT_OK) {
        if (gpt_json_parse(&json, out.data, out.len, "answer", &err) != GPT_OK)
            abort();
        cJSON_Delete(json);
    }
    gpt_buf_free(&out);
    gpt_buf_free(&body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_call *call;
    struct gpt_err err = {0};
    const char *code;

    if (!model.tokenizer)
        begin();
    if (size == 0)
        return 0;
    if (data[0] == 't' || data[0] == 'd') {
        inform(data[0] == 't' ? gpt_info_tokenize : gpt_info_detokenize,
               data + 1, size - 1);
        return 0;
    }
    const int status = gpt_call_parse(&call, &server, data[0] == 'c',
                                      (const char *)data + 1, size - 1, &code,
                                      &err);
    check_refusal(status, &err);
    if (status == GPT_OK) {
        check_call(call);
        gpt_call_free(call);
    }
    return 0;
}
