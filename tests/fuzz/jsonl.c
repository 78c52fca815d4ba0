/* Fuzz target: a line for the JSON scanner. The strings of a line that it
 * accepts must be UTF-8; a line that it refuses must be GPT_EDATA with a
 * message. */
#include "text/jsonl.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const keys[] = {"text", "title"};
    static struct gpt_jsonl *s;
    struct gpt_err err = {0};

    if (!s && gpt_jsonl_open(&s, keys, 2, &err) != GPT_OK)
        return 0;
    /* a block of its own, so that a sanitizer sees every byte too far */
    char *line = malloc(size ? size : 1);
    if (!line)
        return 0;
    if (size)
        memcpy(line, data, size);
    int status = gpt_jsonl_scan(s, line, size, &err);
    for (size_t k = 0; status == GPT_OK && k < 2; k++) {
        const struct gpt_str *strings;
        size_t n = gpt_jsonl_strings(s, k, &strings);

        for (size_t i = 0; i < n; i++)
            if (gpt_utf8_valid(strings[i].data, strings[i].len) !=
                strings[i].len)
                abort();
    }
    if (status != GPT_OK && (status != GPT_EDATA || !err.text[0]))
        abort();
    free(line);
    return 0;
}
