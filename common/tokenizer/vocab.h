/* A byte-level BPE vocabulary: tokens (their bytes, by id) and the pairs in the
 * order in which they are merged, read and checked against each other. GPT-2
 * has them in vocab.json and merges.txt. */
#ifndef GPT_TOKENIZER_VOCAB_H
#define GPT_TOKENIZER_VOCAB_H

#include "text/str.h"
#include "tokenizer/ids.h"

/* Neighbours that become one token. */
struct gpt_merge {
    int32_t left, right, result; /* ids */
};

struct gpt_vocab {
    int64_t n;
    struct gpt_str *tokens; /* (n) their bytes, by id */
    struct gpt_merge *merges; /* (n_merges) by rank, the lowest first */
    size_t n_merges;
    bool shared_ranks; /* merges in a row with the same result have one rank */
    int32_t byte_id[256];
    int32_t fallback_id[256]; /* of "<0x0A>" and the like; characters only */
    int64_t n_prefixes; /* behind the n tokens: see vocab_chars.h */
    int32_t eod; /* id of "<|endoftext|>", -1 = none */
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
/* The same from the JSON of `vocab` and `merges` of a tokenizer.json, which
 * `what` names: merges are "a b" or ["a", "b"]. Ids may leave gaps, and there
 * are n_ids of them at least; a token in a gap has data == NULL. */
int gpt_vocab_load_json(struct gpt_vocab *v, struct gpt_str vocab,
                        struct gpt_str merges, int64_t n_ids,
                        const char *what, struct gpt_err *err) GPT_MUST_USE;
/* The same where the tokens are of characters: see vocab_chars.h. GPT_EDATA
 * also for merges of tokens that are bytes. */
int gpt_vocab_load_chars(struct gpt_vocab *v, struct gpt_str vocab,
                         struct gpt_str merges, int64_t n_ids,
                         const char *what, struct gpt_err *err) GPT_MUST_USE;
/* Fills in the rest of a vocabulary of which only the tokens are known, those
 * of `map`: the token of lowest id that two neighbours make is merged, as
 * tiktoken does. */
struct gpt_token_map;
int gpt_vocab_rank_tokens(struct gpt_vocab *v, const struct gpt_token_map *map,
                          const char *what, struct gpt_err *err) GPT_MUST_USE;
void gpt_vocab_free(struct gpt_vocab *v);

#endif
