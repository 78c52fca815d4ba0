/* What a run is, and how two of them differ: see preprocess_point.h. */
#include "cmd/preprocess/resume_point.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bool put_int(cJSON *object, const char *name, int64_t v)
{
    return cJSON_AddNumberToObject(object, name, (double)v) != NULL;
}

static bool add_inputs(cJSON *run, const struct gpt_preprocess_options *o)
{
    cJSON *inputs = cJSON_AddArrayToObject(run, "inputs");
    bool good = inputs != NULL;

    for (int64_t i = 0; good && i < o->n_inputs; i++) {
        struct stat st;
        cJSON *input = cJSON_CreateObject();

        good = cJSON_AddItemToArray(inputs, input) &&
               stat(o->inputs[i].path, &st) == 0 &&
               cJSON_AddStringToObject(input, "path", o->inputs[i].path) &&
               put_int(input, "begin", o->inputs[i].begin) &&
               put_int(input, "end", o->inputs[i].end) &&
               put_int(input, "bytes", st.st_size) &&
               put_int(input, "mtime", st.st_mtim.tv_sec) &&
               put_int(input, "mtime_ns", st.st_mtim.tv_nsec);
    }
    return good;
}

static bool add_keys(cJSON *run, const struct gpt_preprocess_options *o)
{
    cJSON *keys = cJSON_AddArrayToObject(run, "keys");
    bool good = keys != NULL;

    for (int64_t k = 0; good && k < o->n_keys; k++)
        good = cJSON_AddItemToArray(keys, cJSON_CreateString(o->keys[k]));
    return good;
}

static bool add_tokenizer(cJSON *run, const struct gpt_tokenizer_id *id)
{
    cJSON *list = cJSON_AddArrayToObject(run, "tokenizer");
    bool good = list && (!id || cJSON_AddItemToArray(
                                    list, gpt_tokenizer_to_json(id->options)));

    for (int i = 0; good && id && i < id->n_files; i++)
        good = cJSON_AddItemToArray(list,
                                    cJSON_CreateString(id->files[i].sha256));
    return good;
}

cJSON *gpt_resume_to_json(const struct gpt_preprocess_options *o,
                          enum gpt_dtype dtype)
{
    cJSON *run = cJSON_CreateObject();

    if (run && cJSON_AddStringToObject(run, "version", GPT_VERSION) &&
        add_tokenizer(run, o->tokenizer_id) &&
        cJSON_AddStringToObject(run, "dtype", gpt_dtype_name(dtype)) &&
        cJSON_AddBoolToObject(run, "append_eod", o->append_eod) &&
        put_int(run, "empty", o->empty) &&
        cJSON_AddBoolToObject(run, "tntidx", o->tntidx) &&
        cJSON_AddBoolToObject(run, "provenance", o->provenance) &&
        cJSON_AddBoolToObject(run, "sources", o->sources) &&
        add_keys(run, o) && add_inputs(run, o))
        return run;
    cJSON_Delete(run);
    return NULL;
}

/* The first difference of two descriptions as "inputs[3].bytes is 7, was 5";
 * false when they are alike. `name` is a buffer of `cap` that holds the name of
 * the two so far. */
static bool differ(const cJSON *now, const cJSON *was, char *name, size_t cap,
                   struct gpt_buf *b)
{
    size_t len = strlen(name);

    if (cJSON_IsObject(now) || cJSON_IsArray(now)) {
        const cJSON *item, *other = was ? was->child : NULL;
        int i = 0;

        cJSON_ArrayForEach(item, now) {
            if (item->string)
                snprintf(name + len, cap - len, "%s%s", len ? "." : "",
                         item->string);
            else
                snprintf(name + len, cap - len, "[%d]", i++);
            if (differ(item, other, name, cap, b))
                return true;
            name[len] = '\0';
            other = other ? other->next : NULL;
        }
        if (other)
            gpt_buf_printf(b, "%s has %d items, had %d", name,
                           cJSON_GetArraySize(now), cJSON_GetArraySize(was));
        return other != NULL;
    }
    if (cJSON_Compare(now, was, true))
        return false;
    char *a = gpt_json_print(now, false);
    char *z = was ? gpt_json_print(was, false) : NULL;
    gpt_buf_printf(b, "%s is %s, was %s", name, a ? a : "?", z ? z : "not");
    cJSON_free(a);
    cJSON_free(z);
    return true;
}

int gpt_resume_check(const struct gpt_journal_about *j, const cJSON *now,
                     const cJSON *was, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    char name[256] = "";

    if (!differ(now, was, name, sizeof(name), &b))
        return GPT_OK;
    gpt_fail(err, GPT_EEXIST, "'%s' is of a run that was not finished, and "
             "this one is another: %s", j->path, b.data ? b.data : "");
    gpt_buf_free(&b);
    return gpt_hint(err, "--no-resume gives the unfinished run up and starts "
                    "over");
}
