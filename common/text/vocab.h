/* A byte-level BPE vocabulary as GPT-2 has it: vocab.json (token -> id) and
 * merges.txt (pairs in the order in which they are merged), read and checked
 * against each other. */
#ifndef GPT_TEXT_VOCAB_H
#define GPT_TEXT_VOCAB_H

#include "base/memory.h"
#include "text/jsonl.h"

enum { GPT_VOCAB_MAX = 1 << 21 }; /* tokens */

struct gpt_merge {
    int32_t left, right, result; /* ids */
};

struct gpt_vocab {
    int64_t n;
    struct gpt_slice *tokens; /* (n) their bytes, by id */
    struct gpt_merge *merges; /* (n_merges) by rank, the lowest first */
    size_t n_merges;
    bool shared_ranks; /* merges in a row with the same result have one rank */
    int32_t byte_id[256];
    int32_t eod; /* of "<|endoftext|>", -1 = none */
    struct gpt_arena arena; /* owns the bytes */
};

/* Fills *v, which gpt_vocab_free() empties, also after a failure. GPT_EDATA
 * for what does not fit together, with the token or merges.txt:line:
 *   vocab.json is one object, string -> id, its ids 0..n-1 each once;
 *   every byte has a token;
 *   a line of merges.txt is two tokens with one space between, both and their
 *   concatenation in the vocabulary, no pair twice. Lines that begin with
 *   "#version" are skipped, as Hugging Face tokenizers do. */
int gpt_vocab_load(struct gpt_vocab *v, const char *vocab_file,
                   const char *merge_file, struct gpt_err *err) GPT_MUST_USE;
void gpt_vocab_free(struct gpt_vocab *v);

#endif
