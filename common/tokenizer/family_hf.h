/* What the files of HuggingFaceTokenizer share: a tokenizer.json on its way to
 * a tokenizer. family_hf.c reads it, family_hf_added.c its added tokens. */
#ifndef GPT_TOKENIZER_FAMILY_HF_H
#define GPT_TOKENIZER_FAMILY_HF_H

#include "base/io.h"
#include "tokenizer/family_bytelevel.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/tokenizer_json_steps.h"

struct gpt_hf_load {
    struct gpt_bytelevel *t; /* NULL unless the model is BPE */
    const struct gpt_tokenizer_options *o;
    char path[GPT_PATH_BYTES];
    struct gpt_hf_file file;
    const cJSON *root; /* of it, without vocabulary and merges */
    struct gpt_hf_pipeline pipeline;
    int64_t n_listed; /* tokens of model.vocab */
    struct gpt_err *err;
};

/* How the tokens of model.vocab are found by their text, -1 when there is none;
 * `data` is what the caller has of the model. */
typedef int32_t gpt_hf_find_fn(const void *data, const char *text, size_t len);

/* Copies ids around a text, which must be below n_ids. */
int gpt_hf_copy_around(const struct gpt_hf_load *f, const int32_t *from,
                       size_t n, int64_t n_ids, int32_t **ids, size_t *n_copied)
    GPT_MUST_USE;
/* The end of a document: what the configuration beside the file says, or else
 * a common name of it; -1: none. After the added tokens were read. */
int gpt_hf_find_eod(const struct gpt_hf_load *f, gpt_hf_find_fn *find,
                    const void *data, int32_t *eod) GPT_MUST_USE;

/* One more than the highest id of an added token; `added` is the member of that
 * name. Before the vocabulary is read. */
int gpt_hf_count_ids(const struct gpt_hf_load *f, const cJSON *added,
                     int64_t *n_ids) GPT_MUST_USE;
/* An added token, whose id must be below n_ids; flags have the library's values
 * where one is absent. The text is borrowed from the item. */
int gpt_hf_read_token(const struct gpt_hf_load *f, const cJSON *item,
                      int64_t n_ids, struct gpt_added_token *token,
                      bool *normalized) GPT_MUST_USE;
/* GPT_EDATA: an added token, whose id in model.vocab is `same`, or -1 where
 * another one has its id. */
int gpt_hf_refuse_id(const struct gpt_hf_load *f,
                     const struct gpt_added_token *token, int32_t same);
/* GPT_EDATA unless an added token that is not in model.vocab has the id `next`,
 * which the library gives it. */
int gpt_hf_check_next(const struct gpt_hf_load *f,
                      const struct gpt_added_token *token, int64_t next)
    GPT_MUST_USE;
/* Places the added tokens in the vocabulary, which is read and in f->t->map,
 * and lists them for the search in texts. GPT_EDATA when the library would give
 * them other ids, and for flags that are not done for such a vocabulary. */
int gpt_hf_read_added(struct gpt_hf_load *f, const cJSON *added) GPT_MUST_USE;

/* A tokenizer of a file whose model takes pieces of whole characters, as
 * Unigram does: family_hf_pieces.c. Does nothing for another model; *known says
 * which it is. */
int gpt_hf_pieces_open(struct gpt_tokenizer **tok, bool *known,
                       const struct gpt_hf_load *f) GPT_MUST_USE;

#endif
