/* Fuzz target: prompts as JSON lines, and their texts through the stream that
 * keeps UTF-8 whole. */
#include "base/utf8.h"
#include "cmd/generate/prompts.h"
#include "generate/stream.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The text in pieces of 3 bytes must come out as valid UTF-8. */
static void stream(const char *text, size_t len)
{
    struct gpt_stream s = {0};
    struct gpt_buf out = {0};
    int rc = GPT_OK;

    for (size_t at = 0; at < len && rc == GPT_OK; at += 3)
        rc = gpt_stream_add(&s, text + at, len - at < 3 ? len - at : 3, &out);
    if (rc == GPT_OK)
        rc = gpt_stream_end(&s, &out);
    for (size_t at = 0, n; rc == GPT_OK && at < out.len; at += n) {
        n = gpt_utf8_length(out.data + at, out.len - at);
        if (n == 0)
            abort();
    }
    gpt_buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_prompts p = {0};
    struct gpt_err err = {0};
    const char *text = (const char *)data;

    stream(text, size);
    int rc = gpt_prompts_parse_jsonl(&p, text, size, "fuzz", &err);
    if (rc != GPT_OK && (rc != GPT_EDATA || !strstr(err.text, "fuzz:")))
        abort();
    for (size_t i = 0; i < p.n; i++)
        stream(p.items[i].text, p.items[i].len);
    gpt_prompts_free(&p);
    return 0;
}
