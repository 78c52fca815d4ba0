/* How a text ends and how its tokens are chosen, by a Hugging Face directory.
 * Start at gpt_hf_read_generation().
 *
 * transformers reads generation_config.json and, only where there is no such
 * file, the same members of config.json. Ends of a text are obeyed here in that
 * order, too, except that a file without them does not hide config.json's: a
 * text without an end is never what a writer of such a file means. All other
 * settings are reported and not obeyed: what a command line without options
 * does would otherwise depend on the format of the checkpoint. */
#include "checkpoint/huggingface/huggingface.h"

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
    const cJSON *item = gpt_json_member(json, "eos_token_id");
    const cJSON *id = cJSON_IsArray(item) ? item->child : item;
    bool good = !cJSON_IsArray(item) || id;

    if (!item)
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

/* True for a member of generation_config.json that has an influence on which
 * tokens are chosen. Values that say what happens without them count, too: the
 * defaults of transformers are not the ones here. */
static bool is_setting(const cJSON *item)
{
    const char *name = item->string;
    static const char *const neutral[] = {
        "transformers_version", "bos_token_id", "eos_token_id", "pad_token_id",
        "use_cache", "return_dict_in_generate",
    };

    for (size_t i = 0; i < GPT_COUNT(neutral); i++)
        if (strcmp(name, neutral[i]) == 0)
            return false;
    return name[0] != '_' && strncmp(name, "output_", 7) != 0;
}

/* The same for config.json. Old versions of transformers wrote all of them
 * there, so that a value counts only where it is not their default. */
static bool is_old_setting(const cJSON *item)
{
    static const struct {
        const char *name;
        double otherwise; /* without it: false is 0, and no id -1 */
    } rows[] = {
        {"do_sample", 0},
        {"temperature", 1},
        {"top_k", 50},
        {"top_p", 1},
        {"typical_p", 1},
        {"min_length", 0},
        {"max_length", 20},
        {"early_stopping", 0},
        {"num_return_sequences", 1},
        {"num_beams", 1},
        {"num_beam_groups", 1},
        {"diversity_penalty", 0},
        {"length_penalty", 1},
        {"repetition_penalty", 1},
        {"no_repeat_ngram_size", 0},
        {"encoder_no_repeat_ngram_size", 0},
        {"remove_invalid_values", 0},
        {"exponential_decay_length_penalty", -1},
        {"bad_words_ids", -1},
        {"suppress_tokens", -1},
        {"begin_suppress_tokens", -1},
        {"forced_bos_token_id", -1},
        {"forced_eos_token_id", -1},
    };
    const double value =
        cJSON_IsNumber(item) ? item->valuedouble : cJSON_IsTrue(item);
    size_t i = 0;

    while (i < GPT_COUNT(rows) && strcmp(item->string, rows[i].name) != 0)
        i++;
    if (i == GPT_COUNT(rows))
        return false;
    return (!cJSON_IsNumber(item) && !cJSON_IsBool(item)) ||
           value < rows[i].otherwise || value > rows[i].otherwise;
}

/* Lists those that count, with short values. A file that is no object has
 * none. */
static int list_settings(struct gpt_buf *b, const cJSON *json,
                         bool (*counts)(const cJSON *item))
{
    const cJSON *first = cJSON_IsObject(json) ? json->child : NULL;

    for (const cJSON *i = first; i; i = i->next) {
        if (cJSON_IsNull(i) || !counts(i))
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

static int keep_settings(struct gpt_hf_extra *extra, const char *name,
                         const cJSON *json, bool (*counts)(const cJSON *item),
                         struct gpt_arena *arena, struct gpt_err *err)
{
    struct gpt_buf b = {0};
    int status = list_settings(&b, json, counts);

    if (status == GPT_OK && b.len)
        extra->unused_settings =
            gpt_arena_printf(arena, "%s: %s", name, b.data);
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
        status = keep_settings(extra, GPT_HF_GENERATION_CONFIG, json,
                               is_setting, arena, err);
        cJSON_Delete(json);
        GPT_TRY(status);
    } else {
        GPT_TRY(keep_settings(extra, GPT_HF_CONFIG, config, is_old_setting,
                              arena, err));
    }
    if (extra->ends.n == 0)
        read_ends(&extra->ends, config, vocab_size, GPT_HF_CONFIG);
    return GPT_OK;
}
