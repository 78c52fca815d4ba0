/* Data sets of a file; see split_paths.h. That of --data-args-path has the
 * words of --data-path, between white space. Megatron-LM's JSON file has lists
 * of words, or the words as one text, under "train", "valid" and "test". A key
 * that is missing, or null, is a purpose without data, as with the options.
 * What the words mean is checked with those of the command line: from here on
 * nothing tells the two apart. */
#include "cmd/train/split_paths.h"

#include "base/io.h"
#include "base/json.h"

#include <string.h>

enum { LIMIT = 1 << 24 }; /* bytes of the file */

#define SPACE " \t\n\v\f\r"

/* The words of a text of `len` bytes, which lives in the arena. */
static int split_words(struct gpt_list *list, const char *text, size_t len,
                       struct gpt_arena *arena, struct gpt_err *err)
{
    char *copy = gpt_arena_alloc(arena, len + 1, 1), *rest = NULL;
    const char **words =
        gpt_arena_alloc(arena, len / 2 + 1, sizeof(*words));

    if (!copy || !words)
        return gpt_no_memory(err, "names of data sets");
    memcpy(copy, text, len);
    copy[len] = '\0';
    for (char *w = strtok_r(copy, SPACE, &rest); w;
         w = strtok_r(NULL, SPACE, &rest))
        words[list->n++] = w;
    list->items = words;
    return GPT_OK;
}

/* A weight may be a number in the file: it becomes the word that a command line
 * has. */
static const char *word_of(const cJSON *item, struct gpt_arena *arena)
{
    return cJSON_IsNumber(item)
               ? gpt_arena_printf(arena, "%.17g", item->valuedouble)
               : gpt_arena_strdup(arena, item->valuestring);
}

/* The words outlive the tree of the file, in the arena. What is neither a name
 * nor a weight is refused here, as no word could be made of it. */
static int read_list(struct gpt_list *list, const cJSON *json, const char *path,
                     struct gpt_arena *arena, struct gpt_err *err)
{
    const cJSON *item;
    const char **words;

    if (!json || cJSON_IsNull(json))
        return GPT_OK;
    if (cJSON_IsString(json))
        return split_words(list, json->valuestring, strlen(json->valuestring),
                           arena, err);
    if (!cJSON_IsArray(json))
        return gpt_fail(err, GPT_EDATA, "%s: '%s' is no list", path,
                        json->string);
    words = gpt_arena_alloc(arena, (size_t)cJSON_GetArraySize(json) + 1,
                            sizeof(*words));
    if (!words)
        return gpt_no_memory(err, "names of data sets");
    cJSON_ArrayForEach(item, json)
    {
        if (!cJSON_IsString(item) && !cJSON_IsNumber(item))
            return gpt_fail(err, GPT_EDATA,
                            "%s: '%s' holds something else than names and "
                            "weights",
                            path, json->string);
        words[list->n] = word_of(item, arena);
        if (!words[list->n++])
            return gpt_no_memory(err, "names of data sets");
    }
    list->items = words;
    return GPT_OK;
}

/* A key that is misspelt would be a purpose without data, in silence. */
static int check_keys(const cJSON *root, const char *path, struct gpt_err *err)
{
    const cJSON *item;

    if (!cJSON_IsObject(root))
        return gpt_fail(err, GPT_EDATA, "%s: not a JSON object", path);
    cJSON_ArrayForEach(item, root)
    {
        if (strcmp(item->string, "train") != 0 &&
            strcmp(item->string, "valid") != 0 &&
            strcmp(item->string, "test") != 0)
            return gpt_fail(err, GPT_EDATA,
                            "%s: '%.60s' is none of train, valid and test",
                            path, item->string);
    }
    return GPT_OK;
}

/* The options count as given by the file, so that a second source of one of
 * them is a contradiction and not a choice. */
static int read_purposes(struct gpt_train_options *o, struct gpt_arena *arena,
                         struct gpt_err *err)
{
    const char *path = o->per_split_paths;
    cJSON *root;
    char *text;
    size_t len;

    GPT_TRY(gpt_read_file(path, LIMIT, &text, &len, err));
    int status = gpt_json_parse(&root, text, len, path, err);
    gpt_free(text);
    GPT_TRY(status);
    const struct {
        const char *key;
        struct gpt_list *list;
    } lists[] = {{"train", &o->train_path},
                 {"valid", &o->valid_path},
                 {"test", &o->test_path}};

    status = check_keys(root, path, err);
    for (size_t i = 0; i < GPT_COUNT(lists) && status == GPT_OK; i++)
        status = read_list(
            lists[i].list,
            cJSON_GetObjectItemCaseSensitive(root, lists[i].key), path, arena,
            err);
    cJSON_Delete(root);
    return status;
}

static int read_blend(struct gpt_train_options *o, struct gpt_arena *arena,
                      struct gpt_err *err)
{
    const char *path = o->data_args_path;
    char *text;
    size_t len;

    GPT_TRY(gpt_read_file(path, LIMIT, &text, &len, err));
    const bool nul = memchr(text, '\0', len) != NULL;
    int status = nul ? gpt_fail(err, GPT_EDATA, "%s: is no text: it holds a "
                                "NUL byte", path)
                     : split_words(&o->data_path, text, len, arena, err);
    gpt_free(text);
    if (status == GPT_OK && o->data_path.n == 0)
        status = gpt_fail(err, GPT_EDATA, "%s: names no data set", path);
    return status;
}

int gpt_train_read_data_files(struct gpt_train_options *o,
                              struct gpt_arena *arena, struct gpt_err *err)
{
    const int64_t own = o->data_path.n;
    const int64_t purposes = o->train_path.n + o->valid_path.n + o->test_path.n;

    if (o->data_args_path && (own + purposes > 0 || o->data_stages))
        return gpt_fail(err, GPT_EUSAGE,
                        "--data-args-path excludes --data-path, "
                        "--train-data-path, --valid-data-path, "
                        "--test-data-path and --data-stages");
    if (o->per_split_paths && (own + purposes > 0 || o->data_args_path))
        return gpt_fail(err, GPT_EUSAGE,
                        "--per-split-data-args-path excludes --data-path, "
                        "--data-args-path, --train-data-path, "
                        "--valid-data-path and --test-data-path");
    if (o->data_args_path)
        GPT_TRY(read_blend(o, arena, err));
    return o->per_split_paths ? read_purposes(o, arena, err) : GPT_OK;
}
