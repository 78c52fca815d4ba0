/* The parts of a tokenizer.json (Hugging Face, version "1.0") that say what is
 * done to a text before and after byte pairs are merged. A part that asks for
 * what is not done here is refused by its name, never ignored. */
#ifndef GPT_TOKENIZER_TOKENIZER_JSON_STEPS_H
#define GPT_TOKENIZER_TOKENIZER_JSON_STEPS_H

#include "base/json.h"
#include "tokenizer/pretok.h"
#include "tokenizer/vocab.h"

struct gpt_hf_pipeline {
    bool nfc;
    bool prefix_space; /* text that begins with no U+0020 gets one */
    gpt_pretok_fn *cut;
    int32_t before[8], after[8]; /* ids around each text */
    size_t n_before, n_after;
};

/* From the whole file, which `what` names. With `around` false the
 * post-processor is not looked at. Ids are below GPT_VOCAB_MAX, no more is
 * known of them. GPT_EDATA names file, field and value. */
int gpt_hf_pipeline_read(struct gpt_hf_pipeline *p, const cJSON *root,
                         bool around, const char *what, struct gpt_err *err)
    GPT_MUST_USE;

#endif
