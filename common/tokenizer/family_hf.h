/* What the files of HuggingFaceTokenizer share: a tokenizer.json on its way to
 * a tokenizer. family_hf.c reads it, family_hf_added.c its added tokens. */
#ifndef GPT_TOKENIZER_FAMILY_HF_H
#define GPT_TOKENIZER_FAMILY_HF_H

#include "base/io.h"
#include "tokenizer/family_bytelevel.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/tokenizer_json_steps.h"

struct gpt_hf_load {
    struct gpt_bytelevel *t;
    const struct gpt_tokenizer_options *o;
    char path[GPT_PATH_BYTES];
    struct gpt_hf_file file;
    const cJSON *root; /* of it, without vocabulary and merges */
    struct gpt_hf_pipeline pipeline;
    int64_t n_listed; /* tokens of model.vocab */
    struct gpt_err *err;
};

/* One more than the highest id of an added token; `added` is the member of that
 * name. Before the vocabulary is read. */
int gpt_hf_count_ids(const struct gpt_hf_load *f, const cJSON *added,
                     int64_t *n_ids) GPT_MUST_USE;
/* Places the added tokens in the vocabulary, which is read and in f->t->map,
 * and lists them for the search in texts. GPT_EDATA when the library would give
 * them other ids, and for flags that are not done for such a vocabulary. */
int gpt_hf_read_added(struct gpt_hf_load *f, const cJSON *added) GPT_MUST_USE;

#endif
