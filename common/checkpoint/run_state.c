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

int64_t gpt_run_state_count(const cJSON *state, const char *key)
{
    int64_t count = 0;

    if (gpt_json_int(state, key, 0, GPT_JSON_EXACT, &count, "state", NULL))
        count = 0;
    return count;
}
