/* The parts of a tokenizer.json (Hugging Face, version "1.0") that say what is
 * done to a text before and after byte pairs are merged. A part that asks for
 * what is not done here is refused by its name, never ignored. */
#ifndef GPT_TOKENIZER_TOKENIZER_JSON_STEPS_H
#define GPT_TOKENIZER_TOKENIZER_JSON_STEPS_H

#include "base/json.h"
#include "tokenizer/pretok.h"
#include "tokenizer/vocab.h"

/* What stands for spaces in a vocabulary of characters: U+2581, put there by
 * the normalizer, so that added tokens are searched for in what it makes, or by
 * the pre-tokenizer, behind that search. */
enum gpt_hf_spaces {
    GPT_HF_BYTES, /* none: a vocabulary of bytes */
    GPT_HF_NORMALIZED,
    GPT_HF_PRETOKENIZED,
};

struct gpt_hf_pipeline {
    bool nfc;
    enum gpt_hf_spaces spaces;
    bool prepend;      /* text gets a space before it, always */
    bool prefix_space; /* text that begins with no space gets one */
    bool prefix_first; /* only where it is the first of a document */
    bool strip;        /* decoding drops a space at the beginning */
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
/* The post-processor alone: fills before and after, and nothing else. */
int gpt_hf_around_read(struct gpt_hf_pipeline *p, const cJSON *root,
                       bool around, const char *what, struct gpt_err *err)
    GPT_MUST_USE;

#endif
