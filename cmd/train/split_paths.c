/* Data sets of a JSON file; see split_paths.h. Megatron-LM's file has lists of
 * words, as on a command line, under "train", "valid" and "test". A key that is
 * missing, or null, is a purpose without data, as with the options; other keys
 * are of other programs, and are left alone. What the words mean is checked
 * with those of the command line: from here on nothing tells the two apart. */
#include "cmd/train/split_paths.h"

#include "base/json.h"

enum { LIMIT = 1 << 24 }; /* bytes of the file */

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

/* The options count as given by the file, so that a second source of one of
 * them is a contradiction and not a choice. */
int gpt_train_read_split_paths(struct gpt_train_options *o,
                               struct gpt_arena *arena, struct gpt_err *err)
{
    const char *path = o->per_split_paths;
    cJSON *root;
    int status;

    if (!path)
        return GPT_OK;
    if (o->data_path.n + o->train_path.n + o->valid_path.n + o->test_path.n > 0)
        return gpt_fail(err, GPT_EUSAGE,
                        "--per-split-data-args-path excludes --data-path, "
                        "--train-data-path, --valid-data-path and "
                        "--test-data-path");
    GPT_TRY(gpt_json_read(&root, path, LIMIT, err));
    const struct {
        const char *key;
        struct gpt_list *list;
    } lists[] = {{"train", &o->train_path},
                 {"valid", &o->valid_path},
                 {"test", &o->test_path}};

    status = cJSON_IsObject(root)
                 ? GPT_OK
                 : gpt_fail(err, GPT_EDATA, "%s: not a JSON object", path);
    for (size_t i = 0; i < GPT_COUNT(lists) && status == GPT_OK; i++)
        status = read_list(
            lists[i].list,
            cJSON_GetObjectItemCaseSensitive(root, lists[i].key), path, arena,
            err);
    cJSON_Delete(root);
    return status;
}
