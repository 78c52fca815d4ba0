/* Renders templates of chats for tests: a JSON line in, {"template", "input",
 * "special", "now"}, a JSON line out, {"text"} or {"error"}. */
#include "base/json.h"
#include "base/memory.h"
#include "text/jinja.h"

#include <stdio.h>
#include <stdlib.h>

static int render(const cJSON *line, struct gpt_buf *text, struct gpt_err *err)
{
    const char *source = "";
    struct gpt_jinja *t;
    int64_t now = 0;

    GPT_TRY(gpt_json_string(line, "template", &source, "line", err));
    GPT_TRY(gpt_json_int_or(line, "now", 0, 0, INT64_MAX, &now, "line", err));
    GPT_TRY(gpt_jinja_compile(&t, source, strlen(source), err));
    const struct gpt_jinja_input input = {
        cJSON_GetObjectItemCaseSensitive(line, "input"),
        cJSON_GetObjectItemCaseSensitive(line, "special"), (time_t)now};
    const int status = gpt_jinja_render(t, &input, text, err);
    gpt_jinja_free(t);
    return status;
}

static int answer(const char *line, size_t len)
{
    struct gpt_buf text = {0};
    struct gpt_err err = {0};
    cJSON *root = NULL, *out = cJSON_CreateObject();

    int status = gpt_json_parse(&root, line, len, "line", &err);
    if (status == GPT_OK)
        gpt_json_keep_numbers(root, line);
    if (status == GPT_OK)
        status = render(root, &text, &err);
    if (status == GPT_OK)
        cJSON_AddStringToObject(out, "text", text.data ? text.data : "");
    else
        cJSON_AddStringToObject(out, "error", err.text);
    char *json = gpt_json_print(out, false);
    puts(json ? json : "{}");
    cJSON_free(json);
    cJSON_Delete(root);
    cJSON_Delete(out);
    gpt_buf_free(&text);
    return status;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;

    while ((n = getline(&line, &cap, stdin)) > 0)
        answer(line, (size_t)n);
    free(line);
    return 0;
}
