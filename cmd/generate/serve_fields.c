/* Fields of a request; see serve_fields.h. */
#include "cmd/generate/serve_fields.h"

#include <math.h>
#include <string.h>

static bool is_known(const char *name, const char *const *known)
{
    while (*known && strcmp(name, *known) != 0)
        known++;
    return *known != NULL;
}

/* True when the item has the value whose JSON is `text`; NULL is none. Values
 * are compared and not texts: members of objects have no order, and numbers and
 * strings have several forms. */
static bool has_value(const cJSON *item, const char *text)
{
    cJSON *value = text ? cJSON_Parse(text) : NULL;
    const bool same = value && cJSON_Compare(item, value, true);

    cJSON_Delete(value);
    return same;
}

/* The message says what the field could be, since its name alone would send
 * users away from a client that they only have to tell less. */
static int check_idle(const cJSON *item, const struct gpt_idle_field *idle,
                      struct gpt_err *err)
{
    while (idle && idle->name && strcmp(item->string, idle->name) != 0)
        idle++;
    if (!idle || !idle->name)
        return gpt_fail(err, GPT_EDATA, "'%.64s' is not known here",
                        item->string);
    const char *const *v = idle->values;
    if (!v[0] || has_value(item, v[0]) || has_value(item, v[1]))
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA, "'%s' can only be %s%s%s here", idle->name,
                    v[0], v[1] ? " or " : "", v[1] ? v[1] : "");
}

/* All members before any is read, so that the message names the one that has no
 * effect rather than the one beside it that is out of range. */
int gpt_fields_check(const cJSON *object, const char *const *known,
                     const struct gpt_idle_field *idle, const char *what,
                     struct gpt_err *err)
{
    const cJSON *item;

    if (!cJSON_IsObject(object))
        return gpt_fail(err, GPT_EDATA, "%s is not a JSON object", what);
    cJSON_ArrayForEach(item, object)
    {
        if (!cJSON_IsNull(item) && !is_known(item->string, known))
            GPT_TRY(check_idle(item, idle, err));
    }
    return GPT_OK;
}

int gpt_field_number(const cJSON *object, const char *key, double least,
                     double most, double *x, struct gpt_err *err)
{
    const cJSON *item = gpt_json_member(object, key);

    if (!item)
        return GPT_OK;
    if (!cJSON_IsNumber(item))
        return gpt_fail(err, GPT_EDATA,
                        "'%s' must be a number from %.16g to %.16g", key,
                        least, most);
    if (!(item->valuedouble >= least) || !(item->valuedouble <= most))
        return gpt_fail(err, GPT_EDATA,
                        "'%s' must be a number from %.16g to %.16g, and not "
                        "%.16g", key, least, most, item->valuedouble);
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
        return gpt_fail(err, GPT_EDATA,
                        "'%s' must be an integer, and not %.16g", key, value);
    *x = (int64_t)value;
    return GPT_OK;
}

int gpt_field_id(const cJSON *item, const char *key, int64_t vocab,
                 int32_t *id, struct gpt_err *err)
{
    const double x = cJSON_IsNumber(item) ? item->valuedouble : -1;

    if (x >= 0 && x < (double)vocab && x == floor(x)) {
        *id = (int32_t)x;
        return GPT_OK;
    }
    if (cJSON_IsNumber(item))
        return gpt_fail(err, GPT_EDATA,
                        "'%s' holds %.16g, which is no token id of 0 to %lld",
                        key, x, (long long)vocab - 1);
    return gpt_fail(err, GPT_EDATA,
                    "'%s' holds what is no token id of 0 to %lld", key,
                    (long long)vocab - 1);
}

int gpt_field_flag(const cJSON *object, const char *key, bool *x,
                   struct gpt_err *err)
{
    const cJSON *item = gpt_json_member(object, key);

    if (!item)
        return GPT_OK;
    if (!cJSON_IsBool(item))
        return gpt_fail(err, GPT_EDATA, "'%s' must be true or false", key);
    *x = cJSON_IsTrue(item);
    return GPT_OK;
}
