/* Fuzz target: a template of chats, compiled and rendered. The bytes before the
 * first NUL are the template, those after it a message; a rendering must end
 * within its limits and name a line where it fails. */
#include "text/jinja.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static cJSON *make_input(const char *text, size_t len)
{
    static const char json[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\\nb\"},"
        " {\"role\": \"assistant\", \"content\": null}],"
        " \"n\": 3, \"x\": 1.5, \"t\": true,"
        " \"tools\": [{\"a\": [1, {\"b\": \"c\"}]}], \"bos_token\": \"<s>\"}";
    cJSON *input = NULL;
    char *copy = malloc(len + 1);

    if (gpt_json_parse(&input, json, sizeof(json) - 1, "f", NULL) != GPT_OK)
        abort();
    memcpy(copy, text, len);
    copy[len] = '\0';
    cJSON_AddStringToObject(input, "s", copy);
    free(copy);
    return input;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *nul = memchr(text, '\0', size);
    const size_t len = nul ? (size_t)(nul - text) : size;
    struct gpt_jinja *t;
    struct gpt_buf out = {0};
    struct gpt_err err = {0};

    if (gpt_jinja_compile(&t, text, len, &err) != GPT_OK)
        return 0;
    cJSON *input = make_input(nul ? nul + 1 : "", nul ? size - len - 1 : 0);
    const struct gpt_jinja_input in = {input, NULL, 1};
    const int status = gpt_jinja_render(t, &in, &out, &err);
    if (status != GPT_OK &&
        (status != GPT_EDATA || strncmp(err.text, "line ", 5) != 0))
        abort();
    if (out.len > GPT_JINJA_OUTPUT)
        abort();
    gpt_buf_free(&out);
    cJSON_Delete(input);
    gpt_jinja_free(t);
    return 0;
}
