/* See tokenizer_json_parts.h. Start at gpt_hf_each_part(). */
#include "tokenizer/tokenizer_json_parts.h"

#include <stdio.h>
#include <string.h>

const cJSON *gpt_hf_member(const cJSON *part, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(part, key);
}

const char *gpt_hf_string(const cJSON *part, const char *key)
{
    const cJSON *item = gpt_hf_member(part, key);

    return cJSON_IsString(item) ? item->valuestring : "";
}

bool gpt_hf_flag(const cJSON *part, const char *key, bool def)
{
    const cJSON *item = gpt_hf_member(part, key);

    return cJSON_IsBool(item) ? cJSON_IsTrue(item) : def;
}

int gpt_hf_refuse_part(const struct gpt_hf_reading *parts, const char *field,
                       const char *key, const char *value)
{
    return gpt_fail(parts->err, GPT_EDATA,
                    "%s: %s.%s: '%.300s' is not supported", parts->what, field,
                    key, value);
}

int gpt_hf_refuse_more(const struct gpt_hf_reading *parts, const char *field,
                       const char *key, size_t most, const char *what)
{
    char value[80];

    snprintf(value, sizeof(value), "more than %zu %s", most, what);
    return gpt_hf_refuse_part(parts, field, key, value);
}

/* True for a member that is this number. */
static bool is_number(const cJSON *part, const char *key, double value)
{
    const cJSON *item = gpt_hf_member(part, key);

    return cJSON_IsNumber(item) && item->valuedouble == value;
}

int gpt_hf_check_strip(const struct gpt_hf_reading *parts, const cJSON *part,
                       const char *field)
{
    const char *content = gpt_hf_string(part, "content");

    if (strcmp(content, " ") != 0)
        return gpt_hf_refuse_part(parts, field, "content", content);
    if (!is_number(part, "start", 1))
        return gpt_hf_refuse_part(parts, field, "start", "not 1");
    if (!is_number(part, "stop", 0))
        return gpt_hf_refuse_part(parts, field, "stop", "not 0");
    return GPT_OK;
}

/* The depth is that of the JSON, which is limited. */
int gpt_hf_each_part(const struct gpt_hf_reading *parts, const cJSON *part,
                     const char *field, const char *list, gpt_hf_part_fn *fn)
{
    char name[160];
    int i = 0;

    if (!part || cJSON_IsNull(part))
        return GPT_OK;
    const char *type = gpt_hf_string(part, "type");
    if (strcmp(type, "Sequence") != 0)
        return fn(parts->data, part, type, field);
    const cJSON *items = gpt_hf_member(part, list);
    if (!cJSON_IsArray(items))
        return gpt_fail(parts->err, GPT_EDATA, "%s: %s: no array '%s'",
                        parts->what, field, list);
    for (const cJSON *p = items->child; p; p = p->next) {
        snprintf(name, sizeof(name), "%.80s.%s[%d]", field, list, i++);
        GPT_TRY(gpt_hf_each_part(parts, p, name, list, fn));
    }
    return GPT_OK;
}
