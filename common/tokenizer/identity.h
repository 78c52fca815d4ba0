/* Which tokenizer it is, so that a data set, a checkpoint and a command line
 * can be held against each other. Ids of one vocabulary are noise in another,
 * and nothing but the loss or the text would show it. */
#ifndef GPT_TOKENIZER_IDENTITY_H
#define GPT_TOKENIZER_IDENTITY_H

#include "base/json.h"
#include "tokenizer/tokenizer_options.h"

struct gpt_tokenizer_identity {
    char type[64];
    int64_t vocabulary; /* tokens */
    int n_files;
    struct {
        char name[200]; /* without directories */
        char sha256[65];
    } files[GPT_TOKENIZER_FILES];
};

/* Identifies the tokenizer that the options have opened; reads its files once
 * more. */
int gpt_tokenizer_identify(struct gpt_tokenizer_identity *id,
                           const struct gpt_tokenizer_options *o,
                           const struct gpt_tokenizer *tok,
                           struct gpt_err *err) GPT_MUST_USE;

/* From the member "tokenizer" of a data set's provenance. False when it is not
 * there or says too little to be compared. */
bool gpt_tokenizer_identity_read(struct gpt_tokenizer_identity *id,
                                 const cJSON *tokenizer);

/* True when both give the same ids, by the digests of their files. */
bool gpt_tokenizer_identity_equal(const struct gpt_tokenizer_identity *a,
                                  const struct gpt_tokenizer_identity *b);

/* True when a directory holds the tokenizer's own files, by their names and
 * digests. Models of SentencePiece lie beside two tokenizers: tokenizer.json,
 * and the tokenizer.model that it was made of. False also for a tokenizer
 * without files, and for files that cannot be read. */
bool gpt_tokenizer_identity_in(const struct gpt_tokenizer_identity *id,
                               const char *dir);

/* "GPT2BPETokenizer of 262 tokens (vocab.json, SHA-256 566216bd...)". */
void gpt_tokenizer_identity_text(char *buf, size_t cap,
                                 const struct gpt_tokenizer_identity *id);

/* *agree: both have the same tokens under the same ids, whatever files they
 * come from: GPT-2's vocab.json and its tokenizer.json, for example. Of one
 * family, both must also make the same ids of the text of each token. O(V).
 * Fails where memory is out. */
int gpt_tokenizers_agree(bool *agree, const struct gpt_tokenizer *a,
                         const struct gpt_tokenizer *b,
                         struct gpt_err *err) GPT_MUST_USE;

#endif
