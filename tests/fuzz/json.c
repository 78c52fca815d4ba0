/* Fuzz target: JSON; a text that is accepted is printed and read again. */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpt_err err;
    cJSON *root, *again;
    int64_t n;

    if (gpt_json_parse(&root, (const char *)data, size, "f", &err) != GPT_OK)
        return 0;
    if (gpt_json_int(root, "n", -5, 5, &n, "f", &err) == GPT_OK &&
        (n < -5 || n > 5))
        abort();
    char *text = gpt_json_print(root, false);
    if (!text || gpt_json_parse(&again, text, strlen(text), "g", &err))
        abort();
    cJSON_Delete(again);
    cJSON_free(text);
    cJSON_Delete(root);
    return 0;
}
