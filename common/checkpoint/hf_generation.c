/* How a text ends and how its tokens are chosen, by a Hugging Face directory.
 * Start at gpt_hf_read_generation().
 *
 * transformers reads generation_config.json and, only where there is no such
 * file, the same members of config.json. Ends of a text are obeyed here in that
 * order, too, except that a file without them does not hide config.json's: a
 * text without an end is never what a writer of such a file means. All other
 * settings are reported and not obeyed: what a command line without options
 * does would otherwise depend on the format of the checkpoint. */
#include "checkpoint/huggingface.h"

#include "base/io.h"
#include "base/log.h"

#include <string.h>

enum { CONFIG_LIMIT = 1 << 20 };

/* Adds an id; false when it is none. */
static bool add_end(struct gpt_end_ids *ends, const cJSON *id,
                    int64_t vocab_size)
{
    const double value = cJSON_IsNumber(id) ? id->valuedouble : -1;

    if (!(value >= 0) || value >= (double)vocab_size ||
        value > (double)(int64_t)value || ends->n == GPT_COUNT(ends->ids))
        return false;
    ends->ids[ends->n++] = (int32_t)value;
    return true;
}

/* Reads a number or a list of numbers. A wrong value is no failure: it must not
 * keep the weights from being read. */
static void read_ends(struct gpt_end_ids *ends, const cJSON *json,
                      int64_t vocab_size, const char *what)
{
    const cJSON *item =
        cJSON_GetObjectItemCaseSensitive(json, "eos_token_id");
    const cJSON *id = cJSON_IsArray(item) ? item->child : item;
    bool good = !cJSON_IsArray(item) || id;

    if (!item || cJSON_IsNull(item))
        return;
    for (; id && good; id = cJSON_IsArray(item) ? id->next : NULL)
        good = add_end(ends, id, vocab_size);
    if (good)
        return;
    ends->n = 0;
    gpt_warn("%s: eos_token_id is neither an id below %lld nor a list of up to "
             "%zu of them, and is not used",
             what, (long long)vocab_size, GPT_COUNT(ends->ids));
}

/* Members that have no influence on which tokens are chosen. */
static bool is_neutral(const char *name)
{
    static const char *const neutral[] = {
        "transformers_version", "bos_token_id", "eos_token_id", "pad_token_id",
        "use_cache", "return_dict_in_generate",
    };

    for (size_t i = 0; i < GPT_COUNT(neutral); i++)
        if (strcmp(name, neutral[i]) == 0)
            return true;
    return name[0] == '_' || strncmp(name, "output_", 7) == 0;
}

/* Lists the settings that are not neutral, with short values. Those that say
 * what happens without them are listed, too: the defaults of transformers are
 * not the ones here. */
static int list_settings(struct gpt_buf *b, const cJSON *json)
{
    for (const cJSON *i = json->child; i; i = i->next) {
        if (is_neutral(i->string) || cJSON_IsNull(i))
            continue;
        char *value = cJSON_PrintUnformatted(i);
        int status = value ? gpt_buf_printf(b, "%s%.60s %.40s",
                                            b->len ? ", " : "", i->string,
                                            value)
                           : GPT_EFAIL;

        cJSON_free(value);
        GPT_TRY(status);
    }
    return GPT_OK;
}

static int keep_settings(struct gpt_hf_extra *extra, const cJSON *json,
                         struct gpt_arena *arena, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    int status = list_settings(&b, json);

    if (status == GPT_OK && b.len)
        extra->unused_settings = gpt_arena_printf(
            arena, "%s: %s", GPT_HF_GENERATION_CONFIG, b.data);
    if (status != GPT_OK || (b.len && !extra->unused_settings))
        status = gpt_no_memory(err, "generation settings");
    gpt_buf_free(&b);
    return status;
}

int gpt_hf_read_generation(struct gpt_hf_extra *extra, const char *dir,
                           const cJSON *config, int64_t vocab_size,
                           struct gpt_arena *arena, struct gpt_err *err)
{
    char path[GPT_PATH_BYTES];
    cJSON *json = NULL;
    int status;

    GPT_TRY(gpt_path_join(path, sizeof(path), dir, GPT_HF_GENERATION_CONFIG,
                          err));
    if (gpt_path_exists(path)) {
        GPT_TRY(gpt_json_read(&json, path, CONFIG_LIMIT, err));
        read_ends(&extra->ends, json, vocab_size, path);
        status = keep_settings(extra, json, arena, err);
        cJSON_Delete(json);
        GPT_TRY(status);
    }
    if (extra->ends.n == 0)
        read_ends(&extra->ends, config, vocab_size, GPT_HF_CONFIG);
    return GPT_OK;
}
