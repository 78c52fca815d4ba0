/* How far a run has come, as a line of its journal: see preprocess_point.h. */
#include "cmd/preprocess/resume_point.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool put_int(cJSON *object, const char *name, int64_t v)
{
    return cJSON_AddNumberToObject(object, name, (double)v) != NULL;
}

/* The fields of a point, by name. `keys` and `bad` follow by hand. */
#define POINT_FIELDS(X)                                                        \
    X("input", input)                                                          \
    X("offset", offset)                                                        \
    X("lines", lines)                                                          \
    X("quarantine_bytes", quarantine_bytes)                                    \
    X("documents", stats.documents)                                            \
    X("tokens", stats.tokens)                                                  \
    X("text_bytes", stats.text_bytes)                                          \
    X("line_bytes", stats.line_bytes)                                          \
    X("bad", stats.bad.n)

/* The fields of gpt_key_counts, by name, and then those of its list. */
#define KEY_FIELDS(X)                                                          \
    X(documents)                                                               \
    X(sequences)                                                               \
    X(tokens)                                                                  \
    X(text_bytes)

static bool put_keys(cJSON *o, const struct gpt_point *p, int64_t n)
{
    cJSON *keys = cJSON_AddArrayToObject(o, "keys");
    bool good = keys != NULL;

    for (int64_t k = 0; good && k < n; k++) {
        cJSON *key = cJSON_CreateObject();

        good = cJSON_AddItemToArray(keys, key);
#define X(field) good = good && put_int(key, #field, p->keys[k].field);
        KEY_FIELDS(X)
#undef X
        cJSON *list = good ? cJSON_AddArrayToObject(key, "lengths") : NULL;
        good = list != NULL;
        for (int b = 0; good && b < GPT_LENGTH_BUCKETS; b++)
            good = cJSON_AddItemToArray(
                list, cJSON_CreateNumber((double)p->keys[k].of_length[b]));
    }
    return good;
}

/* Bytes in hexadecimal digits. */
static bool put_digest(cJSON *o, const struct gpt_xxh64 *h)
{
    const uint8_t *bytes = (const uint8_t *)h;
    char hex[2 * sizeof(*h) + 1];

    for (size_t i = 0; i < sizeof(*h); i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    return cJSON_AddStringToObject(o, "digest", hex) != NULL;
}

/* Of the inputs that were finished after the last point. */
static bool put_sums(cJSON *o, const struct gpt_point *p, int64_t begin,
                     int64_t end)
{
    cJSON *sums = cJSON_AddArrayToObject(o, "sums");
    bool good = sums != NULL && put_int(o, "first_sum", begin);

    for (int64_t i = begin; good && i < end; i++) {
        const struct gpt_input_sum *s = &p->sums[i];
        char text[80];

        snprintf(text, sizeof(text), "%016" PRIx64 " %" PRId64 " %" PRId64,
                 s->xxh64, s->begin, s->bytes);
        good = cJSON_AddItemToArray(sums, cJSON_CreateString(text));
    }
    return good;
}

static bool put_bad(cJSON *o, const struct gpt_bad_report *bad)
{
    cJSON *kinds = cJSON_AddArrayToObject(o, "bad_of_kind");
    cJSON *named = cJSON_AddArrayToObject(o, "bad_named");
    bool good = kinds && named;

    for (int k = 0; good && k < GPT_BAD_KINDS; k++)
        good = cJSON_AddItemToArray(
            kinds, cJSON_CreateNumber((double)bad->of_kind[k]));
    for (int64_t i = 0; good && i < bad->n_named; i++)
        good = cJSON_AddItemToArray(named,
                                    cJSON_CreateString(bad->named[i].text));
    return good;
}

static const char *on_error(const struct gpt_preprocess_options *o)
{
    return o->quarantine ? o->quarantine : o->skip_bad ? "skip" : "stop";
}

cJSON *gpt_point_to_json(const struct gpt_journal_about *j,
                         const struct gpt_point *p, int64_t n_sums)
{
    cJSON *o = cJSON_CreateObject();
    bool good = o != NULL;
#define X(name, field) good = good && put_int(o, name, p->field);
    POINT_FIELDS(X)
#undef X
    if (good && cJSON_AddBoolToObject(o, "complete", p->complete) &&
        cJSON_AddStringToObject(o, "on_error", on_error(j->o)) &&
        put_keys(o, p, j->o->n_keys) && put_bad(o, &p->stats.bad) &&
        put_digest(o, &p->digest) && put_sums(o, p, j->n_sums, n_sums))
        return o;
    cJSON_Delete(o);
    return NULL;
}

static int get_int(const cJSON *object, const char *name, int64_t *v,
                   const struct gpt_journal_about *j, struct gpt_err *err)
{
    return gpt_json_int(object, name, 0, INT64_C(1) << 53, v, j->path, err);
}

/* A list of n counts. */
static int get_counts(const cJSON *object, const char *name, int64_t *to, int n,
                      const struct gpt_journal_about *j, struct gpt_err *err)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, name), *item;

    if (cJSON_GetArraySize(list) != n)
        return gpt_fail(err, GPT_EDATA, "%s: %s: %d items, must be %d", j->path,
                        name, cJSON_GetArraySize(list), n);
    cJSON_ArrayForEach(item, list) {
        if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
            item->valuedouble > 0x1p53)
            return gpt_fail(err, GPT_EDATA, "%s: %s: not a list of counts",
                            j->path, name);
        *to++ = (int64_t)item->valuedouble;
    }
    return GPT_OK;
}

static int get_keys(const cJSON *o, struct gpt_point *p,
                    const struct gpt_journal_about *j, struct gpt_err *err)
{
    const cJSON *key, *keys = cJSON_GetObjectItemCaseSensitive(o, "keys");

    if (cJSON_GetArraySize(keys) != j->o->n_keys)
        return gpt_fail(err, GPT_EDATA, "%s: keys: %d items, must be %lld",
                        j->path, cJSON_GetArraySize(keys),
                        (long long)j->o->n_keys);
    struct gpt_key_counts *at = p->keys;
    cJSON_ArrayForEach(key, keys) {
#define X(field) GPT_TRY(get_int(key, #field, &at->field, j, err));
        KEY_FIELDS(X)
#undef X
        GPT_TRY(get_counts(key, "lengths", at->of_length, GPT_LENGTH_BUCKETS, j,
                           err));
        at++;
    }
    return GPT_OK;
}

static int get_digest(const cJSON *o, struct gpt_xxh64 *h,
                      const struct gpt_journal_about *j, struct gpt_err *err)
{
    const char *hex;
    uint8_t *bytes = (uint8_t *)h;

    GPT_TRY(gpt_json_string(o, "digest", &hex, j->path, err));
    bool good = strlen(hex) == 2 * sizeof(*h);
    for (size_t i = 0; good && i < sizeof(*h); i++)
        good = sscanf(hex + 2 * i, "%2hhx", &bytes[i]) == 1;
    return good ? GPT_OK
                : gpt_fail(err, GPT_EDATA, "%s: digest: not %zu bytes",
                           j->path, sizeof(*h));
}

int gpt_sums_from_json(struct gpt_journal_about *j, const cJSON *o,
                       struct gpt_point *p, struct gpt_err *err)
{
    const cJSON *item;
    int64_t i;

    GPT_TRY(gpt_json_int(o, "first_sum", 0, j->n_sums, &i, j->path, err));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(o, "sums")) {
        struct gpt_input_sum *s = &p->sums[i];

        if (i++ >= j->o->n_inputs || !cJSON_IsString(item) ||
            sscanf(item->valuestring, "%" SCNx64 " %" SCNd64 " %" SCNd64,
                   &s->xxh64, &s->begin, &s->bytes) != 3)
            return gpt_fail(err, GPT_EDATA, "%s: sums: item %lld", j->path,
                            (long long)i);
    }
    j->n_sums = i;
    return GPT_OK;
}

static int get_bad(const cJSON *o, struct gpt_bad_report *bad,
                   const struct gpt_journal_about *j, struct gpt_err *err)
{
    const cJSON *item;

    GPT_TRY(get_counts(o, "bad_of_kind", bad->of_kind, GPT_BAD_KINDS, j, err));
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(o, "bad_named"))
        if (cJSON_IsString(item) && bad->n_named < GPT_BAD_NAMED)
            gpt_fail(&bad->named[bad->n_named++], GPT_EDATA, "%s",
                     item->valuestring);
    if (bad->n_named <= bad->n)
        return GPT_OK;
    return gpt_fail(err, GPT_EDATA, "%s: bad_named: more than the %lld bad "
                    "lines", j->path, (long long)bad->n);
}

int gpt_point_from_json(const struct gpt_journal_about *j, const cJSON *o,
                        struct gpt_point *p, struct gpt_err *err)
{
    const char *was;
#define X(name, field) GPT_TRY(get_int(o, name, &p->field, j, err));
    POINT_FIELDS(X)
#undef X
    GPT_TRY(gpt_json_bool_or(o, "complete", false, &p->complete, j->path,
                             err));
    GPT_TRY(gpt_json_string(o, "on_error", &was, j->path, err));
    GPT_TRY(get_keys(o, p, j, err));
    GPT_TRY(get_bad(o, &p->stats.bad, j, err));
    GPT_TRY(get_digest(o, &p->digest, j, err));
    if (p->input >= j->o->n_inputs)
        return gpt_fail(err, GPT_EDATA, "%s: input is %lld, must be below %lld",
                        j->path, (long long)p->input,
                        (long long)j->o->n_inputs);
    if (p->stats.bad.n == 0 || strcmp(was, on_error(j->o)) == 0)
        return GPT_OK;
    gpt_fail(err, GPT_EEXIST, "'%s' is of a run that was not finished, and has "
             "left out bad lines with --on-error %s%s", j->path,
             strcmp(was, "skip") == 0 ? "" : "quarantine=", was);
    return gpt_hint(err, "--no-resume gives the unfinished run up and starts "
                    "over");
}
