/* What the readers of a tokenizer.json's steps share: parts, which are objects
 * with a "type", alone or in a "Sequence", and their members. A part that asks
 * for what is not done is refused by its name, never ignored. */
#ifndef GPT_TOKENIZER_TOKENIZER_JSON_PARTS_H
#define GPT_TOKENIZER_TOKENIZER_JSON_PARTS_H

#include "base/json.h"

/* Where parts are: the file, for messages, and what they are read into. */
struct gpt_hf_reading {
    const char *what;
    struct gpt_err *err;
    void *data;
};

typedef int gpt_hf_part_fn(void *data, const cJSON *part, const char *type,
                           const char *field);

/* Calls fn for a part, or for each part of a sequence, which may hold
 * sequences, by the name `list`; for null does nothing. */
int gpt_hf_each_part(const struct gpt_hf_reading *parts, const cJSON *part,
                     const char *field, const char *list, gpt_hf_part_fn *fn)
    GPT_MUST_USE;
/* GPT_EDATA: the value of a member of a part is not supported. */
int gpt_hf_refuse_part(const struct gpt_hf_reading *parts, const char *field,
                       const char *key, const char *value);
/* The same: the member asks for more than there is room for ("steps"). */
int gpt_hf_refuse_more(const struct gpt_hf_reading *parts, const char *field,
                       const char *key, size_t most, const char *what);
/* GPT_EDATA unless a decoder's Strip takes one space from the beginning. */
int gpt_hf_check_strip(const struct gpt_hf_reading *parts, const cJSON *part,
                       const char *field) GPT_MUST_USE;

/* Members of a part; "" and `def` where they are not of that type. */
const cJSON *gpt_hf_member(const cJSON *part, const char *key);
const char *gpt_hf_string(const cJSON *part, const char *key);
bool gpt_hf_flag(const cJSON *part, const char *key, bool def);

#endif
