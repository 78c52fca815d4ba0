/* Fuzz target: a line of a journal, without its checksum. A line that is
 * accepted must give places inside the inputs and valid counts. */
#include "cmd/preprocess/journal_json.h"

#include <stdlib.h>
#include <string.h>

enum { INPUTS = 3, KEYS = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
    if (!good)
        abort();
}

static void take(const cJSON *line)
{
    static const char *const keys[KEYS] = {"text", "title"};
    static const struct gpt_input_range inputs[INPUTS] = {
        {"a", 0, -1}, {"b", 0, -1}, {"c", 10, 20}};
    const struct gpt_preprocess_options o = {
        .inputs = inputs, .n_inputs = INPUTS, .keys = keys, .n_keys = KEYS,
        .skip_bad = true};
    char path[] = "x.resume";
    struct gpt_journal_about about = {.o = &o, .path = path};
    struct gpt_key_counts counts[KEYS] = {0};
    struct gpt_input_sum sums[INPUTS] = {0};
    struct gpt_point p = {.keys = counts, .sums = sums};
    struct gpt_err err = {0};

    int status = gpt_sums_from_json(&about, line, &p, &err);
    check(status == GPT_OK || status == GPT_EDATA);
    check(about.n_sums >= 0 && about.n_sums <= INPUTS);
    status = gpt_point_from_json(&about, line, &p, &err);
    check(status == GPT_OK || ((status == GPT_EDATA || status == GPT_EEXIST) &&
                               strstr(err.text, path)));
    if (status != GPT_OK)
        return;
    check(p.input >= 0 && p.input < INPUTS && p.offset >= 0);
    check(p.stats.bad.n_named <= GPT_BAD_NAMED);
    cJSON *again = gpt_point_to_json(&about, &p, about.n_sums);
    check(again != NULL);
    cJSON_Delete(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cJSON *line;
    struct gpt_err err;

    if (gpt_json_parse(&line, (const char *)data, size, "fuzz", &err) !=
        GPT_OK)
        return 0;
    take(line);
    cJSON_Delete(line);
    return 0;
}
