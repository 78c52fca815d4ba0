/* Fields of a request; see serve_fields.h. */
#include "cmd/generate/serve_fields.h"

#include <math.h>
#include <string.h>

const cJSON *gpt_field(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsNull(item) ? NULL : item;
}

/* All members before any is read, so that the message names the one that has no
 * effect rather than the one beside it that is out of range. */
int gpt_fields_check(const cJSON *object, const char *const *known,
                     const char *what, struct gpt_err *err)
{
    const cJSON *item;

    if (!cJSON_IsObject(object))
        return gpt_fail(err, GPT_EDATA, "%s is not a JSON object", what);
    cJSON_ArrayForEach(item, object)
    {
        bool found = cJSON_IsNull(item);

        for (const char *const *k = known; *k && !found; k++)
            found = strcmp(item->string, *k) == 0;
        if (!found)
            return gpt_fail(err, GPT_EDATA, "'%.64s' is not known here",
                            item->string);
    }
    return GPT_OK;
}

int gpt_field_number(const cJSON *object, const char *key, double least,
                     double most, double *x, struct gpt_err *err)
{
    const cJSON *item = gpt_field(object, key);

    if (!item)
        return GPT_OK;
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= least) ||
        !(item->valuedouble <= most))
        return gpt_fail(err, GPT_EDATA, "'%s' must be a number from %g to %g",
                        key, least, most);
    *x = item->valuedouble;
    return GPT_OK;
}

int gpt_field_integer(const cJSON *object, const char *key, int64_t least,
                      int64_t most, int64_t *x, struct gpt_err *err)
{
    double value = (double)*x;

    GPT_TRY(gpt_field_number(object, key, (double)least, (double)most, &value,
                             err));
    if (value != floor(value))
        return gpt_fail(err, GPT_EDATA, "'%s' must be an integer", key);
    *x = (int64_t)value;
    return GPT_OK;
}

int gpt_field_word(const cJSON *object, const char *key, const char *word,
                   struct gpt_err *err)
{
    const cJSON *item = gpt_field(object, key);

    if (!item ||
        (cJSON_IsString(item) && strcmp(item->valuestring, word) == 0))
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA, "'%s' can only be '%s' here", key, word);
}

bool gpt_field_id(const cJSON *item, int64_t vocab, int32_t *id)
{
    const double x = cJSON_IsNumber(item) ? item->valuedouble : -1;

    if (!(x >= 0 && x < (double)vocab) || x != floor(x))
        return false;
    *id = (int32_t)x;
    return true;
}

int gpt_field_flag(const cJSON *object, const char *key, bool *x,
                   struct gpt_err *err)
{
    const cJSON *item = gpt_field(object, key);

    if (!item)
        return GPT_OK;
    if (!cJSON_IsBool(item))
        return gpt_fail(err, GPT_EDATA, "'%s' must be true or false", key);
    *x = cJSON_IsTrue(item);
    return GPT_OK;
}
