/* The state of a run; see run_state.h. The order of keys is that of the calls,
 * and part of the bytes of a manifest. Functions of cJSON are not asked how
 * they went: base/json.h tells when a tree lacks something. */
#include "checkpoint/run_state.h"

#include <stdio.h>

cJSON *gpt_run_state_make(int64_t iteration, int64_t train_samples,
                          int64_t valid_samples)
{
    cJSON *state = cJSON_CreateObject();

    cJSON_AddNumberToObject(state, GPT_RUN_ITERATION, (double)iteration);
    cJSON_AddNumberToObject(state, GPT_RUN_TRAIN_SAMPLES,
                            (double)train_samples);
    cJSON_AddNumberToObject(state, GPT_RUN_VALID_SAMPLES,
                            (double)valid_samples);
    return state;
}

void gpt_run_state_put_run(cJSON *state, int64_t optimizer_step, int64_t seed,
                           const char *program)
{
    char word[64];

    /* read as hexadecimal digits, this is 0 */
    snprintf(word, sizeof(word), "of %s", program);
    cJSON_AddNumberToObject(state, GPT_RUN_OPTIMIZER_STEP,
                            (double)optimizer_step);
    cJSON_AddNumberToObject(state, GPT_RUN_SEED, (double)seed);
    cJSON_AddStringToObject(state, GPT_RUN_CORPUS_DIGEST, word);
}

void gpt_run_state_put_scale(cJSON *state, float scale, int64_t good,
                             int64_t left)
{
    cJSON *json = cJSON_AddObjectToObject(state, GPT_RUN_LOSS_SCALE);

    cJSON_AddNumberToObject(json, GPT_RUN_SCALE, (double)scale);
    cJSON_AddNumberToObject(json, GPT_RUN_SCALE_GOOD, (double)good);
    cJSON_AddNumberToObject(json, GPT_RUN_SCALE_LEFT, (double)left);
}

void gpt_run_state_put_tokens(cJSON *state, int64_t bos, int64_t eos,
                              const struct gpt_end_ids *ends)
{
    if (eos >= 0)
        cJSON_AddNumberToObject(state, "eos_token_id", (double)eos);
    else if (eos == GPT_TOKEN_NONE)
        cJSON_AddNullToObject(state, "eos_token_id");
    if (bos >= 0 && bos != eos)
        cJSON_AddNumberToObject(state, "bos_token_id", (double)bos);
    else if (bos == GPT_TOKEN_NONE && eos != GPT_TOKEN_NONE)
        cJSON_AddNullToObject(state, "bos_token_id");
    if (ends->n)
        cJSON_AddItemToObject(state, "end_token_ids",
                              cJSON_CreateIntArray(ends->ids, ends->n));
}

void gpt_run_state_put_family(cJSON *state, const char *family)
{
    if (family)
        cJSON_AddStringToObject(state, GPT_RUN_FAMILY, family);
}

/* The ends of a text that a state keeps, all of them or none. */
static void read_ends(struct gpt_source *s)
{
    const cJSON *list =
        cJSON_GetObjectItemCaseSensitive(s->state, "end_token_ids");
    struct gpt_end_ids ends = {.n = 0};

    if (!cJSON_IsArray(list))
        return;
    for (const cJSON *id = list->child; id; id = id->next) {
        if (!cJSON_IsNumber(id) || !(id->valuedouble >= 0) ||
            id->valuedouble >= (double)s->config.vocab_size ||
            ends.n == GPT_COUNT(ends.ids))
            return;
        ends.ids[ends.n++] = (int32_t)id->valuedouble;
    }
    s->ends = ends;
}

const char *gpt_run_state_family(const cJSON *state)
{
    return cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(state, GPT_RUN_FAMILY));
}

static int64_t token_of(const cJSON *state, const char *name, int64_t most,
                        int64_t otherwise)
{
    int64_t id;

    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(state, name)))
        return GPT_TOKEN_NONE;
    return gpt_json_int(state, name, 0, most, &id, "", NULL) == GPT_OK
               ? id
               : otherwise;
}

/* Without a beginning of its own, a text begins with what ends it. */
void gpt_run_state_take_origin(struct gpt_source *s)
{
    s->eos_token_id = token_of(s->state, "eos_token_id",
                               s->config.vocab_size - 1, GPT_TOKEN_UNKNOWN);
    s->bos_token_id =
        token_of(s->state, "bos_token_id", INT32_MAX, s->eos_token_id);
    read_ends(s);
}

int64_t gpt_run_state_count(const cJSON *state, const char *key)
{
    int64_t count = 0;

    if (gpt_json_int(state, key, 0, GPT_JSON_EXACT, &count, "state", NULL))
        count = 0;
    return count;
}
