/* Where a data set comes from: PREFIX_KEY_document.json, beside it. It depends
 * on the input and on options with an influence on the tokens, on nothing else:
 * no time, no host, no number of workers, so that the same input gives the same
 * bytes here, too. gpt-dataset(5) describes it; data/document_sources.h has the
 * lines of single documents. */
#ifndef GPT_DATA_PROVENANCE_H
#define GPT_DATA_PROVENANCE_H

#include "base/dtype.h"
#include "base/io.h"
#include "base/json.h"
#include "data/bad_lines.h"
#include "text/input.h"
#include "tokenizer/tokenizer_options.h"

/* What a tokenizer is made of. */
struct gpt_tokenizer_id {
    const struct gpt_tokenizer_options *options; /* borrowed */
    int n_files;
    struct {
        const char *option, *path; /* borrowed */
        int64_t bytes;
        char sha256[65];
    } files[GPT_TOKENIZER_FILES];
};
/* Adds a file that an option names; NULL adds nothing. */
int gpt_tokenizer_id_add(struct gpt_tokenizer_id *id, const char *option,
                         const char *path, struct gpt_err *err) GPT_MUST_USE;

/* Documents by their number of tokens: 0, 1, 2-3, 4-7 and so on. */
enum { GPT_LENGTH_BUCKETS = 48 };

/* What is counted of a key's documents. */
struct gpt_key_counts {
    int64_t documents, sequences, tokens;
    int64_t text_bytes; /* unescaped */
    int64_t of_length[GPT_LENGTH_BUCKETS];
};
/* Counts one document, by its length; the sums are the caller's. */
void gpt_key_counts_add(struct gpt_key_counts *c, int64_t document_tokens);

/* What was read of an input. */
struct gpt_input_sum {
    int64_t begin; /* where in the file */
    int64_t bytes; /* as they are on disk */
    uint64_t xxh64; /* of them */
};

/* What a data set is made from. All pointers are borrowed. */
struct gpt_set_origin {
    const struct gpt_input_range *inputs;
    int64_t n_inputs;
    const struct gpt_tokenizer *tokenizer;
    const struct gpt_tokenizer_id *tokenizer_id; /* its files; may be NULL */
    const char *command;     /* lines to repeat in the JSON; may be NULL */
    int64_t shard, n_shards; /* n_shards = 0: not sharded */
    bool tntidx;             /* the index is TNTIDX, not MMIDIDX */
};

struct gpt_provenance {
    struct gpt_set_origin origin;
    const char *key; /* whose texts the set has */
    enum gpt_dtype dtype;
    const struct gpt_key_counts *counts; /* of this key */
    const struct gpt_input_sum *sums; /* of each input */
    const struct gpt_bad_report *bad;
};
/* Writes the JSON of a data set. The same set gives the same bytes. */
int gpt_provenance_write(struct gpt_out *out, const struct gpt_provenance *p,
                         struct gpt_err *err) GPT_MUST_USE;

/* "gpt-preprocess 0.1.0, 3 inputs, 24.6 MiB, GPT2BPETokenizer of 601 tokens":
 * a JSON in short, into buf. */
void gpt_provenance_brief(char *buf, size_t cap, const cJSON *root);

/* The JSON beside a data set; NULL in *root when there is none. Freed with
 * cJSON_Delete(). */
int gpt_provenance_read(cJSON **root, const char *prefix, struct gpt_err *err)
    GPT_MUST_USE;

#endif
