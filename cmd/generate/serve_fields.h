/* Fields of a request's JSON object. Each reader leaves *x as it is where the
 * field is missing or null: many clients send null for everything that was not
 * set. GPT_EDATA names the field: its message begins with the name in single
 * quotes, which gpt_answer_error() gives clients as `param`. */
#ifndef GPT_CMD_GENERATE_SERVE_FIELDS_H
#define GPT_CMD_GENERATE_SERVE_FIELDS_H

#include "base/json.h"

/* A field that changes nothing: it may have one of two values, in JSON, which
 * say what is the case anyway; the second may be NULL. Both NULL: any value. */
struct gpt_idle_field {
    const char *name, *values[2];
};

/* Refuses what is no object, members that are neither among `known`, which ends
 * with NULL, nor among `idle`, which ends with a name of NULL and may be NULL,
 * and idle ones of another value, by their names; `what` names the object: "the
 * body". A client shall not take one text for another. */
int gpt_fields_check(const cJSON *object, const char *const *known,
                     const struct gpt_idle_field *idle, const char *what,
                     struct gpt_err *err) GPT_MUST_USE;

int gpt_field_number(const cJSON *object, const char *key, double least,
                     double most, double *x, struct gpt_err *err) GPT_MUST_USE;
/* JSON has no integers: 5.0 is one, 5.5 is none. */
int gpt_field_integer(const cJSON *object, const char *key, int64_t least,
                      int64_t most, int64_t *x,
                      struct gpt_err *err) GPT_MUST_USE;
/* An element of the list `key`, which must be an id of a vocabulary of so
 * many. */
int gpt_field_id(const cJSON *item, const char *key, int64_t vocab,
                 int32_t *id, struct gpt_err *err) GPT_MUST_USE;
/* A 1 for true would be taken by some servers and refused by others; here it
 * is refused. */
int gpt_field_flag(const cJSON *object, const char *key, bool *x,
                   struct gpt_err *err) GPT_MUST_USE;

#endif
